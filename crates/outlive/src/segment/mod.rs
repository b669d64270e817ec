//! One mapped region of shared memory: backends, superblock, areas, typed roots.
//!
//! A [`Segment`] is created once, with a fixed size, and opened by any process that may access it.
//! Its [`Superblock`] describes it, it is divided into [`Area`]s, and its [`Roots`] name the
//! structures in it by name and type. This module does not know which members are alive.
//!
//! ```
//! use outlive::segment::{AreaKind, AreaSize, Segment};
//!
//! let segment = Segment::builder()
//!     .size(1 << 20)
//!     .area(AreaKind::Generations, 4096u64)
//!     .area(AreaKind::Payload, AreaSize::Rest)
//!     .create("memfd:example")?;
//! // Another caller, in any process of this user:
//! let same = Segment::open(segment.path())?;
//! assert_eq!(same.uuid(), segment.uuid());
//! assert_eq!(same.area(AreaKind::Payload), segment.area(AreaKind::Payload));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! * **Creation is atomic.** A creator that is killed at any instruction leaves nothing, the
//!   previous contents, an incomplete segment, which [`open`](Segment::open) reports as incomplete,
//!   or a segment. (The module `completion` argues the order of writes.)
//! * **No page is missing later.** All pages are reserved when the segment is created. If there is
//!   no space for them, creation fails, names the limit, and leaves nothing.
//! * **Only sound segments are used.** Truncated, foreign, newer, older, corrupt and incomplete
//!   segments are refused, each with its own error ([`Refusal`]). The first page is loaded once,
//!   checked, and only the checked copy is used.
//! * **A mapping stays.** It lives as long as the process, so handles on it are `Copy` and never
//!   dangle. [`close`](Segment::close) releases the memory and keeps the addresses; only the unsafe
//!   [`unmap`](Segment::unmap) releases those too. It is not inherited by `fork`: a child that
//!   touches it gets SIGSEGV and opens the segment for itself.
//!
//! A process that may map a segment can destroy its contents, and can make others fault by
//! truncating a file (a memfd is sealed against that; [`report_bus_errors`] names the file before
//! the process ends). The file's mode is the protection; new files are 0600.
//!
//! # Formats
//!
//! The superblock has one [format number](Superblock::FORMAT) for the layout of everything that
//! Outlive keeps in a segment, in all its modules.
//!
//! * Any change of meaning or place raises the number, in whichever module it is made. A change
//!   that only uses reserved bytes raises it too: readers check that reserved bytes are zero.
//! * A library writes the newest format and reads from [`Superblock::OLDEST`] up to it. A newer one
//!   is refused as newer, an older one as older, and the message says which Outlive reads it.
//! * A segment is never upgraded in place: other processes may have it mapped and follow the old
//!   rules, and a death in the middle would leave neither format. To upgrade, a program that reads
//!   the old format copies the data that it needs to a new segment, under a new name, and destroys
//!   the old one when no process uses it.
//! * While the number is below 10 a library reads its own format only. From 10 on it reads at least
//!   the formats of the two minor releases before it.
//! * The first 24 bytes and the extent of the checksum mean the same in every format, so that every
//!   library can tell damage from a format that it does not know.
//! * An area of a kind that a library does not know does not make the segment invalid: its kind is
//!   [`AreaKind::Other`], and it is left alone.

mod area;
pub(crate) mod backend;
mod bus_error;
mod cgroup;
mod completion;
mod create;
mod destroy;
mod error;
pub(crate) mod filesystem;
#[cfg(test)]
mod killing_memory;
mod layout;
mod mapped;
mod mapping;
pub(crate) mod ofd;
mod open;
mod pages;
mod roots;
mod space;
mod superblock;

