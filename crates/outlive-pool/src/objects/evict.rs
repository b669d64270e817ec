//! Eviction: objects without users make room, those that were used least recently first.

use super::find;
use super::lease::Leased;
use super::store::{ObjectState, ObjectStatus, ObjectStore};
use crate::coherent::Phase;
use crate::error::PoolError;
use crate::layout::{Address, Use};
use crate::pool::Placement;

impl ObjectStore {
    /// Evicts sealed objects that have no user and are not pinned, those that were used least
    /// recently first, until `bytes` bytes in whole slices are free. Returns the number of bytes that
    /// were freed, which is smaller if there are not enough such objects. Reads all objects.
    ///
    /// # Errors
    /// If an object is damaged, or there is no memory for a lease.
    ///
    /// # Crash
    /// Some of the objects are evicted. A survivor frees the memory of the last one.
    pub fn evict(&self, bytes: u64) -> Result<u64, PoolError> {
        let mut freed = 0;
        for candidate in self.candidates()? {
            if freed >= bytes {
                break;
            }
            freed += self.evict_one(&candidate)?;
        }
        Ok(freed)
    }

    /// Returns the objects that may be evicted, in the order of their last uses.
    fn candidates(&self) -> Result<Vec<ObjectStatus>, PoolError> {
        let mut all = self.list()?;
        all.retain(|it| !it.is_pinned && it.users.is_empty() && it.state != ObjectState::Unsealed);
        all.sort_by_key(|it| it.last_use);
        Ok(all)
    }

    /// Evicts an object, unless it is used again. Returns the number of bytes that were freed.
    fn evict_one(&self, candidate: &ObjectStatus) -> Result<u64, PoolError> {
        let Some(named) = find::open(self.objects(), &candidate.name)? else {
            return Ok(0);
        };
        let manifest = *named.low_level();
        let is_sealed = self.pool().coherent().is_sealed(manifest.address()?);
        if !is_sealed || manifest.is_pinned() || manifest.last_use() > candidate.last_use {
            return Ok(0);
        }
        let leased = Leased::new(self, named)?;
        match !leased.has_other_users() && leased.unlink()? {
            true => Ok(self.in_slices(candidate.bytes)),
            false => Ok(0),
        }
    }

    fn in_slices(&self, bytes: u64) -> u64 {
        let slice_bytes = self.pool().coherent().sizes().slice_bytes();
        let whole = bytes.max(1).checked_next_multiple_of(slice_bytes);
        whole.unwrap_or(u64::MAX)
    }

    /// Allocates memory for an object, and evicts others if need be: none if that cannot be enough.
    pub(super) fn allocate(&self, bytes: u64, placement: Placement) -> Result<Address, PoolError> {
        self.evict_for_quota(bytes)?;
        let mut candidates = None;
        loop {
            let full = match self.client().allocate_for(Use::Object, bytes, placement) {
                Err(full @ (PoolError::OutOfMemory { .. } | PoolError::OutOfAddresses { .. })) => {
                    full
                }
                allocated => return allocated,
            };
            if candidates.is_none() {
                let all = self.candidates()?;
                let evictable: u64 = all.iter().map(|it| self.in_slices(it.bytes)).sum();
                let all = if self.free_bytes().saturating_add(evictable) < bytes {
                    Vec::new()
                } else {
                    all
                };
                candidates = Some(all.into_iter());
            }
            let mut rest = candidates.iter_mut().flatten();
            let evicted = loop {
                match rest.next().map(|candidate| self.evict_one(&candidate)) {
                    None => break 0,
                    Some(Ok(0)) => {}
                    Some(evicted) => break evicted?,
                }
            };
            if evicted == 0 {
                return Err(full);
            }
        }
    }

    /// Returns the number of bytes in free frames of live servers.
    fn free_bytes(&self) -> u64 {
        let status = self.pool().status();
        let live = status
            .servers
            .iter()
            .filter(|it| it.entry.phase == Phase::Live);
        let free = live.map(|it| it.frames.unwrap_or(0).saturating_sub(it.slices));
        free.sum::<u64>() << status.sizes.slice_bits
    }

    /// Evicts objects until one of `bytes` bytes fits into the pool's quota.
    fn evict_for_quota(&self, bytes: u64) -> Result<(), PoolError> {
        let sizes = self.pool().coherent().sizes();
        let quota = sizes.object_quota;
        if quota == 0 {
            return Ok(());
        }
        let needed = self.in_slices(bytes);
        loop {
            let used = self.pool().coherent().sealed_slices() << sizes.slice_bits;
            let excess = used.saturating_add(needed).saturating_sub(quota);
            if excess == 0 {
                return Ok(());
            }
            if needed > quota || self.evict(excess)? == 0 {
                return Err(PoolError::OverQuota { bytes, quota });
            }
        }
    }
}
