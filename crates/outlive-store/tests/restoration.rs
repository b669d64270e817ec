//! Restorations of lost replicas on mapped memory, in one process and by processes that are killed.

mod support;

use outlive_store::protocol::{Coordinator, Protocol, Table};
use outlive_store::servers::{
    ComputeServer, Connector, MappedServer, Members, Missing, RestoreError, Restored, Store,
    StoreError, StoreOptions,
};
use outlive_store::verbs::{Batch, Completed, Connection, Region, ServerId, block_on};
use std::cell::Cell;
use std::future::Ready;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use support::{REGION, World, put, read};

impl World {
    fn table(&self) -> Table<u64> {
        self.compute().table::<u64>("t", 300).unwrap()
    }

    /// Creates the table with the keys up to `keys`, each with its key as its value.
    fn filled(&self, keys: u64) -> (Table<u64>, Coordinator<Members>) {
        let table = self.compute().table::<u64>("t", keys).unwrap();
        let mut coordinator = self.compute().worker().unwrap().coordinator().unwrap();
        for key in 0..keys {
            put(&mut coordinator, table, key, key);
        }
        (table, coordinator)
    }

    fn serve(&mut self) {
        self.memory.push(self.store.serve_memory(REGION).unwrap());
    }

    fn restore(&self) -> Restored {
        let restorer = self.store.join_compute().unwrap();
        restorer.restore().unwrap()
    }

    /// Checks the tables. Returns the numbers of keys and of partitions with too few replicas.
    fn check(&self) -> (u64, u64) {
        let checked = self.store.check().unwrap();
        let is_sound = checked.problems.is_empty() && checked.held == 0 && checked.lost() == 0;
        assert!(is_sound, "{checked:?}");
        let missing = self.store.status().missing;
        assert_eq!(missing.partitions, checked.under_replicated());
        (checked.keys, checked.under_replicated())
    }
}

#[test]
fn a_fresh_server_replaces_a_lost_one() {
    Protocol::ALL.into_iter().for_each(replace_all);
}

/// Replaces each of the two servers by a fresh one, twice: the contents pass from one to the other.
fn replace_all(protocol: Protocol) {
    let name = format!("all-{protocol}");
    let mut world = World::new(&name, 2, StoreOptions::new().protocol(protocol));
    let (table, mut coordinator) = world.filled(300);
    for round in 1..=4u64 {
        drop(world.memory.remove(0));
        assert_eq!(world.check(), (300, 16));
        put(&mut coordinator, table, 0, round);
        // No server is left for the lost replicas.
        let restored = world.restore();
        assert_eq!((restored.replicas, restored.missing.partitions), (0, 16));
        world.serve();
        let restored = world.restore();
        assert_eq!(restored.missing, Missing::default());
        assert_eq!((restored.replicas, restored.without_space), (16, 0));
        // The keys and the buckets in use.
        assert!(
            (316..400).contains(&restored.copied.objects),
            "{restored:?}"
        );
        assert_eq!(world.check(), (300, 0));
        // Nothing is left to restore.
        assert_eq!(world.restore().replicas, 0);
        put(&mut coordinator, table, 1, round);
        for key in 2..300 {
            assert_eq!(read(&mut coordinator, table, key), Some(key));
        }
        assert_eq!(read(&mut coordinator, table, 0), Some(round));
        assert_eq!(world.check(), (300, 0));
    }
}

#[test]
fn only_the_share_of_the_lost_server_is_copied() {
    let mut world = World::new("share", 4, StoreOptions::new());
    world.filled(300);
    drop(world.memory.remove(1));
    let lost = world.store.status().missing;
    assert!((1..16).contains(&lost.partitions), "{lost:?}");
    // Each of the live servers has replicas of other partitions.
    let restored = world.restore();
    assert_eq!(restored.replicas, lost.partitions);
    assert!(restored.copied.objects < 300, "{restored:?}");
    assert_eq!(world.check(), (300, 0));
    drop(world.memory.remove(0));
    world.restore();
    assert_eq!(world.check(), (300, 0));
    drop(world.memory.remove(0));
    assert_eq!(world.check(), (300, 16));
}

