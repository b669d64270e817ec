//! The store as the workers of a compute server see it.

use super::Configuration;
use super::rights::{MappedServer, Rights, verb_error};
use crate::protocol::{Counts, LogArea, Member, Slot, View};
use crate::tables::{TableLayout, TransactionId};
use crate::verbs::{Connection, Emulated, Link, Posts, ServerId, VerbError};
use core::cell::Cell;
use core::fmt::Debug;
use std::sync::Arc;

/// The store as a worker of a compute server sees it.
#[derive(Debug)]
pub struct Members<C = Direct> {
    rights: Arc<Rights>,
    connector: C,
}

impl<C> Members<C> {
    fn configuration(&self) -> Configuration {
        self.rights.store.configuration()
    }

    pub(super) fn new(rights: &Arc<Rights>, connector: C) -> Self {
        Self {
            rights: Arc::clone(rights),
            connector,
        }
    }
}

/// Makes the connections of a worker to the memory servers, each over a connection of type `S`.
pub trait Connector<S = MappedServer>: Debug {
    /// The type of the connections that this connector makes.
    type Connection: Connection;

    /// Returns a connection to the memory server of the connection `server`.
    fn connect(&self, server: S) -> Self::Connection;
}

/// Connects a worker to mapped memory, which verbs access when they are posted.
#[derive(Debug)]
pub struct Direct;

impl<S: Connection> Connector<S> for Direct {
    type Connection = S;

    fn connect(&self, server: S) -> S {
        server
    }
}

/// Connects a worker to mapped memory, by an emulated link for each connection.
#[derive(Debug)]
pub struct Behind {
    link: Link,
    seed: Cell<u64>,
}

impl Behind {
    /// Returns a connector that emulates links. `seed` determines their jitter.
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            seed: Cell::new(seed),
        }
    }
}

impl<S: Posts> Connector<S> for Behind {
    type Connection = Emulated<S>;

    fn connect(&self, server: S) -> Self::Connection {
        self.seed.set(self.seed.get().wrapping_add(1));
        Emulated::new(server, self.link, self.seed.get())
    }
}

impl<C: Connector> View for Members<C> {
    type Connection = C::Connection;

    fn connect(&self, server: ServerId) -> Result<C::Connection, VerbError> {
        let mapped = MappedServer::new(&self.rights, server);
        let mapped = mapped.map_err(|error| verb_error(server, &error))?;
        Ok(self.connector.connect(mapped))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.configuration().layout(table)
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.configuration().failed(process)
    }

    fn epoch(&self) -> u64 {
        self.configuration().epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.configuration().lost(epoch).collect()
    }

    fn steps(&self, epoch: u64) -> u8 {
        self.configuration().steps(epoch)
    }

    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId> {
        self.configuration().begun(process, coordinator)
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.configuration().record_commit(transaction);
    }

    fn leave_latches(&self) {
        self.rights.leave_latches();
    }
}

impl<C: Connector> Member for Members<C> {
    fn is_over(&self, epoch: u64) -> bool {
        self.configuration().is_over(epoch)
    }

    fn is_settled(&self, epoch: u64) -> bool {
        self.configuration().is_settled(epoch)
    }

    fn is_under_recovery(&self, process: u16) -> bool {
        let configuration = self.configuration();
        let generations = self.rights.process.tables().generations();
        let owner = configuration.owner_of(process);
        owner.is_some_and(|owner| generations.is_gone(owner)) && !configuration.has_failed(process)
    }

    fn stragglers(&self, epoch: u64) -> Vec<TransactionId> {
        let own = self.rights.process.instance();
        let all = self.configuration().stragglers(epoch);
        all.filter(|(process, _)| *process != own)
            .map(|(_, it)| it)
            .collect()
    }

    fn fence(&self, transaction: TransactionId) {
        // Its process id may have another owner by now, so the instance is that of the commit.
        let configuration = self.configuration();
        let own = self.rights.process.instance();
        let mut late = configuration.stragglers(configuration.epoch());
        let late = late.find(|(server, it)| *it == transaction && *server != own);
        let Some((server, _)) = late else {
            return;
        };
        tracing::warn!(%server, %transaction, "a commit delays an epoch; its server is fenced");
        if let Err(error) = self.rights.process.fence(server) {
            tracing::error!(%server, %error, "a compute server could not be fenced");
            // The server is dead. If it was recovered by a member of the pod that is not one of
            // the store, its commit would delay the epoch until another server joins.
            self.rights.store.recover_settled(&self.rights.process);
        }
    }

    fn delays(&self, epoch: u64) -> bool {
        let own = self.rights.process.instance();
        let mut all = self.configuration().stragglers(epoch);
        self.rights.has_left_latches() && all.any(|(process, _)| process == own)
    }

    fn is_stopping(&self) -> bool {
        self.configuration().is_stopping(&self.rights.process)
    }

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        let configuration = self.configuration();
        configuration.enter_commit(self.rights.area(), transaction, epoch)
    }

    fn leave_commit(&self, transaction: TransactionId, is_committed: bool) {
        let configuration = self.configuration();
        configuration.leave_commit(self.rights.area(), transaction, is_committed);
    }

    fn log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        self.rights.complete_log(epoch)
    }

    fn recoveries(&self) -> u64 {
        self.configuration().recoveries()
    }

    fn is_recovering(&self) -> bool {
        self.configuration().is_recovering()
    }

    fn take_slot(&self) -> Option<Slot> {
        self.rights.slots().pop()
    }

    fn publish(&self, events: Counts) {
        self.configuration().count(events);
    }

    fn return_slot(&self, slot: Slot) {
        self.rights.slots().push(slot);
    }
}
