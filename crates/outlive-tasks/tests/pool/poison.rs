//! A task that kills its workers is poisoned after a few deaths, and all other tasks continue.
//!
//! A child is this test program again, with its role in its environment.

use crate::support;
use crate::support::LONG;
use outlive::heap::LocalHeap;
use outlive::membership::{Process, ProcessOptions};
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::{Child, Place, ProcessSupervisor, RestartPolicy, Stop};
use outlive_tasks::{Call, Deadlines, Job, JobError, Options, WorkerPool, task};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

task! {
    /// Ends its process: by abort, by exit with a code, by a signal, or by endless recursion.
    fn deadly(context, how: u64) {
        match how {
            0 => std::process::abort(),
            1 => std::process::exit(3),
            2 => {
                // SAFETY: it ends the process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            _ => {
                recurse(how);
            }
        }
        context.result_of(&how)
    }

    /// Spawns a number of tasks, each of which takes a moment.
    fn healthy(context, parts: u64) {
        for part in 0..parts {
            context.spawn(moment(part))?;
        }
        Ok(())
    }

    fn moment(_context, _part: u64) {
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    /// Kills its worker in the first `times` attempts, and then succeeds.
    fn sometimes(context, times: u64) {
        let tried = u64::from(context.attempt());
        if tried < times {
            std::process::abort();
        }
        context.result_of(&tried)
    }
}

task! {
    /// Does not end the first few times.
    fn endless(context, times: u64) {
        while u64::from(context.attempt()) < times {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn recurse(depth: u64) -> u64 {
    let large = std::hint::black_box([depth; 512]);
    if large[0] == u64::MAX {
        return 0;
    }
    recurse(depth + 1) + large[depth as usize % 512]
}

/// Not a test: the entry point of the children. Does nothing without a pod.
#[test]
fn work() {
    let Ok(place) = Place::from_env() else {
        return;
    };
    let pod = Pod::open(&place.pod).unwrap();
    let options = ProcessOptions::on_host(place.host).id(place.id);
    let process = pod.join(options).unwrap();
    let member = process.enter(None, "worker").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::open(&pod, "pool").unwrap();
    pool.work(&heap, &Stop::default()).unwrap();
    drop(heap);
    drop(member);
    process.leave().unwrap();
}

fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["poison::work", "--exact", "--nocapture", "--test-threads=1"]);
    // An abort is no reason to print a stack.
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    command
}

struct Gone(String);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

/// A pod with a pool whose two workers are processes, each on a host of its own, that a supervisor
/// restarts.
fn with_processes(
    name: &str,
    options: Options,
    body: impl FnOnce(&Process, &LocalHeap<'_>, WorkerPool),
) {
    let path = format!("/dev/shm/outlive-tasks-{name}-{}", std::process::id());
    let _gone = Gone(path.clone());
    let pod = Pod::create(&path, PodOptions::new().size(64 << 20).ids(64)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0).id(2)).unwrap();
    let member = process.enter(Some(3), "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::create(&pod, &heap, "pool", options).unwrap();
    let mut supervisor = ProcessSupervisor::new(process.clone(), &path).policy(RestartPolicy {
        most: 100,
        backoff: Duration::from_millis(1),
        longest: Duration::from_millis(20),
        ..RestartPolicy::default()
    });
    for (id, host) in [(4, 1), (5, 6)] {
        supervisor = supervisor.child(Child::new(id, host, command));
    }
    let end = supervisor.stopper();
    std::thread::scope(|scope| {
        /// Ends the workers, also when a test panics.
        struct Ending<'e>(&'e Stop);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let ending = Ending(&end);
        scope.spawn(move || {
            supervisor.run();
            supervisor.kill_children();
        });
        body(&process, &heap, pool);
        drop(ending);
    });
    drop(heap);
    drop(member);
    process.leave().unwrap();
}

/// Returns why the job of `call` failed.
fn failure(heap: &LocalHeap<'_>, pool: WorkerPool, name: &str, call: Call) -> String {
    let job = pool.submit(heap, name, call).unwrap();
    match job.wait(LONG) {
        Err(JobError::Failed { why, .. }) => why,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_poisoned_task_names_its_victims_and_other_jobs_go_on() {
    with_processes("poison", Options::new(), |_, heap, pool| {
        let others: Vec<_> = (0..4)
            .map(|n| {
                pool.submit(heap, &format!("healthy {n}"), healthy(200))
                    .unwrap()
            })
            .collect();
        let ways = ["SIGABRT", "exit status: 3", "SIGKILL", "SIG"];
        for (how, ended) in (0..).zip(ways) {
            let why = failure(heap, pool, &format!("deadly {how}"), deadly(how));
            println!("{why}");
            assert!(
                why.contains(&format!(
                    "poison::deadly(how: {how})` is poisoned: 5 workers died"
                )),
                "{why}"
            );
            assert_eq!(why.matches(" of process ").count(), 5, "{why}");
            assert_eq!(why.matches(ended).count(), 5, "{why}");
        }
        for job in others {
            job.wait(LONG).unwrap();
        }
    });
}

#[test]
fn a_task_that_kills_fewer_workers_completes() {
    with_processes("almost", Options::new(), |_, heap, pool| {
        let job = pool.submit(heap, "almost", sometimes(4)).unwrap();
        job.wait(LONG).unwrap();
    });
    // The ring has enough entries for the limit, however few the pool's workers need.
    let small = Options::new().capacity(2).crash_limit(12);
    with_processes("small", small, |_, heap, pool| {
        let why = failure(heap, pool, "limited", sometimes(100));
        assert!(why.contains("12 workers died"), "{why}");
    });
    with_processes("limit", Options::new().crash_limit(2), |_, heap, pool| {
        let why = failure(heap, pool, "limited", sometimes(2));
        assert!(why.contains("2 workers died"), "{why}");
    });
}

/// The time that a task of [`fenced_until_over`] may take.
const LIMIT: Duration = Duration::from_millis(400);

/// Checks the deadlines until `job` is over, and fences the hosts of overdue workers. Returns their
/// attempts.
fn fenced_until_over(process: &Process, pool: &WorkerPool, job: &Job<'_>) -> Vec<u8> {
    let (mut deadlines, mut fenced) = (Deadlines::new(LIMIT), Vec::new());
    let generations = process.tables().generations();
    let since = Instant::now();
    while let Err(JobError::TimedOut { .. }) = job.wait(Some(Duration::from_millis(20))) {
        assert!(since.elapsed() < LONG.unwrap());
        for overdue in deadlines.look(pool, generations).unwrap() {
            println!("{overdue}");
            assert!(overdue.task.contains("poison::endless("), "{overdue}");
            assert!(overdue.since >= LIMIT);
            fenced.push(overdue.attempt);
            let again = deadlines.look(pool, generations).unwrap();
            assert_eq!(again, [], "it is reported once");
            process.fence(overdue.worker).unwrap();
        }
    }
    fenced
}

task! {
    /// Ends when [`MAY_END`] is set.
    fn held(_context) {
        while !MAY_END.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

static MAY_END: AtomicBool = AtomicBool::new(false);

#[test]
fn time_in_which_the_observer_does_not_look_makes_no_worker_overdue() {
    support::with_workers("paused", 1, Options::new(), |pod, heap, pool| {
        let job = pool.submit(heap, "held", held()).unwrap();
        let limit = Duration::from_secs(1);
        let (mut deadlines, generations) = (Deadlines::new(limit), pod.tables().generations());
        let mut look = || deadlines.look(&pool, generations).unwrap();
        // The worker holds the task after a few checks. The pause counts as half the limit.
        for _ in 0..5 {
            assert_eq!(look(), []);
            std::thread::sleep(limit / 100);
        }
        std::thread::sleep(limit * 3 / 2);
        assert_eq!(
            look(),
            [],
            "the time without a check counts only as half the limit"
        );
        let since = Instant::now();
        while look().is_empty() {
            assert!(since.elapsed() < LONG.unwrap());
            std::thread::sleep(limit / 100);
        }
        MAY_END.store(true, Ordering::Relaxed);
        job.wait(LONG).unwrap();
    });
}

#[test]
fn a_worker_in_an_endless_task_is_overdue_and_others_go_on_once_it_is_fenced() {
    with_processes("endless", Options::new(), |process, heap, pool| {
        let job = pool.submit(heap, "endless", endless(2)).unwrap();
        assert_eq!(fenced_until_over(process, &pool, &job), [0, 1]);
        job.wait(LONG).unwrap();
    });
    let limited = Options::new().crash_limit(2);
    with_processes("too-endless", limited, |process, heap, pool| {
        let job = pool.submit(heap, "endless", endless(9)).unwrap();
        assert_eq!(fenced_until_over(process, &pool, &job), [0, 1]);
        let why = job.wait(LONG).unwrap_err().to_string();
        // A third may die with its host when it is about to poison the task.
        assert!(why.contains(" workers died in it"), "{why}");
        // The end of a worker may become known only after its task is over.
        assert!(why.contains("SIGKILL"), "{why}");
    });
}
