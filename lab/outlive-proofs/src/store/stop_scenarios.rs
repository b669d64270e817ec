//! A stop against a compute server that joins, under every interleaving within bounds; and a broken
//! variant.

use super::sizes;
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::servers::Configuration;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    vec![Proof::of_every(join(Weakened::sound), bounds(2), bounds(3))]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    let bounds = Bounds::default().preemptions(2).deaths(0);
    vec![(join(fences), bounds, "during a stop")]
}

const CONFIGURATION: Offset = Offset::new(0);
const BYTES: u64 = 16 << 10;
const STOPPER: Instance = Instance::new(0, 1);
const JOINER: Instance = Instance::new(1, 1);

fn open<M: Memory>(memory: M) -> Configuration<M> {
    Configuration::open(memory, CONFIGURATION, BYTES).expect("a configuration")
}

/// The states of the stop and of the compute server that joins.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The stop has found no compute server, and has not ended.
    is_stopped: bool,
    /// A compute server has joined and may execute transactions.
    has_joined: bool,
}

fn join<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    let state = Ghost::<State>::new();
    let (of_stop, of_joiner) = (state.clone(), state);
    let assert_apart = |state: &State| {
        let is_wrong = state.is_stopped && state.has_joined;
        assert!(!is_wrong, "a compute server is a member during a stop");
    };
    Scenario::new("store: a stop against a compute server that joins")
        .memory(BYTES)
        .prepare(|m: Scheduled| {
            Configuration::create(m, CONFIGURATION, sizes(1, 1), false);
        })
        .thread("stop", move |m| {
            let configuration = open(weaken(m));
            configuration.stop(STOPPER, || {
                if configuration.compute_servers().next().is_some() {
                    return;
                }
                of_stop.with(|state| {
                    state.is_stopped = true;
                    assert_apart(state);
                });
                // The scheduler can run the joiner here.
                let _ = configuration.compute_servers().next();
                of_stop.with(|state| state.is_stopped = false);
            });
        })
        .thread("joiner", move |m| {
            let configuration = open(weaken(m));
            let id = configuration.join_compute(JOINER).expect("a process id");
            if configuration.stopper().is_none() {
                of_joiner.with(|state| {
                    state.has_joined = true;
                    assert_apart(state);
                });
                let _ = configuration.stopper();
                of_joiner.with(|state| state.has_joined = false);
            }
            configuration.leave_compute(id, JOINER);
        })
}
