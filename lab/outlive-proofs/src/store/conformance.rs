//! The conformance suite of verbs, and the backends that pass it. It checks the order of verbs by
//! [litmus tests](super::Litmus), and the effect of each verb.

use super::litmus::{ALL, Litmus, run};
use super::network::{Network, Task};
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive_store::verbs::{
    Batch, Connection, Emulated, Link, Liveness, Mapped, Region, RemoteOffset, ServerId, VerbError,
    block_on, join_all,
};
use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The number of words of the region that the suite uses.
const WORDS: u64 = 64;
const SERVER: ServerId = ServerId(0);

/// Receives the results of the two programs of a litmus test after each run.
type See<'a> = &'a mut dyn FnMut(&[u64], &[u64]);

/// A backend of verbs under test.
pub trait Backend {
    /// Runs the programs of `litmus` at the same time, many times, each time on a region of zeros.
    fn race(&self, litmus: &Litmus, see: See<'_>);

    /// Runs [`effects`] on two connections to one region of zeros.
    fn effects(&self);
}

/// Runs the suite on `backend`. With `uses_all_freedoms`, each outcome that a litmus test
/// [shows](Litmus::shows) must occur. Returns the number of races.
///
/// # Errors
/// The first forbidden outcome, or an outcome that must occur and did not.
pub fn conforms(backend: &impl Backend, uses_all_freedoms: bool) -> Result<u64, String> {
    backend.effects();
    let mut races = 0;
    for litmus in ALL {
        let mut wrong = None;
        let mut has_shown = false;
        backend.race(litmus, &mut |left, right| {
            races += 1;
            if (litmus.forbids)(left, right) {
                wrong = Some(format!("{}: {left:?} and {right:?}", litmus.name));
            }
            has_shown |= litmus.shows.is_some_and(|shows| shows(left, right));
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if uses_all_freedoms && litmus.shows.is_some() && !has_shown {
            return Err(format!("{}: its weak outcome did not occur", litmus.name));
        }
    }
    Ok(races)
}

/// Checks the effect of each verb on two connections to one region of zeros.
///
/// # Panics
/// If an effect is wrong.
pub async fn effects<C: Connection>(first: &C, second: &C) {
    let at = |index: u64| RemoteOffset::new(index * 8);
    let mut batch = Batch::new();
    batch.write(at(1), &[10, 11, 12]);
    let read = batch.read(at(0), 5);
    // A CAS may pass a READ.
    batch.fence();
    let hit = batch.compare_swap(at(2), 11, 21);
    let miss = batch.compare_swap(at(3), 0, 22);
    let added = batch.fetch_add(at(1), u64::MAX);
    let again = batch.read(at(1), 3);
    let mut batch = first.post(batch).await.finished().expect("no failure");
    assert_eq!(batch.words(read), [0, 10, 11, 12, 0]);
    assert_eq!((batch.value(hit), batch.value(miss)), (11, 12));
    assert_eq!(batch.value(added), 10);
    assert_eq!(batch.words(again), [9, 21, 12]);

    // A completed verb is visible on other connections. The batch is reused.
    batch.clear();
    let read = batch.read(at(1), 3);
    let batch = second.post(batch).await.finished().expect("no failure");
    assert_eq!(batch.words(read), [9, 21, 12]);

    // An empty batch completes.
    assert!(first.post(Batch::new()).await.finished().is_ok());

    // A batch with a verb outside the region has no effect.
    assert_eq!(first.region().bytes, WORDS * 8);
    for (at, words) in [
        (RemoteOffset::new(WORDS * 8), 1),
        (RemoteOffset::new(WORDS * 8 - 8), 2),
        (RemoteOffset::new(4), 1),
        (RemoteOffset::new(u64::MAX - 7), 2),
    ] {
        let mut batch = Batch::new();
        batch.fetch_add(RemoteOffset::new(40), 1);
        batch.read(at, words);
        let result = first.post(batch).await.result;
        assert!(matches!(result, Err(VerbError::OutOfRegion { .. })));
    }
    let mut batch = Batch::new();
    let untouched = batch.read(at(5), 1);
    let batch = first.post(batch).await.finished().expect("no failure");
    assert_eq!(batch.value(untouched), 0);

    // A batch whose completion is dropped takes effect, before later ones.
    let post = |index: u64, value: u64| {
        let mut batch = Batch::new();
        batch.write(at(index), &[value]);
        first.post(batch)
    };
    drop(post(7, 1));
    let done = join_all(vec![post(6, 2), post(6, 3)]).await;
    assert!(done.into_iter().all(|it| it.result.is_ok()));
    let mut batch = Batch::new();
    let last = batch.read(at(6), 2);
    let batch = second.post(batch).await.finished().expect("no failure");
    assert_eq!(batch.words(last), [3, 1]);
}

/// The simulated network, with this number of seeds for each test.
#[derive(Clone, Copy, Debug)]
pub struct Simulated(pub u64);

impl Simulated {
    /// The limit of steps of a run.
    const STEPS: u64 = 1_000_000;

    fn run(network: &Network, tasks: Vec<Task<'_>>) {
        network.run(tasks, Self::STEPS).expect("it ends");
    }
}

impl Backend for Simulated {
    fn race(&self, litmus: &Litmus, see: See<'_>) {
        for seed in 0..self.0 {
            let network = Network::new(seed, 1, WORDS as usize);
            let results = RefCell::new([Vec::new(), Vec::new()]);
            let tasks = [0, 1].map(|side| -> Task<'_> {
                let (wire, results) = (network.connect(side, SERVER), &results);
                let program = litmus.programs[side];
                let task = async move {
                    let words = run(&wire, program).await;
                    results.borrow_mut()[side] = words;
                };
                (side, Box::pin(task))
            });
            Self::run(&network, tasks.into());
            let [left, right] = results.into_inner();
            see(&left, &right);
        }
    }

    fn effects(&self) {
        for seed in 0..self.0.div_ceil(100) {
            let network = Network::new(seed, 1, WORDS as usize);
            let connect = |from| network.connect(from, SERVER);
            let (first, second) = (connect(0), connect(1));
            let task = async move { effects(&first, &second).await };
            Self::run(&network, vec![(0, Box::pin(task))]);
        }
    }
}

/// Mapped memory, raced by two threads this number of times for each test.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub u32);

/// Returns a region of zeros.
fn mapped() -> (Native, Mapped) {
    let memory = Native::leaked(8192, PersistenceDomain::Flushed);
    let region = Region {
        key: 1,
        bytes: WORDS * 8,
    };
    let liveness = Liveness {
        memory,
        at: Offset::new(64),
        live: 0,
    };
    let first = Offset::new(4096);
    (memory, Mapped::new(memory, SERVER, first, region, liveness))
}

fn clear(memory: Native) {
    for word in 0..WORDS {
        memory.store(Offset::new(4096 + word * 8), 0u64, Ordering::Relaxed);
    }
}

impl Backend for Threads {
    fn race(&self, litmus: &Litmus, see: See<'_>) {
        let (memory, server) = mapped();
        let arrived = AtomicU64::new(0);
        // The threads start within some nanoseconds of each other. With a barrier of the operating
        // system they would run one after the other.
        let meet = |round: u64| {
            arrived.fetch_add(1, SeqCst);
            let mut spins = 0u32;
            while arrived.load(SeqCst) < 2 * round {
                spins += 1;
                match spins.is_multiple_of(1 << 8) {
                    true => std::thread::yield_now(),
                    false => core::hint::spin_loop(),
                }
            }
        };
        let turns = |side: usize| {
            let mut results = Vec::new();
            for turn in 0..u64::from(self.0) {
                meet(2 * turn + 1);
                results.push(block_on(run(&server, litmus.programs[side])));
                meet(2 * turn + 2);
                if side == 0 {
                    clear(memory);
                }
            }
            results
        };
        let turns = &turns;
        let [left, right] = std::thread::scope(|scope| {
            let threads = [0, 1].map(|side| scope.spawn(move || turns(side)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        for (left, right) in left.iter().zip(&right) {
            see(left, right);
        }
    }

    fn effects(&self) {
        let (_, server) = mapped();
        block_on(effects(&server, &server));
    }
}

/// Mapped memory behind an emulated link, raced by two connections this number of times for each
/// test.
#[derive(Clone, Copy, Debug)]
pub struct Linked(pub u32);

impl Linked {
    fn connect(server: Mapped, seed: u64) -> Emulated<Mapped> {
        let link = Link {
            round_trip: Duration::from_nanos(500),
            jitter: Duration::from_nanos(500),
            ..Link::default()
        };
        Emulated::new(server, link, seed)
    }
}

impl Backend for Linked {
    fn race(&self, litmus: &Litmus, see: See<'_>) {
        let (memory, server) = mapped();
        for seed in 0..self.0 {
            clear(memory);
            let sides = [0, 1].map(|side| {
                let connection = Self::connect(server, 2 * u64::from(seed) + side as u64);
                let program = litmus.programs[side];
                async move { run(&connection, program).await }
            });
            let results = block_on(join_all(sides.into()));
            see(&results[0], &results[1]);
        }
    }

    fn effects(&self) {
        let (_, server) = mapped();
        let (first, second) = (Self::connect(server, 1), Self::connect(server, 2));
        block_on(effects(&first, &second));
        // Requests that are under way when the last handle is dropped take effect.
        let mut batch = Batch::new();
        batch.write(RemoteOffset::new(0), &[9]);
        drop(first.post(batch));
        drop(first);
        let mut batch = Batch::new();
        let slot = batch.read(RemoteOffset::new(0), 1);
        let batch = block_on(server.post(batch)).finished().expect("no failure");
        assert_eq!(batch.value(slot), 9);
    }
}
