//! The media that can hold a segment.
//!
//! A backend knows where the bytes are, how many there are, how to read the first page without
//! mapping the rest, and how a finished segment gets its name. All else (checks, reservation, the
//! order of a creation's writes) is the same for all of them. The path selects the backend:
//!
//! | path | backend | how a creation is made atomic |
//! | --- | --- | --- |
//! | a file, or nothing yet | [`file`] | an unnamed file gets its name last |
//! | `memfd:NAME`, `/proc/PID/fd/N` of one | [`memfd`] | the superblock's first word, last |
//! | a character device of the dax bus | [`dax`] | the superblock's first word, last |
//! | `resourceN` of a PCI device in sysfs | [`pci`] | the superblock's first word, last |
//!
//! No DAX device and no physical PCI BAR has been tried (`outlive-lab study guests` uses a BAR of
//! QEMU). The code that reads their attributes is tested over a tree of plain files in place of
//! sysfs, the rest by the conformance suite over a plain file in place of the device.

pub(super) mod dax;
mod emulated;
pub(super) mod file;
pub(super) mod memfd;
pub(super) mod pci;

use super::error::{CallFailed, CreateError, DestroyError, OpenError, Unsuitable};
use super::ofd::{self, Held, Kind};
use super::space::{Places, Space};
use super::superblock::{Magic, Page, Refusal, SUPERBLOCK_BYTES, Superblock};
use core::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The kind of medium of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// A file: in `/dev/shm`, on a DAX filesystem such as famfs, on hugetlbfs, or an ordinary one.
    File,
    /// Anonymous memory with a file descriptor, sealed against shrinking.
    Memfd,
    /// A DAX character device.
    DaxDevice,
    /// The memory of a PCI device, by its resource file.
    PciBar,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Memfd => "memfd",
            Self::DaxDevice => "DAX device",
            Self::PciBar => "PCI BAR",
        })
    }
}

/// One medium that holds a segment or is to hold one.
pub(super) trait Backend: fmt::Debug + Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Returns the file that is mapped.
    fn file(&self) -> &Arc<File>;

    /// Returns the path at which processes of this operating system can open it, once it is
    /// complete.
    fn path(&self) -> &Path;

    /// Returns the size in bytes.
    fn capacity(&self) -> Result<u64, CallFailed>;

    /// Returns the number of bytes of which the size of every mapping is a multiple.
    fn granule(&self) -> u64;

    /// Returns whether its pages were allocated for this creation, so that they are zeros and not
    /// in use.
    fn is_fresh(&self) -> bool;

    /// Copies the first page (fewer bytes if there are fewer) into private memory.
    fn first_page(&self) -> Result<Vec<u8>, CallFailed>;

    /// Ensures that the bytes of `space` exist with all their pages.
    fn reserve(&mut self, space: Space, places: &Places) -> Result<(), CreateError>;

    /// Returns whether one kernel at a time can map it, so that all processes that map it see one
    /// another's file locks.
    fn has_one_kernel(&self) -> bool;

    /// Returns whether its inode number distinguishes it from every copy of it, for all processes
    /// that can map it.
    fn is_known_by_inode(&self) -> bool {
        self.has_one_kernel()
    }

    /// Returns whether it is a device: its memory exists before and after the segment, and has
    /// pages of its own sizes.
    fn is_device(&self) -> bool {
        false
    }

    /// Removes the segment of a medium that is no [device](Self::is_device), by its name.
    fn unlink(&self) -> Result<(), DestroyError> {
        let path = self.path();
        fs::remove_file(path).map_err(|error| CallFailed::new("unlink", path, error).into())
    }

    /// Gives a completed segment its name, if it has none yet, and makes it final.
    fn publish(&mut self) -> Result<(), CreateError>;
}

