//! A transaction that writes, inserts and deletes, killed after every instruction together
//! with the recoveries of its logs; and broken variants, which a sweep must find.

use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_store::protocol::{
    Flaw, LogArea, Policy, Slot, Table, View, Worker, check, recover_logs,
};
use outlive_store::tables::{Geometry, LATCH, Place, TableLayout, TransactionId};
use outlive_store::verbs::{Liveness, Mapped, Region, RemoteOffset, ServerId, VerbError, block_on};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    suite.add(Transactions(Policy::SOUND, "Transaction"));
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    let missing = Transactions(Flaw::MissingActions.policy(), "MissingActions");
    vec![(Box::new(missing), "a slot is in use")]
}

struct Transactions(Policy, &'static str);

const SIZE: u64 = 8 << 10;
/// Whether the victim has failed and its logs are recovered.
const FAILED: Offset = Offset::new(64);
/// The liveness word of both memory servers.
const LIVE: Offset = Offset::new(128);
const REGION: Region = Region {
    key: 1,
    bytes: 2048,
};
const SERVERS: u16 = 2;
const VICTIM: u16 = 1;
const SURVIVOR: u16 = 2;
const SLOT_WORDS: usize = 80;
const GEOMETRY: Geometry = Geometry {
    value_words: 1,
    partitions: 1,
    main: 1,
    extra: 1,
};
const TABLE: Table<u64> = Table::new(0);

/// The start of a memory server's region.
fn region(server: ServerId) -> Offset {
    Offset::new(4096 + u64::from(server.0) * REGION.bytes)
}

/// The log slot of a compute server.
fn log_of(process: u16) -> LogArea {
    LogArea {
        base: RemoteOffset::new(u64::from(process - 1) * SLOT_WORDS as u64 * 8),
        servers: (0..SERVERS).map(ServerId).collect(),
        coordinators: 1,
        slot_words: SLOT_WORDS,
    }
}

/// The memory servers in the memory of a sweep.
#[derive(Debug)]
struct Servers<M> {
    memory: M,
    has_slot: Cell<bool>,
    /// Executed when the view is next asked whether the victim has failed.
    before_answer: RefCell<Option<Recovery>>,
}

impl<M: Memory> View for Servers<M> {
    type Connection = Mapped<M>;

    fn connect(&self, server: ServerId) -> Result<Mapped<M>, VerbError> {
        let memory = self.memory;
        let live = Liveness {
            memory,
            at: LIVE,
            live: 0,
        };
        Ok(Mapped::new(memory, server, region(server), REGION, live))
    }

    fn layout(&self, _: u8) -> Option<TableLayout> {
        let base = RemoteOffset::new(2 * SLOT_WORDS as u64 * 8);
        let places = (0..SERVERS).map(|server| Place {
            server: ServerId(server),
            base,
        });
        Some(TableLayout {
            geometry: GEOMETRY,
            places: vec![places.collect()],
        })
    }

    fn has_failed(&self, process: u16) -> bool {
        if let Some(Recovery) = self.before_answer.take() {
            recover(self.memory);
        }
        process == VICTIM && self.memory.load::<u64>(FAILED, Ordering::Acquire) != 0
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn take_slot(&self) -> Option<Slot> {
        self.has_slot.replace(false).then(|| Slot::new(0))
    }

    fn return_slot(&self, _: Slot) {}

    fn leave_latches(&self) {}
}

/// The recovery of the victim.
#[derive(Clone, Copy, Debug)]
struct Recovery;

fn worker<M: Memory>(memory: M, process: u16, policy: Policy) -> Rc<Worker<Servers<M>>> {
    worker_before(memory, process, policy, None)
}

fn worker_before<M: Memory>(
    memory: M,
    process: u16,
    policy: Policy,
    recovery: Option<Recovery>,
) -> Rc<Worker<Servers<M>>> {
    let servers = Servers {
        memory,
        has_slot: Cell::new(true),
        before_answer: RefCell::new(recovery),
    };
    let worker = Worker::new(servers, process, log_of(process), 1);
    worker.set_policy(policy);
    worker
}

/// Recovers the logs of the victim, if they are not recovered, and marks it as failed.
fn recover<M: Memory>(memory: M) {
    if memory.load::<u64>(FAILED, Ordering::Acquire) == 0 {
        let worker = worker(memory, VICTIM, Policy::SOUND);
        block_on(recover_logs(&worker)).expect("live memory servers");
        memory.store(FAILED, 1u64, Ordering::Release);
    }
}

/// Gives keys the values, or deletes them, in a transaction of the compute server `process`.
fn transact<M: Memory>(
    memory: M,
    process: u16,
    policy: Policy,
    keys: &[(u64, Option<u64>)],
) -> Result<TransactionId, String> {
    let mut coordinator = worker(memory, process, policy)
        .coordinator()
        .expect("a slot");
    let done = coordinator.transaction(async |tx| {
        for (key, value) in keys {
            match value {
                Some(value) => tx.put(TABLE, *key, value).await?,
                None => drop(tx.delete(TABLE, *key).await?),
            }
        }
        Ok(())
    });
    Ok(block_on(done).map_err(|error| error.to_string())?.id)
}

/// Reads a key while the server that writes it is recovered, after its latch was read and before
/// the answer whether it has failed. The recovery undoes the write: its commit did not reach the
/// backup.
///
/// # Errors
/// If the read returns the value that was undone.
pub fn read_during_recovery(policy: Policy) -> Result<(), String> {
    let memory = Native::leaked(SIZE, PersistenceDomain::Flushed);
    let (primary, backup) = (region(ServerId(0)), region(ServerId(1)));
    transact(memory, SURVIVOR, Policy::SOUND, &[(1, Some(10))])?;
    let table = 2 * SLOT_WORDS as u64 * 8;
    let words = || (table..REGION.bytes).step_by(8);
    let before: Vec<u64> = { words() }
        .map(|at| memory.load(backup + at, Ordering::Relaxed))
        .collect();
    let id = transact(memory, VICTIM, Policy::SOUND, &[(1, Some(11))])?;
    for (at, word) in words().zip(before) {
        memory.store(backup + at, word, Ordering::Relaxed);
    }
    // The first slot of the main bucket holds the key.
    let latch = table + GEOMETRY.slot(0, 0, 0).offset() + LATCH;
    memory.store(primary + latch, id.to_word(), Ordering::Relaxed);
    let reader = worker_before(memory, SURVIVOR, policy, Some(Recovery));
    let mut coordinator = reader.coordinator().expect("a slot");
    let read = coordinator.transaction(async |tx| tx.read(TABLE, 1).await);
    match block_on(read).map_err(|error| error.to_string())?.value {
        Some(10) => Ok(()),
        other => Err(format!(
            "the key was {other:?} after the write of 11 was undone"
        )),
    }
}

/// The keys before the transaction.
const BEFORE: [(u64, Option<u64>); 3] = [(1, Some(10)), (3, None), (2, Some(20))];
/// The keys after it: it writes 1, inserts 3 into a new slot and deletes 2.
const AFTER: [(u64, Option<u64>); 3] = [(1, Some(11)), (3, Some(30)), (2, None)];

impl Sweep for Transactions {
    fn name(&self) -> String {
        format!("store {}", self.1)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        transact(memory, SURVIVOR, self.0, &BEFORE).expect("a commit");
    }

    fn operate(&self, memory: Marked) {
        transact(memory, VICTIM, self.0, &AFTER).expect("a commit");
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        recover(memory);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let worker = worker(memory, SURVIVOR, self.0);
        let mut coordinator = worker.coordinator().expect("a slot");
        let done = coordinator.transaction(async |tx| {
            let mut found = BEFORE;
            for (key, value) in &mut found {
                *value = tx.read(TABLE, *key).await?;
            }
            Ok(found)
        });
        let found = block_on(done).map_err(|error| error.to_string())?.value;
        // The check runs again after a second recovery.
        let is_checked = found == [(1, Some(12)), (3, Some(32)), (2, Some(22))];
        if found != AFTER && (found != BEFORE || crash.returned) && !is_checked {
            return Err(format!("the keys are {found:?}"));
        }
        drop(coordinator);
        // Every object can be written: stray latches are stolen.
        let next = [(1, Some(12)), (2, Some(22)), (3, Some(32)), (4, Some(42))];
        transact(memory, SURVIVOR, self.0, &next)?;
        let checked = block_on(check(&worker, core::iter::once(0)));
        let checked = checked.map_err(|error| error.to_string())?;
        if checked.keys != 4 || checked.held > 0 || !checked.problems.is_empty() {
            return Err(format!("{checked:?}"));
        }
        Ok(())
    }
}
