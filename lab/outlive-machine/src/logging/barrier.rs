//! How the logging units dump together, and clear only what is safe.

use crate::protocol::{NodeId, NodeSet};

use super::dump::{Begin, Clear, Cleared, Saved};
use super::error::LoggingError;
use super::log::Through;

/// The barrier of the units, in a memory node: it leads the rounds in which logs are dumped.
///
/// A round: [`Begin`] to all living units; each [saves](super::LoggingUnit::begin) its share in an [archive](super::Archive)
/// and says [`Saved`] when it is stored; when all have, [`Clear`] to all; each clears and says [`Cleared`]; when all have, the
/// next round may begin. So no message of a round can meet one of another.
///
/// # What "its whole log" is
///
/// The paper's units save what a replica group has, wait for the others of the group, and clear their whole logs. But a
/// unit belongs to N_r groups, which overlap in a ring, and its log has the entries of all of them. So a round is one of
/// all units: a unit reads its log once, saves what is its to save in all of its groups, and clears its log when all units
/// have saved, which includes all with whom it shares a group.
///
/// # Why nothing is lost
///
/// Units do not have the same in their logs when they begin: a VAL may have come to one and be under way to the other. If
/// one cleared all that it has, an entry could go that the one who saves its line did not have yet, and fewer than N_r
/// logs, or with the saver's death none, would have it. Therefore a unit says with its `Saved` through which commit of each node
/// its log was complete, and an entry of another's range is cleared only if this covers it.
///
/// Let `e` be an entry in a unit's log, not a stray, and `m` the member that saves its line in the round.
///
/// 1. `m` is in the line's group, so the VAL of `e` went to `m` too, and `m` moves the VALs of a node in the order of its
///    commits. So if `m` had moved a commit of this node that is not before that of `e`, it had moved `e`.
/// 2. If then `e` was in the log of `m` when the round began, `m` has stored it in an archive before it said `Saved`. If it
///    was not, `m` had cleared it before, and `m` clears entries of its own range only after it stored them. Either way
///    `e` is in an archive when it is cleared.
/// 3. Until then, `e` stays in the log of every living member that got it. Whoever dies, at whichever moment, what
///    it has not stored is still in the others' logs; what it has stored without saying so may be stored once more, which
///    does no harm: node, commit and word name the update.
/// 4. Who has not saved when it dies is not in [`Clear::saved`], and nothing of its ranges is cleared. In the next round
///    the living members divide the ranges anew.
/// 5. A stray (an entry that was not, or not under the present groups, sent to this unit as a member of its line's group) is
///    saved by whoever has it. Groups change only when the fabric is drained, so of the members none has it as a stray and
///    another not.
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
/// let Some(Advance::Clear(clear)) = barrier.lose(b) else { panic!("nobody is waited for") };
/// assert!(clear.through(a).is_some() && clear.through(b).is_none());
/// assert_eq!(barrier.cleared(&Cleared { node: a, round })?, None);
/// assert!(barrier.is_idle());
/// # Ok::<(), outlive_machine::logging::LoggingError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpBarrier {
    living: NodeSet,
    round: u32,
    /// Who took part when the round began.
    members: NodeSet,
    phase: BarrierPhase,
    /// Who has not done what the phase waits for.
    awaited: NodeSet,
    saved: Vec<(NodeId, Through)>,
    /// Another round is to follow this one.
    asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BarrierPhase {
    Idle,
    Saving,
    Clearing,
}

/// What the barrier has to say to all living units that take part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Advance {
    /// Everybody has saved.
    Clear(Clear),
    /// The next round, which somebody has asked for.
    Begin(Begin),
}

impl DumpBarrier {
    /// A barrier of these nodes' units, in no round.
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

    /// The time for a dump has come: begins a round, unless one is under way.
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

    /// The log of a unit is full. Begins a round; or, if units are clearing already, remembers it for when they are done. A
    /// unit that is full still after a round's clearing asks again.
    pub fn ask(&mut self) -> Option<Begin> {
        self.asked |= self.phase == BarrierPhase::Clearing;
        self.begin()
    }

    /// For the dump at the end of a recovery: a whole round that begins after this. It begins now, or as soon as the one under way
    /// has ended, also if units are still saving: what they save may be what they had before the last validations.
    pub fn begin_anew(&mut self) -> Option<Begin> {
        self.asked |= !self.is_idle();
        self.begin()
    }

    /// A unit has saved.
    ///
    /// # Errors
    /// If that is not awaited.
    pub fn saved(&mut self, saved: &Saved) -> Result<Option<Advance>, LoggingError> {
        self.expect(BarrierPhase::Saving, saved.node, "Saved", saved.round)?;
        self.awaited = self.awaited.without(saved.node);
        self.saved.push((saved.node, saved.through));
        Ok(self.advance())
    }

    /// A unit has cleared.
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

    /// In a recovery, when all that `node` sent has arrived: nothing more is awaited of it. The round under way may go on so; but
    /// no other begins, whoever has asked for one, until the recovery [begins it anew](Self::begin_anew): a unit that cleared in it
    /// what it has told nobody of would find the directories [asking](super::LoggingUnit::fetch) too late, and the archive, if it was
    /// asked before that was stored there, too early.
    pub fn lose(&mut self, node: NodeId) -> Option<Advance> {
        self.asked = false;
        self.living = self.living.without(node);
        self.awaited = self.awaited.without(node);
        self.advance()
    }

    /// Whether no round is under way.
    pub fn is_idle(&self) -> bool {
        self.phase == BarrierPhase::Idle
    }

    /// Who can take part.
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
