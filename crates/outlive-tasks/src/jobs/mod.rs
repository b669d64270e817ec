//! Jobs: records by name, from submission to their end.
//!
//! A job is a collection of tasks: its root, and all that tasks of it spawn. Jobs depend on jobs, and on nothing else: a
//! job that a task creates depends on the job of that task.
//!
//! A [record](Record) has all that a job is. It is [submitted](submission), [opened](advance) when the jobs that it depends on are
//! complete, and then has a [root](Root); and it [ends](end), complete or failed. Its record stays, and so does its name, until it
//! is [removed](remove).

mod advance;
mod end;
mod record;
mod remove;
mod root;
mod submission;

pub use advance::OpenPoint;
pub use end::EndPoint;
pub use record::JobState;
pub(crate) use record::Record;
pub use remove::RemoveJobPoint;
pub(crate) use remove::{has_result, settle};
pub(crate) use root::{PartPoint, Root};
pub(crate) use submission::Submission;
pub use submission::{SubmitError, SubmitPoint};

use crate::layout::{Hand, Layout};
use crate::names::Cell;
use outlive::memory::Memory;

impl<M: Memory> Layout<M> {
    /// The job of that name. Lock-free.
    pub fn find_job(self, hand: Hand<'_, M>, name: &[u8]) -> Option<Record<M>> {
        let at = self.jobs.place(hand.heap, name)?;
        Some(Record::at(self.memory, at))
    }

    /// All jobs.
    pub fn all_jobs(self, hand: Hand<'_, M>) -> Vec<Record<M>> {
        // A job's record is never replaced.
        let places = self.jobs.places(hand.heap);
        places.map(|at| Record::at(self.memory, at)).collect()
    }

    /// Why a job failed.
    pub fn error_of(self, hand: Hand<'_, M>, name: &[u8]) -> Option<String> {
        let text = self.errors.get(hand.heap, name);
        if let Some(text) = text {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        // There was no room for the reason either.
        let Some(wanted) = self.find_job(hand, name)?.wanted() else {
            return Some("the pod's heap has no room to say why".into());
        };
        Some(format!(
            "a task asked for a block of {wanted} bytes, and the pod's heap has none that large (nor room to say which task): \
             remove what is no longer needed, or make the pod anew with a larger heap"
        ))
    }
}

/// The key of a job's result among the names.
pub(crate) fn result_key(job: &[u8]) -> Vec<u8> {
    [b"r", job].concat()
}

/// The key of a program's name among the names.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// A key as people know it.
pub(crate) fn shown_key(key: &[u8]) -> String {
    let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default());
    match key.first() {
        Some(b'r') => format!("the result of job `{name}`"),
        _ => format!("`{name}`"),
    }
}

/// The cell at an offset, for messages.
pub(crate) fn shown_cell<M: Memory>(layout: Layout<M>, hand: Hand<'_, M>, cell: Cell<M>) -> String {
    let key = layout.names.name_of(hand.heap, cell.offset());
    key.map_or_else(|| "an unknown name".to_owned(), |key| shown_key(&key))
}
