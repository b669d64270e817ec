//! Slices with replicas, whose servers die while readers and writers use them.

use crate::{Place, SLICE, slices_of};
use outlive_pool::{
    Address, Client, MoveBudget, Placement, Pool, PoolError, PoolOptions, PoolVec, Redundancy,
    Server,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TWO: Redundancy = Redundancy::Replicas(2);
const THREE: Redundancy = Redundancy::Replicas(3);

fn setup<const N: usize>(name: &str, slices: [u64; N]) -> (Place, Pool, [Option<Server>; N]) {
    let (place, pool) = Place::new(name, PoolOptions::new());
    let servers = slices.map(|slices| Some(pool.serve(slices * SLICE, 0).unwrap()));
    (place, pool, servers)
}

/// Ends a server without leaving, and then overwrites its memory, as a failure of its host does.
fn kill(place: &Place, server: &mut Option<Server>) {
    let server = server.take().unwrap();
    let part = format!(".server-{}.", server.id().0);
    let name = place.0.file_name().unwrap().to_str().unwrap();
    let folder = std::fs::read_dir(place.0.parent().unwrap()).unwrap();
    let mut files = folder.map(|file| file.unwrap().path());
    let is_of_it = |path: &PathBuf| {
        let found = path.file_name().unwrap().to_string_lossy();
        found.starts_with(&format!("{name}.")) && found.contains(&part)
    };
    let path = files.find(is_of_it).expect("the file of the server");
    let file = File::options().write(true).open(path).unwrap();
    drop(server);
    let bytes = file.metadata().unwrap().len();
    let poison = vec![0xA5; bytes as usize];
    file.write_all_at(&poison, 0).unwrap();
}

fn words(client: &Client, address: Address, len: u64) -> Vec<u64> {
    let reader = client.reader().unwrap();
    let vector = PoolVec::<u64>::at(address, len);
    (0..len)
        .map(|it| vector.get(&reader, it).unwrap())
        .collect()
}

#[test]
fn data_outlives_all_but_one_of_its_servers() {
    let (place, pool, mut servers) = setup("replicas", [4, 4, 4]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let len = 2 * SLICE / 8;
    let vector: PoolVec<u64> = PoolVec::allocate_with(&client, len, Placement::Any, THREE).unwrap();
    vector.fill(&reader, |index| index * 3).unwrap();
    let expected: Vec<u64> = (0..len).map(|index| index * 3).collect();
    for (server, slices) in servers.iter().flatten().zip([2, 2, 2]) {
        assert_eq!(slices_of(&pool, server), slices);
    }
    // A guard on the first replica learns that another one is to be read.
    let guard = reader.guard(vector.address()).unwrap();
    kill(&place, &mut servers[0]);
    let lost = guard.confirm().unwrap_err();
    assert!(matches!(lost, PoolError::Moved { .. }), "{lost}");
    drop(guard);
    assert_eq!(words(&client, vector.address(), len), expected);
    assert_eq!((pool.status().lost, pool.status().degraded), (0, 2));
    // The two that are left have all later writes.
    vector
        .update_range(&reader, 0..len, |_, it| it + 1)
        .unwrap();
    reader.write(vector.address().plus(8), b"seven b").unwrap();
    let after = words(&client, vector.address(), len);
    assert_eq!(after[0], 1);
    assert_eq!(after[1].to_ne_bytes()[..7], *b"seven b");
    assert_eq!(
        after[2..],
        expected[2..].iter().map(|it| it + 1).collect::<Vec<_>>()
    );
    kill(&place, &mut servers[1]);
    assert_eq!(words(&client, vector.address(), len), after);
    // A guard for writing reads the last one, and notices its end.
    let guard = reader.write_guard(vector.address()).unwrap();
    assert_eq!(guard.load(0), 1);
    kill(&place, &mut servers[2]);
    assert_eq!(guard.load(0), 0);
    let lost = guard.confirm().unwrap_err();
    assert!(matches!(lost, PoolError::Lost { .. }), "{lost}");
    drop(guard);
    for tried in [
        reader.guard(vector.address()).map(drop),
        reader.write_guard(vector.address()).map(drop),
    ] {
        let lost = tried.unwrap_err();
        assert!(
            matches!(lost, PoolError::Lost { address, .. } if address == vector.address()),
            "{lost}"
        );
    }
    assert_eq!((pool.status().lost, pool.status().degraded), (6, 0));
    client.free(vector.address()).unwrap();
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn lost_replicas_are_rebuilt_on_other_servers() {
    let (place, pool, mut servers) = setup("replicas-rebuild", [4, 4, 4]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let at_first = Placement::There(servers[0].as_ref().unwrap().id());
    let len = 2 * SLICE / 8;
    let vector: PoolVec<u64> = PoolVec::allocate_with(&client, len, at_first, TWO).unwrap();
    vector.fill(&reader, |index| index).unwrap();
    assert!(!client.has_lost_replicas());
    for (victim, server) in servers.iter_mut().take(2).enumerate() {
        kill(&place, server);
        let degraded = pool.status().degraded;
        assert!(degraded > 0, "server {victim} has a replica");
        let rebuilt = client.rebuild(MoveBudget::default());
        if victim == 0 {
            assert_eq!((rebuilt.rebuilt, rebuilt.remaining.len()), (degraded, 0));
            assert!(!client.has_lost_replicas());
        } else {
            // One server is left, which has a replica of each slice.
            assert_eq!(rebuilt.rebuilt, 0);
            assert_eq!(rebuilt.remaining.len() as u64, degraded);
        }
        pool.check().unwrap();
        let expected: Vec<u64> = (0..len).map(|index| index + victim as u64).collect();
        assert_eq!(words(&client, vector.address(), len), expected);
        vector
            .update_range(&reader, 0..len, |_, it| it + 1)
            .unwrap();
    }
    // A new server gets the missing ones, and is enough when the last of the first three has died.
    let _new = pool.serve(4 * SLICE, 0).unwrap();
    let rebuilt = client.rebuild(MoveBudget::default());
    assert!(rebuilt.remaining.is_empty(), "{:?}", rebuilt.remaining);
    kill(&place, &mut servers[2]);
    let expected: Vec<u64> = (0..len).map(|index| index + 2).collect();
    assert_eq!(words(&client, vector.address(), len), expected);
}

#[test]
fn replicas_of_a_slice_are_on_different_servers() {
    let (_place, pool, servers) = setup("replicas-place", [4, 4]);
    let [first, second] = servers.each_ref().map(|it| it.as_ref().unwrap());
    let client = pool.join().unwrap();
    for placement in [
        Placement::Any,
        Placement::Spread,
        Placement::There(second.id()),
    ] {
        let address = client.allocate_with(3 * SLICE, placement, TWO).unwrap();
        assert_eq!((slices_of(&pool, first), slices_of(&pool, second)), (3, 3));
        for to in [first, second] {
            let moved = client.move_slice(address, to.id(), MoveBudget::default());
            assert!(
                matches!(moved, Ok(false) | Err(PoolError::HasReplica { .. })),
                "{moved:?}"
            );
        }
        // Guards refuse the addresses of the other replicas.
        let reader = client.reader().unwrap();
        let beyond = address.plus(3 * SLICE);
        for tried in [
            reader.guard(beyond).map(drop),
            reader.write_guard(beyond).map(drop),
        ] {
            let freed = tried.unwrap_err();
            assert!(matches!(freed, PoolError::Freed { .. }), "{freed}");
        }
        client.free(address).unwrap();
        let freed = reader.write(address, &[0; 8]).unwrap_err();
        assert!(matches!(freed, PoolError::Freed { .. }), "{freed}");
        assert_eq!(pool.status().slices, 0);
    }
    let few = client
        .allocate_with(SLICE, Placement::Any, THREE)
        .unwrap_err();
    assert!(
        matches!(
            few,
            PoolError::TooFewServers {
                replicas: 3,
                servers: 2
            }
        ),
        "{few}"
    );
    let four = Redundancy::Replicas(4);
    let impossible = client
        .allocate_with(SLICE, Placement::Any, four)
        .unwrap_err();
    assert!(
        matches!(impossible, PoolError::Impossible { .. }),
        "{impossible}"
    );
}

#[test]
fn a_slice_with_replicas_has_one_writer() {
    let (_place, pool, _servers) = setup("replicas-lock", [4, 4]);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let address = client.allocate_with(SLICE, Placement::Any, TWO).unwrap();
    let guard = reader.write_guard(address).unwrap();
    let again = reader.write_guard(address).unwrap_err();
    assert!(
        matches!(again, PoolError::BeingWritten { by, .. } if by == client.instance()),
        "{again}"
    );
    guard.store(0, 5);
    // A reader needs no lock, and sees what is stored.
    let other = client.reader().unwrap();
    assert_eq!(other.guard(address).unwrap().load(0), 5);
    std::mem::forget(guard);
    drop(reader);
    // A forgotten guard ends with its reader.
    other.write_guard(address).unwrap().store(0, 6);
    assert_eq!(other.guard(address).unwrap().load(0), 6);
    // Each server has three free frames, so four more slices with two replicas do not fit.
    let vector = client.allocate_with(8 * SLICE / 2, Placement::Any, TWO);
    assert!(vector.is_err(), "two servers have four slices each");
}

/// Ends the threads of a test, also if it fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads count in replicated words while servers die and join, and lost replicas are rebuilt: no
/// count is lost, and no reader sees a counter go back.
#[test]
fn counts_outlive_servers_that_die_and_join() {
    let (place, pool, servers) = setup("replicas-chaos", [12, 12, 12]);
    let mut servers = Vec::from(servers);
    let client = pool.join().unwrap();
    let slices = 4;
    let address = { client.allocate_with(slices * SLICE, Placement::Spread, TWO) }.unwrap();
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for thread in 0..2u64 {
            let (client, stop, counted) = (client.clone(), &stop, &counted);
            scope.spawn(move || {
                let reader = client.reader().unwrap();
                let mut turn = thread;
                while !stop.load(Ordering::Relaxed) {
                    let slice = address.plus(turn % slices * SLICE);
                    let guard = reader.write_guard(slice).unwrap();
                    let word = turn % 8 * 64;
                    guard.store(word, guard.load(word) + 1);
                    guard.confirm().unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                    turn += 1;
                }
            });
        }
        let watcher = client.clone();
        let stopped = &stop;
        scope.spawn(move || {
            let reader = watcher.reader().unwrap();
            let mut last = vec![0; (slices * 8) as usize];
            while !stopped.load(Ordering::Relaxed) {
                for (place, last) in (0..).zip(&mut last) {
                    let at = address.plus(place / 8 * SLICE + place % 8 * 512);
                    let mut bytes = [0; 8];
                    reader.read(at, &mut bytes).unwrap();
                    let word = u64::from_ne_bytes(bytes);
                    assert!(word >= *last, "a counter went from {last} to {word}");
                    *last = word;
                }
            }
        });
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(20));
            let victim = round % servers.len();
            kill(&place, &mut servers[victim]);
            std::thread::sleep(Duration::from_millis(5));
            servers[victim] = Some(pool.serve(12 * SLICE, 0).unwrap());
            let began = Instant::now();
            while client.has_lost_replicas() {
                let rebuilt = client.rebuild(MoveBudget::default());
                let waited = began.elapsed();
                assert!(waited < Duration::from_secs(60), "{rebuilt:?}");
            }
        }
    });
    let all = words(&client, address, slices * SLICE / 8);
    assert_eq!(all.iter().sum::<u64>(), counted.into_inner());
    // The other replicas have the same words.
    for server in &mut servers[..1] {
        kill(&place, server);
    }
    assert_eq!(words(&client, address, slices * SLICE / 8), all);
    client.collect();
    pool.check().unwrap();
}
