//! The events of a cluster, and the messages between its nodes.

use super::packet::Packet;
use super::under_way::Payload;
use crate::line::LineAddress;
use crate::parts::Content;
use crate::protocol::{Epoch, ToDirectory, ToNode};

/// An event, with the part that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A core continues.
    Wake(u16),
    /// An object that a core's thread waited for (a lock, a barrier, a condition) may be available.
    Released(u16),
    /// A core's miss has passed its caches: the node is asked for the line.
    Request {
        /// The core that missed.
        core: u16,
        /// The line.
        line: LineAddress,
    },
    /// A message has reached the stage that it carries.
    Message(Message),
    /// A packet has reached the stage that it carries.
    Packet(Packet),
    /// A logging unit has read enough of its log for the next piece of its dump to leave.
    NextPiece {
        /// The node of the unit.
        node: u8,
        /// The index of the piece.
        index: u32,
    },
    /// A dump is due.
    DumpPeriod,
    /// The switch checks whether a dead node's port has been silent for long enough.
    Silent(u8),
}

/// A message about a line, between a compute node and the line's memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(super) line: LineAddress,
    /// The contents, if it has any.
    pub(super) payload: Payload,
    /// The epoch of the line, if the message grants the only copy.
    pub(super) epoch: Epoch,
    /// The compute node at one of its ends.
    pub(super) node: u8,
    pub(super) stage: Stage,
    pub(super) what: What,
}

/// The stage of a message or packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Ready at its sender's port.
    Ready,
    /// At the switch.
    Switch,
    /// At its receiver, which has looked it up.
    There,
}

impl Message {
    /// Returns the event of reaching this stage.
    pub(super) fn at(self, stage: Stage) -> Event {
        Event::Message(Message { stage, ..self })
    }
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Up(ToDirectory<()>),
    Down(ToNode<()>),
    /// Requests that words (a mask) be made persistent; a core of the node waits for it.
    WriteThrough {
        core: u8,
        words: u8,
    },
    /// The words are in persistent memory.
    WrittenThrough {
        core: u8,
    },
}

// A simulation moves millions of events a second through its queue.
const _: () = assert!(size_of::<Event>() <= 24);

impl What {
    /// Returns whether it goes to a memory node.
    pub(super) fn is_upward(self) -> bool {
        matches!(self, What::Up(_) | What::WriteThrough { .. })
    }

    /// Returns the kind of its payload.
    pub(super) fn content(self) -> Content {
        match self {
            What::Up(message) if message.data().is_some() => Content::Line,
            What::Down(message) if message.data().is_some() => Content::Line,
            What::WriteThrough { words, .. } => Content::Words(words),
            _ => Content::Nothing,
        }
    }

    /// Returns its row in the statistics.
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
    ($($(#[doc = $doc:literal])+ $kind:ident,)+) => {
        /// Kinds of messages, named as in the protocol, for counting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MessageKind { $($(#[doc = $doc])+ $kind,)+ }

        impl MessageKind {
            /// All kinds.
            pub const ALL: &'static [MessageKind] = &[$(MessageKind::$kind,)+];

            /// Returns a description of messages of this kind.
            pub const fn about(self) -> &'static str {
                match self { $(MessageKind::$kind => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}
kinds! {
    /// A line is requested, to be read
    RdS,
    /// A line is requested, to be written
    RdX,
    /// The right to write a line that is here is requested
    Upgrade,
    /// An invalidated copy is gone
    Ack,
    /// A grant has come: the next request of the line may be served
    Done,
    /// To a recall: the written line; a copy to read is kept
    Downgraded,
    /// To a recall: memory is current; a copy to read is kept
    DowngradedClean,
    /// To a recall: the written line; nothing is kept
    Relinquished,
    /// To a recall: no copy is kept, and memory is current
    Gone,
    /// A written line leaves its node's caches
    PutM,
    /// A copy must go
    Inv,
    /// A reader requests an owned line
    RecallShared,
    /// A writer requests an owned line
    RecallExclusive,
    /// A line, to be read
    GrantS,
    /// A line requested for reading, of which there is no other copy
    GrantE,
    /// A line, to be written
    GrantM,
    /// The right to write a line
    GrantUpgrade,
    /// The line that was put is in memory
    PutAck,
    /// A store's words, for persistent memory
    WriteThrough,
    /// They are in persistent memory
    WrittenThrough,
    /// A store's words, for a replica's log
    Repl,
    /// They are in its log
    ReplAck,
    /// The store has committed
    Val,
    /// A log is full: a round of dumps is requested
    DumpAsked,
    /// A round of dumps begins
    DumpBegin,
    /// 64 B of a compressed log
    DumpPiece,
    /// They are in the memory node
    DumpStored,
    /// A unit has saved its part
    DumpSaved,
    /// All units have saved their parts: the saved entries may be cleared
    DumpClear,
    /// A unit has cleared them
    DumpCleared,
    /// A memory node asks directories which entries of its logs are still needed
    StandingsAsked,
    /// The directories' answer
    StandingsTold,
    /// The switch interrupts: nodes are dead
    Msi,
    /// The leader of a recovery halts a node
    Interrupt,
    /// It is halted, and reports its counts of messages sent and received
    InterruptResp,
    /// Stores that have not committed must start over
    Restart,
    /// They will
    RestartResp,
    /// Directories must repair the lines that dead nodes had
    InitRecov,
    /// They have
    InitRecovResp,
    /// Requests the entries that logs have of these lines
    FetchLatestVers,
    /// The entries
    FetchLatestVersResp,
    /// All must save their logs, form new groups, or continue
    RecovEnd,
    /// That is done
    RecovEndResp,
}

/// The purpose of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Accesses to the memory that nodes share.
    Access,
    /// Replication of stores.
    Replication,
    /// Saving logs in the memory nodes.
    Dump,
    /// Truncating logs in the memory nodes.
    Truncation,
    /// Recovery from the death of nodes.
    Recovery,
}

impl MessageKind {
    /// Returns the purpose of messages of this kind.
    pub fn purpose(self) -> Purpose {
        match self {
            kind if kind >= MessageKind::Msi => Purpose::Recovery,
            kind if kind >= MessageKind::StandingsAsked => Purpose::Truncation,
            kind if kind >= MessageKind::DumpAsked => Purpose::Dump,
            kind if kind >= MessageKind::Repl => Purpose::Replication,
            _ => Purpose::Access,
        }
    }
}
