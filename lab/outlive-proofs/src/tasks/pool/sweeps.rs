//! Submission, opening, names, judgement and failure, killed at every instruction.
//!
//! Wherever the victim dies, the survivors bring the job to its end, its result is right, the data
//! that others see was written by the attempt that took effect, and nothing has leaked.

use super::case::{Case, OfPool};
use super::world::{
    FAIL, FAN, KEYS, LEAF_KEY, LEAVES, LOOK_KEY, LOOKS, SPLIT, SPREAD_KEY, Way, World,
};
use outlive::memory::Memory;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::engine::PostponePoint;
use outlive_tasks::frontier::{Frontier, FrontierPoint};
use outlive_tasks::internals::{
    AwaitPoint, BindPoint, Crew, EndPoint, Hand, JobState, JudgePoint, Judged, OpenPoint,
    PartPoint, PutPoint, StagingSlot, SubmitPoint, name_key, ports_of, ticket_of,
};
use outlive_tasks::{PoolError, State};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Work::SOUND {
        suite.add(OfPool(case));
    }
    super::deaths::add_to(suite);
    super::guests::add_to(suite);
    super::lookouts::add_to(suite);
    super::places::add_to(suite);
    super::removals::add_to(suite);
    super::requests::add_to(suite);
    suite
        .declare::<SubmitPoint>()
        .declare::<OpenPoint>()
        .declare::<EndPoint>()
        .declare::<PartPoint>()
        .declare::<JudgePoint>()
        .declare::<AwaitPoint>()
        .declare::<BindPoint>()
        .declare::<PutPoint>()
        .declare::<PostponePoint>()
        .declare::<FrontierPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    let published: (Box<dyn Sweep>, _) = (
        Box::new(OfPool(Work::PublishesFirst)),
        "was published before its task took effect",
    );
    let demanding: (Box<dyn Sweep>, _) = (Box::new(OfPool(Work::DemandsRoom)), "asked: 128");
    let mut broken = vec![published, demanding];
    broken.extend(super::deaths::broken_sweeps());
    broken.extend(super::guests::broken());
    broken.extend(super::lookouts::broken_sweeps());
    broken.extend(super::places::broken());
    broken.extend(super::removals::broken());
    broken.extend(super::requests::broken());
    broken
}

crate::cases! {
    /// The operation of the victim.
    enum Work {
        /// Submits the job.
        Submits,
        /// Opens the job, and runs its root: two writers, and one task that waits for both.
        Opens,
        /// Runs a task that writes.
        Writes,
        /// Runs the other writer: the waiting task becomes ready.
        Wakes,
        /// Continues the commit of a worker that has bound the last name, and died before reporting
        /// it.
        TakesTheTellingOver,
        /// Runs the reader, and judges.
        Judges,
        /// Judges that a job waits for data that nothing writes.
        FindsItStuck,
        /// Runs a task that fails.
        Fails,
        /// Opens a job whose dependency has failed, while another job waits for a free root.
        Follows,
        /// Gives a name data.
        Puts,
        /// Makes heartbeats, and moves the frontier.
        Beats,
        /// Runs a task with a commit that readies more than fits into the deque; the heap is full.
        SpreadsInAFullHeap,
    }
    broken {
        /// The same, but a commit has space for all, or stays with its worker.
        DemandsRoom,
        /// As `Writes`, but the name is bound before the task takes effect.
        PublishesFirst,
    }
}

impl Work {
    /// Returns the number of tasks that number 3 has run before.
    fn ran(self) -> usize {
        match self {
            Self::Writes | Self::PublishesFirst => 1,
            Self::SpreadsInAFullHeap | Self::DemandsRoom => 1,
            Self::Wakes | Self::TakesTheTellingOver => 2,
            Self::Judges => 3,
            _ => 0,
        }
    }

    /// Returns whether the job must be complete in the end.
    fn completes(self) -> bool {
        !matches!(
            self,
            Self::FindsItStuck
                | Self::Fails
                | Self::Follows
                | Self::Puts
                | Self::Beats
                | Self::SpreadsInAFullHeap
                | Self::DemandsRoom
        )
    }

    fn function(self) -> u32 {
        match self {
            Self::Fails | Self::Follows => FAIL,
            Self::SpreadsInAFullHeap | Self::DemandsRoom => FAN,
            _ => SPLIT,
        }
    }
}

impl Case for Work {
    const WHAT: &'static str = "pool";

