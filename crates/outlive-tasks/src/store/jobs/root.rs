//! Roots: the descriptors that a pool keeps for the first tasks of its open jobs.
//!
//! ```text
//! 0x00  the descriptor of the task
//! 0x80  job       the record of the job that it is reserved for, or 0
//! 0x88  claimant  the instance that describes it or gives it back, or was the last to do so
//! 0x90  ports     of the task, or 0 | PARTING
//! 0x98  life      the number of the descriptor's life that is the job's, plus one; 0 at first
//! ```
//!
//! A root is reserved by the thread that [opens](super::advance) a job, and described under a
//! claim.
//!
//! A root is given back when its job and its task are over and its ports are no longer reachable.
//! This is done under a claim, too, so the next claimant continues after a death. The job's word is
//! cleared last: then the root is free for another job, and leads to no block.
//!
//! Ports that hang on an unbound cell can never be freed. The root *parts* from them: it flags the
//! word that leads to them, adds them to the pool's list of abandoned ports, and clears it. After a
//! death in between, the next claimant continues; adding them takes effect once.

use super::{EndPoint, JobState, Record};
use crate::store::layout::{Hand, Layout};
use crate::store::names::Ports;
use crate::{PoolError, State, Task};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of the move of a root's ports, which cannot be freed, to the abandoned
    /// ones.
    pub enum PartPoint for "tasks.part" {
        /// The root's word has the flag.
        Parting,
        /// The ports are in the list; the root still leads to them.
        Parted,
    }
}

const JOB: u64 = 0x80;
const CLAIMANT: u64 = 0x88;
const PORTS: u64 = 0x90;
const LIFE: u64 = 0x98;

/// In the word of a root's ports: they are about to be in the list of abandoned ports, or are.
const PARTING: u64 = 1;

/// The root of an open job: a descriptor and its additional words.
#[derive(Clone, Copy, Debug)]
pub struct Root<M: Memory = Native> {
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

    /// Returns the job that the root is reserved for.
    pub fn job(self) -> Option<Record<M>> {
        self.record_at(self.load(JOB))
    }

    /// Returns the record that the word `job` leads to. A damaged word leads to none.
    fn record_at(self, job: u64) -> Option<Record<M>> {
        let memory = self.layout.memory;
        let job = Offset::checked(job, Record::<M>::LEAST_BYTES, 8, memory.size()).ok();
        let job = job.filter(|job| !job.is_null());
        job.map(|job| Record::at(memory, job))
    }

    /// Returns the description of the damage if the word of its job is damaged.
    pub fn damage(self) -> Option<String> {
        let job = self.load(JOB);
        (job != 0 && self.record_at(job).is_none()).then(|| {
            format!(
                "the root at {} is reserved for a job at {job:#x}, where no job can be",
                self.at
            )
        })
    }

    /// Returns the root task, which is described if [`life`](Self::life) is not 0.
    pub fn task(self) -> Task<M> {
        Task::new(self.layout.memory, self.at)
    }

    /// Returns the number of the descriptor's life in which it is the job's root task, plus 1.
    /// Returns 0 before the task is described.
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

    /// Takes back its reservation for this job.
    pub(super) fn free(self, job: Record<M>) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let _ =
            self.layout
                .memory
                .compare_exchange(self.at + JOB, job.at.raw(), 0, order.0, order.1);
    }

    /// Claims the right to describe it or to give it back, if the claim is free or that of a dead
    /// and settled member.
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

    /// Returns the current or last claimant; 0 if there was none.
    pub fn claimant(self) -> u64 {
        self.load(CLAIMANT)
    }

    pub(super) fn unclaim(self, _hand: Hand<'_, M>) {
        // Release: all that was done under the claim.
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

    /// Parts from ports that hang on an unbound cell: moves them to the list of abandoned ports.
    /// Called by the claimant.
    ///
    /// # Crash
    /// The root has flagged ports, in the list or not yet, or none.
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

    /// Returns whether the descriptor is this job's. Then its ports are written.
    fn is_described(self) -> Result<bool, PoolError> {
        let task = self.task();
        let begun = !matches!(task.status()?.state(), State::New | State::Free);
        Ok(begun && self.job().is_some_and(|job| job.at.raw() == task.job()))
    }

    /// Frees the descriptor. The next job's record may be at the offset of the last one's, so the
    /// word in the descriptor does not tell the two apart. Only a descriptor that is not free is
    /// described. Called by the claimant.
    ///
    /// # Crash
    /// The root leads to no block, and is described or not. The next claimant does this again.
    fn undescribe(self) -> Result<(), PoolError> {
        let task = self.task();
        let status = task.status()?;
        // By a store: the task is over, and the claim is the right to begin its next life.
        if status.state().is_over() {
            task.set_status(status.with(State::Free));
        }
        Ok(())
    }

    /// Returns the blocks that the root leads to, except that of long arguments.
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

    /// Frees the blocks that the root leads to. Called by the last user of the pool. Can be
    /// repeated.
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

    /// Gives the root back, if its job and its task are over and its ports are no longer reachable.
    /// Returns whether the root becomes free by time or quiet moments alone.
    pub fn give_back_if_over(self, hand: Hand<'_, M>) -> Result<bool, PoolError> {
        let Some(job) = self.job() else {
            return Ok(false);
        };
        let is_another =
            |root| root >= self.layout.roots || Self::of(self.layout, root).at != self.at;
        if job.root().is_some_and(is_another) {
            // Reserved by a thread that died when the job had another root already.
            self.free(job);
            return Ok(false);
        }
        if !job.state().is_over() {
            return Ok(false);
        }
        // Its words are followed only under the claim: another thread may be giving it back.
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
            // It waits for data that will never exist, or no worker was notified that it is ready.
            if unbegun && job.state() == JobState::Failed {
                task.exchange_status(status, status.given_up());
            }
            if !task.status()?.state().is_over() {
                return Ok(false);
            }
            if self.has_ports() {
                let ports = self.ports_of();
                // A task that was begun had all its inputs, which may have been removed since.
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
        // Release: the rest, for the next thread that reserves it. That thread waits for the claim,
        // which is still held.
        self.layout
            .memory
            .store(self.at + JOB, 0u64, Ordering::Release);
        self.layout.memory.crash_point(EndPoint::GivenBack);
        Ok(false)
    }
}
