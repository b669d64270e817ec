//! Waiting for a group's events.

use super::detector::{Sighting, look_at_obituaries};
use super::process::Shared;
use super::sentinel::in_turn;
use super::{GroupId, Instance, InstanceId, MemberState, News, Subscription};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// The events of a group, as one thread learns them.
///
/// While it waits, the thread watches the obituaries of its operating system itself, so that it is told
/// of a death by the kernel without anybody in between.
pub struct GroupEvents {
    shared: Arc<Shared>,
    /// The process that it waits in.
    me: Instance,
    group: GroupId,
    subscription: Subscription,
    sighting: Sighting,
}

impl GroupEvents {
    pub(crate) fn new(
        shared: Arc<Shared>,
        me: Instance,
        group: GroupId,
        subscription: Subscription,
    ) -> Self {
        Self {
            shared,
            me,
            group,
            subscription,
            sighting: Sighting::default(),
        }
    }

    /// Which group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// How every id that was ever a member stands now.
    pub fn members(&self) -> Vec<(InstanceId, MemberState)> {
        self.subscription.members()
    }

    /// The next news, if there is any. Makes no system call.
    pub fn poll(&mut self) -> Option<News> {
        self.subscription.poll()
    }

    /// Waits for the next news, at most for `timeout`.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<News> {
        self.wait_for_unless(timeout, || false)
    }

    /// As [`wait_for`](Self::wait_for), but returns as soon as something else has `happened`. That is asked whenever the
    /// group's bell rings, as [`Process::ring`](super::Process::ring) lets the pod's.
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
            look_at_obituaries(
                self.shared.tables,
                os,
                self.shared.os_number,
                self.me,
                &mut self.sighting,
            );
            if let Some(news) = self.subscription.poll() {
                return Some(news);
            }
            let now = os.now();
            if now >= until || happened() {
                return None;
            }
            let held = in_turn(&self.sighting.held, os.most_watched(), &mut turn);
            // Not longer than a heartbeat: a wake-up may be missed.
            let longest = self.shared.settings.heartbeat.max(Duration::from_millis(1));
            os.wait_for_news(held, bell, seen, (until - now).min(longest));
        }
    }

    /// Waits for the next news for as long as it takes.
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
