//! The path of a pod for a test.

use outlive::pod::Pod;

/// A path in /dev/shm for the pod of a test. The pod is destroyed when this value is dropped.
pub struct PodFile(pub String);

impl PodFile {
    /// Returns the path of the pod `name` of this process.
    pub fn new(name: &str) -> Self {
        Self(format!("/dev/shm/outlive-{name}-{}", std::process::id()))
    }
}

impl Drop for PodFile {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}
