//! Memory servers and compute servers in processes of their own, which are stopped and killed.

mod harness;
mod stop;

use harness::{Place, Server, await_status, read};
use outlive::membership::Instance;
use outlive_store::protocol::{Outcome, TransactionError};
use outlive_store::servers::{
    ComputeEntry, Detector, Evidence, Finding, Phase, Store, StoreError, StoreOptions,
};
use outlive_store::tables::TransactionId;
use outlive_store::verbs::{
    Batch, Connection, POISON, RemoteOffset, ServerId, VerbError, block_on,
};
use rustix::process::Signal;
use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The environment variables with which a test starts its own program as a server.
const ROLE: &str = "OUTLIVE_STORE_TEST_ROLE";
const PATH: &str = "OUTLIVE_STORE_TEST_PATH";

const REGION: u64 = 1 << 16;
/// The word to which compute servers add.
const COUNTER: RemoteOffset = RemoteOffset::new(64);

/// Runs as a server if a test has started the program as one.
#[test]
fn server() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let store = Store::open(path).unwrap();
    match std::env::var(ROLE).unwrap().as_str() {
        "memory" => {
            let server = store.serve_memory(REGION).unwrap();
            println!("\nserves {}", server.id().0);
            // The server runs until the test closes the pipe.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "compute" => {
            let compute = store.join_compute().unwrap();
            let server = compute.connect(ServerId(0)).unwrap();
            println!("\nserves {}", compute.id().get());
            loop {
                let mut batch = Batch::new();
                batch.fetch_add(COUNTER, 1);
                block_on(server.post(batch)).finished().unwrap();
            }
        }
        "transact" => {
            let compute = store.join_compute().unwrap();
            let table = compute.table::<u64>("t", 10).unwrap();
            let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
            println!("\nserves {}", compute.id().get());
            loop {
                let done = coordinator.transaction(async |tx| {
                    let attempt = tx.id().to_word();
                    println!("attempt {attempt}");
                    tx.put(table, 1, &attempt).await?;
                    tx.put(table, 2, &attempt).await
                });
                match block_on(done) {
                    Ok(_) => {}
                    // Leaves the store.
                    Err(TransactionError::Stopping) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        "stop" => drop(store.stop(LIMIT, false)),
        role => panic!("{role}"),
    }
}

/// Returns the last attempt that a dead server has begun.
fn last_attempt(server: &mut Server) -> Option<u64> {
    let (mut line, mut last) = (String::new(), None);
    while server.output.read_line(&mut line).unwrap() > 0 {
        // The last line may be cut.
        let attempt = line.strip_suffix('\n');
        let attempt = attempt.and_then(|it| it.strip_prefix("attempt "));
        last = attempt.map(|it| it.parse::<u64>().unwrap()).or(last);
        line.clear();
    }
    last
}

#[test]
fn the_memory_of_a_dead_memory_server_is_not_read() {
    let (place, store) = Place::new("memory", StoreOptions::new().poison_dead(true));
    let compute = store.join_compute().unwrap();
    let (first, _) = Server::start("memory", &place.0);
    let (_second, other) = Server::start("memory", &place.0);
    let (server, other) = (
        compute.connect(ServerId(0)).unwrap(),
        compute.connect(ServerId(other)).unwrap(),
    );
    let epoch = store.status().epoch;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let begin = Instant::now();
            while begin.elapsed() < LIMIT {
                // A large READ, so that the death is in the middle of one.
                let mut batch = Batch::new();
                let all = batch.read(RemoteOffset::new(0), REGION as usize / 8);
                match block_on(server.post(batch)).finished() {
                    Ok(done) => {
                        assert!(!done.words(all).contains(&POISON), "a dead server was read")
                    }
                    Err(error) => return error,
                }
            }
            panic!("the death was not reported to the reader");
        });
        std::thread::sleep(Duration::from_millis(20));
        first.kill();
        let died = VerbError::ServerDied {
            server: ServerId(0),
        };
        assert_eq!(reader.join().unwrap(), died);
    });
    await_status(&store, |status| {
        let first = status.memory[0];
        first.phase == Phase::Dead && first.owner.is_none() && status.epoch > epoch
    });
    assert_eq!(place.segments(), 1);
    assert_eq!(read(&other, 0), Ok(0));
    let refused = compute.connect(ServerId(0)).unwrap_err();
    let text = "memory server 0 is dead; connect to a live one (`outlive store status` lists them)";
    assert_eq!(refused.to_string(), text);
    // The number is not assigned again.
    let (_third, third) = Server::start("memory", &place.0);
    assert_eq!(third, 2);
}

