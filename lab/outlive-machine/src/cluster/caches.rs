//! The caches of a node, and coherence within it.
//!
//! Values are stored once per node, in its L3. The private levels of a core are tags, each with the
//! place of its line in the L3; a line in an L1 is in the core's L2, and a line in an L2 is in the
//! L3. So a hit costs one search of a set, and a line that leaves the L3 leaves all levels. The L3
//! entry of a line records the cores that may have it (a superset, since private levels drop lines
//! silently) and the core that may write it without asking, its *owner*.
//!
//! Actions between the cores of a node take effect at once, and take a time in closed form.

use crate::description::Description;
use crate::line::{Line, LineAddress};
use crate::parts::{CacheArray, Slot, Victim};
use crate::protocol::{Epoch, NodeState};

/// No core.
pub(super) const NOBODY: u8 = u8::MAX;

/// The state of a line in a node's L3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The state of the node's agent.
    pub agent: NodeState,
    /// The core that may write it without asking; no other core has it.
    pub owner: u8,
    /// The core for whose store it must stay here unchanged.
    pub pinned: u8,
    /// The number of times that a core of the node got it since another node demanded it.
    pub turns: u8,
    /// The epoch at which the node may write it, while it may.
    pub epoch: Epoch,
    /// The cores that may have it.
    pub holders: u64,
    /// The cores that wait for it.
    pub waiting: u64,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            agent: NodeState::I,
            owner: NOBODY,
            pinned: NOBODY,
            turns: 0,
            epoch: Epoch::default(),
            holders: 0,
            waiting: 0,
        }
    }
}

/// The level that serves an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    L1,
    L2,
    L3,
    /// The L3, with the help of another core of the node.
    Neighbour,
}

/// An access that is served within the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    /// The place of the line in the L3.
    pub slot: Slot,
    pub level: Level,
}

/// The tags of a core, each with its line's place in the L3.
#[derive(Clone, Debug)]
struct Private {
    l1: CacheArray<Slot, ()>,
    l2: CacheArray<Slot, ()>,
}

#[derive(Clone, Debug)]
pub(super) struct Caches {
    l3: CacheArray<Held>,
    private: Box<[Private]>,
}

impl Private {
    /// Puts a line into the L1, which does not have it.
    fn insert_l1(&mut self, line: LineAddress, slot: Slot) {
        let place = free_place(&mut self.l1, line).0;
        self.l1.fill(place, line, slot, ());
    }

    /// Puts a line into both levels, which do not have it.
    fn insert(&mut self, line: LineAddress, slot: Slot) {
        let (place, out) = free_place(&mut self.l2, line);
        if let Some(out) = out.and_then(|out| self.l1.find(out)) {
            self.l1.remove(out);
        }
        self.l2.fill(place, line, slot, ());
        self.insert_l1(line, slot);
    }

    fn remove(&mut self, line: LineAddress) {
        if let Some(place) = self.l2.find(line) {
            self.l2.remove(place);
            if let Some(place) = self.l1.find(line) {
                self.l1.remove(place);
            }
        }
    }
}

/// Returns a place for a line, and the line that was evicted for it.
fn free_place(array: &mut CacheArray<Slot, ()>, line: LineAddress) -> (Slot, Option<LineAddress>) {
    match array.victim(line) {
        Victim::Free(place) => (place, None),
        Victim::Taken(place) => (place, Some(array.remove(place).0)),
    }
}

impl Caches {
    pub fn new(description: &Description) -> Caches {
        let private = Private {
            l1: CacheArray::described(&description.l1),
            l2: CacheArray::described(&description.l2),
        };
        Caches {
            l3: CacheArray::described(&description.l3),
            private: vec![private; description.system.cores_per_node as usize].into(),
        }
    }

    /// Reads a line for a core. Returns its place, or `None` if the node has no readable copy.
    #[inline]
    pub fn read(&mut self, core: u8, line: LineAddress) -> Option<Hit> {
        let private = &mut self.private[core as usize];
        if let Some(place) = private.l1.find_to_use(line) {
            let slot = private.l1.state(place);
            return Some(Hit {
                slot,
                level: Level::L1,
            });
        }
        self.l3.look_ahead(line);
        if let Some(place) = private.l2.find_to_use(line) {
            let slot = private.l2.state(place);
            private.insert_l1(line, slot);
            return Some(Hit {
                slot,
                level: Level::L2,
            });
        }
        let slot = self.l3.find(line)?;
        let held = self.l3.state_mut(slot);
        if !held.agent.is_readable() {
            return None;
        }
        let mut level = Level::L3;
        if held.owner != core && held.owner != NOBODY {
            held.owner = NOBODY;
            level = Level::Neighbour;
        } else if held.holders == 0 && held.agent.is_writable() && held.pinned == NOBODY {
            held.owner = core;
        }
        held.holders |= 1 << core;
        self.l3.touch(slot);
        private.insert(line, slot);
        Some(Hit { slot, level })
    }

