//! Restarts failures: of threads by a control thread, of processes by a control process, and of the
//! control process by the operating system's service manager (LUPIN §3.4).
//!
//! Membership reports deaths, and recovery settles the state of dead members; this module starts
//! them again, under the same ids and as the next generations.
//!
//! * [`ThreadSupervisor`] runs bodies on threads of a process.
//! * [`ProcessSupervisor`] runs programs on the hosts of a pod, and moves them to other hosts when
//!   their host has failed.
//! * [`RestartPolicy`] limits the number and delay of restarts.
//!
//! A supervisor holds nothing in the pod and keeps nothing there. All its decisions follow from the
//! table of generations, which outlives it. So it may be killed at any instruction, and its
//! successor (`docs/systemd/outlive-supervisor.service` shows how to have one started) continues
//! from that table. It is woken by the pod's events but never relies on having received one.

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
