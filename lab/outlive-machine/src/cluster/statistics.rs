//! The statistics of a run.

use std::fmt;
use std::ops::AddAssign;

use super::caches::Level;
use super::event::{MessageKind, Purpose};
use crate::engine::Time;
use crate::logging::{LoggingCounts, Truncated};
use crate::parts::{LinkCounts, MemoryCounts};

/// The counts of a core and its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Instructions.
    pub instructions: u64,
    /// Loads, including private ones, without atomics.
    pub loads: u64,
    /// Loads of shared memory.
    pub shared_loads: u64,
    /// Stores, including private ones, without atomics.
    pub stores: u64,
    /// Stores to shared memory, including atomics.
    pub shared_stores: u64,
    /// Atomics, including those of locks and barriers.
    pub atomics: u64,
    /// Loads and atomics that the L1 served. Loads of lines that were requested outside and are
    /// bound later are in none of the four counts.
    pub l1_hits: u64,
    /// Those that the L2 served.
    pub l2_hits: u64,
    /// Those that the L3 served.
    pub l3_hits: u64,
    /// Those that the L3 served with the help of another core of the node.
    pub neighbour_hits: u64,
    /// Loads that got the value of an own store that was not committed.
    pub forwarded: u64,
    /// Lines of shared memory that were requested outside, for loads, stores and prefetches.
    pub misses: u64,
    /// Of them, those that have come.
    pub supplied: u64,
    /// The sum of the times of these, from the look-up in the L1 until the core could use the line,
    /// in ticks.
    pub supply_ticks: u64,
    /// Accesses to lines of the node's own memory that were in no cache.
    pub private_misses: u64,
    /// Entries of the store buffer that were committed.
    pub commits: u64,
    /// Stores that joined an entry of the store buffer.
    pub coalesced: u64,
    /// Of them, stores to shared memory.
    pub shared_coalesced: u64,
    /// Entries that were replicated: each is a REPL to each node of its line's group.
    pub replicated: u64,
    /// Of them, those that were replicated when they were the oldest of the store buffer.
    pub replicated_oldest: u64,
    /// The total time for which the oldest entry, with its line present, waited only for its
    /// replicas, in ticks.
    pub replica_ticks: u64,
    /// The sum of the times that entries were in the store buffer, in ticks (a cycle has as many
    /// ticks as a core is wide).
    pub buffer_ticks: u64,
    /// The number of times that a store could not retire because the store buffer was full.
    pub buffer_full: u64,
    /// The total of these times, in ticks.
    pub buffer_full_ticks: u64,
    /// The total time of the thread at locks, from its arrival until it had the lock, in ticks; the
    /// stores before it are committed first.
    pub lock_ticks: u64,
    /// The total time at barriers and conditions, in ticks.
    pub meeting_ticks: u64,
    /// The time at which the thread's last instruction was retired and its last store committed;
    /// zero while it runs.
    pub finished: Time,
}

impl CoreCounts {
    #[inline]
    pub(super) fn hit(&mut self, level: Level) {
        match level {
            Level::L1 => self.l1_hits += 1,
            Level::L2 => self.l2_hits += 1,
            Level::L3 => self.l3_hits += 1,
            Level::Neighbour => self.neighbour_hits += 1,
        }
    }
}

/// Adds the counts, and keeps the later end.
impl AddAssign for CoreCounts {
    fn add_assign(&mut self, other: CoreCounts) {
        self.instructions += other.instructions;
        self.loads += other.loads;
        self.shared_loads += other.shared_loads;
        self.stores += other.stores;
        self.shared_stores += other.shared_stores;
        self.atomics += other.atomics;
        self.l1_hits += other.l1_hits;
        self.l2_hits += other.l2_hits;
        self.l3_hits += other.l3_hits;
        self.neighbour_hits += other.neighbour_hits;
        self.forwarded += other.forwarded;
        self.misses += other.misses;
        self.supplied += other.supplied;
        self.supply_ticks += other.supply_ticks;
        self.private_misses += other.private_misses;
        self.commits += other.commits;
        self.coalesced += other.coalesced;
        self.shared_coalesced += other.shared_coalesced;
        self.replicated += other.replicated;
        self.replicated_oldest += other.replicated_oldest;
        self.replica_ticks += other.replica_ticks;
        self.buffer_ticks += other.buffer_ticks;
        self.buffer_full += other.buffer_full;
        self.buffer_full_ticks += other.buffer_full_ticks;
        self.lock_ticks += other.lock_ticks;
        self.meeting_ticks += other.meeting_ticks;
        self.finished = self.finished.max(other.finished);
    }
}

/// Messages of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of messages.
    pub messages: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// Messages by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCounts([Traffic; MessageKind::ALL.len()]);

