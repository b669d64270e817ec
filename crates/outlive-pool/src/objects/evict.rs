//! Eviction: frees the memory of objects without users, the least recently used ones first.

use super::lease::Leased;
use super::store::{ObjectState, ObjectStore};
use crate::catalogue::find;
use crate::coherent::{Phase, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, Use};
use crate::pool::Placement;
use core::time::Duration;

/// The number of attempts to evict enough. A later attempt may succeed: threads that look up, list
/// or collect have short leases, which exclude an eviction.
const ROUNDS: usize = 4;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(1);

/// An object that may be evicted.
struct Candidate {
    name: String,
    address: Address,
    last_use: u64,
    /// The number of its slices that are needed.
    slices: u64,
    has_users: bool,
}

/// The slices that are needed.
#[derive(Clone, Copy)]
enum Needed {
    /// Slices with memory on this server, or on any live server.
    Memory(Option<ServerId>),
    /// Any slices, also those on servers that died.
    Slices,
}

fn slices_without_users(candidates: &[Candidate]) -> u64 {
    let unused = candidates.iter().filter(|it| !it.has_users);
    unused.map(|it| it.slices).sum()
}

impl ObjectStore {
    /// Evicts sealed objects that have no user and are not pinned, the least recently used ones
    /// first, until they had `bytes` bytes in whole slices of live servers. Memory that is free
    /// already does not count. Returns the number of bytes that the evicted objects had, which
    /// is smaller if there are not enough such objects. If a user leases an object while it is
    /// evicted, its memory is freed when that lease ends. Reads all objects.
    ///
    /// # Errors
    /// If an object is damaged, or there is no memory for a lease.
    ///
    /// # Crash
    /// Some of the objects are evicted. A survivor frees the memory of the last one.
    pub fn evict(&self, bytes: u64) -> Result<u64, PoolError> {
        let slice_bytes = self.pool().coherent().sizes().slice_bytes();
        let candidates = self.candidates(Needed::Memory(None))?;
        Ok(self.evict_slices(&candidates, bytes.div_ceil(slice_bytes))? * slice_bytes)
    }

    /// Evicts one object, so that the pod's heap has free memory. Returns whether there was one.
    pub(super) fn evict_name(&self) -> Result<bool, PoolError> {
        let candidates = self.candidates(Needed::Slices)?;
        Ok(self.evict_slices(&candidates, 1)? > 0)
    }

    /// Evicts candidates until they had `slices` slices. Returns the number of their slices.
    fn evict_slices(&self, candidates: &[Candidate], slices: u64) -> Result<u64, PoolError> {
        let mut freed = 0;
        for candidate in candidates {
            if freed >= slices {
                break;
            }
            if self.evict_one(candidate)? {
                freed += candidate.slices;
            }
        }
        Ok(freed)
    }

    /// Returns the objects that may be evicted to free `needed` slices: lost ones first, then in
    /// the order of their last uses. Some of them may have users now.
    fn candidates(&self, needed: Needed) -> Result<Vec<Candidate>, PoolError> {
        let coherent = self.pool().coherent();
        let all = self.statuses()?.into_iter();
        let all = all.filter(|(it, _)| !it.is_pinned && it.state != ObjectState::Unsealed);
        let slice_bytes = coherent.sizes().slice_bytes();
        let all = all.map(|(it, address)| {
            let slices = match needed {
                Needed::Memory(server) => coherent.slices_on(address, it.bytes, server),
                Needed::Slices => it.bytes.max(1).div_ceil(slice_bytes),
            };
            let candidate = Candidate {
                name: it.name,
                address,
                last_use: it.last_use,
                slices,
                has_users: !it.users.is_empty(),
            };
            (it.state != ObjectState::Lost, candidate)
        });
        let mut all: Vec<_> = all.filter(|(_, it)| it.slices > 0).collect();
        all.sort_by_key(|(can_be_read, it)| (*can_be_read, it.last_use));
        Ok(all.into_iter().map(|(_, it)| it).collect())
    }

