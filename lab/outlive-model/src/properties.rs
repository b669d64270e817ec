//! The assertions: Cor1 to Cor4 of the thesis (section 4.3.2.1), strict serializability, and the
//! state in which a run ends.
//!
//! Properties of the end are judged in the states in which no step but a death is possible: the
//! checker's own *eventually* is unsound where paths join.

use crate::flight::{Actor, Verb};
use crate::history::{Answer, Fault, TRANSACTIONS};
use crate::model::{Commit, is_reexecuted};
use crate::scenarios::Scenario;
use crate::state::{COMPUTE_SERVERS, Decision, OBJECTS, Recovering, State, Step, Tx};

/// A named assertion.
#[derive(Clone, Copy, Debug)]
pub struct Always {
    /// The name.
    pub name: &'static str,
    /// Whether it holds in a state.
    pub holds: fn(&Commit, &State) -> bool,
}

/// A named event that some run must contain, or the exploration proves less than it seems to.
#[derive(Clone, Copy, Debug)]
pub struct Sometimes {
    /// The name.
    pub name: &'static str,
    /// Whether it has happened in a state.
    pub happens: fn(&Commit, &State) -> bool,
    /// The deaths without which it cannot happen.
    needs: [u8; 3],
    /// Other conditions for a scenario.
    fits: fn(&Scenario) -> bool,
}

impl Sometimes {
    /// Whether the event is possible in a scenario.
    pub fn applies(&self, scenario: &Scenario) -> bool {
        let deaths = scenario.deaths.into_iter().zip(self.needs);
        { deaths }.all(|(deaths, needed)| deaths >= needed) && (self.fits)(scenario)
    }
}

/// Cor1.
pub const COR1: &str = "Cor1: a server is fenced before its recovery";
/// Cor2.
pub const COR2: &str = "Cor2: all writes of a transaction remain or none";
/// Cor3.
pub const COR3: &str = "Cor3: what a client was told remains true";
/// Cor4.
pub const COR4: &str = "Cor4: only latches of transactions that are not logged are stolen";
/// Strict serializability.
pub const SERIALIZABLE: &str = "committed transactions are strictly serializable";
/// Monotonic versions.
pub const VERSIONS: &str = "a version never takes an earlier value";
/// Whole values.
pub const WHOLE: &str = "no transaction relies on a part of a value";
/// Owners of latches.
pub const OWNERS: &str = "a latch names a running transaction or a dead server's";
/// Replicas.
pub const REPLICAS: &str = "at the end: replicas are equal";
/// Latches.
pub const LATCHES: &str = "at the end: each latch is free or may be stolen";
/// Logs.
pub const LOGS: &str = "at the end: no dead server has a log";
/// Outcomes.
pub const OUTCOMES: &str = "at the end: recorded outcomes are true";
/// Reads.
pub const READS: &str = "at the end: what was read was committed";
/// Progress.
pub const ENDS: &str = "at the end: each live server has ended its program";

