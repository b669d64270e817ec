//! A store whose servers are in the process of the test, and single transactions on it.

use outlive_store::protocol::{Coordinator, Member, Table};
use outlive_store::servers::{ComputeServer, MemoryServer, Store, StoreOptions};
use outlive_store::verbs::block_on;

/// The number of bytes that each memory server serves.
pub const REGION: u64 = 2 << 20;

/// A store with memory servers and a compute server, which a drop destroys.
pub struct World {
    pub store: Store,
    pub path: String,
    pub compute: Option<ComputeServer>,
    pub memory: Vec<MemoryServer>,
}

impl World {
    /// Creates a store with `servers` memory servers. `name` distinguishes it from those of the
    /// other tests of the program.
    pub fn new(name: &str, servers: usize, options: StoreOptions) -> Self {
        let path = format!("/dev/shm/outlive-store-test-{name}-{}", std::process::id());
        let store = Store::create(&path, options.members(64)).unwrap();
        let memory = (0..servers)
            .map(|_| store.serve_memory(REGION).unwrap())
            .collect();
        let compute = Some(store.join_compute().unwrap());
        Self {
            store,
            path,
            compute,
            memory,
        }
    }

    pub fn compute(&self) -> &ComputeServer {
        self.compute.as_ref().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.compute = None;
        self.memory.clear();
        let _ = Store::destroy(&self.path);
    }
}

/// Reads a key in a transaction.
pub fn read<V: Member>(
    coordinator: &mut Coordinator<V>,
    table: Table<u64>,
    key: u64,
) -> Option<u64> {
    let done = coordinator.transaction(async |tx| tx.read(table, key).await);
    block_on(done).unwrap().value
}

/// Gives a key a value in a transaction.
pub fn put<V: Member>(coordinator: &mut Coordinator<V>, table: Table<u64>, key: u64, value: u64) {
    let done = coordinator.transaction(async |tx| tx.put(table, key, &value).await);
    block_on(done).unwrap();
}
