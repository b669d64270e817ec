//! The life of one line: everything that is said and done about it, for people who look for a mistake.

use super::event::{Message, MessageKind, What};
use crate::engine::Time;
use crate::line::LineAddress;
use crate::parts::Port;
use crate::protocol::{Directory, NodeEvent, NodeId, NodeSet, NodeState, ToDirectory};

/// What has happened to a line, one line of text each, the first first.
#[derive(Clone, Debug)]
pub(super) struct Life {
    line: LineAddress,
    lines: Vec<(Time, String)>,
}

impl Life {
    pub fn new(line: LineAddress) -> Life {
        Life {
            line,
            lines: Vec::new(),
        }
    }

    /// In the order of their times: what a core does is told when the host comes to it, up to a quantum early or late.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        lines.sort_by_key(|(at, _)| *at);
        let told = |(at, what): (Time, String)| format!("{at}: {what}");
        lines.into_iter().map(told).collect()
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
                .push((now, format!("CN{node} {event:?}: {from:?} to {to:?}")));
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
            let kind = What::Up(what).kind();
            let what =
                format!("directory {kind:?} from {from}: {before:?} {holders} to {next:?} {held}");
            self.lines.push((now, what));
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
            let what = format!("directory buries {dead}: {before:?} {holders} to {next:?} {held}");
            self.lines.push((at, what));
        }
    }

    pub fn said(&mut self, at: Time, line: LineAddress, kind: MessageKind, from: Port, to: Port) {
        if line == self.line {
            self.lines
                .push((at, format!("{kind:?} leaves CN{} for CN{}", from.0, to.0)));
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
                .push((now, format!("{kind:?} leaves {from} for {to}")));
        }
    }
}
