//! A store whose clients are processes that a tester starts.

use crate::StudyError;
use crate::scratch::fresh_path;
use outlive_litmus::driver::{self, Driver};
use outlive_store::protocol::Protocol;
use outlive_store::servers::{MemoryServer, Store, StoreOptions};
use outlive_store::workloads::bytes_per_server;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of keys for which the table is created.
pub const KEYS: u64 = 4000;

/// The verbs before which a client kills itself, with a probability of one in `one_in`.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    points: &'static [&'static str],
    one_in: u32,
}

impl Crashes {
    /// No crash.
    pub const NEVER: Self = Self {
        points: &[],
        one_in: 1,
    };
    /// Crashes after the log of the attempt before, which the bugs of logging leave.
    pub const LATCHING: Self = Self {
        points: &["latch"],
        one_in: 60,
    };
    /// Crashes at all kinds of verbs that change the store, and in recoveries.
    pub const ANYWHERE: Self = Self {
        points: &[
            "latch",
            "validate",
            "log",
            "commit",
            "unlatch",
            "remove-log",
            "release",
            "recovery",
        ],
        one_in: 300,
    };
}

/// A store in /dev/shm, whose memory servers are members of this process. A drop destroys it.
pub struct Clients {
    path: PathBuf,
    driver: Option<Arc<dyn Driver>>,
    memory: Vec<MemoryServer>,
}

impl Clients {
    /// Creates a store whose clients have the named flaw, if there is one, and kill themselves.
    pub fn new(
        lab: &Path,
        flaw: Option<&str>,
        crashes: Crashes,
        seed: u64,
    ) -> Result<Self, StudyError> {
        let path = fresh_path("store");
        let options = StoreOptions::new()
            .replicas(2)
            .protocol(Protocol::Pandora)
            .compute_servers(48, 4)
            .log_slot(16 << 10)
            .memory_servers(256)
            .members(192);
        let store = Store::create(&path, options)?;
        let mut clients = Self {
            path,
            driver: None,
            memory: Vec::new(),
        };
        let bytes = bytes_per_server(&[(KEYS, 1)], 1, 2);
        for _ in 0..2 {
            clients.memory.push(store.serve_memory(bytes)?);
        }
        let (lab, path) = (lab.display(), clients.path.display());
        let mut target = format!(
            "exec:exec '{lab}' litmus-store '{path}' --keys {KEYS} --seed {seed} --round-trip 50us \
             --jitter 200us"
        );
        if let Some(flaw) = flaw {
            target += &format!(" --flaw {flaw}");
        }
        for point in crashes.points {
            target += &format!(" --crash {point}");
        }
        target += &format!(" --crash-one-in {}", crashes.one_in);
        let driver = driver::open(&target).map_err(StudyError::void_of)?;
        clients.driver = Some(driver.into());
        Ok(clients)
    }

    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.as_ref().expect("set by `new`")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The driver's process is a member of the store.
        self.driver = None;
        self.memory.clear();
        // A drop cannot report an error; `outlive store destroy` removes a store that stays.
        let _ = Store::destroy(&self.path);
    }
}
