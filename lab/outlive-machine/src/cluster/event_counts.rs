//! Event counts: the order that was recorded with a trace.
//!
//! They are no memory, and are counted as no instruction. To advance one takes a place among the core's stores, so it comes
//! about when all loads before it are bound and all stores before it are committed, and nothing after it waits. To await
//! one holds up what comes after it in the thread, and nothing before it.

use super::Cluster;
use super::reorder_buffer::{Group, Kind};
use super::store_buffer::Then;
use crate::program::{EventCountId, Thread};

impl<T: Thread> Cluster<T> {
    /// Whether the thread goes on; else it is called when the count is that far.
    pub(super) fn await_count(&mut self, c: usize, count: EventCountId, wanted: u64) -> bool {
        let core = &mut self.cores[c];
        let serial = &mut core.serial;
        // Asked once: who is on the list is called once, and must not go on before.
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

    /// Begins to advance a count; `false` if there is no room among the stores.
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
