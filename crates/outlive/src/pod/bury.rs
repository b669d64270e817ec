//! `Pod::bury_host`: finalises a host's death on the operator's word that the host is off.

use super::origin::Origin;
use super::{Pod, PodError};
use crate::host::{Bells, Linux, ObservedOs};
use crate::membership::{Instance, InstanceId, Level, bury_by_word};
use core::time::Duration;

/// Wake-up futexes that do nothing: a caller that is not a member has none. Members notice the
/// death at their next check of the groups.
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
    /// Finalises the death of the host `host`, which the caller confirms to be off, for a death
    /// that cannot be proven: the memory is shared by machines, the host's machine is permanently
    /// off, and there is no fence command. The host's processes and threads are dead with it. Their
    /// state is recovered by the members, or by the next process that joins. Needs no membership.
    /// Takes twice the pod's suspicion time. Returns the dead host.
    ///
    /// **Relying on this word, other members take over what the host held.** If the host is on and
    /// writes later, the pod becomes corrupt.
    ///
    /// # Errors
    /// If no such host is up, or it is known to be live: a process of it is on this machine, or its
    /// heartbeat advances. The call cannot detect a process of this machine that is stopped, is in
    /// another container, and has mapped the memory by another node of the device or another mount
    /// of an overlay (or has closed all its descriptors of a file on an overlay).
    ///
    /// # Crash
    /// It can be called again.
    pub fn bury_host(&self, host: InstanceId) -> Result<Instance, PodError> {
        self.refuse_an_observer()?;
        let is_seen = self.refuse_the_unseen(host)?;
        let suspicion = self.settings.suspicion;
        // The side file of another operating system than the host's has no byte of the host.
        let is_locked = |id| {
            let os = self.observe_os();
            os.map_or(true, |os| os.is_some_and(|os| os.is_present(id)))
        };
        let is_present = |id| match is_seen {
            true => self.is_present(id).unwrap_or(true),
            false => is_locked(id),
        };
        let buried = bury_by_word(self.tables, &Silent, host, suspicion, is_present);
        Ok(buried?)
    }

    /// Refuses a host of this boot if its processes may be invisible here and another process,
    /// possibly one of them, has the pod open. On memory that machines share, processes are seen by
    /// the side file of their operating system, which may be that of another container, or removed.
    /// Returns whether the processes of the host would be seen here by [`Self::is_present`].
    fn refuse_the_unseen(&self, host: InstanceId) -> Result<bool, PodError> {
        let systems = self.tables.operating_systems();
        // For a host that is not up, the caller reports it.
        let state = match self.tables.generations().state(host) {
            Ok(state) if state.level == Some(Level::Host) && state.status.may_write() => state,
            _ => return Ok(true),
        };
        let boot = Linux::this_boot().unwrap_or(0);
        let is_of_this_boot = systems.may_be_of_boot(state.host, Linux::this_machine(boot), boot);
        let is_by_one_kernel = systems.has_one_kernel(state.host);
        if !is_of_this_boot || self.segment.has_one_kernel() && is_by_one_kernel {
            return Ok(self.segment.has_one_kernel());
        }
        let in_use = |why: String| PodError::InUse {
            path: self.segment.path().into(),
            why,
        };
        // One of the two reached the memory by a local file, the other by an overlay or a device:
        // the locks of one are not those of the other.
        if self.segment.has_one_kernel() != is_by_one_kernel {
            return Err(in_use(format!(
                "host {host} may be of this boot of this machine, but reached the memory by \
                 another file (in an overlay, for example); name the pod by that file"
            )));
        }
        // By the file that has the name now, which `is_present` reads: this process may be attached
        // to an earlier one. The side file is not created for this check.
        let here = self.observe_os()?;
        if here.is_some_and(|os| systems.find(os.identity()) == Some(state.host)) {
            return Ok(true);
        }
        match self.segment.may_be_in_use() {
            false => Ok(false),
            true => Err(in_use(format!(
                "host {host} may be of this boot of this machine, its presence cannot be read \
                 here, and a process of this machine, which may be one of the host's, has the pod \
                 open; end all processes that have it open"
            ))),
        }
    }

    /// Returns whether a process of this machine may have the id `id` in this pod. `false` proves
    /// that no process of this machine can write as the process `id`. `true` does not prove that
    /// such a process runs: it may be stopped, be in another PID namespace, or have opened the
    /// memory by another file, which has locks of its own. On memory that machines share, the
    /// result is `true` for each id of another operating system. It is also `true` if the side file
    /// by which the members on this operating system joined has lost its name, because nothing is
    /// known of them then. Needs no membership.
    ///
    /// # Errors
    /// If the side file of this operating system cannot be read, for example because no descriptor
    /// is left.
    pub fn is_present(&self, id: InstanceId) -> Result<bool, PodError> {
        let state = self.tables.generations().state(id).ok();
        let its_os = state.and_then(|state| self.tables.os_of(state));
        let systems = self.tables.operating_systems();
        if self.segment.has_one_kernel() {
            let is_elsewhere = its_os.is_some_and(|os| !systems.has_one_kernel(os));
            return Ok(is_elsewhere || self.file().is_locked(id));
        }
        // The presence is locked in the side file of the process's own operating system.
        let here = self.observe_os()?;
        let number = here.as_ref().and_then(|os| systems.find(os.identity()));
        let may_write = state.is_some_and(|state| state.status.may_write());
        let is_elsewhere = may_write && (number.is_none() || its_os != number);
        Ok(is_elsewhere || here.is_some_and(|os| os.is_present(id)))
    }

    /// Returns this operating system in this pod, for an observer. Returns `None` if the operating
    /// system has no side file for the pod: none of its processes is a member.
    ///
    /// # Errors
    /// If its side file cannot be read.
    pub fn observe_os(&self) -> Result<Option<ObservedOs>, PodError> {
        if self.segment.is_known_by_inode()
            && let Ok(metadata) = self.segment.own_file()?.metadata()
            && !Origin::of(self).is_in(&metadata)
        {
            // A copy, in which the members of the original are recorded.
            return Ok(None);
        }
        let (ids, access) = (self.tables.extent().ids, self.side_file_access());
        let has_one_kernel = self.segment.has_one_kernel();
        let os = Linux::observe(self.number(), ids, access, self.file(), has_one_kernel);
        Ok(os?)
    }
}
