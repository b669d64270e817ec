//! What must hold in every state of a machine that replicates, and how it is told.

use std::fmt::Write as _;

use super::ReplicatedRules;
use super::world::{Happening, Phase, Replicated};
use crate::search::check::Claims;
use crate::search::machine::Machine;
use crate::search::payload::Payload;
use crate::search::violation::Violation;
use crate::search::world::Choice;

impl<D: Payload> Replicated<D> {
    /// Everything that must hold.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for line in 0..self.setup.shape.lines {
            self.check_line(line)?;
        }
        self.check_rest()
    }

    pub(super) fn check_line(&self, line: usize) -> Result<(), Violation> {
        let home = &self.base.homes[line];
        let directory = &home.directory;
        let written = self.base.check_holders(line)?;
        // What a dead owner has written is found by the recovery, and judged there.
        let owner_lives = directory
            .owner()
            .is_none_or(|(owner, _)| !self.dead.contains(owner));
        if owner_lives && !written && home.memory != home.last && !self.base.is_under_way(line) {
            return Err(Violation::Lost { line });
        }
        // A burial may leave one reader.
        self.base.check_record(line, 1)?;
        self.base.check_crowds(line)?;
        for node in self.living() {
            let agent = self.base.agent(node, line);
            if agent.state.is_writable() && agent.epoch != directory.epoch() {
                return Err(Violation::WrongEpoch { node, line });
            }
        }
        let buried = self.phase == Phase::Running && directory.names_any(self.recovered);
        if buried {
            return Err(Violation::NamesTheDead { line });
        }
        Ok(())
    }

    /// When nothing is under way and all dead are known, nobody waits.
    fn check_rest(&self) -> Result<(), Violation> {
        if !self.rests() || self.dead != self.known {
            return Ok(());
        }
        for node in self.living() {
            if !self.core(node).buffer.is_empty() {
                return Err(Violation::StoreWaits { node });
            }
        }
        let waits = (0..self.setup.shape.lines).find(|line| !self.base.is_at_rest(*line));
        waits.map_or(Ok(()), |line| Err(Violation::Deadlock { line }))
    }

    /// Whether nothing happens unless a core asks for something or a node dies.
    pub(super) fn rests(&self) -> bool {
        self.phase == Phase::Running
            && self.is_drained()
            && self.living().all(|node| !self.has_turn(node))
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

    fn judge(&self, _: &ReplicatedRules, _: Claims) -> Result<(), Violation> {
        self.check()
    }

    fn settle(&mut self) {
        self.base.settle();
        self.log_messages.sort_unstable();
        self.archive.sort_unstable();
        for core in &mut self.cores {
            core.unit.waiting.sort_unstable();
            core.unit.log.sort_unstable();
        }
    }

    fn is_quiet(&self) -> bool {
        self.rests()
    }

    fn follows(choice: Happening) -> bool {
        match choice {
            Happening::Coherence(choice) => matches!(choice, Choice::Deliver(_)),
            Happening::Retire(..) | Happening::Dump | Happening::Die(..) => false,
            Happening::Turn(_)
            | Happening::Log(_)
            | Happening::Interrupt
            | Happening::InitRecov
            | Happening::Repair(_)
            | Happening::RecovEnd => true,
        }
    }

    fn describe(&self, choice: Happening) -> (usize, String) {
        match choice {
            Happening::Coherence(choice) => self.base.told(choice),
            Happening::Retire(node, line) => {
                (line, format!("{node} retires a store to line {line}"))
            }
            Happening::Turn(node) => {
                let line = self.core(node).buffer.first().map_or(0, |first| first.line);
                (line, format!("{node}'s next store comes to the head"))
            }
            Happening::Log(place) => (0, format!("arrives: {:?}", self.log_messages[place])),
            Happening::Die(node, lost) => (0, format!("{node} dies, and its last VALs to {lost}")),
            Happening::Repair(line) => (line, format!("the directory repairs line {line}")),
            Happening::Dump | Happening::Interrupt | Happening::InitRecov | Happening::RecovEnd => {
                (0, format!("{choice:?}"))
            }
        }
    }

    fn summary(&self, line: usize) -> String {
        let mut text = self.base.summed_up(line);
        for node in self.living() {
            let core = self.core(node);
            for buffered in &core.buffer {
                let (state, awaited) = (buffered.store.state(), buffered.store.awaited());
                let _ = write!(
                    text,
                    " | {node} store {}>line {} {state:?}{awaited}",
                    buffered.number, buffered.line
                );
            }
            if !core.unit.waiting.is_empty() || !core.unit.log.is_empty() {
                let _ = write!(
                    text,
                    " | {node} has {:?} {:?}",
                    core.unit.waiting, core.unit.log
                );
            }
        }
        let _ = write!(text, " | archive {:?} | {:?}", self.archive, self.phase);
        for message in &self.log_messages {
            let _ = write!(text, " | {message:?}");
        }
        text
    }
}
