//! The directory's table.

use super::directory::DirectoryTable;
use super::table::{Row, names, row};

names! {
    /// What the directory knows of a line: the rows of its table. Two letters: a transaction is under way.
    pub enum DirectoryState {
        /// No node has a copy.
        I,
        /// The holders, two or more, may have copies to read.
        S,
        /// The holder may have the only copy, and may have written it.
        O,
        /// Invalidates the readers for one who wants to write and gets contents.
        SX,
        /// Invalidates the other readers for one who wants to write and has the contents.
        SU,
        /// Recalls an owned line for one who wants to read.
        OS,
        /// Recalls an owned line for one who wants to write.
        OX,
        /// Has granted a copy to read; waits for Done.
        SD,
        /// Has granted the only copy; waits for Done.
        OD,
        /// Has granted the only copy, which came back before Done.
        ID,
    }
}

names! {
    /// What a message amounts to: the columns of the table. *Alone*: the record names nobody else. While a
    /// transaction is under way requests are not looked at, and come as `RdS`, `RdX` and `Upgrade`.
    pub enum DirectoryEvent {
        /// A request to read; others may have copies.
        RdS,
        /// A request to read; nobody else has a copy.
        RdSAlone,
        /// A request to write by one without a copy; others may have copies.
        RdX,
        /// A request to write by one without a copy; nobody else has one.
        RdXAlone,
        /// A request to write by a reader, and there may be others.
        Upgrade,
        /// A request to write by the only reader. There is none while nodes do not die, and no row.
        UpgradeAlone,
        /// An awaited invalidation is through; others are to come.
        Ack,
        /// The last awaited invalidation is through.
        AckLast,
        /// The owner has become a reader and hands in what he wrote.
        Downgraded,
        /// The owner has become a reader and had written nothing.
        DowngradedClean,
        /// The owner has given up his copy and hands in what he wrote.
        Relinquished,
        /// The owner has no copy, and memory is current.
        Gone,
        /// The requester has his grant.
        Done,
        /// The owner puts the line back.
        PutM,
        /// Somebody puts back what was recalled from him meanwhile.
        PutMStale,
        /// What cannot have been sent: without a row in any state.
        Stray,
    }
}

/// What the table says is to be done. *The sender* sent the message that is being looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryOperation {
    /// The sender's request is served from now on.
    Begin,
    /// The sender's request waits for its turn.
    Enqueue,
    /// The transaction is over; the next request is served.
    Finish,
    /// The requester is the only holder now, at a new epoch.
    Own,
    /// The requester is a holder too.
    Join,
    /// The sender is no holder any more.
    Forget,
    /// The message's contents go to memory.
    WriteMemory,
    /// `Inv` to all holders but the requester, whose acknowledgements are awaited.
    Invalidate,
    /// `RecallShared` to the holder, whose answer is awaited.
    RecallShared,
    /// `RecallExclusive` to the holder, whose answer is awaited.
    RecallExclusive,
    /// `PutAck` to the sender.
    PutAck,
    /// `GrantS` with memory's contents to the requester.
    GrantS,
    /// `GrantE` with memory's contents to the requester.
    GrantE,
    /// `GrantM` with memory's contents to the requester.
    GrantM,
    /// `GrantUpgrade` to the requester.
    GrantUpgrade,
}

use DirectoryEvent as On;
use DirectoryOperation::{
    Begin, Enqueue, Finish, Forget, GrantE, GrantM, GrantS, GrantUpgrade, Invalidate, Join, Own,
    PutAck, RecallExclusive, RecallShared, WriteMemory,
};
use DirectoryState::{I, ID, O, OD, OS, OX, S, SD, SU, SX};

