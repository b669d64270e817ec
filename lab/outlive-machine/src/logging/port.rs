//! When a logging unit does what: its clock, its SRAM, its DRAM.

use crate::description::Description;
use crate::engine::{Clock, Time};

/// The unit's time.
///
/// The paper gives a clock of 500 MHz (a cycle is 2 ns) and an SRAM access of 4 ns. The rest is ours: accesses are
/// pipelined, one begins in each cycle, and it is as [wide](crate::description::Replication::entries_per_cycle) as `w` entries of
/// one REPL, which stand side by side. Messages are served one after the other, in the order of arrival: a REPL of `k` entries
/// takes `c = k / w` cycles, rounded up, a VAL one. Entries go to the DRAM log over a port of their own, as many in a
/// cycle; DRAM writes are posted. So, with `s` the first clock edge that is not before the message's arrival and the end of
/// what the unit does, a REPL is logged at `s + (c - 1) cycles + 4 ns`, and the unit is busy until `s + c cycles`. An entry
/// for which the SRAM has no room costs a DRAM access instead of the 4 ns. A dump reads
/// [fewer](crate::description::Replication::dump_entries_per_cycle), since it also compresses them.
#[derive(Clone, Debug)]
pub(super) struct UnitPort {
    clock: Clock,
    sram: Time,
    dram: Time,
    /// Entries that an access is wide.
    width: u32,
    /// Entries that a dump reads in a cycle.
    reads: u32,
    /// The cycle from which on messages can be served.
    free: u64,
    /// The cycle from which on entries can be moved.
    mover_free: u64,
    /// The sum of the times that messages waited, whole cycles and the way to an edge.
    pub waited: Time,
}

impl UnitPort {
    pub fn new(description: &Description) -> Self {
        Self {
            clock: Clock::new(description.logging_unit.frequency),
            sram: description.logging_unit.sram_latency,
            dram: description.ours.memory.local_latency,
            width: description.ours.replication.entries_per_cycle,
            reads: description.ours.replication.dump_entries_per_cycle,
            free: 0,
            mover_free: 0,
            waited: Time::ZERO,
        }
    }

    /// Begins entries in SRAM, then entries in DRAM, at `now` or as soon as the unit is free; returns when all are written.
    pub fn write(&mut self, now: Time, in_sram: u32, in_dram: u32) -> Time {
        let start = self.start(now, self.cycles(in_sram + in_dram));
        let last = |count: u32| self.clock.edge(start + self.cycles(count) - 1);
        let sram = (in_sram > 0).then(|| last(in_sram) + self.sram);
        let dram = (in_dram > 0).then(|| last(in_sram + in_dram) + self.dram);
        sram.max(dram).expect("a REPL has entries")
    }

    /// Marks the entries of a REPL; returns when that is done.
    pub fn mark(&mut self, now: Time, in_dram: bool) -> Time {
        let start = self.start(now, 1);
        self.clock.edge(start) + if in_dram { self.dram } else { self.sram }
    }

    /// Moves so many entries of a REPL that are ready at `ready` to the log; returns when their places are free.
    pub fn carry(&mut self, ready: Time, entries: u32) -> Time {
        let start = self.cycle(ready).max(self.mover_free);
        self.mover_free = start + self.cycles(entries);
        self.clock.edge(self.mover_free - 1) + self.sram
    }

    /// When the unit can serve another message.
    pub fn busy_until(&self) -> Time {
        self.clock.edge(self.free)
    }

    /// What it takes to read so many entries of the log.
    pub fn reading(&self, entries: u64) -> Time {
        self.clock.edge(entries.div_ceil(u64::from(self.reads)))
    }

    /// What it takes to begin so many entries of a REPL.
    fn cycles(&self, entries: u32) -> u64 {
        u64::from(entries.div_ceil(self.width))
    }

    fn start(&mut self, now: Time, cycles: u64) -> u64 {
        let start = self.cycle(now).max(self.free);
        self.free = start + cycles;
        self.waited += self.clock.edge(start) - now;
        start
    }

    /// The number of the first edge that is not before `time`.
    fn cycle(&self, time: Time) -> u64 {
        let last = self.clock.cycle(time);
        last + u64::from(self.clock.edge(last) < time)
    }
}
