//! Clocks: cycles of a frequency, on a grid of picoseconds.

use std::fmt;

use super::Time;
use super::decimal::write_decimal;
use super::divisor::Divisor;

/// A frequency in hertz, from 1 Hz to 1 THz (a cycle lasts at least one picosecond).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frequency(u64);

impl Frequency {
    const PICOS_PER_SECOND: u64 = 1_000_000_000_000;

    /// Returns the frequency of `hertz` hertz, or `None` if that is 0 or more than 1 THz.
    pub const fn from_hertz(hertz: u64) -> Option<Self> {
        if hertz == 0 || hertz > Self::PICOS_PER_SECOND {
            None
        } else {
            Some(Self(hertz))
        }
    }

    /// Returns the frequency in hertz.
    pub const fn hertz(self) -> u64 {
        self.0
    }
}

/// Printed exactly, in the largest unit of which it has at least one: `2.4 GHz`.
impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "THz"),
            (1_000_000_000, "GHz"),
            (1_000_000, "MHz"),
            (1_000, "kHz"),
        ];
        write_decimal(f, self.0, &units, "Hz")
    }
}

/// The edges of a clock: edge `n` is at `n` periods from zero, rounded up to a picosecond.
///
/// A period is seldom a whole number of picoseconds (at 2.4 GHz it is 416⅔ ps), so the edges are
/// computed from their numbers, and rounding errors do not accumulate:
///
/// ```
/// use outlive_machine::engine::{Clock, Frequency, Time};
///
/// let clock = Clock::new(Frequency::from_hertz(2_400_000_000).unwrap());
/// assert_eq!(clock.edge(5), Time::from_picos(2_084));
/// assert_eq!(clock.edge(2_400_000), Time::from_micros(1_000)); // to the picosecond
/// assert_eq!(clock.cycle(clock.edge(5)), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// A period is `picos / cycles` picoseconds, in lowest terms.
    picos: Divisor,
    cycles: Divisor,
}

impl Clock {
    /// Returns the clock of `frequency`.
    pub const fn new(frequency: Frequency) -> Self {
        let common = greatest_common_divisor(Frequency::PICOS_PER_SECOND, frequency.0);
        Self {
            picos: Divisor::new(Frequency::PICOS_PER_SECOND / common),
            cycles: Divisor::new(frequency.0 / common),
        }
    }

    /// Returns the time of edge `cycle`, which is also the duration of `cycle` cycles, rounded up.
    ///
    /// # Panics
    ///
    /// If the time is past the end of time.
    #[inline]
    pub fn edge(self, cycle: u64) -> Time {
        let parts = u128::from(cycle) * u128::from(self.picos.get());
        let (picos, rest) = self.cycles.divide_wide(parts);
        Time::from_picos(picos) + Time::from_picos(u64::from(rest > 0))
    }

    /// Returns the number of the last edge that is not after `time`.
    #[inline]
    pub fn cycle(self, time: Time) -> u64 {
        // A cycle lasts at least a picosecond, so there are no more cycles than picoseconds.
        let parts = u128::from(time.picos()) * u128::from(self.cycles.get());
        self.picos.divide_wide(parts).0
    }

    /// Returns the number of the first edge that is not before `time`.
    #[inline]
    pub fn next_cycle(self, time: Time) -> u64 {
        // The edge after the last one that, without rounding, is at or before `picos - 1`.
        match time.picos() {
            0 => 0,
            picos => self.cycle(Time::from_picos(picos - 1)) + 1,
        }
    }

    /// Returns the first edge that is not before `time`.
    #[inline]
    pub fn next_edge(self, time: Time) -> Time {
        self.edge(self.next_cycle(time))
    }
}

pub(crate) const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
