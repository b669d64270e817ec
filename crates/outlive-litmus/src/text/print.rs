//! Tests as text.

use super::rules::has_outcome;
use crate::test::{Assertion, Comparison, Condition, Expression, Local, Seen, Step, Test};
use std::fmt::Write;

/// The maximum width of a line. A word that is longer exceeds it.
const WIDTH: usize = 100;

/// Returns the text of a test. [`parse`](super::parse) reads it as the same test, if the test has
/// names and limits as [the grammar](super) demands them.
pub fn print(test: &Test) -> String {
    let mut text = format!("test {}\n", test.name);
    text += &wrapped(&format!("about \"{}\"", escaped(&test.about)));
    text += &format!("family {}\n", test.family.name());
    let objects = test.objects.iter().map(|it| match it.initial {
        Some(value) => format!("{} = {value}", it.name),
        None => format!("{} absent", it.name),
    });
    let objects: Vec<String> = objects.collect();
    text += &wrapped(&format!("objects {}", objects.join(", ")));
    for transaction in &test.transactions {
        let _ = writeln!(text, "\ntransaction {} {{", transaction.name);
        let local = |it: Local| transaction.locals[it.0].clone();
        for step in &transaction.steps {
            let object = |it: &usize| &test.objects[*it].name;
            let step = match step {
                Step::Read { object: it, into } => {
                    format!("{} = read {}", local(*into), object(it))
                }
                Step::Count { into } => format!("{} = count objects", local(*into)),
                Step::Write { object: it, value } => {
                    format!("write {} = {}", object(it), number(value, &local))
                }
                Step::Insert { object: it, value } => {
                    format!("insert {} = {}", object(it), number(value, &local))
                }
                Step::Delete { object: it } => format!("delete {}", object(it)),
                Step::Abort => "abort".into(),
            };
            text += &wrapped(&format!("    {step}"));
        }
        text += "}\n";
    }
    text += "\n";
    if !test.order.is_empty() {
        for &(first, second) in &test.order {
            let name = |it: usize| &test.transactions[it].name;
            let _ = writeln!(text, "{} before {}", name(first), name(second));
        }
        text += "\n";
    }
    let (word, condition) = match &test.assertion {
        Assertion::Always(condition) => ("always", condition),
        Assertion::Never(condition) => ("never", condition),
    };
    text += &wrapped(&format!("{word} {}", assertion(condition, test)));
    let levels: Vec<String> = test
        .forbidden_from
        .iter()
        .map(ToString::to_string)
        .collect();
    text += &wrapped(&format!("forbidden from {}", levels.join(", ")));
    text
}

/// Returns a condition of a test's assertion as text, on one line.
pub fn assertion(condition: &Condition<Seen>, test: &Test) -> String {
    let name = |it: Seen| match it {
        Seen::Object(object) => test.objects[object].name.clone(),
        Seen::Read { transaction, local } => {
            let of_it = &test.transactions[transaction];
            format!("{}.{}", of_it.name, of_it.locals[local.0])
        }
        Seen::Committed(it) => format!("committed({})", test.transactions[it].name),
    };
    truth(condition, &|it| outcome(it, test), &name)
}

/// Returns the short form of a condition on the outcome of a transaction.
fn outcome(condition: &Condition<Seen>, test: &Test) -> Option<String> {
    let Condition::Compare(Expression::Value(Seen::Committed(it)), ..) = *condition else {
        return None;
    };
    let is = |outcome: i64| *condition == has_outcome(it, outcome);
    let word = match () {
        () if is(1) => "committed",
        () if is(0) => "aborted",
        () => return None,
    };
    Some(format!("{} {word}", test.transactions[it].name))
}

