//! The logging unit of a compute node.

use std::collections::VecDeque;

use crate::description::Description;
use crate::engine::Time;
use crate::line::LineAddress;
use crate::program::Word;
use crate::protocol::NodeId;

use super::buffer::Buffer;
use super::dump::{Begin, Begun, Clear, Cleared, Saved, Stored};
use super::entry::{LogEntry, Requester};
use super::error::LoggingError;
use super::groups::ReplicaGroups;
use super::log::{DramLog, Through};
use super::message::{Repl, Val};
use super::port::UnitPort;
use super::share::{Cut, Phase, Share};
use super::versions::{LineVersions, Traversal};

/// A logging unit: it logs REPLs, validates them by their VALs, moves them in order to its DRAM
/// log, and dumps that log.
///
/// Plain state without events. The machine asks it when a message has arrived, and schedules the
/// consequences. The effects of a message take place at once; only times are in the future: when an
/// acknowledgement may leave, when a place of the SRAM is free. If its node dies, all of it is
/// lost; the machine then never asks it again.
///
/// ```
/// use outlive_machine::description::Description;
/// use outlive_machine::engine::Time;
/// use outlive_machine::line::LineAddress;
/// use outlive_machine::logging::{Epoch, LoggingUnit, Numbering, Repl, ReplicaGroups, Requester, Val};
/// use outlive_machine::protocol::NodeId;
///
/// let description = Description::default();
/// let groups = ReplicaGroups::new(&description);
/// let (here, requester) = (NodeId::new(3), Requester { node: NodeId::new(1), core: 2 });
/// let mut unit = LoggingUnit::new(&description, groups, here);
///
/// let repl = Repl { requester, sequence: 0, line: LineAddress(5), mask: 0b11, values: [7; 8] };
/// let logged = unit.log(Time::from_nanos(100), &repl)?;
/// assert_eq!(logged.ack, Time::from_nanos(100 + 4)); // two entries, side by side
/// assert!(unit.fetch(&[LineAddress(5)])[0].updates.is_empty()); // it is not validated
///
/// let mut numbering = Numbering::default();
/// let (commit, timestamp) = (numbering.commit(), numbering.timestamp(here));
/// let val = Val { requester, sequence: 0, timestamp, commit, epoch: Epoch(9) };
/// unit.validate(Time::from_nanos(400), &val)?;
/// assert_eq!(unit.fetch(&[LineAddress(5)])[0].updates.len(), 2);
/// # Ok::<(), outlive_machine::logging::LoggingError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoggingUnit {
    node: NodeId,
    groups: ReplicaGroups,
    port: UnitPort,
    buffer: Buffer,
    log: DramLog,
    sram_entries: u32,
    /// Entries in SRAM that are not on their way out.
    in_sram: u32,
    /// Entries in DRAM that wait for their VAL, or for earlier VALs.
    in_spill: u32,
    /// Entries leaving the SRAM, with the time when their places are free, in the order of these
    /// times.
    leaving: VecDeque<(Time, u32)>,
    leaving_entries: u32,
    phase: Phase,
    /// Whether the log was full and a dump has been requested since it was last cleared.
    asked: bool,
    counts: LoggingCounts,
}

/// The counters of a unit since the beginning. Entries are counted, one for each word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoggingCounts {
    /// REPLs.
    pub repls: u64,
    /// VALs.
    pub vals: u64,
    /// VALs that arrived before an earlier one of their node.
    pub early_vals: u64,
    /// Entries that were logged.
    pub logged: u64,
    /// Of them, those that went to DRAM because the SRAM was full.
    pub spilled: u64,
    /// Entries that were moved to the DRAM log.
    pub moved: u64,
    /// Of them, those that arrived when the log was full. They are behind it, in the spill area.
    pub past_full: u64,
    /// Entries that were dropped in a recovery because they were not validated: their node has
    /// died, or starts over.
    pub forgotten: u64,
    /// Entries that were cleared, saved by any unit.
    pub cleared: u64,
    /// Entries that this unit saved in dumps.
    pub saved: u64,
    /// Bytes of its dumps, compressed.
    pub dumped_bytes: u64,
    /// The total time that messages waited for the unit, and for its clock's edge.
    pub waited: Time,
    /// The maximum number of entries in SRAM at a time.
    pub peak_sram: u32,
    /// The maximum number of entries in DRAM at a time because the SRAM was full.
    pub peak_spill: u32,
    /// The maximum number of entries in the log at a time; more than its capacity if it was full.
    pub peak_log: u64,
}

