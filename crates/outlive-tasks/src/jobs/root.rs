//! Roots: the descriptors that a pool keeps for the first tasks of its open jobs.
//!
//! ```text
//! 0x00  the descriptor of the task
//! 0x80  job       the record of the job that it is reserved for, or 0
//! 0x88  claimant  who describes it, or gives it back; who has done so, or died of it
//! 0x90  ports     of the task, or 0 | PARTING
//! 0x98  life      which life of the descriptor is the job's, plus one; 0 before it is described
//! ```
//!
//! It is reserved by whoever [opens](super::advance) a job, and described under a claim.
//!
//! A root is given back when its job is over and its task is, and nobody can come by its ports any more; under a claim too,
//! so whoever dies of it is followed by the next one who claims it. The job's word goes last: the root is free then for
//! another, with nothing hanging on it.
//!
//! Ports that hang on a cell which nobody has bound can never go. The root *parts* from them: it says so in the
//! word that leads to them, puts them into the pool's list of those that stay, and forgets them. Who died in
//! between has left a word that says so, and the next one goes on from there; putting them in has effect once.

use super::{EndPoint, JobState, Record};
use crate::layout::{Hand, Layout};
use crate::names::Ports;
use crate::{PoolError, State, Task};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where it may be cut short that a root parts from ports that have to stay.
    pub enum PartPoint for "tasks.part" {
        /// It is about to.
        Parting,
        /// They are where they stay; the root leads to them still.
        Parted,
    }
}

const JOB: u64 = 0x80;
const CLAIMANT: u64 = 0x88;
const PORTS: u64 = 0x90;
const LIFE: u64 = 0x98;

/// In the word of a root's ports: they go into the list of those that stay, or are there already.
const PARTING: u64 = 1;

/// The descriptor of an open job's root, and what goes with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<M: Memory = Native> {
    layout: Layout<M>,
    at: Offset,
}

impl<M: Memory> Root<M> {
    pub fn of(layout: Layout<M>, number: u32) -> Self {
        let at = layout.root(number);
        Self { layout, at }
    }

    fn load(self, place: u64) -> u64 {
        self.layout.memory.load(self.at + place, Ordering::Acquire)
    }

    /// The job that it is reserved for.
    pub fn job(self) -> Option<Record<M>> {
        let job = self.load(JOB);
        (job != 0).then(|| Record::at(self.layout.memory, Offset::from_raw(job)))
    }

    /// The task, described if [`life`](Self::life) says so.
    pub fn task(self) -> Task<M> {
        Task::new(self.layout.memory, self.at)
    }

    /// Which life of the descriptor is the job's, plus one; 0 before it is described.
    pub fn life(self) -> u64 {
        self.load(LIFE)
    }

    pub(super) fn publish(self, life: u64) {
        // Release: all that was written for the root.
        self.layout
            .memory
            .store(self.at + LIFE, life + 1, Ordering::Release);
    }

