//! The restoration of a lost replica, killed after every instruction together with the recoveries
//! of the restorer and the restorers that follow; and broken variants, which a sweep must find.

use super::small_configuration::{GEOMETRY, REGION_BYTES, SIZE, SmallStore, TABLE, region};
use super::small_store::{Pair, whole};
use outlive::membership::Instance;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::protocol::{Protocol, Worker, check};
use outlive_store::servers::RestorePoint;
use outlive_store::verbs::{ServerId, block_on};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    // A restoration under `latch-to-log` executes what it does under `pandora`.
    for protocol in [Protocol::Pandora, Protocol::Ford, Protocol::LogALatch] {
        suite.add(Restoration(protocol, What::Restore));
    }
    suite.add(Restoration(Protocol::Pandora, What::RestoreAndLose));
    suite.declare::<RestorePoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::ForgetsClaims, "is restoring the store"),
        (What::CopiesNothing, "the keys are"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) {
        (Box::new(Restoration(Protocol::Pandora, what)), message)
    })
    .into()
}

/// The variant of the restoration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// It is sound.
    Restore,
    /// It is sound. After the death of the restorer, the last complete replica is lost.
    RestoreAndLose,
    /// Broken: the claim of a dead restorer is not released.
    ForgetsClaims,
    /// Broken: the objects are not written to the new replica.
    CopiesNothing,
}

struct Restoration(Protocol, What);

type Weak = Weakened<Marked>;

/// The keys. The second one was inserted and deleted.
const KEYS: [Pair; 3] = [(1, Some(10)), (2, None), (3, Some(30))];
/// The keys that the check writes.
const NEXT: [Pair; 3] = [(1, Some(11)), (2, Some(21)), (3, None)];

/// Returns the instance of a process: 0 is the restorer, 1 and above recover it.
const fn instance(id: u32) -> Instance {
    Instance::new(id, 1)
}

/// The memory servers: the lost one, the one that is left, and the fresh one.
const SERVERS: [Instance; 3] = [instance(30), instance(31), instance(32)];
const CLIENT: Instance = instance(20);

impl Restoration {
    fn open(&self, memory: Marked) -> SmallStore<Weak> {
        SmallStore::open(match self.1 {
            What::CopiesNothing => {
                Weakened::new(memory, Weakness::Stores(region(ServerId(2)), REGION_BYTES))
            }
            What::Restore | What::RestoreAndLose | What::ForgetsClaims => Weakened::sound(memory),
        })
    }

    /// Gives the keys these values, or deletes them.
    fn write(&self, store: &SmallStore<Weak>, keys: &[Pair]) -> Result<(), String> {
        let done = store.compute(CLIENT, |worker| {
            let mut coordinator = worker.coordinator().expect("a slot");
            let done = coordinator.transaction(async |tx| {
                for (key, value) in keys {
                    match value {
                        Some(value) => tx.put(TABLE, *key, &[*value; 2]).await?,
                        None => drop(tx.delete(TABLE, *key).await?),
                    }
                }
                Ok(())
            });
            block_on(done).map(drop)
        });
        done.map_err(|error| error.to_string())
    }

    fn read(&self, store: &SmallStore<Weak>) -> Result<[Pair; 3], String> {
        let done = store.compute(CLIENT, |worker| {
            let mut coordinator = worker.coordinator().expect("a slot");
            block_on(coordinator.transaction(async |tx| {
                let mut found = KEYS;
                for (key, value) in &mut found {
                    *value = whole(tx.read(TABLE, *key).await?);
                }
                Ok(found)
            }))
        });
        Ok(done.map_err(|error| error.to_string())?.value)
    }
}

impl Restoration {
    /// Checks that the new replica is complete, or is not used.
    fn check_loss(&self, store: &SmallStore<Weak>, crash: &Crash) -> Result<(), String> {
        let lost = store.configuration.missing().lost;
        match (self.read(store), lost) {
            (Err(error), 1) if error.contains("are lost") && !crash.returned => Ok(()),
            (Ok(KEYS), 0) => Ok(()),
            (found, lost) => Err(format!(
                "the keys are {found:?}, and {lost} partitions lost"
            )),
        }
    }
}

impl Sweep for Restoration {
    fn name(&self) -> String {
        match self.0 {
            Protocol::Pandora => format!("store {:?}", self.1),
            protocol => format!("store {:?}, {protocol}", self.1),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let store = SmallStore::create(Weakened::sound(memory), self.0);
        SERVERS[..2].iter().for_each(|it| store.serve(*it));
        let created = { store.configuration }.create_table(CLIENT, "t", GEOMETRY);
        assert_eq!(created, Ok(0));
        self.write(&store, &[(2, Some(20)), (3, Some(29))])
            .expect("a commit");
        self.write(&store, &KEYS).expect("a commit");
        let _ = { store.configuration }.recover(CLIENT, SERVERS[0], &store);
        store.serve(SERVERS[2]);
    }

    fn operate(&self, memory: Marked) {
        let restored = self.open(memory).restore(instance(0)).expect("a restorer");
        if self.1 == What::Restore {
            assert_eq!((restored.replicas, restored.missing.partitions), (1, 0));
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let store = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        if self.1 != What::ForgetsClaims {
            for gone in (0..=crash.recoverers_lost).map(instance) {
                let recovery = { store.configuration }.recover(survivor, gone, &store);
                assert!(recovery.is_complete);
            }
            if self.1 == What::RestoreAndLose {
                let _ = { store.configuration }.recover(survivor, SERVERS[1], &store);
            }
            store.restore(survivor).expect("a restorer");
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let store = self.open(memory);
        if self.1 == What::RestoreAndLose {
            return self.check_loss(&store, crash);
        }
        let configuration = store.configuration;
        let lost = configuration.lost(configuration.epoch());
        // The check runs again after a second recovery.
        let is_checked = lost.count() > 1;
        if !is_checked {
            store.restore(CLIENT)?;
            let missing = configuration.missing();
            if missing.partitions > 0 || missing.lost > 0 {
                return Err(format!("partitions with too few replicas: {missing:?}"));
            }
            let worker = Worker::new(store, 0, Default::default(), 0);
            let checked = block_on(check(&worker, core::iter::once(0), |_| false));
            let checked = checked.map_err(|error| error.to_string())?;
            if checked.held > 0 || checked.keys != 2 {
                return Err(format!("the keys are {checked:?}"));
            }
            if !checked.problems.is_empty() && self.1 == What::Restore {
                return Err(format!("{checked:?}"));
            }
            // Now the new replica is the primary.
            let _ = configuration.recover(CLIENT, SERVERS[1], &store);
        }
        let found = self.read(&store)?;
        if found != if is_checked { NEXT } else { KEYS } {
            return Err(format!("the keys are {found:?}"));
        }
        self.write(&store, &NEXT)
    }
}