    /// Gives a core the right to write a line. Returns the line's place, or `None` if the node has
    /// no such right, or another core of the node has the line pinned.
    #[inline]
    pub fn write(&mut self, core: u8, line: LineAddress) -> Option<Hit> {
        let private = &mut self.private[core as usize];
        let (slot, mut level) = if let Some(place) = private.l1.find_to_use(line) {
            (private.l1.state(place), Level::L1)
        } else if let Some(place) = private.l2.find_to_use(line) {
            (private.l2.state(place), Level::L2)
        } else {
            (self.l3.find(line)?, Level::L3)
        };
        let held = self.l3.state_mut(slot);
        if !held.agent.is_writable() || held.pinned != NOBODY && held.pinned != core {
            return None;
        }
        match level {
            Level::L2 => private.insert_l1(line, slot),
            Level::L3 => private.insert(line, slot),
            _ => {}
        }
        if held.owner != core {
            let others = held.holders & !(1 << core);
            (held.owner, held.holders) = (core, 1 << core);
            level = if others == 0 {
                Level::L3
            } else {
                Level::Neighbour
            };
            self.remove_private(line, others);
            self.l3.touch(slot);
        } else if level == Level::L3 {
            held.holders |= 1 << core;
            self.l3.touch(slot);
        }
        Some(Hit { slot, level })
    }

    fn remove_private(&mut self, line: LineAddress, mut cores: u64) {
        while cores != 0 {
            self.private[cores.trailing_zeros() as usize].remove(line);
            cores &= cores - 1;
        }
    }

    /// Removes a line from the private levels of all cores.
    pub fn recall(&mut self, slot: Slot) {
        let line = self.l3.address(slot);
        let held = self.l3.state_mut(slot);
        let holders = std::mem::take(&mut held.holders);
        held.owner = NOBODY;
        self.remove_private(line, holders);
    }

    /// Removes a line from all levels.
    pub fn remove(&mut self, slot: Slot) -> Line {
        self.recall(slot);
        self.l3.remove(slot).2
    }

    /// Returns a place in the L3 for a line: a free one, or that of a line which `may_go`.
    pub fn victim(&self, line: LineAddress, may_go: impl Fn(&Held) -> bool) -> Option<Victim> {
        self.l3.victim_among(line, |_, held| {
            held.agent.is_evictable() && held.waiting == 0 && held.pinned == NOBODY && may_go(held)
        })
    }

    /// Takes a place for a line that is to arrive. No core can read it yet.
    pub fn reserve(&mut self, slot: Slot, line: LineAddress) {
        self.l3.fill(slot, line, Held::default(), [0; 8]);
    }

    /// Prefetches on the host the data by which the L3 finds a line.
    pub fn look_ahead(&self, line: LineAddress) {
        self.l3.look_ahead(line);
    }

    pub fn find(&self, line: LineAddress) -> Option<Slot> {
        self.l3.find(line)
    }

    #[inline]
    pub fn held(&self, slot: Slot) -> Held {
        self.l3.state(slot)
    }

    #[inline]
    pub fn held_mut(&mut self, slot: Slot) -> &mut Held {
        self.l3.state_mut(slot)
    }

    #[inline]
    pub fn line(&self, slot: Slot) -> &Line {
        self.l3.line(slot)
    }

    #[inline]
    pub fn line_mut(&mut self, slot: Slot) -> &mut Line {
        self.l3.line_mut(slot)
    }

    pub fn address(&self, slot: Slot) -> LineAddress {
        self.l3.address(slot)
    }

    /// Drops all lines of all levels.
    pub fn clear(&mut self) {
        self.l3.clear();
        for private in &mut self.private {
            private.l1.clear();
            private.l2.clear();
        }
    }

    /// Checks the levels: inclusion, the sets of holders, owners.
    pub fn check(&self) -> Result<(), String> {
        for (core, private) in self.private.iter().enumerate() {
            for (line, slot, ()) in private.l1.iter() {
                if private
                    .l2
                    .find(line)
                    .is_none_or(|place| private.l2.state(place) != slot)
                {
                    return Err(format!(
                        "core {core} has {line} in its L1 and not in its L2"
                    ));
                }
            }
            for (line, slot, ()) in private.l2.iter() {
                if self.l3.find(line) != Some(slot) {
                    return Err(format!(
                        "core {core} has {line}, but the L3 does not record that"
                    ));
                }
                let held = self.l3.state(slot);
                if !held.agent.is_readable() || held.holders & 1 << core == 0 {
                    return Err(format!(
                        "core {core} has {line}, but the L3 records {held:?}"
                    ));
                }
                if held.owner != NOBODY && usize::from(held.owner) != core {
                    return Err(format!(
                        "core {core} has {line}, which core {} owns",
                        held.owner
                    ));
                }
            }
        }
        for (line, held, _) in self.l3.iter() {
            if held.owner != NOBODY && !held.agent.is_writable() {
                return Err(format!(
                    "{line} has an owner in the node, but the node may not write it"
                ));
            }
        }
        Ok(())
    }
}
