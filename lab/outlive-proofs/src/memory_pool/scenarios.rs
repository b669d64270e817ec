//! A guard against a release, allocations at one time, and survivors, under every interleaving
//! within bounds; and broken variants, which an exploration must find.

use super::small::{LOCK, SIZE, SmallPool, instance, owners, reader};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::{Place, Run, Use};
use outlive_pool::{Address, Phase, PoolError, ServerId};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    let deaths = Bounds::default().preemptions(1).deaths(1);
    vec![
        Proof::of_every(guard(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(failing(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(leaving(), bounds(2), bounds(3)),
        Proof::of_every(allocation(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(boundary(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(allocations(Weakened::sound), bounds(1), bounds(2)),
        Proof::of_every(
            survivors(Weakened::sound),
            deaths.clone().stale_reads(0),
            deaths,
        ),
        Proof::of_every(one_member(true), bounds(1), bounds(2)),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    let (at, len) = owners();
    let comparisons = move |memory| Weakened::new(memory, Weakness::Comparisons(at, len));
    let (at, len) = reader();
    let of_readers = move |memory| Weakened::new(memory, Weakness::Comparisons(at, len));
    vec![
        (guard(fences), bounds.clone(), "under a guard"),
        (allocation(fences), bounds.clone(), "has left with a slice"),
        (boundary(fences), bounds.clone(), "a private frame"),
        (allocations(fences), bounds.clone(), "the generation of"),
        (survivors(comparisons), bounds.clone(), "of another client"),
        (
            survivors(of_readers),
            bounds.clone(),
            "the guard of another client",
        ),
        (
            one_member(false),
            bounds.stale_reads(0),
            "of another client",
        ),
    ]
}

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);

/// The first allocation of a pool.
fn first() -> Address {
    Address::from_word(1 << Address::POSITION_BITS).expect("generation 1")
}

fn allocate<M: Memory>(pool: &SmallPool<M>, owner: Instance, slices: u64) -> Address {
    let allocated = { pool.coherent }.allocate(owner, slices, Place::Spread, Use::Plain, pool);
    allocated.expect("free memory")
}

/// Checks that the frame of `slice` exists while `address`, unless it is freed, has a guard.
fn guard_frame<M: Memory>(pool: &SmallPool<M>, address: Address, slice: u64) {
    let line = { pool.coherent }
        .claim_line(instance(2))
        .expect("a free line");
    match { pool.coherent }.translate(line, 0, address, pool) {
        Ok(_) => {
            let has_frame = pool.has_frame(ServerId(1), slice);
            assert!(has_frame, "the frame was released under a guard");
            pool.coherent.withdraw(line, 0);
        }
        Err(PoolError::Freed { .. }) => {}
        Err(error) => panic!("the frame was released under a guard: {error}"),
    }
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
            guard_frame(&pool, first(), 0);
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
            let allocated =
                { pool.coherent }.allocate(instance(0), 2, Place::Any, Use::Plain, &pool);
            let failed = allocated.expect_err("too little memory");
            assert!(matches!(*failed.error, PoolError::OutOfMemory { .. }));
            assert!(failed.remaining.is_none());
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open(weaken(m));
            // The generation differs from that of the allocation before.
            let next = Address::from_word(2 << Address::POSITION_BITS).expect("generation 2");
            guard_frame(&pool, next.plus(2 << 12), 2);
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
            let allocated =
                { pool.coherent }.allocate(instance(0), 1, Place::Any, Use::Plain, &pool);
            match allocated.map_err(|failed| *failed.error) {
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

/// A server moves its boundary down and up again while a client allocates: no slice has a private
/// frame, and no client sees the server's data of a private frame.
fn boundary<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: an allocation while a boundary moves")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            SmallPool::create(m).serve(HOST);
        })
        .thread("server", move |m| {
            let pool = SmallPool::open(weaken(m));
            let (home, server) = (pool.region(ServerId(1)), ServerId(1));
            let entry = { pool.coherent }.server(server).expect("a sound entry");
            match { pool.coherent }.move_boundary(&entry, home, 0) {
                Ok(()) => {
                    let (memory, at, bytes) = home.private();
                    assert_eq!(bytes, 3 << 12);
                    // The server's data.
                    memory.store(at, 1u64, Ordering::Relaxed);
                    { pool.coherent }
                        .move_boundary(&entry, home, 2)
                        .expect("it grows");
                }
                Err(PoolError::StillHeld { slices: 1, .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .thread("client", move |m| {
            let pool = SmallPool::open(weaken(m));
            let allocated =
                { pool.coherent }.allocate(instance(0), 1, Place::Any, Use::Plain, &pool);
            match allocated.map_err(|failed| *failed.error) {
                Ok(address) => {
                    let frame = pool.coherent.locate(address, &pool).expect("its own");
                    let word: u64 = frame.memory.load(frame.at, Ordering::Relaxed);
                    assert_eq!(word, 0, "the data of a private frame");
                }
                Err(PoolError::OutOfMemory { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .check(|m, _| {
            let pool = SmallPool::open(m);
            let home = pool.region(ServerId(1));
            let private = home.used_in(home.shared()..3);
            assert_eq!(private, 0, "a slice has a private frame");
            let census = pool.check().expect("a sound pool");
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

/// The process that has died before the recoveries.
const CORPSE: Instance = Instance::new(9, 1);
/// The process of the client that uses what the survivors release.
const CLIENT: Instance = Instance::new(7, 1);

/// Creates a pool in which nothing is free: a dead process has the second server, a reader with a
/// guard, and two slices; a live one has the other slices, frames and readers.
fn full(m: Scheduled) {
    let pool = SmallPool::create(m);
    pool.serve(HOST);
    pool.serve(CORPSE);
    let at_first = { pool.coherent }.allocate(CORPSE, 2, Place::At(ServerId(1)), Use::Plain, &pool);
    let address = at_first.expect("free memory");
    let line = { pool.coherent }.claim_line(CORPSE).expect("a free line");
    { pool.coherent.translate(line, 0, address, &pool) }.expect("allocated");
    let rest = { pool.coherent }.allocate(HOST, 4, Place::Any, Use::Plain, &pool);
    rest.expect("free memory");
    { pool.coherent }.claim_line(HOST).expect("a free line");
}

/// Recovers `gone` as `survivor`, and returns the runs that are released later: another survivor
/// may not have withdrawn a dead announcement yet.
fn recover<M: Memory>(pool: &SmallPool<M>, survivor: Instance, gone: Instance) -> Vec<Run> {
    let recovered = { pool.coherent }.recover(survivor, gone, pool, pool);
    assert!(recovered.failed.is_none());
    recovered.remaining
}

/// What the client of a full pool has got.
#[derive(Clone, Copy, Default)]
struct Got {
    slice: Option<u64>,
    has_guard: bool,
}

/// Allocates a slice and makes a guard, if the survivors have released them already.
fn take(m: Scheduled) -> Got {
    let pool = SmallPool::open(m);
    let allocated =
        { pool.coherent }.allocate(CLIENT, 1, Place::At(ServerId(1)), Use::Plain, &pool);
    let Ok(address) = allocated else {
        return Got::default();
    };
    let line = pool.coherent.claim_line(CLIENT);
    if let Some(line) = line {
        let translated = pool.coherent.translate(line, 0, address, &pool);
        assert!(
            translated.is_ok(),
            "the slice of another client is released"
        );
    }
    Got {
        slice: Some(address.position() >> 12),
        has_guard: line.is_some(),
    }
}

/// Checks that the client has what it got, and that everything else of the corpse is released.
fn check_full(m: Scheduled, got: Got) {
    let pool = SmallPool::open(m);
    let census = pool.check();
    if let Some(slice) = got.slice {
        let has_frame = pool.has_frame(ServerId(1), slice);
        assert!(has_frame, "the frame of another client is released");
        let user = { pool.coherent }.user_of(slice, 1);
        let is_announced = !got.has_guard || user == Some(CLIENT);
        assert!(is_announced, "the guard of another client is withdrawn");
    }
    let census = census.unwrap_or_else(|wrong| panic!("of another client: {}", wrong.join("; ")));
    let (owned, slices) = match got.slice {
        Some(_) => (2, 5),
        None => (1, 4),
    };
    assert_eq!(
        (census.owned, census.slices),
        (owned, slices),
        "of another client"
    );
    let entry = { pool.coherent }
        .server(ServerId(2))
        .expect("a sound entry");
    assert_eq!((entry.phase, entry.owner), (Phase::Dead, None));
    assert!(!pool.has_segment(ServerId(2)));
}

/// Two survivors, which may die, recover a dead process, while a client claims what they release.
/// A third one completes the recovery.
fn survivors<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let mut scenario = Scenario::new("memory pool: two survivors recover a client")
        .memory(SIZE)
        .prepare(full);
    let got = Ghost::<Got>::new();
    let remaining = Ghost::<Vec<(u32, Run)>>::new();
    for id in 0..2u32 {
        let remaining = remaining.clone();
        scenario = scenario.mortal(&format!("survivor {id}"), move |m| {
            let runs = recover(&SmallPool::open(weaken(m)), instance(id), CORPSE);
            let runs = runs.into_iter().map(|run| (id, run));
            remaining.with(|all| all.extend(runs));
        });
    }
    let of_client = got.clone();
    scenario = scenario.thread("client", move |m| {
        let taken = take(m);
        of_client.with(|got| *got = taken);
    });
    scenario.check(move |m, end| {
        let pool = SmallPool::open(m);
        let dead = (0..2u32).filter(|id| end.died(*id as usize)).map(instance);
        for gone in dead.chain([CORPSE]) {
            assert!(recover(&pool, instance(2), gone).is_empty());
        }
        for (id, run) in remaining.with(core::mem::take) {
            if !end.died(id as usize) {
                let user = { pool.coherent }.release_unless_used(instance(id), run, &pool);
                let user = user.expect("reachable servers");
                assert!(user.is_none(), "a survivor has the run of another client");
            }
        }
        check_full(m, got.with(core::mem::take));
    })
}

/// The recovery thread of a member recovers a dead process, and the member leaves: both threads act
/// as one instance, and hold the lock of the member unless the variant is broken.
fn one_member(has_lock: bool) -> Scenario {
    let lock = move |m: Scheduled, act: &dyn Fn()| {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        while has_lock && { m }
            .compare_exchange(LOCK, 0u64, 1, order.0, order.1)
            .is_err()
        {
            m.spin_hint();
        }
        act();
        if has_lock {
            m.store(LOCK, 0u64, Ordering::Release);
        }
    };
    let mut scenario = Scenario::new("memory pool: a member leaves while it recovers a client")
        .memory(SIZE)
        .prepare(full);
    let got = Ghost::<Got>::new();
    for (name, gone) in [("recovery thread", CORPSE), ("leaving thread", instance(0))] {
        scenario = scenario.thread(name, move |m| {
            lock(m, &|| {
                let remaining = recover(&SmallPool::open(m), instance(0), gone);
                // The broken variant may have withdrawn no announcement yet.
                assert!(remaining.is_empty() || !has_lock);
            });
        });
    }
    let of_client = got.clone();
    scenario = scenario.thread("client", move |m| {
        let taken = take(m);
        of_client.with(|got| *got = taken);
    });
    scenario.check(move |m, _| check_full(m, got.with(core::mem::take)))
}
