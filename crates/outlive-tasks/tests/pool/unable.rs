//! Workers that cannot do a task leave, and other workers do it. Only if no worker can, the job
//! fails.

use crate::support::{LONG, with_workers};
use outlive::heap::LocalHeap;
use outlive::membership::ProcessOptions;
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_tasks::{JobError, Options, PoolError, TaskError, TaskResult, WorkerPool, task};
use std::cell::Cell;
use std::sync::Mutex;
use std::time::Duration;

thread_local! {
    static ABLE: Cell<bool> = const { Cell::new(false) };
}

/// The numbers that were done. Concurrent tests use different numbers.
static DONE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn needs_ability() -> TaskResult {
    match ABLE.get() {
        true => Ok(()),
        false => Err(TaskError::unable("it has no way to the file")),
    }
}

task! {
    /// Does the numbers from `from` up to, but not including, `to`, by halves.
    fn part(context, from: u64, to: u64) {
        if to - from > 1 {
            let middle = from.midpoint(to);
            context.spawn(part(from, middle))?;
            context.spawn(part(middle, to))?;
            // The spawned tasks must not become visible.
            return needs_ability();
        }
        std::thread::sleep(Duration::from_micros(100));
        needs_ability()?;
        DONE.lock().unwrap().push(from);
        Ok(())
    }

    /// Writes a name, and then succeeds or is unable.
    fn named(context, value: u64) {
        context.output_of("value", &value)?;
        needs_ability()
    }
}

/// Starts a worker, which returns its result when it ends.
fn work<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    (pod, stop): (&'s Pod, &'s Stop),
    (is_able, is_spare): (bool, bool),
) -> std::thread::ScopedJoinHandle<'s, Result<u64, PoolError>> {
    scope.spawn(move || {
        ABLE.set(is_able);
        let process = pod.join(ProcessOptions::on_host(3)).unwrap();
        let member = process.enter(None, "worker").unwrap();
        let worked = {
            let heap: LocalHeap<'_> = member.heap(pod).unwrap();
            let pool = WorkerPool::open(pod, "pool").unwrap();
            match is_spare {
                true => pool.stand_by(&heap, stop).map(|served| served.tasks),
                false => pool.work(&heap, stop).map(|(served, _)| served.tasks),
            }
        };
        drop(member);
        process.leave().unwrap();
        worked
    })
}

fn assert_done(range: std::ops::Range<u64>) {
    let mut done = DONE.lock().unwrap().clone();
    done.retain(|number| range.contains(number));
    done.sort_unstable();
    assert_eq!(done, range.collect::<Vec<_>>());
}

/// Stops the workers, also when a test panics.
struct Stopping<'s>(&'s Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn others_do_what_a_worker_cannot() {
    with_workers("unable", 0, Options::new(), |pod, heap, pool| {
        for (round, unable) in [1, 2, 3].into_iter().enumerate() {
            let stop = Stop::default();
            std::thread::scope(|scope| {
                let _stopping = Stopping(&stop);
                let from = round as u64 * 1000;
                // Submitted first, so that all workers find tasks.
                let job = pool.submit(heap, &format!("round {round}"), part(from, from + 300));
                let job = job.unwrap();
                let unable: Vec<_> = (0..unable)
                    .map(|_| work(scope, (pod, &stop), (false, false)))
                    .collect();
                let able = work(scope, (pod, &stop), (true, false));
                job.wait(LONG).unwrap();
                for unable in unable {
                    // A worker that came when all was done is stopped.
                    stop.stop();
                    match unable.join().unwrap() {
                        Ok(tasks) => assert_eq!(tasks, 0),
                        Err(PoolError::Unable { task, why }) => {
                            assert!(task.contains("part("), "{task}");
                            assert_eq!(why, "it has no way to the file");
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                assert!(able.join().unwrap().unwrap() > 0);
                assert_done(from..from + 300);
            });
        }
    });
}

#[test]
fn what_a_worker_cannot_do_and_has_written_is_written_by_another() {
    with_workers("unable-named", 0, Options::new(), |pod, heap, pool| {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let _stopping = Stopping(&stop);
            let call = named(17).writes("value");
            let job = pool.submit(heap, "names", call).unwrap();
            let unable = work(scope, (pod, &stop), (false, false));
            // The worker is about to give up, and waits for others.
            std::thread::sleep(Duration::from_millis(50));
            let able = work(scope, (pod, &stop), (true, false));
            job.wait(LONG).unwrap();
            assert!(matches!(
                unable.join().unwrap(),
                Err(PoolError::Unable { .. })
            ));
            assert_eq!(
                pool.data(heap, "value").unwrap().to_vec(),
                17u64.to_ne_bytes()
            );
            stop.stop();
            assert_eq!(able.join().unwrap().unwrap(), 1);
        });
    });
}

#[test]
fn a_job_fails_that_nobody_can_do() {
    with_workers("unable-all", 0, Options::new(), |pod, heap, pool| {
        for workers in [1, 3] {
            let stop = Stop::default();
            std::thread::scope(|scope| {
                let _stopping = Stopping(&stop);
                let name = format!("impossible {workers}");
                let job = pool.submit(heap, &name, part(9000, 9020)).unwrap();
                let all: Vec<_> = (0..workers)
                    .map(|_| work(scope, (pod, &stop), (false, false)))
                    .collect();
                match job.wait(LONG) {
                    Err(JobError::Failed { why, .. }) => {
                        assert!(why.contains("part(from: 9000, to: 9020)"), "{why}");
                        assert!(why.ends_with("it has no way to the file"), "{why}");
                    }
                    other => panic!("{other:?}"),
                }
                stop.stop();
                let ended = all.into_iter().map(|worker| worker.join().unwrap());
                assert!(
                    ended.filter(Result::is_ok).count() >= 1,
                    "the last one stays"
                );
            });
        }
    });
}

#[test]
fn a_spare_does_what_the_only_worker_cannot() {
    let options = Options::new().workers(1);
    with_workers("unable-spare", 0, options, |pod, heap, pool| {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let _stopping = Stopping(&stop);
            let unable = work(scope, (pod, &stop), (false, false));
            while pool.workers(heap) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let spare = work(scope, (pod, &stop), (true, true));
            let job = pool.submit(heap, "job", part(5000, 5040)).unwrap();
            job.wait(LONG).unwrap();
            assert!(matches!(
                unable.join().unwrap(),
                Err(PoolError::Unable { .. })
            ));
            stop.stop();
            assert!(spare.join().unwrap().unwrap() > 0);
            assert_done(5000..5040);
        });
    });
}
