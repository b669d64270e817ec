//! An access to memory, without its types: what the engine and the models speak of.

use outlive_memory::Ordering;

/// What an access does with its word. Numbers are in the low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Load,
    Store(u128),
    Exchange(u128),
    /// Writes `new` if `expected` stands there.
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
    /// What a read-modify-write makes of `was`; `None` if it leaves it (a compare that failed, a load).
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

    /// Whether it may write.
    pub(crate) fn writes(&self) -> bool {
        self.act != Act::Load
    }

    /// Panics as the methods of `core::sync::atomic` do.
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
                "there is no such access as {:?} with {:?}",
                self.act, self.order
            ));
        }
        Ok(())
    }
}

/// What an access found, and whether a compare-and-swap was made.
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
