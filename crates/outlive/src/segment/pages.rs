//! The pages that a segment is mapped with.

use super::backend::Backend;
use super::error::{CreateError, Unsuitable};
use super::mapping::Mapping;
use super::space::Places;
use core::fmt;
use outlive_memory::Native;
use std::path::Path;

/// The kind of pages to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// The default pages.
    #[default]
    Off,
    /// Transparent huge pages where the kernel gives them (for shared memory it does if
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` or the mount's `huge=` allow it); small
    /// ones otherwise. [`Segment::pages`](super::Segment::pages) returns the outcome.
    Transparent,
    /// Pages from the system's pool, which an administrator has filled: for `memfd:NAME` and for a
    /// file on a hugetlbfs mount (which has them always). Creation is refused if the pool has too
    /// few of them, and on any other memory.
    Reserved,
}

/// The kind of pages that a segment is mapped with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// The default pages; no other pages were requested.
    Default,
    /// Transparent huge pages were requested.
    Transparent {
        /// The number of bytes that were mapped by huge pages when the segment had been prefaulted
        /// (0 if it was not: the kernel may give them as pages are touched).
        huge_bytes: u64,
    },
    /// Transparent huge pages were requested and the kernel gives none; small ones are used.
    Refused {
        /// The kernel's reason.
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
    /// Returns whether to ask for transparent huge pages; memory that comes in larger units has no
    /// use for them.
    pub(super) fn are_transparent_on(self, backend: &dyn Backend) -> bool {
        self == Self::Transparent && backend.granule() == Native::GRANULE
    }
}

/// Refuses a segment of `bytes` bytes that requests reserved huge pages and would not get them.
pub(super) fn require_reserved(
    backend: &dyn Backend,
    path: &Path,
    bytes: u64,
    places: &Places,
) -> Result<(), CreateError> {
    if backend.is_device() {
        let why = "a device has pages of its own sizes; do not request reserved huge pages on it";
        return Err(Unsuitable::new(path, why).into());
    }
    if !is_pooled(backend) {
        let why = "it is not on a hugetlbfs filesystem (`mount -t hugetlbfs none /mnt/huge`, and \
                   name a file there)";
        return Err(no_huge_pages(
            path,
            why.into(),
            bytes,
            default_size(places),
            places,
        ));
    }
    let pool = Pool::read(backend.granule(), places);
    if pool.free < bytes.div_ceil(backend.granule()) {
        let why = "the system's pool of huge pages is too small".into();
        return Err(no_huge_pages(path, why, bytes, backend.granule(), places));
    }
    Ok(())
}

/// Returns the error for a segment of `bytes` bytes that gets no pages of `size` bytes from the
/// pool.
fn no_huge_pages(
    path: &Path,
    why: String,
    bytes: u64,
    page_size: u64,
    places: &Places,
) -> CreateError {
    let pool = Pool::read(page_size, places);
    let needed = bytes.div_ceil(page_size);
    CreateError::NoHugePages {
        path: path.into(),
        why,
        needed,
        free: pool.free,
        page_size,
        reserve: pool.reserved + needed.saturating_sub(pool.free),
    }
}

/// Returns the size of the huge pages of a mount or memfd that names no size.
fn default_size(places: &Places) -> u64 {
    places.meminfo("Hugepagesize").unwrap_or(2 << 20)
}

/// Returns whether the pages of the memory come from the system's pool of huge pages.
fn is_pooled(backend: &dyn Backend) -> bool {
    !backend.is_device() && backend.granule() > Native::GRANULE
}

/// The system's pool of huge pages of one size, in pages.
struct Pool {
    /// The pages that an administrator has reserved.
    reserved: u64,
    /// The pages that a new mapping can have.
    free: u64,
}

impl Pool {
    fn read(page_size: u64, places: &Places) -> Self {
        let directory = format!("sys/kernel/mm/hugepages/hugepages-{}kB", page_size >> 10);
        let number = |name: &str| -> u64 {
            let text = std::fs::read_to_string(places.at(&directory).join(name));
            text.ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        // The kernel allocates surplus pages on demand, up to the overcommit limit.
        let surplus = number("nr_overcommit_hugepages").saturating_sub(number("surplus_hugepages"));
        let free = number("free_hugepages").saturating_sub(number("resv_hugepages"));
        Self {
            reserved: number("nr_hugepages"),
            free: free + surplus,
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default pages"),
            Self::Transparent { huge_bytes } => {
                write!(
                    f,
                    "transparent huge pages ({huge_bytes} bytes in huge pages)"
                )
            }
            Self::Refused { why } => write!(f, "small pages (huge ones refused: {why})"),
            Self::Reserved { size } => write!(f, "reserved huge pages of {size} bytes"),
            Self::Device { unit } => write!(f, "device memory in units of {unit} bytes"),
        }
    }
}

impl Pages {
    /// Returns the pages that the mapping has by its medium, before any are collapsed into larger
    /// ones. Requests transparent ones if `transparent`.
    pub(super) fn of(backend: &dyn Backend, mapping: &Mapping, transparent: bool) -> Self {
        let size = backend.granule();
        if is_pooled(backend) {
            return Self::Reserved { size };
        }
        if backend.is_device() {
            return Self::Device { unit: size };
        }
        if !transparent {
            return Self::Default;
        }
        match mapping.advise_huge() {
            Ok(()) => Self::Transparent { huge_bytes: 0 },
            Err(error) => Self::Refused {
                why: format!("madvise(MADV_HUGEPAGE): {error}"),
            },
        }
    }

    /// Returns the pages after prefaulting; collapses small ones if there are no huge ones.
    pub(super) fn after_prefault(self, mapping: &Mapping, prefaulted: bool) -> Self {
        let Self::Transparent { .. } = self else {
            return self;
        };
        if !prefaulted {
            return self;
        }
        // Pages that were reserved before they were mapped are small unless the mount says
        // otherwise.
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
