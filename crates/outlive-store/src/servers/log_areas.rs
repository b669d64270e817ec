//! The log areas in the configuration, and the recovery of a dead compute server's logs.
//!
//! A *log area* is the space for the log slots of one compute server, at the same offset of each
//! memory server. The area's owner is the instance of the compute server or, after that has died,
//! the survivor that recovers its logs: claimed by a compare-and-swap from the dead owner, as the
//! entries of memory servers are.

use super::catalogue::TableError;
use super::configuration::{Configuration, Segments};
use super::places::{NO_PLACE, NOWHERE, named_server, place_word};
use crate::protocol::LogArea;
use crate::tables::{MAX_REPLICAS, choose};
use crate::verbs::{RemoteOffset, ServerId};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of the recovery of a dead compute server's logs.
    pub enum LogPoint for "store.log.recover" {
        /// The survivor owns the log area.
        Claimed,
        /// The logs are recovered.
        Recovered,
        /// The process id is marked as failed.
        Failed,
        /// The area is free, and still has its owner.
        Freed,
    }
}

pub(super) const AREA_BYTES: u64 = 128;
const PROCESS: u64 = 8;
const SERVERS: u64 = 16;
/// The compute server whose commits the area's words describe, even after the area was freed.
const USER: u64 = SERVERS + MAX_REPLICAS as u64 * 8;

/// A survivor's claim of a log area. A dropped claim, even during a panic, returns the area to its
/// dead owner, so another survivor can claim it.
struct Claim<M: Memory> {
    memory: M,
    at: Offset,
    from: u64,
    to: u64,
}

impl<M: Memory> Drop for Claim<M> {
    fn drop(&mut self) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (memory, at) = (self.memory, self.at);
        let _ = memory.compare_exchange(at, self.to, self.from, order.0, order.1);
    }
}

impl<M: Memory> Configuration<M> {
    /// Returns the number of bytes at the start of each region that hold logs.
    pub fn log_bytes(self) -> u64 {
        let sizes = self.sizes;
        let each = u64::from(sizes.coordinators) * sizes.log_slot_bytes;
        (u64::from(sizes.log_areas) * each).next_multiple_of(4096)
    }

    fn area_at(self, area: u16) -> Offset {
        self.at + self.sizes.areas_at() + u64::from(area) * AREA_BYTES
    }

    /// Claims a log area for the compute server `owner` with process id `process`, and chooses its
    /// log servers. The caller clears the slots before it uses them. Returns the number of the
    /// area, or `None` if none is free.
    ///
    /// # Errors
    /// If no memory server is live.
    ///
    /// # Crash
    /// A survivor recovers the area, or it was not claimed.
    pub fn claim_log_area(
        self,
        owner: Instance,
        process: u16,
    ) -> Result<Option<(u16, LogArea)>, TableError> {
        let memory = self.memory;
        let servers = self.live_servers();
        let needed = self.replicas();
        if servers.is_empty() {
            return Err(TableError::TooFewServers { needed, live: 0 });
        }
        let claimed = (0..self.sizes.log_areas).find(|area| {
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let (at, word) = (self.area_at(*area), owner.to_word());
            self.load(at) == 0
                && memory
                    .compare_exchange(at, 0, word, order.0, order.1)
                    .is_ok()
        });
        let Some(area) = claimed else {
            return Ok(None);
        };
        let ids: Vec<ServerId> = servers.iter().map(|it| it.id).collect();
        // If objects are logged at their replicas, each memory server is a log server.
        let count = match self.sizes.protocol.logs_at_replicas() {
            true => 0,
            false => needed.into(),
        };
        let chosen = choose(1 << 32 | u64::from(process), &ids, count);
        for index in 0..usize::from(needed) {
            // After losses there may be fewer log servers than replicas.
            let chosen = chosen.get(index);
            let entry = chosen.and_then(|server| servers.iter().find(|it| it.id == *server));
            let word = entry.map_or(NO_PLACE, |entry| place_word(entry, 0, 0));
            memory.store(self.log_server_at(area, index), word, Ordering::Release);
        }
        // Release, before the commits: a reader that finds a word of this server finds it here.
        let at = self.area_at(area) + USER;
        memory.store(at, owner.to_word(), Ordering::Release);
        self.begin_commits(area, owner, process);
        // Release: a survivor that reads the process id sees the log servers.
        let at = self.area_at(area) + PROCESS;
        memory.store(at, u64::from(process), Ordering::Release);
        let named: Vec<_> = { servers.iter() }
            .filter(|it| chosen.contains(&it.id))
            .copied()
            .collect();
        self.lose_if_gone(&named);
        Ok(Some((area, self.log_area(area))))
    }

    fn log_server_at(self, area: u16, index: usize) -> Offset {
        self.area_at(area) + SERVERS + index as u64 * 8
    }

