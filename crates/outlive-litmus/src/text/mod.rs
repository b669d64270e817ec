//! The text format of tests.
//!
//! ```
//! let text = r#"
//! ## A comment ends with the line.
//! test lost-update
//! about "Two transactions increment an object, and one of the increments is lost."
//! family read-write
//! objects x = 0
//!
//! transaction t1 {
//!     a = read x
//!     write x = a + 1
//! }
//!
//! transaction t2 {
//!     a = read x
//!     write x = a + 1
//! }
//!
//! never t1 committed and t2 committed and x != 2
//! forbidden from repeatable-read, snapshot
//! "#;
//! let tests = outlive_litmus::text::parse(text)?;
//! assert_eq!(tests[0].transactions.len(), 2);
//! assert_eq!(outlive_litmus::text::parse(&outlive_litmus::text::print(&tests[0]))?, tests);
//! # Ok::<(), outlive_litmus::text::ParseError>(())
//! ```
//!
//! # Grammar
//!
//! In EBNF: `{ }` is a repetition, `[ ]` an option. White space separates words and has no other
//! meaning.
//!
//! ```text
//! file        = { test } ;
//! test        = "test" test-name
//!               "about" sentence
//!               "family" family
//!               "objects" object { "," object }
//!               transaction { transaction }
//!               { name "before" name }
//!               ( "always" | "never" ) condition
//!               "forbidden" "from" level { "," level } ;
//! object      = name ( "=" number | "absent" ) ;
//! transaction = "transaction" name "{" step [ ";" ] { step [ ";" ] } "}" ;
//! step        = name "=" "read" name
//!             | name "=" "count" "objects"
//!             | ( "write" | "insert" ) name "=" expression
//!             | "delete" name
//!             | "abort" ;
//! condition   = conjunction { "or" conjunction } ;
//! conjunction = negation { "and" negation } ;
//! negation    = "not" negation | fact ;
//! fact        = expression ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) expression
//!             | value "is" ( "absent" | "present" )
//!             | name ( "committed" | "aborted" )
//!             | ( "all" | "any" ) "(" [ condition { "," condition } ] ")"
//!             | "(" condition ")" ;
//! expression  = operand { ( "+" | "-" ) operand } ;
//! operand     = number | value
//!             | ( "max" | "min" ) "(" expression "," expression { "," expression } ")"
//!             | "(" expression ")" ;
//! value       = name | name "." name | "committed" "(" name ")" ;
//! name        = lower-case letter { letter | digit | "_" } ;
//! test-name   = ( lower-case letter | digit ) { lower-case letter | digit | "-" } ;
//! number      = [ "-" ] digit { digit } ;
//! sentence    = '"' { character | '\"' | '\\' | '\u{' hexadecimal digits '}' } '"' ;
//! ```
//!
//! A `family` is a [`Family`](crate::test::Family), a `level` a [`Level`](crate::level::Level). A
//! line break in a sentence, with the white space around it, is one space. The words of the grammar
//! are reserved: they cannot be names.
//!
//! # Meaning
//!
//! - The steps of a transaction name values that it has read before. An assertion names objects
//!   (`x`), values of transactions (`t1.a`), and outcomes (`t1 committed`, `t1 aborted`; neither is
//!   true if the outcome is unknown). `committed(t1)` is the outcome as a number,
//!   [`Seen::Committed`](crate::test::Seen::Committed).
//! - `always` names only objects.
//! - A comparison with an absent value is false, and so is its opposite: `x != 1` says that `x` is
//!   present and is not 1. `not x = 1` is true also if `x` is absent.
//! - `and` binds stronger than `or`, `not` stronger than `and`.
//! - `all()` is true and `any()` is false.
//! - No level after `forbidden from` implies another one.
//!
//! # Limits
//!
//! A test has at most 64 objects and 64 transactions of 256 steps; expressions and conditions have
//! at most 64 levels.

mod error;
mod lexer;
mod parser;
mod phrase;
mod print;
mod rules;

pub use error::ParseError;
pub use print::{assertion, print};

use crate::test::Test;

/// Returns the tests in a text.
///
/// # Errors
/// If the text is not as the grammar demands, names an object, transaction, value, family or level
/// that does not exist, or states an order with a cycle.
pub fn parse(text: &str) -> Result<Vec<Test>, ParseError> {
    rules::tests(&mut parser::Parser::new(text))
}
