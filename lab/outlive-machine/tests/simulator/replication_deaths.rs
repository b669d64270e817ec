//! Several deaths: one after the other, at once, and during the recovery from another.

use crate::support::replicated::{MOST_STATES, recxl, sound};
use outlive_machine::search::{
    Budget, ReplicatedSearch, ReplicatedWalk, ReplicatedWalked, Setup, Shape, Violation, When,
};

fn setup(nodes: usize, replicas: usize, stores: &'static [u32], others: &'static [u32]) -> Setup {
    Setup {
        deaths: 2,
        ..Setup::proactive(nodes, replicas, Budget { stores, others })
    }
}

/// The bound is tight: a line's owner is one of its replicas, and all of these die.
#[test]
fn as_many_deaths_at_once_as_there_are_replicas_lose_a_store() {
    let search = ReplicatedSearch {
        setup: Setup {
            at_once: 2,
            ..setup(3, 2, &[0, 1], &[])
        },
        most_states: MOST_STATES,
    };
    let lost = search.run(&recxl()).unwrap_err();
    assert!(
        matches!(
            lost.violation,
            Violation::NotRecovered { .. } | Violation::TooFewLogs { .. }
        ),
        "{lost}"
    );
}

#[test]
fn one_dies_after_the_recovery_from_another() {
    sound(setup(3, 2, &[1, 1], &[]));
}

#[test]
fn two_die_with_three_replicas_also_during_a_recovery() {
    sound(setup(3, 3, &[1, 1], &[]));
    sound(setup(4, 3, &[1], &[]));
}

#[test]
fn logs_in_memory_nodes_outlive_two() {
    sound(Setup {
        dumps: 1,
        ..setup(3, 3, &[1], &[])
    });
}

#[test]
fn five_nodes_of_which_three_die_on_random_walks() {
    let mut all = ReplicatedWalked::default();
    for seed in 0..400u64 {
        let setup = Setup {
            shape: Shape {
                nodes: 5,
                lines: 2,
                capacity: 2,
            },
            cores: 2,
            when: [When::Writable, When::Head, When::Retired][seed as usize % 3],
            buffer: 4,
            atomics: &[5; 10],
            holds: seed.is_multiple_of(2),
            deaths: 3,
            dumps: 10,
            ..setup(5, 4, &[15; 10], &[40; 5])
        };
        let walk = ReplicatedWalk {
            setup,
            seed,
            most_steps: 20_000,
        };
        let walked = walk
            .run(&recxl())
            .unwrap_or_else(|broken| panic!("seed {seed}\n{broken}"));
        all.add(&walked);
    }
    println!("{all:?}");
    assert!(
        all.deaths > 800 && all.interrupts > all.recoveries,
        "{all:?}"
    );
}
