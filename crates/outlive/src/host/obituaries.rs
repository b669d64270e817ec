//! Obituaries: taking, releasing, reading and clearing the word of an id in the side file.
//!
//! A holder writes its thread id into the word, then the data that distinguishes it from earlier
//! holders with the same thread id: the process, the start time, and last (release) the thread id
//! again. A reader begins with that last one (acquire), so it never takes the start time of one
//! holder for that of another.
//!
//! Tests: tests/host_edges.

use super::robust::{OWNER_DIED, RobustList, TID, WAITERS};
use super::side_file::{SideFile, mark_sleeper};
use super::window::Window;
use super::{Bells, Liveness, Obituary, OsError, ProcessIdentity, ThreadIdentity, futex, proc};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

/// The interval between two polls where a thread cannot wait for several words at the same time.
const POLL: Duration = Duration::from_millis(1);
/// The number of obituaries that can be watched at the same time, in addition to a wake-up futex.
pub(super) const MOST_WATCHED: usize = futex::MOST_WORDS - 1;

impl SideFile {
    /// Returns whether the thread `tid`, which holds obituary `slot`, is gone.
    pub(super) fn is_gone(&self, slot: u32, tid: u32) -> bool {
        // Acquire, paired with the holder's last store, and first: the values read after it are
        // this holder's, not its predecessor's.
        let said = self.holder(slot).load(Ordering::Acquire);
        let pid = self.holder_pid(slot).load(Ordering::Relaxed);
        let start_time = self.holder_start(slot).load(Ordering::Relaxed);
        if said != tid || start_time == 0 {
            // It had not written its other data, or its start time is not known.
            return proc::no_such_tid(tid);
        }
        let holder = ThreadIdentity {
            process: ProcessIdentity { pid, start_time: 0 },
            tid,
            start_time,
        };
        proc::liveness(holder, self.namespaces) == Liveness::Gone
    }

    /// Returns the content of a slot whose word is `word`.
    fn reading(&self, slot: u32, word: u32) -> Obituary {
        if word & OWNER_DIED != 0 {
            // Relaxed: written before the holder died, which the acquire load of the word has seen.
            let tid = self.holder(slot).load(Ordering::Relaxed);
            return Obituary::Marked { tid };
        }
        match word & TID {
            0 => Obituary::Vacant,
            tid => Obituary::Held { tid },
        }
    }

    /// Marks the words as watched, so that the kernel wakes this thread. `false` if one has
    /// changed.
    fn watch(&self, held: &[(u32, u32)]) -> bool {
        held.iter().all(|&(slot, tid)| {
            let word = self.word(slot);
            // Relaxed: this word alone decides; `obituary` reads it again.
            let seen = word.load(Ordering::Relaxed);
            seen == tid | WAITERS
                || seen == tid
                    && word
                        .compare_exchange(tid, tid | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                        .map_or_else(|seen| seen == tid | WAITERS, |_| true)
        })
    }

    /// Wakes the other watchers of those words that have changed: the kernel wakes one watcher
    /// only, and this thread may be the one that it woke.
    fn pass_on(&self, held: &[(u32, u32)]) {
        for &(slot, tid) in held {
            let word = self.word(slot);
            if word.load(Ordering::Relaxed) & !WAITERS != tid {
                futex::wake_all(word);
            }
        }
    }

    /// Without `futex_waitv`: sleeps on the futex and polls the words every millisecond.
    fn poll_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        let start = Instant::now();
        while self.read(key) == seen
            && held
                .iter()
                .all(|&(slot, tid)| self.word(slot).load(Ordering::Relaxed) & !WAITERS == tid)
        {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            self.wait(key, seen, left.min(POLL));
        }
    }

    pub(super) fn hold_obituary(
        &self,
        slot: u32,
        me: ThreadIdentity,
    ) -> Result<Result<(), Obituary>, OsError> {
        let list = RobustList::of_this_thread()?;
        let window = self.window(slot)?;
        let entry = SideFile::entry(&window, slot);
        let tid = proc::this_tid();
        let word = self.word(slot);
        // SAFETY: `entry` was made for this list's offset. Its window is unmapped only after this
        // thread has released the word, or has died and another thread has taken the word.
        match unsafe { list.hold(entry, word, tid) } {
            Ok(()) => {
                self.keep_window(slot, tid, window);

                let (pid, start) = (me.process.pid, me.start_time);
                self.holder_pid(slot).store(pid, Ordering::Relaxed);
                self.holder_start(slot).store(start, Ordering::Relaxed);
                // Only the holder writes this. If it is killed before this store, the mark has no
                // thread id, or that of an earlier holder; the word itself is marked in any case.
                self.holder(slot).store(tid, Ordering::Release);
                Ok(Ok(()))
            }
            Err(seen) => Ok(Err(self.reading(slot, seen))),
        }
    }

