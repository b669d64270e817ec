//! A member's place in the stream of its group's events.

use super::{Event, GroupLog, MemberState};
use crate::membership::{Instance, InstanceId};
use outlive_memory::{Memory, Native};

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The next event, in order and without a gap.
    Event(Event),
    /// The subscriber lagged by more events than the group remembers. This is the current state of
    /// the group; the events after [`up_to`](Self::Resync::up_to) follow.
    Resync {
        /// The number of missed events.
        missed: u64,
        /// The number of the latest event that `members` certainly includes.
        up_to: u64,
        /// The standing of every id that was ever a member.
        members: Vec<(InstanceId, MemberState)>,
        /// The fabric manager that was reported last.
        manager: Option<Instance>,
    },
}

/// A reader of one group's events. It belongs to one thread, costs the group nothing, and neither
/// blocks nor is blocked by other members.
#[derive(Clone, Debug)]
pub struct Subscription<M: Memory = Native> {
    log: GroupLog<M>,
    ids: u32,
    next: u64,
    is_observer: bool,
}

impl<M: Memory> Subscription<M> {
    /// Subscribes to the events after event `after` in the log of a pod of `ids` ids.
    pub fn new(log: GroupLog<M>, ids: u32, after: u64) -> Self {
        Self {
            log,
            ids,
            next: after.saturating_add(1),
            is_observer: false,
        }
    }

    /// Disables all writes, for memory that cannot be written. An event whose writer died before
    /// completing it is then reported only after a member has completed it.
    pub fn observing(mut self) -> Self {
        self.is_observer = true;
        self
    }

    /// Returns the number of the next event that will be reported.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the next item, if there is one. Wait-free; a resynchronisation scans all ids.
    pub fn poll(&mut self) -> Option<News> {
        if self.log.tail() > Event::LAST {
            // Damage, which `pod check` reports: no event has such a number.
            return None;
        }
        if self.next > self.log.tail() && (self.is_observer || !self.log.finish_pending()) {
            return None;
        }
        if let Some(event) = self.log.event(self.next) {
            self.next += 1;
            return Some(News::Event(event));
        }
        // The ring has overwritten the event. The table shows all events up to the tail read
        // *before* it, and possibly more; events that it already includes are reported again, with
        // their numbers.
        let up_to = self.log.tail();
        let members = self.members();
        let missed = up_to.saturating_add(1).saturating_sub(self.next);
        self.next = self.next.max(up_to.saturating_add(1));
        Some(News::Resync {
            missed,
            up_to,
            members,
            manager: self.log.manager(),
        })
    }

    /// Returns the current standing of every id that was ever a member.
    pub fn members(&self) -> Vec<(InstanceId, MemberState)> {
        (0..self.ids)
            .map(|id| (id, self.log.member(id)))
            .filter(|(_, state)| state.sequence != 0)
            .collect()
    }
}
