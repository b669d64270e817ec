//! What the rooms above owe an instance: a log opened when it comes, closed when it goes, and finished
//! for it when it dies.

use super::{Generations, Member, Status};
use core::any::Any;
use outlive_memory::Native;

/// What the rooms above do for instances, as membership calls for it.
///
/// Membership knows nothing of logs; it only sees to it that every incarnation begins with one of its own,
/// and that what a dead one had begun is finished by somebody who lives.
pub trait Obligations: Any + Send + Sync {
    /// Prepares `member`, which has just joined, before it does anything: finishes what its id's previous
    /// incarnation left behind, or waits for whoever lives and does, and opens its log.
    ///
    /// # Errors
    /// If that is impossible; the member leaves again.
    fn begin(&self, member: &Member) -> Result<(), String>;

    /// Settles `member`, which is about to leave. `false` if it still holds something: then it does not
    /// leave but counts as dead, and what it holds is recovered.
    fn end(&self, member: &Member) -> bool;

    /// Finishes what the dead have left behind, acting as `member`, where nobody else does.
    fn recover(&self, member: &Member);
}

/// For a membership without logs: there is nothing to finish.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingHeld;

impl Obligations for NothingHeld {
    fn begin(&self, _member: &Member) -> Result<(), String> {
        Ok(())
    }

    fn end(&self, _member: &Member) -> bool {
        true
    }

    fn recover(&self, member: &Member) {
        let generations: Generations<Native> = member.generations();
        for id in 0..generations.capacity() {
            if let Ok(state) = generations.state(id)
                && state.status == Status::Dead
            {
                let recovered = super::State {
                    status: Status::Recovered,
                    ..state
                };
                generations.transition(id, state, recovered);
            }
        }
    }
}
