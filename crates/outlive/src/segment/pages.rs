//! What pages a segment is mapped with.

use super::backend::{Backend, BackendKind};
use super::mapping::Mapping;
use super::space::{HUGETLBFS_MAGIC, filesystem};
use core::fmt;
use outlive_memory::Native;

/// What pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// Those that come.
    #[default]
    Off,
    /// Transparent huge pages where the kernel gives them (for shared memory it does if
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` or the mount's `huge=` allow it); small ones
    /// otherwise. [`Segment::pages`](super::Segment::pages) says what came.
    Transparent,
    /// Pages from the system's pool, which an administrator has filled: for `memfd:NAME`. (A file on a
    /// hugetlbfs mount has them always.)
    Reserved,
}

/// What pages a segment is mapped with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// No others were asked for than those that come.
    Default,
    /// Transparent huge pages were asked for.
    Transparent {
        /// How many bytes were mapped by huge pages when the segment had been prefaulted (0 if it was not:
        /// the kernel may give them as pages are touched).
        huge_bytes: u64,
    },
    /// Transparent huge pages were asked for and the kernel gives none; small ones are used.
    Refused {
        /// What it said.
        why: String,
    },
    /// All pages are huge ones from the system's pool.
    Reserved {
        /// Their size in bytes.
        size: u64,
    },
    /// A device's memory, mapped in units as the device has them.
    Device {
        /// The unit in bytes.
        unit: u64,
    },
}

impl HugePages {
    /// Whether to ask for transparent huge pages; memory that comes in larger units has no use for them.
    pub(super) fn are_transparent_on(self, backend: &dyn Backend) -> bool {
        self == Self::Transparent && backend.granule() == Native::GRANULE
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default pages"),
            Self::Transparent { huge_bytes } => {
                write!(f, "transparent huge pages ({huge_bytes} bytes mapped so)")
            }
            Self::Refused { why } => write!(f, "small pages (huge ones refused: {why})"),
            Self::Reserved { size } => write!(f, "reserved huge pages of {size} bytes"),
            Self::Device { unit } => write!(f, "device memory in units of {unit} bytes"),
        }
    }
}

impl Pages {
    /// What pages the mapping has by its medium, before any are gathered into larger ones. Asks for
    /// transparent ones if they are wanted.
    pub(super) fn of(backend: &dyn Backend, mapping: &Mapping, transparent: bool) -> Self {
        let size = backend.granule();
        let pooled = backend.kind() == BackendKind::Memfd && size > Native::GRANULE
            || filesystem(backend.file()) == Ok(HUGETLBFS_MAGIC);
        if pooled {
            return Self::Reserved { size };
        }
        match backend.kind() {
            BackendKind::DaxDevice | BackendKind::PciBar => Self::Device { unit: size },
            _ if transparent => match mapping.advise_huge() {
                Ok(()) => Self::Transparent { huge_bytes: 0 },
                Err(error) => Self::Refused {
                    why: format!("madvise(MADV_HUGEPAGE): {error}"),
                },
            },
            _ => Self::Default,
        }
    }

    /// What has become of the pages now that they are there; small ones are gathered if need be.
    pub(super) fn after_prefault(self, mapping: &Mapping, prefaulted: bool) -> Self {
        let Self::Transparent { .. } = self else {
            return self;
        };
        if !prefaulted {
            return self;
        }
        // Pages that were reserved before they were mapped are small unless the mount says otherwise.
        let collapsed = match mapping.huge_bytes() {
            0 => mapping.collapse(),
            _ => Ok(()),
        };
        match (mapping.huge_bytes(), collapsed) {
            (0, Err(error)) => Self::Refused {
                why: format!("madvise(MADV_COLLAPSE): {error}"),
            },
            (huge_bytes, _) => Self::Transparent { huge_bytes },
        }
    }
}
