//! Readable paths to a violation.

use std::fmt::{self, Write as _};

use super::machine::Machine;
use super::payload::Payload;
use super::violation::Violation;
use super::world::{Choice, Message, Packet, World};

/// A violation and the path to it, with the state after each step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// The claim that does not hold.
    pub violation: Violation,
    /// The steps, in order; the last one shows the violation.
    pub steps: Vec<Step>,
}

/// One step of a [`Counterexample`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// A description of the step.
    pub what: String,
    /// The state of the line's agents and directory afterwards, and the messages under way.
    pub after: String,
}

impl Step {
    /// Takes the step and records it. If the step fails, `world` keeps its partial effects.
    pub(super) fn take<M: Machine>(
        world: &mut M,
        rules: &M::Rules,
        choice: M::Choice,
    ) -> (Step, Result<(), Violation>) {
        let (line, what) = world.describe(choice);
        let result = world.take(rules, choice);
        let after = world.summary(line);
        (Step { what, after }, result)
    }
}

impl<D: Payload> World<D> {
    /// Returns the line that a step concerns, and a description of the step.
    pub(super) fn told(&self, choice: Choice) -> (usize, String) {
        match choice {
            Choice::Access(node, line, access) => (line, format!("{node} {access:?} line {line}")),
            Choice::Evict(node, line) => (line, format!("{node} Evict line {line}")),
            Choice::Deliver(place) => {
                let packet = self.network()[place];
                (packet.line, format!("arrives: {}", show(&packet)))
            }
        }
    }

    /// Returns a description of the line's state, and of all messages under way.
    pub(super) fn summed_up(&self, line: usize) -> String {
        let mut text = String::new();
        for node in self.nodes() {
            let agent = self.agent(node, line);
            let waits = ["", " waits:load", " waits:store", " waits:load,store"]
                [usize::from(agent.waiting & 3)];
            let copy = agent
                .copy
                .map_or(String::new(), |copy| format!("={copy:?}"));
            let _ = write!(text, "{node} {:?}{copy}{waits} | ", agent.state);
        }
        let home = &self.homes[line];
        let directory = &home.directory;
        let _ = write!(
            text,
            "dir {:?}{} mem={:?}",
            directory.state(),
            directory.holders(),
            home.memory
        );
        if let Some(requester) = directory.requester() {
            let _ = write!(text, " serves {requester} awaits {}", directory.awaited());
        }
        for (node, request) in directory.queue().iter() {
            let _ = write!(text, " queued:{request:?} {node}");
        }
        for packet in self.network() {
            let _ = write!(text, " | {}", show(packet));
        }
        text
    }
}

fn show<D: Payload>(packet: &Packet<D>) -> String {
    match packet.message {
        Message::Up(message) => format!("{:?} {}>dir{}", message, packet.node, packet.line),
        Message::Down(message) => format!("{:?} dir{}>{}", message, packet.line, packet.node),
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4}  {}", number + 1, step.what)?;
            writeln!(f, "        {}", step.after)?;
        }
        write!(f, "{}", self.violation)
    }
}

impl std::error::Error for Counterexample {}