#[test]
fn the_outcome_of_the_last_attempt_of_a_killed_server_is_found_out() {
    let (place, store) = Place::new("outcomes", StoreOptions::new().replicas(1));
    let (_memory, _) = Server::start("memory", &place.0);
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..10 {
        let (mut server, id) = Server::start("transact", &place.0);
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
        server.signal(Signal::KILL);
        let last = last_attempt(&mut server);
        let is_it = |it: &&ComputeEntry| it.id == id && it.has_failed;
        let status = await_status(&store, |status| status.compute.iter().any(|it| is_it(&it)));
        let failed = status.compute.iter().find(is_it).unwrap().owner;
        let reading = coordinator
            .transaction(async |tx| Ok((tx.read(table, 1).await?, tx.read(table, 2).await?)));
        let (first, second) = block_on(reading).unwrap().value;
        assert_eq!(first, second);
        if let Some(last) = last {
            let attempt = TransactionId::from_word(last).unwrap();
            let expected = match first == Some(last) {
                true => Outcome::Committed,
                false => Outcome::NoEffect,
            };
            assert_eq!(store.outcome(failed, attempt), expected, "{attempt}");
        }
    }
}

#[test]
fn process_ids_of_failed_servers_are_assigned_again() {
    let options = StoreOptions::new().replicas(1).process_ids(4);
    let (place, store) = Place::new("recycles", options);
    let (_memory, _) = Server::start("memory", &place.0);
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    let mut ids = Vec::new();
    for _ in 0..10 {
        let (server, id) = Server::start("transact", &place.0);
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
        server.kill();
        ids.push(id);
        await_status(&store, |status| {
            let mut servers = status.compute.iter();
            servers.any(|it| it.id == id && it.has_failed)
        });
        // Steals a latch that the server has left, if the key has one.
        let writing = coordinator.transaction(async |tx| {
            tx.put(table, 1, &0).await?;
            tx.put(table, 2, &0).await
        });
        block_on(writing).unwrap();
    }
    // One of the four ids is that of this process.
    assert_eq!(ids, [2, 3, 4, 2, 3, 4, 2, 3, 4, 2]);
    let checked = store.check().unwrap();
    assert!(
        checked.problems.is_empty() && checked.held == 0,
        "{checked:?}"
    );
}

