//! The operator's word, at the front door.

use super::{Pod, PodError};
use crate::host::{Bells, Linux};
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
        let suspicion = self.settings.suspicion;
        let is_present = |id| self.is_present(id).unwrap_or(true);
        let buried = bury_by_word(self.tables, &Silent, host, suspicion, is_present);
        Ok(buried?)
    }

    /// Whether a process of this machine has the id `id` in this pod. `false` proves that no process of this machine (on memory
    /// that machines share: of this operating system) can write as the process `id`; it may be stopped, or of another PID
    /// namespace, if `true`. Needs no membership.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn is_present(&self, id: InstanceId) -> Result<bool, PodError> {
        if self.segment.has_one_kernel() {
            return Ok(self.file().is_locked(id));
        }
        // There it is what this operating system knows, if it has a side file.
        match Linux::has_side_file(self.number()) {
            true => Ok(self.os()?.is_present(id)),
            false => Ok(false),
        }
    }
}