    pub(super) fn release_obituary(&self, slot: u32) {
        let tid = proc::this_tid();
        let word = self.word(slot);
        let list = RobustList::of_this_thread();
        // Other users of the pod can write any thread's id into the word. Whether this thread has
        // taken it is decided by private memory: the thread id that is kept with the window, and
        // this thread's list. Only a thread that has taken it walks its list, in which the program
        // may have left entries whose memory is unmapped.
        let is_ours = |window: &Window| {
            let entry = SideFile::entry(window, slot);
            list.as_ref().is_ok_and(|list| list.has(entry))
        };
        let (Some(window), Ok(list)) = (self.take_window(slot, tid, is_ours), &list) else {
            tracing::error!(
                slot,
                tid,
                "this thread was to release an obituary that it does not hold"
            );
            return;
        };
        let entry = SideFile::entry(&window, slot);
        // Relaxed: only this thread writes its own id there.
        if word.load(Ordering::Relaxed) & TID == tid {
            self.holder(slot).store(0, Ordering::Relaxed);
            self.holder_start(slot).store(0, Ordering::Relaxed);
        }
        // SAFETY: as in `hold_obituary`; the entry is in the list.
        match unsafe { list.release(entry, word, tid) } {
            Ok(old) if old & WAITERS != 0 => {
                futex::wake_all(word);
            }
            Ok(_) => {}
            Err(word) => tracing::error!(
                slot,
                tid,
                word,
                "another user of the pod has changed an obituary that this thread held"
            ),
        }
    }

    pub(super) fn obituary(&self, slot: u32) -> Obituary {
        // Acquire: a reader of the mark sees the dead thread's stores, ordered by the kernel's
        // exchange.
        let word = self.word(slot).load(Ordering::Acquire);
        self.reading(slot, word)
    }

    /// The kernel's mark contains no id, so a thread that clears it late could take the mark of a
    /// later holder for that of the first. So the holder's id is cleared first, by
    /// compare-and-swap, and only the thread that succeeds clears the word. The remaining race can
    /// hide a mark but never make one; that death is detected later, by the thread's liveness.
    pub(super) fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        let word = self.word(slot);
        let now = word.load(Ordering::Acquire);
        if self.reading(slot, now) != seen || seen == Obituary::Vacant {
            return false;
        }
        let Obituary::Marked { tid } = seen else {
            return self.clear_if_gone(slot);
        };
        let holder = self.holder(slot);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if holder.compare_exchange(tid, 0, success, failure).is_err() {
            return false;
        }
        // AcqRel: the next holder sees the clearing thread's earlier stores. The loop is for the
        // waiters bit, which a watcher may set concurrently.
        let cleared = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old & !WAITERS == now & !WAITERS).then_some(0)
        });
        if let Ok(old) = cleared
            && old & WAITERS != 0
        {
            futex::wake_all(word);
        }
        cleared.is_ok()
    }

    pub(super) fn who_holds(&self, slot: u32) -> Option<ThreadIdentity> {
        // Acquire, paired with the holder's last store: the rest is this holder's.
        let tid = self.holder(slot).load(Ordering::Acquire);
        let pid = self.holder_pid(slot).load(Ordering::Relaxed);
        let start_time = self.holder_start(slot).load(Ordering::Relaxed);
        if tid == 0 || self.obituary(slot) != (Obituary::Held { tid }) {
            return None;
        }
        let process = ProcessIdentity {
            pid,
            start_time: proc::start_time_of(pid, self.namespaces)?,
        };
        Some(ThreadIdentity {
            process,
            tid,
            start_time,
        })
    }

    /// All threads that clear an unmarked word do so under a lock. So while the lock is held, a
    /// word that is not vacant keeps its holder, dead or alive: no other thread clears it, and none
    /// takes it. Then one compare-and-swap suffices, and a death before or after it leaves nothing
    /// half done.
    pub(super) fn clear_if_gone(&self, slot: u32) -> bool {
        let held_by = |word: u32| word & TID != 0 && word & OWNER_DIED == 0;
        let word = self.word(slot);
        if !held_by(word.load(Ordering::Relaxed)) {
            return false;
        }
        let cleared = self.while_clearing(slot, || {
            // Acquire: the holder's data was written before.
            let now = word.load(Ordering::Acquire);
            let tid = now & TID;
            if !held_by(now) || !self.is_gone(slot, tid) {
                return None;
            }
            // Once the id is cleared, the recorded start time is not used. (The swap fails if the
            // kernel has marked the word and another thread has cleared it.)
            let holder = self.holder(slot);
            let _ = holder.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
            // AcqRel: the next holder sees the clearing thread's earlier stores. The loop is for
            // the waiters bit, which a watcher may set concurrently.
            let taken = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old & !WAITERS == tid).then_some(0)
            });
            taken.ok()
        });
        match cleared.flatten() {
            Some(old) => {
                if old & WAITERS != 0 {
                    futex::wake_all(word);
                }
                true
            }
            None => false,
        }
    }

    pub(super) fn wait_for_news(
        &self,
        held: &[(u32, u32)],
        key: u64,
        seen: u32,
        timeout: Duration,
    ) {
        assert!(
            held.len() <= MOST_WATCHED,
            "{} obituaries cannot be watched at the same time",
            held.len()
        );
        if !futex::can_wait_any() {
            return self.poll_for_news(held, key, seen, timeout);
        }
        let bell = self.bell(key);
        if self.watch(held)
            && let Some(value) = mark_sleeper(bell, seen)
        {
            let mut waiters = [futex::Waiter::NONE; futex::MOST_WORDS];
            waiters[0] = futex::Waiter::new(bell, value);
            for (waiter, &(slot, tid)) in waiters[1..].iter_mut().zip(held) {
                *waiter = futex::Waiter::new(self.word(slot), tid | WAITERS);
            }
            futex::wait_any(&waiters[..=held.len()], timeout);
        }
        self.pass_on(held);
    }

    pub(super) fn wake_watchers(&self, slot: u32) {
        futex::wake_all(self.word(slot));
    }
}
