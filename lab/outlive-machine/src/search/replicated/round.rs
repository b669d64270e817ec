//! Rounds in which the logging units dump and clear, replica groups, and the logs in the memory
//! nodes.

use super::unit::{Entry, put};
use super::world::{Replicated, Stage};
use super::{Fault, ReplicatedRules};
use crate::logging::Commit;
use crate::protocol::{DirectoryState, NodeId};
use crate::search::payload::Payload;

impl<D: Payload> Replicated<D> {
    /// Forms the replica group of each line, as this node knows it from now on: N_r of the nodes
    /// that are not known to be dead, in a ring.
    pub(super) fn form_groups(&mut self, rules: &ReplicatedRules, node: NodeId) {
        let known = self.known;
        let living: Vec<_> = self.all().filter(|node| !known.contains(*node)).collect();
        let factor = match rules.fault {
            Some(Fault::OneReplicaLess) => self.setup.replicas - 1,
            _ => self.setup.replicas,
        };
        let count = factor.min(living.len());
        // The first line's group begins after the first node, which stores most.
        let member = |line: usize, place: usize| living[(line + 1 + place) % living.len()];
        let lines = 0..self.setup.shape.lines;
        self.node_mut(node).groups = lines
            .map(|line| (0..count).map(|place| member(line, place)).collect())
            .collect();
    }

    /// Returns the node that saves a line, as `node` knows it: the first of its group that is not
    /// known to be dead. A unit outside the group saves its own entries of the line itself.
    fn saver(&self, node: NodeId, line: usize) -> NodeId {
        let group = &self.node(node).groups[line];
        let mut able = group.iter().filter(|member| !self.known.contains(**member));
        match able.next() {
            Some(saver) if group.contains(&node) => *saver,
            _ => node,
        }
    }

    /// Returns whether a dump may begin: no recovery is dumping, and some log has entries.
    pub(super) fn may_dump(&self) -> bool {
        self.dumps_left > 0
            && self
                .living()
                .all(|node| self.node(node).stage != Stage::Saved)
            && self
                .living()
                .any(|node| !self.node(node).unit.log.is_empty())
    }

    /// Executes a round in which no node dies: all units save, then all clear.
    pub(super) fn dump(&mut self, rules: &ReplicatedRules) {
        self.dumps_left -= 1;
        self.saved.fill(None);
        for node in self.living() {
            self.save_share(rules, node);
        }
        for node in self.living() {
            self.clear_saved(rules, node);
        }
        self.saved.fill(None);
    }

    /// Saves the share of a node in the round of a recovery. Once all nodes have saved, earlier
    /// deaths can no longer lose anything.
    pub(super) fn save(&mut self, rules: &ReplicatedRules, node: NodeId) {
        self.save_share(rules, node);
        self.node_mut(node).stage = Stage::Saved;
        if self.all_are(Stage::Saved) {
            self.recovered = self.known;
        }
    }

    /// Clears a node's log in the round of a recovery, and gives the node its new groups.
    pub(super) fn clear(&mut self, rules: &ReplicatedRules, node: NodeId) {
        self.clear_saved(rules, node);
        if !matches!(rules.fault, Some(Fault::SameGroups | Fault::RegroupsLate)) {
            self.form_groups(rules, node);
        }
        self.node_mut(node).stage = Stage::Cleared;
    }

    fn save_share(&mut self, rules: &ReplicatedRules, node: NodeId) {
        let unit = &self.node(node).unit;
        let moved = unit.moved.iter().map(|(_, commit)| *commit).collect();
        let mine = |entry: &&Entry| self.saver(node, entry.line) == node;
        let share: Vec<_> = unit.log.iter().filter(mine).copied().collect();
        if rules.fault != Some(Fault::NotSaved) {
            share
                .into_iter()
                .for_each(|entry| put::<D>(&mut self.archive, entry));
        }
        self.saved[node.index()] = Some(moved);
    }

    /// Clears the entries that their saver has saved: all that it had moved to its log by then. In
    /// the round of a recovery, no entry moves between a node's saving and clearing.
    fn clear_saved(&mut self, rules: &ReplicatedRules, node: NodeId) {
        let log = std::mem::take(&mut self.node_mut(node).unit.log);
        let covers = |through: &Vec<Commit>, entry: &Entry| {
            entry.commit <= through[entry.node.index()] || rules.fault == Some(Fault::ClearsAll)
        };
        let goes = |entry: &Entry| {
            let through = &self.saved[self.saver(node, entry.line).index()];
            let early = rules.fault == Some(Fault::SavesNotAwaited);
            through
                .as_ref()
                .map_or(early, |through| covers(through, entry))
        };
        let kept = log.into_iter().filter(|entry| !goes(entry)).collect();
        self.node_mut(node).unit.log = kept;
    }

    /// Drops entries from the logs of the memory nodes as soon as they are not needed: those of
    /// another owner or epoch than the line's directory has.
    pub(super) fn truncate(&mut self, rules: &ReplicatedRules) {
        let homes = &self.base.homes;
        let early = rules.fault == Some(Fault::TruncatesEarly);
        self.archive.retain(|entry| {
            let directory = &homes[entry.line].directory;
            let recalled = matches!(directory.state(), DirectoryState::OS | DirectoryState::OX);
            directory.owner() == Some((entry.node, entry.epoch)) && !(early && recalled)
        });
    }
}
