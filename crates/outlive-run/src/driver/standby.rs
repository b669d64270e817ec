//! The standby workers of a run with spares, and the hosts that took the places of dead workers.
//!
//! The pool decides whether a worker works or is on standby; the driver infers it from the run's
//! record. A standby worker that begins a unit has been called. It replaces a dead worker unless it
//! records another reason, which occurs in a run that is resized: too many ready tasks, or a
//! request for more workers. It also records the slot that it took, if a worker died there. The
//! workers of a host that died and is restarted go on standby, since their slots are taken. So does
//! a worker that has become surplus.

use super::{Came, Failure, Running};
use crate::crew::Crew;
use outlive_tasks::Trigger;
use std::collections::BTreeMap;

/// The standby workers, and the called workers that no failure has been assigned to yet.
pub(super) struct Standby {
    crew: Crew,
    /// For each standby worker, the number of units that it had begun before.
    idle: BTreeMap<u32, u64>,
    /// For each working worker, the number of times that it had come.
    seen: BTreeMap<u32, u32>,
    called: Vec<Called>,
}

/// A standby worker that has begun to work.
struct Called {
    host: u32,
    at: f64,
    /// The host of the worker that died in its place.
    after: Option<u32>,
}

/// The time in seconds for which the driver looks for the failure that a called worker answers: the
/// worker may begin before all members of the dead host are gone, or before the death is reported.
/// (If a process of a host dies alone, the host restarts it, and no failure is ever reported.)
const PATIENCE: f64 = 2.0;

impl Standby {
    /// Returns the state at the start of a run: the workers of the spares are on standby.
    pub fn new(crew: Crew) -> Self {
        let spares = crew.hosts - crew.spares..crew.hosts;
        let idle = spares.flat_map(|host| crew.workers_of(host));
        Self {
            crew,
            idle: idle.map(|worker| (worker, 0)).collect(),
            seen: BTreeMap::new(),
            called: Vec::new(),
        }
    }

    /// Returns whether a worker of `host` has been called, or was to work from the beginning.
    pub fn works(&self, host: u32) -> bool {
        let mut workers = self.crew.workers_of(host);
        workers.any(|worker| !self.idle.contains_key(&worker))
    }

    /// Records that `host` is dead: its next incarnation is on standby. Returns how many of its
    /// workers worked, and so can be replaced.
    pub fn lose(&mut self, host: u32, run: &impl Running) -> u32 {
        if self.crew.spares == 0 && self.idle.is_empty() {
            // Only the host itself will stand by, when it is restarted.
            return 0;
        }
        let worked = |worker| self.idle.insert(worker, run.begun(worker)).is_none();
        let workers = self.crew.workers_of(host);
        workers.map(worked).filter(|worked| *worked).count() as u32
    }

    /// Returns whether a standby worker exists for whose number `there` returns true.
    pub fn has_somebody(&self, there: impl Fn(u32) -> bool) -> bool {
        self.idle.keys().any(|worker| there(*worker))
    }

    /// Records workers that have begun to work, with their places, and workers that became surplus.
    pub fn note(&mut self, run: &impl Running, failures: &mut [Failure], now: f64) {
        for worker in 0..self.crew.workers() {
            let came = run.came(worker);
            let times = came.map_or(0, |came| came.times);
            let is_called = match self.idle.get(&worker) {
                Some(before) if run.begun(worker) == *before => continue,
                Some(_) => true,
                // Sent away and called again between two checks. (Otherwise it comes for the first
                // time, to a place of its own.)
                None => {
                    let before = self.seen.get(&worker).copied().unwrap_or(0);
                    before != 0
                        && before != times
                        && came.is_some_and(|came| came.why == Trigger::Failures)
                }
            };
            self.idle.remove(&worker);
            self.seen.insert(worker, times);
            if is_called {
                self.call(worker, came, now);
            }
            if came.is_some_and(|came| came.is_away) {
                self.idle.insert(worker, run.begun(worker));
            }
        }
        self.called
            .retain(|called| called.is_open(failures) && now - called.at < PATIENCE);
    }

    /// Records that a standby worker works.
    fn call(&mut self, worker: u32, came: Option<Came>, now: f64) {
        // In a pool that is not resized, the only reason for a call is a missing worker.
        if matches!(
            came.map(|came| came.why),
            Some(Trigger::Tasks | Trigger::Request)
        ) {
            return;
        }
        let host_of = |worker| worker / (self.crew.processes * self.crew.threads);
        self.called.push(Called {
            host: host_of(worker),
            at: now,
            after: came.and_then(|came| came.after).map(host_of),
        });
    }
}