    /// Returns whether a log area names the number `server`. While the area has no process id, its
    /// owner has not named its servers yet, or its logs are recovered.
    pub(super) fn names_log_server(self, area: u16, server: ServerId) -> bool {
        let mut indices = 0..usize::from(self.replicas());
        let names =
            |index| named_server(self.load(self.log_server_at(area, index))) == Some(server);
        self.load(self.area_at(area) + PROCESS) != 0 && indices.any(names)
    }

    /// Replaces the log servers of `area` that are lost in `epoch` by live ones, as far as there
    /// are enough, and returns the area. `clear` clears the slots at a new server.
    ///
    /// # Errors
    /// Returns the error of `clear`.
    ///
    /// # Crash
    /// Each log server is the old one, whose entries are lost, or the new one, which has none yet.
    pub fn replace_log_servers<E>(
        self,
        area: u16,
        epoch: u64,
        clear: impl Fn(ServerId, &LogArea) -> Result<(), E>,
    ) -> Result<LogArea, E> {
        let lost: Vec<ServerId> = self.lost(epoch).collect();
        let log = self.log_area(area);
        if log.protocol.logs_at_replicas() {
            return Ok(log);
        }
        let is_lost = |server: &ServerId| *server == NOWHERE || lost.contains(server);
        let live = self.live_servers();
        let mut spare: Vec<ServerId> = live.iter().map(|it| it.id).collect();
        spare.retain(|server| !is_lost(server) && !log.servers.contains(server));
        let process = self.load(self.area_at(area) + PROCESS);
        let count = spare.len();
        let mut spare = choose(1 << 32 | process, &spare, count).into_iter();
        for (index, _) in { log.servers.iter().enumerate() }.filter(|(_, it)| is_lost(it)) {
            let new = spare.next();
            let entry = new.and_then(|server| live.iter().find(|it| it.id == server));
            if let Some(entry) = entry {
                clear(entry.id, &log)?;
                // Release: a survivor that finds the new server finds its slots cleared.
                let at = self.log_server_at(area, index);
                self.memory
                    .store(at, place_word(entry, 0, 0), Ordering::Release);
                self.lose_if_gone(&[*entry]);
            }
        }
        Ok(self.log_area(area))
    }

    pub(super) fn log_area(self, area: u16) -> LogArea {
        let sizes = self.sizes;
        let each = u64::from(sizes.coordinators) * sizes.log_slot_bytes;
        let word = |index| self.load(self.log_server_at(area, index));
        let servers = match sizes.protocol.logs_at_replicas() {
            true => self.live_servers().iter().map(|it| it.id).collect(),
            false => { 0..usize::from(self.replicas()) }
                .map(|index| self.place_of(word(index)).server)
                .collect(),
        };
        LogArea {
            protocol: sizes.protocol,
            base: RemoteOffset::new(u64::from(area) * each),
            servers,
            coordinators: sizes.coordinators,
            slot_words: (sizes.log_slot_bytes / 8) as usize,
        }
    }

    /// Returns the log areas of `owner`, with the process ids of the compute servers.
    fn log_areas_of(self, owner: Instance) -> impl Iterator<Item = (u16, u16)> {
        let areas = (0..self.sizes.log_areas)
            .filter(move |area| self.load(self.area_at(*area)) == owner.to_word());
        areas.map(move |area| (area, self.load(self.area_at(area) + PROCESS) as u16))
    }

    /// Returns the owner of a log area, if it is in use.
    pub(super) fn log_owner(self, area: u16) -> Option<Instance> {
        Instance::from_word(self.load(self.area_at(area)))
    }

    /// Returns the owner of a log area, if it is the compute server itself.
    pub(super) fn log_user(self, area: u16) -> Option<Instance> {
        let process = self.load(self.area_at(area) + PROCESS) as u16;
        let user = self.owner_of(process);
        self.log_owner(area).filter(|owner| Some(*owner) == user)
    }

    /// Returns whether a survivor is recovering the logs of a compute server.
    pub fn is_recovering(self) -> bool {
        let mut areas = 0..self.sizes.log_areas;
        areas.any(|area| {
            // A claim that is not complete, or has ended, does not count as a recovery.
            let is_used = self.load(self.area_at(area) + PROCESS) != 0;
            is_used && self.log_owner(area).is_some() && self.log_user(area).is_none()
        })
    }

    /// Returns the number of dead compute servers whose logs are not recovered: the owner of the
    /// log area is not present, or it is a survivor that has not ended the recovery.
    pub(super) fn unrecovered(self, is_present: impl Fn(Instance) -> bool) -> u64 {
        let areas = (0..self.sizes.log_areas).filter(|area| {
            let is_used = self.load(self.area_at(*area) + PROCESS) != 0;
            let owner = self.log_owner(*area).filter(|_| is_used);
            owner.is_some_and(|it| self.log_user(*area).is_none() || !is_present(it))
        });
        areas.count() as u64
    }