#[test]
fn a_server_without_space_is_not_chosen() {
    let mut world = World::new("space", 2, StoreOptions::new());
    world.table();
    drop(world.memory.remove(0));
    let small = world.store.serve_memory(4096).unwrap();
    let restored = world.restore();
    let few = restored.replicas;
    assert!((1..16).contains(&few), "{restored:?}");
    assert_eq!(few + restored.without_space, 16);
    world.serve();
    assert_eq!(world.restore().replicas, 16 - few);
    drop(small);
    assert_eq!(world.restore().replicas, few);
    // The space of the new replicas is in use.
    let error = world.compute().table::<[u64; 64]>("large", 20_000);
    assert!(error.is_err());
    world.compute().table::<u64>("next", 300).unwrap();
    assert_eq!(world.check(), (0, 0));
}

#[test]
fn lost_contents_are_not_restored() {
    let mut world = World::new("lost", 2, StoreOptions::new());
    let table = world.table();
    world.memory.clear();
    (0..2).for_each(|_| world.serve());
    let restored = world.restore();
    assert_eq!((restored.replicas, restored.missing.lost), (0, 16));
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    let done = coordinator.transaction(async |tx| tx.read(table, 1).await);
    let error = block_on(done).unwrap_err().to_string();
    assert!(error.contains("are lost, and with them"), "{error}");
}

/// The number of batches of a compute server that were posted, and of those that may complete.
#[derive(Clone, Debug)]
struct Gate(Rc<[Cell<u64>; 2]>);

impl Gate {
    fn new(may_complete: u64) -> Self {
        Self(Rc::new([Cell::new(0), Cell::new(may_complete)]))
    }

    fn posted(&self) -> u64 {
        self.0[0].get()
    }

    fn open(&self) {
        self.0[1].set(u64::MAX);
    }
}

impl Connector for Gate {
    type Connection = Gated;

    fn connect(&self, server: MappedServer) -> Gated {
        let gate = self.clone();
        Gated { server, gate }
    }
}

/// A connection whose verbs are executed when they are posted, and complete when the gate allows.
#[derive(Debug)]
struct Gated {
    server: MappedServer,
    gate: Gate,
}

impl Connection for Gated {
    type Completion = Waiting;

    fn server(&self) -> ServerId {
        self.server.server()
    }

    fn region(&self) -> Region {
        self.server.region()
    }

    fn post(&self, batch: Batch) -> Waiting {
        let [posted, _] = &*self.gate.0;
        posted.set(posted.get() + 1);
        Waiting {
            completion: self.server.post(batch),
            number: posted.get(),
            gate: self.gate.clone(),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    completion: Ready<Completed>,
    number: u64,
    gate: Gate,
}

impl Future for Waiting {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        match self.number <= self.gate.0[1].get() {
            true => Pin::new(&mut self.completion).poll(context),
            false => Poll::Pending,
        }
    }
}

/// Between the first table and the second one, all replicas of the second one move. Their places
/// are read afterwards, and the epoch of the snapshot uses none of them.
#[test]
fn a_snapshot_is_repeated_after_restorations() {
    let mut world = World::new("snapshot", 2, StoreOptions::new());
    let tables = ["first", "second"].map(|it| world.compute().table::<u64>(it, 300).unwrap());
    // Each partition of the first table is read twice, by one batch each.
    let gate = Gate::new(31);
    let worker = world.compute().worker_over(gate.clone()).unwrap();
    let mut writer = world.compute().worker().unwrap().coordinator().unwrap();
    for key in 0..300 {
        for table in tables {
            put(&mut writer, table, key, key + 1);
        }
    }
    let mut coordinator = worker.coordinator().unwrap();
    let numbers = tables.map(Table::number);
    let mut snapshot = Box::pin(coordinator.snapshot(&numbers));
    let mut context = Context::from_waker(Waker::noop());
    assert!(snapshot.as_mut().poll(&mut context).is_pending());
    assert_eq!(gate.posted(), 32);
    for _ in 0..2 {
        drop(world.memory.remove(0));
        world.serve();
        assert_eq!(world.restore().missing, Missing::default());
    }
    gate.open();
    let rows = block_on(snapshot).unwrap();
    for rows in rows {
        let expected = (0..300).map(|key| (key, [key + 1].into()));
        assert!(rows.into_iter().eq(expected));
    }
    drop((coordinator, worker, writer));
    assert_eq!(world.check(), (600, 0));
}

#[test]
fn one_compute_server_restores_at_a_time() {
    let mut world = World::new("claim", 2, StoreOptions::new());
    world.table();
    let busy = AtomicU64::new(0);
    drop(world.memory.remove(0));
    world.serve();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| match world.compute().restore() {
                Ok(_) => {}
                Err(StoreError::Restore(RestoreError::Busy { restorer })) => {
                    assert_eq!(restorer, world.compute().instance());
                    busy.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            });
        }
    });
    assert!(busy.into_inner() < 4);
    assert_eq!(world.check(), (0, 0));
}

