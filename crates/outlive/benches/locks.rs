//! Our locks beside their plain peers, alternating: alone, and two threads that contend for a counter.
//!
//! The peers wait as ours do (spin, then yield). `cargo bench -p outlive --bench locks` prints them; a
//! claim is made by the study `locks`, which pairs the runs and prints the spread of a peer against itself.

use criterion::{Criterion, criterion_group, criterion_main};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync::{self, BareTatas, QueueLock, RecoverableMutex, Tatas, Waiting};
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

const LOCK: Offset = Offset::new(8192);
const COUNTER: Offset = Offset::new(8192 + 1024);

/// What a thread needs for any of the locks.
struct Thread {
    memory: Native,
    member: Member,
    recoverers: Recoverers,
    node: McsNode,
}

impl Thread {
    fn new(memory: Native, id: u32) -> Self {
        let generations = Generations::new(memory, Offset::new(0), 4);
        let logs = Logs::new(memory, Offset::new(16384), 4);
        let live = State {
            generation: 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        assert!(generations.transition(id, State::FREE, live));
        let instance = Instance::new(id, 1);
        // SAFETY: each thread takes an id of its own, and none is ever declared dead.
        let member = unsafe { Member::assume(memory, generations, instance, logs.at(id), None) };
        OwnLog::open(&member).expect("a fresh log");
        let recoverers = sync::recoverers(logs);
        let node = McsNode::default();
        Self {
            memory,
            member,
            recoverers,
            node,
        }
    }

    fn add(&self) {
        let sum: u64 = self.memory.load(COUNTER, Ordering::Relaxed);
        self.memory
            .store(COUNTER, black_box(sum + 1), Ordering::Relaxed);
    }
}

/// One lock, locked around an increment.
trait Contender: Sync {
    const NAME: &'static str;
    fn new(memory: Native) -> Self;
    fn increment(&self, thread: &Thread);
}

struct Bare(BareTatas);
impl Contender for Bare {
    const NAME: &'static str = "bare tatas";
    fn new(memory: Native) -> Self {
        Self(BareTatas::new(memory, LOCK))
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        let _held = self.0.lock(&thread.member).expect("the lock");
        thread.add();
    }
}

struct Logged(Tatas);
impl Contender for Logged {
    const NAME: &'static str = "logged tatas";
    fn new(memory: Native) -> Self {
        Self(Tatas::new(memory, LOCK))
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        let _held = self
            .0
            .lock(&thread.member, &thread.recoverers)
            .expect("the lock");
        thread.add();
    }
}

struct Queue(QueueLock);
impl Contender for Queue {
    const NAME: &'static str = "queue";
    fn new(memory: Native) -> Self {
        Self(QueueLock::new(memory, LOCK))
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        let _held = self
            .0
            .lock(&thread.member, &thread.recoverers)
            .expect("the lock");
        thread.add();
    }
}

struct Mutex(RecoverableMutex<u64>);
impl Contender for Mutex {
    const NAME: &'static str = "recoverable mutex";
    fn new(memory: Native) -> Self {
        Self(RecoverableMutex::create(memory, LOCK, 0))
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        *self.0.lock(&thread.member).expect("the lock") += 1;
    }
}

/// Spins, then yields, as `Waiting::DEFAULT` says; the peers never sleep.
fn wait_until(mut ready: impl FnMut() -> bool) {
    let mut round = 0;
    while !ready() {
        if round < Waiting::DEFAULT.spins {
            spin_loop();
        } else {
            std::thread::yield_now();
        }
        round += 1;
    }
}

struct PlainTatas(&'static AtomicU64);
impl Contender for PlainTatas {
    const NAME: &'static str = "peer: plain tatas";
    fn new(memory: Native) -> Self {
        let place = memory.address(LOCK, 8).cast();
        // SAFETY: mapped, aligned, never freed, and used by atomics only.
        Self(unsafe { AtomicU64::from_ptr(place.as_ptr()) })
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        let take = || self.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if !take() {
            wait_until(|| self.0.load(Relaxed) == 0 && take());
        }
        thread.add();
        self.0.store(0, Release);
    }
}

/// The same with one store to a line of one's own between a release and the next acquisition, as any
/// log must make one (and nearly any program makes some).
///
/// It costs as much as the whole of what a logged lock adds: a compare-and-swap that comes right after a
/// store to its own word waits less than one that comes after a store to another.
struct PlainAndStore(PlainTatas);
impl Contender for PlainAndStore {
    const NAME: &'static str = "peer: plain tatas and a store";
    fn new(memory: Native) -> Self {
        Self(PlainTatas::new(memory))
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        self.0.increment(thread);
        thread.node.waits.store(0, Relaxed);
    }
}

#[derive(Default)]
#[repr(align(64))]
struct McsNode {
    next: AtomicPtr<McsNode>,
    waits: AtomicU64,
}

struct PlainMcs(AtomicPtr<McsNode>);
impl Contender for PlainMcs {
    const NAME: &'static str = "peer: plain mcs";
    fn new(_: Native) -> Self {
        Self(AtomicPtr::default())
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        let node = &thread.node;
        let own = (&raw const *node).cast_mut();
        node.next.store(std::ptr::null_mut(), Relaxed);
        node.waits.store(1, Relaxed);
        let before = self.0.swap(own, AcqRel);
        // SAFETY: nodes live as long as their threads, which do not end while they are in the queue.
        if let Some(before) = unsafe { before.as_ref() } {
            before.next.store(own, Release);
            wait_until(|| node.waits.load(Acquire) == 0);
        }
        thread.add();
        if node.next.load(Acquire).is_null() {
            let null = std::ptr::null_mut();
            if self.0.compare_exchange(own, null, Release, Relaxed).is_ok() {
                return;
            }
            wait_until(|| !node.next.load(Acquire).is_null());
        }
        // SAFETY: as above; the successor waits.
        unsafe { &*node.next.load(Acquire) }.waits.store(0, Release);
    }
}

/// A process-shared robust mutex, as a careful program uses today.
struct Pthread(*mut libc::pthread_mutex_t);
// SAFETY: a pthread mutex is made to be shared.
unsafe impl Sync for Pthread {}
impl Contender for Pthread {
    const NAME: &'static str = "peer: robust pthread mutex";
    fn new(memory: Native) -> Self {
        let size = size_of::<libc::pthread_mutex_t>() as u64;
        let mutex: *mut libc::pthread_mutex_t = memory.address(LOCK, size).cast().as_ptr();
        // SAFETY: the place is mapped, aligned, never freed, and nobody else's; the attributes are
        // initialised before they are used.
        unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            assert_eq!(
                libc::pthread_mutexattr_setpshared(&mut attributes, shared),
                0
            );
            let robust = libc::PTHREAD_MUTEX_ROBUST;
            assert_eq!(
                libc::pthread_mutexattr_setrobust(&mut attributes, robust),
                0
            );
            assert_eq!(libc::pthread_mutex_init(mutex, &attributes), 0);
        }
        Self(mutex)
    }
    #[inline(always)]
    fn increment(&self, thread: &Thread) {
        // SAFETY: initialised in `new`, and never destroyed.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0) }, 0);
        thread.add();
        // SAFETY: locked by this thread.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0) }, 0);
    }
}

/// The time of `rounds` increments by each of `threads` threads.
fn time<C: Contender>(threads: u32, rounds: u64) -> Duration {
    let memory = memory();
    let contender = C::new(memory);
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|id| {
                let (contender, barrier) = (&contender, &barrier);
                scope.spawn(move || {
                    let thread = Thread::new(memory, id);
                    barrier.wait();
                    let started = Instant::now();
                    for _ in 0..rounds {
                        contender.increment(&thread);
                    }
                    barrier.wait();
                    started.elapsed()
                })
            })
            .collect();
        let times = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker"));
        times.max().expect("at least one thread")
    })
}

