//! The claims that must hold in every state of a machine that replicates, and its descriptions.

use std::fmt::Write as _;

use super::ReplicatedRules;
use super::world::{Happening, Lost, Replicated};
use crate::search::check::Claims;
use crate::search::machine::Machine;
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::Choice;

impl<D: Payload> Replicated<D> {
    /// Checks that all claims hold.
    fn check(&self, rules: &ReplicatedRules) -> Result<(), Violation> {
        for line in 0..self.setup.shape.lines {
            self.check_line(line)?;
        }
        if self.is_drained() {
            for line in 0..self.setup.shape.lines {
                self.check_replicated(line)?;
            }
        }
        self.check_rest(rules)
    }

    fn check_line(&self, line: usize) -> Result<(), Violation> {
        let home = &self.base.homes[line];
        let directory = &home.directory;
        let written = self.base.check_holders(line)?;
        // The recovery finds the stores of a dead owner, and they are checked there.
        let owner_lives = directory
            .owner()
            .is_none_or(|(owner, _)| !self.dead.contains(owner));
        if owner_lives && !written && home.memory != home.last && !self.base.is_under_way(line) {
            return Err(Violation::Lost { line });
        }
        // After the removal of dead nodes, a line may have one reader.
        self.base.check_record(line, 1)?;
        self.base.check_crowds(line)?;
        for node in self.living() {
            let agent = self.base.agent(node, line);
            if agent.state.is_writable() && agent.epoch != directory.epoch() {
                return Err(Violation::WrongEpoch { node, line });
            }
        }
        let goes_on = self.living().any(|node| !self.is_halted(node));
        if goes_on && directory.names_any(self.recovered) {
            return Err(Violation::NamesTheDead { line });
        }
        Ok(())
    }

    /// Checks, when nothing is under way, that the surviving logs have the committed contents if
    /// the line's owner dies next, together with as many others as may die.
    fn check_replicated(&self, line: usize) -> Result<(), Violation> {
        let home = &self.base.homes[line];
        let owner = home.directory.owner();
        let owner = owner.filter(|(owner, _)| !self.dead.contains(*owner));
        let (Some((owner, epoch)), true) = (owner, self.setup.replicas > 0) else {
            return Ok(());
        };
        let fresh = self.dead.minus(self.recovered).len();
        if fresh >= self.setup.at_once || home.memory == home.last {
            return Ok(());
        }
        // In addition to the owner.
        let more = (self.setup.at_once - fresh - 1) as u32;
        let others: Vec<_> = self.living().filter(|node| *node != owner).collect();
        for left in 1..1u32 << others.len() {
            if left.count_ones() + more < others.len() as u32 {
                continue;
            }
            let living = others.iter().enumerate();
            let living: Vec<_> = living
                .filter(|(place, _)| left & 1 << place != 0)
                .map(|(_, node)| *node)
                .collect();
            let found = self.fetch(None, line, (owner, epoch), &living);
            let contents = found.iter().fold(home.memory, |contents, entry| {
                contents.written(entry.number)
            });
            if contents != home.last {
                return Err(Violation::TooFewLogs { line, owner });
            }
        }
        Ok(())
    }

    /// Checks that nothing waits when nothing is under way and all dead nodes are known.
    fn check_rest(&self, rules: &ReplicatedRules) -> Result<(), Violation> {
        if self.dead != self.known {
            return Ok(());
        }
        if !self.rests() {
            return match self.is_stuck(rules) {
                true => Err(Violation::Stuck),
                false => Ok(()),
            };
        }
        for node in self.living() {
            if self
                .cores_of(node)
                .any(|who| !self.core(who).buffer.is_empty())
            {
                return Err(Violation::StoreWaits { node });
            }
        }
        let waits = (0..self.setup.shape.lines).find(|line| !self.base.is_at_rest(*line));
        waits.map_or(Ok(()), |line| Err(Violation::Deadlock { line }))
    }

    /// Returns whether nothing happens unless a core asks for something or a node dies.
    pub(super) fn rests(&self) -> bool {
        !self.is_recovering()
            && self.is_drained()
            && self
                .living()
                .all(|node| self.cores_of(node).all(|who| !self.has_turn(who)))
    }

