//! Chaos: a pod does real work while its processes and hosts are killed, stopped, fenced and
//! restarted. At the end nothing is lost, nothing happened twice, nothing leaked.
//!
//! Workers are processes on several hosts (groups of processes of this machine), each with one
//! member thread, all under ids of their own. They count under recoverable locks, allocate and free
//! large and small blocks, and insert, replace, exchange and remove entries of a map. Before each
//! operation a worker writes its *intent* into the program's part of its own log; after the
//! operation it records in its *tally* whether the operation took effect. A worker that is killed
//! in between is restarted under the same ids by a supervisor of the library. Its next incarnation
//! finds the intent, *asks* whether it took effect (the operation's descriptor tells, or the cell
//! for the allocated block, or the value under the mutex), and continues. So the tallies of all
//! workers are exact, and at the end the pod must hold their sum.
//!
//! Where possible an effect can be seen in two ways, and the worker that asks compares them: each
//! counter also keeps, for each worker, the last intent carried out under the lock, and some keys
//! are changed by one worker only.
//!
//! The kills follow from a seed; the operations that they interrupt do not, since the processes run
//! freely. A worker dies of SIGKILL only: one that panics, ends by another signal or exits with a
//! failure status is a failure of the run, and is reported with its status. [`Broken`] workers,
//! which forget to ask or misbehave otherwise, must make a run fail.
//!
//! ```text
//!  driver (host 0, not killed): supervisor, killer, audit
//!  hosts 1 to H: workers  ->  locks, counters, blocks and map in the heap; tallies in their logs
//! ```

mod audit;
mod blocks;
mod broken;
mod counters;
mod driver;
mod entries;
mod killer;
mod ledger;
mod stage;
mod worker;

pub use broken::Broken;
pub use driver::{Options, Progress, Report, run};
pub use killer::Kill;
pub use worker::work;

/// The environment variable with the number of workers.
const WORKERS: &str = "OUTLIVE_CHAOS_WORKERS";
/// The environment variable that holds the process id of the driver.
const PARENT: &str = "OUTLIVE_CHAOS_PARENT";
/// The environment variable with the offset of the [`stage::Stage`].
const STAGE: &str = "OUTLIVE_CHAOS_STAGE";
/// The environment variable with the seed of a worker's operations.
const SEED: &str = "OUTLIVE_CHAOS_SEED";
/// The environment variable that names the way in which a worker is [`Broken`].
const BROKEN: &str = "OUTLIVE_CHAOS_BROKEN";
