//! Litmus tests of x86-TSO: small programs at many timings, with exactly the outcomes that TSO
//! allows.

use crate::support;
use std::collections::BTreeSet;
use std::ops::Range;

use outlive_machine::cluster::{Breakage, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Random;
use outlive_machine::program::{
    self, EventCountId, Image, LockId, Op, Order, Script, Synchronisation, Word,
};

/// Different lines on different memory nodes.
const X: Word = Word(0);
const Y: Word = Word(1 << 10);
/// Another line, for slow accesses.
const Z: Word = Word(2 << 10);

/// The number of runs of a program in a row.
const RUNS: u64 = 400;
/// The number of runs of a round, after which a program's outcomes are complete or not.
const ROUND: u64 = 100;
const MOST_ROUNDS: u64 = 80;

/// A program: its threads, and the outcomes (the values of the loads, thread by thread, then the
/// final values of X and Y) that TSO allows, according to textbooks.
struct Litmus {
    name: &'static str,
    threads: Vec<Vec<Op>>,
    allowed: fn(&[u64]) -> bool,
}

impl Litmus {
    /// Returns all outcomes that the machine without time can reach through store buffers.
    fn possible(&self) -> BTreeSet<Vec<u64>> {
        let threads = self.threads.iter().cloned().map(Script::new).collect();
        let (image, synchronisation) = memory();
        let all = program::outcomes(&image, &synchronisation, threads, Order::TotalStore);
        let flat = |outcome: program::Outcome| {
            let loads = outcome.loads.concat();
            let left = [X, Y].map(|word| outcome.memory[word.0 as usize]);
            [loads, left.to_vec()].concat()
        };
        all.expect("it ends").into_iter().map(flat).collect()
    }
}

/// With locks, each on a line of its own, and an event count.
fn memory() -> (Image, Synchronisation) {
    let image = Image {
        words: 3 << 10,
        ..Image::default()
    };
    let synchronisation = Synchronisation {
        locks: vec![Z.offset(64), Z.offset(128)],
        event_counts: 1,
        ..Synchronisation::default()
    };
    (image, synchronisation)
}

fn ld(word: Word) -> Op {
    Op::Load(word)
}

fn st(word: Word, value: u64) -> Op {
    Op::Store(word, value)
}

fn litmus() -> Vec<Litmus> {
    let fence = Op::Fence;
    let [lock, other] = [0, 1].map(|lock| Op::Lock(LockId(lock)));
    let [unlock, unlock_other] = [0, 1].map(|lock| Op::Unlock(LockId(lock)));
    let advance = Op::Advance(EventCountId(0));
    let advanced = Op::Await(EventCountId(0), 1);
    vec![
        Litmus {
            name: "SB",
            threads: vec![vec![st(X, 1), ld(Y)], vec![st(Y, 1), ld(X)]],
            allowed: |_| true,
        },
        Litmus {
            name: "SB with fences",
            threads: vec![vec![st(X, 1), fence, ld(Y)], vec![st(Y, 1), fence, ld(X)]],
            allowed: |o| o[..2] != [0, 0],
        },
        Litmus {
            name: "SB with locks",
            threads: vec![vec![st(X, 1), lock, ld(Y)], vec![st(Y, 1), other, ld(X)]],
            allowed: |o| o[..2] != [0, 0],
        },
        Litmus {
            name: "SB with one fence",
            threads: vec![vec![st(X, 1), fence, ld(Y)], vec![st(Y, 1), ld(X)]],
            allowed: |_| true,
        },
        Litmus {
            name: "SB with forwarding",
            threads: vec![vec![st(X, 1), ld(X), ld(Y)], vec![st(Y, 1), ld(Y), ld(X)]],
            allowed: |o| o[0] == 1 && o[2] == 1,
        },
        Litmus {
            name: "MP",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![ld(Y), ld(X)]],
            allowed: |o| o[..2] != [1, 0],
        },
        Litmus {
            name: "LB",
            threads: vec![vec![ld(X), st(Y, 1)], vec![ld(Y), st(X, 1)]],
            allowed: |o| o[..2] != [1, 1],
        },
        Litmus {
            name: "IRIW",
            threads: vec![
                vec![st(X, 1)],
                vec![st(Y, 1)],
                vec![ld(X), ld(Y)],
                vec![ld(Y), ld(X)],
            ],
            allowed: |o| o[..4] != [1, 0, 1, 0],
        },
        Litmus {
            name: "2+2W",
            threads: vec![vec![st(X, 1), st(Y, 2)], vec![st(Y, 1), st(X, 2)]],
            allowed: |o| o != [1, 1],
        },
        Litmus {
            name: "R",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![st(Y, 2), ld(X)]],
            allowed: |_| true,
        },
        Litmus {
            name: "R with a fence",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![st(Y, 2), fence, ld(X)]],
            allowed: |o| o != [0, 1, 2],
        },
        Litmus {
            name: "S",
            threads: vec![vec![st(X, 2), st(Y, 1)], vec![ld(Y), st(X, 1)]],
            allowed: |o| o != [1, 2, 1],
        },
        // The release of a lock is a store like others: later loads pass it.
        Litmus {
            name: "SB with unlocks",
            threads: vec![
                vec![lock, st(X, 1), unlock, ld(Y)],
                vec![other, st(Y, 1), unlock_other, ld(X)],
            ],
            allowed: |_| true,
        },
        Litmus {
            name: "SB with one lock",
            threads: vec![
                vec![lock, st(X, 1), unlock, ld(Y)],
                vec![lock, st(Y, 1), unlock, ld(X)],
            ],
            allowed: |o| o[..2] != [0, 0],
        },
        Litmus {
            name: "SB with an advance",
            threads: vec![vec![st(X, 1), advance, ld(Y)], vec![st(Y, 1), ld(X)]],
            allowed: |_| true,
        },
        Litmus {
            name: "MP in a lock",
            threads: vec![
                vec![lock, st(X, 1), st(Y, 1), unlock],
                vec![lock, ld(Y), ld(X), unlock],
            ],
            allowed: |o| o[0] == o[1],
        },
        Litmus {
            name: "MP behind an unlock",
            threads: vec![vec![lock, st(X, 1), unlock, st(Y, 1)], vec![ld(Y), ld(X)]],
            allowed: |o| o[..2] != [1, 0],
        },
        Litmus {
            name: "MP by an advance",
            threads: vec![
                vec![st(X, 1), advance, st(Y, 1)],
                vec![advanced, ld(X), ld(Y)],
            ],
            allowed: |o| o[0] == 1,
        },
        Litmus {
            name: "2+2W in a lock",
            threads: vec![
                vec![lock, st(X, 1), st(Y, 2), unlock],
                vec![lock, st(Y, 1), st(X, 2), unlock],
            ],
            allowed: |o| o == [1, 2] || o == [2, 1],
        },
    ]
}