    /// Returns whether no message can arrive, no recovery can proceed and no store has its turn.
    fn is_stuck(&self, rules: &ReplicatedRules) -> bool {
        let mut network = self.base.network.iter();
        let mut steps = Vec::new();
        self.log_messages.is_empty()
            && network.all(|packet| self.must_wait(rules, packet))
            && self
                .living()
                .all(|node| self.cores_of(node).all(|who| !self.has_turn(who)))
            && {
                self.recovery_steps(rules, &mut steps);
                steps.is_empty()
            }
    }
}

impl<D: Payload> Machine for Replicated<D> {
    type Rules = ReplicatedRules;
    type Choice = Happening;

    fn list(&self, rules: &ReplicatedRules, choices: &mut Vec<Happening>) {
        self.happenings(rules, choices);
    }

    fn take(&mut self, rules: &ReplicatedRules, choice: Happening) -> Result<(), Violation> {
        self.happen(rules, choice)
    }

    fn judge(&self, rules: &ReplicatedRules, _: Claims) -> Result<(), Violation> {
        self.check(rules)
    }

    fn settle(&mut self) {
        self.base.settle();
        self.log_messages.sort_unstable();
        self.archive.sort_unstable();
        for node in &mut self.nodes {
            node.unit.waiting.sort_unstable();
            node.unit.log.sort_unstable();
        }
    }

    fn is_quiet(&self) -> bool {
        self.rests()
    }

    fn follows(choice: Happening) -> bool {
        match choice {
            Happening::Coherence(choice) => matches!(choice, Choice::Deliver(_)),
            Happening::Retire(..)
            | Happening::Atomic(..)
            | Happening::Dump
            | Happening::Die(..) => false,
            Happening::Turn(_)
            | Happening::Log(_)
            | Happening::Interrupt
            | Happening::Restart(_)
            | Happening::Repair(_)
            | Happening::Save(_)
            | Happening::Clear(_)
            | Happening::GoOn(_) => true,
        }
    }

    fn describe(&self, choice: Happening) -> (usize, String) {
        match choice {
            Happening::Coherence(choice) => self.base.told(choice),
            Happening::Retire(who, line) => (line, format!("{who} retires a store to line {line}")),
            Happening::Atomic(who, line) => {
                (line, format!("{who} begins an atomic on line {line}"))
            }
            Happening::Turn(who) => {
                let line = self.core(who).buffer.first().map_or(0, |first| first.line);
                (line, format!("{who}'s next store comes to the head"))
            }
            Happening::Log(place) => (0, format!("arrives: {:?}", self.log_messages[place])),
            Happening::Die(node, Lost { vals, done }) => {
                let also = if done { " and its last Done" } else { "" };
                (0, format!("{node} dies, and its last VALs to {vals}{also}"))
            }
            Happening::Repair(line) => (line, format!("the directory repairs line {line}")),
            Happening::Restart(node) => (0, format!("{node} is to restart its stores")),
            Happening::Save(node) => (0, format!("the unit of {node} saves its share")),
            Happening::Clear(node) => (0, format!("the unit of {node} clears and regroups")),
            Happening::GoOn(node) => (0, format!("the cores of {node} continue")),
            Happening::Dump | Happening::Interrupt => (0, format!("{choice:?}")),
        }
    }

    fn summary(&self, line: usize) -> String {
        let mut text = self.base.summed_up(line);
        for node in self.living() {
            let known = self.node(node);
            let _ = write!(text, " | {node} {:?}", known.stage);
            for who in self.cores_of(node) {
                for buffered in &self.core(who).buffer {
                    let (state, awaited) = (buffered.store.state(), buffered.store.awaited());
                    let _ = write!(
                        text,
                        ", {who} store {}>line {} {state:?}{awaited}",
                        buffered.number, buffered.line
                    );
                }
            }
            let unit = &known.unit;
            if !unit.waiting.is_empty() || !unit.log.is_empty() {
                let _ = write!(text, ", has {:?} {:?}", unit.waiting, unit.log);
            }
        }
        let _ = write!(text, " | archive {:?}", self.archive);
        for message in &self.log_messages {
            let _ = write!(text, " | {message:?}");
        }
        text
    }
}
