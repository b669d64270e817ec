//! The files of the servers' segments, beside the file of the pool.

use crate::coherent::{ServerFiles, ServerId};
use outlive::segment::Segment;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The files of the segments of one pool.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The path of the pool's file without symbolic links, so that all members use the same files,
    /// and a tag that distinguishes the pool from an earlier one at the same path.
    prefix: OsString,
}

impl Files {
    pub fn of(pool: Segment) -> Self {
        let path = pool.path();
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut prefix = path.into_os_string();
        prefix.push(format!(".{:08x}.server-", pool.uuid().as_u128() as u32));
        Self { prefix }
    }

    /// Returns the file of the segment of `server`'s `generation`.
    pub fn path(&self, server: ServerId, generation: u64) -> PathBuf {
        let mut path = self.prefix.clone();
        path.push(format!("{}.{generation}", server.0));
        path.into()
    }

    /// Removes all files of segments of this pool.
    pub fn remove_all(&self) {
        let prefix = Path::new(&self.prefix);
        let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
            return;
        };
        let name = name.as_encoded_bytes();
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(name) {
                remove(&entry.path());
            }
        }
    }
}

/// Removes a file. Its memory is not punched: a reader may still have a view of it, and the kernel
/// frees it with the last mapping.
fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = path.display();
            tracing::warn!(%path, %error, "the segment of a server was not removed");
        }
        _ => {}
    }
}

impl ServerFiles for Files {
    fn remove(&self, server: ServerId, generation: u64) {
        remove(&self.path(server, generation));
    }
}
