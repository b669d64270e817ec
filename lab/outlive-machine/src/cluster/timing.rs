//! The ticks in which a core counts time.

use crate::description::{Description, Impossible};
use crate::engine::{Clock, Frequency, Time};

use super::caches::Level;

/// A core counts in *ticks*: in each of them it begins one instruction, so a cycle has as many
/// ticks as the core is wide. Whole numbers suffice for everything within a node; only actions that
/// leave it are converted to time.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    ticks: Clock,
    /// Ticks in a cycle.
    pub cycle: u64,
    /// How far a core runs ahead, in ticks.
    pub quantum: u64,
    /// From a request to its answer, in ticks.
    pub l1: u64,
    pub l2: u64,
    pub l3: u64,
    /// The L3 has the line, and first asks another core of the node: the latency of an L2 more.
    pub neighbour: u64,
    /// The time of a directory's demand to look up the L3.
    pub lookup: Time,
    pub directory: Time,
    /// The time for which a port is silent before its node counts as dead.
    pub detection: Time,
}

impl Timing {
    pub fn new(description: &Description) -> Result<Timing, Impossible> {
        description.check()?;
        let cycle = u64::from(description.ours.core.width);
        let frequency = description.system.cpu_frequency;
        let ticks = Frequency::from_hertz(frequency.hertz() * cycle)
            .map(Clock::new)
            .expect("a checked description has ticks of at least a picosecond");
        let [l1, l2, l3] = [&description.l1, &description.l2, &description.l3]
            .map(|cache| cache.latency.0 * cycle);
        Ok(Timing {
            ticks,
            cycle,
            quantum: ticks.next_cycle(description.ours.core.quantum),
            l1,
            l2,
            l3,
            neighbour: l3 + l2,
            lookup: ticks.edge(l3),
            directory: description.ours.memory.directory_latency,
            detection: description.ours.failure.detection,
        })
    }

    /// Returns the first tick that is not before `time`.
    #[inline]
    pub fn tick(&self, time: Time) -> u64 {
        self.ticks.next_cycle(time)
    }

    /// Returns the time of a tick.
    #[inline]
    pub fn time(&self, tick: u64) -> Time {
        self.ticks.edge(tick)
    }

    /// Returns the latency, in ticks, of an access that this level serves.
    #[inline]
    pub fn of(&self, level: Level) -> u64 {
        match level {
            Level::L1 => self.l1,
            Level::L2 => self.l2,
            Level::L3 => self.l3,
            Level::Neighbour => self.neighbour,
        }
    }
}
