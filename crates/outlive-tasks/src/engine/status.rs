//! The status of a task: the only word that decides which worker runs it.
//!
//! ```text
//!  63            24 23     16 15     4 3    0
//!  |  sequence    | attempt |  runner | state |
//! ```
//!
//! Entries of deques, running slots and chains lead to a task; a worker that has found one checks
//! its status here. So an entry may be stale or duplicate: its task is no longer
//! [`Ready`](State::Ready), or is ready in another life of the descriptor, and any worker may run
//! it then.
//!
//! # Transitions
//!
//! | state | meaning | left by |
//! | --- | --- | --- |
//! | `Free`, `Done`, `Failed` | no task | the owner of the descriptor's slot, by a store: `New` |
//! | `New` | child of an uncommitted task | the parent's holder, by a store: `Ready` or `Waiting` |
//! | `Waiting` | for inputs | the thread with the last of them, by compare-and-swap: `Ready` |
//! | `Ready` | to be run | any worker that finds it, by compare-and-swap: `Running` |
//! | `Running` | a worker runs it | the runner, by a store; if it is dead, any worker, by CAS |
//! | `Committing` | its effects are being published | as `Running` |
//! | `Failing` | its failure is being published | as `Running` |
//!
//! (`New` turns to `Free` if the attempt fails or dies; `Waiting`, and `Ready` for a root, to
//! `Failed` if the job has failed; `Ready` to `Waiting` if a commit has no space to push the task.)
//!
//! # Tenures
//!
//! A *tenure* is the time in which one worker holds a task that runs, commits or fails. No two
//! tenures of one descriptor have the same sequence and attempt: a new life raises the sequence,
//! and a takeover or retry raises the attempt. So a takeover's compare-and-swap replaces exactly
//! the tenure whose holder was found dead, even if the holder's slot has a new owner by then, whose
//! takeover would have changed the attempt. For the same reason the holder leaves these states by a
//! plain store.
//!
//! (A task without attempts left is not re-executed. Only the attempts of commits and failures wrap
//! around to 0. Two equal tenures would need 256 takeovers while one worker sleeps in a takeover.)

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// The descriptor holds no task.
    Free = 0,
    /// The child of a task that has not been committed.
    New = 1,
    /// The task waits for inputs.
    Waiting = 2,
    /// Any worker may run the task.
    Ready = 3,
    /// A worker runs the task.
    Running = 4,
    /// The task has taken effect, and a worker is publishing its effects.
    Committing = 5,
    /// The task has failed, and a worker is reporting the failure to its job.
    Failing = 6,
    /// The task has taken effect, and its effects are published.
    Done = 7,
    /// The task has failed and its job has been notified, or its job had failed before the task
    /// began.
    Failed = 8,
}

impl State {
    const ALL: [Self; 9] = [
        Self::Free,
        Self::New,
        Self::Waiting,
        Self::Ready,
        Self::Running,
        Self::Committing,
        Self::Failing,
        Self::Done,
        Self::Failed,
    ];

    /// Returns whether a worker holds a task in this state.
    #[inline(always)]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Running | Self::Committing | Self::Failing)
    }

    /// Returns whether the descriptor can have another life.
    #[inline(always)]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Free | Self::Done | Self::Failed)
    }
}

const RUNNER: u32 = 4;
const ATTEMPT: u32 = 16;
const SEQUENCE: u32 = 24;

/// The status of a task, in one word.
///
/// ```
/// use outlive_tasks::{State, Status};
/// let ready = Status::default().next_life(State::Ready);
/// let running = ready.started_by(7);
/// assert_eq!((running.state(), running.runner(), running.attempt()), (State::Running, 7, 0));
/// assert_eq!(running.taken_over_by(8).unwrap().attempt(), 1);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Status(u64);

impl Status {
    /// The number of the last attempt.
    pub const LAST_ATTEMPT: u8 = u8::MAX;

