//! Litmus tests of x86-TSO: small programs at many timings, whose outcomes are exactly those that TSO allows.

mod support;

use std::collections::BTreeSet;

use outlive_machine::cluster::{Breakage, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Random;
use outlive_machine::program::{Image, LockId, Op, Script, Synchronisation, Word};

/// Different lines on different memory nodes.
const X: Word = Word(0);
const Y: Word = Word(1 << 10);
/// Somewhere else, to be slow at.
const Z: Word = Word(2 << 10);

/// A program: its threads, and the outcomes (what the loads got, thread by thread, then what X and Y hold) that TSO allows.
struct Litmus {
    name: &'static str,
    threads: Vec<Vec<Op>>,
    allowed: fn(&[u64]) -> bool,
    /// Outcomes that must be seen: those that make it weaker than sequential consistency, or show that it ran at all.
    seen: Vec<Vec<u64>>,
}

fn ld(word: Word) -> Op {
    Op::Load(word)
}

fn st(word: Word, value: u64) -> Op {
    Op::Store(word, value)
}

fn litmus() -> Vec<Litmus> {
    let fence = Op::Fence;
    vec![
        Litmus {
            name: "SB",
            threads: vec![vec![st(X, 1), ld(Y)], vec![st(Y, 1), ld(X)]],
            allowed: |_| true,
            seen: vec![
                vec![0, 0, 1, 1],
                vec![0, 1, 1, 1],
                vec![1, 0, 1, 1],
                vec![1, 1, 1, 1],
            ],
        },
        Litmus {
            name: "SB with fences",
            threads: vec![vec![st(X, 1), fence, ld(Y)], vec![st(Y, 1), fence, ld(X)]],
            allowed: |o| o[..2] != [0, 0],
            seen: vec![vec![0, 1, 1, 1], vec![1, 0, 1, 1], vec![1, 1, 1, 1]],
        },
        Litmus {
            name: "SB with locks",
            threads: vec![
                vec![st(X, 1), Op::Lock(LockId(0)), ld(Y)],
                vec![st(Y, 1), Op::Lock(LockId(1)), ld(X)],
            ],
            allowed: |o| o[..2] != [0, 0],
            seen: vec![vec![0, 1, 1, 1], vec![1, 0, 1, 1], vec![1, 1, 1, 1]],
        },
        Litmus {
            name: "SB with one fence",
            threads: vec![vec![st(X, 1), fence, ld(Y)], vec![st(Y, 1), ld(X)]],
            allowed: |_| true,
            seen: vec![vec![0, 0, 1, 1], vec![0, 1, 1, 1], vec![1, 0, 1, 1]],
        },
        Litmus {
            name: "SB with forwarding",
            threads: vec![vec![st(X, 1), ld(X), ld(Y)], vec![st(Y, 1), ld(Y), ld(X)]],
            allowed: |o| o[0] == 1 && o[2] == 1,
            seen: vec![vec![1, 0, 1, 0, 1, 1]],
        },
        Litmus {
            name: "MP",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![ld(Y), ld(X)]],
            allowed: |o| o[..2] != [1, 0],
            seen: vec![vec![0, 0, 1, 1], vec![0, 1, 1, 1], vec![1, 1, 1, 1]],
        },
        Litmus {
            name: "LB",
            threads: vec![vec![ld(X), st(Y, 1)], vec![ld(Y), st(X, 1)]],
            allowed: |o| o[..2] != [1, 1],
            seen: vec![vec![0, 0, 1, 1], vec![0, 1, 1, 1], vec![1, 0, 1, 1]],
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
            seen: vec![
                vec![1, 0, 0, 0, 1, 1],
                vec![0, 0, 1, 0, 1, 1],
                vec![1, 1, 1, 1, 1, 1],
            ],
        },
        Litmus {
            name: "2+2W",
            threads: vec![vec![st(X, 1), st(Y, 2)], vec![st(Y, 1), st(X, 2)]],
            allowed: |o| o != [1, 1],
            seen: vec![vec![2, 2], vec![1, 2], vec![2, 1]],
        },
        Litmus {
            name: "R",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![st(Y, 2), ld(X)]],
            allowed: |_| true,
            seen: vec![vec![0, 1, 2], vec![1, 1, 2], vec![0, 1, 1]],
        },
        Litmus {
            name: "R with a fence",
            threads: vec![vec![st(X, 1), st(Y, 1)], vec![st(Y, 2), fence, ld(X)]],
            allowed: |o| o != [0, 1, 2],
            seen: vec![vec![1, 1, 2], vec![0, 1, 1]],
        },
        Litmus {
            name: "S",
            threads: vec![vec![st(X, 2), st(Y, 1)], vec![ld(Y), st(X, 1)]],
            allowed: |o| o != [1, 2, 1],
            seen: vec![vec![1, 1, 1], vec![0, 2, 1], vec![0, 1, 1]],
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

/// Runs the program once: some lines are fetched before, each thread begins when it likes, and between two operations may be
/// a pause or a slow access to something else.
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
                // Written, with what it holds already.
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
    let workload = Workload {
        threads: threads.into_iter().map(Script::new).collect(),
        image: Image {
            words: 3 << 10,
            ..Image::default()
        },
        synchronisation: Synchronisation {
            locks: vec![Z.offset(64), Z.offset(128)],
            ..Synchronisation::default()
        },
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
    runs: u64,
    broken: Option<Breakage>,
) -> BTreeSet<Vec<u64>> {
    (0..runs)
        .map(|seed| run_once(litmus, protocol, seed, broken))
        .collect()
}

#[test]
fn outcomes_are_those_that_tso_allows() {
    for protocol in Protocol::ALL {
        for litmus in litmus() {
            let outcomes = outcomes(&litmus, *protocol, 400, None);
            for outcome in &outcomes {
                assert!(
                    (litmus.allowed)(outcome),
                    "{protocol:?}, {}: {outcome:?} is forbidden",
                    litmus.name
                );
            }
            for seen in &litmus.seen {
                assert!(
                    outcomes.contains(seen),
                    "{protocol:?}, {}: {seen:?} is not among {outcomes:?}",
                    litmus.name
                );
            }
        }
    }
}

/// Which programs notice a broken machine.
fn noticed_by(broken: Breakage, protocol: Protocol) -> Vec<&'static str> {
    let forbidden = |litmus: &Litmus| {
        let outcomes = outcomes(litmus, protocol, 400, Some(broken));
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
}

#[test]
fn locks_that_do_not_wait_for_stores_are_noticed() {
    let noticed = noticed_by(Breakage::LocksAreNoFences, Protocol::Adaptive);
    assert_eq!(noticed, ["SB with locks"]);
}

#[test]
fn loads_that_pass_each_other_are_noticed() {
    let noticed = noticed_by(Breakage::LoadsBoundOutOfOrder, Protocol::WriteBack);
    assert!(noticed.contains(&"MP"), "{noticed:?}");
}
