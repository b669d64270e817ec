//! Pods, files and directories that exist for the duration of a measurement.

use crate::StudyError;
use outlive::membership::{Process, ProcessOptions, Settings};
use outlive::memory::Offset;
use outlive::pod::{Pod, PodOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A pod in /dev/shm. A drop destroys it; its members must have left by then.
#[derive(Debug)]
pub struct ScratchPod {
    pod: Pod,
    path: PathBuf,
}

impl ScratchPod {
    /// Creates a pod of `size` bytes with 128 ids, without a heap; the study owns the payload.
    pub fn new(size: u64, settings: Settings) -> Result<Self, StudyError> {
        Self::of_ids(size, settings, 128)
    }

    /// Creates a pod of `size` bytes with `ids` ids, without a heap.
    pub fn of_ids(size: u64, settings: Settings, ids: u32) -> Result<Self, StudyError> {
        Self::with(PodOptions::new().without_heap(), size, settings, ids)
    }

    /// Creates a pod of `size` bytes with a heap.
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

    /// Returns the start of the payload.
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
        // A drop cannot report an error; `outlive pod clean` finds a pod that stays.
        let destroyed = Pod::destroy_forcibly(&self.path);
        debug_assert!(
            std::thread::panicking() || matches!(destroyed, Ok(None)),
            "something of {} remains: {destroyed:?}",
            self.path.display()
        );
    }
}

/// A directory in /dev/shm. A drop removes it with its content.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates an empty directory whose name ends with `what`.
    pub fn new(what: &str) -> Result<Self, StudyError> {
        let path = fresh_path(what);
        fs::create_dir(&path).map_err(StudyError::io("making a directory in /dev/shm"))?;
        Ok(Self(path))
    }

    /// Returns its path.
    pub fn whole(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the file `name` in it, which need not exist.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Files that programs of other projects read and write.
#[cfg(any(feature = "lupin", feature = "mpi", feature = "ray"))]
impl Directory {
    /// Writes a file.
    #[cfg(feature = "lupin")]
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, StudyError> {
        let path = self.path(name);
        let written = fs::write(&path, bytes);
        written.map_err(StudyError::io(format!("writing {}", path.display())))?;
        Ok(path)
    }

    /// Writes an executable file.
    #[cfg(any(feature = "lupin", feature = "mpi"))]
    pub fn write_program(&self, name: &str, program: &[u8]) -> Result<PathBuf, StudyError> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        fs::write(&path, program)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
            .map_err(StudyError::io("writing a program to /dev/shm"))?;
        Ok(path)
    }

    /// Returns the content of a file that a program has written, and removes the file.
    pub fn take(&self, name: &str) -> Result<Vec<u8>, StudyError> {
        let read = fs::read(self.path(name));
        let bytes = read.map_err(StudyError::io(format!("reading the leftover {name}")))?;
        self.remove(&[name])?;
        Ok(bytes)
    }

    /// Returns the text that a program has reported, and removes the file.
    pub fn report(&self) -> Result<String, StudyError> {
        let text = fs::read_to_string(self.path("report")).unwrap_or_default();
        self.remove(&["report"])?;
        Ok(text)
    }

    /// Removes the files that exist.
    pub fn remove(&self, names: &[&str]) -> Result<(), StudyError> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StudyError::io("removing the files of a run")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A drop cannot report an error.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the start of a pod's payload.
pub fn payload(pod: &Pod) -> Offset {
    let area = pod.payload().expect("a pod has payload");
    area.offset
}

/// Returns a path in /dev/shm that no other caller gets.
pub fn fresh_path(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("/dev/shm/outlive-study-{process}-{number}-{what}").into()
}
