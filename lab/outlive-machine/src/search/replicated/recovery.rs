//! Deaths, and the recovery from them: the paper's Table I and Algorithms 1 and 2.
//!
//! Each node executes an order of the manager in a step of its own. A step that needs the answers
//! of all nodes waits until all have reached that stage, so the manager has no state here. If a
//! node dies before it has done its part, the others wait for another Interrupt, and likewise if it
//! was the manager. Late orders, and answers that arrive one by one, are steps taken late. Orders
//! of an abandoned recovery have no effect: they name fewer dead nodes than the next Interrupt.

use super::unit::{Entry, Unit};
use super::world::{Happening, LogMessage, Lost, Read, Replicated, Stage};
use super::{Fault, ReplicatedRules};
use crate::protocol::{Epoch, NodeId, NodeState, StoreInput, ToDirectory};
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::Message;

impl<D: Payload> Replicated<D> {
    /// Kills a node: its caches, store buffers and logging unit are lost, and `lost` of its last
    /// step.
    pub(super) fn die(&mut self, node: NodeId, lost: Lost) {
        self.deaths_left -= 1;
        self.dead = self.dead.with(node);
        if let Some(last) = self.last_commit.take().filter(|last| last.node == node) {
            self.log_messages.retain(|message| {
                !matches!(message, LogMessage::Val { to, val }
                    if val.requester.node == node && val.commit == last.commit && lost.vals.contains(*to))
            });
            self.base.network.retain(|packet| {
                !(lost.done
                    && (packet.node, packet.line) == (node, last.line)
                    && packet.message == Message::Up(ToDirectory::Done))
            });
            if !lost.vals.is_empty() {
                self.in_doubt.push((last.line, last.before));
            }
        }
        for line in 0..self.setup.shape.lines {
            let agent = self.base.agent_mut(node, line);
            (agent.state, agent.copy, agent.waiting) = (NodeState::I, None, 0);
        }
        for who in self.cores_of(node) {
            let core = self.core_mut(who);
            core.buffer.clear();
            (core.stores_left, core.atomics_left) = (0, 0);
        }
        let nodes = self.setup.shape.nodes;
        let left = self.node_mut(node);
        left.unit = Unit::new(nodes);
        left.others_left = 0;
    }

    /// Lists the steps of a recovery that are possible now.
    pub(super) fn recovery_steps(&self, rules: &ReplicatedRules, into: &mut Vec<Happening>) {
        if self.dead != self.known {
            into.push(Happening::Interrupt);
        }
        if !self.is_recovering() && self.unrepaired == 0 {
            return;
        }
        let broken = |fault| rules.fault == Some(fault);
        let drained = self.is_drained() || broken(Fault::NotDrained);
        let some_restarted = self
            .living()
            .any(|node| self.node(node).stage >= Stage::Restarted);
        let restarted =
            self.all_are(Stage::Restarted) || broken(Fault::RestartsNotAwaited) && some_restarted;
        let saved = self.all_are(Stage::Saved) || broken(Fault::SavesNotAwaited);
        let cleared = self.all_are(Stage::Cleared) || broken(Fault::RegroupsNotAwaited);
        let repaired = self.unrepaired == 0 || broken(Fault::RepairsNotAwaited);
        if restarted {
            let lines = 0..self.setup.shape.lines;
            let left = lines.filter(|line| self.unrepaired & 1 << line != 0);
            into.extend(left.map(Happening::Repair));
        }
        for node in self.living() {
            let next = match self.node(node).stage {
                Stage::Halted => drained.then_some(Happening::Restart(node)),
                Stage::Restarted => restarted.then_some(Happening::Save(node)),
                Stage::Saved => saved.then_some(Happening::Clear(node)),
                Stage::Cleared => (cleared && repaired).then_some(Happening::GoOn(node)),
                Stage::Running => None,
            };
            into.extend(next);
        }
    }

    /// Returns whether all nodes that are not known to be dead have reached this stage.
    pub(super) fn all_are(&self, stage: Stage) -> bool {
        let mut awaited = self.all().filter(|node| !self.known.contains(*node));
        awaited.all(|node| self.node(node).stage >= stage)
    }

    /// Interrupts all living nodes. Doing so at the same moment is no restriction: a core that is
    /// halted earlier is one that happens to ask for nothing until then.
    pub(super) fn interrupt(&mut self) {
        self.known = self.dead;
        self.unrepaired = (1 << self.setup.shape.lines) - 1;
        self.saved.fill(None);
        for node in self.living() {
            self.node_mut(node).stage = Stage::Halted;
        }
    }

