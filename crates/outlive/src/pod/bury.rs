//! The operator's word, at the front door.

use super::{Pod, PodError};
use crate::host::Bells;
use crate::membership::{Instance, InstanceId, bury_by_word};
use core::time::Duration;

/// Members learn of it by their next look at the groups: a caller that is no member has no bells.
#[derive(Debug)]
struct Silent;

impl Bells for Silent {
    fn read(&self, _key: u64) -> u32 {
        0
    }

    fn wait(&self, _key: u64, _seen: u32, timeout: Duration) {
        std::thread::sleep(timeout);
    }

    fn ring(&self, _key: u64) {}
}

impl Pod {
    /// Finalises the death of the host `host` on the caller's word that it is off, where nothing can prove it: its machine is
    /// gone, the memory is shared by machines, and no fence command could be asked. Its processes and threads are dead with it,
    /// and what they held is recovered by the members, or by the next process that joins. Needs no membership. Takes twice the
    /// pod's suspicion time.
    ///
    /// **On the strength of the word others take what the host held.** If it is on and writes later, the pod is corrupt.
    ///
    /// # Errors
    /// If no such host is up, or it is known to live: a process of it is on this machine, or its heart beats.
    ///
    /// # Crash
    /// It can be called again.
    pub fn bury_host(&self, host: InstanceId) -> Result<Instance, PodError> {
        let file = self.file()?;
        let suspicion = self.settings.suspicion;
        let buried = bury_by_word(self.tables, &Silent, host, suspicion, |id| {
            file.is_locked(id)
        });
        Ok(buried?)
    }

    /// Whether a process of this machine has the id `id` in this pod. `false` proves that no process of this machine can write
    /// as the process `id`; it may be stopped, or of another PID namespace, if `true`. Needs no membership.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn is_present(&self, id: InstanceId) -> Result<bool, PodError> {
        Ok(self.file()?.is_locked(id))
    }
}
