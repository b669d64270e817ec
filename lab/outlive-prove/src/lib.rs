//! Proofs for code that must survive the death of the process that runs it.
//!
//! * [`kill`]: a child runs an operation and dies after its n-th instruction, for every n.
//! * [`schedule`]: threads interleave at every access, under a memory model weaker than x86's, and
//!   any access may be a thread's last.
//! * [`chaos`]: a pod does real work while its processes and hosts are killed; every operation is
//!   accounted for.
//! * [`explore`]: a host dies and its caches with it; every set of lines that may be lost is lost.

pub mod chaos;
pub mod explore;
pub mod kill;
mod panics;
mod parallel;
pub mod proof;
pub mod schedule;
pub mod weakened;

pub use parallel::{Event, in_lanes};
