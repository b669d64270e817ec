//! More deaths than one: one after the other, at once, and during the recovery from another.

use outlive_machine::protocol::ReplicatedTables;
use outlive_machine::search::{
    Budget, ReplicatedRules, ReplicatedSearch, ReplicatedWalk, ReplicatedWalked, Setup, Shape, When,
};

fn recxl() -> ReplicatedRules {
    ReplicatedRules::strict(ReplicatedTables::recxl())
}

fn setup(nodes: usize, replicas: usize, stores: &'static [u32], others: &'static [u32]) -> Setup {
    Setup {
        shape: Shape {
            nodes,
            lines: 1,
            capacity: 1,
        },
        replicas,
        when: When::Retired,
        buffer: 2,
        budget: Budget { stores, others },
        deaths: 2,
        at_once: replicas - 1,
        dumps: 0,
    }
}

fn sound(setup: Setup) {
    let search = ReplicatedSearch {
        setup,
        most_states: 3_000_000,
    };
    let explored = search
        .run(&recxl())
        .unwrap_or_else(|broken| panic!("{broken}"));
    println!("{explored:?}");
    assert!(explored.complete, "{explored:?}");
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
    for seed in 0..400 {
        let setup = Setup {
            shape: Shape {
                nodes: 5,
                lines: 2,
                capacity: 2,
            },
            replicas: 4,
            when: [When::Writable, When::Head, When::Retired][seed as usize % 3],
            buffer: 4,
            budget: Budget {
                stores: &[40; 5],
                others: &[40; 5],
            },
            deaths: 3,
            at_once: 3,
            dumps: 10,
        };
        let walk = ReplicatedWalk {
            setup,
            seed,
            most_steps: 20_000,
        };
        let walked = walk
            .run(&recxl())
            .unwrap_or_else(|broken| panic!("seed {seed}\n{broken}"));
        all.stores += walked.stores;
        all.deliveries += walked.deliveries;
        all.log_deliveries += walked.log_deliveries;
        all.deaths += walked.deaths;
        all.interrupts += walked.interrupts;
        all.recoveries += walked.recoveries;
    }
    println!("{all:?}");
    assert!(
        all.deaths > 800 && all.interrupts > all.recoveries,
        "{all:?}"
    );
}
