//! The errors, one enum for each operation.

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
    /// The name of the call.
    pub call: &'static str,
    /// The file or device.
    pub path: PathBuf,
    /// The operating system's error.
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

/// Returns advice about an error that the environment causes, and not the call's object.
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

/// The reason why a path cannot hold a segment.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot hold a segment: {why}", path.display())]
pub struct Unsuitable {
    /// The path that cannot hold a segment.
    pub path: PathBuf,
    /// The reason, and advice.
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

/// The reason why a segment was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The requested areas are invalid.
    #[error("the requested areas are invalid: {0}")]
    Layout(#[from] LayoutError),
    /// The path exists already.
    #[error("{} exists already: {what}", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
        /// The current contents, and advice.
        what: String,
    },
    /// Another process is creating a segment there at this moment.
    #[error(
        "another process is creating a segment at {}; try again when that is done",
        path.display()
    )]
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
    /// A device, or a file that was prepared, is smaller than the requested size.
    #[error(
        "{} has {found} bytes, fewer than the {wanted} requested; request at most {found}",
        path.display()
    )]
    MediumTooSmall {
        /// The device or file.
        path: PathBuf,
        /// The requested size.
        wanted: u64,
        /// The size of the medium.
        found: u64,
    },
    /// The write-back domain was asked for.
    #[error(
        "segments in the write-back domain are not supported yet: a dead host's dirty cache lines \
         may be lost there, and the structures in a segment have not been proved for that; use the \
         flushed domain if the platform flushes caches on failure"
    )]
    WriteBackUnproven,
    /// The write-back domain was asked for and the processor has no instruction to write lines
    /// back.
    #[error(
        "the write-back domain needs a write-back instruction, and none is known for this \
         processor; use the flushed domain"
    )]
    NoWriteBack,
    /// The processor lacks an instruction that shared words need.
    #[error(transparent)]
    NoWideAtomics(#[from] NoWideAtomics),
    /// Huge pages from the system's pool were asked for and are not available.
    #[error(
        "{} cannot have reserved huge pages: {why}; {needed} pages of {page_size} bytes are needed \
         and {free} are free; reserve them as root: {}",
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

/// Returns the command that enlarges the pool of huge pages to `reserve` pages.
fn reserve_command(page_size: u64, reserve: u64) -> String {
    format!(
        "`echo {reserve} > /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages`",
        page_size >> 10
    )
}

/// The reason why a segment was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    #[error("{} cannot be opened: nothing is there; create the segment first, or check the path", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// This process may not read and write it.
    #[error("this user has no permission to open {}: {source}", path.display())]
    Denied {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path is of no kind that can hold a segment.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// The contents are not a sound segment.
    #[error("{}: {refusal}", path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// The reason, and the place of the error.
        refusal: Refusal,
    },
    /// Another process of this machine has the segment locked to create or repair it.
    #[error("{} is being created or repaired by another process; open it when that is done", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The file has pages that were never reserved (a sparse copy) and there is no space for them
    /// now.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It is of the write-back domain and the processor has no instruction to write lines back.
    #[error(
        "{} is in the write-back domain, and no write-back instruction is known for this \
         processor; use the segment on another machine",
        path.display()
    )]
    NoWriteBack {
        /// The path.
        path: PathBuf,
    },
    /// The processor lacks an instruction that shared words need.
    #[error(transparent)]
    NoWideAtomics(#[from] NoWideAtomics),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

impl OpenError {
    /// Returns the reason why the contents were refused, if this error is a refusal.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

/// The reason why a segment was not destroyed. The segment is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// It cannot be read.
    #[error("nothing was destroyed: {0}")]
    Open(#[from] OpenError),
    /// The path does not hold a segment.
    #[error("{} was not removed, since it is not a segment: {}; if you do not need it, remove it with rm", path.display(), what_else(refusal))]
    NotASegment {
        /// The path.
        path: PathBuf,
        /// The error in the contents.
        refusal: Refusal,
    },
    /// Another process changes it at the same time, or has this device open.
    #[error(
        "another process is creating or destroying the segment at {}, or has this device open; try \
         again when that process has ended",
        path.display()
    )]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The path is a symbolic link to the segment.
    #[error("{} is a symbolic link; destroy the segment by its own name, {}", path.display(), target.display())]
    Link {
        /// The path.
        path: PathBuf,
        /// The text of the link.
        target: PathBuf,
    },
    /// It has no name that could be removed.
    #[error(
        "{} has no name that could be removed; it disappears with the last process that has it \
         open",
        path.display()
    )]
    Unnamed {
        /// The path.
        path: PathBuf,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}

/// Describes contents that are not a segment, without the advice for opening them.
fn what_else(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NeverCompleted(unfinished) => unfinished.to_string(),
        other => other.to_string(),
    }
}