pub use area::{Area, AreaClass, AreaKind, AreaName, AreaSize, LayoutError};
pub use backend::BackendKind;
pub use bus_error::{report_bus_errors, say_after_bus_error};
pub use completion::CreatePoint;
pub use create::SegmentBuilder;
pub(crate) use error::hint;
pub use error::{CallFailed, CreateError, DestroyError, OpenError, Unsuitable};
pub(crate) use filesystem::{can_link, file_keeps_locks, mapping_keeps_locks, set_mode};
pub use layout::{Field, Shape, Shared, TypeLayout};
pub(crate) use mapped::{Registered, map_apart, reserve};
pub use open::OpenOptions;
pub use pages::{HugePages, Pages};
pub use roots::{PublishPoint, Root, RootError, Roots};
pub use space::{Limit, NoRoom};
pub use superblock::{Refusal, Superblock, Unfinished};

#[doc(hidden)]
pub use bytemuck as __bytemuck;

use backend::{Access, Backend};
use mapping::Mapping;
use ofd::{Held, Which, which};
use outlive_memory::{Memory, Native, PersistenceDomain};
use rustix::io::Errno;
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use uuid::Uuid;

/// A segment that is mapped into this process.
///
/// A handle of one word. It stays valid, and the mapping with it, as long as the process lives.
#[derive(Clone, Copy)]
pub struct Segment {
    inner: NonNull<Inner>,
}

struct Inner {
    superblock: Superblock,
    memory: Native,
    pages: Pages,
    path: PathBuf,
    mapping: Mapping,
    has_one_kernel: bool,
    is_known_by_inode: bool,
    /// Whether the file had a name when it was opened. A memfd has none.
    had_name: bool,
    access: Access,
    /// `None` once the segment is closed.
    medium: RwLock<Option<Medium>>,
    companion: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// The resources that an open segment holds.
struct Medium {
    /// Holds the file, by which a memfd is passed to another process.
    backend: Arc<dyn Backend>,
    /// Marks the segment as in use. `None` if the description is that of another opening, which
    /// happens without /proc only: then the mark ends when the first of the two is closed.
    _held: Option<Held>,
}

// SAFETY: `Inner` is never changed, and all in it may be used by any thread.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`.
unsafe impl Sync for Segment {}

impl Segment {
    /// Returns a builder that creates a segment.
    pub fn builder<'a>() -> SegmentBuilder<'a> {
        SegmentBuilder::new()
    }

    /// Opens the segment at `path`: a file, a DAX device, a PCI BAR, or a memfd by
    /// `/proc/PID/fd/N`.
    ///
    /// [`OpenOptions`] has more options. Wait-free except for system calls.
    ///
    /// # Errors
    /// If there is no segment, this process may not use it, or it is not a sound segment of a known
    /// format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        OpenOptions::new().open(path)
    }

