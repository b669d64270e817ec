//! Restores the attributes of unpacked entries, and records those that could not be restored.
//!
//! The order is owner, extended attributes, mode, time, because a change of the owner clears the
//! setuid bit and file capabilities, and an access control list changes the mode.
//!
//! The author of an archive controls its programs. A program with a setuid or setgid bit acts
//! with the rights of its owner or group, and a file capability gives a program further rights. So
//! these are restored on request only. Additionally, the setuid bit is restored only on a file that
//! has its archived user, and the setgid bit only on a file that has its archived group.

use super::archive::{Content, Entry};
use super::attributes::{Attributes, MODE, Owner, SET_GROUP, SET_IDS, SET_USER, Time};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The extended attribute that holds file capabilities.
const CAPABILITY: &str = "security.capability";
/// The reason why such rights are not restored.
const NOT_ASKED: &str = "it gives a program additional rights; \
                         restore it with --set-ids if you trust the author of the archive";

/// An archived attribute that could not be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// The file, directory or link.
    pub path: PathBuf,
    /// The attribute that could not be restored.
    pub what: What,
    /// The reason why it could not be restored.
    pub why: String,
}

/// The kinds of attributes that can fail to be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The permissions or the sticky bit.
    Mode,
    /// The setuid or setgid bit.
    SetIds,
    /// The time of the last modification.
    Modified,
    /// The owner.
    Owner,
    /// The extended attribute with this name.
    Xattr(String),
    /// The hard link: the entry became a copy.
    HardLink,
    /// Its holes: they take space now.
    Holes,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode => f.write_str("mode"),
            Self::SetIds => f.write_str("setuid or setgid bit"),
            Self::Modified => f.write_str("time"),
            Self::Owner => f.write_str("owner"),
            Self::Xattr(name) => write!(f, "extended attribute {name}"),
            Self::HardLink => f.write_str("hard link"),
            Self::Holes => f.write_str("holes"),
        }
    }
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, what, why } = self;
        write!(f, "{}: {what} not restored: {why}", path.display())
    }
}

/// Restores attributes, and records those that it could not restore.
#[derive(Debug)]
pub(super) struct Restorer {
    pub owners: bool,
    pub xattrs: bool,
    pub set_ids: bool,
    pub not_kept: Vec<NotKept>,
}

impl Restorer {
    pub fn note(&mut self, path: &Path, what: What, why: impl fmt::Display) {
        self.not_kept.push(NotKept {
            path: path.into(),
            what,
            why: why.to_string(),
        });
    }

    fn try_to(&mut self, path: &Path, what: What, done: Result<(), Errno>) {
        if let Err(error) = done {
            self.note(path, what, io::Error::from(error));
        }
    }

    /// Restores the attributes of `entry`, which was unpacked as `path`.
    ///
    /// # Errors
    /// If `path` does not exist any more.
    pub fn restore(&mut self, path: &Path, entry: &Entry) -> io::Result<()> {
        let Attributes {
            mode,
            modified,
            owner,
            xattrs,
        } = &entry.attributes;
        let is_link = matches!(entry.content, Content::Link(_));
        if let (true, Some(Owner { user, group })) = (self.owners, owner) {
            let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let done = rustix::fs::chownat(CWD, path, Some(user), Some(group), flags);
            self.try_to(path, What::Owner, done);
        }
        let xattrs = if self.xattrs { &xattrs[..] } else { &[] };
        for xattr in xattrs {
            let name = OsStr::from_bytes(&xattr.name);
            if name == CAPABILITY && !self.set_ids {
                let what = What::Xattr(CAPABILITY.into());
                self.note(path, what, NOT_ASKED);
                continue;
            }
            let done = rustix::fs::lsetxattr(path, name, &xattr.value, XattrFlags::empty());
            let name = name.to_string_lossy().into_owned();
            self.try_to(path, What::Xattr(name), done);
        }
        if !is_link {
            let is_file = matches!(entry.content, Content::File { .. });
            self.restore_mode(path, *mode, is_file.then_some(*owner))?;
        }
        if let Some(modified) = modified {
            self.restore_time(path, *modified)?;
        }
        Ok(())
    }

    /// Sets the mode of a directory, or of a file whose archived owner is `file`.
    fn restore_mode(
        &mut self,
        path: &Path,
        mut mode: u32,
        file: Option<Option<Owner>>,
    ) -> io::Result<()> {
        if let Some(owner) = file
            && mode & SET_IDS != 0
        {
            let now = Owner::of(&fs::symlink_metadata(path)?);
            let is_user = owner.is_some_and(|owner| owner.user == now.user);
            let is_group = owner.is_some_and(|owner| owner.group == now.group);
            if !self.set_ids {
                mode &= !SET_IDS;
                self.note(path, What::SetIds, NOT_ASKED);
            }
            let refused = [(SET_USER, is_user), (SET_GROUP, is_group)]
                .into_iter()
                .filter(|(bit, is_same)| mode & bit != 0 && !is_same)
                .fold(0, |refused, (bit, _)| refused | bit);
            if refused != 0 {
                mode &= !refused;
                let why = "the file does not have its archived user or group; \
                           root can restore owners with --owners";
                self.note(path, What::SetIds, why);
            }
        }
        let bits = Mode::from_raw_mode(mode);
        if let Err(error) = rustix::fs::chmodat(CWD, path, bits, AtFlags::empty()) {
            self.note(path, What::Mode, io::Error::from(error));
            return Ok(());
        }
        let differs = (fs::symlink_metadata(path)?.permissions().mode() & MODE) ^ mode;
        for (bits, what) in [(SET_IDS, What::SetIds), (!SET_IDS, What::Mode)] {
            if differs & bits != 0 {
                self.note(path, what, "the operating system has set another value");
            }
        }
        Ok(())
    }

    fn restore_time(&mut self, path: &Path, modified: Time) -> io::Result<()> {
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: modified.seconds,
                tv_nsec: modified.nanos.into(),
            },
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Err(error) = rustix::fs::utimensat(CWD, path, &times, flags) {
            self.note(path, What::Modified, io::Error::from(error));
        } else if Time::modified(&fs::symlink_metadata(path)?) != modified {
            self.note(
                path,
                What::Modified,
                "the filesystem stores times with less precision",
            );
        }
        Ok(())
    }
}
