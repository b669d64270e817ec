//! The opening of a segment.

use super::Segment;
use super::backend::{self, Access, Backend};
use super::create::Progress;
use super::error::{CallFailed, CreateError, OpenError};
use super::filesystem::refuse_remote;
use super::mapping::Mapping;
use super::ofd;
use super::pages::{HugePages, Pages};
use super::space::{Places, Space};
use super::superblock::Superblock;
use outlive_memory::{Memory, Native, Offset, PersistenceDomain, WriteBackInstruction};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A builder that takes the options for opening a segment, and opens it.
///
/// ```
/// use outlive::segment::{OpenOptions, Segment};
/// let segment = Segment::builder().size(1 << 20).create("memfd:example")?;
/// let mut touched = 0;
/// let same = OpenOptions::new()
///     .prefault(|done, of| touched = 100 * done / of)
///     .open(segment.path())?;
/// assert_eq!(same.size(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "options open nothing until open() is called"]
pub struct OpenOptions<'a> {
    huge: HugePages,
    prefault: Option<Box<Progress<'a>>>,
    places: Places,
    access: Access,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("huge", &self.huge)
            .field("prefault", &self.prefault.is_some())
            .finish_non_exhaustive()
    }
}

impl<'a> OpenOptions<'a> {
    /// Returns the options of [`Segment::open`].
    pub fn new() -> Self {
        Self {
            huge: HugePages::Off,
            prefault: None,
            places: Places::real(),
            access: Access::ReadWrite,
        }
    }

