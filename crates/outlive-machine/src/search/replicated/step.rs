//! How a machine that replicates takes a step.

use super::unit::Waiting;
use super::world::{Buffered, Happening, LastCommit, LogMessage, Replicated};
use super::{ReplicatedRules, When};
use crate::protocol::{
    NodeId, NodeSet, NodeState, ProtocolError, Store, StoreAction, StoreInput, StoreState,
};
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::{Access, Choice, Message};

impl<D: Payload> Replicated<D> {
    /// Lets it happen.
    pub(super) fn happen(
        &mut self,
        rules: &ReplicatedRules,
        happening: Happening,
    ) -> Result<(), Violation> {
        if !matches!(happening, Happening::Die(..)) {
            self.last_commit = None;
        }
        match happening {
            Happening::Retire(node, line) => self.retire(node, line),
            Happening::Turn(node) => self.turn(rules, node)?,
            Happening::Coherence(choice) => {
                if let Choice::Access(node, ..) | Choice::Evict(node, _) = choice {
                    self.core_mut(node).others_left -= 1;
                }
                self.base.apply(&rules.coherence, choice)?;
            }
            Happening::Log(place) => {
                let message = self.log_messages.swap_remove(place);
                self.deliver(rules, message)?;
            }
            Happening::Dump => self.dump(rules),
            Happening::Die(node, lost) => self.die(node, lost),
            Happening::Interrupt => self.interrupt(),
            Happening::InitRecov => self.init_recovery(rules)?,
            Happening::Repair(line) => self.repair(rules, line)?,
            Happening::RecovEnd => self.end_recovery(rules)?,
        }
        for node in self.living() {
            self.go_on(rules, node)?;
        }
        // What is sent to the dead vanishes; what they have sent before does not.
        let dead = self.dead;
        self.base.network.retain(|packet| {
            matches!(packet.message, Message::Up(_)) || !dead.contains(packet.node)
        });
        self.log_messages
            .retain(|message| !dead.contains(message.to()));
        Ok(())
    }

    fn retire(&mut self, node: NodeId, line: usize) {
        let nodes = self.setup.shape.nodes as u64;
        let core = self.core_mut(node);
        core.stores_left -= 1;
        core.issued += 1;
        // Different from the number of any other store, and above zero, which stands for none.
        let number = core.issued * nodes + node.index() as u64;
        core.buffer.push(Buffered {
            line,
            number,
            store: Store::default(),
        });
    }

    fn turn(&mut self, rules: &ReplicatedRules, node: NodeId) -> Result<(), Violation> {
        let Some(first) = self.core(node).buffer.first() else {
            return Ok(());
        };
        let writable = self.base.agent(node, first.line).state.is_writable();
        self.tell_store(rules, node, 0, StoreInput::Head { writable })
    }

    /// Tells a node's stores what is so, until nothing follows from it.
    fn go_on(&mut self, rules: &ReplicatedRules, node: NodeId) -> Result<(), Violation> {
        for _ in 0..16 {
            let told = self.early_replication(node).or_else(|| self.due(node));
            let Some((place, input)) = told else {
                return Ok(());
            };
            self.tell_store(rules, node, place, input)?;
        }
        let line = self.core(node).buffer.first().map_or(0, |first| first.line);
        Err(Violation::EndlessStep { node, line })
    }

    /// Stores that are to be replicated as soon as they have retired, in order.
    fn early_replication(&self, node: NodeId) -> Option<(usize, StoreInput)> {
        if self.is_paused() || self.setup.when != When::Retired {
            return None;
        }
        let buffer = &self.core(node).buffer;
        let place = buffer
            .iter()
            .position(|buffered| !buffered.store.is_sealed())?;
        Some((place, self.replicate(node, buffer[place].line)))
    }

    fn replicate(&self, node: NodeId, line: usize) -> StoreInput {
        StoreInput::Replicate {
            sequence: self.core(node).sequence,
            replicas: self.groups[line],
        }
    }

    /// What is to be told to the store at the head.
    fn due(&self, node: NodeId) -> Option<(usize, StoreInput)> {
        let Buffered { line, store, .. } = *self.core(node).buffer.first()?;
        let (state, agent) = (store.state(), self.base.agent(node, line));
        let writable = agent.state.is_writable();
        let input = if state.is_writable() && !writable {
            StoreInput::Lost
        } else if state.wants_line() && writable {
            StoreInput::Gained
        } else if self.is_paused() || !state.is_head() {
            return None;
        } else if state.is_unsent() && (self.setup.when == When::Head || state == StoreState::UW) {
            self.replicate(node, line)
        } else if state.asks() && matches!(agent.state, NodeState::I | NodeState::S) {
            StoreInput::Idle
        } else {
            return None;
        };
        Some((0, input))
    }

