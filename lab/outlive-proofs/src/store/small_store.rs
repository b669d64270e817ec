//! A store of two memory servers in one memory, with one small table: for sweeps, scenarios and
//! constructed interleavings of the real protocol.

use core::fmt;
use core::future::{Ready, ready};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_store::protocol::{
    LogArea, Member, Policy, Protocol, Retry, Slot, Table, View, Worker, recover_logs_in_groups,
    release_stray,
};
use outlive_store::tables::{Geometry, ObjectId, Place, TableLayout, TransactionId};
use outlive_store::verbs::{
    Batch, Completed, Connection, Liveness, Mapped, Region, RemoteOffset, ServerId, VerbError,
    VerbKind, block_on,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The number of bytes of the memory.
pub const SIZE: u64 = 24 << 10;
/// The compute server that dies.
pub const VICTIM: u16 = 1;
/// The compute server that survives, or is the next one to die.
pub const SURVIVOR: u16 = 2;
/// The compute server that always survives.
pub const OTHER: u16 = 3;
/// The table.
pub const TABLE: Table<[u64; 2]> = Table::new(0);
/// Its sizes.
pub const GEOMETRY: Geometry = Geometry {
    value_words: 2,
    partitions: 1,
    main: 1,
    extra: 1,
};

/// The incarnations of the process ids. One is odd if the owner has failed and its logs are
/// recovered.
const INCARNATIONS: Offset = Offset::new(64);
/// The liveness word of both memory servers.
const LIVE: Offset = Offset::new(128);
/// The number of the protocol.
const PROTOCOL: Offset = Offset::new(256);
const REGION: Region = Region {
    key: 1,
    bytes: BASE + 1024,
};
const SERVERS: u16 = 2;
const COORDINATORS: u16 = 2;
const SLOT_WORDS: usize = 160;
const AREA_BYTES: u64 = COORDINATORS as u64 * SLOT_WORDS as u64 * 8;
/// The start of the table in each region, after the logs.
pub const BASE: u64 = OTHER as u64 * AREA_BYTES;

/// The start of a memory server's region.
fn region(server: u16) -> Offset {
    Offset::new(4096 + u64::from(server) * REGION.bytes)
}

/// The offsets of the words of the table in the region of `server`.
pub fn table_words(server: u16) -> impl Iterator<Item = Offset> {
    let words = (BASE..REGION.bytes).step_by(8);
    words.map(move |at| region(server) + at)
}

/// The latch of an object on the primary.
pub fn latch(object: ObjectId) -> Offset {
    region(0) + (BASE + object.offset())
}

/// The latch of the first slot on the primary.
pub fn first_latch() -> Offset {
    latch(GEOMETRY.slot(0, 0, 0))
}

/// A moment at which an interleaving is constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The view is asked whether the victim has failed.
    Answer,
    /// This number of READs of an object have been executed.
    Reads(usize),
}

type Action<M> = Box<dyn FnOnce(M)>;

/// What others do at moments, in this order.
pub type Actions<M> = Vec<(Moment, Action<M>)>;

/// The actions that are left.
pub struct Script<M>(RefCell<Actions<M>>);

