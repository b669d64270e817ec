//! The work of a worker apart from running functions: it finds tasks, decides with the other
//! workers whether a job is complete or stuck, detects silent workers, and joins or leaves as the
//! pool is resized.
//!
//! * [`crew`]: a worker's role in a pool. [`worker`]: the loop around it, which runs functions.
//! * [`judge`]: the consensus of the workers that a job is complete or stuck. [`lookout`]: an idle
//!   worker's scan for tasks that wait although their inputs exist.
//! * [`frontier`]: suspects workers that do not beat. [`setback`]: pauses workers that only fail.
//! * [`load`], [`resizer`], [`turn`]: the wanted number of workers, and which of them join or
//!   leave.
//! * [`header`]: how a pool's header is published and unpublished.

pub mod crew;
pub mod frontier;
pub mod header;
pub mod judge;
pub mod load;
pub mod lookout;
pub mod resizer;
pub mod setback;
pub mod turn;
pub mod worker;
