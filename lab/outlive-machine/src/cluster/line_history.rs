//! The history of one line: all messages and actions about it, for debugging.

use super::event::{Message, MessageKind, What};
use crate::engine::Time;
use crate::line::LineAddress;
use crate::parts::Port;
use crate::protocol::{Directory, NodeEvent, NodeId, NodeSet, NodeState, ToDirectory};

/// The events of a line, in the order in which the host simulated them.
#[derive(Clone, Debug)]
pub(super) struct Life {
    line: LineAddress,
    /// The memory node of the line.
    home: usize,
    events: Vec<(Time, String)>,
}

impl Life {
    pub fn new(line: LineAddress, home: usize) -> Life {
        Life {
            line,
            home,
            events: Vec::new(),
        }
    }

    /// Returns one line of text for each event, by rising time. Cores run ahead of one another, so
    /// this is not the host's order, except among events of the same time.
    pub fn lines(&self) -> Vec<String> {
        let mut events: Vec<_> = self.events.iter().collect();
        events.sort_by_key(|(at, _)| *at);
        let lines = events.iter().map(|(at, what)| format!("{at}: {what}"));
        lines.collect()
    }

    fn note(&mut self, at: Time, line: LineAddress, what: impl FnOnce() -> String) {
        if line == self.line {
            self.events.push((at, what()));
        }
    }

    pub fn agent(
        &mut self,
        now: Time,
        node: usize,
        line: LineAddress,
        from: NodeState,
        event: NodeEvent,
        to: NodeState,
    ) {
        self.note(now, line, || {
            format!("CN{node} {event:?}: {from:?} to {to:?}")
        });
    }

    pub fn directory(
        &mut self,
        now: Time,
        line: LineAddress,
        from: NodeId,
        what: ToDirectory<()>,
        before: &Directory,
        after: &Directory,
    ) {
        let home = self.home;
        self.note(now, line, || {
            let kind = What::Up(what).kind();
            let change = change(before, after);
            format!("directory in MN{home} {kind:?} from {from}: {change}")
        });
    }

    pub fn buried(
        &mut self,
        at: Time,
        line: LineAddress,
        dead: NodeSet,
        before: &Directory,
        after: &Directory,
    ) {
        let home = self.home;
        self.note(at, line, || {
            let change = change(before, after);
            format!("directory in MN{home} removes dead {dead}: {change}")
        });
    }

    pub fn said(&mut self, at: Time, line: LineAddress, kind: MessageKind, from: Port, to: Port) {
        self.note(at, line, || match kind {
            MessageKind::ReplAck if from == to => {
                format!("{kind:?} from CN{}'s own logging unit", from.0)
            }
            _ if from == to => format!("{kind:?} to CN{}'s own logging unit", from.0),
            _ => format!("{kind:?} leaves CN{} for CN{}", from.0, to.0),
        });
    }

    pub fn sent(&mut self, now: Time, message: Message) {
        let home = self.home;
        self.note(now, message.line, || {
            let (kind, node) = (message.what.kind(), message.node);
            match message.what.is_upward() {
                true => format!("{kind:?} leaves CN{node} for MN{home}"),
                false => format!("{kind:?} leaves MN{home} for CN{node}"),
            }
        });
    }
}

/// Returns the states and holders of a directory before and after a step.
fn change(before: &Directory, after: &Directory) -> String {
    let (from, holders) = (before.state(), before.holders());
    let (to, held) = (after.state(), after.holders());
    format!("{from:?} {holders} to {to:?} {held}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_by_time_and_at_one_time_as_they_came() {
        let line = LineAddress(3);
        let mut life = Life::new(line, 0);
        for (nanos, node) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            let now = Time::from_nanos(nanos);
            life.agent(
                now,
                node,
                line,
                NodeState::I,
                NodeEvent::Load,
                NodeState::IS,
            );
        }
        life.agent(
            Time::ZERO,
            4,
            LineAddress(4),
            NodeState::I,
            NodeEvent::Load,
            NodeState::IS,
        );
        let told = ["3 ns: CN1", "3 ns: CN3", "5 ns: CN0", "5 ns: CN2"];
        let told = told.map(|event| format!("{event} Load: I to IS"));
        assert_eq!(life.lines(), told);
    }
}
