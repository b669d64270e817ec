//! A store of a real configuration and three memory servers in one memory, with one small table.

use outlive::membership::Instance;
use outlive_memory::{Memory, Offset};
use outlive_store::protocol::{
    LogArea, Member, Protocol, Recovered, Slot, Table, View, Worker, recover_logs,
};
use outlive_store::servers::{Configuration, Phase, Restored, Segments, Sizes, restore};
use outlive_store::tables::{Geometry, TableLayout, TransactionId};
use outlive_store::verbs::{Mapped, Region, ServerId, VerbError, block_on};
use std::cell::RefCell;
use std::rc::Rc;

/// The number of bytes of the memory.
pub const SIZE: u64 = 28 << 10;
/// The table.
pub const TABLE: Table<[u64; 2]> = Table::new(0);
/// Its sizes.
pub const GEOMETRY: Geometry = Geometry {
    value_words: 2,
    partitions: 1,
    main: 1,
    extra: 1,
};
/// The place of the configuration.
const CONFIGURATION: Offset = Offset::new(64);

const CONFIGURATION_BYTES: u64 = 12 << 10;
const REGION: Region = Region {
    key: 1,
    bytes: 5 << 10,
};

/// The sizes of a store with `protocol`.
pub fn sizes(protocol: Protocol) -> Sizes {
    Sizes {
        replicas: 2,
        memory_servers: 64,
        process_ids: 8,
        tables: 1,
        log_areas: 2,
        coordinators: 1,
        log_slot_bytes: 1024,
        protocol,
    }
}

/// The start of a memory server's region.
pub fn region(server: ServerId) -> Offset {
    Offset::new(64 + CONFIGURATION_BYTES + u64::from(server.0) * REGION.bytes)
}

/// The number of bytes of a region.
pub const REGION_BYTES: u64 = REGION.bytes;

/// A store in `memory`, as one of its servers or a survivor sees it.
#[derive(Clone, Copy, Debug)]
pub struct SmallStore<M: Memory> {
    memory: M,
    /// The configuration.
    pub configuration: Configuration<M>,
}

impl<M: Memory> SmallStore<M> {
    /// Creates a store without servers and tables.
    pub fn create(memory: M, protocol: Protocol) -> Self {
        Configuration::create(memory, CONFIGURATION, sizes(protocol), false);
        Self::open(memory)
    }

    /// Opens the store.
    pub fn open(memory: M) -> Self {
        let opened = Configuration::open(memory, CONFIGURATION, CONFIGURATION_BYTES);
        Self {
            memory,
            configuration: opened.expect("a configuration"),
        }
    }

    /// Adds a memory server of the process `owner`, whose memory is zeroed.
    pub fn serve(&self, owner: Instance) {
        let create = |_, _| Ok::<_, ()>(REGION);
        let joined = self.configuration.join_memory(owner, self, create);
        assert!(joined.is_ok_and(|it| it.is_some()));
    }

    /// Executes `work` as a compute server that joins as `owner` and leaves.
    pub fn compute<T>(&self, owner: Instance, work: impl FnOnce(&Rc<Worker<Joined<M>>>) -> T) -> T {
        let configuration = self.configuration;
        let process = configuration.join_compute(owner).expect("a process id");
        let claimed = configuration.claim_log_area(owner, process);
        let (area, log) = claimed.expect("live servers").expect("a free log area");
        let view = Joined {
            store: *self,
            area,
            // The attempts of each owner begin elsewhere, as those of a compute server do.
            slots: RefCell::new(vec![Slot::new(0, owner.id * 1000)]),
        };
        let result = work(&Worker::new(view, process, log, 1));
        configuration.leave_compute(process, owner);
        result
    }

    /// Restores lost replicas as a compute server that joins as `owner` and leaves.
    pub fn restore(&self, owner: Instance) -> Result<Restored, String> {
        let restored = self.compute(owner, |it| restore(self.configuration, owner, it));
        restored.map_err(|error| error.to_string())
    }
}

impl<M: Memory> Segments for SmallStore<M> {
    fn remove(&self, _: ServerId, _: u64) {}

    fn poison(&self, _: ServerId, _: u64, _: Region) {}

    fn recover_logs(&self, process: u16, area: &LogArea) -> Option<Recovered> {
        block_on(recover_logs(&Worker::new(*self, process, area.clone(), 0))).ok()
    }
}

impl<M: Memory> View for SmallStore<M> {
    type Connection = Mapped<M>;

    fn connect(&self, server: ServerId) -> Result<Mapped<M>, VerbError> {
        let entry = self.configuration.memory_server(server);
        let entry = entry.filter(|it| it.phase == Phase::Live);
        let entry = entry.ok_or(VerbError::ServerDied { server })?;
        let live = self.configuration.liveness(&entry);
        Ok(Mapped::new(
            self.memory,
            server,
            region(server),
            REGION,
            live,
        ))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.configuration.layout(table)
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.configuration.failed(process)
    }

    fn epoch(&self) -> u64 {
        self.configuration.epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.configuration.lost(epoch).collect()
    }

    fn steps(&self, epoch: u64) -> u8 {
        self.configuration.steps(epoch)
    }

    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId> {
        self.configuration.begun(process, coordinator)
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.configuration.record_commit(transaction);
    }

    fn leave_latches(&self) {}
}

/// The store as a compute server sees it.
#[derive(Debug)]
pub struct Joined<M: Memory> {
    store: SmallStore<M>,
    area: u16,
    slots: RefCell<Vec<Slot>>,
}

impl<M: Memory> View for Joined<M> {
    type Connection = Mapped<M>;

    fn connect(&self, server: ServerId) -> Result<Mapped<M>, VerbError> {
        self.store.connect(server)
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        self.store.layout(table)
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.store.failed(process)
    }

    fn epoch(&self) -> u64 {
        self.store.epoch()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        self.store.lost(epoch)
    }

    fn steps(&self, epoch: u64) -> u8 {
        self.store.steps(epoch)
    }

    fn begun(&self, process: u16, coordinator: u16) -> Option<TransactionId> {
        self.store.begun(process, coordinator)
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.store.record_commit(transaction);
    }

    fn leave_latches(&self) {}
}

impl<M: Memory> Member for Joined<M> {
    fn is_over(&self, epoch: u64) -> bool {
        self.store.configuration.is_over(epoch)
    }

    fn is_settled(&self, epoch: u64) -> bool {
        self.store.configuration.is_settled(epoch)
    }

    fn is_under_recovery(&self, _: u16) -> bool {
        false
    }

    fn stragglers(&self, _: u64) -> Vec<TransactionId> {
        Vec::new()
    }

    fn fence(&self, _: TransactionId) {}

    fn enter_commit(&self, transaction: TransactionId, epoch: u64) -> bool {
        let configuration = self.store.configuration;
        configuration.enter_commit(self.area, transaction, epoch)
    }

    fn leave_commit(&self, transaction: TransactionId, is_committed: bool) {
        let configuration = self.store.configuration;
        configuration.leave_commit(self.area, transaction, is_committed);
    }

    fn log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        // The slots of all servers are clear: each compute server commits before a loss, or leaves.
        let configuration = self.store.configuration;
        configuration.replace_log_servers(self.area, epoch, |_, _| Ok(()))
    }

    fn take_slot(&self) -> Option<Slot> {
        self.slots.borrow_mut().pop()
    }

    fn return_slot(&self, slot: Slot) {
        self.slots.borrow_mut().push(slot);
    }

    fn recoveries(&self) -> u64 {
        self.store.configuration.recoveries()
    }

    fn is_recovering(&self) -> bool {
        self.store.configuration.is_recovering()
    }
}