fn description(protocol: Protocol, seed: u64) -> Description {
    let protocol = protocol.name();
    let mut random = Random::new(seed);
    let reorder = [0, 2, 200][random.below(3) as usize];
    let quantum = [1, 20, 100][random.below(3) as usize];
    format!(
        r#"
        [system]
        compute_nodes = 4
        memory_nodes = 2
        cores_per_node = 2
        [l1]
        size = "1 KiB"
        ways = 2
        [l2]
        size = "2 KiB"
        ways = 2
        [l3]
        size = "8 KiB"
        ways = 4
        [logging_unit]
        dump_period = "4 us"
        [ours.coherence]
        protocol = "{protocol}"
        [ours.core]
        quantum = "{quantum} ns"
        [ours.fabric]
        reorder_bound = "{reorder} ns"
        "#
    )
    .parse()
    .expect("a machine that can be")
}

/// Runs the program once: some lines are fetched before, each thread begins at a random time, and
/// between two operations there may be a pause or a slow access to another line.
fn run_once(litmus: &Litmus, protocol: Protocol, seed: u64, broken: Option<Breakage>) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut extra = Vec::new();
    let apart = random.below(2) == 0;
    let spread = [1_500, 15_000][random.below(2) as usize];
    let mut threads = Vec::new();
    for ops in &litmus.threads {
        let mut script = Vec::new();
        let mut others = Vec::new();
        for word in [X, Y] {
            match random.below(3) {
                0 => {}
                1 => {
                    script.push(ld(word));
                    others.push(true);
                }
                // A store that writes the value that the word already has.
                _ => script.push(st(word.offset(1), 9)),
            }
        }
        script.push(Op::Fence);
        script.push(Op::Compute(12_000 + random.below(spread) as u32));
        for op in ops {
            match random.below(4) {
                0 => script.push(Op::Compute(random.below(800) as u32)),
                1 => script.push(st(Z.offset(8 * random.below(4)), 1)),
                _ => {}
            }
            if matches!(op, Op::Load(_)) {
                others.push(false);
            }
            script.push(*op);
        }
        extra.push(others);
        threads.push(script);
        // Threads of one node share its L3.
        if apart {
            threads.push(Vec::new());
            extra.push(Vec::new());
        }
    }
    let (image, synchronisation) = memory();
    let workload = Workload {
        threads: threads.into_iter().map(Script::new).collect(),
        image,
        synchronisation,
    };
    let mut simulation = support::judged(&description(protocol, seed), workload, seed);
    if let Some(how) = broken {
        simulation.machine_mut().break_it(how);
    }
    support::finish(&mut simulation);
    let machine = simulation.machine();
    let mut outcome = Vec::new();
    for (thread, others) in extra.iter().enumerate() {
        let results = machine.thread(thread).results().iter().zip(others);
        outcome.extend(
            results
                .filter(|(_, other)| !**other)
                .map(|(value, _)| *value),
        );
    }
    outcome.extend([machine.word(X), machine.word(Y)]);
    outcome
}

