//! `outlive litmus generate`.

use super::choice;
use super::list::Answer;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive_litmus::consistency::{Generated, MOST_TRANSACTIONS, Shared, Word, counts};
use outlive_litmus::test::{Family, Test};
use outlive_litmus::text;
use serde::Serialize;

/// Arguments of `outlive litmus generate`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus generate > generated.litmus\n  \
    outlive litmus generate --transactions 2 --family read-write\n  \
    outlive litmus generate --counts\n\n\
    The tests are the minimal cycles of dependencies and real-time edges between transactions, and \
    reads of aborted and intermediate values, counts, and absent objects. The levels that forbid an \
    outcome are computed by two definitions, which have to agree. With --counts, the command \
    prints the numbers of cycles and those of independent counts, and exits with 1 if they differ.\n\n\
    JSON: an array of objects with the fields of `outlive litmus list --json` and text, or, with \
    --counts, with transactions and the numbers; docs/json.md says what they mean.")]
pub struct Generate {
    /// Number of transactions of a test, 2 to 4 [default: all of them]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(2..=MOST_TRANSACTIONS as i64))]
    transactions: Option<u8>,
    /// Family of the tests, as `outlive litmus list` prints it
    #[arg(long, value_parser = choice::family)]
    family: Option<Family>,
    /// Print the numbers of cycles instead of tests
    #[arg(long, conflicts_with = "family")]
    counts: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        let transactions: Vec<usize> = match self.transactions {
            Some(number) => vec![number.into()],
            None => (2..=MOST_TRANSACTIONS).collect(),
        };
        match self.counts {
            true => print_counts(&transactions, self.json),
            false => print_tests(&transactions, self.family, self.json),
        }
    }
}

/// A generated test as JSON.
#[derive(Serialize)]
struct Printed {
    #[serde(flatten)]
    test: Answer,
    text: String,
}

fn print_tests(transactions: &[usize], family: Option<Family>, json: bool) -> Result<(), Failure> {
    let mut tests = Vec::new();
    for &transactions in transactions {
        let generated = Generated::with(transactions).map_err(Failure::new)?;
        let is_chosen = |it: &&Test| family.is_none_or(|family| family == it.family);
        tests.extend(generated.tests().filter(is_chosen).cloned());
    }
    if tests.is_empty() {
        return Err(Failure::new(
            "no test of this family has this number of transactions; leave out one of the options",
        ));
    }
    if json {
        let printed = tests.into_iter().map(|test| Printed {
            text: text::print(&test),
            test: Answer::of(test),
        });
        return output::json(&printed.collect::<Vec<_>>());
    }
    for (at, test) in tests.iter().enumerate() {
        if at > 0 {
            output::print("\n\n")?;
        }
        output::print(text::print(test))?;
    }
    Ok(())
}

/// The numbers of cycles over a number of transactions.
#[derive(Serialize)]
struct Counts {
    transactions: usize,
    cycles: usize,
    closed_form: usize,
    by_objects: usize,
    shared: usize,
    shared_by_objects: usize,
}

impl Counts {
    fn of(transactions: usize) -> Self {
        let (by_objects, shared_by_objects) = counts::gadgets(transactions);
        Self {
            transactions,
            cycles: Word::all(transactions).len(),
            closed_form: counts::closed_form(transactions),
            by_objects,
            shared: Shared::all(transactions).len(),
            shared_by_objects,
        }
    }

    /// Returns whether the independent counts agree.
    fn agree(&self) -> bool {
        self.cycles == self.closed_form
            && self.cycles == self.by_objects
            && self.shared == self.shared_by_objects
    }
}

fn print_counts(transactions: &[usize], json: bool) -> Result<(), Failure> {
    let all: Vec<Counts> = transactions.iter().map(|it| Counts::of(*it)).collect();
    if json {
        output::json(&all)?;
    } else {
        let mut table = Table::new([
            "TRANSACTIONS",
            "CYCLES",
            "CLOSED FORM",
            "BY OBJECTS",
            "WITH SHARED OBJECTS",
            "BY OBJECTS",
        ]);
        for it in &all {
            let cells = [
                it.transactions,
                it.cycles,
                it.closed_form,
                it.by_objects,
                it.shared,
                it.shared_by_objects,
            ];
            table.row(cells.map(|it| it.to_string()));
        }
        table.lines().try_for_each(output::line)?;
    }
    match all.iter().all(Counts::agree) {
        true => Ok(()),
        false => Err(Failure::Found),
    }
}
