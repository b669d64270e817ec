//! The membership of a process in a pool, and the lock of its entries.
//!
//! Two kinds of threads act as the instance of a member: its recovery thread, which claims the
//! entries of dead members for it, and the threads of its clients. An owner word names the instance
//! only, so a compare-and-swap excludes members from one another, but not these threads. They hold
//! one lock while they claim, hide or release entries. No thread waits for another process while it
//! holds the lock.

use super::Pool;
use crate::coherent::{Line, Run, Unfinished};
use outlive::membership::{Instance, Process};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The lock of a member's entries.
#[derive(Debug, Default)]
pub(super) struct Entries {
    held: Mutex<Held>,
    owner: OnceLock<Instance>,
}

/// The state of a member's entries, which the lock protects.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The runs without access that the member owns, and that it could not release yet.
    pub remaining: Vec<Run>,
    /// The moves of this member that are not finished.
    pub moves: Vec<Unfinished>,
    /// The lines of dead readers whose replicas could not be made equal yet.
    pub lines: Vec<Line>,
    /// The member leaves, and its recovery thread claims nothing any more.
    pub is_closed: bool,
}

impl Entries {
    pub fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the instance of the member.
    pub fn belong_to(&self, member: Instance) {
        let _ = self.owner.set(member);
    }

    /// Returns the instance of the member. Until it is set, the member has no other thread than
    /// `only`, whose instance is returned.
    pub fn owner(&self, only: Instance) -> Instance {
        self.owner.get().copied().unwrap_or(only)
    }
}

/// The membership of a process in a pool, which its clients and its server share.
#[derive(Debug)]
pub(super) struct Joined {
    pub pool: Pool,
    pub process: Process,
    /// Held while this process allocates, keeps, frees, recovers or leaves.
    pub entries: Arc<Entries>,
}

impl Joined {
    /// Releases the freed memory of this member that no reader uses any more, the lines of dead
    /// readers, and the mappings of lost servers.
    pub fn collect(&self, held: &mut Held) {
        self.finish_lines(held);
        if self.finish_moves(held) && self.pool.recover_departed(held, &self.process) {
            self.finish_moves(held);
        }
        // The announcements of a dead reader remain if a program without the pool's handler has
        // recovered its log.
        if self.release_remaining(held) && self.pool.recover_departed(held, &self.process) {
            self.release_remaining(held);
        }
        self.pool.close_lost();
    }

    /// Recovers the entries of departed members, and frees the memory of destroyed objects. Returns
    /// whether there were any.
    pub fn recover(&self, held: &mut Held) -> bool {
        let mut has_recovered = self.pool.recover_departed(held, &self.process);
        for address in self.pool.unheld() {
            let coherent = self.pool.coherent();
            // Another member may have begun to free it.
            if let Ok(run) = coherent.begin_free_object(self.process.instance(), address) {
                held.remaining.push(run);
                has_recovered = true;
            }
        }
        if has_recovered {
            self.finish_moves(held);
            self.release_remaining(held);
        }
        has_recovered
    }

    /// Releases the lines of dead readers that this member could not release yet.
    fn finish_lines(&self, held: &mut Held) {
        let _mapped = self.pool.inner.here.hold();
        let own = self.process.instance();
        held.lines.retain(|line| {
            let finished = { self.pool.coherent() }.finish_line(own, *line, &self.pool);
            if let Err(error) = &finished {
                tracing::warn!(%error, "the replicas of a dead writer are not equal yet; the next collection retries");
            }
            finished.is_err()
        });
    }

    /// Finishes the moves whose old frame no reader uses any more, and those that were cancelled.
    /// Returns whether dead readers use one.
    pub(super) fn finish_moves(&self, held: &mut Held) -> bool {
        let _mapped = self.pool.inner.here.hold();
        let (own, coherent) = (self.process.instance(), self.pool.coherent());
        let generations = self.process.tables().generations();
        let mut has_dead_reader = false;
        held.moves.retain_mut(|unfinished| {
            match coherent.finish_move(own, unfinished, &self.pool) {
                Ok(true) => return false,
                Ok(false) => {
                    has_dead_reader |= unfinished.readers().any(|it| generations.is_gone(it));
                }
                Err(error) => {
                    tracing::warn!(%error, "a frame of a move is not released; retrying later");
                }
            }
            true
        });
        has_dead_reader
    }

    /// Releases the remaining runs that no reader uses. Returns whether dead readers use one.
    fn release_remaining(&self, held: &mut Held) -> bool {
        let _mapped = self.pool.inner.here.hold();
        let own = self.process.instance();
        let generations = self.process.tables().generations();
        let mut has_dead_user = false;
        held.remaining.retain(|run| {
            let coherent = self.pool.coherent();
            match coherent.release_unless_used(own, *run, &self.pool) {
                Ok(None) => return false,
                Ok(Some(user)) => has_dead_user |= generations.is_gone(user),
                Err(error) => tracing::warn!(%error, "freed memory is released later"),
            }
            true
        });
        has_dead_user
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // No reader of this process exists any more. The same steps as those of a survivor. The
        // process leaves after this body, and its recovery thread runs until then.
        let own = self.process.instance();
        let mut held = self.entries.lock();
        if let Err(error) = self.pool.recover(&mut held, own, own) {
            tracing::warn!(%error, "allocations of a client remain, and are freed later");
        }
        held.is_closed = true;
        self.pool.inner.here.remove(own);
        self.pool.close_lost();
    }
}
