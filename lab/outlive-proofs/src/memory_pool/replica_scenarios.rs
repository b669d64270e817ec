//! Slices with replicas: writers, readers, movers and deaths of servers under every interleaving
//! within bounds; and broken variants, which an exploration must find.

use super::small::{Patient, SIZE, SmallPool, instance, lock_word};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::{Line, MoveReason, Place, ToWrite, Use, WriteSet};
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    vec![
        Proof::of_every(count(Weakened::sound), bounds(1), bounds(2)),
        Proof::of_every(rebuild(Weakened::sound, true), bounds(1), bounds(2)),
        Proof::of_every(fail_over(), bounds(1), bounds(2)),
        Proof::of_every(return_to_primary(true), bounds(1), bounds(2)),
        Proof::of_every(two_movers(Weakened::sound), bounds(1), bounds(2)),
        Proof::of_every(taken_back(), bounds(1), bounds(2)),
        Proof::of_every(settle(), bounds(2), bounds(3)),
        Proof::of_every(free(Weakened::sound), bounds(1), bounds(2)),
        Proof::of_every(stale_thaw(true), bounds(1), bounds(2)),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    // The compare-and-swap of the write lock always succeeds.
    let locks = |memory| {
        let (at, len) = lock_word();
        Weakened::new(memory, Weakness::Swaps(at, len))
    };
    vec![
        (count(locks), bounds.clone(), "is lost"),
        (rebuild(fences, true), bounds.clone(), "differ"),
        (rebuild(Weakened::sound, false), bounds.clone(), "differ"),
        (return_to_primary(false), bounds.clone(), "older"),
        (two_movers(fences), bounds.clone(), "on one server"),
        (free(fences), bounds.clone(), "no live replica"),
        (stale_thaw(false), bounds, "belongs to another slice"),
    ]
}

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);
const MOVER: Instance = instance(0);
/// The process of a server that dies.
const DEAD: Instance = Instance::new(9, 1);
const SURVIVOR: Instance = instance(3);
const SLOTS: &[u64] = &[0, 1, 2];

/// The first allocation of a pool, with replicas.
fn address() -> Address {
    Address::from_word((1 << 13 | 1) << Address::POSITION_BITS).expect("generation 1")
}

/// Creates a pool with three servers, the first one in the process `first`, and a slice of zeros
/// with replicas on the first two.
fn create(m: Scheduled, first: Instance) {
    create_with(m, [first, HOST, HOST], 2);
}

/// The same, with servers in these processes, and this number of replicas.
fn create_with(m: Scheduled, owners: [Instance; 3], replicas: u8) {
    let pool = SmallPool::create_tiny(m);
    for owner in owners {
        pool.serve(owner);
    }
    let kind = Use::Replicated(replicas);
    let allocated = { pool.coherent }.allocate(HOST, 1, Place::Any, kind, &pool);
    assert_eq!(allocated.expect("free memory"), address());
    { pool.coherent }.keep(HOST, address()).expect("its own");
}

fn lock<M: Memory>(pool: &SmallPool<M>, line: Line) -> WriteSet<M> {
    loop {
        let tried = { pool.coherent }.translate_to_write_replicas(line, SLOTS, address(), pool);
        match tried.expect("allocated") {
            ToWrite::Ready(set) => return set,
            ToWrite::Frozen | ToWrite::Locked { .. } => pool.pause(),
        }
    }
}

/// Adds 1 to the first word under a guard.
fn add<M: Memory>(pool: &SmallPool<M>, line: Line, marks: bool) {
    let set = lock(pool, line);
    let word = { pool.coherent }.load_replica(&set, 0);
    set.store(0, word + 1);
    { pool.coherent }
        .confirm_replicas(&set, address())
        .expect("a replica is alive");
    let chunks = if marks { 1 } else { 0 };
    pool.coherent.end_write(line, SLOTS, &set, chunks);
}

/// Moves the slice of a replica to a server, and finishes the move.
fn moved<M: Memory>(pool: &SmallPool<M>, number: u64, to: ServerId) -> Result<(), PoolError> {
    let address = address().plus(number * 16);
    let moved = { pool.coherent }.move_slice(
        MOVER,
        address,
        (to, MoveReason::Requested),
        pool,
        &mut Patient,
    );
    let mut unfinished = match moved {
        Ok(Some(unfinished)) => unfinished,
        // It is there already.
        Ok(None) => return Ok(()),
        Err(failed) => return Err(*failed.error),
    };
    while !pool.finish(MOVER, &mut unfinished) {
        pool.pause();
    }
    Ok(())
}

