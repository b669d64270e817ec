//! Searches small machines that replicate their stores for a loss of a store when nodes die, and
//! walks at random through larger ones.
//!
//! `cargo run --release -p outlive-machine --example recovery [--full]`

use std::process::ExitCode;
use std::time::Instant;

use outlive_machine::protocol::ReplicatedTables;
use outlive_machine::search::{
    Budget, ReplicatedRules, ReplicatedSearch, ReplicatedWalk, ReplicatedWalked, Setup, Shape, When,
};

/// One line and one death; the stores and other accesses of each core and node.
fn one_dies(
    nodes: usize,
    replicas: usize,
    stores: &'static [u32],
    others: &'static [u32],
) -> Setup {
    Setup {
        deaths: 1,
        ..Setup::proactive(nodes, replicas, Budget { stores, others })
    }
}

fn two_die(nodes: usize, replicas: usize, stores: &'static [u32], others: &'static [u32]) -> Setup {
    Setup {
        deaths: 2,
        ..one_dies(nodes, replicas, stores, others)
    }
}

fn two_lines(setup: Setup) -> Setup {
    let shape = Shape {
        lines: 2,
        capacity: 2,
        ..setup.shape
    };
    Setup { shape, ..setup }
}

fn quick() -> Vec<Setup> {
    let both = || one_dies(3, 2, &[1, 1], &[]);
    vec![
        Setup {
            when: When::Writable,
            ..both()
        },
        Setup {
            when: When::Head,
            ..both()
        },
        both(),
        Setup {
            holds: true,
            ..both()
        },
        Setup { cores: 2, ..both() },
        Setup {
            atomics: &[1, 1],
            ..one_dies(3, 2, &[], &[])
        },
        Setup {
            dumps: 1,
            ..one_dies(3, 2, &[1], &[0, 1])
        },
        one_dies(3, 2, &[2, 1], &[]),
        one_dies(3, 2, &[1], &[1, 1, 1]),
        two_die(3, 2, &[1, 1], &[]),
        two_die(3, 3, &[1, 1], &[]),
        Setup {
            dumps: 1,
            ..two_die(4, 3, &[1], &[])
        },
    ]
}

/// Setups that take longer.
fn more() -> Vec<Setup> {
    vec![
        one_dies(3, 2, &[1, 1, 1], &[]),
        one_dies(3, 2, &[2, 1], &[1, 1]),
        two_lines(one_dies(3, 2, &[2, 1], &[])),
        Setup {
            dumps: 1,
            ..one_dies(4, 2, &[2, 1], &[])
        },
        two_die(4, 3, &[1, 1], &[]),
        Setup {
            cores: 2,
            ..one_dies(3, 2, &[1, 1, 1], &[])
        },
        Setup {
            atomics: &[1, 1],
            ..one_dies(3, 2, &[0, 0, 1], &[])
        },
        Setup {
            atomics: &[1, 1],
            ..two_die(3, 3, &[], &[])
        },
        Setup {
            holds: true,
            when: When::Writable,
            ..one_dies(3, 2, &[2, 1], &[])
        },
    ]
}

fn described(setup: &Setup) -> String {
    let Setup {
        shape,
        cores,
        replicas,
        when,
        budget,
        atomics,
        holds,
        deaths,
        dumps,
        ..
    } = setup;
    let held = if *holds { ", lines held" } else { "" };
    format!(
        "{} nodes of {cores}, {} lines, N_r {replicas}, {when:?}{held}, stores {:?}, atomics {atomics:?}, \
         others {:?}, {deaths} deaths, {dumps} dumps",
        shape.nodes, shape.lines, budget.stores, budget.others
    )
}

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--full");
    let rules = ReplicatedRules::strict(ReplicatedTables::recxl());
    let setups = if full {
        [quick(), more()].concat()
    } else {
        quick()
    };
    let mut sound = true;
    for setup in setups {
        let search = ReplicatedSearch {
            setup,
            most_states: 20_000_000,
        };
        print!("search: {}: ", described(&setup));
        let begun = Instant::now();
        match search.run(&rules) {
            Ok(explored) => {
                println!("{explored}, {:.1} s", begun.elapsed().as_secs_f64());
                sound &= explored.complete;
            }
            Err(counterexample) => {
                println!("broken\n{counterexample}");
                sound = false;
            }
        }
    }
    sound &= walk(&rules, if full { 50_000 } else { 5_000 });
    match sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Five nodes of two cores, of which three die, with four replicas.
fn walk(rules: &ReplicatedRules, walks: u64) -> bool {
    let begun = Instant::now();
    let mut all = ReplicatedWalked::default();
    for seed in 0..walks {
        let walk = ReplicatedWalk {
            setup: Setup {
                cores: 2,
                when: [When::Writable, When::Head, When::Retired][seed as usize % 3],
                buffer: 4,
                atomics: &[5; 10],
                holds: seed.is_multiple_of(2),
                deaths: 3,
                dumps: 10,
                ..two_lines(one_dies(5, 4, &[15; 10], &[40; 5]))
            },
            seed,
            most_steps: 20_000,
        };
        match walk.run(rules) {
            Ok(walked) => all.add(&walked),
            Err(counterexample) => {
                println!("walk {seed}: broken\n{counterexample}");
                return false;
            }
        }
    }
    println!(
        "{walks} walks: 5 nodes of 2, 2 lines, N_r 4: {} stores, {} deaths, {} interrupts, {} recoveries, {:.1} s",
        all.stores,
        all.deaths,
        all.interrupts,
        all.recoveries,
        begun.elapsed().as_secs_f64()
    );
    true
}
