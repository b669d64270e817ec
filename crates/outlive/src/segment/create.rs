//! The creation of a segment, from the request to the finished segment.

use super::area::{Area, AreaClass, AreaKind, AreaSize, Request, pages, plan};
use super::backend::{self, Access, Backend, Fresh};
use super::completion::Creation;
use super::error::{CallFailed, CreateError};
use super::filesystem::refuse_remote;
use super::mapping::Mapping;
use super::pages::{HugePages, Pages, require_reserved};
use super::space::{Places, Space};
use super::superblock::{MOST_AREAS, Superblock};
use super::{LayoutError, Segment};
use outlive_memory::{Native, PersistenceDomain, WriteBackInstruction};
use rustix::fs::{fstat, stat};
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// A builder that takes the properties of a segment, and creates it.
///
/// ```
/// use outlive::segment::{AreaKind, AreaSize, Segment};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pod");
/// let segment = Segment::builder()
///     .size(1 << 20)
///     .area(AreaKind::Payload, AreaSize::Rest)
///     .create(&path)?;
/// assert!(Segment::builder().create(&path).is_err()); // it exists already
/// Segment::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder creates nothing until create() is called"]
pub struct SegmentBuilder<'a> {
    size: Option<u64>,
    domain: PersistenceDomain,
    uuid: Option<Uuid>,
    huge: HugePages,
    prefault: Option<Box<Progress<'a>>>,
    accept_unproven: bool,
    beside: Option<(&'a Path, u64)>,
    fresh: Fresh,
    areas: Vec<Request>,
    initialise: Option<Box<Initialise<'a>>>,
    identify: Option<Box<Identify<'a>>>,
    places: Places,
}

/// Writes the initial contents of a new segment.
type Initialise<'a> = dyn FnOnce(Native, &[Area]) + 'a;

/// Writes the identity of the file into a new segment.
type Identify<'a> = dyn FnOnce(Native, &[Area], &File) + 'a;

/// Receives the number of bytes that are done, and their total.
pub(super) type Progress<'a> = dyn FnMut(u64, u64) + 'a;

impl<'a> SegmentBuilder<'a> {
    pub(super) fn new() -> Self {
        Self {
            size: None,
            domain: PersistenceDomain::Flushed,
            uuid: None,
            huge: HugePages::Off,
            prefault: None,
            accept_unproven: false,
            beside: None,
            fresh: Fresh {
                mode: 0o600,
                replace: false,
                reserved_huge_pages: false,
                named_from_the_start: false,
            },
            areas: Vec::new(),
            initialise: None,
            identify: None,
            places: Places::real(),
        }
    }

    /// Sets the size in bytes, rounded up to whole pages. Without it, a device is used whole and a
    /// file is as large as its areas.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Sets the persistence domain. Default: [`PersistenceDomain::Flushed`]. The write-back domain
    /// is refused for now.
    pub fn domain(mut self, domain: PersistenceDomain) -> Self {
        self.domain = domain;
        self
    }

    /// Sets the identity of the pod. Default: a new random one.
    pub fn uuid(mut self, uuid: Uuid) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Sets the permissions of a new file, independently of the umask. Default: 0600.
    pub fn mode(mut self, mode: u32) -> Self {
        self.fresh.mode = mode & 0o777;
        self
    }

    /// Sets the kind of pages to request.
    pub fn huge_pages(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self.fresh.reserved_huge_pages = huge == HugePages::Reserved;
        self
    }

    /// Touches all pages now, so that no later access waits for them. `progress` receives the bytes
    /// done and the bytes in all; on devices it receives those of their clearing first.
    pub fn prefault(mut self, progress: impl FnMut(u64, u64) + 'a) -> Self {
        self.prefault = Some(Box::new(progress));
        self
    }

    /// Adds an area of `kind`. The roots need not be requested.
    pub fn area(self, kind: AreaKind, size: impl Into<AreaSize>) -> Self {
        self.named_area(kind, kind.name(), kind.class(), size)
    }

