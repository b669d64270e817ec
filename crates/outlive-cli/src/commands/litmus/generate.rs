//! `outlive litmus generate`.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive_litmus::consistency::{Generated, MOST_TRANSACTIONS, Shared, Word, counts};
use outlive_litmus::test::Family;
use outlive_litmus::text;

/// Arguments of `outlive litmus generate`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus generate > generated.litmus\n  \
    outlive litmus generate --transactions 2 --family read-write\n  \
    outlive litmus generate --counts\n\n\
    The tests are the minimal cycles of dependencies and real-time edges between transactions, and \
    reads of aborted and intermediate values, counts, and absent objects. The levels that forbid an \
    outcome are computed by two definitions, which have to agree. With --counts, the command \
    prints the numbers of cycles and those of independent counts, and exits with 1 if they differ.")]
pub struct Generate {
    /// Number of transactions of a test, 2 to 4 [default: all of them]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(2..=MOST_TRANSACTIONS as i64))]
    transactions: Option<u8>,
    /// Family of the tests, as `outlive litmus list` prints it
    #[arg(long, value_parser = family)]
    family: Option<Family>,
    /// Print the numbers of cycles instead of tests
    #[arg(long, conflicts_with = "family")]
    counts: bool,
}

fn family(name: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| {
        let names = Family::ALL.map(Family::name).join(", ");
        format!("the families are {names}")
    })
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        let transactions: Vec<usize> = match self.transactions {
            Some(number) => vec![number.into()],
            None => (2..=MOST_TRANSACTIONS).collect(),
        };
        match self.counts {
            true => print_counts(&transactions),
            false => print_tests(&transactions, self.family),
        }
    }
}

fn print_tests(transactions: &[usize], family: Option<Family>) -> Result<(), Failure> {
    let mut is_first = true;
    for &transactions in transactions {
        let generated = Generated::with(transactions).map_err(Failure::new)?;
        for test in generated.tests() {
            if family.is_some_and(|it| it != test.family) {
                continue;
            }
            if !is_first {
                output::print("\n\n")?;
            }
            is_first = false;
            output::print(text::print(test))?;
        }
    }
    match is_first {
        false => Ok(()),
        true => Err(Failure::new(
            "no test of this family has this number of transactions; leave out one of the options",
        )),
    }
}

fn print_counts(transactions: &[usize]) -> Result<(), Failure> {
    let mut table = Table::new([
        "TRANSACTIONS",
        "CYCLES",
        "CLOSED FORM",
        "BY OBJECTS",
        "WITH SHARED OBJECTS",
        "BY OBJECTS",
    ]);
    let mut agree = true;
    for &transactions in transactions {
        let words = Word::all(transactions).len();
        let closed_form = counts::closed_form(transactions);
        let shared = Shared::all(transactions).len();
        let (apart, together) = counts::gadgets(transactions);
        agree &= words == closed_form && words == apart && shared == together;
        let cells = [transactions, words, closed_form, apart, shared, together];
        table.row(cells.map(|it| it.to_string()));
    }
    table.lines().try_for_each(output::line)?;
    match agree {
        true => Ok(()),
        false => Err(Failure::Found),
    }
}
