//! What must hold in every state.

use super::payload::Payload;
use super::violation::Violation;
use super::world::{Message, World};
use crate::protocol::{DirectoryState, NodeState, ToDirectory, ToNode};

/// What a judge goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claims {
    /// Everything that the protocol's argument claims, in every state.
    All,
    /// Only what a program would notice: an access to wrong contents, or without right; one that is forgotten or
    /// waits for ever; a controller without a row. A fault takes longer to show so, and there are faults that never
    /// do.
    Visible,
}

impl<D: Payload> World<D> {
    /// What must hold in every state, by these claims.
    ///
    /// # Errors
    /// The first [`Violation`] that is met.
    pub fn check_claims(&self, claims: Claims) -> Result<(), Violation> {
        match claims {
            Claims::All => self.check(),
            Claims::Visible => (0..self.shape.lines).try_for_each(|line| self.check_rest(line)),
        }
    }

    /// Everything that must hold.
    ///
    /// # Errors
    /// The first [`Violation`] that is met.
    pub fn check(&self) -> Result<(), Violation> {
        (0..self.shape.lines).try_for_each(|line| {
            self.check_copies(line)?;
            self.check_messages(line)
        })
    }

    /// What must hold of a line's copies and of its record: one writer or readers; what can be read is the last
    /// value; the last value is not lost; the record covers the truth.
    ///
    /// # Errors
    /// The first [`Violation`] that is met.
    pub fn check_copies(&self, line: usize) -> Result<(), Violation> {
        let home = &self.homes[line];
        let written = self.check_holders(line)?;
        if !written && home.memory != home.last && !self.is_under_way(line) {
            return Err(Violation::Lost { line });
        }
        self.check_record(line, 2)
    }

    /// One writer or readers, the last value, and the record; whether there is a writer who has written.
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

    /// Whether the last value is in a write-back buffer, or on its way to memory.
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

    /// That the parts of the record go together; `readers` is how few a line with readers may have.
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

    /// What the argument says of messages about a line: one demand or grant and one `PutAck` under way to each node
    /// at most; from each node one request (under way or in the queue), one answer, one `Done` and one `PutM`. And if
    /// none is under way, nobody waits.
    ///
    /// # Errors
    /// The first [`Violation`] that is met.
    pub fn check_messages(&self, line: usize) -> Result<(), Violation> {
        self.check_crowds(line)?;
        self.check_rest(line)
    }

    /// That no more messages about a line are under way than the argument says.
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

    /// If nothing is under way, nobody waits.
    fn check_rest(&self, line: usize) -> Result<(), Violation> {
        let waits = self.network.is_empty() && !self.is_at_rest(line);
        if waits {
            Err(Violation::Deadlock { line })
        } else {
            Ok(())
        }
    }

    /// Whether nobody waits for the line.
    pub(super) fn is_at_rest(&self, line: usize) -> bool {
        self.homes[line].directory.record().is_some()
            && self.nodes().all(|node| {
                self.agent(node, line).state.is_stable() && self.agent(node, line).is_idle()
            })
    }
}
