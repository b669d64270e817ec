//! **Outlive**: shared memory that outlives the hosts using it.
//!
//! ```
//! use outlive::pod::{Pod, PodOptions};
//!
//! # let path = format!("/dev/shm/outlive-doc-front-{}", std::process::id());
//! # let options = PodOptions::new().size(8 << 20);
//! # {
//! let pod = Pod::open_or_create(&path, options)?; // one of several processes creates it
//! let session = pod.session()?; // joins: members now detect each other's death
//! let words = session.map::<str, u64>("words")?;
//! // If the process dies here, the word is counted once or not at all.
//! words.upsert("ash", &1, |n| n + 1)?;
//!
//! // Exactly once: after a death, the client knows the outcome of its last request.
//! let me = session.client("teller 7")?;
//! words.request(&me, 1).upsert("oak", &1, |n| n + 1)?;
//! assert!(me.last().is_some_and(|last| last.token == 1 && last.took_effect));
//! # }
//! # Pod::destroy(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Begin with [`pod::Session`] and [`objects`]; the guide is in `docs/guide`.
//!
//! The modules, from the bottom up; each uses only those before it: [`segment`], [`host`],
//! [`membership`], [`recovery`], [`sync`], [`heap`], [`structures`], [`objects`], [`supervise`],
//! [`pod`].

mod fork;
mod fork_exclusion;
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

/// The examples of the guide compile.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/quick-start.md")]
    pub struct QuickStart;
    #[doc = include_str!("../../../docs/guide/src/exactly-once.md")]
    pub struct ExactlyOnce;
    #[doc = include_str!("../../../docs/guide/src/hosts.md")]
    pub struct Hosts;
}
