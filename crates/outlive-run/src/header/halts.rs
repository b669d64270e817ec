//! Halts and gates, which stop workers where hosts are to be killed.
//!
//! A *halt* stops one worker right before its commit point, so that its host can be killed there:
//! the worst case.
//!
//! Each halt has the number of a unit. The first worker that is about to commit a unit of that or a
//! higher number takes the halt and waits for its death, unless its host has a halted worker
//! already. A worker of a host that was killed before takes it only if no other worker has taken it
//! for half the interval between kills. Halts are taken in order; a halt may be taken before the
//! driver has seen the previous one.
//!
//! A *gate* has the number of a unit, too. It stops all workers that have begun a later unit, and
//! the worker of that unit before the commit, until the driver has killed a host and opens the
//! gate. So the run cannot end before the kill.

use super::{FIXED, HIT, Header, SPARED};
use outlive::memory::{Memory, Offset, Ordering};

const GATE: u64 = 1 << 61;
const ARMED: u64 = 1 << 62;
const TAKEN: u64 = 1 << 63;

impl<M: Memory> Header<M> {
    fn halt_at(self, index: u64) -> Offset {
        self.at + (FIXED + index * 8)
    }

    /// Returns the words of the halts or gates, in their order.
    fn halts_now(self) -> impl Iterator<Item = u64> {
        // Acquire: a worker that passes a gate comes after the kill.
        (0..u64::from(self.kills()))
            .map(move |index| self.memory.load(self.halt_at(index), Ordering::Acquire))
    }

    fn set_all(self, flag: u64, units: &[u64]) {
        assert!(units.len() as u64 <= u64::from(self.kills()));
        for (index, unit) in (0..).zip(units) {
            let word = flag | unit & 0xFFFF_FFFF;
            self.memory
                .store(self.halt_at(index), word, Ordering::Release);
        }
    }

    /// Makes a halt for each of these units. There is one halt for each kill of the run.
    pub fn arm(self, units: &[u64]) {
        self.set_all(ARMED, units);
    }

    /// Makes a shut gate for each of these units. There is one gate for each kill of the run.
    pub fn shut_gates(self, units: &[u64]) {
        self.set_all(GATE, units);
    }

    /// Opens gate `index`.
    pub fn open_gate(self, index: u64) {
        self.memory
            .store(self.halt_at(index), 0u64, Ordering::Release);
    }

    /// Returns whether a gate with a unit below `units` is shut.
    pub fn is_gated(self, units: u64) -> bool {
        self.halts_now()
            .any(|word| word & GATE != 0 && word & 0xFFFF_FFFF < units)
    }

    /// Returns the hosts of the workers that have halted, in the order of their halts.
    pub fn halted(self) -> impl Iterator<Item = u32> {
        self.halts_now()
            .take_while(|word| word & TAKEN != 0)
            .map(|word| word as u32)
    }

    fn bit(host: u32) -> (u64, u64) {
        (u64::from(host / 64) * 8, 1 << (host % 64))
    }

    /// Records that `host` is about to be killed, so that its workers take no more halts. Returns
    /// `false` if it was recorded before.
    pub fn hit(self, host: u32) -> bool {
        let (word, bit) = Self::bit(host);
        let before: u64 = self
            .memory
            .fetch_or(self.at + HIT + word, bit, Ordering::AcqRel);
        before & bit == 0
    }

    fn unhit(self, host: u32) {
        let (word, bit) = Self::bit(host);
        self.memory
            .fetch_and(self.at + HIT + word, !bit, Ordering::AcqRel);
    }

    /// Records that `host` is dead after a kill. A worker of its next incarnation takes a halt only
    /// if no worker of another host has taken it for half the interval between kills.
    pub fn spare(self, host: u32) {
        let (word, bit) = Self::bit(host);
        self.memory
            .fetch_or(self.at + SPARED + word, bit, Ordering::AcqRel);
        self.unhit(host);
    }

    fn is_spared(self, host: u32) -> bool {
        let (word, bit) = Self::bit(host);
        let spared: u64 = self.memory.load(self.at + SPARED + word, Ordering::Relaxed);
        spared & bit != 0
    }

    /// Takes a due halt for the worker on `host` that is about to commit `unit`. Returns whether
    /// the worker has taken one.
    pub fn halts(self, unit: u64, host: u32) -> bool {
        for index in 0..u64::from(self.kills()) {
            let at = self.halt_at(index);
            let word: u64 = self.memory.load(at, Ordering::Acquire);
            if word & TAKEN != 0 {
                continue;
            }
            let patience = if self.is_spared(host) {
                self.units() / (u64::from(self.kills()) + 1) / 2
            } else {
                0
            };
            let due = (word & 0xFFFF_FFFF) + patience;
            if word & ARMED == 0 || unit < due || !self.hit(host) {
                return false;
            }
            let taken = TAKEN | u64::from(host);
            if self
                .memory
                .compare_exchange(at, word, taken, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
            // Another host was faster.
            self.unhit(host);
        }
        false
    }
}