#[test]
fn a_store_goes_on_after_the_death_of_all_compute_servers() {
    let (place, store) = Place::new("restart", StoreOptions::new());
    let memory = ["memory", "memory"].map(|role| Server::start(role, &place.0).0);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..5 {
        let mut servers = ["transact"; 3].map(|role| Server::start(role, &place.0));
        std::thread::sleep(Duration::from_micros(random.u64(..5000)));
        servers.iter().for_each(|(server, _)| server.stop());
        for (server, _) in &mut servers {
            server.child.kill().unwrap();
        }
        let mut last = Vec::new();
        for (server, id) in &mut servers {
            let lines = server.output.by_ref().lines().map_while(Result::ok);
            let attempts = lines.filter_map(|line| {
                line.strip_prefix("attempt ")
                    .map(|it| it.parse::<u64>().unwrap())
            });
            last.extend(attempts.last().map(|attempt| (*id, attempt)));
        }
        let ids = servers.each_ref().map(|(_, id)| *id);
        let status = await_status(&store, |status| {
            let failed = { status.compute.iter() }.filter(|it| it.has_failed);
            failed.filter(|it| ids.contains(&it.id)).count() == ids.len()
        });
        // Before another compute server receives a log area.
        let outcomes = last.iter().map(|(id, attempt)| {
            let server = status.compute.iter().find(|it| it.id == *id).unwrap().owner;
            let outcome = store.outcome(server, TransactionId::from_word(*attempt).unwrap());
            assert_ne!(outcome, Outcome::Unknown, "{attempt:#x}");
            (*attempt, outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        // The first compute server of the restarted store.
        let compute = store.join_compute().unwrap();
        let table = compute.table::<u64>("t", 10).unwrap();
        let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
        let reading = coordinator
            .transaction(async |tx| Ok((tx.read(table, 1).await?, tx.read(table, 2).await?)));
        let (first, second) = block_on(reading).unwrap().value;
        assert_eq!(first, second);
        for (attempt, outcome) in outcomes {
            let is_last = first == Some(attempt);
            assert!(!is_last || outcome == Outcome::Committed, "{attempt:#x}");
        }
        let checked = store.check().unwrap();
        assert!(checked.problems.is_empty(), "{checked:?}");
    }
    assert_eq!(store.status().epoch, 0);
    drop(memory);
}

#[test]
fn a_log_area_that_cannot_be_cleared_is_free_again() {
    let (_place, store) = Place::new("uncleared", StoreOptions::new().replicas(1));
    let memory = store.serve_memory(REGION).unwrap();
    let compute = store.join_compute().unwrap();
    let entry = store.status().memory[0];
    std::fs::remove_file(store.segment_path(&entry)).unwrap();
    let refused = compute.worker().unwrap_err();
    assert!(
        matches!(refused, StoreError::OpenSegment { .. }),
        "{refused}"
    );
    assert_eq!(store.configuration().log_owners().count(), 0);
    drop((compute, memory));
}

#[test]
fn a_memory_server_that_leaves_frees_its_number() {
    let (place, store) = Place::new("leaves", StoreOptions::new());
    let compute = store.join_compute().unwrap();
    let (first, id) = Server::start("memory", &place.0);
    let server = compute.connect(ServerId(id)).unwrap();
    assert_eq!(read(&server, 0), Ok(0));
    first.leave();
    let gone = VerbError::ServerDied {
        server: ServerId(id),
    };
    assert_eq!(read(&server, 0), Err(gone));
    assert_eq!((store.status().memory.len(), place.segments()), (0, 0));
    let (_second, again) = Server::start("memory", &place.0);
    assert_eq!(again, id);
    // The old connection does not reach the new incarnation.
    assert_eq!(read(&server, 0), Err(gone));
    assert_eq!(read(&compute.connect(ServerId(id)).unwrap(), 0), Ok(0));
}

#[test]
fn nothing_of_a_revoked_compute_server_takes_effect() {
    let (place, store) = Place::new("revoked", StoreOptions::new());
    let compute = store.join_compute().unwrap();
    let (_memory, _) = Server::start("memory", &place.0);
    let server = compute.connect(ServerId(0)).unwrap();
    let counter = COUNTER.get();
    for is_stopped in [false, true] {
        let (counting, id) = Server::start("compute", &place.0);
        let begun = read(&server, counter).unwrap();
        let begin = Instant::now();
        while read(&server, counter).unwrap() < begun + 100 {
            assert!(begin.elapsed() < LIMIT);
        }
        if is_stopped {
            counting.signal(Signal::STOP);
        }
        let entry = { store.status().compute.into_iter() }.find(|it| it.id == id);
        let owner = entry.unwrap().owner;
        compute.revoke(owner, LIMIT).unwrap();
        let counted = read(&server, counter).unwrap();
        // The signal has no effect: the server is dead.
        counting.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(read(&server, counter), Ok(counted));
        await_status(&store, |status| {
            let mut servers = status.compute.iter();
            servers.any(|it| it.id == id && it.has_failed)
        });
        let refused = compute.revoke(owner, LIMIT).unwrap_err();
        assert!(matches!(refused, StoreError::NoSuchProcess { .. }));
    }
    // The ids of failed compute servers are not assigned again.
    let (_third, third) = Server::start("compute", &place.0);
    assert_eq!(third, 4);
    let own = compute.revoke(compute.instance(), LIMIT).unwrap_err();
    assert!(matches!(own, StoreError::NoSuchProcess { .. }));
}

/// A detector that suspects a server without a reason.
struct Whim(Instance);

impl Detector for Whim {
    fn wait(&mut self, _: Duration) -> Option<Finding> {
        Some(Finding::Suspected(self.0))
    }
}

#[test]
fn a_wrong_suspicion_ends_in_a_fence_and_a_recovery() {
    let (place, store) = Place::new("suspected", StoreOptions::new().replicas(1));
    let (_memory, _) = Server::start("memory", &place.0);
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let mut core = compute.detector();
    let mut random = fastrand::Rng::with_seed(4);
    for is_stopped in [false, true, false, true, false, true] {
        let (mut server, id) = Server::start("transact", &place.0);
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
        if is_stopped {
            server.stop();
        }
        let entry = { store.status().compute.into_iter() }.find(|it| it.id == id);
        let owner = entry.unwrap().owner;
        let mut whim = Whim(owner);
        let suspected = Some(Finding::Suspected(owner));
        assert_eq!(compute.detect(&mut whim, LIMIT), suspected);
        let died = Finding::Died {
            server: owner,
            evidence: Evidence::Fenced,
        };
        assert_eq!(core.wait(LIMIT), Some(died));
        // The signal has no effect: the server is dead.
        server.signal(Signal::CONT);
        let last = last_attempt(&mut server);
        await_status(&store, |status| {
            let mut servers = status.compute.iter();
            servers.any(|it| it.id == id && it.has_failed)
        });
        let mut read = || {
            let reading = coordinator
                .transaction(async |tx| Ok((tx.read(table, 1).await?, tx.read(table, 2).await?)));
            block_on(reading).unwrap().value
        };
        let (first, second) = read();
        assert_eq!(first, second);
        if let Some(last) = last {
            let expected = match first == Some(last) {
                true => Outcome::Committed,
                false => Outcome::NoEffect,
            };
            let attempt = TransactionId::from_word(last).unwrap();
            assert_eq!(store.outcome(owner, attempt), expected, "{attempt}");
        }
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(read(), (first, second));
        // A suspect that is dead needs no fence.
        assert_eq!(compute.detect(&mut whim, LIMIT), suspected);
    }
    assert_eq!(core.fences(), 6);
    let (server, id) = Server::start("transact", &place.0);
    let entry = { store.status().compute.into_iter() }.find(|it| it.id == id);
    server.kill();
    let died = Finding::Died {
        server: entry.unwrap().owner,
        evidence: Evidence::Ended,
    };
    assert_eq!(core.wait(LIMIT), Some(died));
    assert_eq!(core.fences(), 6);
}

#[test]
fn a_stopped_server_is_fenced_because_it_does_not_beat() {
    let options = StoreOptions::new().replicas(1);
    let beats = options.heartbeats(Duration::from_millis(10), Duration::from_secs(1));
    let (place, store) = Place::new("beats", beats);
    let (_memory, _) = Server::start("memory", &place.0);
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let mut core = compute.detector();
    let (server, id) = Server::start("transact", &place.0);
    let entry = { store.status().compute.into_iter() }.find(|it| it.id == id);
    server.stop();
    let died = Finding::Died {
        server: entry.unwrap().owner,
        evidence: Evidence::Fenced,
    };
    assert_eq!(core.wait(LIMIT), Some(died));
    server.signal(Signal::CONT);
    let writing = coordinator.transaction(async |tx| tx.put(table, 1, &0).await);
    block_on(writing).unwrap();
}

#[test]
fn the_next_member_finishes_what_a_store_without_survivors_left() {
    let (place, store) = Place::new("all", StoreOptions::new().poison_dead(true));
    let servers: Vec<_> = ["memory", "memory", "compute", "compute"]
        .map(|role| Server::start(role, &place.0).0)
        .into();
    // All are stopped first, so that no survivor recovers another.
    servers.iter().for_each(Server::stop);
    servers.into_iter().for_each(Server::kill);
    assert_eq!(place.segments(), 2);
    let compute = store.join_compute().unwrap();
    let status = await_status(&store, |status| {
        let memory = status.memory.iter();
        memory.filter(|it| it.phase == Phase::Dead).count() == 2
            && status.compute.iter().filter(|it| it.has_failed).count() == 2
    });
    assert_eq!(status.memory.len(), 2);
    await_status(&store, |_| place.segments() == 0);
    drop(compute);
}

#[test]
fn a_memory_server_killed_while_it_joins_leaves_nothing() {
    let (place, store) = Place::new("joins", StoreOptions::new());
    let survivor = store.join_compute().unwrap();
    let mut random = 12_345u64;
    for _ in 0..40 {
        let joining = Server::spawn("memory", &place.0);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        std::thread::sleep(Duration::from_micros(random >> 32 & 0x3FFF));
        joining.kill();
    }
    let status = await_status(&store, |status| {
        let mut memory = status.memory.iter();
        memory.all(|it| it.phase == Phase::Dead && it.owner.is_none())
    });
    assert_eq!(place.segments(), 0, "{status:?}");
    assert!(survivor.store().pod().check().is_clean());
}

#[test]
fn limits_and_foreign_files_are_refused() {
    let (place, store) = Place::new("limits", StoreOptions::new().process_ids(1));
    let only = store.join_compute().unwrap();
    let refused = store.join_compute().unwrap_err().to_string();
    assert!(refused.starts_with("all 1 process ids"), "{refused}");
    // A connection keeps the process id in use.
    let memory = store.serve_memory(1).unwrap();
    let connection = only.connect(memory.id()).unwrap();
    drop(only);
    assert!(store.join_compute().is_err());
    assert_eq!(read(&connection, 0), Ok(0));
    drop(connection);
    let again = store.join_compute().unwrap();
    let none = again.connect(ServerId(64)).unwrap_err().to_string();
    let text =
        "memory server 64 is not in use; connect to a live one (`outlive store status` lists them)";
    assert_eq!(none, text);
    let huge = store.serve_memory(u64::MAX).unwrap_err();
    assert!(matches!(huge, StoreError::Impossible { .. }), "{huge}");
    drop((again, memory));

    // Another store at the same path does not lose its files to a server of this one.
    let old = store.serve_memory(1).unwrap();
    Store::destroy(&place.0).unwrap();
    let new = Store::create(&place.0, StoreOptions::new().members(64)).unwrap();
    let server = new.serve_memory(1).unwrap();
    assert_eq!((old.id(), server.id()), (ServerId(0), ServerId(0)));
    drop(old);
    let compute = new.join_compute().unwrap();
    assert_eq!(read(&compute.connect(server.id()).unwrap(), 0), Ok(0));
    drop((compute, server));

    let again = Store::create(&place.0, StoreOptions::new()).unwrap_err();
    assert!(matches!(again, StoreError::Pod(_)), "{again}");
    let none = StoreOptions::new().replicas(0);
    let refused = Store::create("/dev/shm/outlive-store-none", none).unwrap_err();
    let text = "a store cannot have 0 replicas; the range is 1 to 8";
    assert_eq!(refused.to_string(), text);
    // No value fits into such a slot.
    let slots = StoreOptions::new().log_slot(3);
    let refused = Store::create("/dev/shm/outlive-store-none", slots).unwrap_err();
    let is_refused =
        matches!(refused, StoreError::Impossible { asked: 64, least, .. } if least > 64);
    assert!(is_refused, "{refused}");
    for path in ["memfd:store", "/dev/null", "/dev/shm"] {
        let refused = Store::create(path, StoreOptions::new()).unwrap_err();
        assert!(matches!(refused, StoreError::NotAFile { .. }), "{refused}");
    }

    let pod = format!("{}-pod", place.0.display());
    let options = outlive::pod::PodOptions::new().size(8 << 20).ids(16);
    outlive::pod::Pod::create(&pod, options).unwrap();
    let refused = Store::open(&pod).unwrap_err();
    outlive::pod::Pod::destroy(&pod).unwrap();
    assert!(matches!(refused, StoreError::NotAStore { .. }), "{refused}");
}

#[test]
fn a_verb_outside_the_region_executes_nothing_of_its_batch() {
    let options = StoreOptions::new().compute_servers(0, 0);
    let (_place, store) = Place::new("outside", options);
    let memory = store.serve_memory(100).unwrap();
    let compute = store.join_compute().unwrap();
    let server = compute.connect(memory.id()).unwrap();
    assert_eq!(server.region().bytes, 4096);
    for (at, words) in [(4096, 1), (4090, 1), (4, 1), (u64::MAX - 7, 2), (4088, 2)] {
        let mut batch = Batch::new();
        batch.fetch_add(COUNTER, 1);
        batch.read(RemoteOffset::new(at), words);
        let result = block_on(server.post(batch)).result;
        assert!(matches!(result, Err(VerbError::OutOfRegion { .. })), "{at}");
    }
    assert_eq!(read(&server, COUNTER.get()), Ok(0));
    assert_eq!(read(&server, 4088), Ok(0));
}
