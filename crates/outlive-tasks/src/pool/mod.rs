//! The front door: a worker pool is created, worked in, given jobs, looked at and destroyed here.

mod data;
mod deadlines;
mod elastic;
pub(crate) mod header;
mod job;
mod jobs;
mod load;
mod options;
mod status;
#[cfg(test)]
mod tests;
mod trigger;

pub use deadlines::{Deadlines, Overdue};
pub(crate) use elastic::Resizer;
pub use header::{DestroyPoint, MakePoint};
pub use job::{Job, JobError};
pub use load::{Advice, Band};
pub(crate) use load::{Elastic, Load, is_surplus, living, own, wants_a_spare, why_came};
pub use options::Options;
pub use status::{PoolStatus, WorkerStatus};
pub(crate) use trigger::ask;
pub use trigger::{AskPoint, Trigger, Turn};

use crate::PoolError;
use crate::crew::blocks_of;
use crate::desk::Desk;
use crate::frontier::Frontier;
use crate::jobs::Root;
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::registry::Registry;
use crate::worker::{Ended, Served, Worker, shown};
use core::time::Duration;
use header::Place;
use outlive::heap::LocalHeap;
use outlive::membership::{Generations, Instance};
use outlive::memory::Offset;
use outlive::pod::Pod;
use outlive::supervise::Stop;

/// A pool of workers in a pod, and the jobs that they do.
///
/// A handle is `Copy`. What changes the pool is given the caller's way to the pod's heap; workers are threads of any
/// processes, come and go at any time, and may die.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPool {
    layout: Layout,
    registry: &'static Registry,
}
impl WorkerPool {
    /// Creates the pool `name` for this program's tasks.
    ///
    /// # Errors
    /// If there is one of that name, or no room for it.
    ///
    /// # Crash
    /// There is the pool, or none; what was made of it is freed when the same id next makes or destroys a pool.
    pub fn create(
        pod: &Pod,
        heap: &LocalHeap<'_>,
        name: &str,
        options: Options,
    ) -> Result<Self, PoolError> {
        let registry = Registry::collected();
        let place = Place::of(pod, heap, name)?;
        let exists = || PoolError::Exists { name: name.into() };
        if place.header().is_some() {
            return Err(exists());
        }
        let text = (registry.fingerprint(), registry.text());
        let layout = place.make(&options.shape, text)?.ok_or_else(exists)?;
        Ok(Self { layout, registry })
    }

    /// Opens the pool `name`.
    ///
    /// # Errors
    /// If there is none, it is damaged or of another format, or it was made by a program with other tasks.
    pub fn open(pod: &Pod, name: &str) -> Result<Self, PoolError> {
        let layout = header::open(pod, name)?;
        let registry = Registry::collected();
        let (fingerprint, text) = layout.registry();
        if fingerprint != registry.fingerprint() {
            return Err(PoolError::OtherTasks {
                name: name.into(),
                difference: registry.difference(&text),
            });
        }
        Ok(Self { layout, registry })
    }

    /// [Opens](Self::open) the pool, or [creates](Self::create) it.
    ///
    /// # Errors
    /// As these two.
    pub fn open_or_create(
        pod: &Pod,
        heap: &LocalHeap<'_>,
        name: &str,
        options: Options,
    ) -> Result<Self, PoolError> {
        loop {
            match Self::open(pod, name) {
                Err(PoolError::Unknown { .. }) => {}
                opened => return opened,
            }
            match Self::create(pod, heap, name, options) {
                Err(PoolError::Exists { .. }) => {}
                created => return created,
            }
        }
    }

    fn hand<'h>(&self, heap: &'h LocalHeap<'h>) -> Hand<'h> {
        let recoverers = heap.member().recoverers();
        let recoverers = recoverers.expect("a way to a pod's heap is that of a pod's member");
        Hand { heap, recoverers }
    }

    /// Works in the pool until `stop` says so, or the pool wants fewer workers. Any number of threads of any processes do.
    ///
    /// # Errors
    /// If all places are taken; or if the worker cannot go on. Then its thread should leave the pod: if it is in the middle of a
    /// task, others have it when the thread is not a member any more. [`PoolError::Unable`] if it cannot do a task that others
    /// may be able to do; if nobody else works, nor comes at once, the task fails instead.
    pub fn work(&self, heap: &LocalHeap<'_>, stop: &Stop) -> Result<(Served, Ended), PoolError> {
        self.work_by(heap, stop, false, |_| ())
    }

