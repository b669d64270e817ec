//! Runs programs on hosts that may be killed at any instruction.
//!
//! A run has a *driver*, which creates a pod and starts *hosts*, each a process tree of its own.
//! Each of their processes has worker threads, which do tasks that any worker may do. Hosts may be
//! killed at any instruction: committed work is kept, uncommitted work is re-executed, and the
//! result is that of a run without failures.
//!
//! * [`driver`] is the driver, which also kills hosts on request. [`host`] is the work of the
//!   hosts' processes. Neither knows the program: it is a [`driver::Program`] to one and a
//!   [`host::Work`] to the other. [`crew`] is the set of working processes, and [`header`] is the
//!   beginning of every run in the pod.
//! * [`on_tasks`] runs programs of tasks on a driver.
//! * [`input`] finds the files that a run reads, and opens each of them once.
//!
//! The seven programs of `outlive run` are in the crate `outlive-programs`.

pub mod blocks;
pub mod crew;
pub mod driver;
pub mod header;
pub mod host;
pub mod input;
pub mod on_tasks;
pub mod random;
pub mod size;
