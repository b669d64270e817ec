//! A cgroup (version 2) that contains all processes of one host.
//!
//! Killing it reaches every process in it at the same time, including those that fork at that
//! moment or whose parents are gone, which a walk over parents misses. It needs a cgroup v2 tree in
//! which this process may create groups; otherwise hosts are killed process by process.

use super::OsError;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::statfs;
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{io, thread};

/// The magic number of the cgroup v2 filesystem.
const CGROUP2: rustix::fs::FsWord = 0x6367_7270;

/// A cgroup. Dropping the value does not change the cgroup; see [`remove`](Self::remove).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates the group `name` (a plain file name) below that of this process, or opens it if it
    /// exists.
    ///
    /// # Errors
    /// [`OsError::Missing`] without a cgroup v2 that this process may write to, or on a kernel
    /// before 5.14, which has no `cgroup.kill`.
    pub fn create(name: &str) -> Result<Self, OsError> {
        assert!(
            !name.is_empty() && !name.contains('/') && !name.starts_with('.'),
            "{name:?} is not a name of a cgroup"
        );
        let group = Self {
            path: own_group()?.join(name),
        };
        match fs::create_dir(&group.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(missing(format!(
                    "{} could not be created ({error}); run as root, or in a delegated cgroup \
                     (systemd: Delegate=yes)",
                    group.path.display()
                )));
            }
        }
        if !group.path.join("cgroup.kill").exists() {
            let _ = group.remove();
            return Err(missing(
                "the kernel has no cgroup.kill; use Linux 5.14 or later".into(),
            ));
        }
        Ok(group)
    }

    /// Opens the group at `path`, which another process has created.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OsError> {
        let path = path.into();
        let found = fs::metadata(path.join("cgroup.kill"));
        found.map_err(|source| call("opening cgroup", &path, source))?;
        match statfs(&path) {
            Ok(found) if found.f_type == CGROUP2 => Ok(Self { path }),
            Ok(_) => Err(missing(format!(
                "{} is not on a cgroup v2 filesystem",
                path.display()
            ))),
            Err(error) => Err(call("statfs of", &path, error.into())),
        }
    }

    /// Returns the control group's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves process `pid` into the group; 0 is the calling process. Later children of the process
    /// are in the group, too.
    ///
    /// # Errors
    /// If the process is gone or may not be moved.
    pub fn add(&self, pid: u32) -> Result<(), OsError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Sends SIGKILL to every process in the control group, without waiting.
    ///
    /// # Errors
    /// If the group is gone or this process may not kill it.
    pub fn kill(&self) -> Result<(), OsError> {
        self.write("cgroup.kill", "1")
    }

    /// Returns whether the group has no live process (zombies are not live).
    ///
    /// # Errors
    /// If the group is gone.
    pub fn is_empty(&self) -> Result<bool, OsError> {
        let path = self.path.join("cgroup.events");
        let events = fs::read_to_string(&path).map_err(|error| call("reading", &path, error))?;
        Ok(events.lines().any(|line| line == "populated 0"))
    }

    /// Waits until the control group is empty, at most for `timeout`.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn wait_empty(&self, timeout: Duration) -> Result<bool, OsError> {
        let path = self.path.join("cgroup.events");
        let file = File::open(&path).map_err(|error| call("opening", &path, error))?;
        let start = Instant::now();
        loop {
            if self.is_empty()? {
                return Ok(true);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            // The kernel announces a change; the group is also polled from time to time.
            let slice = left.min(Duration::from_millis(10));
            let mut fds = [PollFd::new(&file, PollFlags::PRI)];
            let slice_spec = Timespec::try_from(slice).ok();
            match poll(&mut fds, slice_spec.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => thread::sleep(slice),
            }
        }
    }

    /// Removes the empty group. `Ok(false)` if it was gone already.
    ///
    /// # Errors
    /// If it is not empty.
    pub fn remove(&self) -> Result<bool, OsError> {
        match fs::remove_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(call("removing cgroup", &self.path, error)),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), OsError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|error| call(&format!("writing {text} to"), &path, error))
    }
}

/// Returns the directory of the group that this process is in.
fn own_group() -> Result<PathBuf, OsError> {
    let read = |path| {
        fs::read_to_string(path).map_err(|error| missing(format!("{path} cannot be read: {error}")))
    };
    let groups = read("/proc/self/cgroup")?;
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| missing("this process is in no cgroup v2".into()))?;
    let mounts = read("/proc/self/mountinfo")?;
    mounts
        .lines()
        .find_map(|line| path_below(line, own))
        .ok_or_else(|| missing("cgroup v2 is not mounted where this process can see it".into()))
}

/// Returns the path of group `own` below the mount that a line of mountinfo describes.
fn path_below(line: &str, own: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    kind.starts_with("cgroup2 ").then_some(())?;
    let mut fields = mount.split(' ').skip(3);
    let (root, at) = (fields.next()?, fields.next()?);
    let below = Path::new(own).strip_prefix(root).ok()?;
    Some(Path::new(at).join(below))
}

fn missing(hint: String) -> OsError {
    OsError::Missing {
        what: "a writable cgroup v2",
        hint,
    }
}

fn call(doing: &str, path: &Path, source: io::Error) -> OsError {
    OsError::Call {
        call: format!("{doing} {}", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_below_its_mount() {
        let line = "35 24 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw";
        let group = |line, own| path_below(line, own).map(|path| path.display().to_string());
        let at = |tail: &str| Some(format!("/sys/fs/cgroup/unified{tail}"));
        assert_eq!(group(line, "/a/b"), at("/a/b"));
        let inner = line.replace("0:30 / /", "0:30 /a /");
        assert_eq!(group(&inner, "/a/b"), at("/b"));
        assert_eq!(group(&inner, "/c"), None);
        assert_eq!(group(&line.replace("cgroup2", "tmpfs"), "/"), None);
    }
}
