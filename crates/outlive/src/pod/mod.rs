//! The entry point: a pod is created, opened, joined, inspected and destroyed here.
//!
//! A pod is a segment with a membership in it. The areas that the lower modules need in the segment
//! are laid out when the pod is created, before any other process can open it:
//!
//! ```text
//! superblock | roots | heap state | structures | generations | instances | roles | groups | logs
//! | payload (the rest)
//! ```
//!
//! The payload is the heap's, unless the pod was created [without one](PodOptions::without_heap).
//!
//! ```
//! use outlive::membership::ProcessOptions;
//! use outlive::memory::{Memory, Ordering};
//! use outlive::pod::{Pod, PodOptions};
//! # let path = format!("/dev/shm/outlive-doc-{}", std::process::id());
//! # struct Gone(String);
//! # impl Drop for Gone {
//! #     fn drop(&mut self) {
//! #         let _ = Pod::destroy(&self.0);
//! #     }
//! # }
//! # let _gone = Gone(path.clone());
//! let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?; // the others: Pod::open(&path)
//! let process = pod.join(ProcessOptions::on_host(0))?;
//! let thread = process.enter(None, "me")?;
//! let heap = thread.heap(&pod)?;
//!
//! // A cell that survives us: should we die in here, it holds the block, or there is none.
//! let cell = heap.pending_cell(0);
//! let block = heap.allocate_into(24, cell)?;
//! thread.memory().copy_in(block, b"what the others will see");
//! heap.free_from(cell, 0)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bury;
mod check;
mod destroy;
mod error;
mod leaks;
mod obligations;
mod open_or_create;
mod opening;
mod options;
mod origin;
mod presence;
mod repair;
mod replace;
mod session;
mod status;

pub use check::{Check, HeapCheck, Violation};
pub use error::PodError;
pub use options::PodOptions;
pub use presence::Presence;
pub use repair::Repair;
pub use session::Session;
pub use status::{GroupStatus, MemberStatus, Status};

use crate::heap::{self, Heap, LocalHeap};
use crate::host::{Access, Linux, MEETING, Os, OsError, OsIdentity, PodFile, side_file_bytes};
use crate::membership::{
    AreaBytes, Extent, Level, Member, Process, ProcessOptions, Settings, Tables, one_that_beats,
};
use crate::recovery::{Logs, Recoverers};
use crate::segment::{Area, AreaKind, AreaSize, OpenOptions, Roots, Segment};
use obligations::LogObligations;
use opening::{Joining, Use};
use options::Structures;
use origin::Origin;
use outlive_memory::Native;
use replace::refuse_the_living;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A pod that this process has opened.
///
/// Opening a pod makes no members; [`join`](Self::join) does.
#[derive(Clone, Debug)]
pub struct Pod {
    segment: Segment,
    tables: Tables,
    settings: Settings,
    heap: Option<Heap>,
    use_of_it: Arc<Mutex<Use>>,
}

/// The smallest payload of a heap in bytes.
const LEAST_HEAP: u64 = 64 << 10;
/// The number of bytes that joining processes need in /dev/shm in addition to the side file: for
/// names and for the files of cords.
const BESIDE_SIDE_FILE: u64 = 64 << 10;

