//! Memory pools with servers and clients in this process.

mod access;
mod moves;
mod replicas;

use outlive_pool::{Pool, PoolOptions, Server};
use std::path::PathBuf;

const SLICE: u64 = 4096;

/// The path of a pool, which is destroyed with this value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, options: PoolOptions) -> (Self, Pool) {
        let path = format!("/dev/shm/outlive-pool-{name}-{}", std::process::id());
        let options = options.slice_bytes(SLICE).members(48);
        let pool = Pool::create(&path, options.slices(64)).unwrap();
        (Self(path.into()), pool)
    }

    /// Returns the number of files of servers.
    fn segments(&self) -> usize {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let prefix = format!("{name}.");
        let files = std::fs::read_dir(self.0.parent().unwrap()).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        names
            .filter(|it| it.to_str().is_some_and(|it| it.starts_with(&prefix)))
            .filter(|it| it.to_string_lossy().contains("server-"))
            .count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pool::destroy(&self.0);
    }
}

fn servers(pool: &Pool, slices: &[u64]) -> Vec<Server> {
    let serve = |slices: &u64| pool.serve(slices * SLICE, 0).unwrap();
    slices.iter().map(serve).collect()
}

fn slices_of(pool: &Pool, server: &Server) -> u64 {
    let status = pool.status();
    let found = status.servers.iter().find(|it| it.entry.id == server.id());
    found.unwrap().slices
}
