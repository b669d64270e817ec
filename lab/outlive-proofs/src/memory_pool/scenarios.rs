//! A guard against a release, two allocations at one time, and two survivors, under every
//! interleaving within bounds; and a broken variant, which an exploration must find.

use super::small::{SIZE, SmallPool, instance};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::Place;
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    let deaths = Bounds::default().preemptions(1).deaths(1);
    let full = Bounds::default().preemptions(2).deaths(2);
    vec![
        Proof::of_every(guard(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(failing(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(leaving(), bounds(2), bounds(3)),
        Proof::of_every(allocation(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(allocations(Weakened::sound), bounds(1), bounds(2)),
        Proof::of_every(survivors(), deaths, full),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    vec![
        (guard(fences), bounds.clone(), "under a guard"),
        (allocation(fences), bounds.clone(), "has left with a slice"),
        (allocations(fences), bounds, "the generation of"),
    ]
}

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);

/// The first allocation of a pool.
fn first() -> Address {
    Address::from_word(1 << Address::POSITION_BITS).expect("generation 1")
}

fn allocate<M: Memory>(pool: &SmallPool<M>, owner: Instance, slices: u64) -> Address {
    let allocated = { pool.coherent }.allocate(owner, slices, Place::Spread, pool);
    allocated.expect("free memory")
}

/// A reader makes a guard while the owner of the slice frees it: the frame is not released under
/// the guard.
fn guard<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: a guard against a release")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            let pool = SmallPool::create(m);
            pool.serve(HOST);
            assert_eq!(allocate(&pool, instance(0), 1), first());
            { pool.coherent }
                .claim_line(instance(1))
                .expect("a free line");
        })
        .thread("owner", move |m| {
            let pool = SmallPool::open(weaken(m));
            let run = { pool.coherent }
                .begin_free(instance(0), first())
                .expect("its own");
            let used = { pool.coherent }.release_unless_used(instance(0), run, &pool);
            used.expect("reachable servers");
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open(weaken(m));
            let line = { pool.coherent }
                .claim_line(instance(2))
                .expect("a free line");
            match { pool.coherent }.translate(line, 0, first(), &pool) {
                Ok(_) => {
                    let has_frame = pool.has_frame(ServerId(1), 0);
                    assert!(has_frame, "the frame was released under a guard");
                    pool.coherent.withdraw(line, 0);
                }
                Err(PoolError::Freed { .. }) => {}
                Err(error) => panic!("the frame was released under a guard: {error}"),
            }
        })
        .check(|m, _| {
            let census = SmallPool::open(m).check().expect("a sound pool");
            // The reader may still have had its guard when the owner scanned.
            assert_eq!(census.frames, census.slices);
            assert_eq!(census.hidden, census.slices);
        })
}

/// A client allocates more than there is while a reader uses an address that the allocation would
/// have: the reader has no slice whose frame is released.
fn failing<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: a guard against an allocation that fails")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            let pool = SmallPool::create(m);
            pool.serve(HOST);
            assert_eq!(allocate(&pool, HOST, 2), first());
            { pool.coherent }
                .claim_line(instance(1))
                .expect("a free line");
        })
        .thread("client", move |m| {
            let pool = SmallPool::open(weaken(m));
            let allocated = { pool.coherent }.allocate(instance(0), 2, Place::Any, &pool);
            let failed = allocated.expect_err("too little memory");
            assert!(matches!(failed.error, PoolError::OutOfMemory { .. }));
            assert!(failed.remaining.is_none());
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open(weaken(m));
            let line = { pool.coherent }
                .claim_line(instance(2))
                .expect("a free line");
            // The generation differs from that of the allocation before.
            let next = Address::from_word(2 << Address::POSITION_BITS).expect("generation 2");
            match { pool.coherent }.translate(line, 0, next.plus(2 << 12), &pool) {
                Ok(_) => {
                    let has_frame = pool.has_frame(ServerId(1), 2);
                    assert!(has_frame, "the frame was released under a guard");
                    pool.coherent.withdraw(line, 0);
                }
                Err(PoolError::Freed { .. }) => {}
                Err(error) => panic!("the frame was released under a guard: {error}"),
            }
        })
        .check(|m, _| {
            let census = SmallPool::open(m).check().expect("a sound pool");
            assert_eq!((census.slices, census.frames, census.hidden), (2, 2, 0));
        })
}

