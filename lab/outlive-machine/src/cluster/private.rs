//! Private data: accesses to a thread's own memory, simulated for their time only.
//!
//! They use the same caches, as lines of a separate address space, and the node's own DRAM. They
//! carry no values and concern no directory, so their end is known at once, and they cost no event.

use super::Cluster;
use super::caches::Held;
use super::event::Event;
use super::misses::Miss;
use super::reorder_buffer::Kind;
use super::store_buffer::{ALL_BYTES, Store, Then};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::parts::Victim;
use crate::program::Thread;
use crate::protocol::NodeState;

/// Addresses of lines from here on are private.
const PRIVATE: u64 = 1 << 63;
/// The number of bits of a thread's own line addresses.
const OWN_BITS: u32 = 48;

/// Returns the line of a thread's own address.
fn own_line(thread: usize, address: u64) -> LineAddress {
    let own = LineAddress::of_byte(address).0 & ((1 << OWN_BITS) - 1);
    LineAddress(PRIVATE | (thread as u64) << OWN_BITS | own)
}

pub(super) fn is_private(line: LineAddress) -> bool {
    line.0 & PRIVATE != 0
}

impl<T: Thread> Cluster<T> {
    pub(super) fn private_load(
        &mut self,
        c: usize,
        address: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let core = &mut self.cores[c];
        if !core.has_room_for_load() {
            return false;
        }
        core.loads.hold();
        core.counts.loads += 1;
        let tick = core.tick;
        let done = self.private_access(c, own_line(c, address), false, tick, now, queue);
        self.begin(c, Kind::Load, done);
        true
    }

    pub(super) fn private_store(
        &mut self,
        c: usize,
        address: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let core = &mut self.cores[c];
        if !core.has_room_for_store() {
            return false;
        }
        let (tick, number) = (core.tick, core.rob.next());
        let line = own_line(c, address);
        let there = self.private_access(c, line, true, tick, now, queue);
        let store = Store {
            line,
            place: LineAddress::word_of_byte(address) as u8,
            bytes: ALL_BYTES,
            private: true,
            value: 0,
            then: Then::Nothing,
            number,
            ready: there - self.timing.l1,
        };
        self.begin_store(c, store);
        true
    }

    /// Returns the tick at which an access to a thread's own line is done.
    fn private_access(
        &mut self,
        c: usize,
        line: LineAddress,
        write: bool,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> u64 {
        let core = &mut self.cores[c];
        let caches = &mut self.nodes[core.node as usize].caches;
        let hit = match write {
            false => caches.read(core.place, line),
            true => caches.write(core.place, line),
        };
        if let Some(hit) = hit {
            if write {
                caches.held_mut(hit.slot).agent = NodeState::M;
            }
            if !write {
                core.counts.hit(hit.level);
            }
            // It may still be on its way.
            let there = core.misses.find(line).map_or(0, |miss| miss.until);
            return there.max(tick + self.timing.of(hit.level));
        }
        core.counts.private_misses += 1;
        // It begins when a miss entry is free. If only shared misses are under way, that tick is
        // not known, and it does not wait.
        let begins = match core.misses.has_room(tick) {
            true => tick,
            false => core.misses.next_end().unwrap_or(tick).max(tick),
        };
        let at = self.timing.time(begins + self.timing.l3);
        let node = &mut self.nodes[core.node as usize];
        let done = self.timing.tick(node.dram.access(at, line));
        if core.misses.has_room(begins) {
            core.misses.push(Miss {
                line,
                write,
                since: begins,
                until: done,
            });
        }
        let (n, place) = (core.node as usize, core.place);
        // If all lines of the set wait, this one is not kept.
        if let Some(slot) = self.make_room(n, line, now, queue) {
            let agent = if write { NodeState::M } else { NodeState::E };
            let caches = &mut self.nodes[n].caches;
            caches.reserve(slot, line);
            *caches.held_mut(slot) = Held {
                agent,
                owner: place,
                ..Held::default()
            };
            caches.read(place, line);
        }
        done
    }

    /// Returns a place in a node's L3 for a line, and evicts the line that is there. `None` if no
    /// line can be evicted now.
    pub(super) fn make_room(
        &mut self,
        n: usize,
        line: LineAddress,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> Option<crate::parts::Slot> {
        let node = &mut self.nodes[n];
        let room = node.has_room_for_put(self.write_backs);
        // If the write-back buffer is full, a written line has to stay. (A private one does not
        // need the buffer, and stays too.)
        let victim = node
            .caches
            .victim(line, |held| room || held.agent != NodeState::M);
        match victim? {
            Victim::Free(slot) => Some(slot),
            Victim::Taken(slot) => {
                let out = node.caches.address(slot);
                if !is_private(out) {
                    self.evict(n, slot, now, queue);
                } else {
                    let written = node.caches.held(slot).agent == NodeState::M;
                    node.caches.remove(slot);
                    if written {
                        node.dram.access(now, out);
                    }
                }
                Some(slot)
            }
        }
    }
}
