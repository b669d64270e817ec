//! Time as a core counts it.

use crate::description::{Description, Impossible};
use crate::engine::{Clock, Frequency, Time};

use super::caches::Level;

/// A core counts in *ticks*: in each of them it begins one instruction, so a cycle has as many as the core is wide. Whole
/// numbers do for everything that happens within a node, and only what leaves it is turned into time.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    ticks: Clock,
    /// Ticks in a cycle.
    pub cycle: u64,
    /// How far a core runs ahead.
    pub quantum: u64,
    /// From a request to its answer, in ticks.
    pub l1: u64,
    pub l2: u64,
    pub l3: u64,
    /// The L3 has it, and asks another core of the node for its copy first: as long again as an L2 takes.
    pub neighbour: u64,
    /// What a demand of a directory takes to look up the L3.
    pub lookup: Time,
    pub directory: Time,
    /// How long a port is silent before its node is taken for dead.
    pub detection: Time,
}

impl Timing {
    pub fn new(description: &Description) -> Result<Timing, Impossible> {
        description.check()?;
        let cycle = u64::from(description.ours.core.width);
        let frequency = description.system.cpu_frequency;
        let ticks = Frequency::from_hertz(frequency.hertz() * cycle)
            .map(Clock::new)
            .expect("a checked description has ticks of a picosecond at least");
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

    /// The first tick that is not before `time`.
    #[inline]
    pub fn tick(&self, time: Time) -> u64 {
        self.ticks.next_cycle(time)
    }

    /// When a tick is.
    #[inline]
    pub fn time(&self, tick: u64) -> Time {
        self.ticks.edge(tick)
    }

    /// What an access takes that is served there.
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
