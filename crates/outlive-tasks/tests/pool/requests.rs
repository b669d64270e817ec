//! A pool is asked from outside for another number of workers, and standby workers are notified of
//! the change.

use crate::support::{LONG, with_spares};
use outlive::supervise::Stop;
use outlive_tasks::{Options, PoolError, Trigger, Turn, WorkerPool};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[track_caller]
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG.unwrap();
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A turn to a slot in which no worker has died.
fn comes(why: Trigger) -> Turn {
    Turn::Comes { why, after: None }
}

/// Stops the spare workers, also if the test fails: the scope waits for them.
struct AtTheEnd<'s>(&'s Stop);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn who_stands_by_comes_and_goes_as_is_asked_for_and_says_why() {
    let options = Options::new().capacity(8).workers(1);
    with_spares("requests", 0, 0, options, |pod, heap, pool| {
        let process = pod
            .join(outlive::membership::ProcessOptions::on_host(9))
            .unwrap();
        let turns = Mutex::new(Vec::new());
        let stop = Stop::default();
        let status = || WorkerPool::inspect(pod, "pool").unwrap();
        let ask = |workers| WorkerPool::request(pod, heap, "pool", workers);
        std::thread::scope(|scope| {
            let _end = AtTheEnd(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    let member = process.enter(None, "spare").unwrap();
                    let heap = member.heap(pod).unwrap();
                    let tell = |turn| turns.lock().unwrap().push(turn);
                    let stood = pool.stand_by_while(&heap, &stop, || true, tell);
                    stood.unwrap();
                });
            }
            let told = |number| turns.lock().unwrap().len() >= number;
            await_that("one works", || status().living() == 1 && told(1));
            assert_eq!(status().room, 1..=8);
            assert_eq!(ask(2).unwrap(), 1);
            await_that("two work", || status().living() == 2 && told(2));
            assert_eq!(ask(1).unwrap(), 2);
            await_that("one has left", || status().living() == 1 && told(3));
            assert_eq!(
                *turns.lock().unwrap(),
                [
                    comes(Trigger::Beginning),
                    comes(Trigger::Request),
                    Turn::Goes(Trigger::Request),
                ]
            );
            for asked in [0, 9] {
                let refused = ask(asked).unwrap_err();
                let said = refused.to_string();
                assert!(matches!(refused, PoolError::NoRoom { .. }), "{said}");
                assert!(said.ends_with("the range is 1 to 8"), "{said}");
            }
            let unknown = WorkerPool::request(pod, heap, "another", 1);
            assert!(matches!(unknown, Err(PoolError::Unknown { .. })));
            // The program that runs the pool has ended it: requests are refused.
            pool.resize(heap, 0).unwrap();
            assert!(matches!(ask(2), Err(PoolError::Over { .. })));
            await_that("no worker works", || status().living() == 0);
            assert_eq!(pool.wanted(), 0);
        });
        // The end is not reported as a turn.
        assert_eq!(turns.lock().unwrap().len(), 3);
        process.leave().unwrap();
    });
}

#[test]
fn a_pool_that_resizes_itself_is_asked_within_its_range() {
    let options = Options::new()
        .capacity(8)
        .elastic(2..=4, outlive_tasks::Band::default());
    with_spares("requests-elastic", 0, 0, options, |pod, heap, _| {
        let status = WorkerPool::inspect(pod, "pool").unwrap();
        assert!(status.is_elastic && status.room == (2..=4), "{status:?}");
        let ask = |workers| WorkerPool::request(pod, heap, "pool", workers);
        assert_eq!(ask(3).unwrap(), 2);
        for asked in [1, 5] {
            assert!(matches!(
                ask(asked),
                Err(PoolError::NoRoom {
                    least: 2,
                    most: 4,
                    ..
                })
            ));
        }
    });
}
