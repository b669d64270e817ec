//! The barrier by which logging units dump together, and clear only entries that are safe.

use crate::protocol::{NodeId, NodeSet};

use super::dump::{Begin, Clear, Cleared, Saved};
use super::error::LoggingError;
use super::log::Through;

/// The barrier of the units, in a memory node: it leads the rounds in which logs are dumped.
///
/// A round: [`Begin`] goes to all living units. Each [saves](super::LoggingUnit::begin) its share
/// in an [archive](super::Archive) and sends [`Saved`] when it is stored. When all have, [`Clear`]
/// goes to all. Each clears and sends [`Cleared`]; when all have, the next round may begin. So no
/// message of a round can meet one of another.
///
/// # The meaning of "its whole log"
///
/// The paper's units save the entries of a replica group, wait for the others of the group, and
/// clear their whole logs. But a unit belongs to N_r groups, which overlap in a ring, and its log
/// has the entries of all of them. So a round is one of all units: a unit reads its log once, saves
/// its share of all of its groups, and clears its log when all units have saved, which includes all
/// units with which it shares a group.
///
/// # Why nothing is lost
///
/// The logs of units differ when a round begins: a VAL may have come to one unit and be under way
/// to another. If a unit cleared its whole log, it could clear an entry that the saver of its line
/// did not have yet, and fewer than N_r logs, or with the saver's death none, would have it.
/// Therefore a unit says with its `Saved` through which commit of each node its log was complete,
/// and an entry of another unit's range is cleared only if this covers it.
///
/// Let `e` be an entry in a unit's log, not a stray, and `m` the member that saves its line.
///
/// 1. `m` is in the line's group, so the VAL of `e` went to `m` too, and `m` moves the VALs of a
///    node in the order of its commits. So if `m` had moved a commit of this node that is not
///    before that of `e`, it had moved `e`.
/// 2. If then `e` was in the log of `m` when the round began, `m` stored it in an archive before it
///    sent `Saved`. If it was not, `m` had cleared it before, and `m` clears entries of its own
///    range only after it has stored them. Either way `e` is in an archive when it is cleared.
/// 3. Until then, `e` stays in the log of every living member that received it. If a member dies,
///    at any moment, the entries that it has not stored are still in the others' logs; those that
///    it has stored without saying so may be stored once more, which is harmless: node, commit and
///    word name the update.
/// 4. A member that has not saved when it dies is not in [`Clear::saved`], and nothing of its
///    ranges is cleared. In the next round the living members divide the ranges anew.
/// 5. A stray (an entry that was not, or not under the present groups, sent to this unit as a
///    member of its line's group) is saved by every unit that has it. Groups change only when the
///    fabric is drained, so if one member has an entry as a stray, all members that have it do.
///
/// Memory nodes do not fail, so the barrier itself needs no copy.
///
/// ```
/// use outlive_machine::logging::{Advance, Cleared, DumpBarrier, Saved, Through};
/// use outlive_machine::protocol::{NodeId, NodeSet};
///
/// let [a, b] = [0, 1].map(NodeId::new);
/// let mut barrier = DumpBarrier::new(NodeSet::only(a).with(b));
/// let round = barrier.begin().expect("none is under way").round;
/// let saved = |node| Saved { node, round, through: Through::default() };
/// assert_eq!(barrier.saved(&saved(a))?, None);
/// // b dies instead of saving: a may clear, but nothing of what b was to save.
/// let Some(Advance::Clear(clear)) = barrier.lose(b) else { panic!("no node is waited for") };
/// assert!(clear.through(a).is_some() && clear.through(b).is_none());
/// assert_eq!(barrier.cleared(&Cleared { node: a, round })?, None);
/// assert!(barrier.is_idle());
/// # Ok::<(), outlive_machine::logging::LoggingError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpBarrier {
    living: NodeSet,
    round: u32,
    /// The nodes that took part when the round began.
    members: NodeSet,
    phase: BarrierPhase,
    /// The nodes that the phase waits for.
    awaited: NodeSet,
    saved: Vec<(NodeId, Through)>,
    /// Whether another round is to follow this one.
    asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BarrierPhase {
    Idle,
    Saving,
    Clearing,
}

/// A message of the barrier to all living units that take part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Advance {
    /// All have saved.
    Clear(Clear),
    /// The next round, which a unit has asked for.
    Begin(Begin),
}

