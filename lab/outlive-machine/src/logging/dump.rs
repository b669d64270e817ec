//! The messages between logging units and memory nodes in a round of dumping.

use crate::engine::Time;
use crate::protocol::{NodeId, NodeSet};

use super::log::Through;
use super::share::{Cut, Share};

/// From the barrier to all units that take part: save your share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// The number of the round.
    pub round: u32,
    /// The nodes that take part.
    pub members: NodeSet,
}

/// A unit's reaction to the beginning of a round.
#[derive(Clone, Debug)]
pub enum Begun {
    /// It sends its share to a memory node, in [pieces](Share::pieces).
    Save(Share),
    /// None of its entries are its to save: it notifies the barrier when it has read its log.
    Nothing {
        /// The message to the barrier.
        saved: Saved,
        /// The time that it reads its log.
        read: Time,
    },
}

/// From a unit to the archive of a memory node: 64 bytes of its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The node that saves the share.
    pub node: NodeId,
    /// The number of the round.
    pub round: u32,
    /// The number of the piece, from 0.
    pub index: u32,
    /// The size of the whole share, in bytes.
    pub length: u32,
    /// The piece; zeros follow the end of the share.
    pub bytes: [u8; Piece::BYTES],
}

impl Piece {
    /// Bytes of a share in a message.
    pub const BYTES: usize = 64;
}

/// From an archive to a unit: all of your share is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The node that saves the share.
    pub node: NodeId,
    /// The number of the round.
    pub round: u32,
}

/// From a unit to the barrier: my share is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The node that saves the share.
    pub node: NodeId,
    /// The number of the round.
    pub round: u32,
    /// For each node, the last of its commits that the unit had in its log when the round began.
    pub through: Through,
}

impl Saved {
    pub(super) fn new(node: NodeId, cut: &Cut) -> Self {
        Self {
            node,
            round: cut.round,
            through: cut.through,
        }
    }
}

/// From the barrier to all units that take part: all have saved; clear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clear {
    /// The number of the round.
    pub round: u32,
    /// The nodes that took part when it began.
    pub members: NodeSet,
    /// The nodes that have saved, and through which commits.
    pub saved: Vec<(NodeId, Through)>,
}

impl Clear {
    /// Returns the commits through which `node` has saved, if it has.
    pub fn through(&self, node: NodeId) -> Option<&Through> {
        let mut saved = self.saved.iter();
        saved
            .find(|(saver, _)| *saver == node)
            .map(|(_, through)| through)
    }
}

/// From a unit to the barrier: I have cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleared {
    /// The node that has cleared.
    pub node: NodeId,
    /// The number of the round.
    pub round: u32,
}
