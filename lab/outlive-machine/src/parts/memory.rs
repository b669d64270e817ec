//! DRAM and persistent memory: latency and banks.

use crate::engine::Time;
use crate::line::LineAddress;

/// A memory that takes a fixed time for each access, in banks that do one access at a time.
///
/// A line's bank is found by hashing its address, since the lines of one memory node are not
/// consecutive. Not modelled are open rows, refresh, and differences between reads and writes.
///
/// ```
/// use outlive_machine::engine::Time;
/// use outlive_machine::line::LineAddress;
/// use outlive_machine::parts::Memory;
///
/// let mut dram = Memory::new(Time::from_nanos(45), 1);
/// assert_eq!(dram.access(Time::from_nanos(5), LineAddress(1)), Time::from_nanos(50));
/// assert_eq!(dram.access(Time::from_nanos(5), LineAddress(2)), Time::from_nanos(95)); // one bank
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    latency: Time,
    /// The time when each bank is free.
    free: Box<[Time]>,
    counts: MemoryCounts,
}

/// The counters of a memory since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// The number of accesses.
    pub accesses: u64,
    /// The sum of the times that accesses waited for their banks.
    pub waited: Time,
}

impl Memory {
    /// Creates an idle memory.
    ///
    /// # Panics
    ///
    /// Without banks.
    pub fn new(latency: Time, banks: u32) -> Self {
        assert!(banks > 0, "a memory has at least one bank");
        Self {
            latency,
            free: vec![Time::ZERO; banks as usize].into(),
            counts: MemoryCounts::default(),
        }
    }

    /// Accesses a line at `now`, after all earlier accesses to its bank. Returns when it is done.
    #[inline]
    pub fn access(&mut self, now: Time, line: LineAddress) -> Time {
        let bank = self.bank(line);
        let free = &mut self.free[bank];
        let starts = now.max(*free);
        *free = starts + self.latency;
        self.counts.accesses += 1;
        self.counts.waited += starts - now;
        *free
    }

    /// Returns the bank of a line.
    #[inline]
    pub fn bank(&self, line: LineAddress) -> usize {
        // Fibonacci hashing: multiples of the golden ratio spread evenly; the high bits are mixed
        // best.
        let mixed = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.free.len() as u128) >> 64) as usize
    }

    /// Returns the counters of the memory.
    pub fn counts(&self) -> MemoryCounts {
        self.counts
    }
}
