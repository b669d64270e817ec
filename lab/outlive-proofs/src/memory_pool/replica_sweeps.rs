//! Slices with replicas: writes, rebuilds and recoveries killed after every instruction; and broken
//! variants, which a sweep must find.

use super::small::{Once, SIZE, SmallPool, holders, instance, lock_word};
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_pool::internals::{Line, MoveReason, Place, ReplicaPoint, ToWrite, Use, WriteSet};
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::Write,
        What::WriteThree,
        What::WriteAndServe,
        What::Settle,
        What::Rebuild,
        What::RebuildWritten,
        What::Allocate,
    ] {
        suite.add(Replicas(what));
    }
    suite.declare::<ReplicaPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::WritesPrimaryFirst, "goes back"),
        (What::IgnoresLock, "differ"),
        (What::ForgetsWriters, "have entries"),
        (What::LosesMarks, "differ"),
        (What::HasNoShape, "has no shape"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Replicas(what)), message) })
    .into_iter()
    .collect()
}

/// The operation during which the sweep kills the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A member writes to a slice with two replicas.
    Write,
    /// The same, with three.
    WriteThree,
    /// The same with two; the server of the first one dies with the writer.
    WriteAndServe,
    /// A survivor recovers a writer that died after its store to the last of three replicas.
    Settle,
    /// A member rebuilds a replica whose server has died.
    Rebuild,
    /// The same; a writer writes while the slice is copied.
    RebuildWritten,
    /// A member allocates slices with replicas.
    Allocate,
    /// Broken: the writer stores to the primary first.
    WritesPrimaryFirst,
    /// Broken: the survivor of a writer does not see that it has the lock.
    IgnoresLock,
    /// Broken: the line of the writer belongs to another instance, which is not recovered.
    ForgetsWriters,
    /// Broken: the writer does not mark for the mover what it has written.
    LosesMarks,
    /// Broken: an allocation does not write its shape.
    HasNoShape,
}

struct Replicas(What);

type Weak = Weakened<Marked>;

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);
/// The process of the first server, if that has died.
const HOST_OF_FIRST: Instance = Instance::new(6, 1);
/// The writer that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);
/// The process of the writer beside a mover.
const USER: Instance = Instance::new(7, 1);
/// The process of a reader beside the others.
const READER: Instance = Instance::new(5, 1);
const THIRD: ServerId = ServerId(3);
/// The data of the slice, and what the writer writes.
const WORDS: [u64; 2] = [0x1111, 0x2222];
const LATER: [u64; 2] = [0x3333, 0x4444];
/// The places of the words that the reader has read after the crash, before the recovery.
const SEEN: [Offset; 2] = [Offset::new(2016), Offset::new(2024)];

/// The first allocation of a pool, with replicas.
fn address() -> Address {
    Address::from_word((1 << 13 | 1) << Address::POSITION_BITS).expect("generation 1")
}

/// Returns the first address of the slice of a replica.
fn replica(number: u64) -> Address {
    address().plus(number * 16)
}

/// Locks the replicas for writing.
fn lock<M: Memory>(pool: &SmallPool<M>, owner: Instance) -> (Line, WriteSet<M>) {
    let line = pool.line(owner);
    let slots = &[0, 1, 2];
    let ready = { pool.coherent }.translate_to_write_replicas(line, slots, address(), pool);
    match ready.expect("allocated") {
        ToWrite::Ready(set) => (line, set),
        other => panic!("{other:?}"),
    }
}

fn unlock<M: Memory>(pool: &SmallPool<M>, owner: Instance, (line, set): (Line, WriteSet<M>)) {
    pool.coherent.end_write(line, &[0, 1, 2], &set, u64::MAX);
    pool.coherent.release_line(line, owner);
}

/// Writes both words, as a writer with a guard does.
fn write<M: Memory>(pool: &SmallPool<M>, owner: Instance) {
    let locked = lock(pool, owner);
    for (word, byte) in LATER.into_iter().zip([0, 8]) {
        locked.1.store(byte, word);
    }
    { pool.coherent }
        .confirm_replicas(&locked.1, address())
        .expect("a replica that is alive");
    unlock(pool, owner, locked);
}

