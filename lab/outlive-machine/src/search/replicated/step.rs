//! The steps of a machine that replicates.

use super::unit::Waiting;
use super::world::{Buffered, Happening, LastCommit, LogMessage, Read, Replicated};
use super::{Fault, ReplicatedRules};
use crate::logging::Requester;
use crate::protocol::{Directory, NodeId, Store, ToDirectory, ToNode};
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::{Choice, Message, Packet};

impl<D: Payload> Replicated<D> {
    /// Takes a step.
    pub(super) fn happen(
        &mut self,
        rules: &ReplicatedRules,
        happening: Happening,
    ) -> Result<(), Violation> {
        if !matches!(happening, Happening::Die(..)) {
            self.last_commit = None;
        }
        let before: Vec<_> = self.base.homes.iter().map(|home| home.directory).collect();
        let mut granted = None;
        match happening {
            Happening::Retire(who, line) => self.retire(who, line, Read::Store),
            Happening::Atomic(who, line) => {
                self.retire(who, line, Read::Due);
                self.turn(rules, who)?;
            }
            Happening::Turn(who) => self.turn(rules, who)?,
            Happening::Coherence(choice) => granted = self.coherence(rules, choice)?,
            Happening::Log(place) => {
                let message = self.log_messages.swap_remove(place);
                self.deliver(rules, message)?;
            }
            Happening::Dump => self.dump(rules),
            Happening::Die(node, lost) => self.die(node, lost),
            Happening::Interrupt => self.interrupt(),
            Happening::Restart(node) => self.restart(rules, node)?,
            Happening::Repair(line) => self.repair(rules, line)?,
            Happening::Save(node) => self.save(rules, node),
            Happening::Clear(node) => self.clear(rules, node),
            Happening::GoOn(node) => self.go_on(rules, node),
        }
        for node in self.living() {
            self.follow(rules, node)?;
        }
        self.note_done(granted);
        // Messages to dead nodes vanish; messages that these have sent before do not.
        let dead = self.dead;
        self.base.network.retain(|packet| {
            matches!(packet.message, Message::Up(_)) || !dead.contains(packet.node)
        });
        self.log_messages
            .retain(|message| !dead.contains(message.to()));
        self.truncate(rules);
        let grants = before.iter().enumerate();
        grants
            .filter(|(line, before)| is_epoch_reused(before, &self.base.homes[*line].directory))
            .map(|(line, _)| Err(Violation::EpochReused { line }))
            .next()
            .unwrap_or(Ok(()))
    }

    fn retire(&mut self, who: Requester, line: usize, read: Read<D>) {
        let cores = self.cores.len() as u64;
        let which = (who.node.index() * self.setup.cores + usize::from(who.core)) as u64;
        let core = self.core_mut(who);
        match read {
            Read::Store => core.stores_left -= 1,
            _ => core.atomics_left -= 1,
        }
        core.issued += 1;
        // Different from the number of any other store, and above zero, which stands for no store.
        let number = core.issued * cores + which;
        core.buffer.push(Buffered {
            line,
            number,
            store: Store::default(),
            read,
        });
    }

    /// Takes a step of the coherence protocol. Returns the node and line of a grant of the
    /// only copy, if one has arrived.
    fn coherence(
        &mut self,
        rules: &ReplicatedRules,
        choice: Choice,
    ) -> Result<Option<(NodeId, usize)>, Violation> {
        let mut granted = None;
        match choice {
            Choice::Access(node, ..) | Choice::Evict(node, _) => {
                self.node_mut(node).others_left -= 1;
            }
            Choice::Deliver(place) => {
                let packet = self.base.network[place];
                let is_grant = matches!(
                    packet.message,
                    Message::Down(ToNode::GrantE(_) | ToNode::GrantM(_) | ToNode::GrantUpgrade)
                );
                granted = is_grant.then_some((packet.node, packet.line));
            }
        }
        self.base.apply(&rules.coherence, choice)?;
        Ok(granted)
    }

