//! What happens in a cluster, and what its nodes send each other.

use super::payload::Payload;
use crate::line::LineAddress;
use crate::parts::Content;
use crate::protocol::{ToDirectory, ToNode};

/// What happens: to which part, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A core goes on.
    Wake(u16),
    /// What a core's thread waited for (a lock, a barrier, a condition) may be had now.
    Released(u16),
    /// A core's miss has passed its caches: the node is asked for the line.
    Request {
        /// Whose.
        core: u16,
        /// For which line.
        line: LineAddress,
    },
    /// A message is ready at its sender's port.
    Depart(Message),
    /// A message is at the switch.
    AtSwitch(Message),
    /// A message is where it goes to, and has been looked at there.
    Arrive(Message),
}

/// A message about a line, between a compute node and the line's memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(super) line: LineAddress,
    /// The contents, if it has any.
    pub(super) payload: Payload,
    /// The compute node at one of its ends.
    pub(super) node: u8,
    pub(super) what: What,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Up(ToDirectory<()>),
    Down(ToNode<()>),
    /// These words (a mask) shall be in persistent memory; a core of the node waits for it.
    WriteThrough {
        core: u8,
        words: u8,
    },
    /// They are.
    WrittenThrough {
        core: u8,
    },
}

// A simulation moves millions of events a second through its queue.
const _: () = assert!(size_of::<Event>() <= 24);

impl What {
    /// Whether it goes to a memory node.
    pub(super) fn is_upward(self) -> bool {
        matches!(self, What::Up(_) | What::WriteThrough { .. })
    }

    /// What it carries.
    pub(super) fn content(self) -> Content {
        match self {
            What::Up(message) if message.data().is_some() => Content::Line,
            What::Down(message) if message.data().is_some() => Content::Line,
            What::WriteThrough { words, .. } => Content::Words(words),
            _ => Content::Nothing,
        }
    }

    /// Its row in the statistics.
    pub(super) fn kind(self) -> MessageKind {
        match self {
            What::Up(message) => match message {
                ToDirectory::RdS => MessageKind::RdS,
                ToDirectory::RdX => MessageKind::RdX,
                ToDirectory::Upgrade => MessageKind::Upgrade,
                ToDirectory::Ack => MessageKind::Ack,
                ToDirectory::Done => MessageKind::Done,
                ToDirectory::Downgraded(()) => MessageKind::Downgraded,
                ToDirectory::DowngradedClean => MessageKind::DowngradedClean,
                ToDirectory::Relinquished(()) => MessageKind::Relinquished,
                ToDirectory::Gone => MessageKind::Gone,
                ToDirectory::PutM(()) => MessageKind::PutM,
            },
            What::Down(message) => match message {
                ToNode::Inv => MessageKind::Inv,
                ToNode::RecallShared => MessageKind::RecallShared,
                ToNode::RecallExclusive => MessageKind::RecallExclusive,
                ToNode::GrantS(()) => MessageKind::GrantS,
                ToNode::GrantE(()) => MessageKind::GrantE,
                ToNode::GrantM(()) => MessageKind::GrantM,
                ToNode::GrantUpgrade => MessageKind::GrantUpgrade,
                ToNode::PutAck => MessageKind::PutAck,
            },
            What::WriteThrough { .. } => MessageKind::WriteThrough,
            What::WrittenThrough { .. } => MessageKind::WrittenThrough,
        }
    }
}

macro_rules! kinds {
    ($($kind:ident,)+) => {
        /// Kinds of messages, by the protocol's names for them; to count by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum MessageKind { $($kind,)+ }

        impl MessageKind {
            /// All of them.
            pub const ALL: &'static [MessageKind] = &[$(MessageKind::$kind,)+];
        }
    };
}
kinds! {
    RdS, RdX, Upgrade, Ack, Done, Downgraded, DowngradedClean, Relinquished, Gone, PutM,
    Inv, RecallShared, RecallExclusive, GrantS, GrantE, GrantM, GrantUpgrade, PutAck,
    WriteThrough, WrittenThrough,
}