impl Pod {
    /// Creates a pod at `path` with `options`, and opens it.
    ///
    /// `path` is a file (in /dev/shm, or on a DAX filesystem), `memfd:NAME`, a DAX device or a PCI
    /// BAR's resource file. A creator that dies leaves no pod, an incomplete pod, or the pod.
    ///
    /// # Errors
    /// If `path` already holds something or has no space, or the options contradict one another.
    pub fn create(path: impl AsRef<Path>, options: PodOptions<'_>) -> Result<Self, PodError> {
        options.refuse_the_impossible()?;
        if options.segment.replaces() {
            refuse_the_living(path.as_ref())?;
        }
        let extent = options.extent;
        let sizes = extent.area_bytes();
        let (settings, with_heap) = (options.settings.clone(), options.heap);
        let mut builder = options.segment.leave_free(
            side_file_bytes(extent.ids) + BESIDE_SIDE_FILE,
            Path::new(MEETING),
        );
        if with_heap {
            let state = AreaSize::OfRest {
                least: LEAST_HEAP,
                // A size that is too large for any heap is too large for every segment.
                bytes: |rest| Heap::<Native>::state_bytes(rest).unwrap_or(u64::MAX),
            };
            builder = builder.area(AreaKind::HeapState, state);
        }
        let (bytes, write) = match options.structures {
            Some(Structures { bytes, write }) => (bytes, Some(write)),
            None => (0, None),
        };
        if write.is_some() {
            builder = builder.area(AreaKind::Structures, bytes);
        }
        let segment = builder
            .area(AreaKind::Generations, sizes.generations)
            .area(AreaKind::Instances, sizes.instances)
            .area(AreaKind::Roles, sizes.roles)
            .area(AreaKind::Groups, sizes.groups)
            .area(AreaKind::Logs, sizes.logs)
            .area(AreaKind::Payload, AreaSize::Rest)
            .initialise(move |memory, areas| {
                let tables = lay_out(memory, areas, extent).expect("the requested areas");
                tables.initialise(&settings);
                let area = |kind| areas.iter().find(|area| area.kind == kind);
                if let (Some(state), Some(payload)) =
                    (area(AreaKind::HeapState), area(AreaKind::Payload))
                {
                    Heap::create(memory, state.offset, payload.offset, payload.size)
                        .expect("the requested areas");
                }
                if let (Some(write), Some(structures)) = (write, area(AreaKind::Structures)) {
                    write(memory, *structures);
                }
            })
            // Before it has a name: from then on it may be copied.
            .identify(move |memory, areas, file| {
                let tables = lay_out(memory, areas, extent).expect("the requested areas");
                if let Ok(metadata) = file.metadata() {
                    Origin::in_settings(memory, tables.settings_at()).note(&metadata);
                }
            })
            .create(path)?;
        Self::of(segment)
    }