    /// Records whether the last commit was made on a grant for which a Done was sent in the same
    /// step.
    fn note_done(&mut self, granted: Option<(NodeId, usize)>) {
        let of_grant = |last: &&mut LastCommit<D>| granted == Some((last.node, last.line));
        if let Some(last) = self.last_commit.as_mut().filter(of_grant) {
            last.done = self.base.network.iter().any(|packet| {
                (packet.node, packet.line) == (last.node, last.line)
                    && packet.message == Message::Up(ToDirectory::Done)
            });
        }
    }

    /// Returns whether a node keeps the line: an atomic of it has read the line and not committed,
    /// or, with [`Setup::holds`](super::Setup), its oldest store may write it and waits for
    /// acknowledgements. In a recovery no line is kept.
    pub(super) fn holds(&self, rules: &ReplicatedRules, node: NodeId, line: usize) -> bool {
        (!self.is_halted(node) || rules.fault == Some(Fault::HeldInRecovery))
            && self
                .cores_of(node)
                .any(|who| self.has_read(who, line) || self.setup.holds && self.keeps(who, line))
    }

    /// Returns whether a core may write the line: its node may, and no other core of the node has
    /// read the line for an atomic or keeps it. Even in a recovery, other cores do not write a line
    /// that an atomic has read and that the node still has.
    pub(super) fn may_write(&self, who: Requester, line: usize) -> bool {
        let held = self.setup.holds && !self.is_halted(who.node);
        let mut others = self.cores_of(who.node).filter(|other| *other != who);
        self.base.agent(who.node, line).state.is_writable()
            && !others.any(|other| self.keeps(other, line) && (held || self.has_read(other, line)))
    }

    fn has_read(&self, who: Requester, line: usize) -> bool {
        let first = self.core(who).buffer.first();
        first.is_some_and(|first| first.line == line && matches!(first.read, Read::Held(_)))
    }

    fn keeps(&self, who: Requester, line: usize) -> bool {
        let first = self.core(who).buffer.first();
        first.is_some_and(|first| first.line == line && first.store.state().is_writable())
    }

    /// Returns whether a message has to wait in its node, for a line that the node keeps.
    pub(super) fn must_wait(&self, rules: &ReplicatedRules, packet: &Packet<D>) -> bool {
        let demand = matches!(
            packet.message,
            Message::Down(ToNode::Inv | ToNode::RecallShared | ToNode::RecallExclusive)
        );
        demand && self.holds(rules, packet.node, packet.line)
    }

    fn deliver(&mut self, rules: &ReplicatedRules, message: LogMessage) -> Result<(), Violation> {
        match message {
            LogMessage::Repl {
                to,
                requester,
                sequence,
                line,
                number,
            } => {
                let unit = &mut self.node_mut(to).unit;
                if unit.place(requester, sequence).is_some() {
                    return Err(Violation::ReplTwice {
                        unit: to,
                        node: requester.node,
                    });
                }
                unit.waiting.push(Waiting {
                    requester,
                    sequence,
                    line,
                    number,
                    val: None,
                });
                self.log_messages.push(LogMessage::Ack {
                    to: requester,
                    from: to,
                    sequence,
                });
                Ok(())
            }
            LogMessage::Ack { to, from, sequence } => self.acknowledge(rules, to, from, sequence),
            LogMessage::Val { to, val } => {
                let node = val.requester.node;
                let unit = &mut self.node_mut(to).unit;
                let place = unit.place(val.requester, val.sequence);
                let waiting = place.map(|place| &mut unit.waiting[place]);
                match waiting.filter(|waiting| waiting.val.is_none()) {
                    Some(waiting) => waiting.val = Some(val),
                    None => return Err(Violation::UnknownRepl { unit: to, node }),
                }
                unit.advance::<D>(node);
                Ok(())
            }
        }
    }
}

/// Returns whether a line has a new owner but no new epoch. The logs of the previous owner, and
/// notices to memory nodes of lines without an owner, would then count as the new owner's.
fn is_epoch_reused(before: &Directory, after: &Directory) -> bool {
    let owner = |directory: &Directory| directory.owner().map(|(node, _)| node);
    let next = owner(after);
    next.is_some() && next != owner(before) && after.epoch() == before.epoch()
}
