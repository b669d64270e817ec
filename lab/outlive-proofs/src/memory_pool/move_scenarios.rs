//! Moves of a slice against writers, readers, frees and survivors, under every interleaving within
//! bounds; and broken variants, which an exploration must find.

use super::small::{LOCK as FLAG, Patient, SIZE, SmallPool, instance};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::{Line, MoveReason, Place, Unfinished, Use};
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    let deaths = Bounds::default().preemptions(1).deaths(1);
    vec![
        Proof::of_every(write(Weakened::sound, true), bounds(2), bounds(3)),
        Proof::of_every(dying(true), bounds(1), bounds(2)),
        Proof::of_every(read(Weakened::sound, true), bounds(1), bounds(2)),
        Proof::of_every(doomed(), bounds(2), bounds(3)),
        Proof::of_every(free(Weakened::sound), bounds(2), bounds(3)),
        Proof::of_every(
            survivor(Weakened::sound),
            deaths.clone().stale_reads(0),
            deaths,
        ),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    vec![
        (write(fences, true), bounds.clone(), "is lost"),
        (write(Weakened::sound, false), bounds.clone(), "is lost"),
        (dying(false), bounds.clone(), "is lost"),
        (read(Weakened::sound, false), bounds.clone(), "older"),
        (free(fences), bounds, "belongs to another slice"),
    ]
}

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);
const MOVER: Instance = instance(0);
/// The process of a server that dies.
const DEAD: Instance = Instance::new(9, 1);
const TO: ServerId = ServerId(2);

/// The first allocation of a pool.
fn address() -> Address {
    Address::from_word(1 << Address::POSITION_BITS).expect("generation 1")
}

/// Creates a pool of two servers with a slice of zeros on the first one.
fn create(m: Scheduled) {
    create_with(m, HOST);
}

/// The same, with the second server in the process `second`.
fn create_with(m: Scheduled, second: Instance) {
    let pool = SmallPool::create_tiny(m);
    pool.serve(HOST);
    pool.serve(second);
    let place = Place::At(ServerId(1));
    let allocated = { pool.coherent }.allocate(HOST, 1, place, Use::Plain, &pool);
    assert_eq!(allocated.expect("free memory"), address());
    { pool.coherent }.keep(HOST, address()).expect("its own");
}

/// Moves the slice. `None` if it was freed.
fn moved<M: Memory>(pool: &SmallPool<M>) -> Option<Unfinished> {
    let moved = { pool.coherent }.move_slice(
        MOVER,
        address(),
        (TO, MoveReason::Requested),
        pool,
        &mut Patient,
    );
    match moved.map_err(|failed| *failed.error) {
        Ok(unfinished) => Some(unfinished.expect("another server")),
        Err(PoolError::Freed { .. } | PoolError::MoveCancelled { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Finishes the move when its readers have ended.
fn finish<M: Memory>(pool: &SmallPool<M>, mut unfinished: Unfinished) {
    while !pool.finish(MOVER, &mut unfinished) {
        pool.pause();
    }
}

/// Moves the slice and finishes the move, unless the slice was freed or a writer cancelled it.
fn complete<M: Memory>(pool: &SmallPool<M>) {
    if let Some(unfinished) = moved(pool) {
        finish(pool, unfinished);
    }
}

/// Stores 1 to the first word of the slice under a guard, and marks it for a mover. A writer that
/// `thaws` does not wait for the mover.
fn store<M: Memory>(pool: &SmallPool<M>, line: Line, marks: bool, thaws: bool) {
    loop {
        let place = { pool.coherent }.translate_to_write(line, 0, address(), pool);
        if let Some(place) = place.expect("allocated") {
            { place.memory }.store(place.at, 1u64, Ordering::Relaxed);
            if marks {
                pool.coherent.mark_written(0, 1);
            }
            pool.coherent.withdraw(line, 0);
            return;
        }
        match thaws {
            true => pool.coherent.thaw(address()),
            false => pool.pause(),
        }
    }
}

/// Checks the tables: the slice has one frame, and no move is left.
fn check(m: Scheduled, slices: u64) {
    let pool = SmallPool::open_tiny(m);
    let census = pool.check().expect("a sound pool");
    assert_eq!(
        (census.slices, census.frames, census.hidden),
        (slices, slices, 0)
    );
    let mut owners = pool.coherent.owners();
    owners.retain(|it| *it == MOVER);
    assert!(owners.is_empty(), "a move is left");
}

/// Checks that the slice has what a writer has written, and the tables.
fn check_written(m: Scheduled) {
    let pool = SmallPool::open_tiny(m);
    let place = { pool.coherent }.locate(address(), &pool);
    let place = place.expect("allocated");
    let word: u64 = { place.memory }.load(place.at, Ordering::Relaxed);
    assert_eq!(word, 1, "a write is lost");
    check(m, 1);
}

/// A writer stores to a slice while it is moved: the store is not lost.
fn write<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
    marks: bool,
) -> Scenario {
    Scenario::new("memory pool: a write against a move")
        .memory(SIZE)
        .prepare(create)
        .thread("mover", move |m| complete(&SmallPool::open_tiny(weaken(m))))
        .thread("writer", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let line = pool.line(instance(1));
            store(&pool, line, marks, false);
        })
        .check(|m, _| check_written(m))
}

/// A writer stores to a slice while it is moved, and dies with its guard. A survivor, here its
/// thread, recovers it: what a reader may have seen is not lost. Broken: the survivor withdraws the
/// announcement only.
fn dying(recovers: bool) -> Scenario {
    Scenario::new("memory pool: a writer that dies against a move")
        .memory(SIZE)
        .prepare(create)
        .thread("mover", |m| complete(&SmallPool::open_tiny(m)))
        .thread("writer and survivor", move |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(1));
            let place = loop {
                let place = { pool.coherent }.translate_to_write(line, 0, address(), &pool);
                if let Some(place) = place.expect("allocated") {
                    break place;
                }
                pool.pause();
            };
            { place.memory }.store(place.at, 1u64, Ordering::Relaxed);
            match recovers {
                true => {
                    let recovered =
                        { pool.coherent }.recover(instance(3), instance(1), &pool, &pool);
                    assert!(recovered.failed.is_none());
                }
                false => pool.coherent.withdraw(line, 0),
            }
        })
        .check(|m, _| check_written(m))
}