/// Returns a condition as text. `short` returns the text of conditions that have one of their own.
fn truth<N: Copy>(
    condition: &Condition<N>,
    short: &impl Fn(&Condition<N>) -> Option<String>,
    name: &impl Fn(N) -> String,
) -> String {
    if let Some(text) = short(condition) {
        return text;
    }
    let list = |parts: &[Condition<N>], word: &str, function: &str| match parts.len() {
        0 | 1 => {
            let part = parts.first().map(|it| truth(it, short, name));
            format!("{function}({})", part.unwrap_or_default())
        }
        _ => {
            let parts = parts.iter().map(|it| match it {
                Condition::All(inner) | Condition::Any(inner) if inner.len() > 1 => {
                    format!("({})", truth(it, short, name))
                }
                _ => truth(it, short, name),
            });
            parts.collect::<Vec<_>>().join(&format!(" {word} "))
        }
    };
    match condition {
        Condition::Compare(a, comparison, b) => {
            let sign = match comparison {
                Comparison::Equal => "=",
                Comparison::Different => "!=",
                Comparison::Less => "<",
                Comparison::AtMost => "<=",
            };
            format!("{} {sign} {}", number(a, name), number(b, name))
        }
        Condition::Absent(it) => format!("{} is absent", name(*it)),
        Condition::All(parts) => list(parts, "and", "all"),
        Condition::Any(parts) => list(parts, "or", "any"),
        Condition::Not(part) => match &**part {
            Condition::Absent(it) => format!("{} is present", name(*it)),
            Condition::All(inner) | Condition::Any(inner) if inner.len() > 1 => {
                format!("not ({})", truth(part, short, name))
            }
            _ => format!("not {}", truth(part, short, name)),
        },
    }
}

/// Returns an expression as text.
fn number<N: Copy>(expression: &Expression<N>, name: &impl Fn(N) -> String) -> String {
    let operand = |it: &Expression<N>| match it {
        Expression::Add(..) | Expression::Subtract(..) => format!("({})", number(it, name)),
        _ => number(it, name),
    };
    match expression {
        Expression::Constant(it) => it.to_string(),
        Expression::Value(it) => name(*it),
        Expression::Add(a, b) => format!("{} + {}", number(a, name), operand(b)),
        Expression::Subtract(a, b) => format!("{} - {}", number(a, name), operand(b)),
        Expression::Max(a, b) => format!("max({}, {})", number(a, name), number(b, name)),
        Expression::Min(a, b) => format!("min({}, {})", number(a, name), number(b, name)),
    }
}

/// Returns the sentence with its quotes, backslashes and control characters escaped.
fn escaped(sentence: &str) -> String {
    let mut text = String::new();
    for it in sentence.chars() {
        match it {
            '"' | '\\' => text.extend(['\\', it]),
            it if it.is_control() => text.extend(it.escape_unicode()),
            it => text.push(it),
        }
    }
    text
}

/// Returns the line, or several lines if it is too wide. It is broken at single spaces, which the
/// parser reads as before also within a sentence.
fn wrapped(line: &str) -> String {
    let indent = line.len() - line.trim_start().len() + 4;
    let mut text = String::new();
    let mut width = 0;
    let mut begin = 0;
    let mut rest = line;
    while !rest.is_empty() {
        // The next word, with the spaces before it.
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let length = rest[spaces..]
            .find(' ')
            .map_or(rest.len(), |it| spaces + it);
        let (word, after) = rest.split_at(length);
        let columns = word.chars().count();
        // White space of other kinds at the edge of a word would be lost with a line break.
        let previous = line[..begin].chars().next_back();
        let is_breakable = spaces == 1
            && previous.is_some_and(|it| !it.is_whitespace())
            && word.len() > 1
            && !word[1..].starts_with(char::is_whitespace);
        if is_breakable && width + columns > WIDTH {
            text += "\n";
            text += &" ".repeat(indent);
            text += &word[1..];
            width = indent + columns - 1;
        } else {
            text += word;
            width += columns;
        }
        begin += length;
        rest = after;
    }
    text + "\n"
}