    /// Returns the status in a word from shared memory; `None` if its state is invalid.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & 0xF < State::ALL.len() as u64 {
            Some(Self(word))
        } else {
            None
        }
    }

    /// Returns the word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the state.
    #[inline(always)]
    pub const fn state(self) -> State {
        // In range: `from_word` is the only constructor from a word.
        State::ALL[(self.0 & 0xF) as usize]
    }

    /// Returns the slot of the worker that holds the task, or that held it last.
    #[inline(always)]
    pub const fn runner(self) -> u32 {
        (self.0 >> RUNNER) as u32 & 0xFFF
    }

    /// Returns the number of earlier attempts.
    #[inline(always)]
    pub const fn attempt(self) -> u8 {
        (self.0 >> ATTEMPT) as u8
    }

    /// Returns the number of lives that the descriptor has had.
    #[inline(always)]
    pub const fn sequence(self) -> u64 {
        self.0 >> SEQUENCE
    }

    /// Returns the same status in another state.
    #[inline(always)]
    pub const fn with(self, state: State) -> Self {
        Self(self.0 & !0xF | state as u64)
    }

    /// Returns the first status of the descriptor's next life.
    #[inline(always)]
    pub const fn next_life(self, state: State) -> Self {
        Self((self.0 >> SEQUENCE).wrapping_add(1) << SEQUENCE | state as u64)
    }

    /// Returns the status of a ready task that the worker of `slot` has started.
    #[inline(always)]
    pub const fn started_by(self, slot: u32) -> Self {
        let kept = self.0 & !(0xFFF << RUNNER | 0xF);
        Self(kept | (slot as u64 & 0xFFF) << RUNNER | State::Running as u64)
    }

    /// Returns the status of a held task after the worker of `slot` took it over from its dead
    /// holder, as another attempt. `None` for a running task without attempts left: see
    /// [`exhausted_by`](Self::exhausted_by).
    #[inline(always)]
    pub const fn taken_over_by(self, slot: u32) -> Option<Self> {
        let last = self.attempt() == Self::LAST_ATTEMPT;
        if last && matches!(self.state(), State::Running) {
            return None;
        }
        Some(self.held_by(slot, self.state()))
    }

    /// Returns the status of a running task, taken over from its dead holder, that is not
    /// re-executed.
    #[inline(always)]
    pub const fn exhausted_by(self, slot: u32) -> Self {
        self.held_by(slot, State::Failing)
    }

    /// Returns the status of a task that is over and was never begun, because its job failed.
    pub const fn given_up(self) -> Self {
        Self(self.0 & !0xF | 0xFFF << RUNNER | State::Failed as u64)
    }

    /// Returns whether the task is over and was never begun: no slot has this number.
    pub const fn is_given_up(self) -> bool {
        matches!(self.state(), State::Failed) && self.runner() == 0xFFF
    }

    const fn held_by(self, slot: u32, state: State) -> Self {
        let attempt = self.attempt().wrapping_add(1) as u64;
        let sequence = self.0 >> SEQUENCE << SEQUENCE;
        Self(sequence | attempt << ATTEMPT | (slot as u64 & 0xFFF) << RUNNER | state as u64)
    }
}

impl core::fmt::Debug for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{:?}, life {}, attempt {}, slot {}",
            self.state(),
            self.sequence(),
            self.attempt(),
            self.runner()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_a_status_come_back(word: u64, slot in 0u32..4096) {
            let Some(status) = Status::from_word(word) else {
                prop_assert!(word & 0xF > 8);
                return Ok(());
            };
            prop_assert_eq!(status.to_word(), word);
            let started = status.started_by(slot);
            prop_assert_eq!(started.state(), State::Running);
            prop_assert_eq!((started.sequence(), started.attempt(), started.runner()),
                (status.sequence(), status.attempt(), slot));
            let next = status.next_life(State::New);
            prop_assert_eq!((next.state(), next.attempt()), (State::New, 0));
            prop_assert_eq!(next.sequence(), (status.sequence() + 1) & ((1 << 40) - 1));
        }

        #[test]
        fn no_two_tenures_are_equal(word: u64, slot in 0u32..4096) {
            let word = word & !0xF | State::Running as u64;
            let running = Status::from_word(word).unwrap();
            match running.taken_over_by(slot) {
                Some(next) => {
                    prop_assert_eq!(next.attempt(), running.attempt() + 1);
                    prop_assert_eq!((next.runner(), next.sequence()), (slot, running.sequence()));
                }
                None => prop_assert_eq!(running.attempt(), Status::LAST_ATTEMPT),
            }
            let committing = running.with(State::Committing).taken_over_by(slot).unwrap();
            prop_assert!(committing.attempt() != running.attempt());
            prop_assert_eq!(running.exhausted_by(slot).state(), State::Failing);
        }
    }
}