/// The directory of the MESI protocol. What is not here cannot happen: the argument stands in [the module](super).
#[rustfmt::skip]
pub const MESI_DIRECTORY: &[Row<DirectoryState, DirectoryEvent, DirectoryOperation>] = &[
    row(I,  On::RdSAlone,        &[Begin, Own, GrantE],             OD),
    row(I,  On::RdXAlone,        &[Begin, Own, GrantM],             OD),
    row(I,  On::PutMStale,       &[PutAck],                         I),

    // Of a line with readers the record names two at least, for a lone one is its owner and readers go in silence. The
    // requester may be one of them, and have dropped its copy.
    row(S,  On::RdS,             &[Begin, Join, GrantS],            SD),
    row(S,  On::RdX,             &[Begin, Invalidate],              SX),
    row(S,  On::Upgrade,         &[Begin, Invalidate],              SU),
    row(S,  On::PutMStale,       &[PutAck],                         S),

    row(O,  On::RdS,             &[Begin, RecallShared],            OS),
    // The recorded owner asks again: it has dropped its copy in silence, so it had not written it.
    row(O,  On::RdSAlone,        &[Begin, GrantE],                  OD),
    row(O,  On::RdX,             &[Begin, RecallExclusive],         OX),
    row(O,  On::RdXAlone,        &[Begin, GrantM],                  OD),
    row(O,  On::PutM,            &[WriteMemory, Forget, PutAck],    I),
    row(O,  On::PutMStale,       &[PutAck],                         O),

    row(SX, On::Ack,             &[],                               SX),
    row(SX, On::AckLast,         &[Own, GrantM],                    OD),
    row(SX, On::RdS,             &[Enqueue],                        SX),
    row(SX, On::RdX,             &[Enqueue],                        SX),
    row(SX, On::Upgrade,         &[Enqueue],                        SX),
    row(SX, On::PutMStale,       &[PutAck],                         SX),

    row(SU, On::Ack,             &[],                               SU),
    row(SU, On::AckLast,         &[Own, GrantUpgrade],              OD),
    row(SU, On::RdS,             &[Enqueue],                        SU),
    row(SU, On::RdX,             &[Enqueue],                        SU),
    row(SU, On::Upgrade,         &[Enqueue],                        SU),
    row(SU, On::PutMStale,       &[PutAck],                         SU),

    row(OS, On::Downgraded,      &[WriteMemory, Join, GrantS],      SD),
    row(OS, On::DowngradedClean, &[Join, GrantS],                   SD),
    row(OS, On::Relinquished,    &[WriteMemory, Own, GrantE],       OD),
    row(OS, On::Gone,            &[Own, GrantE],                    OD),
    // The recall will find nothing, or the write-back buffer: its answer is waited for all the same. The contents
    // must be kept here, for after the PutAck the node will have none to answer with.
    row(OS, On::PutM,            &[WriteMemory, PutAck],            OS),
    row(OS, On::RdS,             &[Enqueue],                        OS),
    row(OS, On::RdX,             &[Enqueue],                        OS),
    row(OS, On::Upgrade,         &[Enqueue],                        OS),
    row(OS, On::PutMStale,       &[PutAck],                         OS),

    row(OX, On::Relinquished,    &[WriteMemory, Own, GrantM],       OD),
    row(OX, On::Gone,            &[Own, GrantM],                    OD),
    row(OX, On::PutM,            &[WriteMemory, PutAck],            OX),
    row(OX, On::RdS,             &[Enqueue],                        OX),
    row(OX, On::RdX,             &[Enqueue],                        OX),
    row(OX, On::Upgrade,         &[Enqueue],                        OX),
    row(OX, On::PutMStale,       &[PutAck],                         OX),

    row(SD, On::Done,            &[Finish],                         S),
    row(SD, On::RdS,             &[Enqueue],                        SD),
    row(SD, On::RdX,             &[Enqueue],                        SD),
    row(SD, On::Upgrade,         &[Enqueue],                        SD),
    row(SD, On::PutMStale,       &[PutAck],                         SD),

    row(OD, On::Done,            &[Finish],                         O),
    // Written and put back so fast that it overtook Done.
    row(OD, On::PutM,            &[WriteMemory, Forget, PutAck],    ID),
    row(OD, On::RdS,             &[Enqueue],                        OD),
    row(OD, On::RdX,             &[Enqueue],                        OD),
    row(OD, On::Upgrade,         &[Enqueue],                        OD),
    row(OD, On::PutMStale,       &[PutAck],                         OD),

    row(ID, On::Done,            &[Finish],                         I),
    row(ID, On::RdS,             &[Enqueue],                        ID),
    row(ID, On::RdX,             &[Enqueue],                        ID),
    row(ID, On::Upgrade,         &[Enqueue],                        ID),
    row(ID, On::PutMStale,       &[PutAck],                         ID),
];

impl DirectoryState {
    /// Whether no transaction is under way.
    pub fn is_stable(self) -> bool {
        matches!(self, I | S | O)
    }

    /// Whether a transaction waits for nothing but `Done`.
    pub fn is_granted(self) -> bool {
        matches!(self, SD | OD | ID)
    }

    /// Whether the record says that somebody may have the only copy.
    pub fn is_owned(self) -> bool {
        matches!(self, O | OS | OX | OD)
    }
}

impl DirectoryEvent {
    /// Whether it is an answer to an invalidation or recall.
    pub fn is_answer(self) -> bool {
        matches!(
            self,
            On::Ack
                | On::AckLast
                | On::Downgraded
                | On::DowngradedClean
                | On::Relinquished
                | On::Gone
        )
    }
}

/// The directory of the MESI protocol, laid out.
pub(super) fn mesi() -> DirectoryTable {
    DirectoryTable::new(MESI_DIRECTORY)
}