impl Called {
    /// Returns whether the failure that this worker answers is still unknown. Updates the failure
    /// otherwise: that of the host whose worker died in the place; or the first one with vacant
    /// places, if that host is not known, or its places had been taken by workers that died
    /// unnoticed.
    fn is_open(&self, failures: &mut [Failure]) -> bool {
        let dead = |failure: &Failure| Some(failure.host) == self.after;
        // A worker that began before the kill is not a replacement.
        let vacant = |failure: &Failure| {
            failure.taken < failure.vacant
                && failure.killed_at.is_none_or(|killed| killed <= self.at)
        };
        let find = |is: &dyn Fn(&Failure) -> bool| failures.iter().position(is);
        let is_known = self.after.is_none()
            || failures.iter().any(dead)
                && failures.iter().filter(|it| dead(it)).all(|it| it.is_read);
        let index = match find(&|failure| dead(failure) && vacant(failure)) {
            None if is_known => find(&vacant),
            index => index,
        };
        let Some(failure) = index.map(|index| &mut failures[index]) else {
            return true;
        };
        failure.taken += 1;
        // A worker of the same host was faster than all standby workers and has its own place
        // again.
        if self.host != failure.host {
            failure.taken_over_at = Some(self.at);
            if !failure.taken_over_by.contains(&self.host) {
                failure.taken_over_by.push(self.host);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Stretch;
    use crate::header::Header;

    /// For each worker, the number of units that it has begun, and how it came.
    #[derive(Clone, Copy)]
    struct Begun([(u64, Option<Came>); 5]);

    /// Returns the record of a worker that comes for the first time, to a place where none died.
    fn came(why: Trigger) -> Option<Came> {
        Some(Came {
            why,
            after: None,
            is_away: false,
            times: 1,
        })
    }

    /// Returns the record of a worker that comes again.
    fn again(before: Option<Came>, why: Trigger, after: Option<u32>) -> Option<Came> {
        let times = before.map_or(1, |it| it.times + 1);
        Some(Came {
            why,
            after,
            is_away: false,
            times,
        })
    }

    /// Returns the record of a worker that became surplus.
    fn away(before: Option<Came>) -> Option<Came> {
        before.map(|came| Came {
            is_away: true,
            ..came
        })
    }

    fn killed(host: u32, at: f64) -> Failure {
        Failure {
            killed_at: Some(at),
            is_read: true,
            ..Failure::of(host)
        }
    }

    impl Running for Begun {
        type Result = ();

        fn begun(&self, number: u32) -> u64 {
            self.0[number as usize].0
        }

        fn came(&self, number: u32) -> Option<Came> {
            self.0[number as usize].1
        }

        fn is_done(&self) -> bool {
            false
        }

        fn header(&self) -> Header {
            unreachable!("standby workers are recognised by the units that they begin")
        }

        fn stretch(&self) -> Stretch {
            unreachable!("standby workers are recognised by the units that they begin")
        }

        fn drawn(&self) -> u64 {
            unreachable!("standby workers are recognised by the units that they begin")
        }

        fn done(&self) -> u64 {
            unreachable!("standby workers are recognised by the units that they begin")
        }

        fn attempting(&self, _: u32) -> Option<u64> {
            unreachable!("standby workers are recognised by the units that they begin")
        }

        fn redone(&self) -> u64 {
            unreachable!("standby workers are recognised by the units that they begin")
        }
    }

    #[test]
    fn who_comes_since_there_is_more_to_do_has_replaced_nobody() {
        // One host works, four stand by, and the first is killed.
        let mut standby = Standby::new(Crew::with_driver(1, 1, 1).and_spares(4));
        let mut run = Begun([(7, None), (0, None), (0, None), (0, None), (0, None)]);
        let mut failures = vec![killed(0, 1.0)];
        failures[0].vacant = standby.lose(0, &run);
        assert_eq!(failures[0].vacant, 1);
        run.0[1] = (1, came(Trigger::Tasks));
        run.0[2] = (1, came(Trigger::Request));
        standby.note(&run, &mut failures, 2.0);
        assert_eq!((failures[0].taken, failures[0].taken_over_at), (0, None));
        assert!(failures[0].taken_over_by.is_empty());
        // They work nevertheless: their places can be taken when they die.
        assert!(standby.works(1) && standby.works(2) && !standby.works(3));
        run.0[3] = (1, came(Trigger::Failures));
        run.0[4] = (1, came(Trigger::Tasks));
        standby.note(&run, &mut failures, 3.0);
        assert_eq!(failures[0].taken_over_by, [3]);
        assert_eq!(failures[0].taken_over_at, Some(3.0));
    }

    #[test]
    fn who_comes_in_the_place_of_one_who_never_came_has_replaced_it() {
        let mut standby = Standby::new(Crew::with_driver(1, 1, 1).and_spares(1));
        let mut run = Begun([(0, None); 5]);
        let mut failures = vec![killed(0, 1.0)];
        failures[0].vacant = standby.lose(0, &run);
        run.0[1] = (1, came(Trigger::Beginning));
        standby.note(&run, &mut failures, 2.0);
        assert_eq!(failures[0].taken_over_by, [1]);
    }
    #[test]
    fn who_was_sent_away_and_comes_for_a_dead_one_has_replaced_it() {
        // Two hosts work, and one stands by; the second has become surplus.
        let mut standby = Standby::new(Crew::with_driver(2, 1, 1).and_spares(1));
        let first = came(Trigger::Beginning);
        let mut run = Begun([(5, first), (5, first), (0, None), (0, None), (0, None)]);
        let mut failures = Vec::new();
        standby.note(&run, &mut failures, 0.0);
        assert!(standby.works(1));
        run.0[1].1 = away(first);
        standby.note(&run, &mut failures, 0.5);
        assert!(!standby.works(1) && standby.has_somebody(|worker| worker == 1));
        // Its old place is not vacant: if it died, no worker would be missing.
        failures.push(killed(0, 1.0));
        failures[0].vacant = standby.lose(0, &run);
        run.0[1] = (6, again(run.0[1].1, Trigger::Failures, Some(0)));
        standby.note(&run, &mut failures, 2.0);
        assert!(standby.works(1));
        assert_eq!(failures[0].taken_over_by, [1]);
        // The same between two checks: sent away, and back again.
        failures.push(killed(2, 3.0));
        failures[1].vacant = 1;
        run.0[1] = (9, again(run.0[1].1, Trigger::Failures, Some(2)));
        standby.note(&run, &mut failures, 4.0);
        assert_eq!(failures[1].taken_over_by, [1]);
        // A worker that became surplus and was then called by a request has not replaced any.
        failures.push(killed(2, 5.0));
        failures[2].vacant = 1;
        run.0[1].1 = away(run.0[1].1);
        standby.note(&run, &mut failures, 5.5);
        run.0[1] = (10, again(run.0[1].1, Trigger::Request, None));
        standby.note(&run, &mut failures, 6.0);
        assert!(failures[2].taken_over_by.is_empty());
    }

    #[test]
    fn who_dies_while_it_stands_by_leaves_no_place() {
        let mut standby = Standby::new(Crew::with_driver(2, 1, 1).and_spares(1));
        let first = came(Trigger::Beginning);
        let mut run = Begun([(5, first), (5, first), (0, None), (0, None), (0, None)]);
        standby.note(&run, &mut [], 0.0);
        run.0[1].1 = away(first);
        standby.note(&run, &mut [], 0.5);
        assert_eq!((standby.lose(1, &run), standby.lose(0, &run)), (0, 1));
    }

    #[test]
    fn who_has_the_place_of_a_dead_one_is_its_successor_whoever_died_before() {
        // Two hosts work, both are killed, and three stand by.
        let mut standby = Standby::new(Crew::with_driver(2, 1, 1).and_spares(3));
        let mut run = Begun([(5, None), (5, None), (0, None), (0, None), (0, None)]);
        let mut failures = vec![killed(0, 1.0)];
        failures[0].vacant = standby.lose(0, &run);
        // The death of host 1 is not known yet: that of host 0 is not taken for it.
        run.0[2] = (1, again(None, Trigger::Failures, Some(1)));
        standby.note(&run, &mut failures, 1.5);
        assert!(failures[0].taken_over_by.is_empty());
        failures.push(killed(1, 1.0));
        failures[1].vacant = standby.lose(1, &run);
        standby.note(&run, &mut failures, 2.0);
        assert!(failures[0].taken_over_by.is_empty());
        assert_eq!(failures[1].taken_over_by, [2]);
        assert_eq!(failures[1].taken_over_at, Some(1.5));
        // A spare takes the place of host 0 and dies before it begins a unit; the next worker in
        // that place is the successor of host 0.
        failures.push(killed(3, 2.5));
        failures[2].vacant = standby.lose(3, &run);
        assert_eq!(failures[2].vacant, 0);
        run.0[4] = (1, again(None, Trigger::Failures, Some(3)));
        standby.note(&run, &mut failures, 3.0);
        assert_eq!(failures[0].taken_over_by, [4]);
    }
}
