//! `dart-compare`: litmus tests beside a checker of histories, on one store with the same bugs.
//!
//! The store is that of this project with the protocol `pandora`, two memory servers, and clients
//! in processes of their own behind emulated links: `outlive-lab litmus-store`. The checker is
//! `adya` (crates.io), which judges histories as Elle does. It is asked for strict serializability,
//! and told that each object is linearizable, and that a transaction which reads an object and
//! writes it replaces the version that it read: this is all that a checker may assume of the store.
//!
//! **Detection.** For each bug, the litmus test of its family runs until an assertion fails; the
//! bugs of logging show only if clients die. The transactions of the same run are recorded, and
//! `adya` judges them too. The workload of a checker is not a litmus test, so it also judges random
//! transactions on few objects, made by `adya`'s own generator: its detection is the shortest
//! beginning of the history that it finds wrong, and the time is that of recording this beginning
//! and of judging it once.
//!
//! Where the judges differ, the history decides: `halves` proves of some that no serial order
//! explains them. `adya` knows no order of versions that no transaction has read before it replaced
//! them, so it passes histories in which halves of two transactions were read.
//!
//! **Agreement.** The store without a bug runs litmus tests while clients die at all crash points.
//! Neither judge may find anything.
//!
//! **Cost.** One test runs without assertions, with them, and recorded instead. The cost of a
//! transaction is the processor time of the tester and of the store's clients for each committed
//! one.
//!
//! dbcop is not run here: it knows no real time, and its searches are exponential in the number of
//! sessions.

mod cost;
mod detection;
mod halves;
mod judge;
mod store;
mod workload;

use crate::row::Row;
use crate::{Run, Study, StudyError};
use std::path::PathBuf;

pub const STUDY: Study = Study {
    name: "dart-compare",
    about: "litmus tests of a store beside a checker of its histories (adya)",
    body: study,
};

/// The checker, as rows name it.
const CHECKER: &str = "adya 0.1, recorded and judged";

/// A program that connects a store to the tester, with the store in it.
const PROGRAM: &str = include_str!("../../../../crates/outlive-litmus/examples/dict_store.py");

/// The number of lines of `adya`'s example of the same, which connects SQLite.
const LINES_OF_ADYA: f64 = 59.0;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let lab = lab(run)?;
    run.answer([Row::new(
        "a program in Python that connects a store",
        "length",
        "lines",
    )
    .ours(PROGRAM.lines().count() as f64)
    .peer("adya's example", LINES_OF_ADYA)]);
    detection::bugs(run, &lab)?;
    detection::sound(run, &lab)?;
    cost::study(run, &lab)
}

/// Returns the path of `outlive-lab`, whose processes are the store's clients.
fn lab(run: &Run<'_>) -> Result<PathBuf, StudyError> {
    run.lab()
        .map(Into::into)
        .ok_or_else(|| StudyError::Missing {
            what: "the command `outlive-lab`: run `outlive-lab study dart-compare`".into(),
        })
}