/// Returns the first words of the replicas that are alive.
fn words<M: Memory>(pool: &SmallPool<M>, replicas: u64) -> Vec<u64> {
    let word = |number: u64| {
        let place = { pool.coherent }.locate(address().plus(number * 16), pool);
        match place {
            Ok(place) => Some({ place.memory }.load(place.at, Ordering::Relaxed)),
            Err(PoolError::Lost { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    (0..replicas).filter_map(word).collect()
}

/// Checks that each of two replicas that is alive has `expected`.
fn check(m: Scheduled, alive: usize, expected: u64) {
    let pool = SmallPool::open_tiny(m);
    let found = words(&pool, 2);
    assert_eq!(found.len(), alive);
    assert!(
        found.iter().all(|it| *it == found[0]),
        "they differ: {found:?}"
    );
    assert_eq!(found[0], expected, "a count is lost");
    pool.check().expect("a sound pool");
}

/// Two writers add to one word: no addition is lost, and the replicas are equal.
fn count<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    let writer = move |id| {
        move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let line = pool.line(instance(id));
            add(&pool, line, true);
        }
    };
    Scenario::new("memory pool: two writers of replicas")
        .memory(SIZE)
        .prepare(|m| create(m, HOST))
        .thread("writer", writer(1))
        .thread("other writer", writer(2))
        .check(|m, _| check(m, 2, 2))
}

/// A writer adds to a word while a lost replica is rebuilt: both replicas have it afterwards.
fn rebuild<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
    marks: bool,
) -> Scenario {
    Scenario::new("memory pool: a write against a rebuild")
        .memory(SIZE)
        .prepare(|m| {
            create(m, DEAD);
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD);
        })
        .thread("mover", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            moved(&pool, 0, ServerId(3)).expect("a replica that is lost");
        })
        .thread("writer", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let line = pool.line(instance(1));
            add(&pool, line, marks);
        })
        .check(|m, _| check(m, 2, 1))
}

/// The server of the first replica dies while a writer adds and a reader reads twice: no word that
/// was read goes back, and the writer's addition is kept.
fn fail_over() -> Scenario {
    Scenario::new("memory pool: a read against a write and the death of a server")
        .memory(SIZE)
        .prepare(|m| create(m, DEAD))
        .thread("survivor", |m| {
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD)
        })
        .thread("writer", |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(1));
            add(&pool, line, true);
        })
        .thread("reader", |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(2));
            let first = pool.load(line, address(), true);
            let second = pool.load(line, address(), true);
            assert!(first <= second, "an older value is read");
        })
        .check(|m, _| check(m, 1, 1))
}

/// A reader reads twice while the first replica is rebuilt and then written. Its first guard is on
/// the second replica, which the writer stores to first. Broken: it does not confirm.
fn return_to_primary(confirms: bool) -> Scenario {
    Scenario::new("memory pool: a read against a rebuild and a write")
        .memory(SIZE)
        .prepare(|m| {
            create(m, DEAD);
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD);
        })
        .thread("mover and writer", |m| {
            let pool = SmallPool::open_tiny(m);
            let address = address();
            let to = ServerId(3);
            let moved = { pool.coherent }.move_slice(
                MOVER,
                address,
                (to, MoveReason::LostReplica),
                &pool,
                &mut Patient,
            );
            let unfinished = moved.expect("a replica that is lost");
            let line = pool.line(instance(1));
            add(&pool, line, true);
            drop(unfinished);
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(2));
            let first = pool.load(line, address(), confirms);
            let second = pool.load(line, address(), confirms);
            assert!(first <= second, "an older value is read");
        })
        .check(|m, _| {
            let pool = SmallPool::open_tiny(m);
            pool.recover(SURVIVOR, MOVER);
            check(m, 2, 1);
        })
}

