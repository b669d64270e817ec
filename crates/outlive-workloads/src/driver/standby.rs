//! Who stands by in a run with spares, and who has taken whose place.
//!
//! Whether a worker works or waits is the pool's matter. The driver sees it by what it does: one who stood by and begins a unit
//! has been called; to the place of a dead one, unless it says that it came for something else, which it does in a run that is
//! resized: since there was more to do, or somebody asked for more. A host that died and is started again stands by as a spare does, since its places are taken.

use super::{Failure, Running};
use crate::crew::Crew;
use outlive_tasks::Trigger;
use std::collections::BTreeMap;

/// The workers that stand by, and those that have been called and whose failure is not known yet.
pub(super) struct Standby {
    crew: Crew,
    /// Of each, how many units it had begun before.
    idle: BTreeMap<u32, u64>,
    called: Vec<Called>,
}

/// A worker has begun to work.
struct Called {
    host: u32,
    at: f64,
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
        if self.crew.spares == 0 {
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

    /// Looks who has begun to work: in the place of the first whose places are not all taken.
    pub fn note(&mut self, run: &impl Running, failures: &mut [Failure], now: f64) {
        let each = self.crew.processes * self.crew.threads;
        self.idle.retain(|worker, before| {
            let waits = run.begun(*worker) == *before;
            // Who stands by and is not resized knows no other reason than that somebody is missing.
            let more = || matches!(run.came(*worker), Some(Trigger::Tasks | Trigger::Request));
            if !waits && !more() {
                let host = worker / each;
                self.called.push(Called { host, at: now });
            }
            waits
        });
        self.called.retain(|called| {
            // Who began before that has replaced nobody by it.
            let vacant = |failure: &&mut Failure| {
                failure.taken < failure.vacant
                    && failure.killed_at.is_none_or(|killed| killed <= called.at)
            };
            let Some(failure) = failures.iter_mut().find(vacant) else {
                return now - called.at < PATIENCE;
            };
            failure.taken += 1;
            // Or it was faster than whoever stood by, and has its own place again.
            if called.host != failure.host {
                failure.taken_over_at = Some(called.at);
                if !failure.taken_over_by.contains(&called.host) {
                    failure.taken_over_by.push(called.host);
                }
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Stretch;
    use crate::header::Header;

    /// Of each worker, how many units it has begun, and why it came.
    #[derive(Clone, Copy)]
    struct Begun([(u64, Option<Trigger>); 5]);

    impl Running for Begun {
        type Result = ();

        fn begun(&self, number: u32) -> u64 {
            self.0[number as usize].0
        }

        fn came(&self, number: u32) -> Option<Trigger> {
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
        let mut failures = vec![Failure {
            killed_at: Some(1.0),
            ..Failure::of(0)
        }];
        failures[0].vacant = standby.lose(0, &run);
        assert_eq!(failures[0].vacant, 1);
        run.0[1] = (1, Some(Trigger::Tasks));
        run.0[2] = (1, Some(Trigger::Request));
        standby.note(&run, &mut failures, 2.0);
        assert_eq!((failures[0].taken, failures[0].taken_over_at), (0, None));
        assert!(failures[0].taken_over_by.is_empty());
        // They work nevertheless: their places are to be taken when they die.
        assert!(standby.works(1) && standby.works(2) && !standby.works(3));
        run.0[3] = (1, Some(Trigger::Failures));
        run.0[4] = (1, Some(Trigger::Tasks));
        standby.note(&run, &mut failures, 3.0);
        assert_eq!(failures[0].taken_over_by, [3]);
        assert_eq!(failures[0].taken_over_at, Some(3.0));
    }

    #[test]
    fn who_comes_in_the_place_of_one_who_never_came_has_replaced_it() {
        let mut standby = Standby::new(Crew::with_driver(1, 1, 1).and_spares(1));
        let mut run = Begun([(0, None); 5]);
        let mut failures = vec![Failure {
            killed_at: Some(1.0),
            ..Failure::of(0)
        }];
        failures[0].vacant = standby.lose(0, &run);
        run.0[1] = (1, Some(Trigger::Beginning));
        standby.note(&run, &mut failures, 2.0);
        assert_eq!(failures[0].taken_over_by, [1]);
    }
}
