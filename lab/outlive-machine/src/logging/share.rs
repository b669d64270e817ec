//! A unit's state in a round of dumping, and its share.

use std::sync::Arc;

use crate::engine::Time;
use crate::protocol::NodeId;

use super::dump::{Begin, Clear, Piece, Stored};
use super::entry::LogEntry;
use super::error::LoggingError;
use super::form;
use super::log::Through;

/// The extent of a log when a round began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub round: u32,
    pub entries: usize,
    pub through: Through,
}

/// The phase of a unit in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// In no round.
    Idle,
    /// Its share is on the way to a memory node.
    Saving(Cut),
    /// Its share is stored there. It waits for the others.
    Saved(Cut),
}

impl Phase {
    pub fn may_begin(&self, begin: &Begin, node: NodeId) -> Result<(), LoggingError> {
        match self {
            Phase::Idle if begin.members.contains(node) => Ok(()),
            Phase::Idle => Err(LoggingError::OutOfTurn {
                receiver: "a logging unit",
                message: "Begin",
                round: begin.round,
                doing: "not among the members",
            }),
            _ => Err(self.out_of_turn("Begin", begin.round)),
        }
    }

    pub fn stored(&mut self, stored: &Stored) -> Result<Cut, LoggingError> {
        match *self {
            Phase::Saving(cut) if cut.round == stored.round => {
                *self = Phase::Saved(cut);
                Ok(cut)
            }
            _ => Err(self.out_of_turn("Stored", stored.round)),
        }
    }

    pub fn clear(&self, clear: &Clear) -> Result<Cut, LoggingError> {
        match *self {
            Phase::Saved(cut) if cut.round == clear.round => Ok(cut),
            _ => Err(self.out_of_turn("Clear", clear.round)),
        }
    }

    pub fn may_regroup(&self) -> Result<(), LoggingError> {
        match self {
            Phase::Idle => Ok(()),
            Phase::Saving(cut) | Phase::Saved(cut) => {
                Err(self.out_of_turn("a change of groups", cut.round))
            }
        }
    }

    fn out_of_turn(&self, message: &'static str, round: u32) -> LoggingError {
        LoggingError::OutOfTurn {
            receiver: "a logging unit",
            message,
            round,
            doing: match self {
                Phase::Idle => "in no round",
                Phase::Saving(_) => "saving, perhaps in another round",
                Phase::Saved(_) => "waiting for the others, perhaps in another round",
            },
        }
    }
}

/// The entries that a unit saves in a round, compressed.
///
/// The unit reads its log evenly, and its output grows evenly with it. So piece `i` of `n` may
/// leave when `(i + 1) / n` of the reading is done, and the last when all of it is.
#[derive(Clone, Debug)]
pub struct Share {
    node: NodeId,
    round: u32,
    /// The number of its entries.
    pub entries: u64,
    packed: Arc<[u8]>,
    /// The time that the unit takes to read its log.
    pub read: Time,
}

impl Share {
    pub(super) fn new(node: NodeId, round: u32, entries: &[LogEntry], read: Time) -> Self {
        Self {
            node,
            round,
            entries: entries.len() as u64,
            packed: form::pack(node, round, entries).into(),
            read,
        }
    }

    /// Returns its compressed size, in bytes.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// Returns the number of messages that carry it.
    pub fn piece_count(&self) -> u32 {
        self.packed.len().div_ceil(Piece::BYTES) as u32
    }

    /// Returns the messages that carry it, each with the time since the round's beginning when it
    /// may leave.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = (Time, Piece)> + '_ {
        (0..self.piece_count()).map(|index| (self.ready(index), self.piece(index)))
    }

    /// Returns the time since the round's beginning when a piece may leave.
    pub fn ready(&self, index: u32) -> Time {
        let part = u128::from(self.read.picos()) * (u128::from(index) + 1);
        // Not more than the whole, which fits.
        Time::from_picos(part.div_ceil(u128::from(self.piece_count())) as u64)
    }

    /// Returns a piece, by its number.
    ///
    /// # Panics
    ///
    /// If there is no piece of that number.
    pub fn piece(&self, index: u32) -> Piece {
        let chunk = self.packed.chunks(Piece::BYTES).nth(index as usize);
        let chunk = chunk.expect("a share has as many pieces as it says");
        let mut bytes = [0; Piece::BYTES];
        bytes[..chunk.len()].copy_from_slice(chunk);
        Piece {
            node: self.node,
            round: self.round,
            index,
            length: self.packed.len() as u32,
            bytes,
        }
    }
}
