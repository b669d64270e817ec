//! The restoration of lost replicas: its claim, its steps, and the places of new replicas.
//!
//! A restoration replaces the lost replicas of all partitions, in this order:
//!
//! 1. *Claim*: the restorer, a compute server, claims the restoration.
//! 2. *Reserve*: under the claim of the catalogue, it replaces the place of each lost replica by a
//!    place in a live memory server, with the number of the next step. No epoch has this step yet,
//!    so nothing uses these places.
//! 3. *Begin*: it appends the step to the list of changes. In the epoch that begins, and in each
//!    later one, all writes of commits and recoveries go to the new replicas as well.
//! 4. *Copy*: when that epoch is settled, it [copies](crate::protocol::copy_partition) each object
//!    under its latch. A partition that cannot be copied, because all its complete replicas are
//!    lost, is given up: the steps of its new places become *never*.
//! 5. *Complete*: it appends the next step. From the epoch that begins on, the new replicas are
//!    replicas as all others, and can be primaries.
//!
//! Whether a replica is used and complete in an epoch follows from the list of changes and the step
//! in the replica's place alone. All members therefore agree on it, also on that of an earlier
//! epoch: a recovery asks for that of the logged transaction.
//!
//! # Crash
//!
//! The recovery of a dead restorer releases the claim. The next restorer continues:
//!
//! * before *begin*: the places are reserved, and kept if their servers are live.
//! * between *begin* and *complete*: the new replicas receive writes and are not complete. The next
//!   restorer copies all objects again, and then appends the step.
//!
//! Only the owner of the claim appends steps, each after its own copy of all objects. A restorer
//! that is dead appends nothing, because its death is known only after it cannot write any more.
//!
//! # The place of a lost replica
//!
//! Its word is overwritten, so a worker of an epoch before the loss that reads it then sees a place
//! that it does not use, and might take the next replica for the primary. It finds that its epoch
//! is over after it has read the layout, and ends its attempts. (The loss is in the list before the
//! word changes.)

use super::catalogue::partition_space;
use super::configuration::Configuration;
use super::entries::MemoryEntry;
use super::places::{NEVER, NOWHERE, place_word, with_step};
use crate::tables::{Place, choose};
use crate::verbs::ServerId;
use outlive::memory::{Memory, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a restoration.
    pub enum RestorePoint for "store.restore" {
        /// The restorer has the claim.
        Claimed,
        /// The catalogue is claimed.
        Reserving,
        /// All new replicas have places.
        Reserved,
        /// The new replicas receive writes.
        Begun,
        /// A partition is copied, or given up.
        Copied,
        /// The new replicas are complete.
        Completed,
        /// Nothing is left to restore.
        Finished,
    }
}

/// The numbers of partitions with fewer live, complete replicas than the store should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The number of partitions, except those that are lost.
    pub partitions: u64,
    /// The number of missing replicas of these partitions.
    pub replicas: u64,
    /// The number of partitions without a complete replica, whose keys are lost.
    pub lost: u64,
}

/// The places that a restorer has reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The number of new replicas.
    pub replicas: u64,
    /// The number of replicas for which no live server has enough space.
    pub without_space: u64,
}

impl<M: Memory> Configuration<M> {
    fn is_gone(self, place: &Place) -> bool {
        place.server == NOWHERE || self.is_lost(place.server)
    }

    /// Returns the tables' partitions, each with the words of its places.
    fn partitions(self) -> impl Iterator<Item = (u8, u8, u64, Vec<u64>)> {
        self.tables().flat_map(move |table| {
            let (number, space) = (table.number, partition_space(table.geometry));
            (0..table.geometry.partitions).map(move |partition| {
                let replicas = 0..usize::from(self.replicas());
                let words = replicas.map(|it| self.load(self.place_at(number, partition, it)));
                (number, partition, space, words.collect())
            })
        })
    }