    /// Adds an area of `kind`, with a name and class of its own, as a program's own areas have.
    pub fn named_area(
        mut self,
        kind: AreaKind,
        name: &str,
        class: AreaClass,
        size: impl Into<AreaSize>,
    ) -> Self {
        self.areas.push(Request {
            kind,
            name: name.into(),
            class,
            size: size.into(),
        });
        self
    }

    /// Writes the initial contents of the areas, before any process can open the segment. All areas
    /// are zero before.
    pub fn initialise(mut self, write: impl FnOnce(Native, &[Area]) + 'a) -> Self {
        self.initialise = Some(Box::new(write));
        self
    }

    /// Writes the identity of the file after the [initial contents](Self::initialise), also before
    /// any process can open or copy the segment.
    pub(crate) fn identify(mut self, write: impl FnOnce(Native, &[Area], &File) + 'a) -> Self {
        self.identify = Some(Box::new(write));
        self
    }

    /// Creates the segment in place over an earlier one on a device or in a file (as famfs prepares
    /// them), or over any contents of a device. All of it is cleared. The caller guarantees that no
    /// process uses the current contents, and that of two creators whose file locks are not the
    /// same (of two machines, or above and below an overlay) only one runs. Processes of this
    /// kernel that have the segment open by a local file are noticed.
    pub fn replace(mut self, replace: bool) -> Self {
        self.fresh.replace = replace;
        self
    }

    /// Returns whether it [replaces](Self::replace) an earlier segment.
    pub(crate) fn replaces(&self) -> bool {
        self.fresh.replace
    }

    /// Leaves `bytes` bytes free for files in `directory`, if the segment is on the same
    /// filesystem.
    pub(crate) fn leave_free(mut self, bytes: u64, directory: &'a Path) -> Self {
        self.beside = Some((directory, bytes));
        self
    }

    /// Creates a segment in the write-back domain although its contents have not been explored
    /// under lost caches: for that exploration.
    #[doc(hidden)]
    pub fn accept_unproven_write_back(mut self) -> Self {
        self.accept_unproven = true;
        self
    }

    /// Acts as on a filesystem without unnamed files: for tests.
    #[doc(hidden)]
    pub fn named_from_the_start(mut self) -> Self {
        self.fresh.named_from_the_start = true;
        self
    }

    /// Uses the tree at `root` in place of `/` for devices and limits: for tests.
    #[doc(hidden)]
    pub fn stand_in(mut self, root: &Path) -> Self {
        self.places = Places::below(root);
        self
    }