    /// Opens the segment for an observer. The mapping cannot be written, this user does not need
    /// the right to write, and other processes can still repair, replace or remove the segment. A
    /// store through its [memory](Segment::memory) raises SIGSEGV.
    ///
    /// On a processor whose loads of 128 bits write (x86-64 without AVX, Arm without LSE2), the
    /// file is opened for reading and writing, and the mapping can be written.
    pub fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self
    }

    /// Sets the kind of pages to request. Pages from the system's pool are requested at creation.
    pub fn huge_pages(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// Maps all pages now. `progress` receives the bytes done and the bytes in all. On kernels
    /// before 5.14 it does nothing.
    pub fn prefault(mut self, progress: impl FnMut(u64, u64) + 'a) -> Self {
        self.prefault = Some(Box::new(progress));
        self
    }

    /// Uses the tree at `root` in place of `/` for devices: for tests.
    #[doc(hidden)]
    pub fn stand_in(mut self, root: &Path) -> Self {
        self.places = Places::below(root);
        self
    }

    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Segment, OpenError> {
        let mut access = self.file_access();
        let mut backend = backend::for_opening(path.as_ref(), &self.places, access)?;
        if access == Access::ReadOnly && has_holes(backend.as_ref(), backend.capacity()?)? {
            // A sparse copy. A load from a hole allocates a page, or raises SIGBUS on a full
            // filesystem, so the holes are filled first.
            access = Access::ReadWrite;
            backend = backend::for_opening(path.as_ref(), &self.places, access)?;
        }
        self.open_backend(backend, true, access)
    }

    /// Opens the segment in `file`, which must have been opened for reading and writing.
    ///
    /// # Errors
    /// Returns the errors of [`Segment::open`].
    pub fn open_file(self, file: File) -> Result<Segment, OpenError> {
        // Through a description of its own: a passed one has the lock of the sender's opening.
        let (file, is_own) = match ofd::reopen(&file, Path::new("")) {
            Ok(own) => (own, true),
            // A shared description loses its lock with the sender's opening.
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                let path = Path::new("the passed descriptor");
                return Err(CallFailed::new("open once more", path, error).into());
            }
            Err(_) => (file, false),
        };
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let backend = backend::for_file(file, path.as_ref(), &self.places)?;
        self.open_backend(backend, is_own, Access::ReadWrite)
    }

    /// Opens the segment of `backend`. `is_own` says that no other opening shares its description.
    fn open_backend(
        mut self,
        mut backend: Box<dyn Backend>,
        is_own: bool,
        access: Access,
    ) -> Result<Segment, OpenError> {
        let path = backend.path().to_owned();
        refuse_remote(backend.file(), &path)?;
        let refused = |refusal| OpenError::Refused {
            path: path.clone(),
            refusal,
        };
        let decode = || -> Result<Superblock, OpenError> {
            Superblock::decode(&backend.first_page()?, backend.capacity()?).map_err(refused)
        };
        // The first check is made without the lock, so that processes that wait for a segment do
        // not keep its creator out.
        if let Err(refusal) = decode() {
            if backend::is_being_changed(backend.file()) {
                return Err(OpenError::Busy { path });
            }
            // The creator may have completed the segment between the two checks.
            decode().map_err(|_| refusal)?;
        }
        let is_read_only = self.access == Access::ReadOnly;
        // Marks the segment as in use for creators and repairs of this kernel.
        if !is_read_only && !backend::share(backend.file(), &path)? {
            return Err(OpenError::Busy { path });
        }
        let superblock = decode()?;
        let write_back = superblock.domain == PersistenceDomain::WriteBack;
        if write_back && WriteBackInstruction::detect().is_none() {
            return Err(OpenError::NoWriteBack { path });
        }
        if access == Access::ReadWrite {
            fill_holes(backend.as_mut(), superblock.size, &self.places)?;
        }

        let mapped = superblock.size.next_multiple_of(backend.granule());
        let transparent = self.huge.are_transparent_on(backend.as_ref());
        let file = backend.file();
        let mapping = Mapping::new(file, backend.path(), mapped, transparent, access)?;
        // SAFETY: the mapping lives as long as the segment, or is dropped on an error in this
        // function, which then returns no handle. Other processes follow the rules in the module's
        // documentation.
        let memory = unsafe { mapping.memory(superblock.size, superblock.domain) }?;
        // A segment that is in use must not be lost with its creator's caches.
        memory.persist(Offset::new(0), super::superblock::SUPERBLOCK_BYTES);
        let pages = Pages::of(backend.as_ref(), &mapping, transparent);
        // A mapping that cannot be written cannot be populated for writing.
        let prefaulted = self.prefault.is_some() && !is_read_only;
        if let Some(progress) = self.prefault.as_mut().filter(|_| prefaulted) {
            mapping
                .prefault(superblock.size, false, progress)
                .map_err(|error| CallFailed::new("madvise", &path, error))?;
        }
        let pages = pages.after_prefault(&mapping, prefaulted);
        tracing::debug!(
            path = %backend.path().display(),
            backend = %backend.kind(),
            uuid = %superblock.uuid,
            bytes = superblock.size,
            %pages,
            has_one_kernel = backend.has_one_kernel(),
            "opened a segment"
        );
        let held = (is_own && !is_read_only).then(|| backend::held(backend.file()));
        Ok(Segment::new(
            superblock,
            memory,
            pages,
            mapping,
            backend,
            held,
            self.access,
        )?)
    }

    /// Returns the access to the file and to the mapping.
    fn file_access(&self) -> Access {
        match Native::wide_loads_only_read() {
            true => self.access,
            false => Access::ReadWrite,
        }
    }
}

/// Returns whether the file of a segment of `size` bytes lacks pages.
fn has_holes(backend: &dyn Backend, size: u64) -> Result<bool, CallFailed> {
    let stat = fstat(backend.file());
    let stat = stat.map_err(|error| CallFailed::new("fstat", backend.path(), error))?;
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    Ok(is_file && (stat.st_blocks as u64 * 512) < size)
}

/// Reserves the pages that a file lacks: a copy of a segment may be sparse, and an access to a hole
/// on a full filesystem kills the process.
fn fill_holes(backend: &mut dyn Backend, size: u64, places: &Places) -> Result<(), OpenError> {
    if !has_holes(backend, size)? {
        return Ok(());
    }
    let space = Space { size, beside: 0 };
    backend.reserve(space, places).map_err(|error| match error {
        CreateError::NoRoom(no_room) => OpenError::NoRoom(no_room),
        CreateError::Call(call) => OpenError::Call(call),
        other => super::Unsuitable::new(backend.path(), other.to_string()).into(),
    })
}
