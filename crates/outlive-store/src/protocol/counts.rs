//! The numbers of events in transactions: those of a worker, and the totals of a store.

use bytemuck::{Pod, Zeroable};

/// The numbers of events in the transactions of a worker, or of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Counts {
    /// Transactions that were committed.
    pub committed: u64,
    /// Attempts that ended because an object was latched by another transaction.
    pub latched: u64,
    /// Attempts that ended because an object had changed since it was read.
    pub changed: u64,
    /// Attempts that ended because an object changed while it was read.
    pub torn: u64,
    /// Attempts that the program aborted.
    pub user: u64,
    /// Attempts that ended because a memory server was lost or replaced, or a connection broke.
    pub interrupted: u64,
    /// Latches of failed compute servers that were stolen.
    pub stolen: u64,
    /// Accesses that waited for the recovery of a latch's holder.
    pub stalled: u64,
    /// Reads that ignored the latch of a failed compute server.
    pub passed: u64,
}

impl Counts {
    /// The number of different events.
    pub const EVENTS: usize = size_of::<Self>() / size_of::<u64>();

    /// Returns the numbers in the order of the fields.
    pub fn to_words(self) -> [u64; Self::EVENTS] {
        bytemuck::cast(self)
    }

    /// Returns the counts in words that [`to_words`](Self::to_words) returned.
    pub fn from_words(words: [u64; Self::EVENTS]) -> Self {
        bytemuck::cast(words)
    }

    /// Returns the numbers of events since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let (now, before) = (self.to_words(), before.to_words());
        Self::from_words(core::array::from_fn(|it| now[it].wrapping_sub(before[it])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_events() {
        let counts = Counts::from_words(core::array::from_fn(|it| it as u64 + 10));
        assert_eq!((counts.committed, counts.passed), (10, 18));
        let before = Counts {
            latched: 4,
            ..Counts::default()
        };
        let change = counts.since(before);
        assert_eq!((change.committed, change.latched), (10, 7));
        assert_eq!(Counts::from_words(change.to_words()), change);
    }
}
