//! Tests: their parts in the order of the grammar, and what the parts say of each other.

use super::error::ParseError;
use super::lexer::{Kind, Token};
use super::parser::{Parsed, Parser};
use super::phrase::{Phrase, Scope, condition, expression};
use crate::level::Level;
use crate::test::{
    Assertion, Comparison, Condition, Expression, Family, Local, Object, Seen, Step, Test,
    Transaction,
};
use std::collections::HashSet;

/// The maximum number of objects, and of transactions, of a test.
pub(super) const MAX_PARTS: usize = 64;
/// The maximum number of steps of a transaction.
pub(super) const MAX_STEPS: usize = 256;

/// Takes all tests.
pub(super) fn tests(parser: &mut Parser<'_>) -> Parsed<Vec<Test>> {
    let mut tests: Vec<Test> = Vec::new();
    let mut names = HashSet::new();
    while parser.next.kind != Kind::End {
        if !parser.next.is("test") {
            return Err(match tests.is_empty() {
                true => parser.unexpected("`test`", "`test NAME`, with which each test begins"),
                false => parser.unexpected(
                    "`test` or the end of the text",
                    "`test NAME` before the next test; a test ends with its levels",
                ),
            });
        }
        parser.take();
        tests.push(test(parser, &mut names)?);
    }
    Ok(tests)
}

/// Takes a test after the word `test`.
fn test(parser: &mut Parser<'_>, names: &mut HashSet<String>) -> Parsed<Test> {
    let rule = "a test's name has lower-case letters, digits and hyphens, as `lost-update`";
    let name = parser.hyphenated("the name of a test", rule)?;
    let is_sound = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    if !name.text.chars().all(is_sound) || name.text.starts_with('-') {
        return Err(parser.wrong(name, "this is not a valid name of a test", rule));
    }
    if !names.insert(name.text.into()) {
        return Err(parser.wrong(
            name,
            "another test has this name",
            "give each test a name of its own",
        ));
    }
    parser.expect("about", "`about \"SENTENCE\"` after the name of the test")?;
    let about = parser.quoted("`about \"SENTENCE\"`, which explains the test")?;
    let family = family(parser)?;
    let mut shape = Shape {
        objects: objects(parser)?,
        transactions: Vec::new(),
    };
    while parser.next.is("transaction") || shape.transactions.is_empty() {
        let transaction = transaction(parser, &shape)?;
        shape.transactions.push(transaction);
    }
    let order = order(parser, &shape)?;
    let assertion = assertion(parser, &shape)?;
    Ok(Test {
        name: name.text.into(),
        about,
        family,
        order,
        assertion,
        forbidden_from: levels(parser)?,
        objects: shape.objects,
        transactions: shape.transactions,
    })
}

fn family(parser: &mut Parser<'_>) -> Parsed<Family> {
    parser.expect(
        "family",
        "`family` and the kind of anomaly after the sentence",
    )?;
    let names = Family::ALL.map(Family::name);
    let known = format!("write one of {}", names.join(", "));
    let word = parser.hyphenated("the name of a family", &known)?;
    let found = { Family::ALL.into_iter() }.find(|it| it.name() == word.text);
    found.ok_or_else(|| parser.wrong(word, "this family does not exist", known))
}

fn objects(parser: &mut Parser<'_>) -> Parsed<Vec<Object>> {
    let context = "the objects with their first values, as `objects x = 0, y absent`";
    parser.expect("objects", context)?;
    let mut objects: Vec<Object> = Vec::new();
    loop {
        let name = parser.name("an object")?;
        if objects.iter().any(|it| it.name == name.text) {
            let problem = "another object has this name";
            return Err(parser.wrong(name, problem, "give each object a name of its own"));
        }
        if objects.len() == MAX_PARTS {
            let problem = format!("a test has at most {MAX_PARTS} objects");
            return Err(parser.wrong(name, problem, "leave this one out"));
        }
        let initial = match parser.next.text {
            "absent" => {
                parser.take();
                None
            }
            "=" => {
                parser.take();
                Some(parser.number()?)
            }
            _ => return Err(parser.unexpected("`= NUMBER` or `absent`", context)),
        };
        objects.push(Object {
            name: name.text.into(),
            initial,
        });
        if !parser.takes(",") {
            return Ok(objects);
        }
    }
}