    /// Opens the pod at `path`.
    ///
    /// # Errors
    /// If `path` cannot be opened for reading and writing, or does not contain a valid pod.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PodError> {
        Self::of(Segment::open(path)?)
    }

    /// Opens the pod at `path` for an observer, which never writes to it. An observer can read its
    /// [status](Self::status), [check](Self::check) it, and read its objects
    /// ([`Directory::observe`](crate::objects::Directory::observe)).
    ///
    /// The mapping cannot be written, and the file is opened for reading only, so a user without
    /// the right to write can observe. The opening holds no lock and creates no side file, so it
    /// does not delay a repair, replacement or removal of the pod. Joining and repairing return
    /// [`PodError::ReadOnly`]. A store through the [memory](Segment::memory) raises SIGSEGV. See
    /// [`OpenOptions::read_only`] for old processors.
    ///
    /// ```
    /// use outlive::pod::{Pod, PodError, PodOptions};
    /// # let path = format!("/dev/shm/outlive-doc-observe-{}", std::process::id());
    /// let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?;
    /// let session = pod.session()?;
    /// let seen = Pod::observe(&path)?;
    /// assert!(seen.status().members.len() >= 2);
    /// assert!(seen.check().is_clean());
    /// assert!(matches!(seen.session(), Err(PodError::ReadOnly { .. })));
    /// # drop(session);
    /// # Pod::destroy(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn observe(path: impl AsRef<Path>) -> Result<Self, PodError> {
        Self::of(OpenOptions::new().read_only().open(path)?)
    }

    /// Returns an error if the pod was opened for an observer.
    fn refuse_an_observer(&self) -> Result<(), PodError> {
        let path = || self.segment.path().into();
        match self.segment.is_read_only() {
            true => Err(PodError::ReadOnly { path: path() }),
            false => Ok(()),
        }
    }

    /// Returns an error if the pod was destroyed after this opening.
    fn refuse_a_removed(&self) -> Result<(), PodError> {
        let path = || self.segment.path().into();
        match self.segment.was_removed() {
            true => Err(PodError::Removed { path: path() }),
            false => Ok(()),
        }
    }

    /// Returns the pod in an open segment.
    ///
    /// # Errors
    /// If it contains no membership.
    pub fn of(segment: Segment) -> Result<Self, PodError> {
        let memory = segment.memory();
        let no_membership = |why: String| PodError::NoMembership {
            path: segment.path().into(),
            why,
        };
        let roles = segment
            .area(AreaKind::Roles)
            .ok_or_else(|| no_membership("it has no area `roles`".into()))?;
        let extent = Tables::read_extent(memory, roles.offset, roles.size)
            .ok_or_else(|| no_membership("its area `roles` does not give its extent".into()))?;
        if extent.log_bytes != Logs::<Native>::STRIDE {
            return Err(no_membership(format!(
                "its logs have {} bytes each, but those of this version of Outlive have {}",
                extent.log_bytes,
                Logs::<Native>::STRIDE
            )));
        }
        let tables = lay_out(memory, segment.areas(), extent).map_err(no_membership)?;
        Ok(Self {
            segment,
            tables,
            settings: tables.settings(),
            heap: open_heap(segment)?,
            use_of_it: segment.companion(),
        })
    }

    /// Joins as a process, with a sentinel thread of its own.
    ///
    /// A process that changes its user or its root directory does so before it joins. This call
    /// checks for the present user only that the process can be fenced, and can fence other
    /// processes.
    ///
    /// The memory of the pod must not be the target of asynchronous reads (io_uring, AIO), of a
    /// device, or of reads with O_DIRECT from a network filesystem: these may write to it after the
    /// process has been declared dead. Nor may it hold a thread's stack or a robust mutex of the C
    /// library. A process that has the pod open must not be restored from a checkpoint (CRIU and
    /// similar).
    ///
    /// # Errors
    /// If the id or the host is not available, or this process could not be fenced.
    /// [`PodError::Removed`] if the pod was destroyed after this process opened it.
    pub fn join(&self, options: ProcessOptions) -> Result<Process, PodError> {
        self.join_with(options, |recoverers| recoverers)
    }

    /// Does the same as [`join`](Self::join), for a program with recoverable operations or kinds of
    /// locks of its own: `add` registers their handlers in addition to those of this library.
    ///
    /// # Errors
    /// Returns the errors of [`join`](Self::join).
    pub fn join_with(
        &self,
        options: ProcessOptions,
        add: impl FnOnce(Recoverers) -> Recoverers,
    ) -> Result<Process, PodError> {
        self.join_as(options, add, false)
    }

    /// Does the same as [`join_with`](Self::join_with). With `is_repair` it also joins while this
    /// opening repairs the pod.
    fn join_as(
        &self,
        options: ProcessOptions,
        add: impl FnOnce(Recoverers) -> Recoverers,
        is_repair: bool,
    ) -> Result<Process, PodError> {
        self.refuse_an_observer()?;
        let mut recoverers = heap::recoverers(crate::sync::recoverers(self.logs()));
        if let Some(heap) = self.heap {
            recoverers = heap::recoverers_of(recoverers, heap);
            recoverers = crate::structures::recoverers(recoverers, heap);
            recoverers = crate::objects::recoverers(recoverers, heap);
        }
        let recoverers = add(recoverers);
        self.refuse_a_copy(options.adopts_copy())?;
        let joining = Joining::begin(self, is_repair)?;
        let options = options.obligations(Arc::new(LogObligations::new(recoverers, self.heap)));
        let joined = self.attach().and_then(|os| {
            // Once more: a pod that is destroyed from here on keeps the side file, which is in use.
            self.refuse_a_removed()?;
            Ok(Process::join(self.tables, os, options)?)
        });
        match joined {
            Ok(process) => {
                let mut of_it = self.use_of_it();
                of_it.joined.retain(|shared| shared.strong_count() > 0);
                of_it.joined.push(process.shared());
                Ok(process)
            }
            Err(error) => {
                joining.refused(matches!(error, PodError::Removed { .. }));
                Err(error)
            }
        }
    }

    /// Returns the logs of the pod's instances.
    pub fn logs(&self) -> Logs {
        let tables = self.tables;
        Logs::new(tables.memory(), tables.log_at(0), tables.extent().ids)
    }

    /// Returns an error if the pod's file is a copy that was not adopted; with `adopt`, adopts it.
    fn refuse_a_copy(&self, adopt: bool) -> Result<(), PodError> {
        let path = || self.segment.path().into();
        let metadata = { self.segment.own_file()?.metadata() }.map_err(|source| OsError::Call {
            call: format!("stat of {}", self.segment.path().display()),
            source,
        })?;
        let origin = Origin::of(self);
        // On memory that kernels share, each kernel has inode numbers of its own.
        if !self.segment.is_known_by_inode() || origin.note(&metadata) {
            return Ok(());
        }
        if !adopt {
            return Err(PodError::Copy { path: path() });
        }
        let file = self.file();
        if (0..self.tables.extent().ids).any(|id| file.is_locked(id)) {
            // A copy has no members.
            return Err(PodError::InUse {
                path: path(),
                why:
                    "it has members, so it is not a copy, but some processes cannot read the time \
                     at which its file was created; end its members"
                        .into(),
            });
        }
        // Members that reach this memory by another file, such as that of an overlay, have their
        // locks elsewhere.
        let hosts = self.tables.writers();
        let hosts = hosts.filter(|(_, state)| state.level == Some(Level::Host));
        let hosts: Vec<_> = hosts.map(|(id, _)| id).collect();
        if let Some(host) = one_that_beats(self.tables, &hosts, self.settings.suspicion) {
            return Err(PodError::InUse {
                path: path(),
                why: format!(
                    "it is not a copy: host {host} is alive in it, and has opened the same memory \
                     by another file (in an overlay, for example); name the pod by that file"
                ),
            });
        }
        match origin.adopt(&metadata, &file)? {
            true => Ok(()),
            false => Err(PodError::InUse {
                path: path(),
                why: "another process is adopting it; try again".into(),
            }),
        }
    }

    /// Returns the pod's number, which is a part of the names of its side files and cords: its
    /// uuid, or another number if it is a copy that was adopted.
    pub fn number(&self) -> u128 {
        let number = Origin::of(self).number();
        number.unwrap_or_else(|| self.segment.uuid().as_u128())
    }

    fn file(&self) -> PodFile {
        PodFile::of(self.segment)
    }

    /// Returns this operating system, as the pod's members on it see it: the obituaries and wake-up
    /// futexes of this pod.
    ///
    /// # Errors
    /// If it lacks a feature that membership needs, or the pod was destroyed.
    pub fn os(&self) -> Result<&'static dyn Os, PodError> {
        self.use_of_it().given_out = true;
        self.attach()
    }

    fn attach(&self) -> Result<&'static dyn Os, PodError> {
        self.refuse_an_observer()?;
        // First: a side file of a removed pod would stay.
        self.refuse_a_removed()?;
        let access = self.side_file_access();
        let ids = self.tables.extent().ids;
        // Only with one kernel do all processes that can map the file see its locks.
        let has_one_kernel = self.segment.has_one_kernel();
        let mut of_it = self.use_of_it();
        let linux = Linux::attach(self.number(), ids, access, self.file(), has_one_kernel)?;
        match of_it.attached.replace(linux) {
            // An opening keeps one attachment. (A new attachment differs after a fork, or if the
            // pod has another number since its adoption.)
            Some(before) if core::ptr::eq(before, linux) => linux.detach()?,
            _ => {}
        }
        Ok(linux)
    }

    /// Returns the identity of this operating system in this pod.
    ///
    /// # Errors
    /// Returns the errors of [`os`](Self::os).
    pub fn identity(&self) -> Result<OsIdentity, PodError> {
        Ok(self.attach()?.identity())
    }

    /// Returns the access to the side file and cords: users that may use the pod's file may use
    /// these too.
    fn side_file_access(&self) -> Access {
        let metadata = self
            .segment
            .own_file()
            .ok()
            .and_then(|file| file.metadata().ok());
        metadata.map_or_else(Access::default, |metadata| access_of(&metadata))
    }

    /// Returns the segment that contains the pod.
    pub fn segment(&self) -> Segment {
        self.segment
    }

    /// Returns the tables of the membership.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Returns the settings that all members share.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the named, typed roots of the program that uses the pod.
    pub fn roots(&self) -> Roots {
        self.segment.roots()
    }

    /// Returns the heap, unless the pod was created without one.
    pub fn heap(&self) -> Option<Heap> {
        self.heap
    }

    /// Returns the area of the program's tables, if the pod was created
    /// [with one](PodOptions::structures).
    pub fn structures(&self) -> Option<Area> {
        self.segment.area(AreaKind::Structures)
    }

    /// Returns the payload: the heap's or, without one, the program's.
    pub fn payload(&self) -> Option<Area> {
        self.segment.area(AreaKind::Payload)
    }

    /// Returns the status of the pod's members and groups.
    pub fn status(&self) -> Status {
        Status::of(self)
    }

    /// Checks everything in the pod and reports every violated invariant. Changes nothing. State
    /// that changes during the check is checked again before it is reported.
    pub fn check(&self) -> Check {
        Check::of(self)
    }
}

