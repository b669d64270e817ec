//! A link: bandwidth, queueing, time of flight.

use crate::description::Rate;
use crate::engine::{Divisor, Time, greatest_common_divisor};

/// A one-way link. Messages leave one after another at its rate, in the order in which they were
/// sent, and arrive after a time of flight. The queue in front of it has no bound.
///
/// The time that a byte takes is seldom a whole number of picoseconds (6¼ at 160 GB/s). The link
/// keeps the exact time at which it is free, as a fraction, and rounds up only the times that it
/// returns, so that rounding errors do not accumulate.
///
/// ```
/// use outlive_machine::description::Rate;
/// use outlive_machine::engine::Time;
/// use outlive_machine::parts::Link;
///
/// let mut link = Link::new(Rate::from_bytes_per_second(160_000_000_000).unwrap(), Time::from_nanos(30));
/// let first = link.send(Time::ZERO, 80);
/// let second = link.send(Time::ZERO, 80);
/// assert_eq!(first.arrives, Time::from_picos(500) + Time::from_nanos(30));
/// assert_eq!(second.arrives, first.arrives + Time::from_picos(500)); // it waited for the first
/// ```
#[derive(Clone, Debug)]
pub struct Link {
    /// A byte takes `picos / bytes`, in lowest terms.
    picos: u64,
    bytes: Divisor,
    /// The link is free from `free + part / bytes` picoseconds on; `part < bytes`.
    free: Time,
    part: u64,
    flight: Time,
    counts: LinkCounts,
}

/// The counters of a link since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The sum of the times that messages waited before their first byte left.
    pub waited: Time,
}

/// The times of a message on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The time when its first byte leaves.
    pub starts: Time,
    /// The time when its last byte has left.
    pub leaves: Time,
    /// The time when its last byte arrives.
    pub arrives: Time,
}

impl Link {
    /// Creates an idle link with this bandwidth and time of flight.
    pub fn new(rate: Rate, flight: Time) -> Self {
        const PICOS_PER_SECOND: u64 = 1_000_000_000_000;
        let common = greatest_common_divisor(PICOS_PER_SECOND, rate.bytes_per_second());
        Self {
            picos: PICOS_PER_SECOND / common,
            bytes: Divisor::new(rate.bytes_per_second() / common),
            free: Time::ZERO,
            part: 0,
            flight,
            counts: LinkCounts::default(),
        }
    }

    /// Sends a message of `bytes` that is ready at `ready`, behind all earlier messages.
    ///
    /// # Panics
    ///
    /// If it would arrive past the end of time.
    #[inline]
    pub fn send(&mut self, ready: Time, bytes: u64) -> Passage {
        // `free` is a whole picosecond or more before `ready`: so the fraction is over too.
        if self.free < ready {
            (self.free, self.part) = (ready, 0);
        }
        let starts = self.round_up();
        let parts = u128::from(self.part) + u128::from(bytes) * u128::from(self.picos);
        let (picos, part) = self.bytes.divide_wide(parts);
        self.free += Time::from_picos(picos);
        self.part = part;
        let leaves = self.round_up();
        self.counts.messages += 1;
        self.counts.bytes += bytes;
        self.counts.waited += starts - ready;
        Passage {
            starts,
            leaves,
            arrives: leaves + self.flight,
        }
    }

    /// Returns the time from the departure of the first byte of a message of `bytes` to the arrival
    /// of its last byte, without queueing.
    pub fn unloaded(&self, bytes: u64) -> Time {
        let mut idle = Self {
            free: Time::ZERO,
            part: 0,
            ..self.clone()
        };
        idle.send(Time::ZERO, bytes).arrives
    }

    /// Returns when the link is idle, unless more is sent.
    pub fn idle_from(&self) -> Time {
        self.round_up()
    }

    /// Returns the counters of the link.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    fn round_up(&self) -> Time {
        self.free + Time::from_picos(u64::from(self.part > 0))
    }
}