/// The result of logging a REPL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// When all of it is written, and the REPL_ACK may leave.
    pub ack: Time,
    /// When the unit can serve another message.
    pub busy_until: Time,
    /// The number of entries that went to DRAM.
    pub spilled: u32,
}

/// The result of a VAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validated {
    /// When its REPL's entries are marked.
    pub done: Time,
    /// The number of entries that can now move to the log: none if an earlier VAL is missing, more
    /// than its own if others waited for it.
    pub moved: u32,
    /// Whether the log has become full: the machine is to forward this unit's request for a dump to
    /// the [barrier](super::DumpBarrier::ask). True once between two clearings.
    pub full: bool,
}

impl LoggingUnit {
    /// Creates the unit of `node`, in a machine with a checked description.
    pub fn new(description: &Description, groups: ReplicaGroups, node: NodeId) -> Self {
        let unit = &description.logging_unit;
        let entry = description.ours.replication.log_entry.0;
        let sram_entries = u32::try_from(unit.sram_size.0 / entry).unwrap_or(u32::MAX);
        let ready = sram_entries.min(1 << 16) as usize;
        Self {
            node,
            groups,
            port: UnitPort::new(description),
            buffer: Buffer::new(description.system.cores_per_node as u8, ready),
            log: DramLog::new(description),
            sram_entries,
            in_sram: 0,
            in_spill: 0,
            leaving: VecDeque::with_capacity(ready),
            leaving_entries: 0,
            phase: Phase::Idle,
            asked: false,
            counts: LoggingCounts::default(),
        }
    }

    /// Logs a REPL that has arrived. It is never refused: entries for which the SRAM has no space
    /// go to DRAM. If it had to wait for space, younger stores could keep out an older one that
    /// they wait for.
    ///
    /// # Errors
    /// If it names no word, or a word or core that is out of range, or its requester has another
    /// one under way with this sequence.
    pub fn log(&mut self, now: Time, repl: &Repl) -> Result<Logged, LoggingError> {
        let Repl {
            requester, line, ..
        } = *repl;
        if repl.mask == 0 {
            return Err(LoggingError::NoWords { requester });
        }
        if !self.buffer.knows(requester) || line.0 >= LogEntry::WORDS / Word::PER_LINE {
            let word = Word(line.0.saturating_mul(Word::PER_LINE));
            return Err(LoggingError::OutOfRange { requester, word });
        }
        let later = self.buffer.is_later(requester, repl.sequence);
        if !later && self.buffer.waits(requester, repl.sequence) {
            return Err(LoggingError::Twice {
                requester,
                sequence: repl.sequence,
            });
        }
        self.let_leave(now);
        let words = repl.mask.count_ones();
        let room = self.sram_entries - (self.in_sram + self.leaving_entries);
        let in_sram = words.min(room);
        let spilled = words - in_sram;
        let stray = !self
            .groups
            .replicas(line, requester.node)
            .contains(self.node);
        self.buffer.log(repl, spilled as u8, stray);
        self.in_sram += in_sram;
        self.in_spill += spilled;
        let ack = self.port.write(now, in_sram, spilled);

        let counts = &mut self.counts;
        counts.repls += 1;
        counts.logged += u64::from(words);
        counts.spilled += u64::from(spilled);
        counts.peak_sram = counts.peak_sram.max(self.in_sram + self.leaving_entries);
        counts.peak_spill = counts.peak_spill.max(self.in_spill);
        Ok(Logged {
            ack,
            busy_until: self.port.busy_until(),
            spilled,
        })
    }