/// Stores a word to the replica with this number only.
fn store_to<M: Memory>(pool: &SmallPool<M>, number: u64, byte: u64, word: u64) {
    let place = { pool.coherent }.locate(replica(number), pool);
    let place = place.expect("a replica that is alive");
    { place.memory }.store(place.at + byte, word, Ordering::Release);
}

/// Returns the words of a replica; `None` if it is lost.
fn words_of<M: Memory>(pool: &SmallPool<M>, number: u64) -> Option<[u64; 2]> {
    let place = match { pool.coherent }.locate(replica(number), pool) {
        Err(PoolError::Lost { .. }) => return None,
        place => place.expect("allocated"),
    };
    Some([0, 8].map(|byte| place.memory.load(place.at + byte, Ordering::Acquire)))
}

/// Returns the words that a reader finds.
fn read<M: Memory>(pool: &SmallPool<M>) -> [u64; 2] {
    let line = pool.line(READER);
    let place = { pool.coherent }.translate_replica(line, 0, address(), pool);
    let place = place.expect("a replica that is alive");
    let words = [0, 8].map(|byte| place.memory.load(place.at + byte, Ordering::Acquire));
    pool.coherent.confirm(&place).expect("nothing moves");
    pool.coherent.withdraw(line, 0);
    pool.coherent.release_line(line, READER);
    words
}

/// Moves the lost replica to the third server.
fn rebuild<M: Memory>(pool: &SmallPool<M>, mover: Instance, act: impl FnMut()) {
    let mut pace = Once(Some(act));
    let moved = { pool.coherent }.move_slice(
        mover,
        address(),
        (THIRD, MoveReason::LostReplica),
        pool,
        &mut pace,
    );
    let mut unfinished = moved.expect("a free frame").expect("another server");
    assert!(pool.finish(mover, &mut unfinished), "a reader is left");
}

impl Replicas {
    fn open(&self, memory: Marked) -> SmallPool<Weak> {
        SmallPool::open_tiny(match self.0 {
            What::IgnoresLock => {
                let (at, len) = lock_word();
                Weakened::new(memory, Weakness::Blind(at, len))
            }
            What::HasNoShape => {
                let (at, len) = holders(0);
                Weakened::new(memory, Weakness::Stores(at, len))
            }
            _ => Weakened::sound(memory),
        })
    }

    fn is_allocation(&self) -> bool {
        matches!(self.0, What::Allocate | What::HasNoShape)
    }

    fn replicas(&self) -> u64 {
        match self.0 {
            What::WriteThree | What::Settle => 3,
            _ => 2,
        }
    }

    /// Whether the first server dies before the operation.
    fn is_lost_before(&self) -> bool {
        matches!(
            self.0,
            What::Rebuild | What::RebuildWritten | What::LosesMarks
        )
    }

    /// The process of the first server.
    fn first_host(&self) -> Instance {
        match self.0 {
            What::WriteAndServe => instance(0),
            _ if self.is_lost_before() => HOST_OF_FIRST,
            _ => HOST,
        }
    }
}

