//! The words to which the next instruction of a stopped child may store.
//!
//! Few instructions store to the memory under test, and reading all pages that a child has touched
//! takes longer than a step. So the instruction is decoded before it is executed, and the child's
//! registers tell where it will store. A doubtful case (a system call, an instruction that the
//! decoder does not know, another processor) counts as a store to anywhere, after which [all
//! touched pages](super::touched::Touched) are compared. [At the end](super::cases::Cases::is) the
//! whole memory is compared, to find a store that was missed.

use core::ops::Range;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use elsewhere::Stores;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::Stores;

/// The words of a memory to which an instruction may store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Nowhere,
    /// Only to these of its words.
    Words(Range<usize>),
    Anywhere,
}
