//! Allocation, access and freeing, with servers and clients in this process.

use crate::{Place, SLICE, servers, slices_of};
use outlive::membership::Instance;
use outlive::memory::{Memory, Ordering};
use outlive_pool::{Address, Phase, Placement, Pool, PoolError, PoolOptions, PoolVec, ServerId};

#[test]
fn placements_choose_the_servers() {
    let (_place, pool) = Place::new("placement", PoolOptions::new());
    let servers = servers(&pool, &[4, 4, 4]);
    let client = pool.join().unwrap();
    let held = || {
        servers
            .iter()
            .map(|it| slices_of(&pool, it))
            .collect::<Vec<_>>()
    };

    let spread = client.allocate(6 * SLICE, Placement::Spread).unwrap();
    assert_eq!(held(), [2, 2, 2]);
    let there = client
        .allocate(1, Placement::There(servers[2].id()))
        .unwrap();
    assert_eq!(held(), [2, 2, 3]);
    let here = servers[1]
        .client()
        .allocate(SLICE + 1, Placement::Here)
        .unwrap();
    assert_eq!(held(), [2, 4, 3]);
    let any = client.allocate(3 * SLICE, Placement::Any).unwrap();
    assert_eq!(held(), [4, 4, 4]);

    let full = client.allocate(1, Placement::Any).unwrap_err();
    assert!(
        matches!(full, PoolError::OutOfMemory { servers: 3, .. }),
        "{full}"
    );
    let not_here = client.allocate(1, Placement::Here).unwrap_err();
    assert!(matches!(not_here, PoolError::NotAServer), "{not_here}");
    let absent = client
        .allocate(1, Placement::There(ServerId(9)))
        .unwrap_err();
    assert!(matches!(absent, PoolError::NotLive { .. }), "{absent}");
    let long = client.allocate(65 * SLICE, Placement::Any).unwrap_err();
    assert!(
        matches!(long, PoolError::OutOfAddresses { slices: 65 }),
        "{long}"
    );
    // A call that failed has left nothing.
    assert_eq!(pool.status().slices, 12);

    for address in [spread, there, any] {
        client.free(address).unwrap();
    }
    assert_eq!(held(), [0, 2, 0]);
    servers[1].client().free(here).unwrap();
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn freed_addresses_are_told_and_new_memory_is_zero() {
    let (_place, pool) = Place::new("freed", PoolOptions::new());
    let _servers = servers(&pool, &[2]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let mut word = [0; 8];
    let mut seen = Vec::<Address>::new();
    for round in 1..100u64 {
        let address = client.allocate(2 * SLICE, Placement::Any).unwrap();
        for at in [
            address,
            address.plus(SLICE - 8),
            address.plus(2 * SLICE - 8),
        ] {
            reader.read(at, &mut word).unwrap();
            assert_eq!(u64::from_ne_bytes(word), 0, "round {round}");
            reader.write(at, &round.to_ne_bytes()).unwrap();
            reader.read(at, &mut word).unwrap();
            assert_eq!(u64::from_ne_bytes(word), round);
        }
        let inner = client.free(address.plus(SLICE)).unwrap_err();
        assert!(matches!(inner, PoolError::NotTheFirst { .. }), "{inner}");
        client.free(address).unwrap();
        seen.push(address);
        for address in &seen {
            let read = reader.read(*address, &mut word).unwrap_err();
            assert!(matches!(read, PoolError::Freed { .. }), "{read}");
            let freed = client.free(*address).unwrap_err();
            assert!(matches!(freed, PoolError::Freed { .. }), "{freed}");
        }
    }
    let beyond = reader.read(seen[0].plus(u64::MAX), &mut word).unwrap_err();
    assert!(matches!(beyond, PoolError::Freed { .. }), "{beyond}");
}

#[test]
fn an_access_does_not_reach_the_next_allocation() {
    let (_place, pool) = Place::new("beside", PoolOptions::new());
    let _servers = servers(&pool, &[8]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let all: Vec<_> = { 0..4 }
        .map(|_| client.allocate(2 * SLICE, Placement::Any).unwrap())
        .collect();
    let refused = |result: Result<(), PoolError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, PoolError::Freed { .. }), "{error}");
    };
    let long = vec![1; 4 * SLICE as usize];
    for address in &all {
        refused(reader.write(*address, &long));
        refused(reader.read(*address, &mut long.clone()));
        let vector = PoolVec::<u64>::at(*address, 3 * SLICE / 8);
        refused(vector.set(&reader, 2 * SLICE / 8, 1));
    }
    // Only the first two slices of each call were written.
    client.free(all[1]).unwrap();
    refused(reader.write(all[0], &long));
    let between = client.allocate(2 * SLICE, Placement::Any).unwrap();
    for address in [all[0], all[2], all[3], between] {
        refused(reader.write(address, &long));
    }
    let mut bytes = long.clone();
    reader.write(all[2], &vec![2; 2 * SLICE as usize]).unwrap();
    refused(reader.write(all[0], &long));
    reader
        .read(all[2], &mut bytes[..2 * SLICE as usize])
        .unwrap();
    assert!(bytes[..2 * SLICE as usize].iter().all(|byte| *byte == 2));
}

