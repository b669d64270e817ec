//! Starting again what failed: threads by a control thread, processes by a control process, and the
//! control process by the operating system's service manager (LUPIN §3.4).
//!
//! Membership tells who died, and recovery sees to what the dead held; this room brings them back, under
//! the same ids and as the next generations.
//!
//! * [`ThreadSupervisor`] runs bodies on threads of a process.
//! * [`ProcessSupervisor`] runs programs on the hosts of a pod, and finds other hosts for those whose
//!   host failed.
//! * [`RestartPolicy`] says how often and how soon, and when to give up.
//!
//! A supervisor holds nothing in the pod and keeps nothing there. All that it decides follows from
//! the table of generations, which outlives it; so it may be killed at any instruction, and the next one, which
//! `docs/systemd/outlive-supervisor.service` shows how to have started, goes on from what it finds. It is
//! woken by the pod's events but never relies on having heard one.

mod place;
mod plan;
mod policy;
mod processes;
mod report;
mod stop;
mod threads;

pub use place::{
    Launch, Launched, Lost, NoPlace, Place, Placement, Survivor, ThisMachine, fewest, home,
};
pub use policy::{RestartPolicy, Restarts, Verdict};
pub use processes::{Child, ProcessSupervisor};
pub use report::{Failure, GaveUp, Outlook, Report, What};
pub use stop::Stop;
pub use threads::{Attempt, Outcome, ThreadSupervisor};