/// All assertions.
pub const ALWAYS: [Always; 14] = [
    Always {
        name: COR1,
        holds: |_, state| !state.history.has(Fault::AccessAfterRecovery),
    },
    Always {
        name: COR2,
        holds: |model, state| {
            !model.is_quiet(state)
                || unanswered(model, state).all(|tx| {
                    let parts = effects(model, state, tx);
                    parts.clone().all(|it| it) || parts.clone().all(|it| !it)
                })
        },
    },
    Always {
        name: COR3,
        holds: answers_remain_true,
    },
    Always {
        name: COR4,
        holds: |_, state| !state.history.has(Fault::StolenLogged),
    },
    Always {
        name: SERIALIZABLE,
        holds: |model, state| {
            let mut committed = state.history.committed();
            if model.is_quiet(state) {
                committed |= unanswered(model, state)
                    .filter(|tx| is_recorded(model, state, *tx))
                    .fold(0, |bits, tx| bits | 1 << tx);
            }
            let writes = |tx, object| model.writes(tx, object);
            committed.count_ones() < 2 || state.history.is_serializable(committed, writes)
        },
    },
    Always {
        name: VERSIONS,
        holds: |_, state| !state.history.has(Fault::EarlierVersion),
    },
    Always {
        name: WHOLE,
        holds: |_, state| !state.history.has(Fault::TornValue),
    },
    Always {
        name: OWNERS,
        holds: latches_have_owners,
    },
    Always {
        name: REPLICAS,
        holds: |model, state| {
            !model.is_quiet(state)
                || (0..OBJECTS).all(|object| {
                    let live = live_replicas(model, state, object);
                    let mut contents = live.map(|it| state.memory[it].replicas[object].contents);
                    let first = contents.next();
                    let is_whole = first.is_none_or(|it| it.value[0] == it.value[1]);
                    is_whole && contents.all(|it| Some(it) == first)
                })
        },
    },
    Always {
        name: LATCHES,
        holds: |model, state| {
            !model.is_quiet(state)
                || state.memory.iter().all(|memory| {
                    let mut latches = memory.replicas.iter().map(|it| it.latch);
                    latches.all(|it| it == 0 || state.computes[model.owner(it)].has_failed)
                })
        },
    },
    Always {
        name: LOGS,
        holds: |model, state| {
            !model.is_quiet(state)
                || (0..COMPUTE_SERVERS).all(|of| {
                    let mut slots = state.memory.iter().map(|it| it.logs[of]);
                    !state.computes[of].is_dead || slots.all(|it| it.is_none())
                })
        },
    },
    Always {
        name: OUTCOMES,
        holds: |model, state| {
            !model.is_quiet(state)
                || unanswered(model, state).all(|tx| {
                    let is_recorded = is_recorded(model, state, tx);
                    effects(model, state, tx).all(|it| it == is_recorded)
                })
        },
    },
    Always {
        name: READS,
        holds: |model, state| !model.is_quiet(state) || reads_are_of_committed(model, state),
    },
    Always {
        name: ENDS,
        holds: |model, state| {
            !model.is_quiet(state)
                || (0..COMPUTE_SERVERS).all(|of| {
                    let compute = &state.computes[of];
                    let programs = model.scenario.programs[of].len();
                    compute.is_dead
                        || (compute.step == Step::Idle && usize::from(compute.begun) == programs)
                })
        },
    },
];

/// All events.
pub const SOMETIMES: [Sometimes; 10] = [
    Sometimes {
        name: "a transaction is rolled forward",
        happens: |_, state| is_decided(state, Decision::Forward),
        needs: [1, 0, 0],
        fits: |_| true,
    },
    Sometimes {
        name: "a transaction is rolled back",
        happens: |_, state| is_decided(state, Decision::Back),
        needs: [1, 0, 0],
        fits: |_| true,
    },
    Sometimes {
        name: "a stray latch is stolen",
        // The CAS of a thief is in flight, and will succeed.
        happens: |_, state| {
            let mut latches = state
                .memory
                .iter()
                .flat_map(|it| it.replicas)
                .map(|it| it.latch);
            latches.any(|latch| {
                let mut steps = state.computes.iter().map(|it| it.step);
                latch != 0 && steps.any(|it| matches!(it, Step::Latching(_, from) if from == latch))
            })
        },
        needs: [1, 0, 0],
        fits: Scenario::can_steal,
    },
    Sometimes {
        name: "a recovery is executed again",
        happens: |model, state| {
            { state.recoveries.iter() }.any(|it| is_reexecuted(model, state, it))
        },
        needs: [1, 1, 0],
        fits: |_| true,
    },
    Sometimes {
        name: "a transaction commits on a new primary",
        happens: |_, state| {
            let mut computes = state.computes.iter();
            computes.any(|it| it.step == Step::Written && it.epoch == 1)
        },
        needs: [0, 0, 1],
        fits: |_| true,
    },
    Sometimes {
        name: "an attempt removes its log, because a log server died",
        happens: |_, state| { state.computes.iter() }.any(|it| it.step == Step::RemovingLog),
        needs: [0, 0, 1],
        fits: |_| true,
    },
    Sometimes {
        name: "an attempt gives up a latch that it acquired without an answer",
        happens: |model, state| {
            (0..COMPUTE_SERVERS).any(|of| {
                let tx = model.running(state, of);
                let is_held = |it: u8| {
                    let mut replicas = state.memory.iter().map(|server| server.replicas);
                    replicas.any(|all| all[usize::from(it)].latch == tx)
                };
                state.computes[of].tentative.is_some_and(is_held)
            })
        },
        needs: [0; 3],
        fits: |scenario| scenario.breaks > 0,
    },
    Sometimes {
        name: "a release that took effect is repeated while another transaction holds the latch",
        happens: |_, state| {
            state.flight.connections().any(|(actor, server)| {
                let mut verbs = state.flight.on(actor, server).filter(|it| !it.is_awaited);
                matches!(actor, Actor::Compute(_))
                    && verbs.any(|it| match it.verb {
                        Verb::Swap {
                            object,
                            from,
                            to: 0,
                        } => {
                            let memory = &state.memory[usize::from(server)];
                            let latch = memory.replicas[usize::from(object)].latch;
                            latch != 0 && latch != from
                        }
                        _ => false,
                    })
            })
        },
        needs: [0; 3],
        fits: |scenario| scenario.breaks > 0 && scenario.can_steal(),
    },
    Sometimes {
        name: "a verb of a recovery is lost while others are under way",
        happens: |_, state| state.recoveries.iter().any(|it| it.broken != 0),
        needs: [1, 0, 0],
        fits: |scenario| scenario.breaks > 0,
    },
    Sometimes {
        name: "an aborted attempt ends",
        happens: |_, state| state.history.answers.contains(&Answer::Aborted),
        needs: [0, 0, 0],
        fits: |_| true,
    },
];

