//! The outcome of an operation on a structure, as recorded in a log.

use super::destroy::DESTROY;
use super::operation::{CREATE, INSERT, REMOVE, REPLACE};
use crate::recovery::{Operation, Progress};
use outlive_memory::Offset;

/// The kind of an operation on a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The operation created the structure.
    Create,
    /// The operation inserted an entry.
    Insert,
    /// The operation removed an entry.
    Remove,
    /// The operation replaced a value, with or without a comparison.
    Replace,
    /// The operation destroyed the structure.
    Destroy,
}

/// The outcome of the operation on a structure that a log names. The next incarnation reads it from
/// the log that it [inherits](crate::recovery::Log::inherited).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The structure's header.
    pub structure: Offset,
    /// The kind of the operation.
    pub action: Action,
    /// Whether the operation took effect; `None` while it runs.
    pub took_effect: Option<bool>,
    /// The operation's number.
    pub sequence: u64,
}

impl Outcome {
    /// Returns the outcome of `operation`; `None` unless it is an operation on a structure that a
    /// program requested. (A map opens buckets and grows its directory by itself.)
    pub fn of(operation: &Operation) -> Option<Self> {
        let action = match operation.kind {
            CREATE => Action::Create,
            INSERT => Action::Insert,
            REMOVE => Action::Remove,
            REPLACE => Action::Replace,
            DESTROY => Action::Destroy,
            _ => return None,
        };
        Some(Self {
            structure: Offset::from_raw(operation.arguments[0]),
            action,
            took_effect: match operation.progress {
                Progress::Running => None,
                progress => Some(progress == Progress::Done),
            },
            sequence: operation.sequence,
        })
    }
}
