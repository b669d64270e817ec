//! The directory's table.

use super::directory::DirectoryTable;
use super::table::{Row, names, row};

names! {
    /// The states of a line: the rows of the table. Two letters: a transaction is under way.
    pub enum DirectoryState {
        /// No node has a copy.
        I,
        /// The holders, two or more, may have copies to read.
        S,
        /// The holder may have the only copy, and may have written it.
        O,
        /// Invalidates the readers for a writer that gets contents.
        SX,
        /// Invalidates the other readers for a writer that has the contents.
        SU,
        /// Recalls an owned line for a reader.
        OS,
        /// Recalls an owned line for a writer.
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
    /// The events of a line: the columns of the table. *Alone*: the record names no other node.
    /// While a transaction is under way, requests come as `RdS`, `RdX` and `Upgrade`.
    pub enum DirectoryEvent {
        /// A request to read; other nodes may have copies.
        RdS,
        /// A request to read; no other node has a copy.
        RdSAlone,
        /// A request to write by a node without a copy; other nodes may have copies.
        RdX,
        /// A request to write by a node without a copy; no other node has one.
        RdXAlone,
        /// A request to write by a reader; there may be others.
        Upgrade,
        /// A request to write by the only reader. Impossible while no node dies.
        UpgradeAlone,
        /// An awaited acknowledgement of an invalidation; others have not arrived.
        Ack,
        /// The last awaited acknowledgement of an invalidation.
        AckLast,
        /// The owner has become a reader and hands in the contents that it wrote.
        Downgraded,
        /// The owner has become a reader and had written nothing.
        DowngradedClean,
        /// The owner has given up its copy and hands in the contents that it wrote.
        Relinquished,
        /// The owner has no copy, and memory is current.
        Gone,
        /// The requester has received its grant.
        Done,
        /// The owner puts the line back.
        PutM,
        /// A node puts back a line that has been recalled from it in the meantime.
        PutMStale,
        /// A message that cannot have been sent: without a row in any state.
        Stray,
    }
}

/// An operation of the table. *The sender* is the sender of the message of the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryOperation {
    /// Begins to serve the sender's request.
    Begin,
    /// Puts the sender's request into the queue.
    Enqueue,
    /// Ends the transaction; the next request is served.
    Finish,
    /// Makes the requester the only holder, at a new epoch.
    Own,
    /// Adds the requester to the holders.
    Join,
    /// Removes the sender from the holders.
    Forget,
    /// Writes the message's contents to memory.
    WriteMemory,
    /// Sends `Inv` to all holders but the requester, and awaits their acknowledgements.
    Invalidate,
    /// Sends `RecallShared` to the holder, and awaits its answer.
    RecallShared,
    /// Sends `RecallExclusive` to the holder, and awaits its answer.
    RecallExclusive,
    /// Sends `PutAck` to the sender.
    PutAck,
    /// Sends `GrantS` with memory's contents to the requester.
    GrantS,
    /// Sends `GrantE` with memory's contents to the requester.
    GrantE,
    /// Sends `GrantM` with memory's contents to the requester.
    GrantM,
    /// Sends `GrantUpgrade` to the requester.
    GrantUpgrade,
}

use DirectoryEvent as On;
use DirectoryOperation::{
    Begin, Enqueue, Finish, Forget, GrantE, GrantM, GrantS, GrantUpgrade, Invalidate, Join, Own,
    PutAck, RecallExclusive, RecallShared, WriteMemory,
};
use DirectoryState::{I, ID, O, OD, OS, OX, S, SD, SU, SX};

/// The directory of the MESI protocol. A pair without a row is impossible; see [the module](super).
#[rustfmt::skip]
pub const MESI_DIRECTORY: &[Row<DirectoryState, DirectoryEvent, DirectoryOperation>] = &[
    row(I,  On::RdSAlone,        &[Begin, Own, GrantE],             OD),
    row(I,  On::RdXAlone,        &[Begin, Own, GrantM],             OD),
    row(I,  On::PutMStale,       &[PutAck],                         I),

    // The record of a line with readers names at least two, because a lone one is its owner and
    // readers go silently. The requester may be one of them, and have dropped its copy.
    row(S,  On::RdS,             &[Begin, Join, GrantS],            SD),
    row(S,  On::RdX,             &[Begin, Invalidate],              SX),
    row(S,  On::Upgrade,         &[Begin, Invalidate],              SU),
    row(S,  On::PutMStale,       &[PutAck],                         S),

    row(O,  On::RdS,             &[Begin, RecallShared],            OS),
    // The recorded owner requests again: it has dropped its copy silently, so it had not written
    // it.
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
    // The recall will find nothing, or the write-back buffer; its answer is awaited all the same.
    // The contents must be kept here, because after the PutAck the node has none to answer with.
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
    // The node wrote the line and put it back so fast that the PutM overtook Done.
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
    /// Returns whether no transaction is under way.
    pub fn is_stable(self) -> bool {
        matches!(self, I | S | O)
    }

    /// Returns whether a transaction waits for nothing but `Done`.
    pub fn is_granted(self) -> bool {
        matches!(self, SD | OD | ID)
    }

    /// Returns whether, by the record, a node may have the only copy.
    pub fn is_owned(self) -> bool {
        matches!(self, O | OS | OX | OD)
    }
}

impl DirectoryEvent {
    /// Returns whether it is an answer to an invalidation or recall.
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

/// The table of the directory of the MESI protocol.
pub(super) fn mesi() -> DirectoryTable {
    DirectoryTable::new(MESI_DIRECTORY)
}
