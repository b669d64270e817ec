//! Servers and clients in processes of their own, which are killed.

use outlive_pool::{
    Address, MoveBudget, ObjectState, ObjectStore, Phase, Placement, Pool, PoolError, PoolOptions,
    PoolVec, ServerId,
};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const ROLE: &str = "OUTLIVE_POOL_TEST_ROLE";
const PATH: &str = "OUTLIVE_POOL_TEST_PATH";
const SLICE: u64 = 4096;

/// Runs as a server or a client if a test has started the program as one.
#[test]
fn member() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let pool = Pool::open(path).unwrap();
    match std::env::var(ROLE).unwrap().as_str() {
        "server" => {
            let server = pool.serve(8 * SLICE, 0).unwrap();
            println!("\nready {}", server.id().0);
            // It runs until the test closes the pipe.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "client" => {
            let client = pool.join().unwrap();
            let reader = client.reader().unwrap();
            let kept = client.allocate(2 * SLICE, Placement::Spread).unwrap();
            client.keep(kept).unwrap();
            let _owned = client.allocate(3 * SLICE, Placement::Spread).unwrap();
            let _guard = reader.guard(kept).unwrap();
            println!("\nready {}", kept.to_word());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "churn" => {
            let client = pool.join().unwrap();
            let reader = client.reader().unwrap();
            println!("\nready 0");
            loop {
                let address = match client.allocate(3 * SLICE, Placement::Spread) {
                    // Other members have the memory.
                    Err(PoolError::OutOfMemory { .. }) => continue,
                    other => other.unwrap(),
                };
                reader.write(address, &[1; 9000]).unwrap();
                client.free(address).unwrap();
            }
        }
        "mover" => {
            let client = pool.join().unwrap();
            println!("\nready 0");
            for turn in 0usize.. {
                let slices = client.slices();
                let servers = live(&pool);
                let (slice, server) = (slices[turn % slices.len()], servers[turn % 3]);
                match client.move_slice(slice, server, MoveBudget::default()) {
                    Ok(_) => {}
                    // Another mover, a mover that died a moment ago, or a writer.
                    Err(
                        PoolError::BeingMoved { .. }
                        | PoolError::StillWritten { .. }
                        | PoolError::MoveCancelled { .. }
                        | PoolError::OutOfMemory { .. },
                    ) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        "objects" => {
            let client = pool.join().unwrap();
            let objects = client.objects().unwrap();
            objects
                .put("kept", &bytes_of(2 * SLICE, 1), Placement::Spread)
                .unwrap();
            let _lease = objects.get("kept").unwrap();
            let mut made = objects
                .create("made", 3 * SLICE, Placement::Spread)
                .unwrap();
            made.write(0, &bytes_of(SLICE, 2)).unwrap();
            println!("\nready 0");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "object churn" => {
            let client = pool.join().unwrap();
            let objects = client.objects().unwrap();
            println!("\nready 0");
            for round in 0u64.. {
                let seed = round * 7 % 5;
                let name = format!("object {seed}");
                let data = bytes_of(2 * SLICE + 100, seed);
                match objects.put(&name, &data, Placement::Spread) {
                    Ok(()) | Err(PoolError::ObjectExists { .. }) => {}
                    Err(PoolError::BeingCreated { .. } | PoolError::OutOfMemory { .. }) => {}
                    // A server was killed.
                    Err(PoolError::Lost { .. } | PoolError::NotLive { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                verify(&objects, &name, seed);
                if round % 3 == 0 {
                    let _ = objects.delete(&name);
                }
            }
        }
        role => panic!("{role}"),
    }
}

/// Returns the live servers.
fn live(pool: &Pool) -> Vec<ServerId> {
    let servers = pool.status().servers.into_iter();
    let live = servers.filter(|it| it.entry.phase == Phase::Live);
    live.map(|it| it.entry.id).collect()
}

/// Returns `len` bytes that differ for each `seed`.
fn bytes_of(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + 1) as u8).collect()
}

/// Demands that the object `name`, if it exists, has no wrong byte.
fn verify(objects: &ObjectStore, name: &str, seed: u64) {
    let Ok(object) = objects.get(name) else {
        return;
    };
    let mut at = 0;
    let expected = bytes_of(object.len(), seed);
    for chunk in object.chunks() {
        match chunk {
            Ok(chunk) => {
                assert!(*chunk == expected[at..at + chunk.len()], "wrong bytes");
                at += chunk.len();
            }
            Err(PoolError::Lost { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

struct Member {
    child: Child,
    _input: Option<ChildStdin>,
}

impl Member {
    /// Starts a member. Returns it with its number when it is ready.
    fn start(role: &str, path: &Path) -> (Self, u64) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = { command.args(["member", "--exact", "--nocapture"]) }
            .env(ROLE, role)
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let ready = lines.find_map(|line| line.strip_prefix("ready ")?.parse().ok());
        let member = Self {
            child,
            _input: input,
        };
        (member, ready.expect("the member is ready"))
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> (Self, Pool) {
        let path = format!("/dev/shm/outlive-pool-{name}-{}", std::process::id());
        let options = PoolOptions::new().slice_bytes(SLICE).slices(64);
        let pool = Pool::create(&path, options.members(48)).unwrap();
        (Self(path.into()), pool)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pool::destroy(&self.0);
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_memory_of_a_killed_server_is_lost_and_the_rest_is_right() {
    let (place, pool) = Place::new("killed");
    let (first, _) = Member::start("server", &place.0);
    let (_second, _) = Member::start("server", &place.0);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let vector: PoolVec<u64> = PoolVec::allocate(&client, SLICE, Placement::Spread).unwrap();
    vector.fill(&reader, |index| index).unwrap();
    first.kill();
    let is_dead = || {
        pool.status()
            .servers
            .iter()
            .any(|it| it.entry.phase == Phase::Dead)
    };
    wait_until("the server is declared dead", is_dead);
    let (mut right, mut lost) = (0, 0);
    for part in vector.parts(&client) {
        let expected = part.clone().sum::<u64>();
        match vector.fold_range(&reader, part, 0, |sum, it| sum + it) {
            Ok(sum) => {
                assert_eq!(sum, expected);
                right += 1;
            }
            Err(PoolError::Lost { .. }) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((right, lost), (4, 4));
    client.free(vector.address()).unwrap();
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn the_allocations_and_guards_of_a_killed_client_are_freed() {
    let (place, pool) = Place::new("client");
    let (_server, _) = Member::start("server", &place.0);
    let survivor = pool.join().unwrap();
    let (client, kept) = Member::start("client", &place.0);
    assert_eq!((pool.status().owned, pool.status().kept), (1, 1));
    client.kill();
    wait_until("its allocation is freed", || pool.status().owned == 0);
    assert_eq!((pool.status().kept, pool.status().slices), (1, 2));
    // The dead guard does not hold up the release.
    let kept = Address::from_word(kept).unwrap();
    survivor.free(kept).unwrap();
    wait_until("the memory is released", || survivor.collect() == 0);
    assert_eq!(pool.status().slices, 0);
    let all = survivor.allocate(8 * SLICE, Placement::Any).unwrap();
    let reader = survivor.reader().unwrap();
    let mut bytes = vec![1; 8 * SLICE as usize];
    reader.read(all, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn members_leave_while_they_recover_killed_clients() {
    let (place, pool) = Place::new("leaving");
    let (_server, _) = Member::start("server", &place.0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let client = pool.join().unwrap();
                    // Without free memory while the dead client has it.
                    let _ = client.allocate(2 * SLICE, Placement::Any);
                }
            });
        }
        for round in 0..24 {
            let (client, _) = Member::start("churn", &place.0);
            std::thread::sleep(Duration::from_micros(round * 170));
            client.kill();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let survivor = pool.join().unwrap();
    wait_until("the slices are free", || pool.status().slices == 0);
    let census = pool.check().expect("a sound pool");
    assert_eq!((census.slices, census.frames), (0, 0));
    let all = survivor.allocate(8 * SLICE, Placement::Any).unwrap();
    survivor.free(all).unwrap();
}

#[test]
fn clients_that_are_killed_while_they_allocate_leave_nothing() {
    let (place, pool) = Place::new("churn");
    let (_server, _) = Member::start("server", &place.0);
    let survivor = pool.join().unwrap();
    for round in 0..12 {
        let (client, _) = Member::start("churn", &place.0);
        std::thread::sleep(Duration::from_micros(round * 370));
        client.kill();
        wait_until("the slices are free", || pool.status().slices == 0);
        let all = survivor.allocate(8 * SLICE, Placement::Any).unwrap();
        survivor.free(all).unwrap();
    }
}

#[test]
fn the_leases_and_unsealed_objects_of_a_killed_client_are_given_back() {
    let (place, pool) = Place::new("lessee");
    let (_server, _) = Member::start("server", &place.0);
    let objects = pool.join().unwrap().objects().unwrap();
    let (client, _) = Member::start("objects", &place.0);
    let states = |objects: &ObjectStore| {
        let all = objects.list().unwrap().into_iter();
        all.map(|it| (it.state, it.users.len())).collect::<Vec<_>>()
    };
    let with_users = [(ObjectState::Sealed, 1), (ObjectState::Unsealed, 1)];
    assert_eq!(states(&objects), with_users);
    let by = objects.get("made").unwrap_err();
    assert!(matches!(by, PoolError::BeingCreated { .. }), "{by}");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let objects = pool.join().unwrap().objects().unwrap();
            objects.wait("made", LIMIT).map(|_| ())
        });
        std::thread::sleep(Duration::from_millis(20));
        client.kill();
        let ended = waiter.join().unwrap();
        assert!(
            matches!(ended, Err(PoolError::Abandoned { .. })),
            "{ended:?}"
        );
    });
    let is_over = || {
        objects.collect().unwrap();
        states(&objects) == [(ObjectState::Sealed, 0)]
    };
    wait_until("the lease is given back", is_over);
    wait_until("its memory is freed", || pool.status().slices == 2);
    verify(&objects, "kept", 1);
    objects.delete("kept").unwrap();
    assert_eq!(pool.status().slices, 0);
}

#[test]
fn objects_are_right_while_clients_and_servers_are_killed() {
    let (place, pool) = Place::new("objects");
    let (_stays, _) = Member::start("server", &place.0);
    let (mut other, _) = Member::start("server", &place.0);
    for round in 0..12 {
        let (first, _) = Member::start("object churn", &place.0);
        let (second, _) = Member::start("object churn", &place.0);
        std::thread::sleep(Duration::from_micros(3_000 + round * 370));
        first.kill();
        if round % 4 == 1 {
            other.kill();
            (other, _) = Member::start("server", &place.0);
        }
        second.kill();
        let objects = pool.join().unwrap().objects().unwrap();
        let is_over = || {
            objects.collect().unwrap();
            let all = objects.list().unwrap();
            let is_idle = |it: &outlive_pool::ObjectStatus| it.users.is_empty();
            all.iter().all(is_idle) && pool.status().slices == 3 * all.len() as u64
        };
        wait_until("nothing of the dead clients is left", is_over);
        for seed in 0..5 {
            verify(&objects, &format!("object {seed}"), seed);
        }
    }
}

/// Two movers move all slices around, and one after the other is killed and replaced, while this
/// process writes and reads: no write is lost, and no frame.
#[test]
fn movers_are_killed_while_slices_are_written() {
    const SLICES: u64 = 6;
    let (place, pool) = Place::new("movers");
    let _servers = [(); 3].map(|()| Member::start("server", &place.0).0);
    let client = pool.join().unwrap();
    let reader = client.reader().unwrap();
    let address = client.allocate(SLICES * SLICE, Placement::Spread).unwrap();
    let start = || Member::start("mover", &place.0).0;
    let mut movers = vec![start(), start()];
    let (begin, mut round, mut kills) = (Instant::now(), 0u64, 0);
    while kills < 12 {
        assert!(begin.elapsed() < LIMIT);
        round += 1;
        for slice in 0..SLICES {
            let place = address.plus(slice * SLICE + round % 8 * 512);
            reader.write(place, &round.to_ne_bytes()).unwrap();
            let mut found = [0; 8];
            reader.read(place, &mut found).unwrap();
            assert_eq!(u64::from_ne_bytes(found), round, "a write is lost");
        }
        if begin.elapsed() > Duration::from_millis(150 * (kills + 1)) {
            drop(movers.remove(0));
            movers.push(start());
            kills += 1;
        }
    }
    drop(movers);
    let is_settled = || {
        client.collect();
        let census = pool.check();
        census.is_ok_and(|it| (it.slices, it.frames, it.hidden) == (SLICES, SLICES, 0))
    };
    while !is_settled() {
        assert!(begin.elapsed() < LIMIT, "{:?}", pool.check());
        std::thread::sleep(Duration::from_millis(10));
    }
    for slice in 0..SLICES {
        for last in (round - 7)..=round {
            let mut found = [0; 8];
            let place = address.plus(slice * SLICE + last % 8 * 512);
            reader.read(place, &mut found).unwrap();
            assert_eq!(u64::from_ne_bytes(found), last);
        }
    }
}
