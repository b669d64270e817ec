//! What happens in a cluster, and what its nodes send each other.

use super::packet::Packet;
use super::under_way::Payload;
use crate::line::LineAddress;
use crate::parts::Content;
use crate::protocol::{Epoch, ToDirectory, ToNode};

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
    /// A message is as far on its way as it says.
    Message(Message),
    /// A packet is as far on its way as it says.
    Packet(Packet),
    /// A logging unit has read so much of its log that the next piece of its dump may leave.
    NextPiece {
        /// Whose unit.
        node: u8,
        /// Which piece.
        index: u32,
    },
    /// It is time for a dump.
    DumpPeriod,
    /// The switch looks whether a dead node's port has been silent for long enough.
    Silent(u8),
}

/// A message about a line, between a compute node and the line's memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(super) line: LineAddress,
    /// The contents, if it has any.
    pub(super) payload: Payload,
    /// The epoch of the line, if it grants the only copy.
    pub(super) epoch: Epoch,
    /// The compute node at one of its ends.
    pub(super) node: u8,
    pub(super) stage: Stage,
    pub(super) what: What,
}

/// How far something is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Ready at its sender's port.
    Ready,
    /// At the switch.
    Switch,
    /// Where it goes to, and looked at there.
    There,
}

impl Message {
    /// The event that it is so far.
    pub(super) fn at(self, stage: Stage) -> Event {
        Event::Message(Message { stage, ..self })
    }
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
    ($($(#[doc = $doc:literal])+ $kind:ident,)+) => {
        /// Kinds of messages, by the protocol's names for them; to count by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MessageKind { $($(#[doc = $doc])+ $kind,)+ }

        impl MessageKind {
            /// All of them.
            pub const ALL: &'static [MessageKind] = &[$(MessageKind::$kind,)+];

            /// What such a message says.
            pub const fn about(self) -> &'static str {
                match self { $(MessageKind::$kind => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}
kinds! {
    /// A line is wanted, to be read
    RdS,
    /// A line is wanted, to be written
    RdX,
    /// Leave to write a line that is here is wanted
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
    /// An owned line is wanted by a reader
    RecallShared,
    /// An owned line is wanted by a writer
    RecallExclusive,
    /// A line, to be read
    GrantS,
    /// A line that was to be read, and nobody else has
    GrantE,
    /// A line, to be written
    GrantM,
    /// Leave to write
    GrantUpgrade,
    /// What was put is in memory
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
    /// A log is full: a round of dumps is wanted
    DumpAsked,
    /// A round of dumps begins
    DumpBegin,
    /// 64 B of a compressed log
    DumpPiece,
    /// They are in the memory node
    DumpStored,
    /// A unit has saved its part
    DumpSaved,
    /// All have saved theirs: what is saved may be cleared
    DumpClear,
    /// A unit has cleared it
    DumpCleared,
    /// A memory node asks directories what of its logs still counts
    StandingsAsked,
    /// What they know of that
    StandingsTold,
    /// The switch interrupts: nodes are dead
    Msi,
    /// The leader of a recovery halts a node
    Interrupt,
    /// It is halted, and has sent and got so many messages
    InterruptResp,
    /// Stores that have not committed are to start over
    Restart,
    /// They will
    RestartResp,
    /// Directories are to repair what the dead had
    InitRecov,
    /// They have
    InitRecovResp,
    /// What do logs know of these lines?
    FetchLatestVers,
    /// That is what they know
    FetchLatestVersResp,
    /// All are to save their logs, to form new groups, or to go on
    RecovEnd,
    /// That is done
    RecovEndResp,
}

/// What messages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Accesses to the memory that nodes share.
    Access,
    /// Replication of stores.
    Replication,
    /// Saving logs in the memory nodes.
    Dump,
    /// Truncating them there.
    Truncation,
    /// Recovery from the death of nodes.
    Recovery,
}

impl MessageKind {
    /// What messages of this kind are for.
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
