//! Core dumps, which delay the detection of a death.

use super::OsError;
use super::futex::last_error;
use core::fmt;

/// The core dump that the kernel would write if this process died by a fault or an abort.
///
/// The kernel writes the dump before it marks an obituary: with a gigabyte of private memory this
/// takes seconds. So joining offers to switch dumps off. (SIGKILL never causes a dump.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreDumps {
    /// No dump.
    Off,
    /// A file of at most `limit` bytes (`None`: of any size).
    File {
        /// The limit in bytes.
        limit: Option<u64>,
    },
    /// A dump to `handler` (a program, or a socket), whatever the size limit is.
    Handled {
        /// The handler, as in `/proc/sys/kernel/core_pattern`.
        handler: String,
    },
}

/// The only limit that also prevents a dump to a handler program. It is below the smallest file
/// dump, too.
const NEITHER: u64 = 1;

impl CoreDumps {
    /// Returns the current setting of this process.
    pub fn of_this_process() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core).current;
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let pattern = pattern.trim();
        if pattern.starts_with('@') || pattern.starts_with('|') && limit != Some(NEITHER) {
            return Self::Handled {
                handler: pattern.to_owned(),
            };
        }
        match limit {
            Some(bytes) if pattern.starts_with('|') || bytes < 4096 => Self::Off,
            limit => Self::File { limit },
        }
    }

    /// Switches dumps off for this process and its future children. The process stays debuggable.
    ///
    /// # Errors
    /// If the limit cannot be set. No limit prevents dumps to a socket: check
    /// [`of_this_process`](Self::of_this_process) afterwards.
    pub fn switch_off() -> Result<(), OsError> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is valid for the calls.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) != 0 {
                return Err(last_error("getrlimit of core dumps"));
            }
            limit.rlim_cur = NEITHER.min(limit.rlim_max);
            if libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) != 0 {
                return Err(last_error("setrlimit of core dumps"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for CoreDumps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::File { limit: None } => f.write_str("to a file of any size"),
            Self::File { limit: Some(limit) } => write!(f, "to a file of up to {limit} bytes"),
            Self::Handled { handler } => write!(f, "to {handler}"),
        }
    }
}
