//! The network: a link from each node to one switch, and one back.

use crate::description::Description;
use crate::engine::{Random, Time};

use super::link::{Link, LinkCounts};

/// The port of a node: compute nodes first, then memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// The links of all nodes, and the switch.
///
/// A message [leaves](Self::leave) its node over the uplink of its port. When it is at the switch,
/// the machine has it [forwarded](Self::forward), and at the returned time it is at the other node.
/// So a message is two events, and contention at the switch is resolved in the order of arrival
/// there. The switch forwards whole messages (a flit's checksum is at its end): after the latency
/// of the switch, a message queues for the downlink of its destination port.
///
/// Finally, the fabric may delay a message by a random time within the
/// [bound](crate::description::Fabric::reorder_bound), without occupying the link. So any two
/// messages to a node may change their order if they arrive within the bound of one another, even
/// from one sender.
///
/// ```
/// use outlive_machine::description::Description;
/// use outlive_machine::engine::Time;
/// use outlive_machine::parts::{Fabric, Port};
///
/// let mut description = Description::default();
/// description.ours.fabric.reorder_bound = Time::ZERO;
/// let mut fabric = Fabric::new(&description, 7);
/// let (node, memory) = (fabric.compute_node(0), fabric.memory_node(3));
/// let at_switch = fabric.leave(Time::ZERO, node, 80);
/// let arrived = fabric.forward(at_switch, memory, 80);
/// // Half of the round trip, and 80 bytes at 160 GB/s over two links.
/// assert_eq!(arrived, Time::from_nanos(100) + Time::from_picos(2 * 500));
/// ```
#[derive(Clone, Debug)]
pub struct Fabric {
    compute_nodes: u16,
    uplinks: Box<[Link]>,
    downlinks: Box<[Link]>,
    switch_latency: Time,
    reorder_bound: Time,
    random: Random,
}

impl Fabric {
    /// Creates the idle network of a machine with a checked description. The seed decides how
    /// messages are delayed.
    pub fn new(description: &Description, seed: u64) -> Self {
        let (cxl, ours) = (&description.cxl, &description.ours.fabric);
        let nodes = description.system.compute_nodes + description.system.memory_nodes;
        let link = Link::new(
            cxl.link_bandwidth,
            (cxl.round_trip - ours.switch_latency * 2) / 4,
        );
        let links = || vec![link.clone(); nodes as usize].into_boxed_slice();
        Self {
            compute_nodes: description.system.compute_nodes as u16,
            uplinks: links(),
            downlinks: links(),
            switch_latency: ours.switch_latency,
            reorder_bound: ours.reorder_bound,
            random: Random::new(seed),
        }
    }

    /// Returns the port of a compute node.
    pub fn compute_node(&self, node: u16) -> Port {
        Port(node)
    }

    /// Returns the port of a memory node.
    pub fn memory_node(&self, node: u16) -> Port {
        Port(self.compute_nodes + node)
    }

    /// Sends a message of `bytes` from a node. Returns when it is at the switch.
    #[inline]
    pub fn leave(&mut self, now: Time, from: Port, bytes: u64) -> Time {
        self.uplinks[usize::from(from.0)].send(now, bytes).arrives
    }

    /// Forwards a message of `bytes` that is at the switch now. Returns when it is at the node that
    /// it goes `to`.
    #[inline]
    pub fn forward(&mut self, now: Time, to: Port, bytes: u64) -> Time {
        let in_order = self.downlinks[usize::from(to.0)]
            .send(now + self.switch_latency, bytes)
            .arrives;
        if self.reorder_bound == Time::ZERO {
            return in_order;
        }
        in_order + Time::from_picos(self.random.below(self.reorder_bound.picos() + 1))
    }

    /// Returns the time of a message of `bytes` from node to node without queueing or delay.
    pub fn unloaded(&self, bytes: u64) -> Time {
        self.uplinks[0].unloaded(bytes) + self.switch_latency + self.downlinks[0].unloaded(bytes)
    }

    /// Returns the traffic from a node to the switch.
    pub fn uplink(&self, port: Port) -> LinkCounts {
        self.uplinks[usize::from(port.0)].counts()
    }

    /// Returns the traffic from the switch to a node; its messages waited at the switch's port.
    pub fn downlink(&self, port: Port) -> LinkCounts {
        self.downlinks[usize::from(port.0)].counts()
    }
}
