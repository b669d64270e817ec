//! How a machine came to where it is, for people.

use std::fmt::{self, Write as _};

use super::payload::Payload;
use super::violation::Violation;
use super::world::{Choice, Message, Packet, Rules, World};

/// A violation and the way to it: what happened, and what was known after it, step by step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// What does not hold.
    pub violation: Violation,
    /// What happened, in order; the last step shows the violation.
    pub steps: Vec<Step>,
}

/// One step of a [`Counterexample`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What happened.
    pub what: String,
    /// What the agents and the directory of the line know afterwards, and which messages are under way.
    pub after: String,
}

impl Step {
    /// Takes the step and writes it down. The world is as far as it came if the step fails.
    pub(super) fn take<D: Payload>(
        world: &mut World<D>,
        rules: &Rules,
        choice: Choice,
    ) -> (Step, Result<(), Violation>) {
        let (line, what) = describe(world, choice);
        let result = world.apply(rules, choice);
        (
            Step {
                what,
                after: summary(world, line),
            },
            result,
        )
    }
}

fn describe<D: Payload>(world: &World<D>, choice: Choice) -> (usize, String) {
    match choice {
        Choice::Access(node, line, access) => (line, format!("{node} {access:?} line {line}")),
        Choice::Evict(node, line) => (line, format!("{node} Evict line {line}")),
        Choice::Deliver(place) => {
            let packet = world.network()[place];
            (packet.line, format!("arrives: {}", show(&packet)))
        }
    }
}

fn show<D: Payload>(packet: &Packet<D>) -> String {
    match packet.message {
        Message::Up(message) => format!("{:?} {}>dir{}", message, packet.node, packet.line),
        Message::Down(message) => format!("{:?} dir{}>{}", message, packet.line, packet.node),
    }
}

fn summary<D: Payload>(world: &World<D>, line: usize) -> String {
    let mut text = String::new();
    for node in world.nodes() {
        let agent = world.agent(node, line);
        let waits = ["", " waits:load", " waits:store", " waits:load,store"]
            [usize::from(agent.waiting & 3)];
        let copy = agent
            .copy
            .map_or(String::new(), |copy| format!("={copy:?}"));
        let _ = write!(text, "{node} {:?}{copy}{waits} | ", agent.state);
    }
    let home = &world.homes[line];
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
    for packet in world.network() {
        let _ = write!(text, " | {}", show(packet));
    }
    text
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
