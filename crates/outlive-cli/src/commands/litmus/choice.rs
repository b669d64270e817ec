//! The arguments that `outlive litmus run` and `judge` share: the store, the tests, the clients.

use super::outage::Commands;
use super::read;
use crate::amount::Many;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::{Args, ValueEnum};
use outlive_litmus::consistency::model::{self, Objection, verify};
use outlive_litmus::driver::Driver;
use outlive_litmus::run::{self, Limit, Options};
use outlive_litmus::scalable::{NotScalable, prove};
use outlive_litmus::suite;
use outlive_litmus::test::{Family, Test};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of clients, unless the user gives one.
const CLIENTS: u16 = 4;
/// The time in seconds in which the store has to answer, unless the user gives one.
const PATIENCE: u64 = 10;
/// The Jaro-Winkler similarity, from 0 to 1, above which the name of a test is suggested.
const MIN_SIMILARITY: f64 = 0.85;

/// The meaning of the columns of a run, for help texts.
pub const COLUMNS: &str = "Columns: executions of transactions, retries included; overlaps, the \
    executions that were concurrent with another one on the same objects; conflicts, the overlaps \
    in which one of the two transactions writes an object that the other one uses; aborted, by the \
    store; unknown, the commits without an answer; crashes of clients, and those within commits. \
    A test passes only if its transactions overlapped often enough, unless it prescribes their \
    order.";

/// The clients of a run.
#[derive(Args, Debug)]
pub struct Clients {
    /// Number of clients that run a test at the same time: on the same objects if its assertion is
    /// `always`, each on objects of its own if it is `never`
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u16).range(2..=256))]
    clients: u16,
    /// Seed of the clients' random choices: transactions, delays and crashes, not the store's
    /// choices [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Faults to inject: with `client`, clients drop their connections after each statement, in
    /// turn and at random; if they are processes (`exec:`), they are also killed within commits
    #[arg(long, value_enum, value_name = "FAULT")]
    faults: Vec<Fault>,
    /// Time in seconds in which the store has to answer, and to accept a write to each object after
    /// the crash of a client
    #[arg(long, default_value_t = PATIENCE,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
}

/// The output of a run.
#[derive(Args, Debug)]
pub struct Results {
    /// List the tests that would run, without running them
    #[arg(long)]
    pub dry_run: bool,
    /// Write the results to this file in JUnit's format: a test fails there if the command fails
    /// because of it
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the results to this file as a page in HTML, with a picture of each violation
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the operations of all transactions to this file, as a register history in EDN for
    /// Elle and other checkers; docs/litmus.md describes it
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A kind of fault that a run injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Crashes of clients
    Client,
}

impl Fault {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
        }
    }
}

impl Clients {
    /// Returns the settings of a run with this limit.
    pub fn options(&self, limit: Limit) -> Options {
        Options {
            clients: self.clients.into(),
            limit,
            // Short, because it is typed to repeat a run.
            seed: self.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000)),
            crashes: self.faults.contains(&Fault::Client),
            patience: Duration::from_secs(self.patience),
        }
    }

    /// Returns the arguments that repeat the clients' choices.
    pub fn repeated(&self, seed: u64) -> String {
        let mut arguments = format!("--seed {seed}");
        if self.clients != CLIENTS {
            arguments += &format!(" --clients {}", self.clients);
        }
        if self.patience != PATIENCE {
            arguments += &format!(" --patience {}", self.patience);
        }
        for fault in &self.faults {
            arguments += &format!(" --faults {}", fault.name());
        }
        arguments
    }

    /// Returns the names of the faults: those of the clients, and `store` if `commands` kill the
    /// store.
    pub fn faults(&self, commands: &Commands) -> Vec<&'static str> {
        let of_store = commands.have_kills().then_some("store");
        let of_clients = self.faults.iter().map(|it| it.name());
        of_clients.chain(of_store).collect()
    }
}