/// Returns the backend for a new segment at `path`, and the first word that is there now.
pub(super) fn for_creation(
    path: &Path,
    options: &Fresh,
    places: &Places,
) -> Result<(Box<dyn Backend>, u64), CreateError> {
    if let Some(name) = memfd::name(path) {
        return Ok((Box::new(memfd::Memfd::create(name, path, options)?), 0));
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (file, word) = file::RegularFile::create(path, options)?;
            return Ok((Box::new(file), word));
        }
        Err(error) => return Err(CallFailed::new("stat", path, error).into()),
    };
    let is_file = metadata.is_file() && !pci::is_one(path, places);
    if is_file && !options.replace && !(places.stand_in() && dax::is_one(path, &metadata, places)) {
        return Err(CreateError::Exists {
            path: path.into(),
            what: "a file is there; open it, destroy it, or choose another path".into(),
        });
    }
    let backend =
        existing(path, &metadata, places, Access::ReadWrite).map_err(|error| match error {
            OpenError::Unsuitable(unsuitable) => CreateError::Unsuitable(unsuitable),
            OpenError::Call(call) => CreateError::Call(call),
            OpenError::Denied { path, source } => CallFailed::new("open", &path, source).into(),
            other => Unsuitable::new(path, other.to_string()).into(),
        })?;
    // One creator at a time, and none while a process of this operating system has the segment
    // open.
    if !lock(backend.file(), path)? {
        return Err(CreateError::Busy { path: path.into() });
    }
    let word = may_be_replaced(backend.as_ref(), path, options.replace)?;
    Ok((backend, word))
}

/// The byte on which each opening of a segment holds a read lock. A process that changes the
/// segment in place holds a write lock on it.
const USE_BYTE: libc::off_t = 1 << 61;

/// Locks a segment that is to be changed in place. Returns `false`, with the lock as it was, if a
/// process of this kernel has it open by another description.
///
/// # Errors
/// If the call fails: then another process may have it open.
pub(crate) fn lock(file: &File, path: &Path) -> Result<bool, CallFailed> {
    lock_use(file, path, Kind::Write)
}

/// Marks the segment in `file` as in use; after [`lock`], turns that lock into the mark. Returns
/// `false` while another description of this kernel has a write lock on it.
///
/// # Errors
/// If the call fails: then a creator would not see this opening.
pub(crate) fn share(file: &File, path: &Path) -> Result<bool, CallFailed> {
    lock_use(file, path, Kind::Read)
}

fn lock_use(file: &File, path: &Path, kind: Kind) -> Result<bool, CallFailed> {
    let failed = |error| CallFailed::new("fcntl(F_OFD_SETLK)", path, error);
    ofd::lock(file, USE_BYTE, kind).map_err(failed)
}

/// Returns whether a process of this kernel may have the segment in `file` open by another
/// description: `true` also if that cannot be read.
pub(crate) fn may_be_in_use(file: &File) -> bool {
    ofd::is_locked(file, USE_BYTE).unwrap_or(true)
}

/// Returns whether another description of this kernel has a write lock on the segment in `file`.
pub(super) fn is_being_changed(file: &File) -> bool {
    ofd::excludes(file, USE_BYTE, Kind::Read).unwrap_or(false)
}

/// Returns a value that releases the lock of [`share`] on drop.
pub(super) fn held(file: &Arc<File>) -> Held {
    Held::new(Arc::clone(file), USE_BYTE)
}

/// Returns the first word at `path`, if a segment may be created over the current contents.
fn may_be_replaced(backend: &dyn Backend, path: &Path, replace: bool) -> Result<u64, CreateError> {
    let page = backend.first_page()?;
    let Some(word) = page.first_chunk() else {
        return Err(Unsuitable::new(path, "it has no bytes to create a segment in").into());
    };
    let word = u64::from_ne_bytes(*word);
    let exists = |what: String| CreateError::Exists {
        path: path.into(),
        what,
    };
    match Superblock::decode(&page, backend.capacity()?) {
        Err(Refusal::NeverCompleted(_)) if Magic::of(word) == Magic::Zero => {
            // The images of some filesystems begin with zeros.
            if backend.kind() == BackendKind::File
                && let Some(at) = first_data(backend.file(), path)?
            {
                let why = format!(
                    "it is a file of another program: it has contents at byte {at}; if they are no \
                     longer needed, remove it"
                );
                return Err(Unsuitable::new(path, why).into());
            }
        }
        Err(foreign @ Refusal::Foreign(_)) if backend.kind() == BackendKind::File => {
            return Err(Unsuitable::new(path, foreign.to_string()).into());
        }
        _ if replace => {}
        Ok(found) => {
            return Err(exists(format!(
                "it holds the segment of pod {}; if that is no longer needed, replace it by \
                 --replace (`replace(true)`)",
                found.uuid
            )));
        }
        Err(refusal) => {
            return Err(exists(format!(
                "{refusal}; if the contents are no longer needed, replace them by --replace \
                 (`replace(true)`)"
            )));
        }
    }
    Ok(word)
}

