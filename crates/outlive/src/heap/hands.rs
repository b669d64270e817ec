//! The hands of a member that has no use for what is in them any more.

use super::buddy::FreeError;
use super::{LocalHeap, room};
use crate::recovery::OwnLog;
use outlive_memory::{Memory, Ordering};

impl<M: Memory> LocalHeap<'_, M> {
    /// Whether the member is in the middle of nothing: it has no operation running, whose handler would say what
    /// its hands are about, and is at no step. A panic may have led out of either.
    pub(crate) fn is_idle(&self) -> bool {
        let member = self.member();
        let at_rest = match OwnLog::of(member).log().operation() {
            Ok(last) => last.is_none_or(|last| last.instance != self.instance() || last.is_done()),
            Err(_) => false,
        };
        // Relaxed: the member's own word.
        at_rest && self.memory().load::<u64>(self.step_at(), Ordering::Relaxed) == 0
    }

    /// Frees what is in the member's hands, unless it is in the middle of something: then that is settled by
    /// its recovery, for it cannot leave.
    pub(super) fn empty_hands(&self) {
        if (0..room::HANDS).any(|number| self.holds(number)) && self.is_idle() {
            let full = (0..room::HANDS).filter(|&number| self.holds(number));
            full.for_each(|number| self.empty_hand(number));
        }
    }

    fn holds(&self, number: u64) -> bool {
        // Relaxed: the member's own word.
        self.memory()
            .load::<u64>(self.hand(number), Ordering::Relaxed)
            != 0
    }

    fn empty_hand(&self, number: u64) {
        let (memory, hand) = (self.memory(), self.hand(number));
        match self.free_from(hand, 0) {
            Ok(_) => {}
            // It holds no block, whatever it holds.
            Err(
                FreeError::Outside { .. }
                | FreeError::NotAllocated { .. }
                | FreeError::Inside { .. }
                | FreeError::CellEmpty { .. },
            ) => {
                memory.store(hand, 0u64, Ordering::Relaxed);
                memory.persist(hand, 8);
            }
            // The block is the caller's still. Whoever has the log next finds it there.
            Err(_) => {}
        }
    }
}