    /// The same also when the pool has as many workers as it wants, until it wants none. It is a guest: it counts for none of
    /// them, so nobody leaves or stays away for its sake, and a spare comes when one of them dies.
    ///
    /// # Errors
    /// As [`work`](Self::work).
    pub fn work_besides(
        &self,
        heap: &LocalHeap<'_>,
        stop: &Stop,
    ) -> Result<(Served, Ended), PoolError> {
        self.work_by(heap, stop, true, |_| ())
    }

    fn work_by(
        &self,
        heap: &LocalHeap<'_>,
        stop: &Stop,
        besides: bool,
        came: impl FnOnce(Turn),
    ) -> Result<(Served, Ended), PoolError> {
        let hand = self.hand(heap);
        let worker = Worker::new(self.layout, hand, self.registry, stop, besides)?;
        // Of several who come for one place, the others leave at once. Nobody works who has not said that he comes.
        if let Some(ended) = worker.is_to_end() {
            worker.leave()?;
            return Ok((Served::default(), ended));
        }
        came(worker.turn());
        match worker.work() {
            Err(PoolError::Unable { .. }) if !self.has_others(heap, stop) => {
                let worker = Worker::new(self.layout, hand, self.registry, stop, besides)?;
                worker.left_alone().work()
            }
            ended => ended,
        }
    }

