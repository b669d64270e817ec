//! The table of a replicated store.

use crate::protocol::table::{Row, names, row};

names! {
    /// The states of a store: the rows of its table. First letter: unsent, REPL sent, all
    /// acknowledged. Second letter: at the head of its core's store buffer, and the line may be
    /// written.
    pub enum StoreState {
        /// In the store buffer, behind others; not replicated.
        U,
        /// At the head; not replicated. The line may not be written.
        UH,
        /// At the head, and the line may be written; not replicated.
        UW,
        /// Behind others; acknowledgements are missing.
        R,
        /// At the head; acknowledgements are missing. The line may not be written.
        RH,
        /// At the head, and the line may be written; acknowledgements are missing.
        RW,
        /// At the head; acknowledgements are missing. The line was writable, and is lost: it is not
        /// requested again before they have arrived.
        RL,
        /// Behind others; all replicas have it.
        A,
        /// At the head; all replicas have it. The line may not be written.
        AH,
        /// Committed.
        C,
    }
}

names! {
    /// The events of a store: the columns of its table.
    pub enum StoreEvent {
        /// It is to be replicated now.
        Replicate,
        /// It is to be replicated, and has no replicas.
        ReplicateNowhere,
        /// A replica has it; others have not answered.
        Ack,
        /// The last of its replicas has it.
        AckLast,
        /// It is the oldest store of its core now; its line may not be written.
        Head,
        /// It is the oldest store of its core now, and its line may be written.
        HeadWritable,
        /// Its line may be written from now on. Only for the head.
        Gained,
        /// Its line may not be written any more. Only for the head.
        Lost,
        /// Its line may not be written, and nothing is under way that would change that. Only for
        /// the head.
        Idle,
        /// A recovery: none of its messages is under way, and its entries in logs are forgotten.
        Restart,
        /// An acknowledgement that is not awaited: without a row in any state.
        Stray,
    }
}

/// An operation of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOperation {
    /// Sends REPL to each replica.
    Repl,
    /// Requests permission to write.
    Ask,
    /// Performs the store.
    Commit,
    /// Sends VAL to each replica.
    Val,
}

use StoreEvent as On;
use StoreOperation::{Ask, Commit, Repl, Val};
use StoreState::{A, AH, C, R, RH, RL, RW, U, UH, UW};

/// The transitions of a store, from retirement to commit. A pair without a row is impossible.
#[rustfmt::skip]
pub const STORE: &[Row<StoreState, StoreEvent, StoreOperation>] = &[
    row(U,  On::Replicate,        &[Repl],        R),
    row(U,  On::ReplicateNowhere, &[],            A),
    row(U,  On::Head,             &[],            UH),
    row(U,  On::HeadWritable,     &[],            UW),
    row(U,  On::Restart,          &[],            U),

    row(UH, On::Replicate,        &[Repl],        RH),
    row(UH, On::ReplicateNowhere, &[],            AH),
    row(UH, On::Gained,           &[],            UW),
    row(UH, On::Idle,             &[Ask],         UH),
    row(UH, On::Restart,          &[],            UH),

    row(UW, On::Replicate,        &[Repl],        RW),
    row(UW, On::ReplicateNowhere, &[Commit],      C),
    row(UW, On::Lost,             &[],            UH),
    row(UW, On::Restart,          &[],            UW),

    row(R,  On::Ack,              &[],            R),
    row(R,  On::AckLast,          &[],            A),
    row(R,  On::Head,             &[],            RH),
    row(R,  On::HeadWritable,     &[],            RW),
    row(R,  On::Restart,          &[],            U),

    row(RH, On::Ack,              &[],            RH),
    row(RH, On::AckLast,          &[],            AH),
    row(RH, On::Gained,           &[],            RW),
    row(RH, On::Idle,             &[Ask],         RH),
    row(RH, On::Restart,          &[],            UH),

    row(RW, On::Ack,              &[],            RW),
    row(RW, On::AckLast,          &[Commit, Val], C),
    // The acknowledgements stay valid: they are about the store, not about the line's owner.
    row(RW, On::Lost,             &[],            RL),
    row(RW, On::Restart,          &[],            UW),

    row(RL, On::Ack,              &[],            RL),
    row(RL, On::AckLast,          &[],            AH),
    // Another access of its node has brought it.
    row(RL, On::Gained,           &[],            RW),
    row(RL, On::Restart,          &[],            UH),

    row(A,  On::Head,             &[],            AH),
    row(A,  On::HeadWritable,     &[Commit, Val], C),
    row(A,  On::Restart,          &[],            U),

    row(AH, On::Gained,           &[Commit, Val], C),
    row(AH, On::Idle,             &[Ask],         AH),
    row(AH, On::Restart,          &[],            UH),
];

impl StoreState {
    /// Returns whether the store is the oldest of its core.
    pub fn is_head(self) -> bool {
        matches!(self, UH | UW | RH | RW | RL | AH)
    }

    /// Returns whether it is at the head and, by its inputs, its line may be written.
    pub fn is_writable(self) -> bool {
        matches!(self, UW | RW)
    }

    /// Returns whether it is at the head and, by its inputs, its line may not be written.
    pub fn wants_line(self) -> bool {
        matches!(self, UH | RH | RL | AH)
    }

    /// Returns whether the line is to be requested when nothing is under way that would bring it.
    pub fn asks(self) -> bool {
        matches!(self, UH | RH | AH)
    }

    /// Returns whether it has not been replicated.
    pub fn is_unsent(self) -> bool {
        matches!(self, U | UH | UW)
    }
}
