//! Slices that move between servers, beside readers and writers in this process.

use crate::{Place, SLICE, slices_of};
use outlive_pool::{
    Address, Client, MoveBudget, Placement, Pool, PoolError, PoolOptions, PoolVec, Reader,
    Rebalancer, Server,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A pool with servers, and a client of it.
struct Scene<const N: usize> {
    // Dropped in this order.
    client: Client,
    servers: [Server; N],
    pool: Pool,
    _place: Place,
}

/// Returns a pool with a server for each number of slices.
fn scene<const N: usize>(name: &str, slices: [u64; N]) -> Scene<N> {
    let (place, pool) = Place::new(name, PoolOptions::new());
    let servers = slices.map(|slices| pool.serve(slices * SLICE, 0).unwrap());
    Scene {
        client: pool.join().unwrap(),
        servers,
        pool,
        _place: place,
    }
}

fn moved(client: &Client, address: Address, to: &Server) -> Result<bool, PoolError> {
    let budget = MoveBudget {
        writer_timeout: Duration::from_millis(5),
        ..MoveBudget::default()
    };
    client.move_slice(address, to.id(), budget)
}

#[test]
fn a_slice_keeps_its_address_and_its_data() {
    let Scene {
        client,
        servers: [first, second],
        pool,
        _place,
    } = scene("move", [2, 2]);
    let reader = client.reader().unwrap();
    let at_first = Placement::There(first.id());
    let address = client.allocate(2 * SLICE, at_first).unwrap();
    let data: Vec<u8> = (0..2 * SLICE).map(|at| (at % 251) as u8).collect();
    reader.write(address, &data).unwrap();
    for slice in 0..2 {
        assert!(moved(&client, address.plus(slice * SLICE), &second).unwrap());
        assert!(!moved(&client, address.plus(slice * SLICE), &second).unwrap());
    }
    assert_eq!(
        (slices_of(&pool, &first), slices_of(&pool, &second)),
        (0, 2)
    );
    let servers = client.servers_of(address, 2 * SLICE);
    assert_eq!(servers, [Some(second.id()); 2]);
    let mut found = vec![0; data.len()];
    reader.read(address, &mut found).unwrap();
    assert!(found == data);
    // The old frames are free, and not zero.
    let next = client.allocate(2 * SLICE, at_first).unwrap();
    reader.read(next, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    let full = moved(&client, address, &first).unwrap_err();
    assert!(matches!(full, PoolError::OutOfMemory { .. }), "{full}");
    client.free(address).unwrap();
    let freed = moved(&client, address, &first).unwrap_err();
    assert!(matches!(freed, PoolError::Freed { .. }), "{freed}");
    let census = pool.check().unwrap();
    assert_eq!((census.slices, census.frames), (2, 2));
}

#[test]
fn a_reader_keeps_the_old_memory_and_learns_of_the_move() {
    let Scene {
        client,
        servers: [first, second],
        pool: _pool,
        _place,
    } = scene("move-read", [1, 1]);
    let reader = client.reader().unwrap();
    let address = client
        .allocate(SLICE, Placement::There(first.id()))
        .unwrap();
    reader.write(address, &7u64.to_ne_bytes()).unwrap();
    let guard = reader.guard(address).unwrap();
    assert!(moved(&client, address, &second).unwrap());
    reader.write(address, &8u64.to_ne_bytes()).unwrap();
    assert_eq!(guard.load(0), 7);
    let stale = guard.confirm().unwrap_err();
    assert!(matches!(stale, PoolError::Moved { .. }), "{stale}");
    // The old frame is still in use, and the slice cannot be moved again.
    let full = client.allocate(SLICE, Placement::There(first.id()));
    assert!(matches!(full, Err(PoolError::OutOfMemory { .. })));
    let twice = moved(&client, address, &first).unwrap_err();
    assert!(matches!(twice, PoolError::BeingMoved { .. }), "{twice}");
    drop(guard);
    assert_eq!(reader.guard(address).unwrap().load(0), 8);
    client.collect();
    assert!(moved(&client, address, &first).unwrap());
}

#[test]
fn a_writer_keeps_its_slice() {
    let Scene {
        client,
        servers: [first, second],
        pool: _pool,
        _place,
    } = scene("move-write", [1, 1]);
    let reader = client.reader().unwrap();
    let address = client
        .allocate(SLICE, Placement::There(first.id()))
        .unwrap();
    let guard = reader.write_guard(address).unwrap();
    let kept = moved(&client, address, &second).unwrap_err();
    assert!(
        matches!(kept, PoolError::StillWritten { by, .. } if by == client.instance()),
        "{kept}"
    );
    guard.store(3, 5);
    guard.confirm().unwrap();
    drop(guard);
    assert!(moved(&client, address, &second).unwrap());
    assert_eq!(reader.guard(address).unwrap().load(3), 5);
}

/// A guard that is forgotten ends with its reader. A mover that waits for it copies all chunks.
#[test]
fn a_forgotten_guard_loses_no_write() {
    let Scene {
        client,
        servers: [first, second],
        pool: _pool,
        _place,
    } = scene("move-forgotten", [1, 1]);
    let address = client
        .allocate(SLICE, Placement::There(first.id()))
        .unwrap();
    for round in 1..200 {
        let to = if round % 2 == 0 { &first } else { &second };
        let has_moved = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_moved.load(Ordering::Acquire) {
                    let reader = client.reader().unwrap();
                    let guard = reader.write_guard(address).unwrap();
                    guard.store(0, guard.load(0) + 1);
                    std::mem::forget(guard);
                    // The reader ends, and with it the announcement.
                    let count = reader.guard(address).unwrap().load(0);
                    drop(reader);
                    let again = client.reader().unwrap();
                    assert!(
                        again.guard(address).unwrap().load(0) >= count,
                        "a write is lost"
                    );
                }
            });
            while let Err(error) = moved(&client, address, to) {
                assert!(
                    matches!(
                        error,
                        PoolError::StillWritten { .. }
                            | PoolError::MoveCancelled { .. }
                            | PoolError::BeingMoved { .. }
                    ),
                    "{error}"
                );
            }
            has_moved.store(true, Ordering::Release);
        });
    }
}