impl DumpBarrier {
    /// Creates a barrier of these nodes' units, in no round.
    pub fn new(living: NodeSet) -> Self {
        Self {
            living,
            round: 0,
            members: NodeSet::EMPTY,
            phase: BarrierPhase::Idle,
            awaited: NodeSet::EMPTY,
            saved: Vec::with_capacity(living.len()),
            asked: false,
        }
    }

    /// Begins a periodic round, unless one is under way.
    pub fn begin(&mut self) -> Option<Begin> {
        let idle = self.is_idle() && !self.living.is_empty();
        idle.then(|| {
            self.round += 1;
            self.members = self.living;
            self.awaited = self.living;
            self.saved.clear();
            self.asked = false;
            self.phase = BarrierPhase::Saving;
            Begin {
                round: self.round,
                members: self.members,
            }
        })
    }

    /// Begins a round because the log of a unit is full. If units are clearing already, the request
    /// is remembered until they are done. A unit whose log is still full after the clearing asks
    /// again.
    pub fn ask(&mut self) -> Option<Begin> {
        self.asked |= self.phase == BarrierPhase::Clearing;
        self.begin()
    }

    /// Begins the round at the end of a recovery: a whole round that begins after this call. It
    /// begins now, or as soon as the one under way has ended, even if units are still saving: their
    /// shares may be from before the last validations.
    pub fn begin_anew(&mut self) -> Option<Begin> {
        self.asked |= !self.is_idle();
        self.begin()
    }

    /// Notes that a unit has saved.
    ///
    /// # Errors
    /// If that is not awaited.
    pub fn saved(&mut self, saved: &Saved) -> Result<Option<Advance>, LoggingError> {
        self.expect(BarrierPhase::Saving, saved.node, "Saved", saved.round)?;
        self.awaited = self.awaited.without(saved.node);
        self.saved.push((saved.node, saved.through));
        Ok(self.advance())
    }

    /// Notes that a unit has cleared.
    ///
    /// # Errors
    /// If that is not awaited.
    pub fn cleared(&mut self, cleared: &Cleared) -> Result<Option<Advance>, LoggingError> {
        self.expect(
            BarrierPhase::Clearing,
            cleared.node,
            "Cleared",
            cleared.round,
        )?;
        self.awaited = self.awaited.without(cleared.node);
        Ok(self.advance())
    }

    /// Stops waiting for `node`, in a recovery when all that `node` sent has arrived. The round
    /// under way may then continue. No other round begins, even if a unit has asked for one, until
    /// the recovery [begins it anew](Self::begin_anew): if a unit cleared in another round an entry
    /// that it has reported to no directory, the directories would [ask](super::LoggingUnit::fetch)
    /// the unit too late, and an archive that was asked before the entry was stored there, too
    /// early.
    pub fn lose(&mut self, node: NodeId) -> Option<Advance> {
        self.asked = false;
        self.living = self.living.without(node);
        self.awaited = self.awaited.without(node);
        self.advance()
    }

    /// Returns whether no round is under way.
    pub fn is_idle(&self) -> bool {
        self.phase == BarrierPhase::Idle
    }

    /// Returns the nodes that can take part.
    pub fn living(&self) -> NodeSet {
        self.living
    }

    fn advance(&mut self) -> Option<Advance> {
        if !self.awaited.is_empty() {
            return None;
        }
        match self.phase {
            BarrierPhase::Idle => None,
            BarrierPhase::Saving => {
                self.phase = BarrierPhase::Clearing;
                self.awaited = self
                    .members
                    .iter()
                    .filter(|node| self.living.contains(*node))
                    .collect();
                if self.awaited.is_empty() {
                    return self.advance();
                }
                Some(Advance::Clear(Clear {
                    round: self.round,
                    members: self.members,
                    saved: self.saved.clone(),
                }))
            }
            BarrierPhase::Clearing => {
                self.phase = BarrierPhase::Idle;
                if !std::mem::take(&mut self.asked) {
                    return None;
                }
                self.begin().map(Advance::Begin)
            }
        }
    }

    fn expect(
        &self,
        phase: BarrierPhase,
        node: NodeId,
        message: &'static str,
        round: u32,
    ) -> Result<(), LoggingError> {
        if self.phase == phase && self.round == round && self.awaited.contains(node) {
            return Ok(());
        }
        Err(LoggingError::OutOfTurn {
            receiver: "the barrier of dumps",
            message,
            round,
            doing: match self.phase {
                BarrierPhase::Idle => "in no round",
                BarrierPhase::Saving => "waiting for others to save, or for another round",
                BarrierPhase::Clearing => "waiting for others to clear, or for another round",
            },
        })
    }
}