impl<M> fmt::Debug for Script<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl<M> Script<M> {
    /// Executes the next action, if it is planned for `moment`.
    fn at(&self, moment: Moment, memory: M) {
        let mut actions = self.0.borrow_mut();
        if actions
            .first()
            .is_some_and(|(planned, _)| *planned == moment)
        {
            let (_, action) = actions.remove(0);
            drop(actions);
            action(memory);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// The links from a worker to the memory servers.
pub trait Links<M: Memory>: fmt::Debug {
    /// The connection over a link.
    type Connection: Connection;

    /// Returns a connection to the server that `mapped` reaches.
    fn connect(&self, memory: M, mapped: Mapped<M>) -> Self::Connection;

    /// The worker asks whether a compute server has failed.
    fn is_asked(&self, memory: M) {
        let _ = memory;
    }
}

/// The store as a worker sees it.
#[derive(Debug)]
pub struct Servers<M, L = Rc<Script<M>>> {
    memory: M,
    log: LogArea,
    slots: RefCell<Vec<Slot>>,
    links: L,
}

/// A connection between whose READs of an object others may act.
#[derive(Debug)]
pub struct Scripted<M: Memory> {
    memory: M,
    mapped: Mapped<M>,
    script: Rc<Script<M>>,
}

/// The number of READs of an object by the protocol.
const READS: usize = 4;

impl<M: Memory> Connection for Scripted<M> {
    type Completion = Ready<Completed>;

    fn server(&self) -> ServerId {
        self.mapped.server()
    }

    fn region(&self) -> Region {
        self.mapped.region()
    }

    fn post(&self, mut batch: Batch) -> Self::Completion {
        let is_read = batch.verbs().iter().all(|it| it.kind == VerbKind::Read);
        if self.script.is_empty() || !is_read || batch.len() != READS {
            return self.mapped.post(batch);
        }
        for number in 0..READS {
            let verb = batch.verbs()[number];
            let mut single = Batch::new();
            let words = single.read(verb.at, verb.words() as usize);
            let completed = self.mapped.post(single).into_inner();
            if completed.result.is_err() {
                let result = completed.result;
                return ready(Completed { batch, result });
            }
            batch.parts().1[verb.local()].copy_from_slice(completed.batch.words(words));
            self.script.at(Moment::Reads(number + 1), self.memory);
        }
        ready(Completed {
            batch,
            result: Ok(()),
        })
    }
}

impl<M: Memory> Links<M> for Rc<Script<M>> {
    type Connection = Scripted<M>;

    fn connect(&self, memory: M, mapped: Mapped<M>) -> Scripted<M> {
        Scripted {
            memory,
            mapped,
            script: Self::clone(self),
        }
    }

    fn is_asked(&self, memory: M) {
        self.at(Moment::Answer, memory);
    }
}

impl<M: Memory, L: Links<M>> View for Servers<M, L> {
    type Connection = L::Connection;

    fn connect(&self, server: ServerId) -> Result<L::Connection, VerbError> {
        let memory = self.memory;
        let live = Liveness {
            memory,
            at: LIVE,
            live: 0,
        };
        let mapped = Mapped::new(memory, server, region(server.0), REGION, live);
        Ok(self.links.connect(memory, mapped))
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        let places = (0..SERVERS).map(|server| Place {
            server: ServerId(server),
            base: RemoteOffset::new(BASE),
            step: 0,
        });
        let layout = || TableLayout {
            geometry: GEOMETRY,
            places: vec![places.collect()],
        };
        (table == 0).then(layout)
    }

    fn failed(&self, process: u16) -> Option<u64> {
        self.links.is_asked(self.memory);
        Some(incarnation(self.memory, process)).filter(|it| it % 2 == 1)
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn lost(&self, _: u64) -> Vec<ServerId> {
        Vec::new()
    }

    fn steps(&self, _: u64) -> u8 {
        0
    }

    fn begun(&self, _: u16, _: u16) -> Option<TransactionId> {
        None
    }

    fn record_commit(&self, _: TransactionId) {}

    fn leave_latches(&self) {}
}

/// No memory server is lost.
impl<M: Memory, L: Links<M>> Member for Servers<M, L> {
    fn is_over(&self, _: u64) -> bool {
        false
    }

    fn is_settled(&self, _: u64) -> bool {
        true
    }

    fn is_under_recovery(&self, _: u16) -> bool {
        false
    }

    fn stragglers(&self, _: u64) -> Vec<TransactionId> {
        Vec::new()
    }

    fn fence(&self, _: TransactionId) {}

    fn enter_commit(&self, _: TransactionId, _: u64) -> bool {
        true
    }

    fn leave_commit(&self, _: TransactionId, _: bool) {}

    fn log(&self, _: u64) -> Result<LogArea, VerbError> {
        Ok(self.log.clone())
    }

    fn take_slot(&self) -> Option<Slot> {
        self.slots.borrow_mut().pop()
    }

    fn return_slot(&self, slot: Slot) {
        self.slots.borrow_mut().push(slot);
    }

    fn recoveries(&self) -> u64 {
        0
    }

    fn is_recovering(&self) -> bool {
        false
    }
}

/// Returns a worker of the compute server `process`.
pub fn worker<M: Memory>(memory: M, process: u16, policy: Policy) -> Rc<Worker<Servers<M>>> {
    scripted(memory, process, policy, Vec::new())
}

/// Returns a worker beside which others act as planned.
pub fn scripted<M: Memory>(
    memory: M,
    process: u16,
    policy: Policy,
    script: Actions<M>,
) -> Rc<Worker<Servers<M>>> {
    let script = Rc::new(Script(RefCell::new(script)));
    linked(memory, process, policy, script)
}

/// Returns a worker that uses `links`.
pub fn linked<M: Memory, L: Links<M>>(
    memory: M,
    process: u16,
    policy: Policy,
    links: L,
) -> Rc<Worker<Servers<M, L>>> {
    let log = LogArea {
        base: RemoteOffset::new(u64::from(process - 1) * AREA_BYTES),
        servers: (0..SERVERS).map(ServerId).collect(),
        coordinators: COORDINATORS,
        slot_words: SLOT_WORDS,
        protocol: protocol(memory),
    };
    // The owners of a process id begin with different attempts.
    let lives = (VICTIM..=OTHER).map(|process| incarnation(memory, process) as u32);
    let attempt = lives.sum::<u32>() * 1000;
    let slot = |number| Slot::new(number, attempt);
    let servers = Servers {
        memory,
        log: log.clone(),
        slots: RefCell::new({ 0..COORDINATORS }.rev().map(slot).collect()),
        links,
    };
    let worker = Worker::new(servers, process, log, 1);
    worker.set_policy(policy);
    worker
}

/// Makes `protocol` that of the store. Otherwise it is `pandora`.
pub fn set_protocol(memory: impl Memory, protocol: Protocol) {
    memory.store(PROTOCOL, protocol as u64, Ordering::Release);
}

fn protocol(memory: impl Memory) -> Protocol {
    let number = memory.load::<u64>(PROTOCOL, Ordering::Acquire);
    Protocol::ALL[number as usize]
}

fn incarnation_at(process: u16) -> Offset {
    INCARNATIONS + u64::from(process) * 8
}

/// Returns the incarnation of a process id.
pub fn incarnation(memory: impl Memory, process: u16) -> u64 {
    memory.load(incarnation_at(process), Ordering::Acquire)
}

/// Marks the owner of a process id as failed, or makes the id that of the next owner.
pub fn end_incarnation(memory: impl Memory, process: u16) {
    let next = incarnation(memory, process) + 1;
    memory.store(incarnation_at(process), next, Ordering::Release);
}

/// Recovers the logs of the victim, if they are not recovered, and marks it as failed.
pub fn recover<M: Memory>(memory: M, policy: Policy) {
    recover_as(memory, VICTIM, || worker(memory, VICTIM, policy));
}

/// The same for the compute server `process`, with a worker in its place.
pub fn recover_as<M: Memory, L: Links<M>>(
    memory: M,
    process: u16,
    worker: impl FnOnce() -> Rc<Worker<Servers<M, L>>>,
) {
    let owner = incarnation(memory, process);
    if owner.is_multiple_of(2) {
        let worker = worker();
        // Each slot is a group, so that a death between two groups is swept.
        block_on(recover_logs_in_groups(&worker, 1)).expect("live memory servers");
        end_incarnation(memory, process);
    }
}

/// Recycles the process id of the victim, which has failed. The next worker with the id belongs to
/// the next owner.
pub fn recycle<M: Memory>(memory: M, policy: Policy) {
    release(memory, SURVIVOR, policy);
    end_incarnation(memory, VICTIM);
}

/// Releases the latches of the victim, which has failed, as the compute server `process`.
pub fn release<M: Memory>(memory: M, process: u16, policy: Policy) {
    let failed = incarnation(memory, VICTIM);
    let scan = worker(memory, process, policy);
    let is_stray = |process, incarnation| (process, incarnation) == (VICTIM, failed);
    block_on(release_stray(&scan, core::iter::once(0), is_stray)).expect("live memory servers");
}

/// A key with its value, whose words are equal; `None` if the key does not exist.
pub type Pair = (u64, Option<u64>);

/// Gives keys the values, or deletes them, in a transaction of the compute server `process`.
pub fn transact<M: Memory>(
    memory: M,
    process: u16,
    policy: Policy,
    keys: &[Pair],
) -> Result<TransactionId, String> {
    transact_on(&worker(memory, process, policy), Retry::default(), keys)
}

/// The same in a transaction of a worker.
pub fn transact_on<M: Memory, L: Links<M>>(
    worker: &Rc<Worker<Servers<M, L>>>,
    retry: Retry,
    keys: &[Pair],
) -> Result<TransactionId, String> {
    let mut coordinator = worker.coordinator().expect("a slot").retry(retry);
    let done = coordinator.transaction(async |tx| {
        for (key, value) in keys {
            match value {
                Some(value) => tx.put(TABLE, *key, &[*value; 2]).await?,
                None => drop(tx.delete(TABLE, *key).await?),
            }
        }
        Ok(())
    });
    Ok(block_on(done).map_err(|error| error.to_string())?.id)
}

/// Returns the value whose words these are.
///
/// # Panics
/// If they are not equal.
pub fn whole(value: Option<[u64; 2]>) -> Option<u64> {
    value.map(|[one, other]| {
        assert_eq!(one, other, "a value was torn");
        one
    })
}