    /// Whether somebody works, or comes to: a spare does when a worker has left.
    fn has_others(&self, heap: &LocalHeap<'_>, stop: &Stop) -> bool {
        let mut seen = 0;
        for _ in 0..COMPANY {
            if stop.is_stopped() || self.wanted() == 0 {
                return true;
            }
            // For a while: one that has just died is seen still.
            seen = if self.workers(heap) > 0 { seen + 1 } else { 0 };
            if seen > SEEN {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// A hot spare: waits until the pool has fewer workers than it wants, then [works](Self::work), and so on, until `stop`
    /// says so. A pool that [resizes itself](Options::elastic) may do without some of its dead; of spares that hear of a death at the same
    /// moment several may come, and then more of the dead are replaced than had to be, but no more than are wanted stay.
    ///
    /// # Errors
    /// As [`work`](Self::work).
    pub fn stand_by(&self, heap: &LocalHeap<'_>, stop: &Stop) -> Result<Served, PoolError> {
        self.stand_by_while(heap, stop, || true, |_| ())
    }

    /// The same for as long as `goes_on`, which is asked whenever it waits: when something happens in the pool, and ten times a
    /// second. `turns` is told when it comes and when it goes again, and why; not that it ends, with the pool or by `stop`.
    ///
    /// # Errors
    /// As [`work`](Self::work).
    pub fn stand_by_while(
        &self,
        heap: &LocalHeap<'_>,
        stop: &Stop,
        mut goes_on: impl FnMut() -> bool,
        mut turns: impl FnMut(Turn),
    ) -> Result<Served, PoolError> {
        let (member, mut all) = (heap.member(), Served::default());
        let key = self.layout.barrier.at().raw();
        while !stop.is_stopped() {
            let bells = member.bells();
            let seen = bells.map(|bells| bells.read(key));
            if wants_a_spare(self.layout, member.generations())? {
                let mut has_come = false;
                let come = |turn| {
                    has_come = true;
                    turns(turn);
                };
                match self.work_by(heap, stop, false, come) {
                    Ok((served, ended)) => {
                        all.add(served);
                        let (wanted, said) = self.layout.wanted_by();
                        if has_come && ended == Ended::Surplus && wanted > 0 {
                            turns(Turn::Goes(said));
                        }
                    }
                    // Another spare was faster, or the pool wants more than it has places for.
                    Err(error) if error.is_no_place() => {
                        if !goes_on() {
                            break;
                        }
                        std::thread::sleep(SPARE_NAP);
                    }
                    Err(error) => return Err(error),
                }
                continue;
            }
            if !goes_on() {
                break;
            }
            // Whoever buries a worker rings the barrier's bell.
            match (bells, seen) {
                (Some(bells), Some(seen)) => bells.wait(key, seen, SPARE_NAP),
                _ => std::thread::sleep(SPARE_NAP),
            }
        }
        Ok(all)
    }

    /// Settles what the dead were about who have something of the pool in hand, for else that would be done to blocks which
    /// are others' by then. Returns how many live, or are settled by somebody for too long.
    fn unsettled(&self, hand: Hand<'_>) -> Result<u32, PoolError> {
        let (layout, me) = (self.layout, hand.me().to_word());
        // Also those who have no place in the pool: who died while it submitted a job is in the middle of an operation on a
        // map, which is not destroyed meanwhile.
        hand.recoverers.recover_all(hand.heap.member())?;
        let slots = (0..layout.slots.used()).filter_map(|number| layout.slots.slot(number).owner());
        let roots = (0..layout.roots).map(|number| Root::of(layout, number).claimant());
        let desks = (0..DESKS_IN_ALL).map(|number| Desk::at(layout, number).owner());
        let others = slots.map(Instance::to_word).chain(roots).chain(desks);
        let mut left = 0;
        for word in others.filter(|word| *word != 0 && *word != me) {
            let mut settled = hand.is_settled(word)?;
            for _ in 0..PATIENCE {
                let lives = Instance::from_word(word)
                    .is_none_or(|one| !hand.heap.member().generations().is_gone(one));
                if settled || lives {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                settled = hand.is_settled(word)?;
            }
            left += u32::from(!settled);
        }
        Ok(left)
    }

    /// How many workers live.
    pub fn workers(&self, heap: &LocalHeap<'_>) -> u32 {
        living(self.layout, heap.member().generations())
    }

    /// How many live of those whom it wants: all but those who work [besides](Self::work_besides).
    pub fn own_workers(&self, heap: &LocalHeap<'_>) -> u32 {
        own(self.layout, heap.member().generations())
    }

    /// Says how many workers the pool is to have: those that are too many leave; spares come in, and for the rest see
    /// [`PoolStatus::advice`].
    ///
    /// # Errors
    /// If the barrier is damaged.
    pub fn resize(&self, heap: &LocalHeap<'_>, workers: u32) -> Result<(), PoolError> {
        self.layout.want(workers);
        self.layout.barrier.interrupt(heap.member())?;
        Ok(())
    }

    /// Asks the pool `name` from outside to have so many workers, while an application runs in it: for whoever does not run that
    /// application, and has other tasks than it, or none. Returns how many it wanted before.
    ///
    /// It is answered by those who are there: who is too many leaves when its task is done, and who
    /// [stands by](Self::stand_by) comes. Nobody starts processes.
    ///
    /// # Errors
    /// If there is no such pool, or it is damaged; [`NoRoom`](PoolError::NoRoom) outside of its [room](PoolStatus::room);
    /// [`Over`](PoolError::Over) if it wants no workers any more, which is not undone. [`Barrier`](PoolError::Barrier) if the
    /// barrier is damaged at which those sleep who are to be told: then it has been asked, as after a death.
    ///
    /// # Crash
    /// It is asked or not. If it is, those who sleep may notice by themselves only, within a fraction of a second.
    pub fn request(
        pod: &Pod,
        heap: &LocalHeap<'_>,
        name: &str,
        workers: u32,
    ) -> Result<u32, PoolError> {
        let layout = header::open(pod, name)?;
        let room = trigger::room(layout);
        if !room.contains(&workers) {
            return Err(PoolError::NoRoom {
                name: name.into(),
                asked: workers,
                least: *room.start(),
                most: *room.end(),
            });
        }
        let before = ask(layout, heap.member(), workers)?;
        let before = before.ok_or_else(|| PoolError::Over { name: name.into() })?;
        Ok(before.min(layout.slots.settings().capacity))
    }

    /// How many workers there can be at a time: their [numbers](crate::Context::worker) are below that.
    pub fn capacity(&self) -> u32 {
        self.layout.slots.settings().capacity
    }

    /// How many workers it wants.
    pub fn wanted(&self) -> u32 {
        self.layout.wanted()
    }

    /// How the pool stands, as far as that can be seen without being a member.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn status(&self, pod: &Pod) -> Result<PoolStatus, PoolError> {
        PoolStatus::of(self.layout, pod, |task| shown(self.registry, task))
    }

    /// The same of the pool `name`, for programs that have other tasks than it, or none: tasks come without their arguments.
    ///
    /// # Errors
    /// If there is no such pool, or it is damaged.
    pub fn inspect(pod: &Pod, name: &str) -> Result<PoolStatus, PoolError> {
        let layout = header::open(pod, name)?;
        let (_, text) = layout.registry();
        PoolStatus::of(layout, pod, |task| {
            let line = text.lines().nth(task.function() as usize);
            let name = line.and_then(|line| line.split('(').next());
            format!("`{}`", name.unwrap_or("that submits a job"))
        })
    }

    /// The names of the pod's pools.
    ///
    /// # Errors
    /// If the table of roots is damaged.
    pub fn names(pod: &Pod) -> Result<Vec<String>, PoolError> {
        header::names(pod)
    }

    /// Walks everything and says what is wrong. While it is in use, findings may be false.
    pub fn check(&self, heap: &LocalHeap<'_>) -> Vec<String> {
        let layout = self.layout;
        let mut findings = walk(layout, heap.member().generations());
        for job in layout.all_jobs(self.hand(heap)) {
            if job.contents().is_none() {
                findings.push(format!("the record of the job at {} is damaged", job.at));
            }
        }
        if let Err(error) = self.blocks(heap) {
            findings.push(error.to_string());
        }
        findings
    }

    /// Walks the pool `name` and says what is wrong, as far as that can be seen without being a member: everything but the
    /// records of jobs. `None` while it is used: it has workers that live, or jobs come and end; findings might be false.
    ///
    /// # Errors
    /// If there is no such pool, or its header is damaged.
    pub fn verify(pod: &Pod, name: &str) -> Result<Option<Vec<String>>, PoolError> {
        let layout = header::open(pod, name)?;
        let generations = pod.tables().generations();
        let before = layout.version();
        let findings = walk(layout, generations);
        // Who came meanwhile, or submitted and removed without working, makes findings of his own.
        let in_use = living(layout, generations) > 0 || layout.version() != before;
        Ok((!in_use).then_some(findings))
    }

    /// The frontier of the pool's workers, to [watch](crate::frontier::Watch) for those whose hearts stand still.
    pub fn frontier(&self) -> (Frontier, Duration) {
        let layout = self.layout;
        let frontier = Frontier::new(layout.memory, layout.frontier_at(), layout.slots);
        (frontier, layout.freeze())
    }

    /// Every block of the heap that the pool consists of, for the check of the heap; while nobody works.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn blocks(&self, heap: &LocalHeap<'_>) -> Result<Vec<Offset>, PoolError> {
        blocks_of(self.layout, heap)
    }

    /// Destroys the pool `name`, with its jobs and its data. For the last who uses it.
    ///
    /// # Errors
    /// If there is none, or workers are at work.
    ///
    /// # Crash
    /// It is there, or it is not and is freed when the same id next makes or destroys a pool.
    pub fn destroy(pod: &Pod, heap: &LocalHeap<'_>, name: &str) -> Result<(), PoolError> {
        let place = Place::of(pod, heap, name)?;
        let header = { place.header() }.ok_or_else(|| PoolError::Unknown { name: name.into() })?;
        let layout = Layout::open(heap.memory(), header)?;
        let generations = heap.member().generations();
        // Else they would be waited for, as if they were at work.
        layout.slots.check_owners(generations)?;
        let pool = Self {
            layout,
            registry: Registry::collected(),
        };
        let workers = living(layout, generations);
        if workers > 0 {
            return Err(PoolError::InUse {
                name: name.into(),
                workers,
            });
        }
        let unsettled = pool.unsettled(pool.hand(heap))?;
        if unsettled > 0 {
            return Err(PoolError::InUse {
                name: name.into(),
                workers: unsettled,
            });
        }
        place.empty(header)
    }
}

/// For how many milliseconds who destroys a pool waits until others have settled the dead.
const PATIENCE: u32 = 1000;

/// For how many milliseconds a worker that cannot do a task looks for others who may: longer than those take who wait for their
/// turn, or are started again.
const COMPANY: u32 = 2500;
/// For how many of them these must be there.
const SEEN: u32 = 20;

/// How often a spare looks whether it is wanted, should no bell ring.
const SPARE_NAP: Duration = Duration::from_millis(100);

impl Served {
    pub(crate) fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.taken_over += other.taken_over;
        self.retried += other.retried;
        self.skipped += other.skipped;
        self.looked += other.looked;
    }
}

/// What is wrong in a pool, as far as it can be seen without a heap of one's own.
fn walk(layout: Layout, generations: Generations) -> Vec<String> {
    let mut findings: Vec<String> = Vec::new();
    let barrier = layout.barrier.check(generations);
    findings.extend(barrier.findings.iter().map(ToString::to_string));
    let owners = layout.slots.check_owners(generations);
    findings.extend(owners.err().map(|error| error.to_string()));
    match layout.slots.tasks() {
        Err(error) => findings.push(error.to_string()),
        Ok(tasks) => {
            for (task, status) in tasks {
                if !status.state().is_over() && layout.registered(task.function()).is_none() {
                    findings.push(format!("the task at {} has no function", task.offset()));
                }
            }
        }
    }
    let maps = [
        ("names", layout.names.check()),
        ("jobs", layout.jobs.check()),
        ("errors", layout.errors.check()),
    ];
    for (what, report) in maps {
        if !report.is_clean() {
            findings.push(format!("the map of {what}: {report}"));
        }
    }
    findings
}