    /// Returns the owners of log areas: compute servers, and survivors that recover their logs.
    pub fn log_owners(self) -> impl Iterator<Item = Instance> {
        (0..self.sizes.log_areas).filter_map(move |area| self.log_owner(area))
    }

    /// Returns the log areas without an owner, each at all live memory servers: any of them may
    /// have been a log server of an earlier owner.
    pub(super) fn free_log_areas(self) -> impl Iterator<Item = LogArea> {
        let servers: Vec<ServerId> = self.live_servers().iter().map(|it| it.id).collect();
        let areas = (0..self.sizes.log_areas).filter(move |area| self.log_owner(*area).is_none());
        areas.map(move |area| LogArea {
            servers: servers.clone(),
            ..self.log_area(area)
        })
    }

    /// Returns the log area of a process id, if it has one, so that its logs are not recovered.
    pub(super) fn log_area_of(self, process: u16) -> Option<u16> {
        let mut areas = 0..self.sizes.log_areas;
        areas.find(|area| self.load(self.area_at(*area) + PROCESS) == u64::from(process))
    }

    /// Returns the compute server whose commits the words of `area` describe.
    pub(super) fn last_user(self, area: u16) -> Option<Instance> {
        Instance::from_word(self.load(self.area_at(area) + USER))
    }

    /// Frees the log area that the compute server `process` has claimed and not used.
    pub(super) fn abandon_logs(self, owner: Instance, process: u16) {
        // The owner can have other areas too: those of compute servers that it recovers.
        for (area, _) in { self.log_areas_of(owner) }.filter(|(_, id)| *id == process) {
            let at = self.area_at(area) + USER;
            self.memory.store(at, 0u64, Ordering::Release);
        }
        self.leave_logs(owner, process);
    }

    /// Frees the log area of the compute server `process`.
    pub(super) fn leave_logs(self, owner: Instance, process: u16) {
        for (area, _) in { self.log_areas_of(owner) }.filter(|(_, id)| *id == process) {
            self.free_log_area(area, owner);
        }
    }

    fn free_log_area(self, area: u16, owner: Instance) {
        let (memory, at) = (self.memory, self.area_at(area));
        // The logs are recovered, so no commit delays the next epoch any more.
        self.end_commits(area);
        memory.store(at + PROCESS, 0u64, Ordering::Release);
        memory.crash_point(LogPoint::Freed);
        let order = (Ordering::Release, Ordering::Relaxed);
        let _ = memory.compare_exchange(at, owner.to_word(), 0, order.0, order.1);
    }

    /// Releases, as `survivor`, the catalogue and the claims of the dead instance, and recovers the
    /// logs of its log areas. Returns `false` if logs remain.
    pub(super) fn recover_catalogue(
        self,
        survivor: Instance,
        dead: Instance,
        segments: &impl Segments,
    ) -> bool {
        if self.has_catalogue(dead) {
            // The dead creator may have published a table on servers that had left.
            self.lose_if_gone(&self.placed_servers());
            self.release_catalogue(dead);
        }
        // The places that the dead restorer reserved are in the catalogue's state.
        self.release_claims(dead);
        let mut is_complete = true;
        let areas: Vec<_> = self.log_areas_of(dead).collect();
        for (area, _) in areas {
            is_complete &= self.recover_area(area, survivor, dead, segments);
        }
        is_complete
    }

    /// Recovers the logs of the compute server `owner` with process id `process`, and marks the id
    /// as failed, as `owner` itself: it has no connections any more, and may have left latches.
    pub(super) fn fail_compute(self, process: u16, owner: Instance, segments: &impl Segments) {
        let areas: Vec<_> = self.log_areas_of(owner).collect();
        for (area, _) in areas.into_iter().filter(|(_, id)| *id == process) {
            self.recover_area(area, owner, owner, segments);
        }
        if self.log_area_of(process).is_none() {
            self.fail(process, owner);
        }
    }

