//! The store as a simulated compute server sees it.

use super::super::network::{Network, Wire};
use super::{CLIENTS, COORDINATORS, OBSERVER, Plan, RESTORER, SUCCESSOR};
use core::cell::RefCell;
use core::task::Poll;
use outlive_store::protocol::{LastCommit, LogArea, Member, Protocol, Slot, View};
use outlive_store::tables::{Place, TableLayout, TransactionId, choose};
use outlive_store::verbs::{Connection, RemoteOffset, ServerId, VerbError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// What all servers know.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The memory servers.
    pub servers: Vec<ServerId>,
    /// The compute servers whose deaths are recorded.
    pub dead: BTreeSet<usize>,
    /// The process ids that the compute servers have, or had last; 0 is none.
    pub ids: Vec<u16>,
    /// The compute servers that have a process id, or had it when it failed.
    pub owners: BTreeMap<u16, usize>,
    /// The process ids that have failed, with the incarnations of their owners.
    pub failed: BTreeMap<u16, u64>,
    /// The process ids that failed and are available again.
    pub free: BTreeSet<u16>,
    /// The dead compute servers whose logs are recovered.
    pub recovered: BTreeSet<usize>,
    /// The lost memory servers and the steps of restorations, in order.
    pub changes: Vec<Change>,
    /// The places of the replicas of each partition.
    pub places: Vec<Vec<Place>>,
    /// The epochs of commits under way, by process id and coordinator.
    pub commits: HashMap<(u16, u16), u64>,
    /// What is recorded of the coordinators.
    pub last: HashMap<(u16, u16), LastCommit>,
    /// The log servers of each compute server.
    pub logs: Vec<Vec<ServerId>>,
    /// The number of recoveries that have begun, and the compute servers under recovery.
    pub recoveries: u64,
    pub recovering: HashSet<usize>,
    /// The number of live compute servers that have left latches.
    pub left_latches: u64,
    /// A live compute server that is taken for dead.
    pub suspected: Option<usize>,
}

/// A change of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Lost(ServerId),
    Step,
}

impl Configuration {
    pub fn lost(&self, epoch: usize) -> Vec<ServerId> {
        let lost = self.changes[..epoch].iter().filter_map(|it| match it {
            Change::Lost(server) => Some(*server),
            Change::Step => None,
        });
        lost.collect()
    }

    pub fn lost_now(&self) -> Vec<ServerId> {
        self.lost(self.changes.len())
    }

    pub fn steps(&self, epoch: usize) -> u8 {
        let steps = self.changes[..epoch].iter();
        steps.filter(|it| **it == Change::Step).count() as u8
    }

    pub fn steps_now(&self) -> u8 {
        self.steps(self.changes.len())
    }
}

/// The store as a simulated compute server sees it.
#[derive(Debug)]
pub(super) struct Simulated {
    pub network: Network,
    pub compute: usize,
    pub plan: Plan,
    pub configuration: Rc<RefCell<Configuration>>,
    pub slots: RefCell<Vec<Slot>>,
}

pub(super) const fn slot_words(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Pandora | Protocol::LatchToLog => 128,
        Protocol::Ford | Protocol::LogALatch => 512,
    }
}

pub(super) const fn area_bytes(protocol: Protocol) -> u64 {
    COORDINATORS as u64 * slot_words(protocol) as u64 * 8
}

/// The places of the replicas before the run.
pub(super) fn places(plan: &Plan, servers: &[ServerId]) -> Vec<Vec<Place>> {
    let places = |partition: u8| {
        let chosen = choose(partition.into(), servers, plan.replicas);
        let chosen = chosen.into_iter();
        chosen
            .map(|server| Place {
                server,
                base: base(plan, partition),
                step: 0,
            })
            .collect()
    };
    (0..plan.geometry().partitions).map(places).collect()
}

/// The start of a partition, which is the same in all servers.
pub(super) fn base(plan: &Plan, partition: u8) -> RemoteOffset {
    let logs = (OBSERVER as u64 + 1) * area_bytes(plan.protocol);
    RemoteOffset::new(logs + u64::from(partition) * plan.geometry().partition_bytes())
}

