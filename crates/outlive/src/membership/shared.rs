//! The state that the threads of one process share: its sentinel, its recovery thread and its
//! members.

use super::fence::FenceAgent;
use super::{GroupId, Instance, Level, Obligations, Settings, Tables, keeper};
use crate::host::{Os, Presence};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    pub(super) keeper: AtomicU32,
    /// The presence of the process's id, from before it joins until it has left.
    presence: Mutex<Option<Presence>>,
    /// The tie to its host's cord.
    cord: Mutex<Option<Presence>>,
    /// The hosts of an earlier boot of this machine that were silent before this process joined.
    pub(super) silent: Mutex<Vec<Instance>>,
    /// The lock that keeps the number of its operating system.
    pub(super) system: Mutex<Option<Presence>>,
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
            keeper: AtomicU32::new(u32::MAX),
            presence: Mutex::new(None),
            cord: Mutex::new(None),
            silent: Mutex::new(Vec::new()),
            system: Mutex::new(None),
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
        for kept in [&self.cord, &self.presence, &self.system] {
            drop(lock(kept).take());
        }
    }

    /// Returns whether the process may use the pod: from before it joins until it has left.
    pub(crate) fn is_present(&self) -> bool {
        lock(&self.presence).is_some()
    }

    pub(crate) fn wake_keeper(&self, os: &dyn Os) {
        os.bells()
            .ring(keeper::bell_of(self.keeper.load(Ordering::Relaxed)));
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
