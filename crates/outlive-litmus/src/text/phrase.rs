//! Expressions and conditions.
//!
//! A parenthesis can begin an expression or a condition; both are therefore parsed by the same
//! rules, and each operator demands the kind of its operands.

use super::error::ParseError;
use super::lexer::{Kind, Token};
use super::parser::{Parsed, Parser};
use crate::test::{Comparison, Condition, Expression};

/// The maximum number of levels of an expression or a condition. A sum of N terms has N levels.
const MAX_LEVELS: usize = 64;
/// The deepest nesting of rules. The text of an expression in a condition of [`MAX_LEVELS`] each
/// needs two rules for each level.
const MAX_DEPTH: usize = 4 * MAX_LEVELS + 40;

/// A number or a truth value.
pub(super) enum Phrase<N> {
    Number(Expression<N>),
    Truth(Condition<N>),
}

/// The names that a phrase may use.
pub(super) trait Scope<N> {
    /// Takes a value, or a condition that begins with a name.
    fn named(&self, parser: &mut Parser<'_>) -> Parsed<Phrase<N>>;
}

/// Takes an expression.
pub(super) fn expression<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
) -> Parsed<Expression<N>> {
    let begin = parser.next;
    let phrase = sum(parser, scope, 0)?;
    number(parser, begin, phrase)
}

/// Takes a condition.
pub(super) fn condition<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
) -> Parsed<Condition<N>> {
    let begin = parser.next;
    let phrase = any(parser, scope, 0)?;
    truth(parser, begin, phrase)
}

fn number<N>(parser: &Parser<'_>, begin: Token<'_>, phrase: Phrase<N>) -> Parsed<Expression<N>> {
    match phrase {
        Phrase::Number(number) => Ok(number),
        Phrase::Truth(_) => Err(parser.wrong(
            begin,
            "a condition begins here, and a number is expected",
            "write a number, a name, or a sum",
        )),
    }
}

fn truth<N>(parser: &Parser<'_>, begin: Token<'_>, phrase: Phrase<N>) -> Parsed<Condition<N>> {
    match phrase {
        Phrase::Truth(condition) => Ok(condition),
        Phrase::Number(_) => Err(parser.wrong(
            begin,
            "a number begins here, and a condition is expected",
            "compare the number, as in `x = 1` or `x is absent`",
        )),
    }
}

fn too_deep(parser: &Parser<'_>) -> ParseError {
    parser.wrong(
        parser.next,
        format!("this is nested more than {MAX_LEVELS} levels deep"),
        "write fewer parentheses and shorter sums",
    )
}

fn deeper(parser: &Parser<'_>, depth: usize) -> Parsed<usize> {
    match depth < MAX_DEPTH {
        true => Ok(depth + 1),
        false => Err(too_deep(parser)),
    }
}

/// Returns the expression, unless it has too many levels.
fn limited<N>(parser: &Parser<'_>, it: Expression<N>) -> Parsed<Phrase<N>> {
    match levels(&it) <= MAX_LEVELS {
        true => Ok(Phrase::Number(it)),
        false => Err(too_deep(parser)),
    }
}

/// Returns the condition, unless it has too many levels.
fn limited_truth<N>(parser: &Parser<'_>, it: Condition<N>) -> Parsed<Phrase<N>> {
    match levels_of_truth(&it) <= MAX_LEVELS {
        true => Ok(Phrase::Truth(it)),
        false => Err(too_deep(parser)),
    }
}

fn levels<N>(expression: &Expression<N>) -> usize {
    match expression {
        Expression::Constant(_) | Expression::Value(_) => 1,
        Expression::Add(a, b)
        | Expression::Subtract(a, b)
        | Expression::Max(a, b)
        | Expression::Min(a, b) => 1 + levels(a).max(levels(b)),
    }
}

fn levels_of_truth<N>(condition: &Condition<N>) -> usize {
    match condition {
        Condition::Compare(..) | Condition::Absent(_) => 1,
        Condition::All(parts) | Condition::Any(parts) => {
            1 + parts.iter().map(levels_of_truth).max().unwrap_or(0)
        }
        Condition::Not(part) => 1 + levels_of_truth(part),
    }
}

/// Takes conditions between which `or` stands, or another phrase.
fn any<N: Copy>(parser: &mut Parser<'_>, scope: &impl Scope<N>, depth: usize) -> Parsed<Phrase<N>> {
    let depth = deeper(parser, depth)?;
    chain(parser, "or", Condition::Any, |parser| {
        chain(parser, "and", Condition::All, |parser| {
            negation(parser, scope, depth)
        })
    })
}

/// Takes phrases between which `word` stands.
fn chain<'t, N>(
    parser: &mut Parser<'t>,
    word: &str,
    all: impl Fn(Vec<Condition<N>>) -> Condition<N>,
    part: impl Fn(&mut Parser<'t>) -> Parsed<Phrase<N>>,
) -> Parsed<Phrase<N>> {
    let begin = parser.next;
    let first = part(parser)?;
    if !parser.next.is(word) {
        return Ok(first);
    }
    let mut parts = vec![truth(parser, begin, first)?];
    while parser.takes(word) {
        let begin = parser.next;
        let next = part(parser)?;
        parts.push(truth(parser, begin, next)?);
    }
    limited_truth(parser, all(parts))
}