/// Returns whether an offset in a region belongs to a log.
pub(super) fn is_log(at: RemoteOffset, protocol: Protocol) -> bool {
    at < RemoteOffset::new((OBSERVER as u64 + 1) * area_bytes(protocol))
}

pub(super) fn words(plan: &Plan) -> usize {
    let logs = (OBSERVER as u64 + 1) * area_bytes(plan.protocol);
    let geometry = plan.geometry();
    let tables = u64::from(geometry.partitions) * geometry.partition_bytes();
    (logs + tables) as usize / 8
}

/// The process id of a compute server at the beginning. Successors have none, and recoverers and
/// detectors need none.
pub(super) fn first_id(compute: usize) -> u16 {
    let has_one = compute < CLIENTS || (RESTORER..SUCCESSOR).contains(&compute);
    match has_one || compute == OBSERVER {
        true => compute as u16 + 1,
        false => 0,
    }
}

/// The owners of the process ids at the beginning.
pub(super) fn owners() -> BTreeMap<u16, usize> {
    let owners = (0..=OBSERVER).map(|it| (first_id(it), it));
    owners.filter(|(id, _)| *id != 0).collect()
}

/// The incarnation of `compute` as the owner of a process id. No other owner has the same one.
pub(super) const fn incarnation(compute: usize) -> u64 {
    compute as u64 + 1
}

/// The attempt number before the first one of each coordinator of `compute`. Successive owners of
/// a process id begin with different numbers, as in the store.
pub(super) const fn attempt_before(compute: usize) -> u32 {
    (compute as u32).wrapping_mul(0x9E37_79B9)
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

    fn reconnect(&self, broken: &Wire) -> Poll<Result<Wire, VerbError>> {
        if self.network.is_dead(self.compute) {
            let server = broken.server();
            return Poll::Ready(Err(VerbError::Revoked { server }));
        }
        if self.plan.reconnects_early {
            return Poll::Ready(self.connect(broken.server()));
        }
        match self.network.try_reconnect(broken) {
            Some(wire) => Poll::Ready(Ok(wire)),
            None => Poll::Pending,
        }
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        let mut places = self.configuration.borrow().places.clone();
        places
            .iter_mut()
            .for_each(|it| it.sort_by_key(|place| place.step));
        (table == 0).then_some(TableLayout {
            geometry: self.plan.geometry(),
            places,
        })
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.configuration.borrow().failed.get(&process).copied()
    }

    fn epoch(&self) -> u64 {
        self.configuration.borrow().changes.len() as u64
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.configuration.borrow().lost(epoch as usize)
    }

    fn steps(&self, epoch: u64) -> u8 {
        self.configuration.borrow().steps(epoch as usize)
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

    /// The compute server ends now, and is recovered.
    fn leave_latches(&self) {
        if !self.network.is_dead(self.compute) {
            self.network.crash(self.compute);
            self.configuration.borrow_mut().left_latches += 1;
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
        let configuration = self.configuration.borrow();
        let owner = configuration.owners.get(&process);
        owner.is_some_and(|it| configuration.dead.contains(it))
            && !configuration.failed.contains_key(&process)
    }

    fn stragglers(&self, _: u64) -> Vec<TransactionId> {
        Vec::new()
    }

    fn fence(&self, _: TransactionId) {}

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        // A fenced compute server loses its rights to the configuration before those to memory
        // servers.
        let is_suspected = self.configuration.borrow().suspected == Some(self.compute);
        let is_fenced = is_suspected && !self.plan.keeps_rights;
        let is_current = !self.is_over(epoch) && !is_fenced;
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
        let configuration = &mut *self.configuration.borrow_mut();
        let (servers, logs) = (
            &configuration.servers,
            &mut configuration.logs[self.compute],
        );
        for index in 0..logs.len() {
            let spare = { servers.iter() }.find(|it| !lost.contains(it) && !logs.contains(it));
            // The slots at a new log server are empty: no other compute server has used them.
            if lost.contains(&logs[index])
                && let Some(spare) = spare
            {
                logs[index] = *spare;
            }
        }
        Ok(log_of(self.plan.protocol, self.compute, logs.clone()))
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
}
