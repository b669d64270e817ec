//! Measures the engine alone: an empty task, from its spawn until it is done, compared to
//! `rayon::scope`: a parent spawns a batch, and waits for all of it. With one worker and with two.
//! (`outlive-lab study spawn` measures the whole pool, and checks the claims about it.)
//!
//! Results on two virtual cores of an EPYC: the engine alone, with one worker, takes 46 to 50 ns.
//! rayon takes 80, since it allocates a closure for each task, and the engine reuses descriptors.
//! Of the 133 ns of processor time that a task takes through the whole pool, by samples: some 42 to
//! spawn (the call with its arguments, the child's descriptor), 13 to push, 21 to pop (the note in
//! the running slot, the fence, the swap of the status), 28 to run (the job's state, the context,
//! the guard against panics), 14 for the loop around it, 7 to copy the arguments out, 8 to
//! complete. In 16 million tasks there were less than ten thousand system calls, including rayon's:
//! to wait for jobs and between them (`tests/no_system_calls.rs` checks that a task makes none).

use criterion::{Criterion, Throughput, criterion_group};
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Native, Offset, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync;
use outlive_tasks::{Engine, Running, Settings, Slots, Spec, Task};
use rayon::ThreadPoolBuilder;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The number of tasks that a parent spawns.
const BATCH: u64 = 1000;
const IDS: u32 = 4;

/// The functions of tasks, by number.
static FUNCTIONS: [fn(&Running); 1] = [|run| {
    black_box(run);
}];

struct Pod {
    memory: Native,
    generations: Generations,
    logs: Logs,
    heap: Heap,
    recoverers: Recoverers,
    slots: Slots,
}

impl Pod {
    fn new() -> Self {
        let bytes = 64 << 20;
        let memory = Native::leaked(bytes, PersistenceDomain::Flushed);
        let logs = Logs::new(memory, Offset::new(4096), IDS);
        let (slots, state) = (Offset::new(1 << 17), Offset::new(1 << 18));
        let region = 4 << 20;
        let heap = Heap::create(memory, state, Offset::new(region), bytes - region);
        let heap = heap.expect("a heap");
        let settings = Settings {
            capacity: IDS,
            ..Settings::default()
        };
        Self {
            memory,
            generations: Generations::new(memory, Offset::new(64), IDS),
            logs,
            heap,
            recoverers: heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap),
            slots: Slots::create(memory, slots, settings).expect("slots"),
        }
    }

    fn join(&self, id: u32) -> Member {
        let live = State {
            generation: 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        // SAFETY: no thread acts as the old incarnation, and one acts as the new one.
        assert!(unsafe { self.generations.assume_state(id, State::FREE, live) });
        let instance = Instance::new(id, 1);
        // SAFETY: one thread acts as each id, and no thread raises its generation.
        let member = unsafe {
            Member::assume(
                self.memory,
                self.generations,
                instance,
                self.logs.at(id),
                None,
            )
        };
        OwnLog::open(&member).expect("an unused log");
        member
    }
}

/// Runs all tasks that it finds. Returns their number.
fn run_all(engine: &mut Engine<'_>) -> u64 {
    let mut done = 0;
    while let Some(mut run) = engine.next(&mut ()).expect("no word is damaged") {
        FUNCTIONS[run.function() as usize](&run);
        engine
            .complete(&mut run, &mut ())
            .expect("enough free space");
        done += 1;
    }
    done
}

fn spawn_all(engine: &mut Engine<'_>, root: Task) {
    root.prepare_root(
        engine.heap(),
        &Spec::new(0, &[]),
        outlive_tasks::State::Ready,
    )
    .expect("its last execution has ended");
    let parent = engine.start(root).expect("no word is damaged");
    let mut parent = parent.expect("no other worker knows it");
    for _ in 0..BATCH {
        engine
            .spawn(&mut parent, &Spec::new(0, &[]))
            .expect("enough free space");
    }
    engine
        .complete(&mut parent, &mut ())
        .expect("enough free space");
}

fn compare(c: &mut Criterion) {
    let pod = Pod::new();
    let root = Task::new(pod.memory, Offset::new(3 << 20));
    let member = pod.join(0);
    let local = LocalHeap::of(pod.heap, &member, &pod.recoverers);
    let mut engine = Engine::claim(pod.slots, &local, &pod.recoverers, &mut ()).expect("a slot");
    let mut group = c.benchmark_group("spawn to done");
    group
        .throughput(Throughput::Elements(BATCH))
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    group.bench_function("one worker", |b| {
        b.iter(|| {
            spawn_all(&mut engine, root);
            assert_eq!(run_all(&mut engine), BATCH);
        });
    });
    let rayon = |threads| ThreadPoolBuilder::new().num_threads(threads).build();
    for threads in [1, 2] {
        let pool = rayon(threads).expect("a pool");
        group.bench_function(format!("rayon, {threads}"), |b| {
            pool.install(|| {
                b.iter(|| {
                    rayon::scope(|scope| {
                        for _ in 0..BATCH {
                            scope.spawn(|_| {
                                black_box(());
                            });
                        }
                    });
                });
            });
        });
    }
    let (stop, theirs) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let member = pod.join(1);
            let local = LocalHeap::of(pod.heap, &member, &pod.recoverers);
            let engine = Engine::claim(pod.slots, &local, &pod.recoverers, &mut ());
            let mut engine = engine.expect("a slot");
            while !stop.load(Ordering::Relaxed) {
                let done = run_all(&mut engine);
                if done > 0 {
                    theirs.fetch_add(done, Ordering::Release);
                } else {
                    std::hint::spin_loop();
                }
            }
        });
        group.bench_function("two workers", |b| {
            b.iter(|| {
                let before = theirs.load(Ordering::Acquire);
                spawn_all(&mut engine, root);
                let mine = run_all(&mut engine);
                while theirs.load(Ordering::Acquire) - before + mine < BATCH {
                    std::hint::spin_loop();
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    group.finish();
}

criterion_group!(benches, compare);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
}