    fn prepare(self, world: &World<Marked>) {
        let member = world.act_as(3);
        let local = world.local(&member);
        let hand = world.hand(&local);
        match self {
            Self::Submits | Self::Puts | Self::Beats => return,
            Self::FindsItStuck => {
                let submission = outlive_tasks::internals::Submission {
                    name: b"j",
                    function: SPLIT,
                    arguments: &[1],
                    reads: &[name_key("nobody's")],
                    writes: &[],
                    after: &[],
                };
                world.layout.submit(hand, &submission).expect("room");
                return;
            }
            _ => {}
        }
        let job = world.submit(hand, self.function());
        if self == Self::Follows {
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            // More jobs than roots, so that the root of the first one is needed.
            world.submit_as(hand, "k", FAIL, &[job.at]);
            world.submit_as(hand, "l", FAIL, &[]);
            world.submit_as(hand, "m", FAIL, &[]);
            return;
        }
        let mut crew = Crew::claim(world.layout, hand).expect("a slot");
        for _ in 0..self.ran() {
            let run = crew
                .find()
                .expect("the operation succeeds")
                .expect("a task");
            world.run(&mut crew, run, Way::default()).expect("room");
        }
        if self == Self::TakesTheTellingOver {
            // It dies in the commit of the last writer, right after it bound the name.
            let mut run = crew
                .find()
                .expect("the operation succeeds")
                .expect("a task");
            let ports = outlive_tasks::internals::Ports::at(
                world.memory,
                outlive::memory::Offset::from_raw(run.task().inputs()),
            );
            let output = ports.outputs().next().expect("a port");
            let key = run.arguments().expect("the task has arguments")[0];
            output.write(&local, &[key, run.attempt()]).expect("room");
            let cell = output.cell().expect("a cell");
            assert!(cell.bind(output.block().expect("a block")));
            let mut hooks = Refusing;
            let done = crew.engine.complete(&mut run, &mut hooks);
            assert!(done.is_err() && run.is_spent());
        }
        let is_full = self.function() == FAN;
        match is_full {
            // The next worker has this deque; and no worker has a larger one.
            true => crew.engine.give_up().expect("nothing is held"),
            false => drop(crew),
        }
        drop(local);
        drop(member);
        if is_full {
            world.fill(LARGER_ARRAY);
        }
        world.die(3);
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        let way = Way {
            by_victim: true,
            publishes_first: self == Self::PublishesFirst,
            demands_room: self == Self::DemandsRoom,
            ..Way::default()
        };
        match self {
            Self::Submits => {
                world.submit(hand, SPLIT);
                Ok(())
            }
            Self::Puts => {
                let desk = StagingSlot::take(world.layout, hand)?;
                let put = desk.put(hand, &name_key("put"), 5, |memory, data| {
                    memory.copy_in(data.start(), b"bytes");
                    Ok(())
                })?;
                assert!(put, "no other member does");
                desk.leave(hand)
            }
            Self::Beats => {
                let crew = Crew::claim(world.layout, hand)?;
                let number = crew.engine.number();
                for _ in 0..2 {
                    frontier(world).beat(world.generations, number);
                }
                crew.engine.give_up()?;
                Ok(())
            }
            Self::Opens
            | Self::Writes
            | Self::Wakes
            | Self::TakesTheTellingOver
            | Self::SpreadsInAFullHeap
            | Self::DemandsRoom
            | Self::PublishesFirst => {
                let mut crew = Crew::claim(world.layout, hand)?;
                if let Some(run) = crew.find()? {
                    world.run(&mut crew, run, way)?;
                }
                crew.engine.give_up()?;
                Ok(())
            }
            Self::Judges | Self::FindsItStuck | Self::Fails | Self::Follows => {
                let mut crew = Crew::claim(world.layout, hand)?;
                let mut seat = world.layout.barrier.join(hand.heap.member())?;
                loop {
                    let moment = world.layout.barrier.moment()?;
                    while let Some(run) = crew.find()? {
                        world.run(&mut crew, run, way)?;
                    }
                    let Some(arrival) = seat.arrive_since(moment)? else {
                        continue;
                    };
                    let (ticket, last) = ticket_of(arrival);
                    assert!(last, "there is no other member");
                    match crew.judge(&mut seat, &ticket, |_| "a task".into())? {
                        Judged::Idle => break,
                        Judged::GoOn => crew.tidy()?,
                        Judged::Run(run) => world.run(&mut crew, run, way)?,
                    }
                }
                if self == Self::FindsItStuck {
                    // Another job needs the root, which waits for ever.
                    let root = outlive_tasks::internals::Root::of(world.layout, 0);
                    root.give_back_if_over(hand)?;
                    assert!(root.job().is_none(), "the root of a stuck job is kept");
                }
                seat.leave()?;
                crew.engine.give_up()?;
                Ok(())
            }
        }
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) {
        // Data of a task that has not taken effect is not visible.
        for task in unfinished(world) {
            let Some(ports) = ports_of(world.memory, task) else {
                continue;
            };
            for output in ports.outputs() {
                let bound = output.cell().is_some_and(|cell| cell.is_bound());
                assert!(!bound, "a name was published before its task took effect");
            }
        }
        match self {
            Self::Submits => {
                world.submit(hand, SPLIT);
            }
            Self::Puts => {
                let desk = StagingSlot::take(world.layout, hand).expect("a desk");
                desk.leave(hand).expect("it is empty");
            }
            _ => {}
        }
        // As the next owner of every slot that was used: nothing is left in any.
        for _ in 0..2 {
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
        }
    }

