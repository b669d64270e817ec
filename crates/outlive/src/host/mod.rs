//! What the operating system offers, behind one trait with a scripted double.

mod bells;
mod os;

pub use bells::Bells;
pub use os::{
    Killed, Liveness, Obituary, Os, OsError, OsIdentity, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