    /// Evicts an object, unless it is used again. Returns whether it was evicted.
    fn evict_one(&self, candidate: &Candidate) -> Result<bool, PoolError> {
        let Some(named) = find::open(self.objects(), &candidate.name)? else {
            return Ok(false);
        };
        let manifest = *named.low_level();
        let address = manifest.address()?;
        let is_sealed = self.pool().coherent().is_sealed(address);
        let is_gone = |evictor| self.client().is_gone(evictor);
        let leased = Leased::new(self, named)?;
        // Another object may have the name now.
        let is_it = is_sealed && address == candidate.address;
        if !is_it || !manifest.begin_eviction(self.thread(), is_gone) {
            return Ok(false);
        }
        if manifest.last_use() > candidate.last_use || leased.has_other_users() {
            manifest.end_eviction(self.thread());
            return Ok(false);
        }
        leased.unlink()
    }

    /// Allocates memory for an object, and evicts others if the quota or the memory requires it.
    /// Evicts none for memory if all objects without users and the free memory are not enough. If
    /// too few free addresses are beside one another, evicts until they are, or no candidate is
    /// left.
    pub(super) fn allocate(
        &self,
        (kind, bytes): (Use, u64),
        placement: Placement,
    ) -> Result<Address, PoolError> {
        let sizes = self.pool().coherent().sizes();
        let needed = bytes.max(1).div_ceil(sizes.slice_bytes());
        let server = self.client().server_of(placement)?;
        self.evict_for_quota(bytes, needed)?;
        let mut round = 0;
        loop {
            let full = match self.client().allocate_for(kind, bytes, placement) {
                Err(full @ (PoolError::OutOfMemory { .. } | PoolError::OutOfAddresses { .. })) => {
                    full
                }
                allocated => return allocated,
            };
            if round == ROUNDS || needed > sizes.slices {
                return Err(full);
            }
            round += 1;
            let candidates = self.candidates(match &full {
                PoolError::OutOfMemory { .. } => Needed::Memory(server),
                _ => Needed::Slices,
            })?;
            let evictable = slices_without_users(&candidates);
            let (free, can_suffice) = match &full {
                PoolError::OutOfMemory { .. } => {
                    let free = self.free_frames(server);
                    (free, free + evictable >= needed)
                }
                // After evictions, enough free addresses may be beside one another.
                _ => (0, evictable > 0),
            };
            let freed = match can_suffice {
                true => self.evict_slices(&candidates, needed.saturating_sub(free).max(1))?,
                false => 0,
            };
            if freed > 0 {
                // The next attempts also evict: another thread may take the memory that was freed,
                // or the addresses may be apart.
                round = 0;
            } else if can_suffice || candidates.iter().any(|it| it.has_users) {
                std::thread::sleep(BETWEEN_ROUNDS);
            } else {
                return Err(full);
            }
        }
    }

    /// Returns the number of free frames of `server`, or of all live servers.
    fn free_frames(&self, server: Option<ServerId>) -> u64 {
        let status = self.pool().status();
        let live = status.servers.iter().filter(|it| {
            it.entry.phase == Phase::Live && server.is_none_or(|server| server == it.entry.id)
        });
        live.map(|it| it.frames.unwrap_or(0).saturating_sub(it.slices))
            .sum()
    }

    /// Evicts objects until one of `needed` slices fits into the pool's quota.
    fn evict_for_quota(&self, bytes: u64, needed: u64) -> Result<(), PoolError> {
        let sizes = self.pool().coherent().sizes();
        let quota = sizes.object_quota;
        if quota == 0 {
            return Ok(());
        }
        let most = quota >> sizes.slice_bits;
        let over = || PoolError::OverQuota { bytes, quota };
        if needed > most {
            return Err(over());
        }
        let excess = || (self.pool().coherent().slices_of_objects() + needed).saturating_sub(most);
        for round in 0..=ROUNDS {
            if excess() == 0 {
                return Ok(());
            }
            // The memory of dead processes and destroyed objects counts until it is freed.
            self.client().collect();
            let (candidates, excess) = (self.candidates(Needed::Slices)?, excess());
            let can_suffice = slices_without_users(&candidates) >= excess;
            if !can_suffice && !candidates.iter().any(|it| it.has_users) {
                return Err(over());
            }
            if !can_suffice || self.evict_slices(&candidates, excess)? == 0 && round > 0 {
                std::thread::sleep(BETWEEN_ROUNDS);
            }
        }
        match excess() {
            0 => Ok(()),
            _ => Err(over()),
        }
    }
}
