//! The watch of a host: one of its processes watches for all of its processes.
//!
//! If every process watched every other, a pod's idle cost would grow with the square of its
//! processes. So one process of each host is on *watch*. It advances the host's heartbeat at every
//! heartbeat, sleeps on the obituaries of the host's members and of the other hosts' watchers,
//! scans for dead members, and is a candidate for fabric manager. The other processes of the host
//! are its *backups*: each sleeps on the watcher's obituary, and advances the host's heartbeat and
//! checks the watcher's heartbeat only once every [`interval`].
//!
//! The watch is one word in the host's record, which names its holder. A process takes it by
//! compare-and-swap from a holder that is dead, that has left, or whose own heartbeat has stopped
//! for a while; a stopped watcher that continues sees that the word names another process, and
//! becomes a backup. **No proof of a death rests on this word**: two watchers at a time may detect
//! a death twice, and a time without a watcher delays a detection. So its loads and stores need no
//! order beyond their own.

use super::sentinel::bell_of;
use super::{Instance, Level, Settings, Status, Tables};
use crate::host::{Obituary, Os};
use core::time::Duration;
use outlive_memory::Memory;

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt the taking of a watch.
    pub enum TakeWatchPoint for "watch.take" {
        /// No process serves; nothing has changed.
        Started,
        /// The watch is taken; no other watcher has been woken.
        Taken,
    }
}

/// Returns the time between two wake-ups of a backup, short enough that a host whose watcher is
/// stopped is not silent.
pub(crate) fn interval(settings: &Settings) -> Duration {
    settings.heartbeat.max(settings.suspicion / 4)
}

/// Returns whether the holder of the watch of `host` is live according to the table of generations.
fn is_member<M: Memory>(tables: Tables<M>, host: Instance, holder: Instance) -> bool {
    let state = tables.generations().state(holder.id);
    state.is_ok_and(|state| {
        state.generation == holder.generation
            && state.status == Status::Live
            && state.level == Some(Level::Process)
            && u32::from(state.host) == host.id
    })
}

/// Returns the process that is on watch for `host`, if it is live.
pub(crate) fn watcher_of<M: Memory>(tables: Tables<M>, host: Instance) -> Option<Instance> {
    let holder = Instance::from_word(tables.records().watch(host.id))?;
    is_member(tables, host, holder).then_some(holder)
}

/// Wakes the watcher of `host`, if it has one, to check for changes.
pub(crate) fn wake_watcher<M: Memory>(tables: Tables<M>, os: &dyn Os, host: Instance) {
    if let Some(watcher) = watcher_of(tables, host) {
        os.bells().ring(bell_of(watcher.id));
    }
}

/// The state that one process keeps of its host's watch.
#[derive(Debug)]
pub(crate) struct Watch<M: Memory> {
    tables: Tables<M>,
    host: Instance,
    me: Instance,
    /// The time for which the watcher's heartbeat may be silent.
    patience: Duration,
    seen: Option<Seen>,
}

/// The heartbeat of the watcher, and when it was last seen to change.
#[derive(Clone, Copy, Debug)]
struct Seen {
    watcher: Instance,
    beats: u64,
    moved: Duration,
}

impl<M: Memory> Watch<M> {
    /// Returns the state for the process `me` of `host`.
    pub(crate) fn new(
        tables: Tables<M>,
        host: Instance,
        me: Instance,
        settings: &Settings,
    ) -> Self {
        let interval = interval(settings);
        Self {
            tables,
            host,
            me,
            patience: interval.max(settings.heartbeat * 2),
            seen: None,
        }
    }

    /// Takes the watch if no process serves. Returns whether this process is on watch. Lock-free.
    pub(crate) fn stand(&mut self, os: &dyn Os) -> bool {
        let records = self.tables.records();
        loop {
            let word = records.watch(self.host.id);
            match Instance::from_word(word) {
                Some(holder) if holder == self.me => return true,
                Some(holder) if self.serves(os, holder) => return false,
                _ => {
                    self.seen = None;
                    self.tables.memory().crash_point(TakeWatchPoint::Started);
                    if records.change_watch(self.host.id, word, self.me.to_word()) {
                        self.tables.memory().crash_point(TakeWatchPoint::Taken);
                        self.wake_other_watchers(os);
                        return true;
                    }
                }
            }
        }
    }

    /// Wakes the watchers of the other hosts, so that they sleep on this process's obituary too.
    /// Without this they would start to do so at their next heartbeat.
    fn wake_other_watchers(&self, os: &dyn Os) {
        for (id, state) in self.tables.writers() {
            if state.level == Some(Level::Host) && id != self.host.id {
                wake_watcher(self.tables, os, Instance::new(id, state.generation));
            }
        }
    }

    /// Returns the obituary to sleep on as a backup: the watcher's, with the thread that holds it.
    pub(crate) fn obituary(&self, os: &dyn Os) -> Option<(u32, u32)> {
        let watcher = self.seen?.watcher;
        match os.obituary(watcher.id) {
            Obituary::Held { tid } => Some((watcher.id, tid)),
            Obituary::Vacant | Obituary::Marked { .. } => None,
        }
    }

    /// Resigns the watch, if this process holds it, and wakes its backups, of which one takes the
    /// watch.
    pub(crate) fn resign(&self, os: &dyn Os) {
        let records = self.tables.records();
        if !records.change_watch(self.host.id, self.me.to_word(), Instance::NONE) {
            return;
        }
        for (id, state) in self.tables.writers() {
            let is_backup = state.level == Some(Level::Process)
                && u32::from(state.host) == self.host.id
                && id != self.me.id;
            if is_backup {
                os.bells().ring(bell_of(id));
            }
        }
    }

    fn serves(&mut self, os: &dyn Os, holder: Instance) -> bool {
        if !is_member(self.tables, self.host, holder)
            || !matches!(os.obituary(holder.id), Obituary::Held { .. })
        {
            return false;
        }
        let (now, beats) = (os.now(), self.tables.records().beats(holder.id));
        match &mut self.seen {
            Some(seen) if seen.watcher == holder && seen.beats == beats => {
                now - seen.moved < self.patience
            }
            seen => {
                *seen = Some(Seen {
                    watcher: holder,
                    beats,
                    moved: now,
                });
                true
            }
        }
    }
}
