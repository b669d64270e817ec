//! An untyped access to memory, the common terms of the engine and the models.

use outlive_memory::Ordering;

/// The operation of an access on its word. Numbers are in the low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Load,
    Store(u128),
    Exchange(u128),
    /// Writes `new` if the word is `expected`.
    CompareExchange {
        expected: u128,
        new: u128,
        failure: Ordering,
    },
    /// Wrapping at the word's size.
    Add(u128),
    And(u128),
    Or(u128),
}

/// One access of one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) act: Act,
    pub(crate) at: u64,
    pub(crate) size: u8,
    pub(crate) order: Ordering,
}

impl Access {
    /// Returns the value that a read-modify-write replaces `was` by; `None` if it writes nothing (a
    /// failed comparison, a load).
    pub(crate) fn replaces(&self, was: u128) -> Option<u128> {
        let mask = u128::MAX >> (128 - 8 * u32::from(self.size));
        match self.act {
            Act::Load => None,
            Act::Store(value) | Act::Exchange(value) => Some(value),
            Act::CompareExchange { expected, new, .. } => (was == expected).then_some(new),
            Act::Add(value) => Some(was.wrapping_add(value) & mask),
            Act::And(value) => Some(was & value),
            Act::Or(value) => Some(was | value),
        }
    }

    /// Returns whether it may write.
    pub(crate) fn writes(&self) -> bool {
        self.act != Act::Load
    }

    /// Checks the orderings for which the methods of `core::sync::atomic` panic.
    pub(crate) fn check_order(&self) -> Result<(), String> {
        let wrong = match self.act {
            Act::Load => matches!(self.order, Ordering::Release | Ordering::AcqRel),
            Act::Store(_) => matches!(self.order, Ordering::Acquire | Ordering::AcqRel),
            Act::CompareExchange { failure, .. } => {
                matches!(failure, Ordering::Release | Ordering::AcqRel)
            }
            _ => false,
        };
        if wrong {
            return Err(format!(
                "the access {:?} cannot have the ordering {:?}",
                self.act, self.order
            ));
        }
        Ok(())
    }
}

/// The value that an access found, and whether a compare-and-swap succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) value: u128,
    pub(crate) swapped: bool,
}

pub(crate) fn acquires(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst
    )
}

pub(crate) fn releases(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Release | Ordering::AcqRel | Ordering::SeqCst
    )
}