/// Returns the offset of the first piece of `file` that is not zeros.
fn first_data(file: &File, path: &Path) -> Result<Option<u64>, CallFailed> {
    let failed = |error| CallFailed::new("read", path, error);
    let (mut piece, mut at) = (vec![0; 1 << 20], 0);
    loop {
        match file.read_at(&mut piece, at).map_err(failed)? {
            0 => return Ok(None),
            bytes if piece[..bytes].iter().any(|byte| *byte != 0) => return Ok(Some(at)),
            bytes => at += bytes as u64,
        }
    }
}

/// The requested properties of a new segment's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    pub mode: u32,
    pub replace: bool,
    /// Take pages of this size from the system's pool of huge pages.
    pub reserved_huge_pages: bool,
    /// Act as if the filesystem had no unnamed files.
    pub named_from_the_start: bool,
}

/// The access of an opening to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    ReadWrite,
}

/// Returns the backend of the segment at `path`.
pub(super) fn for_opening(
    path: &Path,
    places: &Places,
    access: Access,
) -> Result<Box<dyn Backend>, OpenError> {
    let metadata = fs::metadata(path).map_err(|error| open_failed("stat", path, error))?;
    existing(path, &metadata, places, access)
}

/// Returns the backend of the segment in `file`, which was passed to this process.
pub(super) fn for_file(
    file: File,
    path: &Path,
    places: &Places,
) -> Result<Box<dyn Backend>, OpenError> {
    if memfd::is_one(&file) {
        return Ok(Box::new(memfd::Memfd::from_file(file, path)?));
    }
    let metadata = file
        .metadata()
        .map_err(|error| open_failed("fstat", path, error))?;
    if metadata.is_file() && !pci::is_one(path, places) {
        return Ok(Box::new(file::RegularFile::from_file(file, path)?));
    }
    // A device's attributes are found by its path.
    existing(path, &metadata, places, Access::ReadWrite)
}

fn existing(
    path: &Path,
    metadata: &Metadata,
    places: &Places,
    access: Access,
) -> Result<Box<dyn Backend>, OpenError> {
    let kind = metadata.file_type();
    // The kind is known before the open, which may have side effects on other kinds.
    if dax::is_one(path, metadata, places) {
        let attributes = dax::Attributes::read(path, metadata, places)?;
        return Ok(Box::new(dax::DaxDevice::new(
            open(path, access)?,
            path,
            attributes,
        )));
    }
    if pci::is_one(path, places) {
        return Ok(Box::new(pci::PciBar::open(path, places, access)?));
    }
    if kind.is_file() {
        let file = open(path, access)?;
        if memfd::is_one(&file) {
            return Ok(Box::new(memfd::Memfd::from_file(file, path)?));
        }
        return Ok(Box::new(file::RegularFile::from_file(file, path)?));
    }
    let why = if kind.is_dir() {
        "it is a directory; name a file in it"
    } else if kind.is_char_device() {
        "it is a character device that sysfs does not know as a DAX device"
    } else if kind.is_block_device() {
        "it is a block device; make it a DAX device or put a DAX filesystem on it"
    } else {
        "it is neither a file nor a device"
    };
    Err(Unsuitable::new(path, why).into())
}

fn open(path: &Path, access: Access) -> Result<File, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| open_failed("open", path, error))
}

fn open_failed(call: &'static str, path: &Path, error: io::Error) -> OpenError {
    let path = path.into();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::NotFound { path },
        io::ErrorKind::PermissionDenied => OpenError::Denied {
            path,
            source: error,
        },
        _ => CallFailed::new(call, &path, error).into(),
    }
}

/// Reads the first page: its first word by a call of its own, before the rest, as
/// [`load_page`](super::completion::load_page) does.
fn read_first_page(file: &File, path: &Path) -> Result<Vec<u8>, CallFailed> {
    let mut page: Page = [0; SUPERBLOCK_BYTES as usize];
    let mut there = 0;
    for end in [8, page.len()] {
        while there < end {
            match file.read_at(&mut page[there..end], there as u64) {
                Ok(0) => break,
                Ok(read) => there += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CallFailed::new("read", path, error)),
            }
        }
        // Acquire: the rest of the page is read after its first word.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
    }
    Ok(page[..there].to_vec())
}