/// The parts of a pod that a member uses.
impl Member {
    /// Returns this thread's heap handle for `pod`, by which it allocates, frees and retires. A
    /// thread has one at a time.
    ///
    /// # Errors
    /// If the pod has no heap, this member is of another pod, or it already has a heap handle.
    pub fn heap(&self, pod: &Pod) -> Result<LocalHeap<'_>, PodError> {
        let path = || pod.segment.path().into();
        let heap = pod.heap.ok_or_else(|| PodError::NoHeap { path: path() })?;
        let recoverers = self.recoverers();
        let recoverers = recoverers.filter(|_| self.memory() == pod.tables.memory());
        let recoverers = recoverers.ok_or_else(|| PodError::Stranger {
            member: self.instance(),
            path: path(),
        })?;
        Ok(LocalHeap::try_of(heap, self, recoverers)?)
    }

    /// Returns the handlers by which the member's process recovers dead members, which taking a
    /// lock needs. `None` if it did not join through a [`Pod`].
    pub fn recoverers(&self) -> Option<&Recoverers> {
        self.owed().map(LogObligations::recoverers)
    }
}

/// Opens the heap in the segment of a pod, if there is one.
fn open_heap(segment: Segment) -> Result<Option<Heap>, PodError> {
    let Some(state) = segment.area(AreaKind::HeapState) else {
        return Ok(None);
    };
    let path = || segment.path().into();
    let heap = Heap::open(segment.memory(), state.offset).map_err(|source| PodError::Heap {
        path: path(),
        source,
    })?;
    // Its header is intact, but may describe another segment's heap.
    let (first, bytes) = (heap.buddy().region(), heap.buddy().bytes());
    let payload = segment.area(AreaKind::Payload).filter(|payload| {
        payload.offset == first
            && bytes <= payload.size
            && Heap::<Native>::state_bytes(bytes).is_ok_and(|own| own <= state.size)
    });
    match payload {
        Some(_) => Ok(Some(heap)),
        None => Err(PodError::NoMembership {
            path: path(),
            why: format!("its heap has {bytes} bytes at {first}, which are not its area `payload`"),
        }),
    }
}

