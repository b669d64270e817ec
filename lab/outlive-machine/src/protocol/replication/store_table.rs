//! The table of a store that is replicated.

use crate::protocol::table::{Row, names, row};

names! {
    /// How far a store is: the rows of its table. First letter: unsent, REPL sent, all acknowledged. Second letter: at the
    /// head of its core's store buffer, and the line may be written.
    pub enum StoreState {
        /// In the store buffer, behind others; not replicated.
        U,
        /// At the head; not replicated. The line may not be written.
        UH,
        /// At the head, and the line may be written; not replicated.
        UW,
        /// Behind others; acknowledgements are to come.
        R,
        /// At the head; acknowledgements are to come. The line may not be written.
        RH,
        /// At the head, and the line may be written; acknowledgements are to come.
        RW,
        /// At the head; acknowledgements are to come. The line was to be had, and is lost: it is not asked for again
        /// before they are in.
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
    /// What can happen to a store: the columns of its table.
    pub enum StoreEvent {
        /// It is to be replicated now.
        Replicate,
        /// It is to be replicated, and there is nobody to do it.
        ReplicateNowhere,
        /// A replica has it; others are to answer.
        Ack,
        /// The last of its replicas has it.
        AckLast,
        /// It is the oldest store of its core now; its line may not be written.
        Head,
        /// It is the oldest store of its core now, and its line may be written.
        HeadWritable,
        /// Its line may be written from now on. Told to the head alone.
        Gained,
        /// Its line may not be written any more. Told to the head alone.
        Lost,
        /// Its line may not be written, and nothing is under way that would change that. Told to the head alone.
        Idle,
        /// A recovery: nothing that it has sent is under way, and what is of it in logs is forgotten.
        Restart,
        /// An acknowledgement that is not awaited: without a row in any state.
        Stray,
    }
}

/// What the table says is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOperation {
    /// REPL to each replica.
    Repl,
    /// Leave to write is asked for.
    Ask,
    /// The store takes place.
    Commit,
    /// VAL to each replica.
    Val,
}

use StoreEvent as On;
use StoreOperation::{Ask, Commit, Repl, Val};
use StoreState::{A, AH, C, R, RH, RL, RW, U, UH, UW};

/// A store, from its retirement to its commit. What is not here cannot happen.
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
    // What has been sent stays good: it is about the store, not about the line's owner.
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
    /// Whether the store is the oldest of its core.
    pub fn is_head(self) -> bool {
        matches!(self, UH | UW | RH | RW | RL | AH)
    }

    /// Whether it is at the head and its line may be written, as far as it has been told.
    pub fn is_writable(self) -> bool {
        matches!(self, UW | RW)
    }

    /// Whether it is at the head and its line may not be written, as far as it has been told.
    pub fn wants_line(self) -> bool {
        matches!(self, UH | RH | RL | AH)
    }

    /// Whether the line is to be asked for when nothing is under way that would bring it.
    pub fn asks(self) -> bool {
        matches!(self, UH | RH | AH)
    }

    /// Whether it has not been replicated.
    pub fn is_unsent(self) -> bool {
        matches!(self, U | UH | UW)
    }
}