    /// Restarts, with nothing under way, the uncommitted stores of a node, and discards from its
    /// unit what is not validated.
    pub(super) fn restart(
        &mut self,
        rules: &ReplicatedRules,
        node: NodeId,
    ) -> Result<(), Violation> {
        if rules.fault != Some(Fault::NoRestart) {
            for who in self.cores_of(node) {
                for place in 0..self.core(who).buffer.len() {
                    self.tell_store(rules, who, place, StoreInput::Restart)?;
                    let read = &mut self.core_mut(who).buffer[place].read;
                    if *read != Read::Store && rules.fault != Some(Fault::AtomicNotReadAgain) {
                        *read = Read::Due;
                    }
                }
            }
        }
        let waiting = &mut self.node_mut(node).unit.waiting;
        if let Some(gap) = waiting.iter().find(|waiting| waiting.val.is_some()) {
            return Err(Violation::GapInVals {
                unit: node,
                node: gap.requester.node,
            });
        }
        if rules.fault != Some(Fault::UnvalidatedTaken) {
            waiting.clear();
        }
        self.node_mut(node).stage = Stage::Restarted;
        Ok(())
    }

    /// Repairs a line at its directory: FetchLatestVers if a dead node owned it, then the directory
    /// removes the dead nodes.
    pub(super) fn repair(&mut self, rules: &ReplicatedRules, line: usize) -> Result<(), Violation> {
        let home = self.base.homes[line];
        let lost = home
            .directory
            .owner()
            .filter(|(owner, _)| self.known.contains(*owner));
        let mut contents = home.memory;
        if let Some((owner, epoch)) = lost {
            let living: Vec<_> = self.living().collect();
            for entry in self.fetch(rules.fault, line, (owner, epoch), &living) {
                contents = contents.written(entry.number);
            }
        }
        let tables = &rules.tables;
        let step = tables.burial.bury(
            &rules.coherence.tables.directory,
            &home.directory,
            self.known,
            contents,
            home.memory,
        )?;
        // The contents are checked in memory, before the next owner writes the line.
        self.base.carry_out(line, &step);
        if let Some((owner, _)) = lost {
            self.judge_recovered(line, owner)?;
        }
        if self.base.homes[line].directory.names_any(self.known) {
            return Err(Violation::NamesTheDead { line });
        }
        self.unrepaired &= !(1 << line);
        Ok(())
    }

    fn judge_recovered(&mut self, line: usize, owner: NodeId) -> Result<(), Violation> {
        let home = &mut self.base.homes[line];
        let before = self.in_doubt.iter().find(|(doubtful, _)| *doubtful == line);
        if home.memory != home.last {
            match before {
                Some((_, before)) if home.memory == *before => home.last = *before,
                _ => return Err(Violation::NotRecovered { line, owner }),
            }
        }
        self.in_doubt.retain(|(doubtful, _)| *doubtful != line);
        Ok(())
    }

    /// Returns the entries for a line, its owner and epoch in the logs of these nodes and of the
    /// memory nodes, by rising commit.
    pub(super) fn fetch(
        &self,
        fault: Option<Fault>,
        line: usize,
        (owner, epoch): (NodeId, Epoch),
        nodes: &[NodeId],
    ) -> Vec<Entry> {
        let mut found = Vec::new();
        let counts = |entry: &Entry| {
            (entry.node, entry.line) == (owner, line)
                && (entry.epoch == epoch || fault == Some(Fault::EpochsIgnored))
        };
        if fault != Some(Fault::MemoryLogsSkipped) {
            found.extend(self.archive.iter().copied().filter(counts));
        }
        if fault != Some(Fault::UnitsSkipped) {
            for node in nodes {
                found.extend(self.node(*node).unit.validated().filter(counts));
            }
        }
        found.sort_unstable_by_key(|entry| entry.commit);
        if fault == Some(Fault::UnvalidatedTaken) {
            for node in nodes {
                let waiting = self.node(*node).unit.waiting.iter();
                let unvalidated = waiting.filter(|waiting| {
                    waiting.val.is_none() && (waiting.requester.node, waiting.line) == (owner, line)
                });
                found.extend(unvalidated.map(|waiting| Entry {
                    node: owner,
                    line,
                    epoch,
                    commit: Default::default(),
                    number: waiting.number,
                }));
            }
        }
        found
    }

    /// Lets the cores of a node continue, after all nodes have answered.
    pub(super) fn go_on(&mut self, rules: &ReplicatedRules, node: NodeId) {
        if rules.fault == Some(Fault::RegroupsLate) {
            self.form_groups(rules, node);
        }
        self.node_mut(node).stage = Stage::Running;
        if self.all_are(Stage::Running) {
            self.saved.fill(None);
        }
    }
}
