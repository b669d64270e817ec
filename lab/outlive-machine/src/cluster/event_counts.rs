//! Event counts, which replay the order recorded with a trace.
//!
//! They are not memory, and their operations do not count as instructions. An advance takes a place
//! among the core's stores, so it takes effect when all loads before it are bound and all stores
//! before it are committed; nothing after it waits. An await delays later operations of the thread,
//! and nothing before it.

use super::Cluster;
use super::reorder_buffer::{Group, Kind};
use super::store_buffer::Then;
use crate::program::{EventCountId, Thread};

impl<T: Thread> Cluster<T> {
    /// Returns whether the thread continues; else it is notified when the count reaches `wanted`.
    pub(super) fn await_count(&mut self, c: usize, count: EventCountId, wanted: u64) -> bool {
        let core = &mut self.cores[c];
        let serial = &mut core.serial;
        // Asked once: a listed thread is notified once, and must not continue before.
        if !serial.waits {
            serial.waits = !self.objects.await_count(count, wanted, c as u16);
        }
        if serial.waits {
            serial.since.get_or_insert(core.tick);
            return false;
        }
        if let Some(since) = serial.since.take() {
            core.counts.meeting_ticks += core.tick.saturating_sub(since);
        }
        true
    }

    /// Begins to advance a count. Returns `false` if the store queue is full.
    pub(super) fn advance(&mut self, c: usize, count: EventCountId) -> bool {
        if !self.cores[c].has_room_for_store() {
            return false;
        }
        let mark = self.mark(c, Then::Advance(count));
        let core = &mut self.cores[c];
        core.stores.begin(mark);
        core.rob.push(Group {
            done: core.tick,
            count: 1,
            kind: Kind::Store,
        });
        true
    }
}
