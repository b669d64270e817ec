//! What can go wrong, one enum for each operation.

use super::area::LayoutError;
use super::space::NoRoom;
use super::superblock::Refusal;
use outlive_memory::NoWideAtomics;
use std::io;
use std::path::{Path, PathBuf};

/// A call to the operating system that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} failed for {}: {source}{}", path.display(), hint(source))]
pub struct CallFailed {
    /// What was attempted.
    pub call: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl CallFailed {
    pub(super) fn new(call: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self {
            call,
            path: path.into(),
            source: source.into(),
        }
    }
}

/// Returns what to do about an error whose cause is the environment and not the call's object.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "; `outlive doctor` says which calls the filter of a container (seccomp) refuses"
        }
        Some(libc::EMFILE) => "; raise the limit on open descriptors (RLIMIT_NOFILE, `ulimit -n`)",
        Some(libc::EBADF) => {
            "; the program has closed a descriptor of Outlive: close only descriptors that you have opened"
        }
        Some(libc::EROFS) => "; remount that filesystem for writing (`mount -o remount,rw`)",
        _ => "",
    }
}

/// Why a path cannot hold a segment.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot hold a segment: {why}", path.display())]
pub struct Unsuitable {
    /// The path.
    pub path: PathBuf,
    /// What is wrong with it, and what to do.
    pub why: String,
}

impl Unsuitable {
    pub(super) fn new(path: &Path, why: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            why: why.into(),
        }
    }
}

/// Why a segment was not created. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The areas asked for make no segment.
    #[error("no segment can have these areas: {0}")]
    Layout(#[from] LayoutError),
    /// Something is there already.
    #[error("{} exists already: {what}", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
        /// What is there, and what to do.
        what: String,
    },
    /// Somebody is creating a segment there at this moment.
    #[error("another process is creating a segment at {}", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The path is of no kind that can hold a segment.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// There is not enough memory or space for its pages.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A device, or a file that was prepared, is smaller than what was asked for.
    #[error("{} has {found} bytes, fewer than the {wanted} asked for", path.display())]
    MediumTooSmall {
        /// The device or file.
        path: PathBuf,
        /// The size asked for.
        wanted: u64,
        /// The size there is.
        found: u64,
    },
    /// The write-back domain was asked for.
    #[error(
        "a segment in the write-back domain is not created yet: under it a dead host's dirty cache \
         lines may be lost, and what would live in the segment has not been explored for that; \
         use the flushed domain if the platform flushes caches on failure"
    )]
    WriteBackUnproven,
    /// The write-back domain was asked for and the processor has no instruction to write lines back.
    #[error(
        "no write-back instruction is known for this processor: the write-back domain needs one"
    )]
    NoWriteBack,
    /// The processor lacks what shared words need.
    #[error(transparent)]
    NoWideAtomics(#[from] NoWideAtomics),
    /// Huge pages from the system's pool were asked for and are not available.
    #[error(
        "{} gets no reserved huge pages: {why}; {needed} pages of {page_size} bytes are needed and \
         {free} are free; reserve them as root: {}",
        path.display(), reserve_command(*page_size, *reserve)
    )]
    NoHugePages {
        /// The segment.
        path: PathBuf,
        /// The cause.
        why: String,
        /// The number of pages that the segment needs.
        needed: u64,
        /// The number of pages that the pool has free.
        free: u64,
        /// The size of such a page in bytes.
        page_size: u64,
        /// The size of the pool, in pages, at which the segment fits.
        reserve: u64,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

/// The command that enlarges the pool of huge pages to `reserve` pages.
fn reserve_command(page_size: u64, reserve: u64) -> String {
    format!(
        "`echo {reserve} > /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages`",
        page_size >> 10
    )
}

/// Why a segment was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("there is no segment at {}: nothing is there; create it first, or check the path", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// This process may not read and write it.
    #[error("{} may not be read and written by this user: {source}", path.display())]
    Denied {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The path is of no kind that can hold a segment.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// What is there is not followed.
    #[error("{}: {refusal}", path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// What is wrong, and where.
        refusal: Refusal,
    },
    /// Another process of this machine has the segment locked to create or repair it.
    #[error("{} is being created or repaired by another process; open it when that is done", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The file has pages that were never reserved (a sparse copy) and there is no room for them now.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It is of the write-back domain and the processor has no instruction to write lines back.
    #[error("{} is in the write-back domain and no write-back instruction is known for this processor", path.display())]
    NoWriteBack {
        /// The path.
        path: PathBuf,
    },
    /// The processor lacks what shared words need.
    #[error(transparent)]
    NoWideAtomics(#[from] NoWideAtomics),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

impl OpenError {
    /// Why the bytes at the path were not followed, if that is what happened.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

/// Why a segment was not destroyed. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// It cannot be looked at.
    #[error("nothing was destroyed: {0}")]
    Open(#[from] OpenError),
    /// What is there is not a segment.
    #[error("{} was not removed, since it is not a segment: {}; if you do not need it, remove it with rm", path.display(), what_else(refusal))]
    NotASegment {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        refusal: Refusal,
    },
    /// Somebody changed it at the same time.
    #[error("another process is creating or destroying the segment at {}", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// It has no name that could be removed.
    #[error("{} goes away with the last process that holds it; there is nothing to remove", path.display())]
    Unnamed {
        /// The path.
        path: PathBuf,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

/// What is there that is not a segment, without the advice to whoever opens it.
fn what_else(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NeverCompleted(unfinished) => unfinished.to_string(),
        other => other.to_string(),
    }
}