#[test]
fn a_guard_keeps_freed_memory_until_it_is_dropped() {
    let (_place, pool) = Place::new("guarded", PoolOptions::new());
    let _servers = servers(&pool, &[1]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let address = client.allocate(SLICE, Placement::Any).unwrap();
    reader.write(address, &7u64.to_ne_bytes()).unwrap();
    let guard = reader.guard(address).unwrap();
    client.free(address).unwrap();
    // The only frame is still that of the guard.
    let full = client.allocate(SLICE, Placement::Any).unwrap_err();
    assert!(matches!(full, PoolError::OutOfMemory { .. }), "{full}");
    assert_eq!(guard.load(0), 7);
    let freed = guard.confirm().unwrap_err();
    assert!(matches!(freed, PoolError::Freed { .. }), "{freed}");
    assert_eq!(client.collect(), 1);
    drop(guard);
    assert_eq!(client.collect(), 0);
    let again = client.allocate(SLICE, Placement::Any).unwrap();
    assert_ne!(again, address);
    assert_eq!(reader.guard(again).unwrap().load(0), 0);
}

#[test]
fn memory_that_a_reader_used_when_its_owner_left_is_released_later() {
    let (_place, pool) = Place::new("left", PoolOptions::new());
    let _servers = servers(&pool, &[2]);
    let reading = pool.join().unwrap();
    let reader = reading.reader().unwrap();
    for is_collected in [true, false] {
        let owner = pool.join().unwrap();
        let address = owner.allocate(2 * SLICE, Placement::Any).unwrap();
        let guard = reader.guard(address.plus(SLICE)).unwrap();
        drop(owner);
        assert_eq!(pool.status().slices, 2);
        assert!(guard.confirm().is_err());
        drop(guard);
        if is_collected {
            assert_eq!((reading.collect(), pool.status().slices), (0, 0));
        }
        // An allocation finds the memory, too.
        let next = reading.allocate(2 * SLICE, Placement::Any).unwrap();
        reading.free(next).unwrap();
        assert_eq!(pool.status().slices, 0);
    }
}

#[test]
fn a_dead_reader_whose_log_is_settled_holds_up_no_release() {
    let (_place, pool) = Place::new("settled", PoolOptions::new());
    let _servers = servers(&pool, &[1]);
    let client = pool.join().unwrap();
    let address = client.allocate(SLICE, Placement::Any).unwrap();
    // A generation that is not the current one of its id, and that has no log.
    let own = client.instance();
    let dead = Instance::new(own.id, own.generation + 100);
    let line = pool.coherent().claim_line(dead).unwrap();
    { pool.coherent().translate(line, 0, address, &pool) }.unwrap();
    client.free(address).unwrap();
    assert_eq!(pool.status().slices, 0);
    client.allocate(SLICE, Placement::Any).unwrap();
}

#[test]
fn a_damaged_entry_of_a_server_is_refused() {
    let (place, pool) = Place::new("damaged", PoolOptions::new());
    let server = servers(&pool, &[2]).remove(0);
    // The entry of server 1: owner, state, bytes, key.
    let tables = pool.pod().structures().unwrap();
    let (memory, at) = (pool.pod().segment().memory(), tables.offset + 0x90);
    let sound: u64 = memory.load(at, Ordering::Acquire);
    for bytes in [0, 56, sound + 8, u64::MAX - 63] {
        memory.store(at, bytes, Ordering::Release);
        let other = Pool::open(&place.0).unwrap();
        let client = other.join().unwrap();
        let foreign = client
            .allocate(1, Placement::There(server.id()))
            .unwrap_err();
        assert!(
            matches!(foreign, PoolError::ForeignSegment { .. }),
            "{bytes}: {foreign}"
        );
    }
    memory.store(at, sound, Ordering::Release);
    let client = pool.join().unwrap();
    client.allocate(1, Placement::Any).unwrap();
}

#[test]
fn a_server_that_cannot_be_reached_fails_no_allocation_on_others() {
    let (place, pool) = Place::new("unreachable", PoolOptions::new());
    let both = servers(&pool, &[2, 2]);
    let client = Pool::open(&place.0).unwrap().join().unwrap();
    let prefix = place.0.file_name().unwrap().to_str().unwrap().to_owned();
    let files = std::fs::read_dir("/dev/shm").unwrap();
    let file = files.map(|file| file.unwrap().path()).find(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&prefix) && name.ends_with("server-1.1")
    });
    let file = file.unwrap();
    let away = file.with_extension("away");
    std::fs::rename(&file, &away).unwrap();
    let there = client
        .allocate(1, Placement::There(both[0].id()))
        .unwrap_err();
    assert!(matches!(there, PoolError::OpenSegment { .. }), "{there}");
    let spread = client.allocate(2 * SLICE, Placement::Spread).unwrap();
    assert_eq!(slices_of(&pool, &both[1]), 2);
    let full = client.allocate(1, Placement::Any).unwrap_err();
    assert!(matches!(full, PoolError::OpenSegment { .. }), "{full}");
    std::fs::rename(&away, &file).unwrap();
    client.allocate(2 * SLICE, Placement::Any).unwrap();
    client.free(spread).unwrap();
}

