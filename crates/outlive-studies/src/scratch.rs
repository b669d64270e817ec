//! Pods and files for the time of a measurement.

use crate::StudyError;
use outlive::membership::{Process, ProcessOptions, Settings};
use outlive::memory::Offset;
use outlive::pod::{Pod, PodOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A pod in /dev/shm that is destroyed when this is dropped: after its members.
#[derive(Debug)]
pub struct ScratchPod {
    pod: Pod,
    path: PathBuf,
}

impl ScratchPod {
    /// A pod of `size` bytes and 128 ids.
    pub fn new(size: u64, settings: Settings) -> Result<Self, StudyError> {
        let path = fresh_path("pod");
        let settings = Settings {
            uid: rustix::process::geteuid().as_raw(),
            ..settings
        };
        // The payload is the study's own.
        let options = PodOptions::new().without_heap();
        let options = options.size(size).ids(128).settings(settings);
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
