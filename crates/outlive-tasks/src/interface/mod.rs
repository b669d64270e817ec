//! The public interface: worker pools are created, used, inspected and destroyed here.

mod data;
mod deadlines;
mod job;
mod jobs;
mod options;
mod status;
#[cfg(test)]
mod tests;
mod volunteer;

pub use deadlines::{Deadlines, Overdue};
pub use job::{Job, JobError};
pub use options::Options;
pub use status::{PoolStatus, WorkerStatus};
pub use volunteer::{Volunteer, VolunteerError};

use crate::PoolError;
use crate::functions::registry::Registry;
use crate::pool::frontier::Frontier;
use crate::pool::header::{self, Place};
use crate::pool::load::{living, own, wants_a_spare};
use crate::pool::turn::{self, Turn, ask};
use crate::pool::worker::{Ended, Served, Worker, shown};
use crate::store::jobs::Root;
use crate::store::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::store::staging::StagingSlot;
use crate::store::task_ports::blocks_of;
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::membership::{Generations, Instance};
use outlive::memory::Offset;
use outlive::pod::Pod;
use outlive::supervise::Stop;

/// A pool of workers in a pod, with its jobs.
///
/// A handle is `Copy`. Operations that change the pool take the caller's heap handle. Workers are
/// threads of any processes. They join and leave at any time, and may die.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPool {
    layout: Layout,
    registry: &'static Registry,
}
impl WorkerPool {
    /// Creates the pool `name` for this program's tasks.
    ///
    /// # Errors
    /// If a pool of that name exists, or there is no memory for it.
    ///
    /// # Crash
    /// The pool exists or not. Its unfinished parts are freed when the same id next creates or
    /// destroys a pool.
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
    /// If it does not exist, is damaged, has another format, or was created by a program with other
    /// tasks.
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
    /// Returns the errors of both functions.
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
        let recoverers =
            recoverers.expect("the heap handle of a pod belongs to a member of the pod");
        Hand { heap, recoverers }
    }

    /// Works in the pool until `stop` is set, or the pool requests fewer workers. Any number of
    /// threads of any processes may do so.
    ///
    /// # Errors
    /// If all slots are taken; or if the worker cannot continue. Then its thread should leave the
    /// pod: if it holds a task, other workers take it over when the thread is no longer a member.
    /// [`PoolError::Unable`] if it cannot do a task that other workers may be able to do. If no
    /// other worker is present or joins immediately, the task fails instead.
    pub fn work(&self, heap: &LocalHeap<'_>, stop: &Stop) -> Result<(Served, Ended), PoolError> {
        self.work_by(heap, stop, false, |_| ())
    }

    /// Works as a guest, an additional worker: until the pool requests no workers at all, even if
    /// it has as many workers as it requests. A guest does not count toward that number: no other
    /// worker leaves because of it, and a spare takes the place of a counted worker that dies.
    ///
    /// # Errors
    /// Returns the errors of [`work`](Self::work).
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
        // If several workers come for one slot, all but one leave immediately. A worker reports
        // that it comes before it works.
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

    /// Returns whether another worker is present or comes: a spare does when a worker has left.
    fn has_others(&self, heap: &LocalHeap<'_>, stop: &Stop) -> bool {
        let mut seen = 0;
        for _ in 0..COMPANY {
            if stop.is_stopped() || self.wanted() == 0 {
                return true;
            }
            // For a while: a worker that has just died still counts.
            seen = if self.workers(heap) > 0 { seen + 1 } else { 0 };
            if seen > SEEN {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Works as a hot spare: waits until the pool has fewer workers than it requests, then
    /// [works](Self::work), and so on, until `stop` is set. A pool that [resizes
    /// itself](Options::elastic) does not replace all dead workers. Several spares may come after
    /// the same death. They may replace more dead workers than necessary, but no more than the
    /// requested number stay.
    ///
    /// # Errors
    /// Returns the errors of [`work`](Self::work).
    pub fn stand_by(&self, heap: &LocalHeap<'_>, stop: &Stop) -> Result<Served, PoolError> {
        self.stand_by_while(heap, stop, || true, |_| ())
    }

    /// Does the same as [`stand_by`](Self::stand_by) for as long as `goes_on` returns true. It is
    /// called whenever the spare waits: after events in the pool, and ten times a second. `turns`
    /// is called with the reason when the spare starts to work and when it returns to standby. It
    /// is not called when the spare ends, with the pool or by `stop`.
    ///
    /// # Errors
    /// Returns the errors of [`work`](Self::work).
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
                    // Another spare was faster, or the pool requests more workers than it has.
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
            // A member that finalises the death of a worker wakes the barrier's futex.
            match (bells, seen) {
                (Some(bells), Some(seen)) => bells.wait(key, seen, SPARE_NAP),
                _ => std::thread::sleep(SPARE_NAP),
            }
        }
        Ok(all)
    }

    /// Settles the logs of dead members that have operations on the pool in progress. Otherwise
    /// these would complete on blocks with another use by then. Returns the number of members that
    /// live, or that another member takes too long to settle.
    fn unsettled(&self, hand: Hand<'_>) -> Result<u32, PoolError> {
        let (layout, me) = (self.layout, hand.me().to_word());
        // Also members without a slot in the pool: one that died while it submitted a job is in an
        // operation on a map, which must not be destroyed before.
        hand.recoverers.recover_all(hand.heap.member())?;
        let slots = (0..layout.slots.used()).filter_map(|number| layout.slots.slot(number).owner());
        let roots = (0..layout.roots).map(|number| Root::of(layout, number).claimant());
        let desks = (0..DESKS_IN_ALL).map(|number| StagingSlot::at(layout, number).owner());
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

    /// Returns the number of live workers.
    pub fn workers(&self, heap: &LocalHeap<'_>) -> u32 {
        living(self.layout, heap.member().generations())
    }

    /// Returns the number of live workers, without [guests](Self::work_besides).
    pub fn own_workers(&self, heap: &LocalHeap<'_>) -> u32 {
        own(self.layout, heap.member().generations())
    }

    /// Sets the requested number of workers. Excess workers leave, and spares take the places of
    /// missing ones. If workers are still missing, [`PoolStatus::advice`] tells a launcher to start
    /// some.
    ///
    /// # Errors
    /// If the barrier is damaged.
    pub fn resize(&self, heap: &LocalHeap<'_>, workers: u32) -> Result<(), PoolError> {
        self.layout.want(workers);
        self.layout.barrier.interrupt(heap.member())?;
        Ok(())
    }

    /// Requests a number of workers for the pool `name` from outside, while an application runs in
    /// it. The caller need not have the application's tasks. Returns the number that was requested
    /// before.
    ///
    /// Only present workers respond: excess workers leave when their task is done, and those that
    /// [stand by](Self::stand_by) come. No processes are started.
    ///
    /// # Errors
    /// If the pool does not exist or is damaged; [`NoRoom`](PoolError::NoRoom) outside of its
    /// [range](PoolStatus::room); [`Over`](PoolError::Over) if it requests no workers any more,
    /// which is final. [`Barrier`](PoolError::Barrier) if the barrier at which workers sleep is
    /// damaged: the request is made nevertheless, as after a crash.
    ///
    /// # Crash
    /// The request is made or not. If it is, sleeping workers may notice it only by their own
    /// polls, within a fraction of a second.
    pub fn request(
        pod: &Pod,
        heap: &LocalHeap<'_>,
        name: &str,
        workers: u32,
    ) -> Result<u32, PoolError> {
        let layout = header::open(pod, name)?;
        let room = turn::room(layout);
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

    /// Returns the maximum number of workers at a time. Their [numbers](crate::Context::worker) are
    /// below it.
    pub fn capacity(&self) -> u32 {
        self.layout.slots.settings().capacity
    }

    /// Returns the requested number of workers.
    pub fn wanted(&self) -> u32 {
        self.layout.wanted()
    }

    /// Returns the state of the pool, as far as it is visible to a process that is not a member.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn status(&self, pod: &Pod) -> Result<PoolStatus, PoolError> {
        PoolStatus::of(self.layout, pod, |task| shown(self.registry, task))
    }

    /// Returns the state of the pool `name`, for programs without its tasks: tasks are shown
    /// without their arguments.
    ///
    /// # Errors
    /// If the pool does not exist or is damaged.
    pub fn inspect(pod: &Pod, name: &str) -> Result<PoolStatus, PoolError> {
        let layout = header::open(pod, name)?;
        let (_, text) = layout.registry();
        PoolStatus::of(layout, pod, |task| {
            let line = text.lines().nth(task.function() as usize);
            let name = line.and_then(|line| line.split('(').next());
            format!("`{}`", name.unwrap_or("that submits a job"))
        })
    }

    /// Returns the names of the pools in the pod.
    ///
    /// # Errors
    /// If the table of roots is damaged.
    pub fn names(pod: &Pod) -> Result<Vec<String>, PoolError> {
        header::names(pod)
    }

    /// Returns the defects of all structures of the pool. They may be false while it is in use.
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

    /// Walks the pool `name` and returns its defects, as far as they are visible to a process that
    /// is not a member: all but those of the records of jobs. Returns `None` while the pool is in
    /// use (it has live workers, or jobs come and end), since defects might be false.
    ///
    /// # Errors
    /// If the pool does not exist, or its header is damaged.
    pub fn verify(pod: &Pod, name: &str) -> Result<Option<Vec<String>>, PoolError> {
        let layout = header::open(pod, name)?;
        let generations = pod.tables().generations();
        let before = layout.version();
        let findings = walk(layout, generations);
        // Workers that came during the walk, and changes of jobs, cause false defects.
        let in_use = living(layout, generations) > 0 || layout.version() != before;
        Ok((!in_use).then_some(findings))
    }

    /// Returns the frontier of the pool's workers, to [watch](crate::pool::frontier::Watch) for
    /// workers without heartbeat, and the time after which they are suspected.
    pub fn frontier(&self) -> (Frontier, Duration) {
        let layout = self.layout;
        let frontier = Frontier::new(layout.memory, layout.frontier_at(), layout.slots);
        (frontier, layout.freeze())
    }

    /// Returns every block of the heap that the pool consists of, for checks of the heap while no
    /// worker is active.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn blocks(&self, heap: &LocalHeap<'_>) -> Result<Vec<Offset>, PoolError> {
        blocks_of(self.layout, heap)
    }

    /// Destroys the pool `name`, with its jobs and its data. The caller is its last user.
    ///
    /// # Errors
    /// If it does not exist, or workers are active.
    ///
    /// # Crash
    /// The pool exists; or not, and it is freed when the same id next creates or destroys a pool.
    pub fn destroy(pod: &Pod, heap: &LocalHeap<'_>, name: &str) -> Result<(), PoolError> {
        let place = Place::of(pod, heap, name)?;
        let header = { place.header() }.ok_or_else(|| PoolError::Unknown { name: name.into() })?;
        let layout = Layout::open(heap.memory(), header)?;
        let generations = heap.member().generations();
        // Otherwise invalid owners would be waited for, as if they were active.
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

/// The milliseconds for which `destroy` waits until other members have settled dead ones.
const PATIENCE: u32 = 1000;

/// The milliseconds for which a worker that cannot do a task looks for others: longer than a spare
/// takes to come, or a worker to be restarted.
const COMPANY: u32 = 2500;
/// The number of consecutive milliseconds for which others must be present.
const SEEN: u32 = 20;

/// The longest time between two checks of a spare, if the wake-up futex is not signalled.
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

/// Returns the defects of a pool that are visible without a heap handle.
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
                    findings.push(format!(
                        "the task at {} has an unknown function",
                        task.offset()
                    ));
                }
            }
        }
    }
    let roots = (0..layout.roots).map(|number| Root::of(layout, number));
    findings.extend(roots.filter_map(Root::damage));
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