/// The parts of a test that later parts name.
struct Shape {
    objects: Vec<Object>,
    transactions: Vec<Transaction>,
}

/// Returns `none` or the names.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    }
}

impl Shape {
    fn object(&self, parser: &mut Parser<'_>) -> Parsed<usize> {
        let name = parser.name("an object")?;
        let found = self.objects.iter().position(|it| it.name == name.text);
        found.ok_or_else(|| self.unknown_object(parser, name))
    }

    fn unknown_object(&self, parser: &Parser<'_>, name: Token<'_>) -> ParseError {
        let known = listed(self.objects.iter().map(|it| &*it.name));
        parser.wrong(
            name,
            "the test has no object with this name",
            format!("the objects are: {known}"),
        )
    }

    fn transaction(&self, parser: &mut Parser<'_>) -> Parsed<usize> {
        let name = parser.name("a transaction")?;
        let found = self.transactions.iter().position(|it| it.name == name.text);
        found.ok_or_else(|| {
            let known = listed(self.transactions.iter().map(|it| &*it.name));
            parser.wrong(
                name,
                "the test has no transaction with this name",
                format!("the transactions are: {known}"),
            )
        })
    }
}

fn transaction(parser: &mut Parser<'_>, shape: &Shape) -> Parsed<Transaction> {
    parser.expect(
        "transaction",
        "`transaction NAME { STEPS }` after the objects",
    )?;
    let name = parser.name("a transaction")?;
    if { shape.transactions.iter() }.any(|it| it.name == name.text) {
        let problem = "another transaction has this name";
        return Err(parser.wrong(name, problem, "give each transaction a name of its own"));
    }
    if shape.objects.iter().any(|it| it.name == name.text) {
        let problem = "an object has this name";
        return Err(parser.wrong(name, problem, "name transactions as `t1`"));
    }
    if shape.transactions.len() == MAX_PARTS {
        let problem = format!("a test has at most {MAX_PARTS} transactions");
        return Err(parser.wrong(name, problem, "leave this one out"));
    }
    let mut transaction = Transaction {
        name: name.text.into(),
        locals: Vec::new(),
        steps: Vec::new(),
    };
    parser.expect("{", "the steps of the transaction in braces")?;
    while !parser.next.is("}") {
        let begin = parser.next;
        if transaction.steps.last() == Some(&Step::Abort) {
            let problem = "a step after `abort` is never executed";
            return Err(parser.wrong(begin, problem, "write `}` here"));
        }
        if transaction.steps.len() == MAX_STEPS {
            let problem = format!("a transaction has at most {MAX_STEPS} steps");
            return Err(parser.wrong(begin, problem, "write `}` here"));
        }
        let ends = ["transaction", "always", "never", "forbidden", "test"];
        if begin.kind == Kind::End || ends.iter().any(|it| begin.is(it)) {
            let problem = "the steps of the transaction have no end";
            return Err(parser.wrong(begin, problem, "write `}` before it"));
        }
        let step = step(parser, shape, &mut transaction.locals)?;
        transaction.steps.push(step);
        parser.takes(";");
    }
    let end = parser.take();
    if transaction.steps.is_empty() {
        let problem = "the transaction has no steps";
        return Err(parser.wrong(end, problem, "write one before it, as `a = read x`"));
    }
    Ok(transaction)
}

fn step(parser: &mut Parser<'_>, shape: &Shape, locals: &mut Vec<String>) -> Parsed<Step> {
    match parser.next.text {
        "abort" => {
            parser.take();
            Ok(Step::Abort)
        }
        "delete" => {
            parser.take();
            let object = shape.object(parser)?;
            Ok(Step::Delete { object })
        }
        word @ ("write" | "insert") => {
            parser.take();
            let object = shape.object(parser)?;
            let name = &shape.objects[object].name;
            parser.expect("=", &format!("the new value, as in `{word} {name} = 1`"))?;
            let value = expression(parser, &InTransaction { shape, locals })?;
            Ok(match word {
                "write" => Step::Write { object, value },
                _ => Step::Insert { object, value },
            })
        }
        "read" | "count" => {
            let word = parser.next.text;
            let problem = format!("`{word}` needs a name for its value");
            let instead = match word {
                "read" => "write `a = read x`",
                _ => "write `n = count objects`",
            };
            Err(parser.wrong(parser.next, problem, instead))
        }
        _ if parser.next.kind == Kind::Word => read(parser, shape, locals),
        _ => Err(parser.unexpected(
            "a step or `}`",
            "`a = read x`, `n = count objects`, `write x = 1`, `insert x = 1`, `delete x` or \
             `abort`",
        )),
    }
}

