//! The removal of data and of jobs, killed at every instruction.
//!
//! Number 3 has run the job and is dead; the victim removes a part of it, or submits a job that
//! depends on it; survivors remove it again. In every case it is gone then, or it exists and is in
//! use; and nothing has leaked.

use super::case::{Case, OfPool};
use super::races::remove_used_data;
use super::world::{FAIL, LEAF, NAME, SPLIT, Way, World};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::PoolError;
use outlive_tasks::internals::{Crew, Hand, JobState, RemoveJobPoint, RemovePoint, name_key};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Removal::SOUND {
        suite.add(OfPool(case));
    }
    suite.declare::<RemovePoint>().declare::<RemoveJobPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![(
        Box::new(OfPool(Removal::RemovesBlindly)),
        "a waiting task needs it",
    )]
}

crate::cases! {
    /// The object that the victim removes.
    enum Removal {
        /// Data that a task wrote and another has read.
        Data,
        /// Data that a task waits for, or would: it stays.
        DataInUse,
        /// A job that is complete, with its result.
        Job,
        /// A job that failed, with the reason.
        FailedJob,
        /// A job with a task that waits for data that nothing writes, and is given up.
        StuckJob,
        /// A job that another depends on, which has not begun: it stays.
        JobInUse,
        /// None: submits a job that depends on one that survivors remove.
        Depends,
    }
    broken {
        /// Data that is used, without a check.
        RemovesBlindly,
    }
}

const JOB: &[u8] = b"j";

impl Removal {
    fn is_in_use(self) -> bool {
        matches!(self, Self::DataInUse | Self::RemovesBlindly)
    }

    /// Removes the object; returns whether it existed.
    fn remove(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<bool, PoolError> {
        let (layout, key) = (world.layout, name_key("a"));
        match self {
            Self::Data | Self::DataInUse => layout.remove_data(hand, &key),
            Self::Depends => {
                let job = world.job(hand).expect("no member has removed it");
                world.submit_dependent(hand, job).map(|_| true)
            }
            Self::Job | Self::FailedJob | Self::StuckJob | Self::JobInUse => {
                layout.remove_job(hand, JOB)
            }
            Self::RemovesBlindly => remove_used_data(layout, hand, &key, |_, _| false),
        }
    }

    /// Acts as a survivor: removes the object again, after the jobs that depend on it.
    fn remove_again(
        self,
        world: &World<Marked>,
        hand: Hand<'_, Marked>,
    ) -> Result<bool, PoolError> {
        if !matches!(self, Self::JobInUse | Self::Depends) {
            return self.remove(world, hand);
        }
        if let Some(job) = world.layout.find_job(hand, b"k") {
            // The job that it depends on is not removed, and cannot be before this one has begun.
            assert!(
                world.job(hand).is_some(),
                "the job that `k` depends on is gone"
            );
            if job.state() == JobState::Submitted {
                let refused = world.layout.remove_job(hand, JOB);
                assert!(
                    matches!(refused, Err(PoolError::JobInUse { .. })),
                    "the job that `k` depends on was not kept: {refused:?}"
                );
            }
            world.work_until(hand, Way::default(), || job.state().is_over())?;
            // A survivor that died may have been about to remove it.
            let ended = matches!(job.state(), JobState::Complete | JobState::Removed);
            assert!(ended, "`k` is {:?}", job.state());
            world.layout.remove_job(hand, b"k")?;
        }
        world.layout.remove_job(hand, JOB)
    }
}

impl Case for Removal {
    const WHAT: &'static str = "pool removes";
    /// Names are copied into memory of the process's own; its allocator behaves differently each
    /// time.
    const IS_DETERMINISTIC: bool = false;

    fn prepare(self, world: &World<Marked>) {
        let member = world.act_as(3);
        let local = world.local(&member);
        let hand = world.hand(&local);
        let function = match self {
            Self::FailedJob => FAIL,
            Self::StuckJob => NAME,
            Self::JobInUse | Self::Depends => LEAF,
            _ => SPLIT,
        };
        let job = world.submit(hand, function);
        if self.is_in_use() {
            let mut crew = Crew::claim(world.layout, hand).expect("a slot");
            // The root and both writers, so that `a` exists; its reader is ready.
            for _ in 0..3 {
                let run = crew
                    .find()
                    .expect("the operation succeeds")
                    .expect("a task");
                world.run(&mut crew, run, Way::default()).expect("room");
            }
            crew.engine.give_up().expect("nothing is held");
        } else {
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
        }
        if self == Self::JobInUse {
            world.submit_dependent(hand, job).expect("room");
        }
        drop(local);
        world.die(3);
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        match (self, self.remove(world, hand)) {
            (Self::DataInUse, Err(PoolError::DataInUse { .. })) => {}
            (Self::JobInUse, Err(PoolError::JobInUse { .. })) => {}
            (Self::DataInUse | Self::JobInUse, other) => {
                panic!("the removal of used data was not refused: {other:?}")
            }
            (_, Ok(true)) => {}
            (_, other) => panic!("it was not removed: {other:?}"),
        }
        Ok(())
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, crash: &Crash) {
        if self.is_in_use() {
            outlive_tasks::internals::StagingSlot::settle_those_of_the_gone(world.layout, hand)
                .expect("the recovery succeeds");
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
        } else {
            // As the victim's next incarnation would.
            let again = self.remove_again(world, hand).expect("it is not in use");
            let may_be_there = matches!(self, Self::JobInUse | Self::Depends);
            assert!(
                may_be_there || !(again && crash.returned),
                "it was removed twice"
            );
            assert!(!self.remove_again(world, hand).expect("it is not in use"));
        }
    }

    fn check(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) -> Result<(), String> {
        match self {
            case if case.is_in_use() => world.demand_done(hand)?,
            Self::Data => {
                if world.written(hand.heap, &name_key("a")).is_some() {
                    return Err("the data still exists".into());
                }
                if world.written(hand.heap, &name_key("b")).is_none() {
                    return Err("other data is gone".into());
                }
            }
            _ => {
                let left = [
                    world.job(hand).map(|_| "the job"),
                    world.result(hand.heap).map(|_| "its result"),
                    world.layout.error_of(hand, JOB).map(|_| "the reason"),
                ];
                if let Some(what) = left.into_iter().flatten().next() {
                    return Err(format!("{what} still exists"));
                }
            }
        }
        let left = if self == Self::Data { 1 } else { 2 };
        let names = { world.layout.names }.all(hand.heap);
        let own = names.iter().filter(|(key, _)| key[0] == b'n').count();
        let is_of_split = !matches!(
            self,
            Self::FailedJob | Self::StuckJob | Self::JobInUse | Self::Depends
        );
        if is_of_split && own != left {
            return Err(format!("there are {own} names"));
        }
        Ok(())
    }
}
