//! What a filesystem keeps of files, directories and links beside their content.

use rustix::fs as system;
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The bits of a mode that are archived.
pub(super) const MODE: u32 = 0o7777;
/// The setuid and the setgid bit.
pub(super) const SET_IDS: u32 = SET_USER | SET_GROUP;
pub(super) const SET_USER: u32 = 0o4000;
pub(super) const SET_GROUP: u32 = 0o2000;

/// The attributes of a file, a directory or a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of its mode: permissions, the setuid, the setgid and the sticky bit.
    pub mode: u32,
    /// When its content was last modified. Archives of format 2 have no times.
    pub modified: Option<Time>,
    /// Its owner, if that is archived. For files with a setuid or setgid bit it always is: what such a file is allowed to do
    /// depends on it.
    pub owner: Option<Owner>,
    /// Its extended attributes in the order of their names, if they are archived.
    pub xattrs: Vec<Xattr>,
}

/// A time, in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The seconds; negative before 1970.
    pub seconds: i64,
    /// The nanoseconds after these.
    pub nanos: u32,
}

impl Time {
    /// Returns when the content was last modified that `found` describes.
    pub(super) fn modified(found: &Metadata) -> Self {
        Self {
            seconds: found.mtime(),
            nanos: found.mtime_nsec() as u32,
        }
    }
}

/// A user and a group, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

impl Owner {
    /// Returns the owner of what `found` describes.
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
    /// Its name, with its namespace: `user.mime_type`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Attributes {
    /// Returns what `found` says, without extended attributes.
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

/// Returns the extended attributes of `path`, or of the link `path` itself, in the order of their names.
/// `unreadable` gets those that cannot be read.
///
/// # Errors
/// If their names cannot be read.
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
        // The filesystem has none.
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

/// Returns all that `read` gives, which returns a length, or `RANGE` if the buffer is too short.
fn whole(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    // The largest that Linux has.
    let mut buffer = vec![0; 1 << 16];
    let len = read(&mut buffer)?;
    buffer.truncate(len);
    buffer.shrink_to_fit();
    Ok(buffer)
}
