//! How a job is opened: it gets a root, which is described, once.
//!
//! A job whose dependencies are complete is *opened*, by whoever comes by: that is a fact that does not change any more. It
//! gets a *root*, one of a number of descriptors that the pool keeps for this, with the ports of its inputs and outputs.
//! Several may try; each step is a compare-and-swap or the work of one who has claimed the root, and whom the
//! next one follows only when he is dead and his log is settled:
//!
//! | step | a death after it leaves | who goes on |
//! | --- | --- | --- |
//! | the root is reserved for the job | a reserved root | anybody: the job's word says which root it has; others are given back |
//! | the job's word names the root | a job with a root that is not described | anybody |
//! | the state is open | the same | anybody |
//! | the root is claimed | a root of a dead one | the next one claims it |
//! | ports, descriptor | a root that is described, or not yet | the next one finds the ports in their cell, and the descriptor of this job |
//! | its life is published | a root that anybody can start | anybody |

use super::record::{Contents, ROOT};
use super::{JobState, Record, Root};
use crate::crew::WRITTEN;
use crate::desk::Desk;
use crate::layout::{Hand, Layout};
use crate::names::Ports;
use crate::{EngineError, PoolError, Spec, State};
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where the opening of a job may be cut short.
    pub enum OpenPoint for "tasks.open" {
        /// A root is reserved for it.
        Reserved,
        /// The job has the root.
        Assigned,
        /// The job is open.
        Opened,
        /// Its root is claimed by the one who describes it.
        Claimed,
        /// The root has ports.
        Ported,
        /// The root is described.
        Described,
        /// Anybody may start it.
        Published,
    }
}

impl<M: Memory> Record<M> {
    /// Whether a submitted job can be opened, or has to fail.
    /// For a judge: a root that others have left is given back on the way.
    pub fn can_advance(self, layout: Layout<M>, hand: Hand<'_, M>) -> Result<bool, PoolError> {
        let fails = self
            .dependencies()
            .any(|other| other.state() == JobState::Failed);
        let opens = { self.dependencies() }.all(|other| other.state() == JobState::Complete);
        Ok(fails || opens && layout.has_root(hand, self)?)
    }
}

impl<M: Memory> Layout<M> {
    /// Opens the job if that can be, and sees to it that its root can be started; or has it fail with a job that it
    /// depends on. Returns whether it did anything.
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
                                "the job `{}`, which it depends on, has failed",
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

    /// Whether there is a root for the job, or one that only waits for quiet moments. Whoever is told so notes one.
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

    /// The job's root; reserves one. `None` if all are in use.
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
            // One that was reserved for this job by somebody who died will do.
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
                what: "a job's root has a number that there is not",
            });
        }
        let (memory, root) = (self.memory, Root::of(self, number));
        if root.life() != 0 || root.job() != Some(job) || !root.claim(hand)? {
            return Ok(false);
        }
        memory.crash_point(OpenPoint::Claimed);
        // It may have been described, and even given back, before it was claimed.
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
            // Whatever it was: a root that a living thread keeps is lost for all others.
            root.unclaim(hand);
            return match error {
                // Not the job's fault.
                PoolError::Recover(_) | PoolError::Engine(EngineError::Recover(_)) => Err(error),
                PoolError::Full(why) => {
                    let wanted = why.asked();
                    let why = format!("its root finds no room: {why}");
                    self.fail_job_for(hand, job, &why, wanted)
                }
                error => {
                    let why = format!("its root cannot be made: {error}");
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
        // A predecessor may have come so far: then it is neither free, as it is whenever a root is given back, nor new. (Its job is
        // compared as well; that alone would take the descriptor of a removed job for this one's, whose record is where that stood.)
        let there = task.status()?;
        if task.job() != job.at.raw() || matches!(there.state(), State::New | State::Free) {
            // Until the ports have them, the cells stay cells; then it is seen whether they are still.
            let pin = heap.pin();
            loop {
                let cells = |names: &[Vec<u8>]| -> Result<Vec<Offset>, PoolError> {
                    let cell = |name: &Vec<u8>| Ok(self.names.cell(heap, name)?.offset());
                    names.iter().map(cell).collect()
                };
                let (inputs, mut outputs) = (cells(&contents.reads)?, cells(&contents.writes)?);
                // One more, for the job's result.
                outputs.push(Offset::from_raw(0));
                if !root.has_ports() {
                    let bytes = Ports::<M>::bytes(inputs.len(), outputs.len());
                    heap.allocate_into(bytes, root.ports_at())?;
                }
                // Again, if a predecessor died before or after he did so.
                let task = task.offset().raw();
                if Ports::write(memory, root.ports(), task, &inputs, &outputs).keep() {
                    break;
                }
                // What a name had is being removed; by a dead one: then that is done here.
                Desk::settle_those_of_the_gone(self, hand)?;
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
