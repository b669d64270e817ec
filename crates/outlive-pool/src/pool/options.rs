//! The options of a new pool.

use crate::coherent::Coherent;
use crate::error::PoolError;
use crate::layout::Sizes;
use outlive::pod::{Pod, PodOptions};
use std::path::Path;

/// The options of a new pool.
///
/// ```
/// use outlive_pool::PoolOptions;
/// let options = PoolOptions::new().slice_bytes(16 << 20).slices(640_000); // 10 TiB
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options create nothing until Pool::create() is called"]
pub struct PoolOptions {
    sizes: Sizes,
    slice_bytes: u64,
    objects: u32,
    members: u32,
    mode: u32,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolOptions {
    /// Returns the options of a pool with slices of 2 MiB, 65,536 slices (128 GiB of addresses, and
    /// tables of 2 MiB), 64 servers, 256 readers, 64 counters, 64 moves, 4096 leased objects, and
    /// 256 members.
    pub fn new() -> Self {
        Self {
            sizes: Sizes {
                slice_bits: 21,
                slices: 1 << 16,
                servers: 64,
                readers: 256,
                counters: 64,
                moves: 64,
                object_quota: 0,
            },
            objects: 4096,
            slice_bytes: 2 << 20,
            members: 256,
            mode: 0o600,
        }
    }

    /// Sets the number of bytes of a slice: a power of two from 4 KiB to 64 MiB. An allocation has
    /// whole slices. Small slices are for tests; 2 to 64 MiB keep the tables small.
    pub fn slice_bytes(mut self, bytes: u64) -> Self {
        // A size beyond the range, or none, is refused by `Pool::create`.
        self.slice_bytes = bytes;
        self.sizes.slice_bits = bytes.checked_ilog2().unwrap_or(0);
        self
    }

    /// Sets the number of slices, which limits the allocations at one time. The coherent region has
    /// 32 bytes for each.
    pub fn slices(mut self, slices: u64) -> Self {
        self.sizes.slices = slices;
        self
    }

    /// Sets the maximum number of servers at one time, dead ones with slices that are not freed
    /// included, up to 4095.
    pub fn servers(mut self, servers: u16) -> Self {
        self.sizes.servers = servers;
        self
    }

    /// Sets the maximum number of readers at one time: threads that access data.
    pub fn readers(mut self, readers: u16) -> Self {
        self.sizes.readers = readers;
        self
    }

    /// Sets the number of counters.
    pub fn counters(mut self, counters: u16) -> Self {
        self.sizes.counters = counters;
        self
    }

    /// Sets the largest number of slices that are moved at one time, at least 2: a rebuild of a
    /// lost replica counts as two.
    pub fn moves(mut self, moves: u16) -> Self {
        self.sizes.moves = moves;
        self
    }

    /// Sets the number of [leased objects](crate::ObjectStore) for which the pod's heap has space;
    /// each needs about 1.5 KiB of the pool's file.
    pub fn objects(mut self, objects: u32) -> Self {
        self.objects = objects;
        self
    }

    /// Sets the number of bytes, in whole slices, that leased objects may have together, sealed or
    /// not. Above it, objects that are not used are evicted. By default, and for 0, only the memory
    /// limits the objects.
    pub fn object_quota(mut self, bytes: u64) -> Self {
        self.sizes.object_quota = bytes;
        self
    }

    /// Sets the maximum number of hosts, processes and threads that use the pool at one time. Each
    /// client and each server counts as a host and a process, and each
    /// [`ObjectStore`](crate::ObjectStore) as a thread.
    pub fn members(mut self, members: u32) -> Self {
        self.members = members;
        self
    }

    /// Sets the permissions of the pool's files. Default: 0600.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o777;
        self
    }

    /// Creates the pod of a pool at `path`.
    pub(super) fn create(self, path: &Path) -> Result<Pod, PoolError> {
        let sizes = self.sizes;
        let asked = self.slice_bytes;
        if !asked.is_power_of_two() {
            return Err(PoolError::Impossible {
                what: "bytes in a slice, which must be a power of two",
                asked,
                least: 4 << 10,
                most: 64 << 20,
            });
        }
        if let Some((what, asked, least, most)) = sizes.out_of_range() {
            return Err(PoolError::Impossible {
                what,
                asked,
                least,
                most,
            });
        }
        let is_memfd = path.as_os_str().as_encoded_bytes().starts_with(b"memfd:");
        let is_device = path.metadata().is_ok_and(|it| !it.is_file()) || path.starts_with("/sys");
        if is_memfd || is_device {
            return Err(PoolError::NotAFile { path: path.into() });
        }
        // The membership's tables need about 9 KiB for each member, and additionally 1 MiB.
        let tables = sizes.bytes() + u64::from(self.members) * (12 << 10) + (4 << 20);
        // The block of an object has 1 KiB; names, leases and the heap's own state need the rest.
        let heap = u64::from(self.objects) * (3 << 9) + u64::from(self.members) * (1 << 10);
        let pod = PodOptions::new()
            .size(tables + heap + (1 << 20))
            .ids(self.members)
            .groups(0)
            .mode(self.mode)
            .structures(sizes.bytes(), move |memory, area| {
                Coherent::create(memory, area.offset, sizes);
            });
        Ok(Pod::create(path, pod)?)
    }
}