/// A server with a slice tries to leave while a reader uses the slice: nothing is lost.
fn leaving() -> Scenario {
    Scenario::new("memory pool: a guard against a server that tries to leave")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            let pool = SmallPool::create(m);
            pool.serve(HOST);
            assert_eq!(allocate(&pool, instance(0), 1), first());
        })
        .thread("server", |m| {
            let left = leave(&SmallPool::open(m));
            assert!(matches!(left, Err(PoolError::StillHeld { slices: 1, .. })));
        })
        .thread("reader", |m| {
            let pool = SmallPool::open(m);
            let line = { pool.coherent }
                .claim_line(instance(1))
                .expect("a free line");
            let translated = pool.coherent.translate(line, 0, first(), &pool);
            let translated = translated.expect("the server has its memory");
            { pool.coherent }
                .confirm(&translated)
                .expect("the server has its memory");
        })
}

fn leave<M: Memory>(pool: &SmallPool<M>) -> Result<(), PoolError> {
    let server = ServerId(1);
    let entry = { pool.coherent }.server(server).expect("a sound entry");
    { pool.coherent }.leave_server(&entry, HOST, pool.region(server), pool)
}

/// A client allocates on a server that leaves: the server stays, or the client gets nothing.
fn allocation<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    Scenario::new("memory pool: an allocation on a server that leaves")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            SmallPool::create(m).serve(HOST);
        })
        .thread("server", move |m| {
            match leave(&SmallPool::open(weaken(m))) {
                Ok(()) | Err(PoolError::StillHeld { slices: 1, .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .thread("client", move |m| {
            let pool = SmallPool::open(weaken(m));
            let allocated = { pool.coherent }.allocate(instance(0), 1, Place::Any, &pool);
            match allocated.map_err(|failed| failed.error) {
                Ok(_) | Err(PoolError::OutOfMemory { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .check(|m, _| {
            let pool = SmallPool::open(m);
            let census = pool.check().expect("a sound pool");
            let is_live = pool.coherent.is_live(ServerId(1), 1);
            assert!(
                is_live || census.slices == 0,
                "a server has left with a slice"
            );
            assert_eq!((census.frames, census.hidden), (census.slices, 0));
        })
}

/// Two clients allocate two slices each at one time, beside each other: they have different
/// generations, which the check of the tables demands.
fn allocations<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let mut scenario = Scenario::new("memory pool: two allocations at one time")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            let pool = SmallPool::create(m);
            pool.serve(HOST);
            pool.serve(HOST);
        });
    let addresses = Ghost::<Vec<Address>>::new();
    for id in 0..2u32 {
        let addresses = addresses.clone();
        scenario = scenario.thread(&format!("client {id}"), move |m| {
            let address = allocate(&SmallPool::open(weaken(m)), instance(id), 2);
            addresses.with(|all| all.push(address));
        });
    }
    scenario.check(move |m, _| {
        let census = SmallPool::open(m).check().expect("a sound pool");
        assert_eq!((census.owned, census.slices, census.hidden), (2, 4, 0));
        let addresses = addresses.with(core::mem::take);
        assert_ne!(addresses[0].position(), addresses[1].position());
    })
}

/// Two survivors, which may die, recover a dead client. A third one completes the recovery.
fn survivors() -> Scenario {
    let corpse = Instance::new(9, 1);
    let mut scenario = Scenario::new("memory pool: two survivors recover a client")
        .memory(SIZE)
        .prepare(move |m: Scheduled| {
            let pool = SmallPool::create(m);
            pool.serve(HOST);
            allocate(&pool, corpse, 2);
        });
    let recover = move |m: Scheduled, survivor: u32, gone: Instance| {
        let pool = SmallPool::open(m);
        let recovered = { pool.coherent }.recover(instance(survivor), gone, &pool, &pool);
        assert!(recovered.failed.is_none() && recovered.remaining.is_empty());
    };
    for id in 0..2u32 {
        scenario = scenario.mortal(&format!("survivor {id}"), move |m| recover(m, id, corpse));
    }
    scenario.check(move |m, end| {
        let dead = (0..2u32).filter(|id| end.died(*id as usize)).map(instance);
        for gone in dead.chain([corpse]) {
            recover(m, 2, gone);
        }
        let census = SmallPool::open(m).check().expect("a sound pool");
        assert_eq!((census.slices, census.frames), (0, 0));
    })
}
