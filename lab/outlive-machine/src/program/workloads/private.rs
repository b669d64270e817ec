//! What a thread has for itself: kept by its Rust code, and accessed on the machine for the time that it takes.

use std::ops::Range;

use super::super::Cpu;

/// Words of a thread's own, from a byte address on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Private(pub(super) u64);

impl Private {
    /// Reads these words.
    #[inline]
    pub(super) fn load(self, cpu: &mut Cpu<'_>, words: Range<u64>) {
        for word in words {
            cpu.private_load(self.0 + word * 8);
        }
    }

    /// Writes these words.
    #[inline]
    pub(super) fn store(self, cpu: &mut Cpu<'_>, words: Range<u64>) {
        for word in words {
            cpu.private_store(self.0 + word * 8);
        }
    }
}
