//! The attributes of files, directories and links.

use rustix::fs as system;
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The mode bits that are archived.
pub(super) const MODE: u32 = 0o7777;
/// The setuid and setgid bits.
pub(super) const SET_IDS: u32 = SET_USER | SET_GROUP;
pub(super) const SET_USER: u32 = 0o4000;
pub(super) const SET_GROUP: u32 = 0o2000;

/// The attributes of a file, a directory or a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of the mode: permissions, setuid, setgid and sticky bit.
    pub mode: u32,
    /// The time of the last modification. Archives of format 2 have no times.
    pub modified: Option<Time>,
    /// The owner, if that is archived. It is always archived for files with a setuid or setgid bit,
    /// as the effect of these bits depends on it.
    pub owner: Option<Owner>,
    /// The extended attributes, sorted by name; empty if they are not archived.
    pub xattrs: Vec<Xattr>,
}

/// A time since the beginning of 1970 (UTC), in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The seconds; negative before 1970.
    pub seconds: i64,
    /// The nanoseconds within the second, from 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    /// Returns the time of the last modification.
    pub(super) fn modified(found: &Metadata) -> Self {
        Self {
            seconds: found.mtime(),
            nanos: found.mtime_nsec() as u32,
        }
    }
}

/// A user and a group, as numeric IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user ID.
    pub user: u32,
    /// The group ID.
    pub group: u32,
}

impl Owner {
    /// Returns the owner.
    pub(super) fn of(found: &Metadata) -> Self {
        Self {
            user: found.uid(),
            group: found.gid(),
        }
    }
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The name with its namespace, such as `user.mime_type`.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Attributes {
    /// Returns the attributes in `found`; extended ones are not among them.
    pub(super) fn of(found: &Metadata, owners: bool) -> Self {
        let mode = found.permissions().mode() & MODE;
        let needs_owner = found.is_file() && mode & SET_IDS != 0;
        Self {
            mode,
            modified: Some(Time::modified(found)),
            owner: (owners || needs_owner).then(|| Owner::of(found)),
            xattrs: Vec::new(),
        }
    }
}

/// Returns the extended attributes of `path`, sorted by name. If `is_link`, they are those of the
/// link itself, not of its target. Calls `unreadable` with each attribute that cannot be read.
///
/// # Errors
/// If the names cannot be read.
pub(super) fn xattrs(
    path: &Path,
    is_link: bool,
    mut unreadable: impl FnMut(&[u8], Errno),
) -> Result<Vec<Xattr>, Errno> {
    let list = |buffer: &mut [u8]| match is_link {
        true => system::llistxattr(path, buffer),
        false => system::listxattr(path, buffer),
    };
    let names = match whole(list) {
        // The filesystem does not support extended attributes.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        let get = |buffer: &mut [u8]| match is_link {
            true => system::lgetxattr(path, name, buffer),
            false => system::getxattr(path, name, buffer),
        };
        let name = name.to_vec();
        match whole(get) {
            Ok(value) => xattrs.push(Xattr { name, value }),
            // It was removed after the names were read.
            Err(Errno::NODATA) => {}
            Err(error) => unreadable(&name, error),
        }
    }
    Ok(xattrs)
}

/// Returns the bytes that `read` stores in a buffer. `read` returns their number, or `RANGE` if the
/// buffer is too short.
fn whole(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    // The limit of Linux, for a list of names as well as for a value.
    let mut buffer = vec![0; 1 << 16];
    let len = read(&mut buffer)?;
    buffer.truncate(len);
    buffer.shrink_to_fit();
    Ok(buffer)
}
