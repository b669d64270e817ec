//! A member's place in the stream of its group's events.

use super::{Event, GroupLog, MemberState};
use crate::membership::{Instance, InstanceId};
use outlive_memory::{Memory, Native};

/// What a subscriber learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The next event, in order and without a gap.
    Event(Event),
    /// The subscriber lagged by more events than the group remembers. This is how everyone stands now
    /// (ids that were never members are left out); the events after [`up_to`](Self::Resync::up_to) follow.
    Resync {
        /// How many events were missed.
        missed: u64,
        /// The number of the latest event that `members` is sure to include.
        up_to: u64,
        /// How everyone stands.
        members: Vec<(InstanceId, MemberState)>,
        /// Who was last told to be the fabric manager.
        manager: Option<Instance>,
    },
}

/// A reader of one group's events. It belongs to one thread, costs the group nothing, and can neither
/// hold up nor be held up by anyone.
#[derive(Clone, Debug)]
pub struct Subscription<M: Memory = Native> {
    log: GroupLog<M>,
    ids: u32,
    next: u64,
}

impl<M: Memory> Subscription<M> {
    /// Subscribes to what follows event `after` in the log of a pod of `ids` ids.
    pub fn new(log: GroupLog<M>, ids: u32, after: u64) -> Self {
        Self {
            log,
            ids,
            next: after.saturating_add(1),
        }
    }

    /// The number of the next event that will be told.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next news, if there is any. Wait-free but for resynchronisation, which takes a pass over the
    /// ids.
    pub fn poll(&mut self) -> Option<News> {
        if self.next > self.log.tail() && !self.log.finish_pending() {
            return None;
        }
        if let Some(event) = self.log.event(self.next) {
            self.next += 1;
            return Some(News::Event(event));
        }
        // The ring has gone over it. The table shows everything up to the tail read *before* it, and
        // possibly more; events that it already includes are told again and carry their numbers.
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

    /// How every id that was ever a member stands now.
    pub fn members(&self) -> Vec<(InstanceId, MemberState)> {
        (0..self.ids)
            .map(|id| (id, self.log.member(id)))
            .filter(|(_, state)| state.sequence != 0)
            .collect()
    }
}