/// The transactions that were begun, and whose clients have no answer.
fn unanswered(model: &Commit, state: &State) -> impl Iterator<Item = usize> {
    let answers = state.history.answers;
    let begun: [Tx; COMPUTE_SERVERS] = core::array::from_fn(|it| model.running(state, it));
    (1..=TRANSACTIONS).filter(move |tx| {
        let owner = model.owner(*tx as Tx);
        answers[*tx] == Answer::None && *tx <= usize::from(begun[owner])
    })
}

/// Whether a transaction is recorded as committed.
fn is_recorded(model: &Commit, state: &State, tx: usize) -> bool {
    usize::from(state.computes[model.owner(tx as Tx)].outcome) == tx
}

fn live_replicas(model: &Commit, state: &State, object: usize) -> impl Iterator<Item = usize> {
    let all = model.replicas(state, object, 0).map(usize::from);
    let dead = state.memory.map(|it| it.is_dead);
    all.filter(move |it| !dead[*it])
}

/// For each object that a transaction writes and for each live replica: whether the write remains.
fn effects(model: &Commit, state: &State, tx: usize) -> impl Iterator<Item = bool> + Clone {
    let mut all = Vec::new();
    for object in (0..OBJECTS).filter(|it| model.writes(tx, *it)) {
        for server in live_replicas(model, state, object) {
            let value = state.memory[server].replicas[object].contents.value;
            all.extend(value.map(|it| state.history.includes(it, object, tx as Tx)));
        }
    }
    all.into_iter()
}

/// Whether the writes of acknowledged transactions remain, and those of aborted ones do not.
fn answers_remain_true(model: &Commit, state: &State) -> bool {
    (1..=TRANSACTIONS).all(|tx| match state.history.answers[tx] {
        Answer::None => true,
        Answer::Committed => effects(model, state, tx).all(|it| it),
        Answer::Aborted => effects(model, state, tx).all(|it| !it),
    })
}

/// Whether each latch on a live memory server has an owner: a transaction that runs, or has ended
/// and releases it, or one of a dead compute server.
fn latches_have_owners(model: &Commit, state: &State) -> bool {
    (0..state.memory.len()).all(|server| {
        (0..OBJECTS).all(|object| {
            let latch = state.memory[server].replicas[object].latch;
            let of = model.owner(latch);
            let compute = &state.computes[of];
            let runs = compute.step != Step::Idle && model.running(state, of) == latch;
            let is_released = || {
                state
                    .flight
                    .releases(of as u8, server as u8, object as u8, latch)
            };
            latch == 0 || compute.is_dead || runs || is_released()
        })
    })
}

/// Whether all values that committed transactions read are of committed transactions.
fn reads_are_of_committed(model: &Commit, state: &State) -> bool {
    let history = &state.history;
    let is_committed = |tx: usize| {
        tx == 0 || history.answers[tx] == Answer::Committed || is_recorded(model, state, tx)
    };
    (1..=TRANSACTIONS).filter(|it| is_committed(*it)).all(|tx| {
        let reads = history.reads[tx].iter().flatten();
        { reads }.all(|from| is_committed(usize::from(*from)))
    })
}

fn is_decided(state: &State, decision: Decision) -> bool {
    state.recoveries.iter().any(|it| {
        let decided = it.entry.and_then(|entry| entry.decision);
        it.step == Recovering::Marking && decided == Some(decision)
    })
}
