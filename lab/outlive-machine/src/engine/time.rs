//! Simulated time.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use super::decimal::write_decimal;

/// A point in simulated time, or a duration, in picoseconds. 64 bits of them are 213 days.
///
/// Arithmetic that leaves this range panics, since a simulation that gets there is wrong.
///
/// ```
/// use outlive_machine::engine::Time;
///
/// let round_trip = Time::from_nanos(200);
/// assert_eq!(round_trip / 2 + Time::from_picos(400), Time::from_picos(100_400));
/// assert_eq!(round_trip.to_string(), "200 ns");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The beginning of time.
    pub const ZERO: Self = Self(0);
    /// The end of time: later than any scheduled event.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a time of `picos` picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Returns a time of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        match nanos.checked_mul(1_000) {
            Some(picos) => Self(picos),
            None => panic!("more nanoseconds than simulated time has"),
        }
    }

    /// Returns a time of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        match micros.checked_mul(1_000_000) {
            Some(picos) => Self(picos),
            None => panic!("more microseconds than simulated time has"),
        }
    }

    /// Returns the time in picoseconds.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// Returns the time in seconds, rounded, for reports and plots.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Returns the sum, or `None` if it is past the end of time.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the difference, or zero if `earlier` is later.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.checked_add(other)
            .expect("simulated time ends after 2^64 picoseconds")
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(
            self.0
                .checked_sub(other.0)
                .expect("simulated time begins at zero"),
        )
    }
}

impl Mul<u64> for Time {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(
            self.0
                .checked_mul(times)
                .expect("simulated time ends after 2^64 picoseconds"),
        )
    }
}

/// Rounds towards zero.
impl Div<u64> for Time {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

/// Printed exactly, in the largest unit of which it has at least one: `2.5 ms`, `200 ns`, `400 ps`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "s"),
            (1_000_000_000, "ms"),
            (1_000_000, "us"),
            (1_000, "ns"),
        ];
        write_decimal(f, self.0, &units, "ps")
    }
}