    fn check(
        self,
        world: &World<Marked>,
        hand: Hand<'_, Marked>,
        crash: &Crash,
    ) -> Result<(), String> {
        if self.completes() {
            world.demand_done(hand)?;
        }
        match self {
            Self::SpreadsInAFullHeap | Self::DemandsRoom => {
                demand_fan(world, hand, crash)?;
            }
            Self::FindsItStuck => {
                let why = world.layout.error_of(hand, b"j").unwrap_or_default();
                if !why.contains("`nobody's`, which nothing writes") {
                    return Err(format!("the reason is {why:?}"));
                }
            }
            Self::Fails | Self::Follows => {
                let job = world.job(hand).ok_or("the job is missing")?;
                if job.state() != JobState::Failed {
                    return Err(format!("the job is {:?}", job.state()));
                }
                let why = world.layout.error_of(hand, b"j").unwrap_or_default();
                if why != "the task failed, as it should" && !why.contains("its worker died") {
                    return Err(format!("the reason is {why:?}"));
                }
            }
            Self::Puts => {
                let data = world.written(hand.heap, &name_key("put"));
                if crash.returned && data.is_none() || data.is_some_and(|data| data != b"bytes") {
                    return Err("the data that was put is missing".into());
                }
            }
            Self::Beats => {
                let frontier = frontier(world).get();
                if frontier > 2 || crash.returned && frontier < 2 {
                    return Err(format!("the frontier is at {frontier}"));
                }
            }
            _ => {}
        }
        // Each task took effect once: a worker that runs one again has found it unfinished.
        let lost = 1 + u64::from(crash.recoverers_lost);
        for key in 0..KEYS {
            let (victim, others) = world.runs(key);
            // There the roots of several jobs have one key.
            if self == Self::Follows || self.function() == FAN {
                continue;
            }
            if victim > 1 || others > lost + 1 {
                return Err(format!(
                    "key {key} was run {victim} times by the victim, {others} by others"
                ));
            }
        }
        Ok(())
    }
}

fn frontier<M: Memory>(world: &World<M>) -> Frontier<M> {
    let layout = world.layout;
    Frontier::new(layout.memory, layout.frontier_at(), layout.slots)
}

/// Refuses every commit.
struct Refusing;

/// A commit was refused.
#[derive(Debug)]
struct Refused;

impl From<outlive_tasks::EngineError> for Refused {
    fn from(_: outlive_tasks::EngineError) -> Self {
        Self
    }
}

impl<M: Memory> outlive_tasks::Hooks<M> for Refusing {
    type Error = Refused;

    fn has_outputs(&mut self, _: outlive_tasks::Task<M>) -> bool {
        true
    }

    fn committed(
        &mut self,
        _: outlive_tasks::Task<M>,
        _: u8,
        _: &mut outlive_tasks::Batch<'_, '_, M>,
    ) -> Result<(), Refused> {
        Err(Refused)
    }
}

/// The size in bytes of the array that a deque grows to.
pub(super) const LARGER_ARRAY: u64 = 128;

/// Checks that the job `j`, a `FAN`, is complete, and each of its tasks has run once, except those
/// that died.
pub(super) fn demand_fan<M: Memory>(
    world: &World<M>,
    hand: Hand<'_, M>,
    crash: &Crash,
) -> Result<(), String> {
    let state = world.job(hand).map(|job| job.state());
    if state != Some(JobState::Complete) {
        let why = world.layout.error_of(hand, b"j");
        return Err(format!("the job is {state:?}: {why:?}"));
    }
    for (key, all) in [(SPREAD_KEY, 1), (LOOK_KEY, LOOKS), (LEAF_KEY, LEAVES)] {
        let (victim, others) = world.runs(key.into());
        let lost = u64::from(crash.recoverers_lost) + 1;
        if !(all..=all + lost).contains(&(victim + others)) {
            return Err(format!("key {key} was run {victim} and {others} times"));
        }
    }
    Ok(())
}

/// Returns the tasks with outputs that have not taken effect.
fn unfinished<M: Memory>(world: &World<M>) -> Vec<outlive_tasks::Task<M>> {
    let tasks = { world.layout.slots }.tasks().expect("sound lists");
    let open = |status: outlive_tasks::Status| {
        matches!(
            status.state(),
            State::New | State::Waiting | State::Ready | State::Running
        )
    };
    { tasks }
        .into_iter()
        .filter(|(task, status)| open(*status) && task.inputs() != 0)
        .map(|(task, _)| task)
        .collect()
}
