//! The entries of servers in the configuration.

use crate::verbs::{Region, ServerId};
use core::fmt;
use outlive::membership::Instance;

/// The state of a memory server's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No server has this number. If the entry has an owner, a server is joining or leaving, or a
    /// survivor is recovering the entry.
    Free = 0,
    /// The segment is being created.
    Creating = 1,
    /// The server can be used.
    Live = 2,
    /// The server is not live any more, and its segment is being removed.
    Leaving = 3,
    /// The server has died, and a survivor is recovering its entry.
    Dying = 4,
    /// The server has died.
    Dead = 5,
}

impl Phase {
    pub(super) fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Free,
            Self::Creating,
            Self::Live,
            Self::Leaving,
            Self::Dying,
            Self::Dead,
        ];
        all.into_iter().find(|phase| *phase as u8 == code)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "not in use",
            Self::Creating => "creating",
            Self::Live => "live",
            Self::Leaving => "leaving",
            Self::Dying => "dying",
            Self::Dead => "dead",
        })
    }
}

/// A memory server as the configuration describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The server's number.
    pub id: ServerId,
    /// The number of servers that have had this number, including this one.
    pub incarnation: u64,
    /// The state of the entry.
    pub phase: Phase,
    /// The process that is the server, or a survivor that recovers the entry.
    pub owner: Option<Instance>,
    /// The server's region; meaningless before the server is live.
    pub region: Region,
}

/// The result of a recovery of a dead instance's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a recovery may be incomplete"]
pub struct Recovery {
    /// The number of memory servers that were declared dead.
    pub dead: usize,
    /// Whether all logs are recovered. If not, the recovery must be executed again.
    pub is_complete: bool,
}

/// A compute server as the configuration describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeEntry {
    /// The process id of the compute server.
    pub id: u16,
    /// The process that has the id, or had it when it failed.
    pub owner: Instance,
    /// Whether the compute server has failed.
    pub has_failed: bool,
}
