//! A pod with a pool that runs on threads of this process.

use outlive::membership::{Process, ProcessOptions};
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_tasks::{Options, Served, WorkerPool};
use std::time::Duration;

/// The time that a test waits for an event that should take milliseconds.
#[allow(dead_code)] // each test uses its part of this
pub const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// A pod's file, removed at the end.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

/// Runs `body` in a pod with a pool of `threads` worker threads. Returns the workers' statistics.
#[allow(dead_code)] // each test uses its part of this
pub fn with_workers(
    name: &str,
    threads: usize,
    options: Options,
    body: impl FnOnce(&Pod, &outlive::heap::LocalHeap<'_>, WorkerPool),
) -> Vec<Served> {
    with_spares(name, threads, 0, options, body)
}

/// Runs `body` with `spares` standby threads in addition.
pub fn with_spares(
    name: &str,
    threads: usize,
    spares: usize,
    options: Options,
    body: impl FnOnce(&Pod, &outlive::heap::LocalHeap<'_>, WorkerPool),
) -> Vec<Served> {
    let place = Place(format!(
        "/dev/shm/outlive-tasks-{name}-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(64 << 20).ids(32)).unwrap();
    let process: Process = pod.join(ProcessOptions::on_host(0).id(1)).unwrap();
    let member = process.enter(Some(2), "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::create(&pod, &heap, "pool", options).unwrap();
    let stop = Stop::default();
    let served = std::thread::scope(|scope| {
        /// Stops the workers, also when a test panics.
        struct Stopping<'s>(&'s Stop);
        impl Drop for Stopping<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let stopping = Stopping(&stop);
        let worker = |number| {
            let (pod, process, stop) = (&pod, &process, &stop);
            scope.spawn(move || {
                let member = process.enter(None, "worker").unwrap();
                let heap = member.heap(pod).unwrap();
                let pool = WorkerPool::open(pod, "pool").unwrap();
                if number < threads {
                    pool.work(&heap, stop).unwrap().0
                } else {
                    pool.stand_by(&heap, stop).unwrap()
                }
            })
        };
        let workers: Vec<_> = (0..threads + spares).map(worker).collect();
        body(&pod, &heap, pool);
        drop(stopping);
        workers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let report = pod.heap().unwrap().check();
    assert!(report.is_clean(), "{report}");
    WorkerPool::destroy(&pod, &heap, "pool").unwrap();
    drop(heap);
    drop(member);
    process.leave().unwrap();
    served
}
