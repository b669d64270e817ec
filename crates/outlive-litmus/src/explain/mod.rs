//! Explanations of violations: the shortest interleaving of transactions that yields the values,
//! and the cycle of dependencies because of which a level forbids it.
//!
//! The store is a black box, so an explanation is *inferred*: the values say which versions the
//! reads can have seen, and [`explain`] searches the histories with these versions for the smallest
//! part that still violates the level: the fewest transactions, then the fewest steps. The cycles
//! of Adya and the commit tests of Crooks et al. ([`crate::consistency`]) must agree on that part.
//! The store's own order of events can differ from the one that is shown.
//!
//! 1. `world` has the recorded transactions with the values that they read and wrote;
//! 2. `candidates` enumerates the histories with these values: a version for each read, and an
//!    order of the versions of each object;
//! 3. `shrink` removes transactions and steps as long as the level still forbids the rest;
//! 4. `schedule` puts the steps that are left into an order of time, in which each statement takes
//!    effect in place if possible;
//! 5. `cycle` names the dependencies.
//!
//! If no history ends in the state that was read, the store has changed the values that they
//! wrote: [`Finding::Fault`] names the write that it lost, kept or invented.
//!
//! Tests: tests/explained.rs, with the stores of tests/reference; `shrink` has a property test.

mod candidates;
mod cycle;
mod faults;
mod page;
mod schedule;
mod search;
mod serial;
mod shrink;
mod text;
mod words;
mod world;

#[cfg(test)]
mod shrink_tests;

pub use page::{Page, Tested, page};
pub use text::lines;

use crate::consistency::{forbidden, weakest};
use crate::level::Level;
use crate::run::Violation;
use crate::test::Test;
use cycle::Arc;
use search::Found;
use std::time::Instant;
use world::World;

/// The explanation of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether transactions alone explain the values.
    pub result: Finding,
    /// The name of the anomaly in the literature; empty if there is no interleaving.
    pub anomaly: &'static str,
    /// The weakest levels that forbid the transactions of the interleaving, by both definitions.
    /// Empty for a fault.
    pub forbidden_from: Vec<Level>,
    /// The state in which the interleaving begins, if it is not the one of the test.
    pub start: Option<Vec<(String, Option<i64>)>>,
    /// The transactions of the interleaving.
    pub transactions: Vec<Participant>,
    /// The steps of the interleaving in the order of time. Steps that are not needed are left out.
    pub steps: Vec<Moment>,
    /// The dependencies, each from the transaction at which the one before it ends. They are a
    /// cycle, or one read of an aborted or intermediate value.
    pub cycle: Vec<Dependency>,
    /// The values that were observed, by name.
    pub observed: Vec<(String, Option<i64>)>,
    /// The same values after each execution of the transactions one after another, if they are few.
    pub serial: Vec<Serial>,
}

/// Whether transactions alone explain the values of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An interleaving of the transactions yields the values.
    Interleaving,
    /// No interleaving yields them: the store has changed their writes.
    Fault(Vec<Fault>),
    /// The search, which is bounded, found neither.
    Unexplained,
}

/// A difference between a state and the writes of the transactions before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write of a transaction that committed, as a whole or in part, is not in the state.
    Lost {
        /// The transaction.
        transaction: String,
        /// Its end: `unknown` if the commit had no answer, and other writes of it are in the state.
        outcome: &'static str,
        /// The write, such as `write x = 1`.
        write: String,
    },
    /// The write of a transaction that did not commit is in the state.
    Kept {
        /// The transaction.
        transaction: String,
        /// Its end, such as `crashed`.
        outcome: &'static str,
        /// The write.
        write: String,
    },
    /// A value was read that no transaction wrote.
    Invented {
        /// The reader.
        transaction: String,
        /// The object.
        object: String,
        /// The value; `None` if the object was absent.
        value: Option<i64>,
    },
}

/// A transaction of an interleaving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The name of the transaction in the test, with a number if it occurs again, or `assertion`
    /// for the transaction that read the state.
    pub name: String,
    /// The outcome of the transaction, as reports name it.
    pub outcome: &'static str,
}

/// A step of an interleaving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The transaction: an index into [`Explanation::transactions`].
    pub transaction: usize,
    /// The step with its value, such as `read x -> 0`.
    pub step: String,
    /// A remark, if the step did not take effect in place at its moment; else empty.
    pub note: String,
}

/// A dependency between two transactions of an interleaving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The transaction that comes first: an index into [`Explanation::transactions`].
    pub from: usize,
    /// The transaction that comes second.
    pub to: usize,
    /// `ww`, `wr`, `rw` or `rt`.
    pub kind: &'static str,
    /// The object; `None` for real time.
    pub object: Option<String>,
    /// The dependency as a sentence without a full stop.
    pub meaning: String,
}