fn outcomes(
    litmus: &Litmus,
    protocol: Protocol,
    seeds: Range<u64>,
    broken: Option<Breakage>,
) -> BTreeSet<Vec<u64>> {
    seeds
        .map(|seed| run_once(litmus, protocol, seed, broken))
        .collect()
}

/// Each configuration has no other outcomes, and together they have all of them.
#[test]
fn outcomes_are_those_that_tso_allows() {
    for litmus in litmus() {
        let possible = litmus.possible();
        assert!(possible.iter().all(|outcome| (litmus.allowed)(outcome)));
        let mut seen = BTreeSet::new();
        // Programs with rare outcomes run for longer.
        let rounds =
            (0..MOST_ROUNDS).flat_map(|round| Protocol::ALL.iter().map(move |p| (round, p)));
        for (round, protocol) in rounds {
            if round > 0 && seen == possible {
                break;
            }
            let outcomes = outcomes(&litmus, *protocol, round * ROUND..(round + 1) * ROUND, None);
            for outcome in &outcomes {
                assert!(
                    possible.contains(outcome),
                    "{protocol:?}, {}: {outcome:?} is forbidden",
                    litmus.name
                );
            }
            assert!(outcomes.len() > 1, "{protocol:?}, {}", litmus.name);
            seen.extend(outcomes);
        }
        let missing: Vec<_> = possible.difference(&seen).collect();
        assert!(
            missing.is_empty(),
            "{}: {missing:?} never happened",
            litmus.name
        );
    }
}

/// Returns the names of the programs that notice a broken machine.
fn noticed_by(broken: Breakage, protocol: Protocol) -> Vec<&'static str> {
    let forbidden = |litmus: &Litmus| {
        let outcomes = outcomes(litmus, protocol, 0..RUNS, Some(broken));
        outcomes.iter().any(|outcome| !(litmus.allowed)(outcome))
    };
    litmus()
        .iter()
        .filter(|litmus| forbidden(litmus))
        .map(|litmus| litmus.name)
        .collect()
}

#[test]
fn stores_that_pass_each_other_are_noticed() {
    let noticed = noticed_by(Breakage::StoresDrainedOutOfOrder, Protocol::WriteBack);
    assert!(
        noticed.contains(&"MP") && noticed.contains(&"2+2W"),
        "{noticed:?}"
    );
    let unlocks = ["SB with one lock", "MP in a lock", "MP behind an unlock"];
    assert!(
        unlocks.iter().all(|name| noticed.contains(name)),
        "{noticed:?}"
    );
    assert!(noticed.contains(&"MP by an advance"), "{noticed:?}");
}

#[test]
fn locks_that_do_not_wait_for_stores_are_noticed() {
    let noticed = noticed_by(Breakage::LocksAreNoFences, Protocol::Adaptive);
    assert_eq!(
        noticed,
        [
            "SB with locks",
            "SB with one lock",
            "MP in a lock",
            "2+2W in a lock"
        ]
    );
}

#[test]
fn loads_that_pass_each_other_are_noticed() {
    let noticed = noticed_by(Breakage::LoadsBoundOutOfOrder, Protocol::WriteBack);
    assert!(noticed.contains(&"MP"), "{noticed:?}");
}