    fn recover_area(
        self,
        area: u16,
        survivor: Instance,
        dead: Instance,
        segments: &impl Segments,
    ) -> bool {
        let (memory, at) = (self.memory, self.area_at(area));
        // AcqRel: this survivor sees the stores of `dead`. A later survivor sees those of this one.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (from, to) = (dead.to_word(), survivor.to_word());
        if memory
            .compare_exchange(at, from, to, order.0, order.1)
            .is_err()
        {
            return true;
        }
        memory.crash_point(LogPoint::Claimed);
        let process = self.load(at + PROCESS) as u16;
        if process != 0 {
            self.begin_recovery();
            let claim = Claim {
                memory,
                at,
                from,
                to,
            };
            let Some(recovered) = segments.recover_logs(process, &self.log_area(area)) else {
                return false;
            };
            core::mem::forget(claim);
            memory.crash_point(LogPoint::Recovered);
            self.count_recovery(recovered);
            // From this mark on, other members may steal the latches. While the area names the id,
            // the id is not recycled, so its owner is the compute server of these logs, which has
            // no other area.
            if let Some(owner) = self.owner_of(process) {
                self.fail(process, owner);
            }
            memory.crash_point(LogPoint::Failed);
        }
        self.free_log_area(area, survivor);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Protocol, Recovered};
    use crate::servers::Sizes;
    use crate::verbs::Region;
    use outlive::memory::{Native, PersistenceDomain};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Panics(bool);

    impl Segments for Panics {
        fn remove(&self, _: ServerId, _: u64) {}

        fn poison(&self, _: ServerId, _: u64, _: Region) {}

        fn recover_logs(&self, _: u16, _: &LogArea) -> Option<Recovered> {
            assert!(!self.0, "a damaged log");
            Some(Recovered::default())
        }
    }

    /// Returns a configuration with one memory server, `areas` process ids and `areas` log areas.
    fn configuration(areas: u16) -> Configuration<Native> {
        let sizes = Sizes {
            replicas: 1,
            memory_servers: 64,
            process_ids: areas,
            tables: 0,
            log_areas: areas,
            coordinators: 1,
            log_slot_bytes: 64,
            protocol: Protocol::Pandora,
        };
        let memory = Native::leaked(16 << 10, PersistenceDomain::Flushed);
        let configuration = Configuration::create(memory, Offset::new(64), sizes, false);
        let region = Region {
            key: 1,
            bytes: 4096,
        };
        let server = Instance::new(1, 1);
        let joined = configuration.join_memory(server, &Panics(false), |_, _| Ok::<_, ()>(region));
        assert!(joined.unwrap().is_some());
        configuration
    }

    #[test]
    fn a_recovery_that_panics_can_be_executed_again() {
        let configuration = configuration(1);
        let [dead, survivor] = [2, 3].map(|id| Instance::new(id, 1));
        let process = configuration.join_compute(dead).unwrap();
        let area = configuration.claim_log_area(dead, process);
        assert!(area.unwrap().is_some());
        let recover = |panics| configuration.recover(survivor, dead, &Panics(panics));
        let panicked = catch_unwind(AssertUnwindSafe(|| recover(true)));
        assert!(panicked.is_err());
        assert!(!configuration.is_recovering() && !configuration.has_failed(process));
        assert!(recover(false).is_complete);
        assert!(configuration.has_failed(process));
        assert_eq!(configuration.log_owners().next(), None);
    }

    #[test]
    fn the_words_of_an_earlier_user_name_no_server() {
        let configuration = configuration(1);
        let [first, second] = [2, 3].map(|id| Instance::new(id, 1));
        let process = configuration.join_compute(first).unwrap();
        let claimed = configuration.claim_log_area(first, process).unwrap();
        let (area, log) = claimed.unwrap();
        assert!(configuration.names_log_server(area, log.servers[0]));
        configuration.leave_compute(process, first);
        assert!(!configuration.names_log_server(area, log.servers[0]));
        // The next owner has not chosen its servers yet.
        let at = configuration.area_at(area);
        configuration
            .memory
            .store(at, second.to_word(), Ordering::Release);
        assert!(!configuration.names_log_server(area, log.servers[0]));
    }

    /// Abandons another log area of the survivor in the middle of a recovery.
    struct Abandons(Configuration<Native>, Instance, u16);

    impl Segments for Abandons {
        fn remove(&self, _: ServerId, _: u64) {}

        fn poison(&self, _: ServerId, _: u64, _: Region) {}

        fn recover_logs(&self, _: u16, _: &LogArea) -> Option<Recovered> {
            self.0.abandon_logs(self.1, self.2);
            Some(Recovered::default())
        }
    }

    #[test]
    fn an_abandoned_area_takes_no_outcomes_with_it() {
        let configuration = configuration(2);
        let [dead, survivor] = [2, 3].map(|id| Instance::new(id, 1));
        let areas = [dead, survivor].map(|owner| {
            let process = configuration.join_compute(owner).unwrap();
            let area = configuration.claim_log_area(owner, process);
            (process, area.unwrap().unwrap().0)
        });
        let abandons = Abandons(configuration, survivor, areas[1].0);
        assert!(configuration.recover(survivor, dead, &abandons).is_complete);
        let users = areas.map(|(_, area)| configuration.last_user(area));
        assert_eq!(users, [Some(dead), None]);
    }
}
