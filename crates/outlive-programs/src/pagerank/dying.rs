//! PageRank with tasks that are cut short right before they take effect, and a way to publish ranks
//! that does not survive that.
//!
//! A failed task has the effect of a task with a dead worker: everything that it did through its
//! context is undone, and its stores to arrays remain. So each unit is cut short once, after all
//! its stores, and is run again.

use super::tasks::{begin, rank_rows, sums};
use super::{PageRank, Ranking};
use crate::graph::{Graph, GraphInput};
use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_run::on_tasks::{Ended, TaskProgram};
use outlive_tasks::{Array, Options, TaskError, WorkerPool, task};
use std::time::Duration;

/// The result of a unit is written to its place, as it should be.
const SOUND: u8 = 0;
/// Broken: the result is added to the place, and so published before its unit is complete. (The
/// root of the iteration has cleared the places.)
const ADDS: u8 = 1;

task! {
    fn iterate_so(context, iteration: u64, way: u8, dies: u8) {
        if way == ADDS {
            let places = context.array::<f64>(sums(iteration + 1))?;
            places.fill(0..places.len(), 0.0);
        }
        let call = |first, last, base| rank_so(iteration, first, last, base, way, dies);
        begin(context, iteration, call, iterate_so(iteration + 1, way, dies))
    }

    fn rank_so(context, iteration: u64, first: u64, last: u64, base: f64, way: u8, dies: u8) {
        let smaller = |first, last| rank_so(iteration, first, last, base, way, dies);
        let publish = |places: Array<f64>, place: usize, found: f64| match way {
            ADDS => places.set(place, places.get(place) + found),
            _ => places.set(place, found),
        };
        rank_rows(context, iteration, (first, last), base, smaller, publish)?;
        if dies != 0 && context.attempt() == 0 {
            return Err(TaskError::new("killed by the test"));
        }
        Ok(())
    }
}

struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

/// Returns the ranks, as bits, and the number of iterations.
fn ranks(graph: &Graph, way: u8, dies: bool) -> (Vec<u64>, u32) {
    let dies = u8::from(dies);
    let place = Place(format!(
        "/dev/shm/outlive-dying-{way}-{dies}-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(32 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "driver").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::create(&pod, &heap, "dying", Options::new()).unwrap();
    let ranking = Ranking {
        graph,
        of: PageRank {
            iterations: 12,
            ..PageRank::default()
        },
        task_rows: 20,
    };
    ranking.put(&pool, &heap).unwrap();
    let stop = Stop::default();
    let ended = std::thread::scope(|scope| {
        /// Stops the workers, also when the test panics.
        struct Stopping<'s>(&'s Stop);
        impl Drop for Stopping<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _stopping = Stopping(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                let member = process.enter(None, "worker").unwrap();
                let heap = member.heap(&pod).unwrap();
                pool.work(&heap, &stop).unwrap()
            });
        }
        let first = pool.submit(&heap, "round 0", iterate_so(0, way, dies));
        let (mut job, mut round) = (first.unwrap(), 0);
        loop {
            let said = job.wait(Some(Duration::from_secs(60))).unwrap();
            match pool.job(&heap, &format!("round {}", round + 1)) {
                Some(next) => (job, round) = (next, round + 1),
                None => return Ended { round, said },
            }
        }
    });
    let found = ranking.result(&pool, &heap, &ended).unwrap();
    let bits = found.ranks.iter().map(|rank| rank.to_bits()).collect();
    (bits, found.iterations)
}

#[test]
fn ranks_that_are_published_before_their_unit_is_complete_are_noticed() {
    let graph = GraphInput::named("rmat:8:8:5".as_ref()).unwrap();
    let graph = graph.load().unwrap();
    let expected = ranks(&graph, SOUND, false);
    assert_eq!(ranks(&graph, SOUND, true), expected);
    // The error is invisible as long as no task dies.
    assert_eq!(ranks(&graph, ADDS, false), expected);
    assert_ne!(ranks(&graph, ADDS, true).0, expected.0);
}