    /// Tells a store something and does what it wants done.
    pub(super) fn tell_store(
        &mut self,
        rules: &ReplicatedRules,
        node: NodeId,
        place: usize,
        input: StoreInput,
    ) -> Result<(), Violation> {
        let Buffered {
            line,
            number,
            store,
        } = self.core(node).buffer[place];
        let step = match rules.tables.store.step(&store, input) {
            Err(ProtocolError::StoreUndefined { .. })
                if rules.swallows_acks && matches!(input, StoreInput::Ack { .. }) =>
            {
                return Ok(());
            }
            step => step?,
        };
        self.core_mut(node).buffer[place].store = step.store;
        if let StoreInput::Replicate { sequence, .. } = input {
            self.core_mut(node).sequence = sequence + 1;
        }
        let mut commit = None;
        for action in step.actions() {
            match action {
                StoreAction::Repl(to) => {
                    self.last_commit = None;
                    let sequence = step.store.sequence().unwrap_or(0);
                    self.log_messages
                        .extend(to.iter().map(|to| LogMessage::Repl {
                            to,
                            requester: node,
                            sequence,
                            line,
                            number,
                        }));
                }
                StoreAction::Ask => {
                    self.last_commit = None;
                    self.base
                        .access(&rules.coherence, node, line, Access::Prefetch)?;
                }
                StoreAction::Commit => {
                    self.check_replicas(node, line, step.store.replicas(), step.store.sequence())?;
                    let before = self.base.homes[line].last;
                    self.base.store(&rules.coherence, node, line, number)?;
                    let number = self.core_mut(node).numbering.commit();
                    commit = Some(number);
                    self.last_commit = Some(LastCommit {
                        node,
                        commit: number,
                        line,
                        before,
                        vals: NodeSet::EMPTY,
                    });
                }
                StoreAction::Val(to) => self.validate(node, line, &step.store, to),
            }
        }
        if step.store.is_committed() {
            self.core_mut(node).buffer.remove(place);
            if commit.is_none() {
                return Err(Violation::LostAccess { node, line });
            }
        }
        Ok(())
    }

    fn validate(&mut self, node: NodeId, line: usize, store: &Store, to: NodeSet) {
        let epoch = self.base.agent(node, line).epoch;
        let Some(last) = &mut self.last_commit else {
            return;
        };
        last.vals = to;
        let commit = last.commit;
        for to in to.iter() {
            let timestamp = self.core_mut(node).numbering.timestamp(to);
            self.log_messages.push(LogMessage::Val {
                to,
                requester: node,
                sequence: store.sequence().unwrap_or(0),
                timestamp,
                commit,
                epoch,
            });
        }
    }

    /// That as many units as there must be have logged what is to commit.
    fn check_replicas(
        &self,
        node: NodeId,
        line: usize,
        replicas: NodeSet,
        sequence: Option<u32>,
    ) -> Result<(), Violation> {
        let living = self.setup.shape.nodes - self.recovered.len();
        let due = self.setup.replicas.min(living);
        let has = |unit: &NodeId| {
            let unit = &self.core(*unit).unit;
            sequence.is_some_and(|sequence| unit.place(node, sequence).is_some())
        };
        let logged = replicas
            .iter()
            .filter(|unit| self.dead.contains(*unit) || has(unit))
            .count();
        if logged < due {
            let missing = due - logged;
            return Err(Violation::NotReplicated {
                node,
                line,
                missing,
            });
        }
        Ok(())
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
                let unit = &mut self.core_mut(to).unit;
                if unit.place(requester, sequence).is_some() {
                    return Err(Violation::ReplTwice {
                        unit: to,
                        node: requester,
                    });
                }
                unit.waiting.push(Waiting {
                    node: requester,
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
            LogMessage::Ack { to, from, sequence } => {
                let buffer = &self.core(to).buffer;
                let place = buffer
                    .iter()
                    .position(|buffered| buffered.store.sequence() == Some(sequence));
                match place {
                    Some(place) => {
                        self.tell_store(rules, to, place, StoreInput::Ack { from, sequence })
                    }
                    None if rules.swallows_acks => Ok(()),
                    None => Err(Violation::StrayAck { node: to }),
                }
            }
            LogMessage::Val {
                to,
                requester,
                sequence,
                timestamp,
                commit,
                epoch,
            } => {
                let unit = &mut self.core_mut(to).unit;
                let place = unit.place(requester, sequence);
                let waiting = place.map(|place| &mut unit.waiting[place]);
                match waiting.filter(|waiting| waiting.val.is_none()) {
                    Some(waiting) => waiting.val = Some((timestamp, commit, epoch)),
                    None => {
                        return Err(Violation::UnknownRepl {
                            unit: to,
                            node: requester,
                        });
                    }
                }
                unit.advance::<D>(requester);
                Ok(())
            }
        }
    }
}