fn negation<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
    depth: usize,
) -> Parsed<Phrase<N>> {
    if !parser.takes("not") {
        return comparison(parser, scope, depth);
    }
    let depth = deeper(parser, depth)?;
    let begin = parser.next;
    let negated = negation(parser, scope, depth)?;
    let negated = truth(parser, begin, negated)?;
    limited_truth(parser, Condition::Not(Box::new(negated)))
}

const COMPARISONS: [&str; 6] = ["=", "!=", "<", "<=", ">", ">="];

fn comparison<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
    depth: usize,
) -> Parsed<Phrase<N>> {
    let begin = parser.next;
    let left = sum(parser, scope, depth)?;
    if parser.takes("is") {
        let Phrase::Number(Expression::Value(value)) = left else {
            return Err(parser.wrong(
                begin,
                "only a value can be absent or present, not a number computed from it",
                "name the value, as in `x is absent`",
            ));
        };
        let absent = Condition::Absent(value);
        return Ok(Phrase::Truth(match () {
            () if parser.takes("absent") => absent,
            () if parser.takes("present") => Condition::Not(Box::new(absent)),
            () => {
                return Err(parser.unexpected("`absent` or `present`", "`x is absent`"));
            }
        }));
    }
    if !COMPARISONS.contains(&parser.next.text) {
        return Ok(left);
    }
    let left = number(parser, begin, left)?;
    let sign = parser.take();
    if sign.is("=") && parser.next.is("=") {
        let problem = "`==` is not a comparison here";
        return Err(parser.wrong(sign, problem, "write `=`"));
    }
    let begin = parser.next;
    let right = sum(parser, scope, depth)?;
    let right = number(parser, begin, right)?;
    if COMPARISONS.contains(&parser.next.text) {
        return Err(parser.wrong(
            parser.next,
            "a comparison has two sides",
            "write `a < b and b < c` instead of `a < b < c`",
        ));
    }
    let (left, comparison, right) = match sign.text {
        "=" => (left, Comparison::Equal, right),
        "!=" => (left, Comparison::Different, right),
        "<" => (left, Comparison::Less, right),
        "<=" => (left, Comparison::AtMost, right),
        ">" => (right, Comparison::Less, left),
        _ => (right, Comparison::AtMost, left),
    };
    Ok(Phrase::Truth(Condition::Compare(left, comparison, right)))
}

fn sum<N: Copy>(parser: &mut Parser<'_>, scope: &impl Scope<N>, depth: usize) -> Parsed<Phrase<N>> {
    let depth = deeper(parser, depth)?;
    let begin = parser.next;
    let mut left = primary(parser, scope, depth)?;
    while parser.next.is("+") || parser.next.is("-") {
        let first = Box::new(number(parser, begin, left)?);
        let operator = parser.take();
        let begin = parser.next;
        let second = primary(parser, scope, depth)?;
        let second = Box::new(number(parser, begin, second)?);
        let both = match operator.text {
            "+" => Expression::Add(first, second),
            _ => Expression::Subtract(first, second),
        };
        left = limited(parser, both)?;
    }
    Ok(left)
}

fn primary<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
    depth: usize,
) -> Parsed<Phrase<N>> {
    let next = parser.next;
    match next.text {
        "(" => {
            parser.take();
            let inner = any(parser, scope, depth)?;
            parser.expect(
                ")",
                "`)` to close the parenthesis, or an operator before it",
            )?;
            Ok(inner)
        }
        "max" => extreme(parser, scope, depth, Expression::Max),
        "min" => extreme(parser, scope, depth, Expression::Min),
        "all" => list(parser, scope, depth, Condition::All),
        "any" => list(parser, scope, depth, Condition::Any),
        "-" => Ok(Phrase::Number(Expression::Constant(parser.number()?))),
        _ if next.kind == Kind::Number => {
            Ok(Phrase::Number(Expression::Constant(parser.number()?)))
        }
        _ => scope.named(parser),
    }
}

/// Takes `max` or `min` with two or more numbers.
fn extreme<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
    depth: usize,
    of_two: impl Fn(Box<Expression<N>>, Box<Expression<N>>) -> Expression<N>,
) -> Parsed<Phrase<N>> {
    let word = parser.take();
    let context = format!("two or more numbers, as in `{}(a, b)`", word.text);
    parser.expect("(", &context)?;
    let begin = parser.next;
    let mut result = sum(parser, scope, depth)?;
    if !parser.next.is(",") {
        return Err(parser.unexpected("`,`", &context));
    }
    while parser.takes(",") {
        let first = number(parser, begin, result)?;
        let begin = parser.next;
        let other = sum(parser, scope, depth)?;
        let other = number(parser, begin, other)?;
        result = limited(parser, of_two(Box::new(first), Box::new(other)))?;
    }
    parser.expect(")", &context)?;
    Ok(result)
}

/// Takes `all` or `any` with zero or more conditions.
fn list<N: Copy>(
    parser: &mut Parser<'_>,
    scope: &impl Scope<N>,
    depth: usize,
    of_all: impl Fn(Vec<Condition<N>>) -> Condition<N>,
) -> Parsed<Phrase<N>> {
    let word = parser.take();
    let context = format!("conditions, as in `{}(x = 1, y = 1)`", word.text);
    parser.expect("(", &context)?;
    let mut parts = Vec::new();
    while !parser.next.is(")") {
        if !parts.is_empty() {
            parser.expect(",", &context)?;
        }
        let begin = parser.next;
        let part = any(parser, scope, depth)?;
        parts.push(truth(parser, begin, part)?);
    }
    parser.take();
    limited_truth(parser, of_all(parts))
}
