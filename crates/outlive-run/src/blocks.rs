//! A member's access to the large blocks of a pod's heap.

use outlive::heap::buddy::{AllocateError, Buddy, FreeError};
use outlive::membership::Member;
use outlive::memory::{Memory, Native, Offset};
use outlive::recovery::Recoverers;

/// A member's access to large blocks.
#[derive(Debug)]
pub struct Blocks<'m, M: Memory = Native> {
    /// The allocator.
    pub buddy: Buddy<M>,
    /// The allocating member.
    pub member: &'m Member<M>,
    /// The recovery functions for dead members.
    pub recoverers: &'m Recoverers<M>,
}

impl<M: Memory> Clone for Blocks<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Memory> Copy for Blocks<'_, M> {}

impl<M: Memory> Blocks<'_, M> {
    /// Calls [`Buddy::allocate_into`].
    ///
    /// # Errors
    /// Returns the errors of that function.
    pub fn allocate_into(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        self.buddy
            .allocate_into(self.member, self.recoverers, bytes, cell)
    }

    /// Calls [`Buddy::free_from`].
    ///
    /// # Errors
    /// Returns the errors of that function.
    pub fn free_from(&self, cell: Offset) -> Result<Offset, FreeError> {
        self.buddy.free_from(self.member, self.recoverers, cell)
    }
}
