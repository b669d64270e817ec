//! **Outlive**: shared memory that outlives the hosts using it.
//!
//! The modules, from the bottom up; each uses only those before it: [`segment`], [`host`],
//! [`membership`], [`recovery`], [`sync`], [`heap`], [`structures`], [`objects`], [`supervise`],
//! [`pod`].

mod fork;
pub mod heap;
pub mod host;
pub mod membership;
pub mod objects;
pub mod pod;
pub mod recovery;
pub mod segment;
pub mod structures;
pub mod supervise;
pub mod sync;

pub use outlive_memory as memory;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