/// Takes a read or a count.
fn read(parser: &mut Parser<'_>, shape: &Shape, locals: &mut Vec<String>) -> Parsed<Step> {
    let name = parser.name("a value")?;
    if locals.iter().any(|it| it == name.text) {
        let problem = "another value of the transaction has this name";
        return Err(parser.wrong(name, problem, "give each value a name of its own"));
    }
    let into = Local(locals.len());
    parser.expect(
        "=",
        "`a = read x` or `n = count objects` for a read, `write x = 1` for a write",
    )?;
    let step = match parser.next.text {
        "read" => {
            parser.take();
            let object = shape.object(parser)?;
            Step::Read { object, into }
        }
        "count" => {
            parser.take();
            parser.expect(
                "objects",
                "`count objects`, which counts those that are present",
            )?;
            Step::Count { into }
        }
        _ => {
            let context = "`a = read x` for a read, `write x = 1` for a write";
            return Err(parser.unexpected("`read` or `count`", context));
        }
    };
    locals.push(name.text.into());
    Ok(step)
}

/// The values that a transaction has read so far.
struct InTransaction<'s> {
    shape: &'s Shape,
    locals: &'s [String],
}

impl Scope<Local> for InTransaction<'_> {
    fn named(&self, parser: &mut Parser<'_>) -> Parsed<Phrase<Local>> {
        let name = parser.name("a value")?;
        let found = self.locals.iter().position(|it| it == name.text);
        if let Some(local) = found {
            return Ok(Phrase::Number(Expression::Value(Local(local))));
        }
        let is_object = self.shape.objects.iter().any(|it| it.name == name.text);
        let (problem, instead) = match is_object {
            true => (
                "this is an object, not a value",
                format!(
                    "read it first, as in `a = read {}`, and write `a`",
                    name.text
                ),
            ),
            false => (
                "the transaction has not read a value with this name before",
                format!(
                    "the values up to here are: {}",
                    listed(self.locals.iter().map(|it| &**it))
                ),
            ),
        };
        Err(parser.wrong(name, problem, instead))
    }
}

fn order(parser: &mut Parser<'_>, shape: &Shape) -> Parsed<Vec<(usize, usize)>> {
    let mut order = Vec::new();
    while parser.next.kind == Kind::Word && !["always", "never"].contains(&parser.next.text) {
        let begin = parser.next;
        if begin.is("forbidden") || begin.is("test") {
            break;
        }
        let first = shape.transaction(parser)?;
        parser.expect(
            "before",
            "`t1 before t2`, or `always` or `never` and a condition",
        )?;
        let second = shape.transaction(parser)?;
        if order.contains(&(first, second)) {
            let problem = "this order is stated twice";
            return Err(parser.wrong(begin, problem, "leave it out"));
        }
        if first == second || reaches(&order, second, first) {
            let problem = "with this order, a transaction begins after its own end";
            return Err(parser.wrong(begin, problem, "leave out one of the orders in the cycle"));
        }
        order.push((first, second));
    }
    Ok(order)
}

/// Returns whether `order` leads from one transaction to another one.
fn reaches(order: &[(usize, usize)], from: usize, to: usize) -> bool {
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(&it) = reached.get(next) {
        next += 1;
        for &(before, after) in order {
            if before == it && !reached.contains(&after) {
                reached.push(after);
            }
        }
    }
    reached.contains(&to)
}

fn assertion(parser: &mut Parser<'_>, shape: &Shape) -> Parsed<Assertion> {
    let word = parser.next;
    let is_always = word.is("always");
    if !is_always && !word.is("never") {
        let context = "`always CONDITION` or `never CONDITION` after the transactions";
        return Err(parser.unexpected("`always` or `never`", context));
    }
    parser.take();
    let condition = condition(parser, &InAssertion { shape, is_always })?;
    Ok(match is_always {
        true => Assertion::Always(condition),
        false => Assertion::Never(condition),
    })
}

