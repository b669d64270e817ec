//! `outlive litmus list`.

use super::tests;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive_litmus::test::{Assertion, Test};
use outlive_litmus::text;
use serde::Serialize;
use std::path::PathBuf;

/// Arguments of `outlive litmus list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus list\n  \
    outlive litmus list my.litmus\n  \
    outlive litmus list --json | jq '.[] | select(.family == \"predicate\") | .name'\n\n\
    Any number of instances of a test with an `always` assertion run on the same objects; each \
    instance of a test with a `never` assertion has its own objects. The last column has the weakest isolation levels at which \
    the assertion cannot fail.\n\n\
    JSON: an array of objects with name, about, family, assertion, condition, objects, transactions \
    and forbidden_from; docs/json.md says what they mean.")]
pub struct List {
    /// A file of tests instead of the shipped ones
    file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A test as JSON.
#[derive(Serialize)]
pub struct Answer {
    name: String,
    about: String,
    family: &'static str,
    assertion: &'static str,
    condition: String,
    objects: Vec<Object>,
    transactions: Vec<String>,
    forbidden_from: Vec<String>,
}

#[derive(Serialize)]
struct Object {
    name: String,
    initial: Option<i64>,
}

impl Answer {
    /// Returns the fields of a test.
    pub fn of(test: Test) -> Self {
        let (assertion, condition) = match &test.assertion {
            Assertion::Always(condition) => ("always", condition),
            Assertion::Never(condition) => ("never", condition),
        };
        Self {
            assertion,
            condition: text::assertion(condition, &test),
            family: test.family.name(),
            transactions: test.transactions.into_iter().map(|it| it.name).collect(),
            forbidden_from: test
                .forbidden_from
                .iter()
                .map(ToString::to_string)
                .collect(),
            objects: { test.objects.into_iter() }
                .map(|it| Object {
                    name: it.name,
                    initial: it.initial,
                })
                .collect(),
            name: test.name,
            about: test.about,
        }
    }
}

impl List {
    pub fn run(self) -> Result<(), Failure> {
        let tests = tests(self.file.as_deref())?;
        let answers: Vec<Answer> = tests.into_iter().map(Answer::of).collect();
        if self.json {
            return output::json(&answers);
        }
        let mut table = Table::new(["TEST", "FAMILY", "ASSERTION", "FORBIDDEN FROM"]);
        for it in answers {
            table.row([
                it.name,
                it.family.into(),
                it.assertion.into(),
                it.forbidden_from.join(", "),
            ]);
        }
        table.lines().try_for_each(output::line)?;
        output::line(format_args!(
            "{} tests; `outlive litmus show TEST` prints one",
            table.rows()
        ))
    }
}
