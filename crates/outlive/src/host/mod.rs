//! The services of the operating system, behind one trait with a scripted double.

mod bells;
mod calls;
mod capabilities;
mod cgroup;
mod cord;
mod core_dumps;
mod fence_command;
mod futex;
mod kept;
mod last_words;
mod linux;
mod obituaries;
mod observed;
mod os;
mod presence;
mod proc;
mod process;
mod reported;
mod robust;
mod scripted;
mod service;
mod side_file;
mod side_file_header;
mod side_file_name;
mod side_file_open;
mod surroundings;
mod user_ids;
mod window;

pub use bells::Bells;
pub(crate) use bells::Gathered;
pub use capabilities::{Capabilities, Capability};
pub use cgroup::Cgroup;
pub use cord::CordEntry;
pub use core_dumps::CoreDumps;
pub use fence_command::{FenceError, run_fence_command};
pub(crate) use last_words::end_this_process;
pub use linux::Linux;
pub use observed::ObservedOs;
pub use os::{
    Killed, Liveness, Obituary, Os, OsError, OsIdentity, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
pub use presence::{PodFile, Presence};
pub use scripted::{Scripted, ScriptedOs};
pub(crate) use service::{spawn as spawn_service, take_program_signals};
pub(crate) use side_file_header::{MEETING, bytes as side_file_bytes};
pub use side_file_name::SideFileEntry;
pub use side_file_open::Access;
