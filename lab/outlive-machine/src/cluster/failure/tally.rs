//! How many messages have gone from each port to each: by this it is known that a fabric is drained.

use crate::parts::Port;

/// Counts for each pair of ports. Messages of a recovery are not among them: whoever counts would never come to an end.
///
/// A message counts as sent from the step that decides on it, though it may leave later; so between two steps whatever is still to be
/// done stands in the counts. What a node has for itself (its core for its own logging unit, a piece of a dump that is
/// to be read yet) is counted from its port to the same.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Tally {
    ports: usize,
    /// By sender, then receiver.
    sent: Box<[u32]>,
    /// By sender, then receiver: what the switch has let pass.
    passed: Box<[u32]>,
    /// By receiver, then sender.
    got: Box<[u32]>,
    /// What has come to the switch from each port, whatever it was.
    at_switch: Box<[u64]>,
}

impl Tally {
    pub fn new(ports: usize) -> Tally {
        let pairs = || vec![0; ports * ports].into_boxed_slice();
        Tally {
            ports,
            sent: pairs(),
            passed: pairs(),
            got: pairs(),
            at_switch: vec![0; ports].into(),
        }
    }

    #[inline]
    pub fn send(&mut self, from: Port, to: Port) {
        self.sent[usize::from(from.0) * self.ports + usize::from(to.0)] += 1;
    }

    /// Something has come to the switch.
    #[inline]
    pub fn reach_switch(&mut self, from: Port) {
        self.at_switch[usize::from(from.0)] += 1;
    }

    #[inline]
    pub fn pass(&mut self, from: Port, to: Port) {
        self.passed[usize::from(from.0) * self.ports + usize::from(to.0)] += 1;
    }

    #[inline]
    pub fn get(&mut self, from: Port, to: Port) {
        self.got[usize::from(to.0) * self.ports + usize::from(from.0)] += 1;
    }

    /// What has come to the switch from a port.
    pub fn at_switch(&self, from: Port) -> u64 {
        self.at_switch[usize::from(from.0)]
    }

    /// What a port has sent to each.
    pub fn sent_by(&self, from: Port) -> &[u32] {
        &self.sent[usize::from(from.0) * self.ports..][..self.ports]
    }

    /// What the switch has let pass from a port to each.
    pub fn passed_from(&self, from: Port) -> &[u32] {
        &self.passed[usize::from(from.0) * self.ports..][..self.ports]
    }

    /// What a port has got from each.
    pub fn got_by(&self, to: Port) -> &[u32] {
        &self.got[usize::from(to.0) * self.ports..][..self.ports]
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.ports
    }
}