/// Two members move the two replicas to one server: at most one of them does.
fn two_movers<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let mover = move |number| {
        move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            match moved(&pool, number, ServerId(3)) {
                Ok(()) | Err(PoolError::HasReplica { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    Scenario::new("memory pool: two replicas moved to one server")
        .memory(SIZE)
        .prepare(|m| create(m, HOST))
        .thread("mover", mover(0))
        .thread("other mover", mover(1))
        .check(|m, _| {
            let pool = SmallPool::open_tiny(m);
            let both = (0..2).all(|slice| pool.has_frame(ServerId(3), slice));
            assert!(!both, "both replicas are on one server");
            check(m, 2, 0);
        })
}

/// A member moves the first replica to a server whose death a survivor records, and another member
/// moves the second replica to the first server: the first replica may return there.
fn taken_back() -> Scenario {
    let mover = |number, to: u16| {
        move |m| {
            let pool = SmallPool::open_tiny(m);
            match moved(&pool, number, ServerId(to)) {
                Ok(())
                | Err(PoolError::HasReplica { .. })
                | Err(PoolError::NotLive { .. } | PoolError::OutOfMemory { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    Scenario::new("memory pool: a replica that returns to its server")
        .memory(SIZE)
        .prepare(|m| create_with(m, [HOST, HOST, DEAD], 2))
        .thread("mover", mover(0, 3))
        .thread("other mover", mover(1, 1))
        .thread("survivor", |m| {
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD)
        })
        .check(|m, _| {
            let pool = SmallPool::open_tiny(m);
            let census = pool.check();
            assert!(census.is_ok(), "{census:?}");
        })
}

/// A survivor equalises three replicas of a writer that died when the last one had its word, while
/// the server of the second one dies: the others are equal.
fn settle() -> Scenario {
    Scenario::new("memory pool: a dead writer against the death of a server")
        .memory(SIZE)
        .prepare(|m| {
            create_with(m, [HOST, DEAD, HOST], 3);
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(4));
            let _dead = lock(&pool, line);
            let place = { pool.coherent }.locate(address().plus(32), &pool);
            let place = place.expect("allocated");
            { place.memory }.store(place.at, 1u64, Ordering::Release);
        })
        .thread("survivor", |m| {
            SmallPool::open_tiny(m).recover(SURVIVOR, instance(4))
        })
        .thread("other survivor", |m| {
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD)
        })
        .check(|m, _| {
            let found = words(&SmallPool::open_tiny(m), 3);
            assert_eq!(found, [1, 1], "the replicas differ");
        })
}

/// A client frees a slice while its lost replica is rebuilt: everything is released.
fn free<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: a release against a rebuild")
        .memory(SIZE)
        .prepare(|m| {
            create(m, DEAD);
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD);
        })
        .thread("mover", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            match moved(&pool, 0, ServerId(3)) {
                Ok(()) | Err(PoolError::Freed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .thread("client", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let run = { pool.coherent }.begin_free(instance(1), address());
            let run = run.expect("kept");
            while { pool.coherent }
                .release_unless_used(instance(1), run, &pool)
                .expect("reachable servers")
                .is_some()
            {
                pool.pause();
            }
        })
        .check(|m, _| {
            let census = SmallPool::open_tiny(m).check().expect("a sound pool");
            assert_eq!((census.slices, census.frames), (0, 0));
        })
}

/// The mover of the second replica died after its flip, and the new server dies. A survivor
/// completes the move, and rebuilds the replica where it was before, while a writer that has seen
/// the first freeze thaws the replica. Broken: the writer does not announce it.
fn stale_thaw(announces: bool) -> Scenario {
    Scenario::new("memory pool: a thaw against a move and a rebuild")
        .memory(SIZE)
        .prepare(|m| {
            create_with(m, [HOST, HOST, DEAD], 2);
            let dies = Weakness::Pauses("pool.move", "Flipped", || {
                std::panic::resume_unwind(Box::new("death"))
            });
            let pool = SmallPool::open_tiny(Weakened::new(m, dies));
            let died = catch_unwind(AssertUnwindSafe(|| moved(&pool, 1, ServerId(3))));
            assert!(died.is_err());
        })
        .thread("survivor", |m| {
            let pool = SmallPool::open_tiny(m);
            let recovered = { pool.coherent }.recover(SURVIVOR, MOVER, &pool, &pool);
            for mut unfinished in recovered.moves {
                while !pool.finish(SURVIVOR, &mut unfinished) {
                    pool.pause();
                }
            }
            match moved(&pool, 1, ServerId(2)) {
                // The replica was or is on the third server, or it was thawed.
                Ok(()) | Err(PoolError::MoveCancelled { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .thread("other survivor", |m| {
            SmallPool::open_tiny(m).recover(SURVIVOR, DEAD);
        })
        .thread("writer", move |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(1));
            match announces {
                true => pool.coherent.thaw_replicas(line, 0, address()),
                false => pool.coherent.thaw(address().plus(16)),
            }
        })
        .check(|m, _| {
            let pool = SmallPool::open_tiny(m);
            let found = words(&pool, 2);
            assert!(found.iter().all(|it| *it == 0), "{found:?}");
            pool.check().expect("a sound pool");
        })
}