/// Returns the membership tables of `extent` in these areas.
fn lay_out(memory: Native, areas: &[Area], extent: Extent) -> Result<Tables, String> {
    let sizes = extent.area_bytes();
    let find = |kind: AreaKind, needed: u64| {
        let area = areas
            .iter()
            .find(|area| area.kind == kind)
            .ok_or_else(|| format!("it has no area `{kind}`"))?;
        if area.size < needed {
            return Err(format!(
                "its area `{kind}` has {} bytes, but {needed} are needed for {} ids",
                area.size, extent.ids
            ));
        }
        Ok(area.offset.byte())
    };
    let places = AreaBytes {
        generations: find(AreaKind::Generations, sizes.generations)?,
        instances: find(AreaKind::Instances, sizes.instances)?,
        roles: find(AreaKind::Roles, sizes.roles)?,
        groups: find(AreaKind::Groups, sizes.groups)?,
        logs: find(AreaKind::Logs, sizes.logs)?,
    };
    Ok(Tables::new(memory, extent, places))
}

/// Returns the access to files beside the file of `metadata`.
fn access_of(metadata: &Metadata) -> Access {
    Access {
        mode: metadata.permissions().mode() & 0o666,
        group: Some(metadata.gid()),
        owner: Some(metadata.uid()),
    }
}
