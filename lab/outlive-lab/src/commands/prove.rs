//! `outlive-lab prove`: the proofs, from the command line.

mod chaos;
mod explained;
mod kill;
mod machine_crash;
mod model;
mod schedule;
mod selection;
mod transactions;

use crate::failure::Failure;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::cell::RefCell;

/// The kinds of proofs.
#[derive(Subcommand, Debug)]
pub enum Prove {
    /// Kill at every instruction: a survivor recovers and checks
    Kill(kill::Kill),
    /// Try every interleaving of small scenarios, with deaths
    Schedule(schedule::Schedule),
    /// Kill, stop and restart processes and hosts that do real work, and account for all of it
    Chaos(chaos::Chaos),
    /// Crash nodes of the simulated machine at many moments, let it recover, and check the result
    MachineCrash(machine_crash::MachineCrash),
    /// Execute transactions on a simulated network while servers die, and check each history
    Transactions(transactions::Transactions),
    /// Check a model of the store's commits and recoveries exhaustively
    Model(model::Model),
}

impl Prove {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Kill(command) => command.run(),
            Self::Schedule(command) => command.run(),
            Self::Chaos(command) => command.run(),
            Self::MachineCrash(command) => command.run(),
            Self::Transactions(command) => command.run(),
            Self::Model(command) => command.run(),
        }
    }
}

/// The common fields of every proof's JSON. The other fields are the proof's own.
#[derive(Serialize)]
struct Proof<T> {
    name: String,
    /// Crash points, images, interleavings or runs tried.
    points: u64,
    failures: u64,
    seconds: f64,
    #[serde(flatten)]
    more: T,
}

/// The progress of the proofs, on standard error if that is a terminal. It starts no thread, since
/// the proofs fork.
struct Progress {
    bar: ProgressBar,
    running: RefCell<Vec<String>>,
}

impl Progress {
    fn new(proofs: usize) -> Self {
        let bar = ProgressBar::new(proofs as u64);
        let bar = match ProgressStyle::with_template("{pos}/{len} {elapsed} {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self {
            bar,
            running: RefCell::default(),
        }
    }

    /// Shows that this proof runs now.
    fn begin(&self, name: &str) {
        self.running.borrow_mut().push(name.to_owned());
        self.bar.set_message(self.running.borrow().join("; "));
        self.bar.tick();
    }

    /// Shows that it has ended, and calls `print` without disturbing the display.
    fn end<T>(&self, name: &str, print: impl FnOnce() -> T) -> T {
        self.running.borrow_mut().retain(|running| running != name);
        self.bar.set_message(self.running.borrow().join("; "));
        self.bar.inc(1);
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
