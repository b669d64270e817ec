//! An empty task, from its spawn until it is done, beside `rayon::scope`: a parent spawns a batch, and all is waited for.
//! With one worker and with two. (What is to hold: at most three times rayon's.)
//!
//! First through the whole pool, as a program uses it: a job whose tasks spawn batches, run by the pool's workers, and waited
//! for; in pairs, rayon's before and after ours, by wall time and by processor time. Then the engine alone.
//!
//! What was found, on two virtual cores of an EPYC, by processor time: one worker 1.62 to 1.73 times rayon's (133 ns a task to
//! rayon's 80), two workers 1.41 to 1.54 times (130 to 175 ns); the engine alone, with one worker, 46 to 50 ns, which is less than
//! rayon's, since descriptors are used again where rayon allocates a closure for each task. Of the 133 ns, by samples: some 42 to
//! spawn (the call with its arguments, the child's descriptor), 13 to push, 21 to pop (the note in the running slot, the fence, the
//! swap of the status), 28 to run (the job's state, the context, the guard against panics), 14 for the loop around it, 7 to copy
//! the arguments out, 8 to complete. In 16 million tasks there were less than ten thousand system calls, rayon's included: to
//! wait for jobs and between them (`tests/no_system_calls.rs` holds that there is none for a task).

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

/// How many tasks a parent spawns.
const BATCH: u64 = 1000;
const IDS: u32 = 4;

/// The functions, by number, as a worker has them.
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
        assert!(self.generations.transition(id, State::FREE, live));
        let instance = Instance::new(id, 1);
        // SAFETY: one thread acts as each id, and nobody raises its generation.
        let member = unsafe {
            Member::assume(
                self.memory,
                self.generations,
                instance,
                self.logs.at(id),
                None,
            )
        };
        OwnLog::open(&member).expect("a log that nobody had");
        member
    }
}

/// Runs what there is; says how many tasks.
fn run_all(engine: &mut Engine<'_>) -> u64 {
    let mut done = 0;
    while let Some(mut run) = engine.next(&mut ()).expect("no word is damaged") {
        FUNCTIONS[run.function() as usize](&run);
        engine.complete(&mut run, &mut ()).expect("there is room");
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
    .expect("its last life is over");
    let parent = engine.start(root).expect("no word is damaged");
    let mut parent = parent.expect("nobody else knows it");
    for _ in 0..BATCH {
        engine
            .spawn(&mut parent, &Spec::new(0, &[]))
            .expect("there is room");
    }
    engine
        .complete(&mut parent, &mut ())
        .expect("there is room");
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

/// The whole pool.
mod whole {
    use super::BATCH;
    use outlive::membership::ProcessOptions;
    use outlive::pod::{Pod, PodOptions};
    use outlive::supervise::Stop;
    use outlive_tasks::{Options, WorkerPool, task};
    use rustix::time::{ClockId, clock_gettime};
    use std::hint::black_box;
    use std::time::Instant;

    task! {
        fn empty(_context) {
            Ok(())
        }

        fn batches(context, left: u64) {
            for _ in 0..BATCH {
                context.spawn(empty())?;
            }
            // Run when those are: the first one that was spawned is the first.
            if left > 1 { context.spawn(batches(left - 1)) } else { Ok(()) }
        }
    }

    /// How many batches there are in a job.
    const BATCHES: u64 = 500;
    const PAIRS: usize = 15;

    struct Gone(String);

    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = Pod::destroy(&self.0);
        }
    }

    /// Nanoseconds of wall and of processor time for each task.
    fn timed(work: impl FnOnce()) -> [f64; 2] {
        let cpu = || {
            let now = clock_gettime(ClockId::ProcessCPUTime);
            now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
        };
        let (before, since) = (cpu(), Instant::now());
        work();
        let wall = since.elapsed().as_nanos() as f64;
        [wall, cpu() - before].map(|time| time / (BATCH * BATCHES) as f64)
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    pub fn compare(workers: usize) {
        let path = format!("/dev/shm/outlive-tasks-bench-{}", std::process::id());
        let _gone = Gone(path.clone());
        let pod = Pod::create(&path, PodOptions::new().size(128 << 20)).expect("a pod");
        let process = pod.join(ProcessOptions::on_host(0)).expect("a host");
        let member = process.enter(None, "caller").expect("an id");
        let heap = member.heap(&pod).expect("a heap");
        let pool = WorkerPool::create(&pod, &heap, "pool", Options::new()).expect("room");
        let stop = Stop::default();
        let theirs = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let theirs = theirs.expect("a pool");
        let rayon = || {
            theirs.install(|| {
                for _ in 0..BATCHES {
                    rayon::scope(|scope| {
                        for _ in 0..BATCH {
                            scope.spawn(|_| {
                                black_box(());
                            });
                        }
                    });
                }
            });
        };
        let jobs = std::cell::Cell::new(0u64);
        let ours = || {
            jobs.set(jobs.get() + 1);
            let name = format!("job {}", jobs.get());
            let job = pool.submit(&heap, &name, batches(BATCHES));
            job.expect("room").wait(None).expect("it is complete");
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(|| {
                        let member = process.enter(None, "worker").expect("an id");
                        let heap = member.heap(&pod).expect("a heap");
                        pool.work(&heap, &stop).expect("it works").0.tasks
                    })
                })
                .collect();
            rayon();
            ours();
            let (mut ratios, mut equals) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
            let mut times = [const { Vec::new() }; 2];
            for _ in 0..PAIRS {
                let (one, mine, two) = (timed(rayon), timed(ours), timed(rayon));
                for of in 0..2 {
                    ratios[of].push(2.0 * mine[of] / (one[of] + two[of]));
                    equals[of].push(two[of] / one[of]);
                    times[of].push(mine[of]);
                }
            }
            stop.stop();
            let ran: u64 = threads
                .into_iter()
                .map(|one| one.join().expect("it ends"))
                .sum();
            assert_eq!(
                ran,
                jobs.get() * BATCHES * (BATCH + 1),
                "tasks were not run once"
            );
            for (of, what) in ["wall", "cpu"].into_iter().enumerate() {
                println!(
                    "whole pool, {workers} workers, {what}: {:.1} ns a task, {:.2} times rayon's \
                     (rayon beside itself: {:.2})",
                    median(times[of].clone()),
                    median(ratios[of].clone()),
                    median(equals[of].clone()),
                );
            }
        });
        WorkerPool::destroy(&pod, &heap, "pool").expect("nobody works");
    }
}

fn main() {
    whole::compare(1);
    whole::compare(2);
    benches();
    Criterion::default().configure_from_args().final_summary();
}
