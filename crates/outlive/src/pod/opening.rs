//! The resources that one opening of a pod has in this process, and their release.

use super::{Pod, PodError};
use crate::fork::OwnMutex;
use crate::host::Linux;
use crate::membership::{Instance, Shared};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError, Weak};

/// The resources of one opening of a pod, in addition to its memory.
#[derive(Debug, Default)]
pub(super) struct Use {
    pub attached: Option<&'static Linux>,
    /// Whether the attachment was given to the program, which may use it at any time.
    pub given_out: bool,
    pub joined: Vec<Weak<Shared>>,
    /// The number of joins that have begun and not ended.
    joining: usize,
    /// Whether a repair uses the pod exclusively.
    pub repairing: bool,
}

impl Use {
    /// Returns whether this process has joined the pod by this opening, or is joining it.
    pub fn has_members(&self) -> bool {
        let is_member = |shared: &Weak<Shared>| shared.upgrade().is_some_and(|of| of.is_present());
        self.joining > 0 || self.joined.iter().any(is_member)
    }
}

/// The number of joins of each pod, by the pod's number, that have begun in this process and not
/// ended. By it a refused join does not remove a side file that another join has begun to use.
static JOINING: OwnMutex<BTreeMap<u128, usize>> = OwnMutex::new(BTreeMap::new);

/// A join that has begun. It ends on drop.
pub(super) struct Joining<'a> {
    pod: &'a Pod,
    number: u128,
    had_side_file: bool,
}

impl<'a> Joining<'a> {
    pub fn begin(pod: &'a Pod, is_repair: bool) -> Result<Self, PodError> {
        let mut of_it = pod.use_of_it();
        if of_it.repairing && !is_repair {
            return Err(PodError::InUse {
                path: pod.segment.path().into(),
                why: "this process is repairing it; join it when that is done".into(),
            });
        }
        of_it.joining += 1;
        drop(of_it);
        let number = pod.number();
        let mut all = JOINING.lock();
        *all.entry(number).or_default() += 1;
        let files = Linux::side_files().unwrap_or_default();
        Ok(Self {
            pod,
            number,
            had_side_file: files.iter().any(|file| file.pod == number),
        })
    }

    /// Ends a join that was refused. Removes the side file that it created, unless another process
    /// or another join uses it, and releases this opening's attachment to that file. If the pod is
    /// destroyed (`is_removed`), an earlier side file may have been removed during the join, so the
    /// present one is removed in any case.
    pub fn refused(self, is_removed: bool) {
        let mut all = JOINING.lock();
        let is_alone = all.get(&self.number) == Some(&1);
        let may_remove = is_removed || !self.had_side_file;
        if is_alone && may_remove && !self.pod.has_member_of_this_process() {
            // Held over both steps: another thread attaches under this lock.
            let mut of_it = self.pod.use_of_it();
            let is_removed = Linux::remove_side_file(self.number).is_ok_and(|removed| removed > 0);
            if is_removed
                && !of_it.given_out
                && let Some(linux) = of_it.attached.take()
            {
                let _ = linux.detach();
            }
        }
        self.end(&mut all);
        core::mem::forget(self);
    }

    fn end(&self, all: &mut BTreeMap<u128, usize>) {
        self.pod.use_of_it().joining -= 1;
        if let Some(count) = all.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.number);
            }
        }
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.end(&mut JOINING.lock());
    }
}

impl Pod {
    pub(super) fn use_of_it(&self) -> MutexGuard<'_, Use> {
        self.use_of_it
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the resources of this opening: the memory, the descriptors and the locks. The pod
    /// continues to exist for all other processes; to remove it as well, [destroy](Self::destroy)
    /// it.
    ///
    /// Handles on the memory have no lifetimes (an [`Offset`](crate::memory::Offset) is followed
    /// through a copy of the pod's base address). So the *addresses* stay reserved without access
    /// for as long as this process lives, and nothing that came from this opening, clones of the
    /// pod included, may be used again: an access would be a SIGSEGV, and can never reach another
    /// mapping. A closed pod costs address space and about two kilobytes of memory.
    ///
    /// ```
    /// use outlive::pod::{Pod, PodError, PodOptions};
    /// use outlive::membership::ProcessOptions;
    /// # let path = format!("/dev/shm/outlive-doc-close-{}", std::process::id());
    /// let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?;
    /// let process = pod.join(ProcessOptions::on_host(0))?;
    /// assert!(matches!(pod.close(), Err(PodError::InUse { .. })), "this process is a member");
    /// process.leave()?;
    /// pod.close()?;
    /// Pod::destroy(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PodError::InUse`] if this process has joined the pod by this opening and has not left;
    /// then nothing has changed.
    pub fn close(&self) -> Result<(), PodError> {
        let mut of_it = self.use_of_it();
        if of_it.has_members() {
            return Err(PodError::InUse {
                path: self.segment.path().into(),
                why: "this process is a member of it; leave it first".into(),
            });
        }
        if let Some(linux) = of_it.attached {
            linux.detach()?;
            of_it.attached = None;
        }
        Ok(self.segment.close()?)
    }

    /// Returns whether the record of an incarnation that may write names this process.
    fn has_member_of_this_process(&self) -> bool {
        let (records, me) = (self.tables.records(), std::process::id());
        self.tables.writers().any(|(id, state)| {
            let record = records.read(Instance::new(id, state.generation));
            record.is_some_and(|record| record.thread.process.pid == me)
        })
    }
}
