//! The memory that every algorithm of Outlive is written over.
//!
//! An algorithm of Outlive never holds a pointer into shared memory. It holds a [`Memory`], a small
//! `Copy` handle, and names words in it by [`Offset`]. This indirection has two benefits.
//!
//! * **Position independence.** A segment is mapped where each process likes; nothing in it depends
//!   on the place (an offset names a segment by number too, so that a pod can grow).
//! * **Proof.** The same lines of code run on [`Native`] memory, where an access is one
//!   instruction, and on the memories of `outlive-prove`, where any access may be its thread's
//!   last, where threads interleave at every access under a model weaker than x86's, and where
//!   caches are lost.
//!
//! ```
//! use outlive_memory::{Memory, Native, Offset, PersistenceDomain, Ordering};
//!
//! # let memory = Native::leaked(4096, PersistenceDomain::Flushed);
//! fn next_ticket<M: Memory>(memory: M, counter: Offset) -> u64 {
//!     memory.fetch_add(counter, 1u64, Ordering::Relaxed)
//! }
//! assert_eq!(next_ticket(memory, Offset::new(64)), 0);
//! assert_eq!(next_ticket(memory, Offset::new(64)), 1);
//! ```
//!
//! The modules: [`memory`](Memory) declares the operations on shared memory, [`native`](Native)
//! implements them, [`segments`](Segments) finds the memory of other segments than the first,
//! [`offset`](Offset) and [`relative`](RelativePtr) name places in it,
//! [`persist`](PersistenceDomain) says which stores survive the loss of a host's caches,
//! [`crash_point`](CrashPoint) names the steps of an operation at which proofs kill it.

mod crash_point;
mod memory;
mod native;
mod offset;
mod persist;
mod relative;
mod segments;
mod word;

pub use core::sync::atomic::Ordering;
pub use crash_point::CrashPoint;
pub use memory::Memory;
pub use native::{Native, NoWideAtomics};
pub use offset::{Link, Offset, OffsetOutOfRange, Ptr, SegmentNumber};
pub use persist::{PersistenceDomain, WriteBackInstruction};
pub use relative::{AtomicRelativePtr, RelativePtr};
pub use segments::{AttachError, Attached, SegmentError, Segments};
pub use word::Word;