    pub(super) fn reserve(self, job: Record<M>) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.layout
            .memory
            .compare_exchange(self.at + JOB, 0, job.at.raw(), order.0, order.1)
            .is_ok()
    }

    /// Not for this job after all.
    pub(super) fn free(self, job: Record<M>) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let _ =
            self.layout
                .memory
                .compare_exchange(self.at + JOB, job.at.raw(), 0, order.0, order.1);
    }

    /// Claims the right to describe it, or to give it back: from nobody, or from one who is gone and settled.
    pub(super) fn claim(self, hand: Hand<'_, M>) -> Result<bool, PoolError> {
        let (memory, me) = (self.layout.memory, hand.me().to_word());
        let other = self.load(CLAIMANT);
        if other == me {
            return Ok(true);
        }
        if other != 0 && !hand.is_settled(other)? {
            return Ok(false);
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        Ok(memory
            .compare_exchange(self.at + CLAIMANT, other, me, order.0, order.1)
            .is_ok())
    }

    /// Who has claimed it, or had; 0 for nobody.
    pub fn claimant(self) -> u64 {
        self.load(CLAIMANT)
    }

    pub(super) fn unclaim(self, _hand: Hand<'_, M>) {
        // Release: what was done under the claim.
        self.layout
            .memory
            .store(self.at + CLAIMANT, 0u64, Ordering::Release);
    }

    pub(super) fn ports_at(self) -> Offset {
        self.at + PORTS
    }

    pub(super) fn ports(self) -> Offset {
        Offset::from_raw(self.load(PORTS) & !PARTING)
    }

    /// Parts from ports that hang on a cell that nobody has bound: they go into the list of those that stay. For who has claimed it.
    ///
    /// # Crash
    /// It has ports that it parts from, in the list or not yet, or none.
    fn part(self) {
        let memory = self.layout.memory;
        let at = self.ports().raw();
        memory.store(self.at + PORTS, at | PARTING, Ordering::Release);
        memory.crash_point(PartPoint::Parting);
        self.ports_of().abandon(self.layout.abandoned_at());
        memory.crash_point(PartPoint::Parted);
        // Release: they are in the list.
        memory.store(self.at + PORTS, 0u64, Ordering::Release);
    }

    fn is_parting(self) -> bool {
        self.load(PORTS) & PARTING != 0
    }

    pub fn has_ports(self) -> bool {
        self.load(PORTS) != 0
    }

    pub fn ports_of(self) -> Ports<M> {
        Ports::at(self.layout.memory, self.ports())
    }

    /// Whether the descriptor is this job's: then its ports are written.
    fn is_described(self) -> Result<bool, PoolError> {
        let task = self.task();
        let begun = !matches!(task.status()?.state(), State::New | State::Free);
        Ok(begun && self.job().is_some_and(|job| job.at.raw() == task.job()))
    }

    /// Makes the descriptor nobody's. The job that has the root next may have its record where that of the last one stood,
    /// so the word in the descriptor does not tell them apart: that it is not free says that it is described. For who has claimed it.
    ///
    /// # Crash
    /// Nothing hangs on it, and it is described or not: whoever claims it next does this again.
    fn undescribe(self) -> Result<(), PoolError> {
        let task = self.task();
        let status = task.status()?;
        // By a store: it is over, and the claim is the right to begin its next life.
        if status.state().is_over() {
            task.set_status(status.with(State::Free));
        }
        Ok(())
    }

    /// The blocks that hang on it, but for that of long arguments.
    pub fn blocks(self) -> Result<Vec<Offset>, PoolError> {
        let abandoned = || self.ports_of().is_abandoned(self.layout.abandoned_at());
        Ok(if !self.has_ports() || self.is_parting() && abandoned() {
            Vec::new()
        } else if self.is_described()? {
            self.ports_of().blocks().collect()
        } else {
            vec![self.ports()]
        })
    }

    /// Frees what hangs on it. For the last who uses the pool, any number of times.
    pub fn dismantle(self, heap: &LocalHeap<'_, M>) -> Result<(), PoolError> {
        if self.is_parting() {
            self.part();
        }
        if self.has_ports() {
            if self.is_described()? {
                self.ports_of().clear(heap)?;
            }
            heap.free_from(self.ports_at(), 0)?;
        }
        let block = self.task().block_at();
        if self.layout.memory.load::<u64>(block, Ordering::Relaxed) != 0 {
            heap.free_from(block, 0)?;
        }
        Ok(())
    }

    /// Gives it back, if its job and its task are over and nobody can come by its ports any more. Returns whether that
    /// takes only time, or quiet moments.
    pub fn give_back_if_over(self, hand: Hand<'_, M>) -> Result<bool, PoolError> {
        let Some(job) = self.job() else {
            return Ok(false);
        };
        if job
            .root()
            .is_some_and(|root| Self::of(self.layout, root).at != self.at)
        {
            // Reserved by one who died when the job had another already.
            self.free(job);
            return Ok(false);
        }
        if !job.state().is_over() {
            return Ok(false);
        }
        // Nothing of it is followed before: another may be giving it back.
        if !self.claim(hand)? {
            return Ok(true);
        }
        let given = self.give_back_claimed(hand, job);
        self.unclaim(hand);
        given
    }

    fn give_back_claimed(self, hand: Hand<'_, M>, job: Record<M>) -> Result<bool, PoolError> {
        if self.job() != Some(job) || !job.state().is_over() {
            return Ok(false);
        }
        if self.is_parting() {
            self.part();
        }
        if self.is_described()? {
            let (task, status) = (self.task(), self.task().status()?);
            let unbegun = matches!(status.state(), State::Waiting | State::Ready);
            // It waits for what will never be there, or nobody was told that it is ready.
            if unbegun && job.state() == JobState::Failed {
                task.exchange_status(status, status.given_up());
            }
            if !task.status()?.state().is_over() {
                return Ok(false);
            }
            if self.has_ports() {
                let ports = self.ports_of();
                // One that was begun had all its inputs, which may have been removed since.
                if task.status()?.is_given_up() && ports.hang() {
                    ports.clear(hand.heap)?;
                    self.part();
                } else if !ports.can_go(self.layout.quiets()) {
                    return Ok(true);
                }
            }
        }
        if self.has_ports() {
            if self.is_described()? {
                self.ports_of().clear(hand.heap)?;
            }
            hand.heap.free_from(self.ports_at(), 0)?;
        }
        self.undescribe()?;
        self.layout
            .memory
            .store(self.at + LIFE, 0u64, Ordering::Relaxed);
        // Release: the rest, for whoever reserves it next. Still claimed: he who does so waits for that.
        self.layout
            .memory
            .store(self.at + JOB, 0u64, Ordering::Release);
        self.layout.memory.crash_point(EndPoint::GivenBack);
        Ok(false)
    }
}
