//! The reorder buffer: instructions that a core has begun and not retired.

use std::collections::VecDeque;

use super::misses::PENDING;

/// The kind of the instructions of a [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Compute,
    Load,
    Store,
}

/// Consecutive instructions of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The tick at which they are done, or [`PENDING`].
    pub done: u64,
    pub count: u32,
    pub kind: Kind,
}

/// Groups in program order, each with a number that rises by one.
#[derive(Clone, Debug)]
pub(super) struct ReorderBuffer {
    groups: VecDeque<Group>,
    /// The number of the first group.
    first: u64,
    instructions: u32,
    size: u32,
    /// The tick at which the last instruction retired.
    pub retired: u64,
}

impl ReorderBuffer {
    pub fn new(size: u32) -> ReorderBuffer {
        ReorderBuffer {
            groups: VecDeque::with_capacity(size as usize),
            first: 0,
            instructions: 0,
            size,
            retired: 0,
        }
    }

    /// Returns the number of further instructions that fit.
    #[inline]
    pub fn free(&self) -> u32 {
        self.size - self.instructions
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number that the next group gets.
    #[inline]
    pub fn next(&self) -> u64 {
        self.first + self.groups.len() as u64
    }

    #[inline]
    pub fn push(&mut self, group: Group) {
        self.instructions += group.count;
        self.groups.push_back(group);
    }

    /// Sets the end of the waiting group with this number to tick `done`.
    #[inline]
    pub fn finish(&mut self, number: u64, done: u64) {
        self.groups[(number - self.first) as usize].done = done;
    }

    /// Returns the oldest group and the tick at which it can retire, if that is known.
    #[inline]
    pub fn front(&self) -> Option<(Group, u64)> {
        let group = *self.groups.front()?;
        let at = group.done.max(self.retired + u64::from(group.count));
        (group.done != PENDING).then_some((group, at))
    }

    /// Retires the oldest group at this tick.
    #[inline]
    pub fn pop(&mut self, at: u64) {
        if let Some(group) = self.groups.pop_front() {
            self.instructions -= group.count;
            self.first += 1;
            self.retired = at;
        }
    }
}
