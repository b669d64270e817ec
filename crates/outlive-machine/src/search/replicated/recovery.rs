//! Deaths, and the recovery from them: the paper's Table I and Algorithms 1 and 2.

use super::unit::{Entry, put};
use super::world::{Happening, LogMessage, Phase, Replicated};
use super::{Fault, ReplicatedRules};
use crate::protocol::{Epoch, NodeId, NodeSet, NodeState, StoreInput};
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::Message;

impl<D: Payload> Replicated<D> {
    /// A node dies: its caches, its store buffer and its logging unit are gone, and `lost` of its last VALs.
    pub(super) fn die(&mut self, node: NodeId, lost: NodeSet) {
        self.deaths_left -= 1;
        self.dead = self.dead.with(node);
        let last = self.last_commit.take().filter(|last| last.node == node);
        if let Some(last) = last.filter(|_| !lost.is_empty()) {
            self.log_messages.retain(|message| {
                !matches!(message, LogMessage::Val { to, requester, commit, .. }
                    if *requester == node && *commit == last.commit && lost.contains(*to))
            });
            self.in_doubt.push((last.line, last.before));
        }
        for line in 0..self.setup.shape.lines {
            let agent = self.base.agent_mut(node, line);
            (agent.state, agent.copy, agent.waiting) = (NodeState::I, None, 0);
        }
        let nodes = self.setup.shape.nodes;
        let core = self.core_mut(node);
        core.buffer.clear();
        core.unit = super::unit::Unit::new(nodes);
        (core.stores_left, core.others_left) = (0, 0);
        self.base
            .network
            .retain(|packet| matches!(packet.message, Message::Up(_)) || packet.node != node);
        self.log_messages.retain(|message| message.to() != node);
    }

    /// Which steps of a recovery can be taken now.
    pub(super) fn recovery_steps(&self, rules: &ReplicatedRules, into: &mut Vec<Happening>) {
        if self.dead != self.known {
            into.push(Happening::Interrupt);
        }
        match self.phase {
            Phase::Running => {}
            Phase::Draining => {
                if self.is_drained() || rules.fault == Some(Fault::NotDrained) {
                    into.push(Happening::InitRecov);
                }
            }
            Phase::Repairing(0) => into.push(Happening::RecovEnd),
            Phase::Repairing(left) => {
                let lines = 0..self.setup.shape.lines;
                into.extend(
                    lines
                        .filter(|line| left & 1 << line != 0)
                        .map(Happening::Repair),
                );
            }
        }
    }

    /// Interrupt to all living nodes. That they get it at the same moment is no restriction: a core that is halted earlier
    /// is one that happens to ask for nothing meanwhile.
    pub(super) fn interrupt(&mut self) {
        self.known = self.dead;
        self.phase = Phase::Draining;
    }

    /// All InterruptResps are there, and nothing is under way: what has not committed is to start over.
    pub(super) fn init_recovery(&mut self, rules: &ReplicatedRules) -> Result<(), Violation> {
        if rules.fault != Some(Fault::NoRestart) {
            for node in self.living() {
                for place in 0..self.core(node).buffer.len() {
                    self.tell_store(rules, node, place, StoreInput::Restart)?;
                }
            }
        }
        self.phase = Phase::Repairing((1 << self.setup.shape.lines) - 1);
        Ok(())
    }

    /// The directory of a line repairs it: FetchLatestVers for what a dead node owned, and the dead are buried.
    pub(super) fn repair(&mut self, rules: &ReplicatedRules, line: usize) -> Result<(), Violation> {
        let home = self.base.homes[line];
        let lost = home
            .directory
            .owner()
            .filter(|(owner, _)| self.known.contains(*owner));
        let mut contents = home.memory;
        if let Some((owner, epoch)) = lost {
            for entry in self.fetch(rules, line, owner, epoch) {
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
        // Contents are judged where they are, before the next owner writes them.
        self.base.carry_out(line, &step);
        if let Some((owner, _)) = lost {
            self.judge_recovered(line, owner)?;
        }
        if self.base.homes[line].directory.names_any(self.known) {
            return Err(Violation::NamesTheDead { line });
        }
        if let Phase::Repairing(left) = self.phase {
            self.phase = Phase::Repairing(left & !(1 << line));
        }
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

    /// What the logs of the living and those in the memory nodes have of the line, for its owner and epoch, by rising
    /// commit.
    fn fetch(
        &self,
        rules: &ReplicatedRules,
        line: usize,
        owner: NodeId,
        epoch: Epoch,
    ) -> Vec<Entry> {
        let mut found = Vec::new();
        let counts = |entry: &Entry| {
            (entry.node, entry.line) == (owner, line)
                && (entry.epoch == epoch || rules.fault == Some(Fault::EpochsIgnored))
        };
        if rules.fault != Some(Fault::MemoryLogsSkipped) {
            found.extend(self.archive.iter().copied().filter(counts));
        }
        if rules.fault != Some(Fault::UnitsSkipped) {
            for node in self.living() {
                found.extend(self.core(node).unit.validated().filter(counts));
            }
        }
        found.sort_unstable_by_key(|entry| entry.commit);
        if rules.fault == Some(Fault::UnvalidatedTaken) {
            for node in self.living() {
                let waiting = self.core(node).unit.waiting.iter();
                let unvalidated = waiting.filter(|waiting| {
                    waiting.val.is_none() && (waiting.node, waiting.line) == (owner, line)
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

    /// All directories have answered: the units forget what is not validated, save everything else and clear it; lines
    /// belong to new groups; memory nodes drop what nobody needs; cores go on.
    pub(super) fn end_recovery(&mut self, rules: &ReplicatedRules) -> Result<(), Violation> {
        for unit in self.living() {
            let core = self.core_mut(unit);
            if let Some(gap) = core
                .unit
                .waiting
                .iter()
                .find(|waiting| waiting.val.is_some())
            {
                return Err(Violation::GapInVals {
                    unit,
                    node: gap.node,
                });
            }
            core.unit.waiting.clear();
            let log = std::mem::take(&mut core.unit.log);
            if rules.fault != Some(Fault::NotSaved) {
                log.into_iter()
                    .for_each(|entry| put::<D>(&mut self.archive, entry));
            }
        }
        let homes = &self.base.homes;
        self.archive
            .retain(|entry| homes[entry.line].directory.owner() == Some((entry.node, entry.epoch)));
        self.recovered = self.known;
        if rules.fault != Some(Fault::SameGroups) {
            self.form_groups(rules);
        }
        self.phase = Phase::Running;
        Ok(())
    }

    /// A round of dumping: for each line a member of its group saves what it has, and the others clear what that covers.
    pub(super) fn dump(&mut self, rules: &ReplicatedRules) {
        self.dumps_left -= 1;
        for line in 0..self.setup.shape.lines {
            let group = self.groups[line];
            let saver = self.living().find(|node| group.contains(*node));
            let Some(saver) = saver else { continue };
            let unit = &mut self.core_mut(saver).unit;
            let moved = unit.moved.clone();
            let of_line = |entry: &Entry| entry.line == line;
            let (saved, kept): (Vec<_>, Vec<_>) = unit.log.drain(..).partition(of_line);
            unit.log = kept;
            saved
                .into_iter()
                .for_each(|entry| put::<D>(&mut self.archive, entry));
            let covers = |entry: &Entry| {
                entry.commit <= moved[entry.node.index()].1 || rules.fault == Some(Fault::ClearsAll)
            };
            for core in &mut self.cores {
                core.unit
                    .log
                    .retain(|entry| entry.line != line || !covers(entry));
            }
        }
    }
}
