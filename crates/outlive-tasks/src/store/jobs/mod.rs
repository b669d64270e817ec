//! Jobs: records by name, from submission to their end.
//!
//! A job is a collection of tasks: its root, and all tasks that its tasks spawn. A job can depend
//! on other jobs, and on nothing else. A job that a task creates depends on the job of that task.
//!
//! A [record](Record) describes a job completely. The job is [submitted](submission),
//! [opened](advance) when all its dependencies are complete, and then has a [root](Root); and it
//! [ends](end), complete or failed. Its record and its name stay until it is [removed](remove).

mod advance;
mod end;
mod record;
mod remove;
mod root;
mod submission;

pub use advance::OpenPoint;
pub use end::EndPoint;
pub use record::JobState;
pub use record::Record;
pub use remove::RemoveJobPoint;
pub(crate) use remove::settle;
pub use remove::{finish_removal_of_job, has_result};
pub use root::{PartPoint, Root};
pub use submission::Submission;
pub use submission::{SubmitError, SubmitPoint};

use crate::store::layout::{Hand, Layout};
use crate::store::names::Cell;
use outlive::memory::Memory;

impl<M: Memory> Layout<M> {
    /// Returns the job of that name. Lock-free.
    pub fn find_job(self, hand: Hand<'_, M>, name: &[u8]) -> Option<Record<M>> {
        let at = self.jobs.place(hand.heap, name)?;
        Some(Record::at(self.memory, at))
    }

    /// Returns all jobs.
    pub fn all_jobs(self, hand: Hand<'_, M>) -> Vec<Record<M>> {
        // A job's record is never replaced.
        let places = self.jobs.places(hand.heap);
        places.map(|at| Record::at(self.memory, at)).collect()
    }

    /// Returns why a job failed.
    pub fn error_of(self, hand: Hand<'_, M>, name: &[u8]) -> Option<String> {
        let text = self.errors.get(hand.heap, name);
        if let Some(text) = text {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        // The heap had no space for the reason either.
        let Some(wanted) = self.find_job(hand, name)?.wanted() else {
            return Some("the pod's heap has no space to record the reason".into());
        };
        Some(format!(
            "a task requested a block of {wanted} bytes, and the pod's heap has none that large \
             (nor space to record which task): remove data that is no longer needed, or create the \
             pod again with a larger heap"
        ))
    }
}

/// The number of the function that submits a job. Every pool has it.
pub const SUBMIT: u32 = u32::MAX;

/// Returns the key of a job's result among the names.
pub fn result_key(job: &[u8]) -> Vec<u8> {
    [b"r", job].concat()
}

/// Returns the key of a program's name among the names.
pub fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// Formats a key as printable text.
pub fn shown_key(key: &[u8]) -> String {
    let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default());
    match key.first() {
        Some(b'r') => format!("the result of job `{name}`"),
        _ => format!("`{name}`"),
    }
}

/// Formats the name of a cell, for messages.
pub fn shown_cell<M: Memory>(layout: Layout<M>, hand: Hand<'_, M>, cell: Cell<M>) -> String {
    let key = layout.names.name_of(hand.heap, cell.offset());
    key.map_or_else(|| "an unknown name".to_owned(), |key| shown_key(&key))
}