/// Returns an argument as a shell reads it: in quotes, unless it has only characters without a
/// meaning for the shell.
pub fn shell_quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.into(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

/// Returns an error if an assertion of a user fails in a correct execution: it would accuse a
/// correct store.
fn refuse_wrong(file: &str, test: &Test) -> Result<(), Failure> {
    let file = output::printable(&file);
    match prove(test) {
        Ok(_) => {
            note_objection(&file, test);
            Ok(())
        }
        Err(problem @ NotScalable::Undecided { .. }) => {
            output::note(format_args!(
                "{file}: {}: {problem}. Until then, the test may report a violation for a correct \
                 store",
                test.name
            ));
            Ok(())
        }
        Err(problem) => Err(Failure::new(format_args!(
            "{file}: {}: {problem}",
            test.name
        ))),
    }
}

/// Prints a note if the assertion of a test can fail at a level that the test names as forbidding
/// it, since a violation would then refute a level that the store may give; and if the assertion
/// fails in no model, since the test then cannot find a violation.
fn note_objection(file: &str, test: &Test) {
    let name = &test.name;
    match verify(test, model::instances(test)) {
        Err(problem @ Objection::Occurs { .. }) => output::note(format_args!(
            "{file}: {name}: its levels are wrong: {problem}"
        )),
        Err(problem @ Objection::Vacuous { .. }) => output::note(format_args!("{file}: {problem}")),
        Err(Objection::TooLarge { .. }) | Ok(_) => (),
    }
}

/// Returns the tests that `names` selects, each by the name of a shipped test or of a file; all
/// shipped tests if `names` is empty. A test of a file is refused if its assertion is refuted.
pub fn tests(names: &[String]) -> Result<Vec<Test>, Failure> {
    let shipped = suite::tests();
    if names.is_empty() {
        return Ok(shipped);
    }
    let mut tests = Vec::new();
    for name in names {
        match shipped.iter().find(|it| it.name == *name) {
            Some(test) => tests.push(test.clone()),
            None if Path::new(name).exists() => {
                let read = read(Path::new(name)).map_err(Failure::Failed)?;
                if read.is_empty() {
                    let name = output::printable(&name);
                    return Err(Failure::new(format_args!("{name}: the file has no tests")));
                }
                read.iter().try_for_each(|it| refuse_wrong(name, it))?;
                tests.extend(read);
            }
            None => return Err(unknown(name, &shipped)),
        }
    }
    Ok(tests)
}

/// Returns the failure for a name that selects no tests, with the most similar name of a shipped
/// test if there is one.
fn unknown(name: &str, shipped: &[Test]) -> Failure {
    let similarity = |it: &Test| strsim::jaro_winkler(&it.name, name);
    let nearest = { shipped.iter() }.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let hint = match nearest.filter(|it| similarity(it) > MIN_SIMILARITY) {
        Some(test) => format!("did you mean `{}`?", test.name),
        None => "`outlive litmus list` lists the tests".into(),
    };
    let name = output::printable(&name);
    Failure::Usage(format!(
        "`{name}` is neither a shipped test nor a file; {hint}"
    ))
}

/// Returns the failure of a run that was stopped. Its results are printed before.
pub fn interrupted() -> Failure {
    Failure::new("interrupted; the results are incomplete")
}

/// Parses the name of a family.
pub fn family(name: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| {
        let names = Family::ALL.map(Family::name).join(", ");
        format!("the families are {names}")
    })
}

/// Returns the lines of a dry run: the tests that would run, the time, and the faults.
pub fn dry_run(tests: &[Test], driver: &dyn Driver, limit: Limit, faults: &[&str]) -> Vec<String> {
    let mut table = Table::new(["test", "family", "forbidden from", "runs"]);
    let mut count = 0;
    for test in tests {
        let levels: Vec<String> = test
            .forbidden_from
            .iter()
            .map(ToString::to_string)
            .collect();
        let reason = run::not_applicable(test, driver.capabilities());
        count += u64::from(reason.is_none());
        table.row([
            test.name.clone(),
            test.family.name().into(),
            levels.join(", "),
            reason.map_or("yes".into(), |it| format!("no: {it}")),
        ]);
    }
    let mut lines: Vec<String> = table.lines().collect();
    lines.push(match limit {
        Limit::Time(time) => format!(
            "{} in {}",
            Many(count, "test"),
            humantime::format_duration(time)
        ),
        Limit::Instances(each) => format!("{} of {each} instances each", Many(count, "test")),
    });
    if !faults.is_empty() {
        lines.push(format!("faults: {}", faults.join(", ")));
    }
    lines
}