/// An execution of transactions one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serial {
    /// The names of the transactions in their order.
    pub order: Vec<String>,
    /// The values, in the order of [`Explanation::observed`].
    pub values: Vec<Option<i64>>,
}

impl Explanation {
    /// Returns the cycle on one line: `t1 --rw x--> t2 --ww x--> t1`; empty if there is none.
    #[must_use]
    pub fn cycle_line(&self) -> String {
        let Some(first) = self.cycle.first() else {
            return String::new();
        };
        let mut line = self.transactions[first.from].label();
        for it in &self.cycle {
            let object = it
                .object
                .as_ref()
                .map(|it| format!(" {it}"))
                .unwrap_or_default();
            line += &format!(
                " --{}{object}--> {}",
                it.kind,
                self.transactions[it.to].label()
            );
        }
        line
    }

    /// Returns the kinds of the dependencies of the cycle in order, such as `rw ww`. Of all
    /// rotations it is the alphabetically smallest, so that equal cycles have equal texts.
    #[must_use]
    pub fn word(&self) -> String {
        let kinds: Vec<&str> = self.cycle.iter().map(|it| it.kind).collect();
        let rotation = |by: usize| [&kinds[by..], &kinds[..by]].concat().join(" ");
        (0..kinds.len()).map(rotation).min().unwrap_or_default()
    }

    /// Returns the explanation in one or two sentences.
    #[must_use]
    pub fn sentence(&self) -> String {
        words::sentence(self)
    }
}

impl Participant {
    /// Returns the transaction's name, with the outcome if the transaction did not commit.
    #[must_use]
    pub fn label(&self) -> String {
        match self.outcome {
            "committed" => self.name.clone(),
            outcome => format!("{} ({outcome})", self.name),
        }
    }
}

/// Explains a violation of `test`.
///
/// The time is bounded to about 5 s. A violation on shared objects is explained by at most four
/// transactions. An explanation that is not found within these bounds is
/// [`Finding::Unexplained`].
#[must_use]
pub fn explain(test: &Test, violation: &Violation) -> Explanation {
    let world = World::new(test, violation);
    let invented = faults::invented(&world);
    if !invented.is_empty() {
        return empty(&world, Finding::Fault(invented));
    }
    let refuted: Vec<Level> = { Level::all() }
        .filter(|&it| { violation.kind }.is_refutation(it, test.is_forbidden_at(it)))
        .collect();
    let begin = Instant::now();
    let found = search::search(&world, &weakest(&refuted), begin).or_else(|| {
        // The levels of a test that nothing has proved can be too weak.
        let strict = Level::new(crate::level::Isolation::Serializable, true);
        search::search(&world, &[strict], begin)
    });
    match found {
        Some(found) => named(&world, &found, &refuted),
        None => empty(&world, Finding::Unexplained),
    }
}

fn empty(world: &World<'_>, result: Finding) -> Explanation {
    Explanation {
        result,
        anomaly: "",
        forbidden_from: Vec::new(),
        start: None,
        transactions: Vec::new(),
        steps: Vec::new(),
        cycle: Vec::new(),
        observed: serial::state(world),
        serial: Vec::new(),
    }
}

fn named(world: &World<'_>, found: &Found, refuted: &[Level]) -> Explanation {
    // The two definitions differ only by an error in this program.
    let Ok(levels) = forbidden(&found.small) else {
        return empty(world, Finding::Unexplained);
    };
    let levels = weakest(&levels);
    let wanted = if found.is_fault { &levels[..] } else { refuted };
    let arcs: Vec<Arc> = cycle::cycle(&found.small, wanted);
    let words = words::Words::new(world, found);
    let faults = match found.is_fault {
        true => faults::faults(found, &words),
        false => Vec::new(),
    };
    let is_start_of_test = found.initial == world.initial;
    let (observed, serial) = serial::values(world, found, &words, refuted);
    Explanation {
        result: match found.is_fault {
            true => Finding::Fault(faults),
            false => Finding::Interleaving,
        },
        anomaly: match found.is_fault {
            true => "",
            false => cycle::name(&found.small, &arcs),
        },
        forbidden_from: if found.is_fault { Vec::new() } else { levels },
        start: (!is_start_of_test).then(|| serial::named(world.test, &found.initial)),
        transactions: words.participants(),
        steps: words.steps(),
        cycle: arcs.iter().map(|it| words.dependency(it)).collect(),
        observed,
        serial,
    }
}