/// The values that an assertion may name.
struct InAssertion<'s> {
    shape: &'s Shape,
    is_always: bool,
}

impl InAssertion<'_> {
    fn demand_never(&self, parser: &Parser<'_>, at: Token<'_>) -> Parsed<()> {
        match self.is_always {
            true => Err(parser.wrong(
                at,
                "`always` is about objects alone: all instances share them, and a transaction is \
                 of one instance",
                "name objects, or write `never`",
            )),
            false => Ok(()),
        }
    }
}

impl Scope<Seen> for InAssertion<'_> {
    fn named(&self, parser: &mut Parser<'_>) -> Parsed<Phrase<Seen>> {
        let begin = parser.next;
        if parser.takes("committed") {
            let context = "`committed(t1)`, or `t1 committed`";
            parser.expect("(", context)?;
            let transaction = self.shape.transaction(parser)?;
            parser.expect(")", context)?;
            self.demand_never(parser, begin)?;
            return Ok(Phrase::Number(Expression::Value(Seen::Committed(
                transaction,
            ))));
        }
        let name = parser.name("an object or a transaction")?;
        let Shape {
            objects,
            transactions,
        } = self.shape;
        let transaction = transactions.iter().position(|it| it.name == name.text);
        if let Some(transaction) = transaction {
            self.demand_never(parser, name)?;
            return self.of_transaction(parser, transaction);
        }
        match objects.iter().position(|it| it.name == name.text) {
            Some(object) => Ok(Phrase::Number(Expression::Value(Seen::Object(object)))),
            None => Err(self.shape.unknown_object(parser, name)),
        }
    }
}

impl InAssertion<'_> {
    /// Takes the part after the name of a transaction.
    fn of_transaction(&self, parser: &mut Parser<'_>, transaction: usize) -> Parsed<Phrase<Seen>> {
        let Transaction { name, locals, .. } = &self.shape.transactions[transaction];
        if parser.takes(".") {
            let value = parser.name("a value")?;
            let found = locals.iter().position(|it| it == value.text);
            let local = found.ok_or_else(|| {
                let known = listed(locals.iter().map(|it| &**it));
                parser.wrong(
                    value,
                    format!("the transaction `{name}` reads no value with this name"),
                    format!("its values are: {known}"),
                )
            })?;
            let local = Local(local);
            return Ok(Phrase::Number(Expression::Value(Seen::Read {
                transaction,
                local,
            })));
        }
        let outcome = match parser.next.text {
            "committed" => 1,
            "aborted" => 0,
            _ => {
                let context = format!("`{name} committed`, `{name} aborted` or `{name}.VALUE`");
                return Err(parser.unexpected("`committed`, `aborted` or `.`", &context));
            }
        };
        parser.take();
        Ok(Phrase::Truth(has_outcome(transaction, outcome)))
    }
}

/// Returns the condition that a transaction was acknowledged as committed (1) or aborted (0).
pub(super) fn has_outcome(transaction: usize, outcome: i64) -> Condition<Seen> {
    Condition::Compare(
        Expression::Value(Seen::Committed(transaction)),
        Comparison::Equal,
        Expression::Constant(outcome),
    )
}

fn levels(parser: &mut Parser<'_>) -> Parsed<Vec<Level>> {
    let context = "`forbidden from LEVEL` after the condition, or continue it with `and` or `or`";
    parser.expect("forbidden", context)?;
    parser.expect("from", "`forbidden from LEVEL`")?;
    let names: Vec<String> = Level::all().map(|it| it.to_string()).collect();
    let known = format!("write one of {}", names.join(", "));
    let mut levels: Vec<Level> = Vec::new();
    loop {
        let word = parser.hyphenated("an isolation level", &known)?;
        let level = Level::named(word.text)
            .ok_or_else(|| parser.wrong(word, "this isolation level does not exist", &*known))?;
        let comparable = |it: &&Level| it.implies(level) || level.implies(**it);
        if let Some(other) = levels.iter().find(comparable) {
            return Err(parser.wrong(
                word,
                format!("{other} and {level} are comparable: one of them implies the other"),
                "name only the weakest levels",
            ));
        }
        levels.push(level);
        if !parser.takes(",") {
            return Ok(levels);
        }
    }
}