#[test]
fn money_is_conserved_while_servers_are_lost_and_restored() {
    Protocol::ALL.into_iter().for_each(conserve_money);
}

fn conserve_money(protocol: Protocol) {
    const ACCOUNTS: u64 = 200;
    let name = format!("money-{protocol}");
    let options = StoreOptions::new().protocol(protocol).poison_dead(true);
    let mut world = World::new(&name, 2, options);
    let table = world.table();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    for account in 0..ACCOUNTS {
        put(&mut coordinator, table, account, 100);
    }
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let second = world.store.join_compute().unwrap();
    let first = world.compute.take().unwrap();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let compute = if number % 2 == 0 { &first } else { &second };
            let (stop, moved) = (&stop, &moved);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
                    let done = coordinator.transaction(async |tx| {
                        let balance = tx.read(table, from).await?.unwrap();
                        if balance == 0 || from == to {
                            return Ok(());
                        }
                        // Deletions and insertions change the index as well.
                        tx.delete(table, from).await?;
                        tx.insert(table, from, &(balance - 1)).await?;
                        tx.update(table, to, |it| it + 1).await?;
                        Ok(())
                    });
                    block_on(done).unwrap();
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..6 {
            let before = moved.load(Ordering::Relaxed);
            while moved.load(Ordering::Relaxed) < before + 300 {
                std::thread::yield_now();
            }
            drop(world.memory.remove(0));
            world.serve();
            let restored = world.restore();
            assert_eq!((restored.replicas, restored.missing.partitions), (16, 0));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let sum: u64 = (0..ACCOUNTS)
        .filter_map(|it| read(&mut coordinator, table, it))
        .sum();
    assert_eq!(sum, ACCOUNTS * 100);
    drop((coordinator, first, second));
    assert_eq!(world.check(), (ACCOUNTS, 0));
}

/// Restores until the test kills it, if a test has started the program for that.
#[test]
fn restorer() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let compute = Store::open(path).unwrap().join_compute().unwrap();
    println!("\nrestores");
    compute.restore().unwrap();
    println!("\nrestored");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The environment variable with the path of the store.
const PATH: &str = "OUTLIVE_TEST_RESTORE";

/// Starts a restorer in a process of its own and kills it, `delay` after it has started or, if
/// `waits`, after its first step. Returns the number of its steps.
fn kill_a_restorer(world: &World, waits: bool, delay: Duration) -> u64 {
    let configuration = world.store.configuration();
    let before = configuration.epoch();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["restorer", "--exact", "--nocapture"])
        .env(PATH, &world.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_begun = |line: std::io::Result<String>| line.unwrap() == "restores";
    assert!(lines.any(is_begun), "the restorer did not start");
    let begin = Instant::now();
    while waits && configuration.epoch() == before {
        let is_late = begin.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "the restorer has not begun a step");
        std::thread::yield_now();
    }
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    configuration.epoch() - before
}

