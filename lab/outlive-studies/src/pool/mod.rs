//! Studies of memory pools.

pub mod access;
pub mod replicas;

use crate::StudyError;
use crate::scratch::fresh_path;
use outlive_pool::{
    Address, Client, Placement, Pool, PoolError, PoolOptions, Reader, Redundancy, Server,
};
use std::path::PathBuf;
use std::time::Instant;

const SLICE: u64 = 2 << 20;
/// The bytes of a small access.
const BYTES: u64 = 64;

fn void(error: impl std::fmt::Display) -> StudyError {
    StudyError::void(error.to_string())
}

/// A pool with servers in this process, which take no part in the accesses.
struct Scratch {
    // Dropped in this order.
    client: Client,
    servers: Vec<Server>,
    path: PathBuf,
}

impl Scratch {
    /// Creates a pool with this number of servers, each with memory for so many slices.
    fn new(servers: usize, slices: u64) -> Result<Self, StudyError> {
        let path = fresh_path("pool-study");
        let pool = Pool::create(&path, PoolOptions::new().slice_bytes(SLICE)).map_err(void)?;
        let serve = |_| pool.serve(slices * SLICE, 0);
        let servers: Result<_, PoolError> = (0..servers).map(serve).collect();
        Ok(Self {
            client: pool.join().map_err(void)?,
            servers: servers.map_err(void)?,
            path,
        })
    }

    /// Allocates slices whose first replicas are on the first server, and touches them.
    fn allocate(&self, reader: &Reader, slices: u64, replicas: u8) -> Result<Address, StudyError> {
        let (bytes, place) = (slices * SLICE, Placement::There(self.servers[0].id()));
        let redundancy = Redundancy::Replicas(replicas);
        let address = { self.client.allocate_with(bytes, place, redundancy) }.map_err(void)?;
        let ones = vec![1; SLICE as usize];
        for slice in 0..slices {
            let at = address.plus(slice * SLICE);
            reader.write(at, &ones).map_err(void)?;
        }
        Ok(address)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A drop cannot report an error.
        let _ = Pool::destroy(&self.path);
    }
}

/// Writes 64 bytes at random places of a slice, under a guard each. Returns the nanoseconds of one.
fn write_randomly(reader: &Reader, slice: Address, writes: u64) -> Result<f64, StudyError> {
    let mut random = fastrand::Rng::with_seed(1);
    let began = Instant::now();
    for _ in 0..writes {
        let place = random.u64(..SLICE / BYTES) * BYTES;
        let guard = reader.write_guard(slice.plus(place)).map_err(void)?;
        (0..BYTES / 8).for_each(|word| guard.store(word, word));
    }
    Ok(began.elapsed().as_nanos() as f64 / writes as f64)
}
