//! The obligations of the layers above to an instance: its log is opened when it joins, closed when
//! it leaves, and finished by a survivor when it dies.

use super::{Generations, Member, Status};
use core::any::Any;
use outlive_memory::Native;

/// The services of the layers above that membership calls for an instance.
///
/// Membership does not know the format of logs. It only makes sure that every incarnation begins
/// with a log of its own, and that a live member finishes the operations of a dead one.
pub trait Obligations: Any + Send + Sync {
    /// Prepares `member`, which has just joined, before it does anything: finishes the operations
    /// of its id's previous incarnation, or waits for the live member that does, and opens its log.
    ///
    /// # Errors
    /// Fails if that is impossible; the member leaves again.
    fn begin(&self, member: &Member) -> Result<(), String>;

    /// Settles `member`, which is about to leave. Returns `false` if it still holds something: then
    /// it does not leave but counts as dead, and is recovered.
    fn end(&self, member: &Member) -> bool;

    /// Finishes the operations of dead members that no other member recovers, acting as `member`.
    fn recover(&self, member: &Member);
}

/// The obligations for a membership without logs: no step is needed when an instance joins, leaves
/// or dies.
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
