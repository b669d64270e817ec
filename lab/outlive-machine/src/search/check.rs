//! The claims that must hold in every state.

use super::payload::Payload;
use super::violation::Violation;
use super::world::{Message, World};
use crate::protocol::{DirectoryState, NodeState, ToDirectory, ToNode};

/// The claims that a check applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claims {
    /// All claims of the protocol's argument, in every state.
    All,
    /// Only violations that a program would notice: an access to wrong contents or without
    /// permission; an access that is forgotten or waits for ever; a controller without a row. These
    /// show a fault later, and some faults never.
    Visible,
}

impl<D: Payload> World<D> {
    /// Checks that these claims hold in this state.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    pub fn check_claims(&self, claims: Claims) -> Result<(), Violation> {
        match claims {
            Claims::All => self.check(),
            Claims::Visible => (0..self.shape.lines).try_for_each(|line| self.check_rest(line)),
        }
    }

    /// Checks that all claims hold.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    pub fn check(&self) -> Result<(), Violation> {
        (0..self.shape.lines).try_for_each(|line| {
            self.check_copies(line)?;
            self.check_messages(line)
        })
    }

    /// Checks a line's copies and record: one writer or only readers; every readable copy has the
    /// last value; the last value is not lost; the record covers all copies.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    pub fn check_copies(&self, line: usize) -> Result<(), Violation> {
        let home = &self.homes[line];
        let written = self.check_holders(line)?;
        if !written && home.memory != home.last && !self.is_under_way(line) {
            return Err(Violation::Lost { line });
        }
        self.check_record(line, 2)
    }

    /// Checks that the line has one writer or only readers, that these have the last value, and
    /// that the record names them. Returns whether a writer has written.
    pub(super) fn check_holders(&self, line: usize) -> Result<bool, Violation> {
        let home = &self.homes[line];
        let (mut writer, mut reader, mut written) = (None, None, false);
        for node in self.nodes() {
            let agent = self.agent(node, line);
            let state = agent.state;
            if agent.copy.is_some() != state.has_copy() {
                return Err(Violation::CopyAndState { node, line, state });
            }
            if !state.is_readable() {
                continue;
            }
            if let Some(writer) = writer.or(reader.filter(|_| state.is_writable())) {
                let (writer, other) = if state.is_writable() {
                    (node, writer)
                } else {
                    (writer, node)
                };
                return Err(Violation::WriterNotAlone {
                    writer,
                    other,
                    line,
                });
            }
            if state.is_writable() {
                writer = Some(node)
            } else {
                reader = Some(node)
            }
            written |= state == NodeState::M;
            if agent.copy != Some(home.last) {
                return Err(Violation::OldCopy { node, line });
            }
            let directory = &home.directory;
            let known = directory.holders().contains(node)
                && (!state.is_writable() || directory.state().is_owned());
            if !known {
                return Err(Violation::Unrecorded { line, node, state });
            }
        }
        Ok(written)
    }

    /// Returns whether the last value is in a write-back buffer, or on its way to memory.
    pub(super) fn is_under_way(&self, line: usize) -> bool {
        let last = Some(self.homes[line].last);
        let buffered = |node| {
            self.agent(node, line).state == NodeState::MI && self.agent(node, line).copy == last
        };
        let sent =
            |message| matches!(message, Message::Up(message) if ToDirectory::data(message) == last);
        self.nodes().any(buffered)
            || self
                .network
                .iter()
                .any(|packet| packet.line == line && sent(packet.message))
    }

    /// Checks that the record is consistent; a line with readers has at least `readers` of them.
    pub(super) fn check_record(&self, line: usize, readers: usize) -> Result<(), Violation> {
        let directory = &self.homes[line].directory;
        let state = directory.state();
        let stable = state.is_stable();
        let sound = directory.requester().is_none() == stable
            && (!stable || directory.queue().is_empty())
            && (stable || state.is_granted()) == directory.awaited().is_empty()
            && directory.queue().len() <= self.shape.nodes
            && match state {
                DirectoryState::I | DirectoryState::ID => directory.holders().is_empty(),
                DirectoryState::O
                | DirectoryState::OS
                | DirectoryState::OX
                | DirectoryState::OD => directory.holders().len() == 1,
                _ => directory.holders().len() >= readers || state == DirectoryState::SX,
            };
        if sound {
            Ok(())
        } else {
            Err(Violation::Contradiction { line, state })
        }
    }

    /// Checks the bounds of messages about a line: to each node at most one demand or grant and one
    /// `PutAck` under way; from each node one request (under way or queued), one answer, one `Done`
    /// and one `PutM`. If no message is under way, no access waits.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    pub fn check_messages(&self, line: usize) -> Result<(), Violation> {
        self.check_crowds(line)?;
        self.check_rest(line)
    }

    /// Checks that no more messages about a line are under way than the argument allows.
    pub(super) fn check_crowds(&self, line: usize) -> Result<(), Violation> {
        for node in self.nodes() {
            let [mut demands, mut put_acks, mut answers, mut dones, mut puts] = [0; 5];
            let mut requests = usize::from(self.homes[line].directory.queue().contains(node));
            for packet in self
                .network
                .iter()
                .filter(|packet| packet.line == line && packet.node == node)
            {
                match packet.message {
                    Message::Down(ToNode::PutAck) => put_acks += 1,
                    Message::Down(_) => demands += 1,
                    Message::Up(ToDirectory::RdS | ToDirectory::RdX | ToDirectory::Upgrade) => {
                        requests += 1
                    }
                    Message::Up(ToDirectory::Done) => dones += 1,
                    Message::Up(ToDirectory::PutM(_)) => puts += 1,
                    Message::Up(_) => answers += 1,
                }
            }
            if [demands, put_acks, answers, dones, puts, requests]
                .into_iter()
                .any(|count| count > 1)
            {
                return Err(Violation::Crowded { line, node });
            }
        }
        Ok(())
    }

    /// Checks that no access waits when no message is under way.
    fn check_rest(&self, line: usize) -> Result<(), Violation> {
        let waits = self.network.is_empty() && !self.is_at_rest(line);
        if waits {
            Err(Violation::Deadlock { line })
        } else {
            Ok(())
        }
    }

    /// Returns whether the line's directory and agents are in stable states, and no access waits.
    pub(super) fn is_at_rest(&self, line: usize) -> bool {
        self.homes[line].directory.record().is_some()
            && self.nodes().all(|node| {
                self.agent(node, line).state.is_stable() && self.agent(node, line).is_idle()
            })
    }
}
