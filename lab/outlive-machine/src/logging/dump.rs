//! What logging units and memory nodes say to each other about a round of dumping.

use crate::engine::Time;
use crate::protocol::{NodeId, NodeSet};

use super::log::Through;
use super::share::{Cut, Share};

/// From the barrier to all who take part: save your share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Which round.
    pub round: u32,
    /// Who takes part.
    pub members: NodeSet,
}

/// What a unit does when a round begins.
#[derive(Clone, Debug)]
pub enum Begun {
    /// It sends its share to a memory node, in [pieces](Share::pieces).
    Save(Share),
    /// None of its entries are its to save: it tells the barrier, when it has read its log.
    Nothing {
        /// To be sent to the barrier.
        saved: Saved,
        /// How long it reads its log.
        read: Time,
    },
}

/// From a unit to the archive of a memory node: 64 bytes of its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whose share.
    pub node: NodeId,
    /// Of which round.
    pub round: u32,
    /// Which piece, from 0.
    pub index: u32,
    /// How many bytes the share has in all.
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
    /// Whose share.
    pub node: NodeId,
    /// Of which round.
    pub round: u32,
}

/// From a unit to the barrier: my share is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Whose share.
    pub node: NodeId,
    /// Of which round.
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

/// From the barrier to all who take part: everybody has saved; clear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clear {
    /// Which round.
    pub round: u32,
    /// Who took part when it began.
    pub members: NodeSet,
    /// Who of them has saved, and through which commits.
    pub saved: Vec<(NodeId, Through)>,
}

impl Clear {
    /// Through which commits `node` has saved, if it has.
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
    /// Who.
    pub node: NodeId,
    /// In which round.
    pub round: u32,
}