    /// Validates a REPL by a VAL that has arrived, and moves to the log all entries that need not
    /// wait for an earlier VAL of their node.
    ///
    /// # Errors
    /// If its REPL is not here, or its timestamp was received before.
    pub fn validate(&mut self, now: Time, val: &Val) -> Result<Validated, LoggingError> {
        let in_dram = self.buffer.validate(val)? > 0;
        self.let_leave(now);
        let done = self.port.mark(now, in_dram);
        let before = self.log.len();
        while let Some(record) = self.buffer.take(val.requester.node) {
            self.log.append(&record);
            let free = self.port.carry(done, record.words());
            let spilled = u32::from(record.spilled);
            let in_sram = record.words() - spilled;
            self.in_spill -= spilled;
            if in_sram > 0 {
                self.in_sram -= in_sram;
                self.leaving_entries += in_sram;
                self.leaving.push_back((free, in_sram));
            }
        }
        let moved = self.log.len() - before;
        let full = self.log.is_full() && !self.asked;
        self.asked |= full;

        let counts = &mut self.counts;
        counts.vals += 1;
        counts.early_vals += u64::from(moved == 0);
        counts.moved += moved as u64;
        counts.past_full +=
            (self.log.len() as u64).saturating_sub(self.log.capacity().max(before as u64));
        counts.peak_log = counts.peak_log.max(self.log.len() as u64);
        Ok(Validated {
            done,
            moved: moved as u32,
            full,
        })
    }

    /// Drops all unvalidated entries of `node`, in a recovery when the fabric has drained and
    /// before any directory begins to recover. If the node is dead, these stores have not
    /// committed, or no other node has seen them; if it lives, they have not committed, and it
    /// starts over with them.
    ///
    /// # Errors
    /// If one of its VALs is missing before one that was received: the fabric has not drained.
    pub fn forget(&mut self, now: Time, node: NodeId) -> Result<(), LoggingError> {
        self.let_leave(now);
        let (entries, spilled) = self.buffer.forget(node)?;
        self.in_sram -= entries - spilled;
        self.in_spill -= spilled;
        self.counts.forgotten += u64::from(entries);
        Ok(())
    }

    /// FetchLatestVers (the paper's Algorithm 2). Returns for each of these lines, in the order of
    /// their addresses, the validated updates, from latest to earliest. The log is traversed once,
    /// from newest to oldest.
    ///
    /// Updates of one node are in the reverse order of its commits. Between two nodes the order
    /// means nothing: the one that owned the line later has the higher epoch.
    pub fn fetch(&self, lines: &[LineAddress]) -> Vec<LineVersions> {
        let mut traversal = Traversal::new(lines);
        let waiting: Vec<_> = self.buffer.validated().collect();
        for record in waiting.into_iter().rev() {
            record.entries().for_each(|entry| traversal.meet(entry));
        }
        for (entry, _) in self.log.iter().rev() {
            traversal.meet(entry);
        }
        traversal.finish()
    }

    /// Returns the time to traverse the log once.
    pub fn traversal(&self) -> Time {
        self.port.reading(self.log.len() as u64)
    }

    /// Begins a round of dumping: reads the log and takes its share of the entries, compressed.
    ///
    /// # Errors
    /// If the unit already takes part in a round, or is not a member of this one.
    pub fn begin(&mut self, begin: &Begin) -> Result<Begun, LoggingError> {
        self.phase.may_begin(begin, self.node)?;
        let cut = Cut {
            round: begin.round,
            entries: self.log.len(),
            through: self.log.through(),
        };
        let mine = |(entry, stray): &(LogEntry, bool)| {
            let (line, from) = (entry.word.line(), entry.requester.node);
            *stray || self.groups.saver(line, from, begin.members) == Some(self.node)
        };
        let share: Vec<LogEntry> = self
            .log
            .iter()
            .filter(mine)
            .map(|(entry, _)| entry)
            .collect();
        let read = self.port.reading(self.log.len() as u64);
        if share.is_empty() {
            let saved = Saved::new(self.node, &cut);
            self.phase = Phase::Saved(cut);
            return Ok(Begun::Nothing { saved, read });
        }
        let share = Share::new(self.node, begin.round, &share, read);
        self.counts.saved += share.entries;
        self.counts.dumped_bytes += share.bytes() as u64;
        self.phase = Phase::Saving(cut);
        Ok(Begun::Save(share))
    }

