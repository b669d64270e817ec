//! The store as a simulated compute server sees it.

use super::super::network::{Network, Wire};
use super::{COORDINATORS, GEOMETRY, MEMORY, OBSERVER, REPLICAS};
use core::cell::RefCell;
use outlive_store::protocol::{LastCommit, LogArea, Member, Protocol, Slot, View};
use outlive_store::tables::{Place, TableLayout, TransactionId, choose};
use outlive_store::verbs::{RemoteOffset, ServerId, VerbError};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What all servers know.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The process ids that have failed.
    pub failed: HashSet<u16>,
    /// The lost memory servers, in order.
    pub lost: Vec<ServerId>,
    /// The epochs of commits under way, by process id and coordinator.
    pub commits: HashMap<(u16, u16), u64>,
    /// What is recorded of the coordinators.
    pub last: HashMap<(u16, u16), LastCommit>,
    /// The log servers of each compute server.
    pub logs: Vec<Vec<ServerId>>,
    /// The number of recoveries that have begun, and the compute servers under recovery.
    pub recoveries: u64,
    pub recovering: HashSet<usize>,
}

/// The store as a simulated compute server sees it.
#[derive(Debug)]
pub(super) struct Simulated {
    pub network: Network,
    pub compute: usize,
    pub protocol: Protocol,
    pub configuration: Rc<RefCell<Configuration>>,
    pub slots: RefCell<Vec<Slot>>,
}

pub(super) const fn slot_words(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Pandora => 128,
        Protocol::Ford | Protocol::LogALatch => 512,
    }
}

pub(super) const fn area_bytes(protocol: Protocol) -> u64 {
    COORDINATORS as u64 * slot_words(protocol) as u64 * 8
}

pub(super) fn servers() -> Vec<ServerId> {
    (0..MEMORY).map(ServerId).collect()
}

pub(super) fn layout(protocol: Protocol) -> TableLayout {
    let logs = (OBSERVER as u64 + 1) * area_bytes(protocol);
    let places = |partition: u8| {
        let base = logs + u64::from(partition) * GEOMETRY.partition_bytes();
        let base = RemoteOffset::new(base);
        let chosen = choose(partition.into(), &servers(), REPLICAS);
        chosen
            .into_iter()
            .map(|server| Place { server, base })
            .collect()
    };
    TableLayout {
        geometry: GEOMETRY,
        places: (0..GEOMETRY.partitions).map(places).collect(),
    }
}

/// Returns whether an offset in a region belongs to a log.
pub(super) fn is_log(at: RemoteOffset, protocol: Protocol) -> bool {
    at < RemoteOffset::new((OBSERVER as u64 + 1) * area_bytes(protocol))
}

pub(super) fn words(protocol: Protocol) -> usize {
    let logs = (OBSERVER as u64 + 1) * area_bytes(protocol);
    let tables = u64::from(GEOMETRY.partitions) * GEOMETRY.partition_bytes();
    (logs + tables) as usize / 8
}

/// The process id of a compute server.
pub(super) const fn process(compute: usize) -> u16 {
    compute as u16 + 1
}

pub(super) fn log_of(protocol: Protocol, compute: usize, servers: Vec<ServerId>) -> LogArea {
    LogArea {
        base: RemoteOffset::new(compute as u64 * area_bytes(protocol)),
        servers,
        coordinators: COORDINATORS,
        slot_words: slot_words(protocol),
        protocol,
    }
}

impl View for Simulated {
    type Connection = Wire;

    fn connect(&self, server: ServerId) -> Result<Wire, VerbError> {
        Ok(self.network.connect(self.compute, server))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        (table == 0).then(|| layout(self.protocol))
    }

    fn failed(&self, process: u16) -> Option<u64> {
        let failed = &self.configuration.borrow().failed;
        failed.contains(&process).then_some(1)
    }

    fn epoch(&self) -> u64 {
        self.configuration.borrow().lost.len() as u64
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.configuration.borrow().lost[..epoch as usize].to_vec()
    }

    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId> {
        let last = &self.configuration.borrow().last;
        last.get(&(process, coordinator)).map(|it| it.begun)
    }

    fn record_commit(&self, transaction: TransactionId) {
        let last = &mut self.configuration.borrow_mut().last;
        if let Some(last) = last.get_mut(&(transaction.process(), transaction.coordinator())) {
            last.committed = Some(transaction);
        }
    }
}

impl Member for Simulated {
    fn is_over(&self, epoch: u64) -> bool {
        self.epoch() > epoch
    }

    fn is_settled(&self, epoch: u64) -> bool {
        let configuration = self.configuration.borrow();
        configuration.commits.values().all(|it| *it >= epoch)
    }

    fn is_under_recovery(&self, process: u16) -> bool {
        self.network.is_dead(usize::from(process) - 1) && self.failed(process).is_none()
    }

    fn stragglers(&self, _: u64) -> Vec<TransactionId> {
        Vec::new()
    }

    fn fence(&self, _: TransactionId) {}

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        let is_current = !self.is_over(epoch);
        if is_current {
            let configuration = &mut *self.configuration.borrow_mut();
            let coordinator = (transaction.process(), transaction.coordinator());
            configuration.commits.insert(coordinator, epoch);
            let last = configuration.last.entry(coordinator).or_insert(LastCommit {
                begun: transaction,
                committed: None,
            });
            last.begun = transaction;
        }
        is_current
    }

    fn leave_commit(&self, transaction: TransactionId, is_committed: bool) {
        if is_committed {
            self.record_commit(transaction);
        }
        let coordinator = (transaction.process(), transaction.coordinator());
        let commits = &mut self.configuration.borrow_mut().commits;
        commits.remove(&coordinator);
    }

    fn log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        let lost = self.lost(epoch);
        let logs = &mut self.configuration.borrow_mut().logs[self.compute];
        for index in 0..logs.len() {
            let spare = servers();
            let spare = { spare.iter() }.find(|it| !lost.contains(it) && !logs.contains(it));
            // The slots at a new log server are empty: no other compute server has used them.
            if lost.contains(&logs[index])
                && let Some(spare) = spare
            {
                logs[index] = *spare;
            }
        }
        Ok(log_of(self.protocol, self.compute, logs.clone()))
    }

    fn take_slot(&self) -> Option<Slot> {
        self.slots.borrow_mut().pop()
    }

    fn return_slot(&self, slot: Slot) {
        self.slots.borrow_mut().push(slot);
    }

    fn recoveries(&self) -> u64 {
        self.configuration.borrow().recoveries
    }

    fn is_recovering(&self) -> bool {
        !self.configuration.borrow().recovering.is_empty()
    }

    fn leave_latches(&self) {}
}