#[test]
fn the_memory_of_a_server_that_left_is_not_mapped_any_more() {
    let (place, pool) = Place::new("unmapped", PoolOptions::new());
    let client = pool.join().unwrap();
    let name = place.0.to_str().unwrap().to_owned() + ".";
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_servers = |line: &&str| line.contains(&name) && line.contains(".server-");
        maps.lines().filter(of_servers).count()
    };
    for _ in 0..3 {
        let server = servers(&pool, &[2]).remove(0);
        let address = client.allocate(1, Placement::There(server.id())).unwrap();
        assert!(mapped() > 0);
        client.free(address).unwrap();
        assert!(server.leave().is_ok());
        client.collect();
        assert_eq!(mapped(), 0);
    }
}

#[test]
fn kept_allocations_belong_to_no_client() {
    let (_place, pool) = Place::new("kept", PoolOptions::new());
    let _servers = servers(&pool, &[8]);
    let (first, second) = (pool.join().unwrap(), pool.join().unwrap());
    let owned = first.allocate(2 * SLICE, Placement::Any).unwrap();
    let kept = first.allocate(3 * SLICE, Placement::Any).unwrap();
    let of_another = second.free(owned).unwrap_err();
    assert!(
        matches!(of_another, PoolError::OfAnother { .. }),
        "{of_another}"
    );
    assert!(second.keep(owned).is_err());
    first.keep(kept).unwrap();
    assert_eq!((pool.status().owned, pool.status().kept), (1, 1));
    drop(first);
    assert_eq!((pool.status().owned, pool.status().slices), (0, 3));
    let reader = second.reader().unwrap();
    reader.write(kept.plus(SLICE - 4 * 8), &[9; 77]).unwrap();
    let mut bytes = [0; 77];
    reader.read(kept.plus(SLICE - 4 * 8), &mut bytes).unwrap();
    assert_eq!(bytes, [9; 77]);
    second.free(kept).unwrap();
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn limits_are_typed_errors() {
    let (_place, pool) = Place::new("limits", PoolOptions::new().readers(1).servers(1));
    let server = servers(&pool, &[20]);
    let client = pool.join().unwrap();
    let many = pool.serve(SLICE, 0).unwrap_err();
    assert!(
        matches!(many, PoolError::TooManyServers { most: 1 }),
        "{many}"
    );
    let reader = client.reader().unwrap();
    assert!(matches!(
        client.reader(),
        Err(PoolError::TooManyReaders { most: 1 })
    ));
    let address = client.allocate(20 * SLICE, Placement::Any).unwrap();
    let guards: Vec<_> = { 0..15 }
        .map(|slice| reader.guard(address.plus(slice * SLICE)).unwrap())
        .collect();
    let many = reader.guard(address).unwrap_err();
    assert!(
        matches!(many, PoolError::TooManyGuards { most: 15 }),
        "{many}"
    );
    drop(guards);
    let guard = reader.guard(address.plus(8)).unwrap();
    for (byte, len) in [(1, 8), (SLICE - 8, 1), (u64::MAX, 1)] {
        let outside = guard.read(byte, &mut vec![0; len]).unwrap_err();
        assert!(
            matches!(outside, PoolError::OutsideSlice { .. }),
            "{outside}"
        );
    }
    drop(guard);
    for byte in [1, 8, SLICE - 8] {
        let vector = PoolVec::<u128>::at(address.plus(byte), 1 << 10);
        let sum = vector.fold(&reader, 0, |sum, it| sum + it).unwrap_err();
        assert!(matches!(sum, PoolError::Misaligned { .. }), "{sum}");
    }
    let long = PoolVec::<u64>::at(address, u64::MAX);
    for index in [1 << 61, u64::MAX - 1] {
        let beyond = long.set(&reader, index, 1).unwrap_err();
        assert!(matches!(beyond, PoolError::Freed { .. }), "{beyond}");
    }
    let vector = PoolVec::<u64>::at(address, 10);
    let index = vector.get(&reader, 10).unwrap_err();
    assert!(matches!(index, PoolError::Index { .. }), "{index}");
    // A server with data does not leave; without data it does.
    let server = server.into_iter().next().unwrap();
    let (server, held) = server.leave().unwrap_err();
    assert!(
        matches!(held, PoolError::StillHeld { slices: 20, .. }),
        "{held}"
    );
    client.free(address).unwrap();
    assert!(server.leave().is_ok());
}

#[test]
fn a_lost_server_is_an_error_and_its_number_has_a_next_generation() {
    let (place, pool) = Place::new("lost", PoolOptions::new().servers(2));
    let mut both = servers(&pool, &[8, 8]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let vector: PoolVec<u64> =
        PoolVec::allocate(&client, 4 * SLICE / 8, Placement::Spread).unwrap();
    vector.fill(&reader, |index| index).unwrap();
    let guard = reader.guard(vector.address().plus(SLICE)).unwrap();
    let lost = both.pop().unwrap();
    let id = lost.id();
    drop(lost);
    assert!(guard.confirm().is_err());
    drop(guard);
    let results: Vec<_> = vector
        .parts(&client)
        .map(|part| {
            let expected = part.clone().sum::<u64>();
            let sum = vector.fold_range(&reader, part, 0, |sum, it| sum + it);
            match sum {
                Ok(sum) => sum == expected,
                Err(PoolError::Lost { server, .. }) => {
                    assert_eq!(server, id);
                    false
                }
                Err(error) => panic!("{error}"),
            }
        })
        .collect();
    assert_eq!(
        results.iter().filter(|is_right| **is_right).count(),
        2,
        "{results:?}"
    );
    assert_eq!(pool.status().lost, 2);
    assert_eq!(place.segments(), 1);
    // While the map names the lost segment, its number is not given to another server.
    assert!(pool.serve(SLICE, 0).is_err());
    client.free(vector.address()).unwrap();
    let next = pool.serve(8 * SLICE, 0).unwrap();
    let status = pool.status();
    let entry = status
        .servers
        .iter()
        .find(|it| it.entry.id == next.id())
        .unwrap()
        .entry;
    assert_eq!(
        (next.id(), entry.generation, entry.phase),
        (id, 2, Phase::Live)
    );
    let address = client.allocate(SLICE, Placement::There(id)).unwrap();
    reader.write(address, &[1; 8]).unwrap();
    assert!(vector.get(&reader, 0).is_err());
}

#[test]
fn a_guard_of_another_client_keeps_the_mapping_of_a_lost_server() {
    let (_place, pool) = Place::new("mapped", PoolOptions::new());
    let server = servers(&pool, &[2]).remove(0);
    let (first, second) = (pool.join().unwrap(), pool.join().unwrap());
    let reader = second.reader().unwrap();
    let address = second.allocate(SLICE, Placement::Any).unwrap();
    let guard = reader.write_guard(address).unwrap();
    guard.store(0, 7);
    drop(server);
    first.collect();
    assert_eq!(guard.load(0), 7);
    let lost = guard.confirm().unwrap_err();
    assert!(matches!(lost, PoolError::Lost { .. }), "{lost}");
    drop(first);
    assert_eq!(guard.load(0), 7);
    drop(guard);
    second.free(address).unwrap();
    assert_eq!(second.collect(), 0);
}

#[test]
fn threads_allocate_and_free_at_the_same_time() {
    let (_place, pool) = Place::new("threads", PoolOptions::new());
    let _servers = servers(&pool, &[16, 16]);
    std::thread::scope(|scope| {
        for thread in 1..=3u64 {
            let pool = &pool;
            scope.spawn(move || {
                let client = pool.join().unwrap();
                let reader = client.reader().unwrap();
                let mut random = thread;
                for round in 0..300u64 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let len = 1 + (random >> 33) % (5 * SLICE / 8);
                    let mark = thread << 32 | round;
                    let vector: PoolVec<u64> =
                        PoolVec::allocate(&client, len, Placement::Spread).unwrap();
                    vector.fill(&reader, |_| mark).unwrap();
                    let all = { vector.fold(&reader, true, |all, it| all && it == mark) }.unwrap();
                    assert!(all, "another thread has written to an allocation");
                    client.free(vector.address()).unwrap();
                }
            });
        }
    });
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn counters_count() {
    let (_place, pool) = Place::new("counters", PoolOptions::new().counters(2));
    let client = pool.join().unwrap();
    assert!(client.counter(2).is_none());
    let counter = client.counter(1).unwrap();
    assert_eq!(
        (counter.fetch_add(5), counter.fetch_add(1), counter.get()),
        (0, 5, 6)
    );
    assert_eq!(client.counter(0).unwrap().get(), 0);
}

#[test]
fn a_private_part_is_not_lent() {
    let (_place, pool) = Place::new("private", PoolOptions::new());
    let server = pool.serve(2 * SLICE, 3 * SLICE).unwrap();
    assert_eq!(server.shared_bytes(), 2 * SLICE);
    assert_eq!(server.private().2, 3 * SLICE);
    let client = server.client();
    assert!(client.allocate(3 * SLICE, Placement::Here).is_err());
    assert!(client.allocate(2 * SLICE, Placement::Here).is_ok());
}

#[test]
fn a_boundary_moves_both_ways_while_readers_go_on() {
    let (_place, pool) = Place::new("boundary", PoolOptions::new());
    let mut server = pool.serve(2 * SLICE, 4 * SLICE).unwrap();
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let kept = client.allocate(2 * SLICE, Placement::Any).unwrap();
    reader.write(kept, &[1; 16]).unwrap();
    let guard = reader.guard(kept).unwrap();
    assert!(client.allocate(SLICE, Placement::Any).is_err());
    // The private memory has data, which no client gets.
    let (memory, at, bytes) = server.private();
    assert_eq!(bytes, 4 * SLICE);
    for byte in (0..bytes).step_by(8) {
        memory.store(at + byte, u64::MAX, Ordering::Relaxed);
    }
    server.resize(5 * SLICE - 1).unwrap();
    assert_eq!(
        (server.shared_bytes(), server.private().2),
        (5 * SLICE, SLICE)
    );
    let more = client.allocate(3 * SLICE, Placement::Any).unwrap();
    let mut data = vec![1; 3 * SLICE as usize];
    reader.read(more, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 0));
    let held = server.resize(4 * SLICE).unwrap_err();
    assert!(
        matches!(held, PoolError::StillHeld { slices: 1, .. }),
        "{held}"
    );
    let large = server.resize(7 * SLICE).unwrap_err();
    assert!(
        matches!(large, PoolError::Impossible { most: 6, .. }),
        "{large}"
    );
    assert_eq!(server.shared_bytes(), 5 * SLICE);
    client.free(more).unwrap();
    server.resize(2 * SLICE).unwrap();
    assert!(client.allocate(SLICE, Placement::Any).is_err());
    assert_eq!(guard.load(0), u64::from_ne_bytes([1; 8]));
    guard.confirm().unwrap();

    pool.request_resize(server.id(), 3 * SLICE).unwrap();
    assert!(pool.has_request(server.id()).unwrap());
    assert_eq!(server.requested(), Some(3 * SLICE));
    assert_eq!(
        (server.requested(), pool.has_request(server.id()).unwrap()),
        (None, false)
    );
    assert!(pool.request_resize(ServerId(7), SLICE).is_err());
    assert!(pool.check().is_ok());
}