impl Sweep for Replicas {
    fn name(&self) -> String {
        format!("memory pool replicas {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let pool = SmallPool::create_tiny(memory);
        pool.serve(self.first_host());
        pool.serve(HOST);
        pool.serve(HOST);
        if self.is_allocation() {
            return;
        }
        let kind = Use::Replicated(self.replicas() as u8);
        let allocated = { pool.coherent }.allocate(HOST, 1, Place::Any, kind, &pool);
        assert_eq!(allocated.expect("free memory"), address());
        { pool.coherent }.keep(HOST, address()).expect("its own");
        for number in 0..self.replicas() {
            for (word, byte) in WORDS.into_iter().zip([0, 8]) {
                store_to(&pool, number, byte, word);
            }
        }
        match self.0 {
            What::Settle | What::IgnoresLock => {
                let _dead = lock(&pool, CORPSE);
                store_to(&pool, self.replicas() - 1, 0, LATER[0]);
            }
            _ if self.is_lost_before() => pool.recover(HOST, HOST_OF_FIRST),
            _ => {}
        }
    }

    fn operate(&self, memory: Marked) {
        let pool = self.open(memory);
        let own = instance(0);
        match self.0 {
            What::Write | What::WriteThree | What::WriteAndServe => write(&pool, own),
            What::ForgetsWriters => write(&pool, Instance::new(4, 1)),
            What::WritesPrimaryFirst => {
                let locked = lock(&pool, own);
                for (word, byte) in LATER.into_iter().zip([0, 8]) {
                    store_to(&pool, 0, byte, word);
                    store_to(&pool, 1, byte, word);
                }
                unlock(&pool, own, locked);
            }
            What::Settle | What::IgnoresLock => pool.recover(own, CORPSE),
            What::Rebuild => rebuild(&pool, own, || {}),
            What::RebuildWritten => rebuild(&pool, own, || write(&pool, USER)),
            What::LosesMarks => rebuild(&pool, own, || {
                let (line, set) = lock(&pool, USER);
                set.store(0, LATER[0]);
                pool.coherent.end_write(line, &[0, 1, 2], &set, 0);
                pool.coherent.release_line(line, USER);
            }),
            What::Allocate | What::HasNoShape => {
                let kind = Use::Replicated(2);
                let allocated = { pool.coherent }.allocate(own, 2, Place::Spread, kind, &pool);
                let address = allocated.expect("free memory");
                { pool.coherent }.keep(own, address).expect("its own");
            }
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pool = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        if !self.is_allocation() && crash.recoverers_lost == 0 {
            for (word, at) in read(&pool).into_iter().zip(SEEN) {
                memory.store(at, word, Ordering::Relaxed);
            }
        }
        pool.recover(survivor, USER);
        pool.recover(survivor, READER);
        for gone in (0..=crash.recoverers_lost).map(instance).chain([CORPSE]) {
            pool.recover(survivor, gone);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pool = self.open(memory);
        let census = { pool.check() }.map_err(|wrong| wrong.join("; "))?;
        let mut departed = pool.coherent.owners();
        departed.retain(|owner| *owner != HOST);
        if !departed.is_empty() {
            return Err(format!("{departed:?} have entries"));
        }
        if self.is_allocation() {
            let is_whole = (census.kept, census.slices, census.frames) == (1, 4, 4);
            let is_nothing = census.slices == 0 && census.frames == 0;
            return match is_whole || is_nothing && !crash.returned {
                true => Ok(()),
                false => Err(format!("the pool has {census:?}")),
            };
        }
        // All replicas that are alive have the same words, also those that a reader does not read.
        let found: Vec<_> = (0..self.replicas()).map(|it| words_of(&pool, it)).collect();
        let alive: Vec<[u64; 2]> = found.iter().copied().flatten().collect();
        let Some(words) = alive.first() else {
            return Err("no replica is left".into());
        };
        if alive.iter().any(|it| it != words) {
            return Err(format!("the replicas differ: {found:x?}"));
        }
        let is_rebuilt = pool.has_frame(THIRD, 0);
        if self.is_lost_before() && is_rebuilt != found[0].is_some() {
            return Err(format!("the replica is rebuilt: {is_rebuilt}"));
        }
        if self.is_lost_before() && crash.returned && !is_rebuilt {
            return Err("the replica is not rebuilt".into());
        }
        let is_written = match self.0 {
            What::Rebuild => false,
            What::RebuildWritten | What::LosesMarks => is_rebuilt || words[0] == LATER[0],
            _ => crash.returned,
        };
        for (place, word) in words.iter().enumerate() {
            let seen: u64 = memory.load(SEEN[place], Ordering::Relaxed);
            let (old, new) = (WORDS[place], LATER[place]);
            if seen == new && *word == old {
                return Err(format!("a word that was read goes back to {word:x}"));
            }
            if *word != old && *word != new {
                return Err(format!("a word is {word:x}"));
            }
        }
        if is_written && self.0 != What::Settle && words[0] != LATER[0] {
            return Err(format!("{words:x?} after the write"));
        }
        // The lock is free, and a writer reaches all replicas.
        let pool = SmallPool::open_tiny(Weakened::sound(memory));
        write(&pool, USER);
        match found
            .iter()
            .enumerate()
            .all(|(number, before)| words_of(&pool, number as u64) == before.map(|_| LATER))
        {
            true => Ok(()),
            false => Err("a write does not reach all replicas".into()),
        }
    }
}