#[test]
fn two_servers_leave_at_one_time_for_a_third_one() {
    let Scene {
        client,
        servers: [first, second, third],
        pool,
        _place,
    } = scene("move-two", [8, 8, 16]);
    let reader = client.reader().unwrap();
    let vectors = [&first, &second].map(|server| {
        let there = Placement::There(server.id());
        let vector: PoolVec<u64> = PoolVec::allocate(&client, 8 * SLICE / 8, there).unwrap();
        vector.fill(&reader, |index| index).unwrap();
        vector
    });
    std::thread::scope(|scope| {
        for server in [first, second] {
            scope.spawn(|| server.move_and_leave(MoveBudget::default()).unwrap());
        }
    });
    assert_eq!(slices_of(&pool, &third), 16);
    for vector in vectors {
        let sum = vector.fold(&reader, 0u64, u64::wrapping_add).unwrap();
        assert_eq!(sum, (0..8 * SLICE / 8).sum());
    }
}

#[test]
fn a_server_that_leaves_waits_for_the_move_of_another_member() {
    let Scene {
        client,
        servers: [first, second],
        pool,
        _place,
    } = scene("move-foreign", [2, 4]);
    let reader = client.reader().unwrap();
    let address = client
        .allocate(2 * SLICE, Placement::There(first.id()))
        .unwrap();
    reader.write(address, &[7; 2 * SLICE as usize]).unwrap();
    let (has_begun, to) = (AtomicBool::new(false), second.id());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mover = pool.join().unwrap();
            // More than a second for a slice.
            let budget = MoveBudget {
                bytes_per_second: Some(3 << 10),
                ..MoveBudget::default()
            };
            has_begun.store(true, Ordering::Release);
            assert!(mover.move_slice(address, to, budget).unwrap());
        });
        while !has_begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        first.move_and_leave(MoveBudget::default()).unwrap();
    });
    let mut found = vec![0; 2 * SLICE as usize];
    reader.read(address, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn a_server_that_leaves_moves_its_slices() {
    let Scene {
        client,
        servers: [first, second],
        pool,
        _place,
    } = scene("move-leave", [4, 6]);
    let reader = client.reader().unwrap();
    let vector: PoolVec<u64> =
        PoolVec::allocate(&client, 4 * SLICE / 8, Placement::There(first.id())).unwrap();
    vector.fill(&reader, |index| index).unwrap();
    first.move_and_leave(MoveBudget::default()).unwrap();
    let sum = vector.fold(&reader, 0u64, u64::wrapping_add).unwrap();
    assert_eq!(sum, (0..4 * SLICE / 8).sum());
    // No other server is left.
    let (second, error) = second.move_and_leave(MoveBudget::default()).unwrap_err();
    assert!(
        matches!(error, PoolError::StillHeld { slices: 4, .. }),
        "{error}"
    );
    assert_eq!(slices_of(&pool, &second), 4);
}

#[test]
fn a_server_moves_slices_to_shrink() {
    let Scene {
        client,
        servers: [mut first, second],
        pool,
        _place,
    } = scene("move-shrink", [4, 2]);
    let address = client
        .allocate(3 * SLICE, Placement::There(first.id()))
        .unwrap();
    let held = first.resize(SLICE).unwrap_err();
    assert!(
        matches!(held, PoolError::StillHeld { slices: 2, .. }),
        "{held}"
    );
    first.resize_and_move(SLICE, MoveBudget::default()).unwrap();
    assert_eq!(
        (slices_of(&pool, &first), slices_of(&pool, &second)),
        (1, 2)
    );
    // The others have no memory.
    let held = first.resize_and_move(0, MoveBudget::default()).unwrap_err();
    assert!(
        matches!(held, PoolError::StillHeld { slices: 1, .. }),
        "{held}"
    );
    client.free(address).unwrap();
}

#[test]
fn slices_of_objects_stay() {
    let Scene {
        client,
        servers: [first, second],
        pool: _pool,
        _place,
    } = scene("move-object", [2, 2]);
    let objects = client.objects().unwrap();
    objects
        .put("name", &[1; 5000], Placement::There(first.id()))
        .unwrap();
    let drained = client.drain(first.id(), MoveBudget::default()).unwrap();
    assert_eq!((drained.moved, drained.remaining.len()), (0, 2));
    let why = &drained.remaining[0].1;
    assert!(matches!(why, PoolError::OfObject { .. }), "{why}");
    drop(second);
}

/// Makes guards on all slices, many of which are sampled.
fn access(reader: &Reader, address: Address, slices: u64) {
    for _ in 0..2000 {
        for slice in 0..slices {
            reader.guard(address.plus(slice * SLICE)).unwrap();
        }
    }
}

fn rebalanced(client: &Client, rebalancer: &mut Rebalancer) -> usize {
    let second = Duration::from_secs(1);
    let done = client.rebalance(rebalancer, second, MoveBudget::default());
    assert!(done.refused.is_empty(), "{done:?}");
    done.moved.len()
}

#[test]
fn slices_move_to_the_server_that_uses_them() {
    let Scene {
        client: planner,
        servers: [first, second],
        pool,
        _place,
    } = scene("move-hot", [8, 8]);
    let address = planner
        .allocate(4 * SLICE, Placement::There(second.id()))
        .unwrap();
    let of_first = first.client().reader().unwrap();
    let of_second = second.client().reader().unwrap();
    let mut rebalancer = Rebalancer::new();
    // What was accessed before is not known.
    access(&of_first, address, 4);
    rebalancer.observe(&planner);
    assert_eq!(rebalancer.plan(&planner), []);
    // With few samples, a slice may have too few of them by chance.
    for _ in 0..5 {
        access(&of_first, address, 4);
        rebalanced(&planner, &mut rebalancer);
    }
    assert_eq!(
        (slices_of(&pool, &first), slices_of(&pool, &second)),
        (4, 0)
    );
    // The hot set moves to the other server. The slices rest for some periods.
    let mut periods = 5;
    while slices_of(&pool, &second) < 4 {
        access(&of_second, address, 4);
        rebalanced(&planner, &mut rebalancer);
        periods += 1;
        assert!(periods < 20, "no slice has moved");
    }
    assert!(periods >= 10, "{periods}");
}

#[test]
fn slices_that_two_servers_use_equally_stay() {
    let Scene {
        client: planner,
        servers: [first, second],
        pool: _pool,
        _place,
    } = scene("move-equal", [8, 8]);
    let address = planner.allocate(4 * SLICE, Placement::Spread).unwrap();
    // A process that is no server is near none.
    let readers = [first.client(), second.client(), planner.clone()];
    let readers = readers.map(|client| client.reader().unwrap());
    let mut rebalancer = Rebalancer::new();
    rebalancer.observe(&planner);
    let mut moves = 0;
    for _ in 0..20 {
        readers.iter().for_each(|reader| access(reader, address, 4));
        moves += rebalanced(&planner, &mut rebalancer);
    }
    // Each at most once in ten periods, by chance.
    assert!(moves <= 4, "{moves}");
}

/// Each writer counts in words of its own, in all slices, while the slices move around. No count is
/// lost, and a reader never sees a smaller one after a larger one.
#[test]
fn nothing_is_lost_while_slices_move() {
    const WRITERS: u64 = 2;
    const SLICES: u64 = 4;
    let Scene {
        client,
        servers,
        pool,
        _place,
    } = scene("move-stress", [8, 8, 8]);
    let address = client.allocate(SLICES * SLICE, Placement::Spread).unwrap();
    let (is_over, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let (mut moves, mut cancelled) = (0, 0);
    std::thread::scope(|scope| {
        for (writer, count) in (0..WRITERS).zip(&counts) {
            let (client, is_over) = (client.clone(), &is_over);
            scope.spawn(move || {
                let reader = client.reader().unwrap();
                let word = |slice: u64| address.plus(slice * SLICE + writer * 2048);
                for round in 1u64.. {
                    for slice in 0..SLICES {
                        let guard = reader.write_guard(word(slice)).unwrap();
                        assert_eq!(guard.load(0), round - 1);
                        guard.store(0, round);
                        guard.confirm().unwrap();
                    }
                    count.store(round, Ordering::Release);
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                }
            });
        }
        let (reading, is_read, counted) = (client.clone(), &is_over, &counts);
        scope.spawn(move || {
            let reader = reading.reader().unwrap();
            while !is_read.load(Ordering::Acquire) {
                for (writer, count) in (0..WRITERS).zip(counted) {
                    let least = count.load(Ordering::Acquire);
                    for slice in 0..SLICES {
                        let mut bytes = [0; 8];
                        let word = address.plus(slice * SLICE + writer * 2048);
                        reader.read(word, &mut bytes).unwrap();
                        assert!(u64::from_ne_bytes(bytes) >= least, "an older count");
                    }
                }
            }
        });
        let end = Instant::now() + Duration::from_millis(500);
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            let slice = address.plus(turn % SLICES * SLICE);
            match moved(&client, slice, &servers[(turn / SLICES % 3) as usize]) {
                Ok(_) => moves += 1,
                Err(
                    PoolError::StillWritten { .. }
                    | PoolError::MoveCancelled { .. }
                    | PoolError::BeingMoved { .. },
                ) => cancelled += 1,
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Release);
    });
    println!("{moves} moves, {cancelled} not");
    assert!(moves > 10, "{moves} moves, {cancelled} not");
    client.collect();
    let census = pool.check().unwrap();
    assert_eq!(
        (census.slices, census.frames, census.hidden),
        (SLICES, SLICES, 0)
    );
}
