//! The places where loads were served, their latency, and the busiest link.

use std::fmt;

use crate::cluster::Statistics;
use crate::description::Description;
use crate::engine::Time;

/// The places where loads and atomics found their lines, including private ones: shares of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// In the core's L1.
    pub l1: f64,
    /// In its L2.
    pub l2: f64,
    /// In the node's L3.
    pub l3: f64,
    /// In the L3, with the help of another core of the node.
    pub neighbour: f64,
    /// In the core's own store buffer.
    pub forwarded: f64,
    /// In none of them: in a memory, or in another node.
    pub outside: f64,
}

impl Served {
    /// Returns the shares in a run; `None` if nothing was loaded.
    pub fn of(statistics: &Statistics) -> Option<Self> {
        let total = statistics.total();
        let found = [
            total.l1_hits,
            total.l2_hits,
            total.l3_hits,
            total.neighbour_hits,
            total.forwarded,
        ];
        let here: u64 = found.iter().sum();
        // The loads by which locks and barriers wait hit in caches, but are not counted as loads.
        let all = (total.loads + total.atomics).max(here);
        if all == 0 {
            return None;
        }
        let share = |count: u64| count as f64 / all as f64;
        let [l1, l2, l3, neighbour, forwarded] = found.map(share);
        let outside = share(all - here);
        Some(Self {
            l1,
            l2,
            l3,
            neighbour,
            forwarded,
            outside,
        })
    }
}

/// Returns the mean time from the request for a line of shared memory that was in no cache of its
/// node until the core could use it; `None` if there was none.
pub fn mean_miss(statistics: &Statistics, description: &Description) -> Option<Time> {
    let total = statistics.total();
    let hertz = description.system.cpu_frequency.hertz();
    let ticks_per_second = (hertz * u64::from(description.ours.core.width)) as f64;
    let picos = total.supply_ticks as f64 / total.supplied as f64 / ticks_per_second * 1e12;
    (total.supplied > 0).then(|| Time::from_picos(picos.round() as u64))
}

/// The link that carried the most bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusiestLink {
    /// The port of its end that is not the switch: compute nodes first, then memory nodes.
    port: usize,
    compute_nodes: usize,
    up: bool,
    /// The share of the time in which it was busy.
    pub busy: f64,
}

impl BusiestLink {
    /// Returns the busiest link of a run that has taken `time`; `None` if no link carried anything.
    pub fn of(statistics: &Statistics, time: Time, description: &Description) -> Option<Self> {
        let up = statistics.uplinks.iter().enumerate();
        let down = statistics.downlinks.iter().enumerate();
        let links = up
            .map(|(port, link)| (link.bytes, port, true))
            .chain(down.map(|(port, link)| (link.bytes, port, false)));
        // The first one, if several carried the same number of bytes.
        let most = links.reduce(|most, link| if link.0 > most.0 { link } else { most });
        let (bytes, port, up) = most.filter(|(bytes, ..)| *bytes > 0)?;
        let rate = description.cxl.link_bandwidth.bytes_per_second() as f64;
        Some(Self {
            port,
            compute_nodes: description.system.compute_nodes as usize,
            up,
            busy: bytes as f64 / rate / time.as_seconds(),
        })
    }
}

/// Prints the source and the destination, as in "CN3 to the switch".
impl fmt::Display for BusiestLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = match self.port.checked_sub(self.compute_nodes) {
            None => format!("CN{}", self.port),
            Some(memory) => format!("MN{memory}"),
        };
        match self.up {
            true => write!(f, "{node} to the switch"),
            false => write!(f, "the switch to {node}"),
        }
    }
}
