//! Changes words of a store's configuration at random, opens and reads it, and recovers and joins
//! servers and tables in it. No call panics, and a server that joins does not take the entry of a
//! dead one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::membership::Instance;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive_store::protocol::{LogArea, Protocol, Recovered};
use outlive_store::servers::{Configuration, Phase, Segments, Sizes};
use outlive_store::tables::Geometry;
use outlive_store::verbs::{Region, ServerId};
use std::sync::OnceLock;

const BYTES: u64 = 32 << 10;
const SIZES: Sizes = Sizes {
    memory_servers: 64,
    replicas: 2,
    process_ids: 7,
    tables: 2,
    log_areas: 3,
    coordinators: 2,
    log_slot_bytes: 64,
    protocol: Protocol::Pandora,
};
const AT: Offset = Offset::new(64);
const REGION: Region = Region {
    key: 7,
    bytes: 64 << 10,
};

struct NoFiles;

impl Segments for NoFiles {
    fn remove(&self, _: ServerId, _: u64) {}
    fn poison(&self, _: ServerId, _: u64, _: Region) {}
    fn recover_logs(&self, _: u16, area: &LogArea) -> Option<Recovered> {
        (area.servers.len() > 1).then(Recovered::default)
    }
}

fn create() -> (Native, Vec<u64>) {
    let memory = Native::leaked(BYTES, PersistenceDomain::Flushed);
    let configuration = Configuration::create(memory, AT, SIZES, true);
    for id in 1..4 {
        let owner = Instance::new(id, 1);
        let joined = configuration.join_memory(owner, &NoFiles, |_, _| Ok::<_, ()>(REGION));
        assert!(joined.unwrap().is_some());
        let process = configuration.join_compute(owner);
        let area = configuration.claim_log_area(owner, process.unwrap());
        assert!(matches!(area, Ok(Some(_))) || id == 1);
    }
    let geometry = Geometry::for_keys(10, 2, 4);
    let created = configuration.create_table(Instance::new(1, 1), "one", geometry);
    assert_eq!(created, Ok(0));
    let _ = configuration.recover(Instance::new(1, 1), Instance::new(3, 1), &NoFiles);
    let word = |at| memory.load(Offset::new(at), Ordering::Relaxed);
    (memory, (0..BYTES).step_by(8).map(word).collect())
}

fuzz_target!(|changes: Vec<(u16, u64)>| {
    static SOUND: OnceLock<(Native, Vec<u64>)> = OnceLock::new();
    let (memory, sound) = SOUND.get_or_init(create);
    let put = |index: usize, word: u64| {
        memory.store(Offset::new(index as u64 * 8), word, Ordering::Relaxed);
    };
    for (index, word) in sound.iter().enumerate() {
        put(index, *word);
    }
    for (index, word) in changes {
        put(usize::from(index) % sound.len(), word);
    }
    let Ok(configuration) = Configuration::open(*memory, AT, BYTES - AT.raw()) else {
        return;
    };
    let before: Vec<_> = configuration.memory_servers().collect();
    for entry in &before {
        configuration.liveness(entry).holds();
    }
    let compute = configuration.compute_servers();
    assert!(compute.count() <= configuration.process_ids().into());
    configuration.has_failed(configuration.process_ids());
    for table in configuration.tables() {
        assert!(configuration.layout(table.number).is_some());
    }
    let (survivor, other) = (Instance::new(5, 1), Instance::new(6, 1));
    for id in 1..4 {
        let _ = configuration.recover(survivor, Instance::new(id, 1), &NoFiles);
    }
    let joined = configuration.join_memory(other, &NoFiles, |_, _| Ok::<_, ()>(REGION));
    if let Some(entry) = joined.unwrap() {
        let used = |it: &&outlive_store::servers::MemoryEntry| {
            it.id == entry.id && matches!(it.phase, Phase::Dead)
        };
        assert!(!before.iter().any(|it| used(&it)));
        configuration.leave_memory(&entry, &NoFiles);
    }
    let process = configuration.join_compute(other);
    let geometry = Geometry::for_keys(20, 1, 2);
    let _ = configuration.create_table(other, "two", geometry);
    let _ = configuration.claim_log_area(other, process.unwrap_or(1));
});
