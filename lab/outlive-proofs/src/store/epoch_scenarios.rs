//! A commit against the loss of a memory server and the epoch that follows, and the choice of log
//! servers against a memory server that leaves, under every interleaving within bounds; and broken
//! variants.

use super::sizes;
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::protocol::{LogArea, Protocol, Recovered};
use outlive_store::servers::{Configuration, Segments, Sizes};
use outlive_store::tables::TransactionId;
use outlive_store::verbs::{Region, ServerId};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    [commit(Weakened::sound), choice(Weakened::sound)]
        .map(|scenario| Proof::of_every(scenario, bounds(2), bounds(3)))
        .into()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    let bounds = || Bounds::default().preemptions(2).deaths(0);
    vec![
        (commit(fences), bounds(), "a commit of the epoch before"),
        (choice(fences), bounds(), "names a server that has left"),
    ]
}

const CONFIGURATION: Offset = Offset::new(0);
const BYTES: u64 = 16 << 10;
/// A word that the commit writes.
const VALUE: Offset = Offset::new(BYTES - 64);
const SIZES: Sizes = Sizes {
    log_areas: 1,
    coordinators: 1,
    log_slot_bytes: 64,
    protocol: Protocol::Pandora,
    ..sizes(1, 1)
};
const SERVER: Instance = Instance::new(9, 1);
const REGION: Region = Region { key: 1, bytes: 256 };

/// The memory server has no file.
struct NoFile;

impl Segments for NoFile {
    fn remove(&self, _: ServerId, _: u64) {}

    fn poison(&self, _: ServerId, _: u64, _: Region) {}

    fn recover_logs(&self, _: u16, _: &LogArea) -> Option<Recovered> {
        None
    }
}

fn open<M: Memory>(memory: M) -> Configuration<M> {
    Configuration::open(memory, CONFIGURATION, BYTES - 64).expect("a configuration")
}

/// What the threads know of each other.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// A commit is under way.
    commits: bool,
    /// A commit has ended.
    has_committed: bool,
    /// The next epoch is settled.
    is_settled: bool,
}

fn commit<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    let state = Ghost::<State>::new();
    let (of_commit, of_next) = (state.clone(), state);
    Scenario::new("store: a commit against the loss of a memory server")
        .memory(BYTES)
        .prepare(|m: Scheduled| {
            let configuration = Configuration::create(m, CONFIGURATION, SIZES, false);
            let create = |_, _| Ok::<_, ()>(REGION);
            let joined = configuration.join_memory(SERVER, &NoFile, create);
            assert!(joined.is_ok_and(|it| it.is_some()));
        })
        .thread("commit", move |m| {
            let configuration = open(weaken(m));
            let transaction = TransactionId::new(1, 0, 1);
            if configuration.enter_commit(0, transaction, 0) {
                of_commit.with(|state| {
                    assert!(
                        !state.is_settled,
                        "a commit of the epoch before the settled one begins"
                    );
                    state.commits = true;
                });
                m.store(VALUE, 1u64, Ordering::Relaxed);
                of_commit.with(|state| (state.commits, state.has_committed) = (false, true));
                configuration.leave_commit(0, transaction, true);
            }
        })
        .thread("survivor", |m| {
            let _ = open(m).recover(Instance::new(0, 1), SERVER, &NoFile);
        })
        .thread("next epoch", move |m| {
            let configuration = open(weaken(m));
            if configuration.epoch() == 1 && configuration.is_settled(1) {
                let has_committed = of_next.with(|state| {
                    assert!(!state.commits, "a commit of the epoch before is under way");
                    state.is_settled = true;
                    state.has_committed
                });
                let value: u64 = m.load(VALUE, Ordering::Relaxed);
                assert_eq!(value, u64::from(has_committed), "an effect of the commit");
            }
        })
}

/// A compute server claims a log area while the memory server that it chooses leaves.
fn choice<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    let chosen = Ghost::<bool>::new();
    let of_owner = chosen.clone();
    Scenario::new("store: a choice of log servers against one that leaves")
        .memory(BYTES)
        .prepare(|m: Scheduled| {
            let configuration = Configuration::create(m, CONFIGURATION, SIZES, false);
            let create = |_, _| Ok::<_, ()>(REGION);
            let joined = configuration.join_memory(SERVER, &NoFile, create);
            assert!(joined.is_ok_and(|it| it.is_some()));
        })
        .thread("owner", move |m| {
            // If no server is live, the claim is refused.
            let claimed = open(weaken(m)).claim_log_area(Instance::new(0, 1), 1);
            let log = claimed.ok().flatten().map(|(_, log)| log);
            let has_chosen = log.is_some_and(|log| log.servers.contains(&ServerId(0)));
            of_owner.with(|chosen| *chosen = has_chosen);
        })
        .thread("server", move |m| {
            let configuration = open(weaken(m));
            let entry = configuration.memory_server(ServerId(0));
            configuration.leave_memory(&entry.expect("a sound entry"), &NoFile);
        })
        .check(move |m, _| {
            let configuration = open(m);
            let is_lost = configuration.lost(configuration.epoch()).next().is_some();
            let is_chosen = chosen.with(|chosen| *chosen);
            assert!(
                is_lost || !is_chosen,
                "a log area names a server that has left"
            );
        })
}