/// Restores, as soon as the death of another restorer is known.
fn restore_after_another(compute: &ComputeServer) -> Result<Restored, StoreError> {
    let begin = Instant::now();
    loop {
        let restored = compute.restore();
        if !matches!(
            &restored,
            Err(StoreError::Restore(RestoreError::Busy { .. }))
        ) {
            return restored;
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
}

const KEYS: u64 = 8000;

#[test]
fn a_killed_restorer_is_followed_by_another_one() {
    let mut world = World::new("killed", 2, StoreOptions::new());
    let (table, mut coordinator) = world.filled(KEYS);
    let (mut open, mut begun) = (0, 0);
    for round in 0..20u64 {
        drop(world.memory.remove(0));
        world.serve();
        // It is killed at various points: the copy takes some milliseconds.
        let steps = kill_a_restorer(&world, round >= 5, Duration::from_micros(round * 50));
        begun += u64::from(steps > 0);
        open += u64::from(steps == 1);
        put(&mut coordinator, table, 0, round);
        let restored = restore_after_another(world.compute()).unwrap();
        assert_eq!(restored.missing, Missing::default());
        assert_eq!(read(&mut coordinator, table, 0), Some(round));
        assert_eq!(read(&mut coordinator, table, KEYS - 1), Some(KEYS - 1));
    }
    assert!(
        begun >= 15 && open >= 1,
        "{begun} have begun, {open} of them not completed"
    );
    drop(coordinator);
    assert_eq!(world.check(), (KEYS, 0));
}

/// Otherwise it would latch an object, register its copy, and could not end it.
#[test]
fn a_restorer_that_continues_first_reaches_all_servers() {
    let mut world = World::new("continued", 4, StoreOptions::new());
    let (table, mut coordinator) = world.filled(KEYS);
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60));
        drop(world.memory.remove(0));
        world.serve();
        if kill_a_restorer(&world, true, Duration::ZERO) == 1 {
            break;
        }
        restore_after_another(world.compute()).unwrap();
    }
    // A store that is opened now has not mapped the new server's segment.
    let other = Store::open(&world.path).unwrap();
    let new = world.memory.last().unwrap().id().0;
    let segment = segment_of(Path::new(&world.path), new);
    let hidden = segment.with_extension("hidden");
    std::fs::rename(&segment, &hidden).unwrap();
    // One whose log servers are others.
    let mut joined = Vec::new();
    let restorer = loop {
        let restorer = other.join_compute().unwrap();
        match restorer.worker() {
            Ok(_) => break restorer,
            Err(_) => joined.push(restorer),
        }
    };
    drop(joined);
    let refused = restore_after_another(&restorer);
    std::fs::rename(&hidden, &segment).unwrap();
    let refused = refused.unwrap_err().to_string();
    let text = "an object could not be copied: memory server";
    assert!(refused.starts_with(text), "{refused}");
    // A log of the killed restorer may have been at the hidden server.
    let begin = Instant::now();
    while !world.store.gone().is_empty() || world.store.configuration().is_recovering() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    for key in 0..KEYS {
        put(&mut coordinator, table, key, key + 1);
    }
    assert_eq!(restorer.restore().unwrap().missing, Missing::default());
    drop((coordinator, restorer, other));
    assert_eq!(world.check(), (KEYS, 0));
}

/// Returns the path of a memory server's segment, which is beside the store's file.
fn segment_of(store: &Path, number: u16) -> PathBuf {
    let name = store.file_name().unwrap().to_str().unwrap();
    let files = std::fs::read_dir(store.parent().unwrap()).unwrap();
    let mut paths = files.map(|it| it.unwrap().path());
    let is_segment = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(name) && file.contains(&format!(".memory-{number}."))
    };
    paths.find(is_segment).unwrap()
}

#[test]
fn the_new_server_may_be_lost_too() {
    let mut world = World::new("twice", 3, StoreOptions::new().replicas(3));
    let (table, mut coordinator) = world.filled(300);
    let stop = AtomicBool::new(false);
    let compute = world.compute.take().unwrap();
    let restorer = world.store.join_compute().unwrap();
    std::thread::scope(|scope| {
        // Restores whenever something is missing.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                restorer.restore().unwrap();
            }
        });
        let writer = compute.worker().unwrap();
        let mut coordinator = writer.coordinator().unwrap();
        for round in 0..15u64 {
            drop(world.memory.remove(0));
            world.serve();
            for key in 0..round * 2 {
                put(&mut coordinator, table, key, key);
            }
            // The new one, perhaps while it is filled.
            drop(world.memory.pop());
            world.serve();
            while world.store.status().missing.replicas > 0 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for key in 0..300 {
        assert_eq!(read(&mut coordinator, table, key), Some(key));
    }
    drop((coordinator, compute, restorer));
    world.restore();
    assert_eq!(world.check(), (300, 0));
}
