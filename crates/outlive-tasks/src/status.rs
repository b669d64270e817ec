//! The status of a task: the word that alone decides who runs it.
//!
//! ```text
//!  63            24 23     16 15     4 3    0
//!  |  sequence    | attempt |  runner | state |
//! ```
//!
//! Entries of deques, running slots and chains are ways to find a task. Whoever has found one looks here. So an entry
//! may be stale or double: it leads to a task that is not [`Ready`](State::Ready) any more, or to one that is ready
//! again in another life of the descriptor, which anybody may run.
//!
//! # Who may change it
//!
//! | state | what it means | who leaves it, and how |
//! | --- | --- | --- |
//! | `Free`, `Done`, `Failed` | nobody's | the owner of the descriptor's slot, by a store: `New` |
//! | `New` | child of a task that has not been committed | who holds the parent, by a store: `Ready` or `Waiting` |
//! | `Waiting` | for inputs | whoever has the last of them, by compare-and-swap: `Ready` |
//! | `Ready` | to be run | whoever finds it, by compare-and-swap: `Running` |
//! | `Running` | a worker runs it | the runner, by a store; if that is dead, anybody, by compare-and-swap |
//! | `Committing` | it has taken effect, which is being published | as `Running` |
//! | `Failing` | it has failed, which is being published | as `Running` |
//!
//! # Tenures
//!
//! A *tenure* is the time in which one worker holds a task that runs, commits or fails. Sequence and attempt are different
//! in any two tenures of one descriptor: a new life raises the sequence, and whoever takes over or runs again
//! raises the attempt. So a compare-and-swap that takes over replaces the very tenure whose holder was found dead, even
//! if the slot of the holder has a new owner by now: had that one taken over, the attempt would be another one. And
//! so the holder needs no compare-and-swap to leave these states.
//!
//! (A task whose attempts are used up is not run again. Only commits and failures go on beyond: their
//! attempts begin again from 0. Two of 256 equal ones would have to meet within the sleep of one taker.)

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// No task yet.
    Free = 0,
    /// The child of a task that has not been committed.
    New = 1,
    /// It waits for inputs.
    Waiting = 2,
    /// Anybody may run it.
    Ready = 3,
    /// Somebody runs it.
    Running = 4,
    /// It has taken effect, and that is being published.
    Committing = 5,
    /// It has failed, and that is being published.
    Failing = 6,
    /// It has taken effect.
    Done = 7,
    /// It has failed.
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

    /// Whether the state belongs to a runner.
    #[inline(always)]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Running | Self::Committing | Self::Failing)
    }

    /// Whether the descriptor can have another life.
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
    /// The last attempt that there is.
    pub const LAST_ATTEMPT: u8 = u8::MAX;

    /// The status in a word from shared memory; `None` if its state is none.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & 0xF < State::ALL.len() as u64 {
            Some(Self(word))
        } else {
            None
        }
    }

    /// The word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The state.
    #[inline(always)]
    pub const fn state(self) -> State {
        // In range: `from_word` is the only way in.
        State::ALL[(self.0 & 0xF) as usize]
    }

    /// The slot of who runs it, commits it or publishes its failure; of who did so last.
    #[inline(always)]
    pub const fn runner(self) -> u32 {
        (self.0 >> RUNNER) as u32 & 0xFFF
    }

    /// How often it was begun before.
    #[inline(always)]
    pub const fn attempt(self) -> u8 {
        (self.0 >> ATTEMPT) as u8
    }

    /// How many lives the descriptor has had.
    #[inline(always)]
    pub const fn sequence(self) -> u64 {
        self.0 >> SEQUENCE
    }

    /// The same in another state.
    #[inline(always)]
    pub const fn with(self, state: State) -> Self {
        Self(self.0 & !0xF | state as u64)
    }

    /// The first status of the descriptor's next life.
    #[inline(always)]
    pub const fn next_life(self, state: State) -> Self {
        Self((self.0 >> SEQUENCE).wrapping_add(1) << SEQUENCE | state as u64)
    }

    /// A ready task's, run by the worker of `slot`.
    #[inline(always)]
    pub const fn started_by(self, slot: u32) -> Self {
        let kept = self.0 & !(0xFFF << RUNNER | 0xF);
        Self(kept | (slot as u64 & 0xFFF) << RUNNER | State::Running as u64)
    }

    /// That of a held task whose holder is dead, held by the worker of `slot`: with another attempt. `None` for a running
    /// one that has no attempts left: see [`exhausted_by`](Self::exhausted_by).
    #[inline(always)]
    pub const fn taken_over_by(self, slot: u32) -> Option<Self> {
        let last = self.attempt() == Self::LAST_ATTEMPT;
        if last && matches!(self.state(), State::Running) {
            return None;
        }
        Some(self.held_by(slot, self.state()))
    }

    /// That of a running task whose holder is dead, and which is not run again.
    #[inline(always)]
    pub const fn exhausted_by(self, slot: u32) -> Self {
        self.held_by(slot, State::Failing)
    }

    /// That of a task which is over though it was never begun, because its job failed.
    pub const fn given_up(self) -> Self {
        Self(self.0 & !0xF | 0xFFF << RUNNER | State::Failed as u64)
    }

    /// Whether the task is over and was never begun: no slot has that number.
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
