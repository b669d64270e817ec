//! How a job is opened: it gets a root, which is described once.
//!
//! A job whose dependencies are complete, which is a stable fact, is *opened* by any thread that
//! sees this. It gets a *root*, one of a number of descriptors that the pool keeps for this, with
//! the ports of its inputs and outputs. Several threads may try. Each step is a compare-and-swap,
//! or is done by the thread that has claimed the root, and the next claimant follows only when that
//! thread is dead and its log is settled:
//!
//! | step | a death after it leaves | continued by |
//! | --- | --- | --- |
//! | a root is reserved | a reserved root | any: the job's word names its root, others are freed |
//! | the job's word names the root | a job with an undescribed root | any |
//! | the state is open | the same | any |
//! | the root is claimed | a root with a dead claimant | the next claimant |
//! | ports, descriptor | a root described or not | the next claimant finds ports and descriptor |
//! | its life is published | a root that can be started | any |

use super::record::{Contents, ROOT};
use super::{JobState, Record, Root};
use crate::store::layout::{Hand, Layout};
use crate::store::names::Ports;
use crate::store::staging::StagingSlot;
use crate::store::task_ports::WRITTEN;
use crate::{EngineError, PoolError, Spec, State};
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of the opening of a job.
    pub enum OpenPoint for "tasks.open" {
        /// A root is reserved for the job.
        Reserved,
        /// The job's word names the root.
        Assigned,
        /// The job is open.
        Opened,
        /// The thread that describes the root has claimed it.
        Claimed,
        /// The root has ports.
        Ported,
        /// The root is described.
        Described,
        /// Any worker may start the root.
        Published,
    }
}

impl<M: Memory> Record<M> {
    /// Returns whether a submitted job can be opened, or has to fail. Gives back a root that has
    /// become free. Called by a judge.
    pub fn can_advance(self, layout: Layout<M>, hand: Hand<'_, M>) -> Result<bool, PoolError> {
        let fails = self
            .dependencies()
            .any(|other| other.state() == JobState::Failed);
        let opens = { self.dependencies() }.all(|other| other.state() == JobState::Complete);
        Ok(fails || opens && layout.has_root(hand, self)?)
    }
}

impl<M: Memory> Layout<M> {
    /// Opens the job if possible, and makes its root ready to be started; or fails the job if one
    /// that it depends on has failed. Returns whether it did anything.
    pub fn advance_job(self, hand: Hand<'_, M>, job: Record<M>) -> Result<bool, PoolError> {
        match job.state() {
            JobState::Complete | JobState::Failed | JobState::Removed => Ok(false),
            JobState::Open => match job.root() {
                Some(root) => self.describe_root(hand, job, root),
                None => Ok(false),
            },
            JobState::Submitted => {
                let mut open = true;
                for other in job.dependencies() {
                    match other.state() {
                        JobState::Failed => {
                            let name = other.name();
                            let why = format!(
                                "the job `{}`, on which it depends, has failed",
                                String::from_utf8_lossy(&name)
                            );
                            return self.fail_job(hand, job, &why);
                        }
                        state => open &= state == JobState::Complete,
                    }
                }
                if !open {
                    return Ok(false);
                }
                let Some(root) = self.assign_root(hand, job)? else {
                    return Ok(false);
                };
                if job.go(JobState::Submitted, JobState::Open) {
                    self.memory.crash_point(OpenPoint::Opened);
                    self.raise_version(hand);
                }
                self.describe_root(hand, job, root)?;
                Ok(true)
            }
        }
    }