    /// Opens the segment in `file`, for one that was passed to this process as a file descriptor.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn from_file(file: File) -> Result<Self, OpenError> {
        OpenOptions::new().open_file(file)
    }

    /// Removes the segment at `path`, complete or not, sound or damaged: a file loses its name, a
    /// device its superblock.
    ///
    /// Processes that have a file open continue with it; its memory is freed when the last of them
    /// ends. On a device the caller guarantees that no process uses it. A kill in the middle leaves
    /// the segment, an incomplete one, or none.
    ///
    /// # Errors
    /// If there is no segment at `path`, or one is being created there. Nothing is changed then.
    pub fn destroy(path: impl AsRef<Path>) -> Result<(), DestroyError> {
        destroy::destroy(path.as_ref(), &space::Places::real())
    }

    fn new(
        superblock: Superblock,
        memory: Native,
        pages: Pages,
        mapping: Mapping,
        backend: Box<dyn Backend>,
        held: Option<Held>,
        access: Access,
    ) -> Result<Self, CallFailed> {
        // Read now and not later: see `own_file`.
        let (has_one_kernel, is_known_by_inode) =
            (backend.has_one_kernel(), backend.is_known_by_inode());
        let had_name = has_name(backend.file());
        let inner = Box::new(Inner {
            superblock,
            memory,
            pages,
            path: backend.path().to_owned(),
            mapping,
            has_one_kernel,
            is_known_by_inode,
            had_name,
            access,
            medium: RwLock::new(Some(Medium {
                backend: backend.into(),
                _held: held,
            })),
            companion: OnceLock::new(),
        });
        let segment = Self {
            inner: NonNull::from(Box::leak(inner)),
        };
        segment.own_file()?;
        Ok(segment)
    }

    fn inner(&self) -> &'static Inner {
        // SAFETY: the box was leaked; only `unmap` frees it, whose caller promises that no handle
        // is used any more.
        unsafe { self.inner.as_ref() }
    }

    /// Returns the memory of the segment; offset 0 is its superblock.
    pub fn memory(&self) -> Native {
        self.inner().memory
    }

    /// Returns the checked contents of the segment's first page.
    pub fn superblock(&self) -> &'static Superblock {
        &self.inner().superblock
    }

    /// Returns the identity of the pod that the segment belongs to.
    pub fn uuid(&self) -> Uuid {
        self.inner().superblock.uuid
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.inner().superblock.size
    }

    /// Returns the persistence domain: which stores survive the loss of a host's caches.
    pub fn domain(&self) -> PersistenceDomain {
        self.inner().superblock.domain
    }

    /// Returns the area of this kind, if it has one.
    pub fn area(&self, kind: AreaKind) -> Option<Area> {
        // By code: a known kind and an "other" of the same code are equal.
        self.areas()
            .iter()
            .find(|area| area.kind.code() == kind.code())
            .copied()
    }

    /// Returns all areas of the segment, by rising offset if this library created the segment.
    pub fn areas(&self) -> &'static [Area] {
        &self.inner().superblock.areas
    }

    /// Returns the typed roots.
    pub fn roots(&self) -> Roots {
        let area = self
            .area(AreaKind::Roots)
            .expect("a segment without roots is not opened");
        Roots::new(self.memory(), area.offset)
    }

    fn medium(&self) -> Arc<dyn Backend> {
        let medium = self.inner().medium.read();
        let medium = medium.unwrap_or_else(PoisonError::into_inner);
        match &*medium {
            Some(medium) => Arc::clone(&medium.backend),
            None => panic!("{} was closed", self.path().display()),
        }
    }

    /// Returns the kind of medium that holds the segment.
    ///
    /// # Panics
    /// Like every method that needs the file, if the segment was [closed](Self::close).
    pub fn backend(&self) -> BackendKind {
        self.medium().kind()
    }

    /// Returns the path at which the segment can be opened: for a memfd `/proc/PID/fd/N` of this
    /// process.
    pub fn path(&self) -> &'static Path {
        &self.inner().path
    }

    /// Returns the file that is mapped, for passing it to another process. Its position has no
    /// meaning.
    pub fn file(&self) -> Arc<File> {
        Arc::clone(self.medium().file())
    }

    /// Returns the identity of the file that is mapped.
    pub(crate) fn which(&self) -> Which {
        self.inner().mapping.which()
    }

    /// Returns whether it was opened before this process was forked, so that it cannot be used
    /// here.
    pub(crate) fn is_inherited(&self) -> bool {
        self.inner().mapping.is_inherited()
    }

    /// Returns the file that is mapped, if its descriptor is still that file's: a program that
    /// closes descriptors which it has not opened may have given the number to another file since.
    pub(crate) fn own_file(&self) -> Result<Arc<File>, CallFailed> {
        let file = self.file();
        match which(&file) == Some(self.which()) {
            true => Ok(file),
            false => Err(CallFailed::new("fstat", self.path(), Errno::BADF)),
        }
    }

    /// Returns whether the file has lost its last name since it was opened.
    pub(crate) fn was_removed(&self) -> bool {
        // A descriptor that is another file's by now shows nothing.
        let file = self.own_file();
        self.inner().had_name && file.is_ok_and(|file| !has_name(&file))
    }

    /// Returns whether a process of this kernel may have it open by another opening: `true` also if
    /// that cannot be read.
    pub(crate) fn may_be_in_use(&self) -> bool {
        let asked = self.own_file().map(|file| backend::may_be_in_use(&file));
        // The descriptor must have been the file's all the while.
        !matches!(asked, Ok(false)) || self.own_file().is_err()
    }

    /// Returns whether one kernel at a time can map it, and all processes that map it see one
    /// another's file locks: true for a file on a local filesystem, or a memfd. A device, or a file
    /// that is mapped directly (virtiofs with DAX, famfs), can be mapped by several kernels; two
    /// nodes of a device, or a file of an overlay and the one below it, are one memory with
    /// separate locks. (A file on a network, cluster or FUSE filesystem is refused: its mappings
    /// are not coherent between machines.)
    pub fn has_one_kernel(&self) -> bool {
        self.inner().has_one_kernel
    }

    /// Returns whether the segment was opened [for an observer](OpenOptions::read_only).
    pub fn is_read_only(&self) -> bool {
        self.inner().access == Access::ReadOnly
    }

    /// Returns whether its inode number distinguishes it from every copy of it, for all processes
    /// that can map it.
    pub(crate) fn is_known_by_inode(&self) -> bool {
        self.inner().is_known_by_inode
    }

    /// Returns the number of bytes of which the size of every mapping of it is a multiple.
    pub fn granule(&self) -> u64 {
        self.medium().granule()
    }

    /// Returns the state that the layer above keeps for this opening, shared by all handles on it.
    /// Only one layer has such state.
    pub(crate) fn companion<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let companion = self
            .inner()
            .companion
            .get_or_init(|| Arc::new(T::default()));
        let companion = Arc::clone(companion).downcast();
        companion.expect("one layer has a companion")
    }

    /// Returns the kind of pages that the segment was mapped with.
    pub fn pages(&self) -> &'static Pages {
        &self.inner().pages
    }

    /// Maps all its pages into this process now, so that no later access waits for one: for a
    /// standby process that must be quick when it takes over. The contents stay. On kernels before
    /// 5.14 it does nothing.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn prefault(&self) -> Result<(), CallFailed> {
        let mapped = self
            .inner()
            .mapping
            .prefault(self.size(), false, &mut |_, _| ());
        mapped.map_err(|error| CallFailed::new("madvise", self.path(), error))
    }

    /// Releases the memory and closes the file.
    ///
    /// This handle has copies, and handles on the memory have no lifetimes. So the *addresses* stay
    /// reserved, without access, for as long as the process lives. An access through any handle
    /// that came from this segment is a SIGSEGV from then on, and can never reach another mapping.
    /// This costs address space (of 128 TiB) and about a kilobyte of memory; adjacent reservations
    /// are one mapping to the kernel. Closing twice does nothing.
    ///
    /// # Errors
    /// If the kernel refuses one more mapping; then nothing has changed.
    pub fn close(self) -> Result<(), CallFailed> {
        let inner = self.inner();
        let medium = inner.medium.write();
        let mut medium = medium.unwrap_or_else(PoisonError::into_inner);
        if medium.is_some() {
            let retired = inner.mapping.retire();
            retired.map_err(|error| CallFailed::new("mmap", self.path(), error))?;
            *medium = None;
        }
        Ok(())
    }

    /// Removes the mapping and closes the file.
    ///
    /// # Safety
    /// No copy of this handle is used any more, nor is anything that came from one: the
    /// [`memory`](Self::memory), [`roots`](Self::roots), areas, and structures over them in this
    /// process, in any thread. Each `open` has a mapping of its own; others are not touched.
    pub unsafe fn unmap(self) {
        // SAFETY: the pointer came from a leaked box, and the caller says that this is its last
        // use.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

/// Returns whether the file has a name, or that cannot be read.
fn has_name(file: &File) -> bool {
    file.metadata().map_or(true, |file| file.nlink() > 0)
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("path", &self.path())
            .field("uuid", &self.uuid())
            .field("size", &self.memory().size())
            .field("domain", &self.domain())
            .finish_non_exhaustive()
    }
}