/// A reader reads twice while a slice is moved and then written: it never reads an older value
/// later, and its memory is not released.
fn read<M: Memory>(
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
    confirms: bool,
) -> Scenario {
    Scenario::new("memory pool: a read against a move and a write")
        .memory(SIZE)
        .prepare(create)
        .thread("mover", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let unfinished = moved(&pool).expect("no other member");
            let line = pool.line(instance(1));
            store(&pool, line, true, false);
            m.store(FLAG, 1u64, Ordering::Release);
            finish(&pool, unfinished);
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let line = pool.line(instance(2));
            let place = { pool.coherent }.translate(line, 0, address(), &pool);
            let place = place.expect("allocated");
            // Acquire: if the flag is set, the write comes before the load.
            let is_written = m.load::<u64>(FLAG, Ordering::Acquire) == 1;
            let word: u64 = { place.memory }.load(place.at, Ordering::Relaxed);
            let server = pool.server_at(place.at);
            assert!(pool.has_frame(server, 0), "the memory is released");
            let confirmed = match confirms {
                true => pool.coherent.confirm(&place),
                false => Ok(()),
            };
            pool.coherent.withdraw(line, 0);
            if confirmed.is_ok() {
                assert!(word == 1 || !is_written, "an older value is read");
            }
            let word = pool.load(line, address(), confirms);
            assert!(word == 1 || !is_written, "an older value is read");
        })
        .check(|m, _| check(m, 1))
}

/// The new server dies while a slice moves there, and a reader reads: the slice is lost only with
/// the new server, after the move. A reader that is told of a loss is told the truth.
fn doomed() -> Scenario {
    let moved_there = Ghost::<bool>::new();
    let of_mover = moved_there.clone();
    let told = Ghost::<bool>::new();
    let of_reader = told.clone();
    Scenario::new("memory pool: a move to a server that dies")
        .memory(SIZE)
        .prepare(|m| create_with(m, DEAD))
        .thread("mover", move |m| {
            let pool = SmallPool::open_tiny(m);
            let result = { pool.coherent }.move_slice(
                MOVER,
                address(),
                (TO, MoveReason::Requested),
                &pool,
                &mut Patient,
            );
            match result.map_err(|failed| *failed.error) {
                Ok(unfinished) => {
                    of_mover.with(|moved| *moved = true);
                    finish(&pool, unfinished.expect("another server"));
                }
                Err(PoolError::Lost { server: TO, .. } | PoolError::NotLive { .. }) => {}
                // The frame was on the server that has died.
                Err(PoolError::OutOfMemory { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .thread("survivor", |m| {
            let pool = SmallPool::open_tiny(m);
            let recovered = { pool.coherent }.recover(instance(3), DEAD, &pool, &pool);
            assert_eq!(recovered.servers, 1);
        })
        .thread("reader", move |m| {
            let pool = SmallPool::open_tiny(m);
            let line = pool.line(instance(2));
            match { pool.coherent }.translate(line, 0, address(), &pool) {
                Ok(_) => pool.coherent.withdraw(line, 0),
                Err(PoolError::Lost { .. }) => of_reader.with(|told| *told = true),
                Err(error) => panic!("{error}"),
            }
        })
        .check(move |m, _| {
            let pool = SmallPool::open_tiny(m);
            let found = { pool.coherent }.locate(address(), &pool);
            let is_lost = matches!(found, Err(PoolError::Lost { server: TO, .. }));
            assert!(is_lost || found.is_ok(), "{found:?}");
            let (has_moved, was_told) = (
                moved_there.with(core::mem::take),
                told.with(core::mem::take),
            );
            assert_eq!(has_moved, is_lost, "a slice that has not moved is lost");
            assert!(
                is_lost || !was_told,
                "a slice that is not lost is said to be"
            );
        })
}

/// A client frees a slice while it is moved: everything is released.
fn free<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: a release against a move")
        .memory(SIZE)
        .prepare(create)
        .thread("mover", move |m| complete(&SmallPool::open_tiny(weaken(m))))
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
        .check(|m, _| check(m, 0))
}

/// A mover dies at any step while a writer writes; a survivor recovers it.
fn survivor<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("memory pool: a write against a mover that dies")
        .memory(SIZE)
        .prepare(create)
        .mortal("mover", move |m| complete(&SmallPool::open_tiny(weaken(m))))
        .thread("writer", move |m| {
            let pool = SmallPool::open_tiny(weaken(m));
            let line = pool.line(instance(1));
            store(&pool, line, true, true);
        })
        .check(|m, end| {
            let pool = SmallPool::open_tiny(m);
            if end.died(0) {
                let recovered = { pool.coherent }.recover(instance(3), MOVER, &pool, &pool);
                assert!(recovered.moves.is_empty() && recovered.failed.is_none());
            }
            check_written(m);
        })
}
