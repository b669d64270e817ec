//! Waiting for a group's events.

use super::detector::{Sighting, check_obituaries};
use super::sentinel::in_turn;
use super::shared::Shared;
use super::watch::{self, watcher_of};
use super::{GroupId, Instance, InstanceId, MemberState, News, Subscription};
use crate::host::{Obituary, Os};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// The events of a group, as one thread receives them.
///
/// While it waits, the thread watches the obituaries of its operating system itself, so the kernel
/// notifies it of a death directly. In a pod with more than 32 members it sleeps on the
/// obituary of its host's watcher only, and the watcher notifies it of all other deaths.
pub struct GroupEvents {
    shared: Arc<Shared>,
    /// The process of the waiting thread.
    me: Instance,
    host: Instance,
    group: GroupId,
    subscription: Subscription,
    sighting: Sighting,
    /// The end of the time in which the host's watcher scans for it (more than [`CROWD`] members).
    crowded_until: Duration,
}

/// The number of members of one operating system up to which a thread watches all of them itself.
const CROWD: usize = 32;
/// The time after which a thread counts the members of its operating system again.
const RECOUNT: Duration = Duration::from_secs(2);

impl GroupEvents {
    pub(crate) fn new(
        shared: Arc<Shared>,
        me: Instance,
        host: Instance,
        group: GroupId,
        subscription: Subscription,
    ) -> Self {
        Self {
            shared,
            me,
            host,
            group,
            subscription,
            sighting: Sighting::default(),
            crowded_until: Duration::ZERO,
        }
    }

    /// Returns the group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the current standing of every id that was ever a member.
    pub fn members(&self) -> Vec<(InstanceId, MemberState)> {
        self.subscription.members()
    }

    /// Returns the next event, if there is one. Makes no system call.
    pub fn poll(&mut self) -> Option<News> {
        self.subscription.poll()
    }

    /// Waits for the next event, at most for `timeout`.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<News> {
        self.wait_for_unless(timeout, || false)
    }

    /// Does the same as [`wait_for`](Self::wait_for), but also returns `None` as soon as `happened`
    /// returns true. `happened` is called at every wake-up of the group's waiters, to which
    /// [`Process::ring`](super::Process::ring) adds one for the pod's own group.
    pub fn wait_for_unless(
        &mut self,
        timeout: Duration,
        happened: impl Fn() -> bool,
    ) -> Option<News> {
        let os = self.shared.os;
        let until = os.now().saturating_add(timeout);
        let bell = u64::from(self.group.number());
        let mut turn = 0usize;
        loop {
            let seen = os.bells().read(bell);
            if let Some(news) = self.subscription.poll() {
                return Some(news);
            }
            let settings = &self.shared.settings;
            let watcher = self.watcher(os).filter(|_| os.now() < self.crowded_until);
            // The sleep has a time-out, since a wake-up may be missed.
            let longest = match watcher {
                Some(_) => watch::interval(settings),
                None => settings.heartbeat,
            };
            if watcher.is_none() {
                self.look(os);
            }
            if let Some(news) = self.subscription.poll() {
                return Some(news);
            }
            let now = os.now();
            if now >= until || happened() {
                return None;
            }
            let held = watcher
                .as_ref()
                .map_or(&self.sighting.held[..], core::slice::from_ref);
            let held = in_turn(held, os.most_watched(), &mut turn);
            let longest = longest.max(Duration::from_millis(1));
            os.wait_for_news(held, bell, seen, (until - now).min(longest));
        }
    }

    fn look(&mut self, os: &dyn Os) {
        let shared = &self.shared;
        // The events of a process that has left: only its survivors detect deaths.
        let Some(_system) = shared.hold_system() else {
            self.sighting.held.clear();
            return;
        };
        check_obituaries(
            shared.tables,
            os,
            shared.os_number,
            self.me,
            &mut self.sighting,
            |_, _| true,
        );
        if self.sighting.held.len() > CROWD {
            self.crowded_until = os.now() + RECOUNT;
        }
    }

    /// Returns the obituary of the host's watcher, if it is held.
    fn watcher(&self, os: &dyn Os) -> Option<(u32, u32)> {
        let watcher = watcher_of(self.shared.tables, self.host)?;
        match os.obituary(watcher.id) {
            Obituary::Held { tid } => Some((watcher.id, tid)),
            Obituary::Vacant | Obituary::Marked { .. } => None,
        }
    }

    /// Waits for the next event without a time limit.
    pub fn wait(&mut self) -> News {
        loop {
            if let Some(news) = self.wait_for(Duration::from_secs(3600)) {
                return news;
            }
        }
    }
}

impl fmt::Debug for GroupEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupEvents({}, {:?})", self.group, self.subscription)
    }
}