    /// Returns the numbers of partitions with too few live, complete replicas.
    pub fn missing(self) -> Missing {
        let (steps, mut missing) = (self.steps(self.epoch()), Missing::default());
        for (.., words) in self.partitions() {
            let places = words.iter().map(|word| self.place_of(*word));
            let complete = places.filter(|it| it.is_complete(steps) && !self.is_gone(it));
            let (complete, all) = (complete.count() as u64, words.len() as u64);
            missing.lost += u64::from(complete == 0);
            missing.partitions += u64::from(complete > 0 && complete < all);
            missing.replicas += if complete > 0 { all - complete } else { 0 };
        }
        missing
    }

    /// Replaces the places of lost replicas by places in live servers, with the step `step`, which
    /// has not begun. Places that an earlier restorer reserved in live servers remain. The caller
    /// has claimed the restoration and the catalogue.
    pub(super) fn reserve(self, step: u8) -> Reserved {
        let live = self.live_servers();
        let mut ends: Vec<u64> = { live.iter() }.map(|it| self.end_of(it.id)).collect();
        let mut reserved = Reserved::default();
        for (table, partition, space, words) in self.partitions() {
            let mut places: Vec<Place> = words.iter().map(|word| self.place_of(*word)).collect();
            let is_complete = |it: &Place| it.is_complete(step - 1) && !self.is_gone(it);
            if !places.iter().any(is_complete) {
                continue;
            }
            let point = u64::from(table) << 8 | u64::from(partition);
            for index in 0..places.len() {
                if !self.is_gone(&places[index]) {
                    reserved.replicas += u64::from(places[index].step == step);
                    continue;
                }
                let is_other = |it: &&MemoryEntry| places.iter().all(|place| place.server != it.id);
                let others: Vec<ServerId> = live.iter().filter(is_other).map(|it| it.id).collect();
                let mut chosen = choose(point, &others, others.len()).into_iter();
                let position = |id| live.iter().position(|it| it.id == id);
                let has_space = |it: &usize| ends[*it] + space <= live[*it].region.bytes;
                let Some(server) = chosen.find_map(|id| position(id).filter(has_space)) else {
                    reserved.without_space += u64::from(!others.is_empty());
                    continue;
                };
                let word = place_word(&live[server], ends[server], step);
                ends[server] += space;
                places[index] = self.place_of(word);
                let at = self.place_at(table, partition, index);
                // Release: a reader of the place sees the loss of the earlier one.
                self.memory.store(at, word, Ordering::Release);
                reserved.replicas += 1;
            }
        }
        // Some of these servers may have left since the call began. The loss of one that is not
        // named would hit the next owner of its number.
        let named: Vec<_> = { live.into_iter() }
            .filter(|it| self.is_named(it.id))
            .collect();
        self.lose_if_gone(&named);
        reserved
    }

    /// Returns the partitions with new replicas of the step `step`.
    pub(super) fn joining(self, step: u8) -> Vec<(u8, u8)> {
        let is_new = |word: &u64| self.place_of(*word).step == step;
        let all = { self.partitions() }.filter(|(.., words)| words.iter().any(is_new));
        all.map(|(table, partition, ..)| (table, partition))
            .collect()
    }

    /// Returns the places of the new replicas of the step `step` that are not lost.
    pub(super) fn new_places(self, step: u8) -> impl Iterator<Item = Place> {
        let words = self.partitions().flat_map(|(.., words)| words);
        let places = words.map(move |word| self.place_of(word));
        places.filter(move |it| it.step == step && !self.is_gone(it))
    }

    /// Gives up the new replicas of a partition, whose contents are lost. Their space remains in
    /// use, because they have received writes.
    pub(super) fn give_up(self, table: u8, partition: u8, step: u8) {
        for index in 0..usize::from(self.replicas()) {
            let at = self.place_at(table, partition, index);
            let word = self.load(at);
            if self.place_of(word).step == step {
                self.memory
                    .store(at, with_step(word, NEVER), Ordering::Release);
            }
        }
    }
}
