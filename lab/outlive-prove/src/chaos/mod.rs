//! Chaos: a pod does real work while its processes and hosts are killed, stopped, fenced and restarted;
//! at the end nothing is lost, nothing happened twice, nothing leaked.
//!
//! Workers are processes on several hosts (groups of processes of this machine), each with one member
//! thread, all under ids of their own. They count under recoverable locks, allocate and free large and small
//! blocks, and insert, replace, exchange and remove entries of a map. Each
//! writes into the program's part of its own log what it is about to do (its *intent*), does it, and then
//! enters into its *tally* whether it took effect. A worker that is killed in between is restarted under
//! the same ids by a supervisor of the library; its next incarnation finds the intent, *asks* whether it
//! took effect (the descriptor of the operation says so, or the cell into which a block was to be
//! allocated, or the value under the mutex), and goes on. So the tallies of all workers are exact, and in the end the pod must hold what they
//! add up to.
//!
//! What took effect can be seen in two ways wherever possible (each counter also keeps, for each worker,
//! its last intent that was carried out under the lock, and some keys are changed by one worker only); whoever asks compares them.
//!
//! The kills follow from a seed; what they hit does not, since processes run as they like. A worker dies
//! of SIGKILL and of nothing else: one that panics, ends by another signal or with a status that says it failed
//! is a failure of the run, and is told with its status. What the run must catch are [`Broken`] workers: those
//! that forget to ask, and others.
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

/// The environment variable that tells a worker how many there are.
const WORKERS: &str = "OUTLIVE_CHAOS_WORKERS";
/// The environment variable that tells a worker where the stage is.
const STAGE: &str = "OUTLIVE_CHAOS_STAGE";
/// The environment variable that tells a worker what its work follows from.
const SEED: &str = "OUTLIVE_CHAOS_SEED";
/// The environment variable that makes a worker a broken one.
const BROKEN: &str = "OUTLIVE_CHAOS_BROKEN";
