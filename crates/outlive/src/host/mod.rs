//! What the operating system offers, behind one trait with a scripted double.

mod bells;
mod fence_command;
mod futex;
mod linux;
mod os;
mod proc;
mod process;
mod robust;
mod scripted;
mod side_file;

pub use bells::Bells;
pub use fence_command::{FenceError, run_fence_command};
pub use linux::Linux;
pub use os::{
    Killed, Liveness, Obituary, Os, OsError, OsIdentity, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
pub use scripted::{Scripted, ScriptedOs};
pub use side_file::{Access, SideFileEntry};
