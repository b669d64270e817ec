//! Counts of messages between each pair of ports, by which a recovery knows that the fabric is
//! drained.

use crate::parts::Port;

/// Counts for each pair of ports. Messages of a recovery are not counted, since counting would then
/// never end.
///
/// A message counts as sent from the step that decides on it, though it may leave later; so between
/// two steps all pending work is in the counts. Internal messages of a node (from its core to its
/// own logging unit, or a piece of a dump that is still to be read) are counted from its port to
/// itself.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Tally {
    ports: usize,
    /// By sender, then receiver.
    sent: Box<[u32]>,
    /// Messages that the switch has let pass, by sender, then receiver.
    passed: Box<[u32]>,
    /// By receiver, then sender.
    got: Box<[u32]>,
    /// Messages of all kinds that have come to the switch from each port.
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

    /// Counts a message that has come to the switch.
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

    /// Returns the number of messages that have come to the switch from a port.
    pub fn at_switch(&self, from: Port) -> u64 {
        self.at_switch[usize::from(from.0)]
    }

    /// Returns the numbers of messages that a port has sent to each port.
    pub fn sent_by(&self, from: Port) -> &[u32] {
        &self.sent[usize::from(from.0) * self.ports..][..self.ports]
    }

    /// Returns the numbers of messages that the switch has let pass from a port to each port.
    pub fn passed_from(&self, from: Port) -> &[u32] {
        &self.passed[usize::from(from.0) * self.ports..][..self.ports]
    }

    /// Returns the numbers of messages that a port has received from each port.
    pub fn got_by(&self, to: Port) -> &[u32] {
        &self.got[usize::from(to.0) * self.ports..][..self.ports]
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.ports
    }
}
