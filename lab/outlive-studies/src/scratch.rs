//! Pods, files and directories for the time of a measurement.

use crate::StudyError;
use outlive::membership::{Process, ProcessOptions, Settings};
use outlive::memory::Offset;
use outlive::pod::{Pod, PodOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A pod in /dev/shm that is destroyed when this is dropped: after its members.
#[derive(Debug)]
pub struct ScratchPod {
    pod: Pod,
    path: PathBuf,
}

impl ScratchPod {
    /// A pod of `size` bytes and 128 ids, whose payload is the study's own.
    pub fn new(size: u64, settings: Settings) -> Result<Self, StudyError> {
        Self::of_ids(size, settings, 128)
    }

    /// Creates a pod of `size` bytes with `ids` ids.
    pub fn of_ids(size: u64, settings: Settings, ids: u32) -> Result<Self, StudyError> {
        Self::with(PodOptions::new().without_heap(), size, settings, ids)
    }

    /// One with a heap.
    pub fn with_heap(size: u64) -> Result<Self, StudyError> {
        Self::with(PodOptions::new(), size, Settings::default(), 128)
    }

    fn with(
        options: PodOptions,
        size: u64,
        settings: Settings,
        ids: u32,
    ) -> Result<Self, StudyError> {
        let path = fresh_path("pod");
        let settings = Settings {
            uid: rustix::process::geteuid().as_raw(),
            ..settings
        };
        let options = options.size(size).ids(ids).settings(settings);
        let pod = Pod::create(&path, options.prefault(|_, _| ()))?;
        Ok(Self { pod, path })
    }

    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the payload begins.
    pub fn payload(&self) -> Offset {
        payload(&self.pod)
    }

    /// Joins as a process of `host`.
    pub fn join(&self, host: u32) -> Result<Process, StudyError> {
        Ok(self.pod.join(ProcessOptions::on_host(host).name("study"))?)
    }
}

impl Drop for ScratchPod {
    fn drop(&mut self) {
        // Nobody can be told here; what stays is found by `outlive pod clean`.
        let destroyed = Pod::destroy(&self.path);
        debug_assert!(
            std::thread::panicking() || matches!(destroyed, Ok(None)),
            "something of {} stays: {destroyed:?}",
            self.path.display()
        );
    }
}

/// A directory in /dev/shm. It goes with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one, for `what`.
    pub fn new(what: &str) -> Result<Self, StudyError> {
        let path = fresh_path(what);
        fs::create_dir(&path).map_err(StudyError::io("making a directory in /dev/shm"))?;
        Ok(Self(path))
    }

    /// Where what is called `name` is, or would be, in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// What programs of others find in a directory, and leave there.
#[cfg(any(feature = "lupin", feature = "mpi", feature = "ray"))]
impl Directory {
    /// Where it is.
    #[cfg(feature = "mpi")]
    pub fn whole(&self) -> &Path {
        &self.0
    }

    /// Writes a file.
    #[cfg(feature = "lupin")]
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, StudyError> {
        let path = self.path(name);
        let written = fs::write(&path, bytes);
        written.map_err(StudyError::io(format!("writing {}", path.display())))?;
        Ok(path)
    }

    /// Writes a program.
    #[cfg(any(feature = "lupin", feature = "mpi"))]
    pub fn write_program(&self, name: &str, program: &[u8]) -> Result<PathBuf, StudyError> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        fs::write(&path, program)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
            .map_err(StudyError::io("writing a program to /dev/shm"))?;
        Ok(path)
    }

    /// The bytes of what a program has written, which is removed.
    pub fn take(&self, name: &str) -> Result<Vec<u8>, StudyError> {
        let read = fs::read(self.path(name));
        let bytes = read.map_err(StudyError::io(format!("reading what is left as {name}")))?;
        self.remove(&[name])?;
        Ok(bytes)
    }

    /// The lines of what a program has reported, which is removed.
    pub fn report(&self) -> Result<String, StudyError> {
        let text = fs::read_to_string(self.path("report")).unwrap_or_default();
        self.remove(&["report"])?;
        Ok(text)
    }

    /// Removes files, should they be there.
    pub fn remove(&self, names: &[&str]) -> Result<(), StudyError> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StudyError::io("removing what a run has left")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nobody can be told here.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where a pod's payload begins.
pub fn payload(pod: &Pod) -> Offset {
    let area = pod.payload().expect("a pod has payload");
    area.offset
}

/// A path in /dev/shm that nobody else uses.
pub fn fresh_path(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("/dev/shm/outlive-study-{process}-{number}-{what}").into()
}
