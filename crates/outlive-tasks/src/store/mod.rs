//! The state of a pool in the segment, apart from its workers' slots: names and their data, jobs,
//! staging slots, deaths.
//!
//! * [`layout`]: the offsets of all parts of a pool.
//! * [`names`]: cells, which are bound once; the tasks that wait for them. [`staging`]: staging
//!   slots, by which members without a worker put data into the pool.
//! * [`jobs`]: records by name, from submission to their end; roots of open jobs.
//! * [`task_ports`]: the inputs and outputs of a task. [`crashes`]: the deaths of workers in tasks.

pub mod band;
pub mod crashes;
pub mod failure;
pub mod jobs;
pub mod layout;
pub mod names;
pub mod staging;
pub mod task_ports;
pub mod trigger;