    /// Notes that the memory node has all of the share. Returns the message to the barrier.
    ///
    /// # Errors
    /// If the unit is not saving in that round.
    pub fn stored(&mut self, stored: &Stored) -> Result<Saved, LoggingError> {
        let cut = self.phase.stored(stored)?;
        Ok(Saved::new(self.node, &cut))
    }

    /// Clears the saved entries; all members have saved. Returns the message to the barrier.
    ///
    /// An entry is cleared if the saver of its line has saved and had this entry when it did; see
    /// [`DumpBarrier`](super::DumpBarrier).
    ///
    /// # Errors
    /// If the unit has not saved in that round.
    pub fn clear(&mut self, clear: &Clear) -> Result<Cleared, LoggingError> {
        let cut = self.phase.clear(clear)?;
        let before = self.log.len();
        let (node, groups) = (self.node, &self.groups);
        self.log.clear(|at, entry, stray| {
            let saver = match stray {
                true => Some(node),
                false => groups.saver(entry.word.line(), entry.requester.node, clear.members),
            };
            match saver {
                Some(saver) if saver == node => at < cut.entries,
                Some(saver) => clear
                    .through(saver)
                    .is_some_and(|through: &Through| through.covers(entry)),
                None => false,
            }
        });
        self.counts.cleared += (before - self.log.len()) as u64;
        self.phase = Phase::Idle;
        self.asked = false;
        Ok(Cleared {
            node,
            round: clear.round,
        })
    }

    /// Changes the groups to which lines belong, in a recovery when this unit has cleared in its
    /// last round. No core goes on before all units have changed.
    ///
    /// Entries that are still here were sent to the members of other groups, so the new saver of
    /// their line may not have them. This unit will save them itself.
    ///
    /// # Errors
    /// If a round is under way.
    pub fn regroup(&mut self, groups: ReplicaGroups) -> Result<(), LoggingError> {
        self.phase.may_regroup()?;
        self.groups = groups;
        self.log.mark_stray();
        self.buffer.mark_stray();
        Ok(())
    }

    /// Returns the node of the unit.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns all entries in the DRAM log, from older to newer.
    pub fn log_entries(&self) -> impl DoubleEndedIterator<Item = LogEntry> {
        self.log.iter().map(|(entry, _)| entry)
    }

    /// Returns the number of entries in the DRAM log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Returns the capacity of the DRAM log, in entries.
    pub fn log_capacity(&self) -> u64 {
        self.log.capacity()
    }

    /// Returns the number of entries in SRAM at `now`, which is not before the last call.
    pub fn sram_len(&self, now: Time) -> u32 {
        let gone = self.leaving.iter().take_while(|(free, _)| *free <= now);
        self.in_sram + self.leaving_entries - gone.map(|(_, entries)| entries).sum::<u32>()
    }

    /// Returns whether this REPL is logged and waits for its VAL.
    pub fn waits(&self, requester: Requester, sequence: u32) -> bool {
        self.buffer.waits(requester, sequence)
    }

    /// Returns the number of unmoved entries, which wait for their VALs, or for earlier VALs.
    pub fn waiting(&self) -> u32 {
        self.in_sram + self.in_spill
    }

    /// Returns whether the unit takes part in no round of dumping.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Returns the counters of the unit.
    pub fn counts(&self) -> LoggingCounts {
        LoggingCounts {
            waited: self.port.waited,
            ..self.counts
        }
    }

    /// Frees the places of the SRAM whose entries have left by `now`.
    fn let_leave(&mut self, now: Time) {
        while let Some(&(free, entries)) = self.leaving.front() {
            if free > now {
                break;
            }
            self.leaving.pop_front();
            self.leaving_entries -= entries;
        }
    }
}
