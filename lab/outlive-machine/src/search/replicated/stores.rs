//! The steps of the stores of a machine that replicates: their inputs, and the actions that follow.

use super::unit::Validation;
use super::world::{Buffered, LastCommit, LogMessage, Read, Replicated};
use super::{ReplicatedRules, When};
use crate::logging::Requester;
use crate::protocol::{
    NodeId, NodeSet, NodeState, ProtocolError, Store, StoreAction, StoreInput, StoreState,
};
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::Access;

impl<D: Payload> Replicated<D> {
    pub(super) fn turn(
        &mut self,
        rules: &ReplicatedRules,
        who: Requester,
    ) -> Result<(), Violation> {
        let Some(first) = self.core(who).buffer.first() else {
            return Ok(());
        };
        let writable = self.may_write(who, first.line);
        self.tell_store(rules, who, 0, StoreInput::Head { writable })
    }

    /// Gives the stores of a node the inputs that are due, until none is. If one core reads or
    /// commits, the inputs of the other cores that follow from it belong to the same step.
    pub(super) fn follow(
        &mut self,
        rules: &ReplicatedRules,
        node: NodeId,
    ) -> Result<(), Violation> {
        for _ in 0..16 * self.setup.cores {
            let mut told = false;
            for who in self.cores_of(node) {
                told |= self.read(who);
                let due = self.early_replication(who).or_else(|| self.due(who));
                if let Some((place, input)) = due {
                    self.tell_store(rules, who, place, input)?;
                    told = true;
                }
            }
            if !told {
                return Ok(());
            }
        }
        let buffers = self.cores_of(node).map(|who| &self.core(who).buffer);
        let line = buffers
            .filter_map(|buffer| buffer.first())
            .map(|first| first.line);
        let line = line.min().unwrap_or(0);
        Err(Violation::EndlessStep { node, line })
    }

    /// Lets an atomic read its line as soon as its core may write it. Returns whether it did.
    fn read(&mut self, who: Requester) -> bool {
        let Some(first) = self.core(who).buffer.first() else {
            return false;
        };
        let may = !self.is_halted(who.node)
            && first.store.state() == StoreState::UW
            && self.may_write(who, first.line);
        let copy = self.base.agent(who.node, first.line).copy;
        let (Read::Due, Some(copy), true) = (first.read, copy, may) else {
            return false;
        };
        self.core_mut(who).buffer[0].read = Read::Held(copy);
        true
    }

    /// Returns the next store that is to be replicated as soon as it has retired, in order. The
    /// value of an atomic is not known then.
    fn early_replication(&self, who: Requester) -> Option<(usize, StoreInput)> {
        if self.is_halted(who.node) || self.setup.when != When::Retired {
            return None;
        }
        let buffer = &self.core(who).buffer;
        let place = buffer
            .iter()
            .position(|buffered| !buffered.store.is_sealed() && buffered.read == Read::Store)?;
        Some((place, self.replicate(who, buffer[place].line)))
    }

    fn replicate(&self, who: Requester, line: usize) -> StoreInput {
        StoreInput::Replicate {
            sequence: self.core(who).sequence,
            replicas: self.node(who.node).groups[line].iter().copied().collect(),
        }
    }

    /// Returns the input that is due for the store at the head.
    fn due(&self, who: Requester) -> Option<(usize, StoreInput)> {
        let Buffered {
            line, store, read, ..
        } = *self.core(who).buffer.first()?;
        let (state, agent) = (store.state(), self.base.agent(who.node, line));
        let writable = self.may_write(who, line);
        let may_replicate = match read {
            Read::Store => self.setup.when == When::Head || state == StoreState::UW,
            Read::Due => false,
            Read::Held(_) => state == StoreState::UW,
        };
        let input = if state.is_writable() && !writable {
            StoreInput::Lost
        } else if state.wants_line() && writable {
            StoreInput::Gained
        } else if self.is_halted(who.node) || !state.is_head() {
            return None;
        } else if state.is_unsent() && may_replicate {
            self.replicate(who, line)
        } else if state.asks() && matches!(agent.state, NodeState::I | NodeState::S) {
            StoreInput::Idle
        } else {
            return None;
        };
        Some((0, input))
    }

