//! Who stands by in a run with spares, and who has taken whose place.
//!
//! Whether a worker works or waits is the pool's matter. The driver sees it by what it does: one who stood by and begins a unit
//! has been called; to the place of a dead one, unless it says that it came for something else, which it does in a run that is
//! resized: since there was more to do, or somebody asked for more. Whose place it has it says, too, if somebody died in it. A host
//! that died and is started again stands by as a spare does, since its places are taken; and so does a worker that is sent away.

use super::{Came, Failure, Running};
use crate::crew::Crew;
use outlive_tasks::Trigger;
use std::collections::BTreeMap;

/// The workers that stand by, and those that have been called and whose failure is not known yet.
pub(super) struct Standby {
    crew: Crew,
    /// Of each, how many units it had begun before.
    idle: BTreeMap<u32, u64>,
    /// Of those who work, how often they had come.
    seen: BTreeMap<u32, u32>,
    called: Vec<Called>,
}

/// A worker has begun to work.
struct Called {
    host: u32,
    at: f64,
    /// The host of the one who died in its place.
    after: Option<u32>,
}

/// For how many seconds it is asked whose place a worker has taken: it may be there before the whole host is gone, or before that is
/// told. (If a process of a host dies alone, the host starts it again, and nobody tells of a failure.)
const PATIENCE: f64 = 2.0;

impl Standby {
    /// As a run begins: the spares.
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

    /// Whether somebody of `host` has been called, or was to work from the beginning.
    pub fn works(&self, host: u32) -> bool {
        let mut workers = self.crew.workers_of(host);
        workers.any(|worker| !self.idle.contains_key(&worker))
    }

    /// `host` is dead; should it come again it stands by. How many of its workers worked, and can be replaced.
    pub fn lose(&mut self, host: u32, run: &impl Running) -> u32 {
        if self.crew.spares == 0 && self.idle.is_empty() {
            // Nobody stands by but the host itself, when it is started again.
            return 0;
        }
        let worked = |worker| self.idle.insert(worker, run.begun(worker)).is_none();
        let workers = self.crew.workers_of(host);
        workers.map(worked).filter(|worked| *worked).count() as u32
    }

    /// Whether anybody stands by of those who are `there`.
    pub fn has_somebody(&self, there: impl Fn(u32) -> bool) -> bool {
        self.idle.keys().any(|worker| there(*worker))
    }

    /// Looks who has begun to work, and in whose place; and who has been sent away.
    pub fn note(&mut self, run: &impl Running, failures: &mut [Failure], now: f64) {
        for worker in 0..self.crew.workers() {
            let came = run.came(worker);
            let times = came.map_or(0, |came| came.times);
            let is_called = match self.idle.get(&worker) {
                Some(before) if run.begun(worker) == *before => continue,
                Some(_) => true,
                // Sent away and called again between two looks. (Else it comes for the first time, to a place of its own.)
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

    /// A worker who stood by works.
    fn call(&mut self, worker: u32, came: Option<Came>, now: f64) {
        // Who stands by and is not resized knows no other reason than that somebody is missing.
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
    /// Whether it is still to be said whose place it has: else it is, in the failure of the one who died there, or of the first whose
    /// places are not all taken if that is not known, or his had been taken and nobody knew.
    fn is_open(&self, failures: &mut [Failure]) -> bool {
        let dead = |failure: &Failure| Some(failure.host) == self.after;
        // Who began before that has replaced nobody by it.
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
        // Or it was faster than whoever stood by, and has its own place again.
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

    /// Of each worker, how many units it has begun, and how it came.
    #[derive(Clone, Copy)]
    struct Begun([(u64, Option<Came>); 5]);

    /// How one came for the first time, to a place where nobody died.
    fn came(why: Trigger) -> Option<Came> {
        Some(Came {
            why,
            after: None,
            is_away: false,
            times: 1,
        })
    }

    /// The same of one who has come again.
    fn again(before: Option<Came>, why: Trigger, after: Option<u32>) -> Option<Came> {
        let times = before.map_or(1, |it| it.times + 1);
        Some(Came {
            why,
            after,
            is_away: false,
            times,
        })
    }

    /// The same of one who was sent away.
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
            unreachable!("who stands by is known by what it begins")
        }

        fn stretch(&self) -> Stretch {
            unreachable!("who stands by is known by what it begins")
        }

        fn drawn(&self) -> u64 {
            unreachable!("who stands by is known by what it begins")
        }

        fn done(&self) -> u64 {
            unreachable!("who stands by is known by what it begins")
        }

        fn attempting(&self, _: u32) -> Option<u64> {
            unreachable!("who stands by is known by what it begins")
        }

        fn redone(&self) -> u64 {
            unreachable!("who stands by is known by what it begins")
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
        // They work nevertheless: their places are to be taken when they die.
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
        // Two hosts work, and one stands by; the second is sent away.
        let mut standby = Standby::new(Crew::with_driver(2, 1, 1).and_spares(1));
        let first = came(Trigger::Beginning);
        let mut run = Begun([(5, first), (5, first), (0, None), (0, None), (0, None)]);
        let mut failures = Vec::new();
        standby.note(&run, &mut failures, 0.0);
        assert!(standby.works(1));
        run.0[1].1 = away(first);
        standby.note(&run, &mut failures, 0.5);
        assert!(!standby.works(1) && standby.has_somebody(|worker| worker == 1));
        // It has nobody's place now: if it died nobody would be missing.
        failures.push(killed(0, 1.0));
        failures[0].vacant = standby.lose(0, &run);
        run.0[1] = (6, again(run.0[1].1, Trigger::Failures, Some(0)));
        standby.note(&run, &mut failures, 2.0);
        assert!(standby.works(1));
        assert_eq!(failures[0].taken_over_by, [1]);
        // The same between two looks: away, and there again.
        failures.push(killed(2, 3.0));
        failures[1].vacant = 1;
        run.0[1] = (9, again(run.0[1].1, Trigger::Failures, Some(2)));
        standby.note(&run, &mut failures, 4.0);
        assert_eq!(failures[1].taken_over_by, [1]);
        // Who is sent away and asked for again has replaced nobody.
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
        // Two work, both are killed, and three stand by.
        let mut standby = Standby::new(Crew::with_driver(2, 1, 1).and_spares(3));
        let mut run = Begun([(5, None), (5, None), (0, None), (0, None), (0, None)]);
        let mut failures = vec![killed(0, 1.0)];
        failures[0].vacant = standby.lose(0, &run);
        // Its death is not known yet: that of the other is not taken for it.
        run.0[2] = (1, again(None, Trigger::Failures, Some(1)));
        standby.note(&run, &mut failures, 1.5);
        assert!(failures[0].taken_over_by.is_empty());
        failures.push(killed(1, 1.0));
        failures[1].vacant = standby.lose(1, &run);
        standby.note(&run, &mut failures, 2.0);
        assert!(failures[0].taken_over_by.is_empty());
        assert_eq!(failures[1].taken_over_by, [2]);
        assert_eq!(failures[1].taken_over_at, Some(1.5));
        // One takes the first one's place and dies before it has begun anything; who has it then is the first one's successor.
        failures.push(killed(3, 2.5));
        failures[2].vacant = standby.lose(3, &run);
        assert_eq!(failures[2].vacant, 0);
        run.0[4] = (1, again(None, Trigger::Failures, Some(3)));
        standby.note(&run, &mut failures, 3.0);
        assert_eq!(failures[0].taken_over_by, [4]);
    }
}
