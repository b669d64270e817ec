//! Anonymous memory with a file descriptor.
//!
//! It has no name and is freed when its last holder closes it. Other processes reach it by a
//! descriptor that is passed to them (inherited, or over a socket:
//! [`Segment::from_file`](crate::segment::Segment::from_file)) or by `/proc/PID/fd/N` of a holder.
//! It is sealed against shrinking and growing when its pages are there, so no holder can take pages
//! away under another's accesses; one that is not sealed is refused.

use super::{Backend, BackendKind, Fresh, read_first_page};
use crate::segment::error::{CallFailed, CreateError, DestroyError, Unsuitable};
use crate::segment::filesystem::set_mode;
use crate::segment::ofd::name_of;
use crate::segment::space::{NotReserved, Places, Space, reserve};
use outlive_memory::Native;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, memfd_create,
};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A memfd.
#[derive(Debug)]
pub(super) struct Memfd {
    file: Arc<File>,
    path: PathBuf,
    granule: u64,
    fresh: bool,
}

/// Returns the name in a path `memfd:NAME`.
pub(super) fn name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"memfd:")
}

/// Returns whether `file` is a memfd, sealed or not.
pub(super) fn is_one(file: &File) -> bool {
    let link = std::fs::read_link(name_of(file));
    // A file that bears such a name on a filesystem has links; a memfd never has one.
    link.is_ok_and(|link| link.as_os_str().as_bytes().starts_with(b"/memfd:"))
        && fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
        && fcntl_get_seals(file).is_ok()
}

impl Memfd {
    /// Creates a memfd without bytes.
    pub fn create(name: &[u8], path: &Path, options: &Fresh) -> Result<Self, CreateError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = if options.reserved_huge_pages {
            flags | MemfdFlags::HUGETLB
        } else {
            flags
        };
        let created = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 do not know this flag.
            Err(Errno::INVAL) => memfd_create(name, flags),
            created => created,
        };
        let call = if options.reserved_huge_pages {
            "memfd_create(MFD_HUGETLB)"
        } else {
            "memfd_create"
        };
        let fd = created.map_err(|error| CallFailed::new(call, path, error))?;
        let file = File::from(fd);
        set_mode(&file, options.mode).map_err(|error| CallFailed::new("fchmod", path, error))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok(Self::new(file, path.into(), true)?)
    }

    /// Wraps an existing memfd.
    pub fn from_file(file: File, path: &Path) -> Result<Self, crate::segment::OpenError> {
        let seals = fcntl_get_seals(&file)
            .map_err(|error| CallFailed::new("fcntl(F_GET_SEALS)", path, error))?;
        if !seals.contains(SealFlags::SHRINK) {
            let why = "it is a memfd that is not sealed against shrinking; if its creator has not \
                       finished yet, try again";
            return Err(Unsuitable::new(path, why).into());
        }
        Ok(Self::new(file, path.into(), false)?)
    }

    fn new(file: File, path: PathBuf, fresh: bool) -> Result<Self, CallFailed> {
        let stat = fstatfs(&file).map_err(|error| CallFailed::new("fstatfs", &path, error))?;
        Ok(Self {
            granule: (stat.f_bsize as u64).max(Native::GRANULE),
            file: Arc::new(file),
            path,
            fresh,
        })
    }
}

impl Backend for Memfd {
    fn kind(&self) -> BackendKind {
        BackendKind::Memfd
    }

    fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn capacity(&self) -> Result<u64, CallFailed> {
        let stat =
            fstat(&self.file).map_err(|error| CallFailed::new("fstat", &self.path, error))?;
        Ok(stat.st_size as u64)
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn is_fresh(&self) -> bool {
        self.fresh
    }

    fn first_page(&self) -> Result<Vec<u8>, CallFailed> {
        read_first_page(&self.file, &self.path)
    }

    fn reserve(&mut self, space: Space, places: &Places) -> Result<(), CreateError> {
        reserve(&self.file, &self.path, space, places).map_err(|error| match error {
            NotReserved::NoRoom(no_room) => CreateError::NoRoom(no_room),
            NotReserved::Call(call) => CreateError::Call(call),
        })?;
        if self.fresh {
            fcntl_add_seals(&self.file, SEALS)
                .map_err(|error| CallFailed::new("fcntl(F_ADD_SEALS)", &self.path, error))?;
        }
        Ok(())
    }

    fn has_one_kernel(&self) -> bool {
        true
    }

    fn unlink(&self) -> Result<(), DestroyError> {
        Err(DestroyError::Unnamed {
            path: self.path().into(),
        })
    }

    fn publish(&mut self) -> Result<(), CreateError> {
        Ok(())
    }
}
