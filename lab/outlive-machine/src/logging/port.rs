//! The timing of a logging unit: its clock, its SRAM, its DRAM.

use crate::description::Description;
use crate::engine::{Clock, Time};

/// The unit's time.
///
/// The paper gives a clock of 500 MHz (a cycle is 2 ns) and an SRAM access of 4 ns. The rest is
/// ours: accesses are pipelined, one begins in each cycle, and it is as
/// [wide](crate::description::Replication::entries_per_cycle) as `w` entries of one REPL, which are
/// adjacent. Messages are served one after the other, in the order of arrival: a REPL of `k`
/// entries takes `c = k / w` cycles, rounded up, a VAL one. Entries go to the DRAM log over a port
/// of their own, as many in a cycle; DRAM writes are posted. Let `s` be the first clock edge that
/// is not before the message's arrival nor before the end of the unit's earlier work. Then a REPL
/// is logged at `s + (c - 1) cycles + 4 ns`, and the unit is busy until `s + c cycles`. An entry
/// for which the SRAM has no space costs a DRAM access instead of the 4 ns. A dump reads
/// [fewer](crate::description::Replication::dump_entries_per_cycle), since it also compresses them.
#[derive(Clone, Debug)]
pub(super) struct UnitPort {
    clock: Clock,
    sram: Time,
    dram: Time,
    /// The width of an access, in entries.
    width: u32,
    /// Entries that a dump reads in a cycle.
    reads: u32,
    /// The first cycle in which a message can be served.
    free: u64,
    /// The first cycle in which an entry can be moved.
    mover_free: u64,
    /// The sum of the times that messages waited, whole cycles and the time to a clock edge.
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

    /// Writes entries to SRAM, then entries to DRAM, from `now` or as soon as the unit is free.
    /// Returns when all are written.
    pub fn write(&mut self, now: Time, in_sram: u32, in_dram: u32) -> Time {
        let start = self.start(now, self.cycles(in_sram + in_dram));
        let last = |count: u32| self.clock.edge(start + self.cycles(count) - 1);
        let sram = (in_sram > 0).then(|| last(in_sram) + self.sram);
        let dram = (in_dram > 0).then(|| last(in_sram + in_dram) + self.dram);
        sram.max(dram).expect("a REPL has entries")
    }

    /// Marks the entries of a REPL. Returns when that is done.
    pub fn mark(&mut self, now: Time, in_dram: bool) -> Time {
        let start = self.start(now, 1);
        self.clock.edge(start) + if in_dram { self.dram } else { self.sram }
    }

    /// Moves `entries` entries of a REPL, ready at `ready`, to the log. Returns when their places
    /// are free.
    pub fn carry(&mut self, ready: Time, entries: u32) -> Time {
        let start = self.cycle(ready).max(self.mover_free);
        self.mover_free = start + self.cycles(entries);
        self.clock.edge(self.mover_free - 1) + self.sram
    }

    /// Returns when the unit can serve another message.
    pub fn busy_until(&self) -> Time {
        self.clock.edge(self.free)
    }

    /// Returns the time to read `entries` entries of the log.
    pub fn reading(&self, entries: u64) -> Time {
        self.clock.edge(entries.div_ceil(u64::from(self.reads)))
    }

    /// Returns the number of cycles to begin `entries` entries of a REPL.
    fn cycles(&self, entries: u32) -> u64 {
        u64::from(entries.div_ceil(self.width))
    }

    fn start(&mut self, now: Time, cycles: u64) -> u64 {
        let start = self.cycle(now).max(self.free);
        self.free = start + cycles;
        self.waited += self.clock.edge(start) - now;
        start
    }

    /// Returns the number of the first edge that is not before `time`.
    fn cycle(&self, time: Time) -> u64 {
        let last = self.clock.cycle(time);
        last + u64::from(self.clock.edge(last) < time)
    }
}
