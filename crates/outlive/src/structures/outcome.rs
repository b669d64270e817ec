//! What a log says about an operation on a structure.

use super::destroy::DESTROY;
use super::operation::{CREATE, INSERT, REMOVE, REPLACE};
use crate::recovery::{Operation, Progress};
use outlive_memory::Offset;

/// What an operation did to a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// It made it.
    Create,
    /// It inserted an entry.
    Insert,
    /// It removed an entry.
    Remove,
    /// It replaced a value, with or without a comparison.
    Replace,
    /// It destroyed the structure.
    Destroy,
}

/// What came of the operation on a structure that a log names: read it from what the next incarnation
/// [inherits](crate::recovery::Log::inherited).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The structure's header.
    pub structure: Offset,
    /// What was to be done.
    pub action: Action,
    /// Whether it took effect; `None` while it runs.
    pub took_effect: Option<bool>,
    /// The operation's number.
    pub sequence: u64,
}

impl Outcome {
    /// What `operation` says; `None` if it is not an operation on a structure that a program asked for. (The
    /// opening of a bucket, and the growth of a directory, are operations of the map itself.)
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