    /// Creates the segment at `path`: a new file; `memfd:NAME`; a DAX device; a PCI BAR's resource
    /// file.
    ///
    /// A kill at any instruction leaves nothing, the previous contents, an incomplete segment, or
    /// the segment. The crash points are those of [`CreatePoint`](super::CreatePoint). Does not
    /// wait for other processes.
    ///
    /// # Errors
    /// If the path exists, there is no space, or the path cannot hold a segment. Nothing is left
    /// behind then, except for an incomplete segment where an existing one was being replaced.
    pub fn create(mut self, path: impl AsRef<Path>) -> Result<Segment, CreateError> {
        let path = path.as_ref();
        if self.domain == PersistenceDomain::WriteBack {
            if !self.accept_unproven {
                return Err(CreateError::WriteBackUnproven);
            }
            if WriteBackInstruction::detect().is_none() {
                return Err(CreateError::NoWriteBack);
            }
        }
        let (mut backend, seen) = backend::for_creation(path, &self.fresh, &self.places)?;
        refuse_remote(backend.file(), path)?;
        let plan = plan(self.size_on(backend.as_ref())?, &self.areas, MOST_AREAS)?;
        let mapped = plan
            .size
            .checked_next_multiple_of(backend.granule())
            .ok_or(LayoutError::TooLarge(plan.size))?;
        if self.huge == HugePages::Reserved {
            require_reserved(backend.as_ref(), path, mapped, &self.places)?;
        }
        let space = Space {
            size: mapped,
            beside: self.beside_on(backend.file()),
        };
        tracing::debug!(
            path = %path.display(),
            backend = %backend.kind(),
            bytes = mapped,
            left_free = space.beside,
            "reserving the pages of a new segment"
        );
        backend.reserve(space, &self.places)?;

        let transparent = self.huge.are_transparent_on(backend.as_ref());
        let mapping = Mapping::new(
            backend.file(),
            backend.path(),
            mapped,
            transparent,
            Access::ReadWrite,
        )?;
        // SAFETY: the mapping lives as long as the segment, or is dropped on an error in this
        // function, which then returns no handle. Other processes follow the rules in the module's
        // documentation.
        let memory = unsafe { mapping.memory(plan.size, self.domain) }?;
        let busy = |_| CreateError::Busy { path: path.into() };
        let creation = Creation::begin(memory, seen, nonce()).map_err(busy)?;
        let mut silent = |_, _| {};
        let progress: &mut Progress = match self.prefault.as_mut() {
            Some(progress) => progress,
            None => &mut silent,
        };
        if !backend.is_fresh() {
            creation
                .clear(|done| progress(done, plan.size))
                .map_err(busy)?;
        }
        let pages = Pages::of(backend.as_ref(), &mapping, transparent);
        let prefaulted = self.prefault.is_some();
        if let Some(progress) = self.prefault.as_mut() {
            mapping
                .prefault(plan.size, true, progress)
                .map_err(|error| CallFailed::new("madvise", path, error))?;
        }
        let pages = pages.after_prefault(&mapping, prefaulted);

        let superblock = Superblock {
            uuid: self.uuid.unwrap_or_else(Uuid::new_v4),
            size: plan.size,
            domain: self.domain,
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            areas: plan.areas,
        };
        if let Some(initialise) = self.initialise.take() {
            creation.check().map_err(busy)?;
            initialise(memory, &superblock.areas);
        }
        if let Some(identify) = self.identify.take() {
            creation.check().map_err(busy)?;
            identify(memory, &superblock.areas, backend.file());
        }
        for area in &superblock.areas {
            let at = area.offset.byte();
            tracing::debug!(area = %area.name, at, bytes = area.size, "laid out");
        }
        creation.complete(&superblock.encode()).map_err(busy)?;
        // Before other processes can find it, the lock changes from "being created", if it was
        // that, to "in use". No other process can lock it exclusively in between.
        if !backend::share(backend.file(), path)? {
            return Err(CreateError::Busy { path: path.into() });
        }
        backend.publish()?;
        tracing::debug!(
            path = %backend.path().display(),
            uuid = %superblock.uuid,
            %pages,
            has_one_kernel = backend.has_one_kernel(),
            "created a segment"
        );
        let held = Some(backend::held(backend.file()));
        let access = Access::ReadWrite;
        Ok(Segment::new(
            superblock, memory, pages, mapping, backend, held, access,
        )?)
    }

    /// Returns the number of bytes that must stay free on the filesystem of `file`.
    fn beside_on(&self, file: &File) -> u64 {
        let Some((directory, bytes)) = self.beside else {
            return 0;
        };
        let same =
            |file: rustix::fs::Stat| stat(directory).is_ok_and(|it| it.st_dev == file.st_dev);
        if fstat(file).is_ok_and(same) {
            bytes
        } else {
            0
        }
    }

    /// Returns the size to plan with: the requested one, or that of the medium.
    fn size_on(&self, backend: &dyn Backend) -> Result<Option<u64>, CreateError> {
        if backend.is_fresh() {
            return Ok(self.size);
        }
        let found = backend.capacity()?;
        let size = match self.size {
            Some(size) => pages(size).ok_or(LayoutError::TooLarge(size))?,
            None => found / backend.granule() * backend.granule(),
        };
        if size > found {
            return Err(CreateError::MediumTooSmall {
                path: backend.path().into(),
                wanted: size,
                found,
            });
        }
        Ok(Some(size))
    }
}

/// Returns a number that tells this attempt apart from others.
fn nonce() -> u32 {
    Uuid::new_v4().as_u128() as u32
}

impl fmt::Debug for SegmentBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentBuilder")
            .field("size", &self.size)
            .field("domain", &self.domain)
            .field("huge", &self.huge)
            .field("areas", &self.areas)
            .finish_non_exhaustive()
    }
}