impl Default for MessageCounts {
    fn default() -> MessageCounts {
        MessageCounts([Traffic::default(); MessageKind::ALL.len()])
    }
}

impl MessageCounts {
    #[inline]
    pub(super) fn count(&mut self, kind: MessageKind, bytes: u64) {
        let traffic = &mut self.0[kind as usize];
        traffic.messages += 1;
        traffic.bytes += bytes;
    }

    /// Returns the counts of a kind.
    pub fn of(&self, kind: MessageKind) -> Traffic {
        self.0[kind as usize]
    }

    /// Returns the counts of all kinds.
    pub fn total(&self) -> Traffic {
        self.sum(|_| true)
    }

    /// Returns the counts of a purpose.
    pub fn for_purpose(&self, purpose: Purpose) -> Traffic {
        self.sum(|kind| kind.purpose() == purpose)
    }

    fn sum(&self, counts: impl Fn(MessageKind) -> bool) -> Traffic {
        let kinds = MessageKind::ALL.iter().filter(|kind| counts(**kind));
        kinds.fold(Traffic::default(), |sum, kind| {
            let Traffic { messages, bytes } = self.of(*kind);
            Traffic {
                messages: sum.messages + messages,
                bytes: sum.bytes + bytes,
            }
        })
    }
}

/// The statistics of a cluster since the beginning. Equal runs have equal statistics, to the byte
/// of their printed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The cores that have threads, in the order of the threads.
    pub cores: Vec<CoreCounts>,
    /// Messages sent.
    pub messages: MessageCounts,
    /// From each port to the switch: compute nodes first, then memory nodes.
    pub uplinks: Vec<LinkCounts>,
    /// From the switch to each port.
    pub downlinks: Vec<LinkCounts>,
    /// DRAM of the memory nodes.
    pub dram: Vec<MemoryCounts>,
    /// Persistent memory of the memory nodes.
    pub pmem: Vec<MemoryCounts>,
    /// DRAM of the compute nodes.
    pub local: Vec<MemoryCounts>,
    /// The logging unit of each compute node, in a machine that replicates.
    pub logging: Vec<LoggingCounts>,
    /// Bytes of dumps in each memory node, compressed, in a machine that replicates. Dropped dumps
    /// do not count.
    pub archives: Vec<u64>,
    /// The entries and bytes that each memory node has dropped, in a machine that replicates.
    pub truncated: Vec<Truncated>,
    /// The time at which the last thread finished; `None` while one runs.
    pub finished: Option<Time>,
}

impl Statistics {
    /// Returns the sum of all cores.
    pub fn total(&self) -> CoreCounts {
        let mut total = CoreCounts::default();
        for core in &self.cores {
            total += *core;
        }
        total
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        match self.finished {
            Some(end) => writeln!(f, "finished at {end}")?,
            None => writeln!(f, "not finished")?,
        }
        writeln!(
            f,
            "{} instructions: {} loads ({} shared), {} stores ({} shared), {} atomics",
            total.instructions,
            total.loads,
            total.shared_loads,
            total.stores,
            total.shared_stores,
            total.atomics
        )?;
        writeln!(
            f,
            "hits: L1 {}, L2 {}, L3 {}, neighbour {}, forwarded {}; lines asked for {}, private {}",
            total.l1_hits,
            total.l2_hits,
            total.l3_hits,
            total.neighbour_hits,
            total.forwarded,
            total.misses,
            total.private_misses
        )?;
        writeln!(
            f,
            "store buffers: {} commits, {} stores joined, full {} times",
            total.commits, total.coalesced, total.buffer_full
        )?;
        if total.replicated > 0 {
            writeln!(
                f,
                "replication: {} entries, {} when they were the oldest",
                total.replicated, total.replicated_oldest
            )?;
        }
        for (n, unit) in self.logging.iter().enumerate() {
            writeln!(
                f,
                "unit {n}: {} REPLs, {} entries; at most {} in SRAM, {} in the log; {} saved in {} B",
                unit.repls,
                unit.logged,
                unit.peak_sram,
                unit.peak_log,
                unit.saved,
                unit.dumped_bytes
            )?;
        }
        for (m, (bytes, gone)) in self.archives.iter().zip(&self.truncated).enumerate() {
            if *bytes > 0 || gone.bytes > 0 {
                writeln!(
                    f,
                    "archive {m}: {bytes} B; {} entries dropped, and {} B",
                    gone.entries, gone.bytes
                )?;
            }
        }
        for kind in MessageKind::ALL {
            let Traffic { messages, bytes } = self.messages.of(*kind);
            if messages > 0 {
                writeln!(f, "{kind:?}: {messages} messages, {bytes} B")?;
            }
        }
        Ok(())
    }
}
