//! The life of one line: everything that is said and done about it, for people who look for a mistake.

use super::event::{Message, MessageKind};
use crate::engine::Time;
use crate::line::LineAddress;
use crate::parts::Port;
use crate::protocol::{Directory, NodeEvent, NodeId, NodeSet, NodeState, ToDirectory};

/// What has happened to a line, one line of text each, the first first.
#[derive(Clone, Debug)]
pub(super) struct Life {
    line: LineAddress,
    lines: Vec<String>,
}

impl Life {
    pub fn new(line: LineAddress) -> Life {
        Life {
            line,
            lines: Vec::new(),
        }
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
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
        if line == self.line {
            self.lines
                .push(format!("{now}: CN{node} {event:?}: {from:?} to {to:?}"));
        }
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
        if line == self.line {
            let (before, holders) = (before.state(), before.holders());
            let (next, held) = (after.state(), after.holders());
            let event = what.kind();
            self.lines.push(format!(
                "{now}: directory {event:?} from {from}: {before:?} {holders} to {next:?} {held}"
            ));
        }
    }

    pub fn buried(
        &mut self,
        at: Time,
        line: LineAddress,
        dead: NodeSet,
        before: &Directory,
        after: &Directory,
    ) {
        if line == self.line {
            let (before, holders) = (before.state(), before.holders());
            let (next, held) = (after.state(), after.holders());
            self.lines.push(format!(
                "{at}: directory buries {dead}: {before:?} {holders} to {next:?} {held}"
            ));
        }
    }

    pub fn said(&mut self, at: Time, line: LineAddress, kind: MessageKind, from: Port, to: Port) {
        if line == self.line {
            self.lines
                .push(format!("{at}: {kind:?} leaves CN{} for CN{}", from.0, to.0));
        }
    }

    pub fn sent(&mut self, now: Time, message: Message) {
        if message.line == self.line {
            let kind = message.what.kind();
            let (from, to) = match message.what.is_upward() {
                true => (format!("CN{}", message.node), "its memory node".into()),
                false => ("its memory node".into(), format!("CN{}", message.node)),
            };
            self.lines
                .push(format!("{now}: {kind:?} leaves {from} for {to}"));
        }
    }
}
