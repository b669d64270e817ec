//! The store as a worker sees it: its connections, its tables, and the facts that servers share.

use super::{Counts, LogArea};
use crate::tables::{TableLayout, TransactionId};
use crate::verbs::{Connection, ServerId, VerbError};
use core::task::Poll;

/// The store as a worker sees it. The worker may also be one that recovers or checks the store.
pub trait View: core::fmt::Debug {
    /// A connection to a memory server.
    type Connection: Connection;

    /// Connects to a memory server.
    ///
    /// # Errors
    /// [`VerbError::ServerDied`] if the server is not live.
    fn connect(&self, server: ServerId) -> Result<Self::Connection, VerbError>;

    /// Connects again to the server of a connection that has broken, after the server has drained
    /// the old connection. Returns `Pending` until then, or until the server is known to be dead;
    /// the caller polls again.
    ///
    /// # Errors
    /// Returns the errors of [`connect`](Self::connect), and [`VerbError::Revoked`].
    fn reconnect(&self, broken: &Self::Connection) -> Poll<Result<Self::Connection, VerbError>> {
        Poll::Ready(self.connect(broken.server()))
    }

    /// Returns the layout of a table, if it exists.
    fn layout(&self, table: u8) -> Option<TableLayout>;

    /// Returns the incarnation of the compute server with this process id, a number that no other
    /// owner of the id has, if that server has failed and its logs are recovered, so that its
    /// latches may be stolen.
    fn failed(&self, process: u16) -> Option<u64>;

    /// Returns the epoch: the number of memory servers that were lost, and of steps of
    /// restorations.
    fn epoch(&self) -> u64;

    /// Returns the memory servers that are lost in `epoch`, which has begun.
    fn lost(&self, epoch: u64) -> Vec<ServerId>;

    /// Returns the number of steps of restorations in `epoch`, which has begun. The number
    /// determines which of the replicas that have [joined](crate::tables::Place::step) their
    /// partitions are used.
    fn steps(&self, epoch: u64) -> u8;

    /// Returns the last attempt of a coordinator that began its commit, if it is known.
    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId>;

    /// Records that a recovery rolls a transaction forward.
    fn record_commit(&self, transaction: TransactionId);

    /// Records that latches of this compute server may remain: an attempt ended without releasing
    /// them, or a worker was dropped before their releases were complete. The process id must not
    /// be used again before it has failed and its logs are recovered. A recovery leaves no latch.
    fn leave_latches(&self);
}

/// The store as a worker of a compute server sees it.
pub trait Member: View {
    /// Returns whether another epoch has begun after `epoch`.
    fn is_over(&self, epoch: u64) -> bool;

    /// Returns whether `epoch`, which has begun, is settled: no compute server is in a commit of an
    /// earlier epoch, or died in one and is not recovered.
    fn is_settled(&self, epoch: u64) -> bool;

    /// Returns whether the compute server with this process id has died and is not recovered yet.
    fn is_under_recovery(&self, process: u16) -> bool;

    /// Returns the commits of earlier epochs that delay `epoch`, except those of this compute
    /// server and those of dead ones that a survivor is recovering.
    fn stragglers(&self, epoch: u64) -> Vec<TransactionId>;

    /// Fences the compute server of a transaction, and returns without waiting for that.
    fn fence(&self, transaction: TransactionId);

    /// Returns whether a commit of this compute server delays `epoch`, perhaps until the server
    /// ends, because [`leave_latches`](View::leave_latches) was called.
    fn delays(&self, epoch: u64) -> bool {
        // A worker of a proof knows its own commits.
        let _ = epoch;
        false
    }

    /// Returns whether the store is being stopped, so that no attempt begins.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Registers a commit in `epoch`. Returns `false`, and registers nothing, if the epoch is over.
    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool;

    /// Ends the registration of a commit, and records whether the transaction was committed.
    fn leave_commit(&self, transaction: TransactionId, is_committed: bool);

    /// Returns the log slots of the compute server. Log servers that are lost in `epoch` are
    /// replaced, as far as there are enough live servers. The entries of commits under way remain
    /// at the others.
    ///
    /// # Errors
    /// A live memory server cannot be reached.
    fn log(&self, epoch: u64) -> Result<LogArea, VerbError>;

    /// Takes a log slot of the compute server, if one is free.
    fn take_slot(&self) -> Option<Slot>;

    /// Returns a log slot that a coordinator has used.
    fn return_slot(&self, slot: Slot);

    /// Returns the number of recoveries of compute servers that have begun.
    fn recoveries(&self) -> u64;

    /// Returns whether a compute server is being recovered.
    fn is_recovering(&self) -> bool;

    /// Adds the numbers of events in transactions to the store's totals.
    fn publish(&self, events: Counts) {
        // Proofs need no totals.
        let _ = events;
    }
}

/// A log slot of a compute server. Its coordinators use it one after another.
#[derive(Debug)]
pub struct Slot {
    pub(super) number: u16,
    /// The number of the last attempt. It continues with the next coordinator, so that attempts
    /// remain distinct.
    pub(super) attempt: u32,
}

impl Slot {
    /// Returns a slot that no coordinator has used. The number of its first attempt follows
    /// `attempt`, which differs between the owners of a process id, so that ids of attempts do not
    /// repeat.
    pub const fn new(number: u16, attempt: u32) -> Self {
        Self { number, attempt }
    }

    /// Returns the number of the slot in the log area.
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// The reason why a log slot cannot be taken: all are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all {coordinators} log slots of the compute server are in use; drop a coordinator, or create \
     the store with more (`StoreOptions::compute_servers`)"
)]
pub struct NoSlot {
    /// The number of log slots of the compute server.
    pub coordinators: u16,
}
