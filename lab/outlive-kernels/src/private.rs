//! Private data of a thread: its Rust code holds the values, and the machine is accessed only for
//! the timing.

use std::ops::Range;

use outlive_machine::program::Cpu;

/// A thread's private words, from a byte address on.
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