/// The one memory of this process, zero again: measurements come one after the other.
fn memory() -> Native {
    static MEMORY: std::sync::OnceLock<Native> = std::sync::OnceLock::new();
    let size = 1 << 16;
    let memory = *MEMORY.get_or_init(|| Native::leaked(size, PersistenceDomain::Flushed));
    memory.copy_in(Offset::new(0), &[0; 1 << 16]);
    memory
}

fn bench<C: Contender>(criterion: &mut Criterion, threads: u32) {
    let name = match threads {
        1 => format!("uncontended/{}", C::NAME),
        _ => format!("{threads} threads/{}", C::NAME),
    };
    criterion.bench_function(&name, |bencher| {
        bencher.iter_custom(|rounds| time::<C>(threads, rounds));
    });
}

fn locks(criterion: &mut Criterion) {
    for threads in [1, 2] {
        bench::<PlainTatas>(criterion, threads);
        bench::<Bare>(criterion, threads);
        bench::<Logged>(criterion, threads);
        bench::<PlainMcs>(criterion, threads);
        bench::<Queue>(criterion, threads);
        bench::<Pthread>(criterion, threads);
        bench::<Mutex>(criterion, threads);
    }
}

/// How often each pair is measured, in turns.
const PAIRS: usize = 51;

/// `ours` beside `peer` in turns: the median of the ratios and its quartiles, as well as those of the peer
/// beside itself, for what the machine makes of equal things.
fn pair<Ours: Contender, Peer: Contender>(threads: u32, goal: &str) {
    let rounds = if threads == 1 { 500_000 } else { 200_000 };
    let nanoseconds = |time: Duration| time.as_secs_f64() * 1e9 / rounds as f64;
    let (mut ratios, mut same, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let before = nanoseconds(time::<Peer>(threads, rounds));
        let ours = nanoseconds(time::<Ours>(threads, rounds));
        let after = nanoseconds(time::<Peer>(threads, rounds));
        ratios.push(2.0 * ours / (before + after));
        same.push(after / before);
        times.push((ours, before));
    }
    let quartiles = |of: &mut [f64]| {
        of.sort_by(f64::total_cmp);
        [of[PAIRS / 2], of[PAIRS / 4], of[PAIRS * 3 / 4]].map(|value| format!("{value:.3}"))
    };
    let [ratio, low, high] = quartiles(&mut ratios);
    let [_, same_low, same_high] = quartiles(&mut same);
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ours = times[PAIRS / 2].0;
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let peer = times[PAIRS / 2].1;
    println!(
        "{threads} x {:29} {ours:6.1} ns / {:29} {peer:6.1} ns = {ratio} ({low} to {high}); \
         peer / peer {same_low} to {same_high}; goal {goal}",
        Ours::NAME,
        Peer::NAME
    );
}

/// The bars, in pairs.
fn pairs(_: &mut Criterion) {
    pair::<Bare, PlainTatas>(1, "1.05");
    pair::<Logged, PlainTatas>(1, "1.12");
    pair::<PlainAndStore, PlainTatas>(1, "none");
    pair::<Logged, PlainAndStore>(1, "none");
    pair::<Bare, Pthread>(1, "0.5");
    pair::<Logged, Pthread>(1, "0.5");
    pair::<Queue, PlainMcs>(1, "1.08");
    pair::<Mutex, Pthread>(1, "none");
    pair::<Bare, PlainTatas>(2, "1.03");
    pair::<Logged, PlainTatas>(2, "none");
    pair::<Queue, PlainMcs>(2, "1.08");
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = pairs, locks
}
criterion_main!(benches);