    /// Returns whether a root is available for the job, now or after quiet moments alone. The
    /// caller then notes one.
    fn has_root(self, hand: Hand<'_, M>, job: Record<M>) -> Result<bool, PoolError> {
        if job.root().is_some() {
            return Ok(true);
        }
        for number in 0..self.roots {
            let root = Root::of(self, number);
            let soon = root.give_back_if_over(hand)?;
            if soon || root.job().is_none_or(|other| other == job) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the job's root, or reserves one. Returns `None` if all are in use.
    fn assign_root(self, hand: Hand<'_, M>, job: Record<M>) -> Result<Option<u32>, PoolError> {
        let memory = self.memory;
        if let Some(root) = job.root() {
            return Ok(Some(root));
        }
        for number in 0..self.roots {
            let root = Root::of(self, number);
            let mut reserved = root.job();
            if reserved.is_some() {
                root.give_back_if_over(hand)?;
                reserved = root.job();
            }
            // A root that a dead thread reserved for this job is used.
            if reserved.is_some_and(|other| other != job)
                || reserved.is_none() && !root.reserve(job)
            {
                continue;
            }
            memory.crash_point(OpenPoint::Reserved);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let word = u64::from(number) + 1;
            match memory.compare_exchange(job.at + ROOT, 0, word, order.0, order.1) {
                Ok(_) => {
                    memory.crash_point(OpenPoint::Assigned);
                    return Ok(Some(number));
                }
                Err(there) => {
                    if there != word {
                        root.free(job);
                    }
                    return Ok((there as u32).checked_sub(1));
                }
            }
        }
        Ok(None)
    }

    /// Describes the job's root, once.
    fn describe_root(
        self,
        hand: Hand<'_, M>,
        job: Record<M>,
        number: u32,
    ) -> Result<bool, PoolError> {
        if number >= self.roots {
            return Err(PoolError::Damaged {
                at: job.at + ROOT,
                what: "the number of a job's first task does not exist",
            });
        }
        let (memory, root) = (self.memory, Root::of(self, number));
        if root.life() != 0 || root.job() != Some(job) || !root.claim(hand)? {
            return Ok(false);
        }
        memory.crash_point(OpenPoint::Claimed);
        // It may have been described, and even given back, before the claim.
        if root.life() != 0 || root.job() != Some(job) || job.state() != JobState::Open {
            root.unclaim(hand);
            return Ok(false);
        }
        let Some(contents) = job.contents() else {
            root.unclaim(hand);
            self.fail_job(hand, job, "its record is damaged; run `outlive pod check`")?;
            return Ok(true);
        };
        let described = self.describe_claimed(hand, job, root, &contents);
        if let Err(error) = described {
            // After any error: a root that a living thread keeps claimed is lost to all others.
            root.unclaim(hand);
            return match error {
                // Not caused by the job.
                PoolError::Recover(_) | PoolError::Engine(EngineError::Recover(_)) => Err(error),
                PoolError::Full(why) => {
                    let wanted = why.asked();
                    let why = format!("there is no space for its first task: {why}");
                    self.fail_job_for(hand, job, &why, wanted)
                }
                error => {
                    let why = format!("its first task cannot be created: {error}");
                    self.fail_job_for(hand, job, &why, error.wanted())
                }
            };
        }
        memory.crash_point(OpenPoint::Published);
        root.unclaim(hand);
        Ok(true)
    }

    fn describe_claimed(
        self,
        hand: Hand<'_, M>,
        job: Record<M>,
        root: Root<M>,
        contents: &Contents,
    ) -> Result<(), PoolError> {
        let (memory, heap) = (self.memory, hand.heap);
        let task = root.task();
        // A dead predecessor may have described the root. Then the descriptor is neither new, nor
        // free as after a give-back. (The job is compared as well. That alone could take the
        // descriptor of a removed job for this one's, if this record is at the same offset.)
        let there = task.status()?;
        if task.job() != job.at.raw() || matches!(there.state(), State::New | State::Free) {
            // The pin keeps the cells valid until the ports name them; then `keep` checks that they
            // still are.
            let pin = heap.pin();
            loop {
                let cells = |names: &[Vec<u8>]| -> Result<Vec<Offset>, PoolError> {
                    let cell = |name: &Vec<u8>| Ok(self.names.cell(heap, name)?.offset());
                    names.iter().map(cell).collect()
                };
                let (inputs, mut outputs) = (cells(&contents.reads)?, cells(&contents.writes)?);
                // An additional output, for the job's result.
                outputs.push(Offset::from_raw(0));
                if !root.has_ports() {
                    let bytes = Ports::<M>::bytes(inputs.len(), outputs.len());
                    heap.allocate_into(bytes, root.ports_at())?;
                }
                // Repeated if a predecessor died before or after it did so.
                let task = task.offset().raw();
                if Ports::write(memory, root.ports(), task, &inputs, &outputs).keep() {
                    break;
                }
                // A name's data is being removed. A dead remover's removal is finished here.
                StagingSlot::settle_those_of_the_gone(self, hand)?;
                memory.spin_hint();
            }
            drop(pin);
            memory.crash_point(OpenPoint::Ported);
            let waits = !root.ports_of().are_complete();
            let spec = Spec {
                function: contents.function,
                job: job.at.raw(),
                inputs: root.ports().raw(),
                outputs: WRITTEN,
                arguments: &contents.arguments,
            };
            if waits {
                self.note_wait();
            }
            let state = if waits { State::Waiting } else { State::Ready };
            task.prepare_root(heap, &spec, state)?;
        }
        memory.crash_point(OpenPoint::Described);
        let life = task.status()?.sequence();
        if root.has_ports() && task.status()?.state() == State::Waiting {
            let ports = root.ports_of();
            ports.set_life(life);
            ports.wait();
            if ports.are_complete() {
                task.open_root(life)?;
            }
        }
        root.publish(life);
        Ok(())
    }
}