    /// Gives a store an input and executes its actions.
    pub(super) fn tell_store(
        &mut self,
        rules: &ReplicatedRules,
        who: Requester,
        place: usize,
        input: StoreInput,
    ) -> Result<(), Violation> {
        let node = who.node;
        let Buffered {
            line,
            number,
            store,
            read,
        } = self.core(who).buffer[place];
        let step = match rules.tables.store.step(&store, input) {
            Err(ProtocolError::StoreUndefined { .. })
                if rules.swallows_acks && matches!(input, StoreInput::Ack { .. }) =>
            {
                return Ok(());
            }
            step => step?,
        };
        self.core_mut(who).buffer[place].store = step.store;
        if let StoreInput::Replicate { sequence, .. } = input {
            self.core_mut(who).sequence = sequence + 1;
        }
        let mut committed = false;
        for action in step.actions() {
            match action {
                StoreAction::Repl(to) => {
                    self.last_commit = None;
                    let sequence = step.store.sequence().unwrap_or(0);
                    self.log_messages
                        .extend(to.iter().map(|to| LogMessage::Repl {
                            to,
                            requester: who,
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
                    self.check_replicas(who, line, &step.store)?;
                    let before = self.base.homes[line].last;
                    let stale = match read {
                        Read::Store => false,
                        Read::Due => true,
                        Read::Held(value) => value != before,
                    };
                    if stale {
                        return Err(Violation::StaleAccess { node, line });
                    }
                    self.base.store(&rules.coherence, node, line, number)?;
                    committed = true;
                    self.last_commit = Some(LastCommit {
                        node,
                        commit: self.node_mut(node).numbering.commit(),
                        line,
                        before,
                        vals: NodeSet::EMPTY,
                        done: false,
                    });
                }
                StoreAction::Val(to) => self.validate(who, line, &step.store, to),
            }
        }
        if step.store.is_committed() {
            self.core_mut(who).buffer.remove(place);
            if !committed {
                return Err(Violation::LostAccess { node, line });
            }
        }
        Ok(())
    }

    fn validate(&mut self, who: Requester, line: usize, store: &Store, to: NodeSet) {
        let epoch = self.base.agent(who.node, line).epoch;
        let Some(last) = &mut self.last_commit else {
            return;
        };
        last.vals = to;
        let commit = last.commit;
        for to in to.iter() {
            let timestamp = self.node_mut(who.node).numbering.timestamp(to);
            let val = Validation {
                requester: who,
                sequence: store.sequence().unwrap_or(0),
                timestamp,
                commit,
                epoch,
            };
            self.log_messages.push(LogMessage::Val { to, val });
        }
    }

    /// Checks that enough units have logged the store that commits.
    fn check_replicas(&self, who: Requester, line: usize, store: &Store) -> Result<(), Violation> {
        let living = self.setup.shape.nodes - self.recovered.len();
        let due = self.setup.replicas.min(living);
        let has = |unit: &NodeId| {
            let unit = &self.node(*unit).unit;
            let sequence = store.sequence();
            sequence.is_some_and(|sequence| unit.place(who, sequence).is_some())
        };
        let replicas = store.replicas();
        let logged = replicas
            .iter()
            .filter(|unit| self.dead.contains(*unit) || has(unit))
            .count();
        if logged < due {
            return Err(Violation::NotReplicated {
                node: who.node,
                line,
                missing: due - logged,
            });
        }
        Ok(())
    }

    /// Delivers a REPL_ACK.
    pub(super) fn acknowledge(
        &mut self,
        rules: &ReplicatedRules,
        to: Requester,
        from: NodeId,
        sequence: u32,
    ) -> Result<(), Violation> {
        let buffer = &self.core(to).buffer;
        let place = buffer
            .iter()
            .position(|buffered| buffered.store.sequence() == Some(sequence));
        match place {
            Some(place) => self.tell_store(rules, to, place, StoreInput::Ack { from, sequence }),
            None if rules.swallows_acks => Ok(()),
            None => Err(Violation::StrayAck { node: to.node }),
        }
    }
}
