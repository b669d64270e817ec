//! Inputs that have no file of their own: shipped, or generated.

use crate::failure::Failure;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process;

/// A file without a name, which other processes open through this process while it lives.
pub struct Unnamed {
    path: PathBuf,
    _file: File,
}

impl Unnamed {
    /// Returns the path by which other processes open the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates such a file with the contents `bytes`.
pub fn unnamed(bytes: &[u8]) -> Result<Unnamed, Failure> {
    let failed = |error: io::Error| {
        let len = bytes.len();
        Failure::new(format_args!(
            "the input of {len} bytes cannot be put into memory: {error}"
        ))
    };
    let file = memfd_create("outlive-input", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut file = File::from(file);
    file.write_all(bytes).map_err(failed)?;
    let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
    Ok(Unnamed {
        path: path.into(),
        _file: file,
    })
}
