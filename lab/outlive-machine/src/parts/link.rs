//! A link: bandwidth, queueing, flight.

use crate::description::Rate;
use crate::engine::{Divisor, Time, greatest_common_divisor};

/// A one-way link. Messages leave one after another at its rate, in the order in which they were sent, and arrive after a
/// time of flight. The queue in front of it has no bound.
///
/// The time that a byte takes is seldom a whole number of picoseconds (6¼ at 160 GB/s). The link keeps the exact time at
/// which it is free, as a fraction, and only what it tells is rounded up: a thousand messages take what their bytes take.
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

/// What a link has done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The sum of the times that messages waited before their first byte left.
    pub waited: Time,
}

/// How a message gets over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its first byte leaves.
    pub starts: Time,
    /// Its last byte has left.
    pub leaves: Time,
    /// Its last byte arrives.
    pub arrives: Time,
}

impl Link {
    /// An idle link with this bandwidth and time of flight.
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

    /// Sends a message of `bytes` that is ready at `ready`, behind all that were sent before.
    ///
    /// # Panics
    ///
    /// If it would arrive past the end of time.
    #[inline]
    pub fn send(&mut self, ready: Time, bytes: u64) -> Passage {
        // Free to the picosecond or later: then its fraction is over too.
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

    /// How long a message of `bytes` takes from its first byte's leaving to its last byte's arrival, if nothing is in its way.
    pub fn unloaded(&self, bytes: u64) -> Time {
        let mut idle = Self {
            free: Time::ZERO,
            part: 0,
            ..self.clone()
        };
        idle.send(Time::ZERO, bytes).arrives
    }

    /// When the link is idle, unless more is sent.
    pub fn idle_from(&self) -> Time {
        self.round_up()
    }

    /// What the link has done.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    fn round_up(&self) -> Time {
        self.free + Time::from_picos(u64::from(self.part > 0))
    }
}
