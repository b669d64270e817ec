//! The state that the threads of one process share: its sentinel, its recovery thread and its
//! members.

use super::fence::FenceAgent;
use super::{GroupId, Instance, Level, Obligations, Settings, Tables, recovery_thread};
use crate::host::{Os, Presence};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The state that the sentinel, the recovery thread and the members of a process share.
pub(crate) struct Shared {
    pub tables: Tables,
    pub os: &'static dyn Os,
    pub os_number: u16,
    pub settings: Settings,
    pub stop: AtomicBool,
    pub fence_agent: Option<Arc<dyn FenceAgent>>,
    pub obligations: Arc<dyn Obligations>,
    /// The process's id, once it has one.
    pub(super) recovery_thread: AtomicU32,
    /// The presence of the process's id, from before it joins until it has left.
    presence: Mutex<Option<Presence>>,
    /// The tie to its host's cord.
    cord: Mutex<Option<Presence>>,
    /// The hosts of an earlier boot of this machine that were silent before this process joined.
    pub(super) silent: Mutex<Vec<Instance>>,
    /// The lock that keeps the number of its operating system.
    system: RwLock<Option<Presence>>,
}

impl Shared {
    pub(crate) fn new(
        tables: Tables,
        os: &'static dyn Os,
        os_number: u16,
        fence_agent: Option<Arc<dyn FenceAgent>>,
        obligations: Arc<dyn Obligations>,
    ) -> Self {
        let settings = tables.settings();
        Self {
            tables,
            os,
            os_number,
            fence_agent,
            settings,
            stop: AtomicBool::new(false),
            obligations,
            recovery_thread: AtomicU32::new(u32::MAX),
            presence: Mutex::new(None),
            cord: Mutex::new(None),
            silent: Mutex::new(Vec::new()),
            system: RwLock::new(None),
        }
    }

    /// Keeps the presence of the process, and its tie to the cord, until it has left.
    pub(crate) fn keep(&self, presence: Presence, cord: Option<Presence>) {
        *lock(&self.presence) = Some(presence);
        *lock(&self.cord) = cord;
    }

    /// Releases the cord, the presence and the number of the operating system: the process has
    /// left, and writes no more.
    pub(crate) fn give_up_presence(&self) {
        for kept in [&self.cord, &self.presence] {
            drop(lock(kept).take());
        }
        // Waits for threads that still act on the number.
        drop(
            self.system
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Keeps the lock of the number of the operating system until the process has left.
    pub(super) fn keep_system(&self, system: Presence) {
        *self.system.write().unwrap_or_else(PoisonError::into_inner) = Some(system);
    }

    /// Keeps the number of the operating system valid for as long as the result lives. Returns
    /// `None` after the process has left: the number may be another operating system's by now, so
    /// nothing may be concluded from it.
    pub(super) fn hold_system(&self) -> Option<impl Sized + '_> {
        let system = self.system.read().unwrap_or_else(PoisonError::into_inner);
        system.is_some().then_some(system)
    }

    /// Returns whether the process may use the pod: from before it joins until it has left.
    pub(crate) fn is_present(&self) -> bool {
        lock(&self.presence).is_some()
    }

    pub(crate) fn wake_recovery_thread(&self, os: &dyn Os) {
        os.bells().ring(recovery_thread::bell_of(
            self.recovery_thread.load(Ordering::Relaxed),
        ));
    }

    /// Makes `instance` a member of the pod's own group.
    pub(crate) fn announce(&self, os: &dyn Os, instance: Instance, level: Level) {
        let log = self.tables.groups().log(GroupId::POD);
        if log.tell_joined(instance, level).is_some() {
            os.bells().ring(u64::from(GroupId::POD.number()));
        }
    }
}

/// Locks `mutex`, even after a panic under it: no value here can be half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
