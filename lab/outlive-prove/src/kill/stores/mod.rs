//! What the next instruction of a stopped child may store to.
//!
//! Few instructions store to the memory under test, and a look at all pages that a child has touched takes
//! longer than a step. So the instruction is decoded before it is executed, and with the child's
//! registers known, so is where it will store. What is in doubt (a system call, an instruction that the
//! decoder does not know, another processor) counts as a store to anywhere, after which
//! [all that was touched](super::touched::Touched) is looked at. Whether a store went unseen nevertheless is asked
//! [in the end](super::cases::Cases::is).

use core::ops::Range;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use elsewhere::Stores;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::Stores;

/// Where in a memory an instruction may store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Nowhere,
    /// In these of its words.
    Words(Range<usize>),
    Anywhere,
}
