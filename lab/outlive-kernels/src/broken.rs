//! Tests that the checks detect errors: each program runs once more without something that it
//! needs.

use super::raytrace::Locks;
use super::{Bodytrack, Canneal, Fluidanimate, Raytrace};
use outlive_machine::program::{Order, Recording, Reference, ReferenceError, Scale, Workload};

/// Runs the workload and returns the result of its check.
fn result(workload: &Workload, order: Order, seed: u64) -> Result<(), String> {
    let mut machine = Reference::new(
        workload.image(),
        workload.synchronisation(),
        workload.threads(Recording::Off),
        order,
        seed,
    )
    .with_limit(50_000_000);
    match machine.run() {
        Ok(_) => workload
            .check(&|word| machine.word(word))
            .map_err(|wrong| wrong.what),
        Err(error @ ReferenceError::Limit { .. }) => panic!("seed {seed}: {error}"),
        Err(error) => Err(error.to_string()),
    }
}

/// Seeds, each with one of the two orders.
fn seeds() -> impl Iterator<Item = (u64, Order)> {
    (0..12).zip([Order::Sequential, Order::TotalStore].into_iter().cycle())
}

/// Demands that the complete program is right for all seeds and thread counts.
fn is_right(build: impl Fn(usize) -> Workload) {
    for threads in [1, 2, 5, 16] {
        let workload = build(threads);
        for (seed, order) in seeds() {
            if let Err(wrong) = result(&workload, order, seed) {
                panic!("{threads} threads, {order:?}, seed {seed}: {wrong}");
            }
        }
    }
}

/// Demands that some seed shows that something is left out.
fn is_noticed(careless: &Workload) {
    let mut wrong = seeds().filter_map(|(seed, order)| result(careless, order, seed).err());
    assert!(wrong.next().is_some(), "no seed shows the omitted step");
}

#[test]
fn raytrace_needs_its_locks() {
    let all = Raytrace::at(Scale::Test);
    is_right(|threads| all.build(threads, Locks::ALL));
    is_noticed(&all.build(
        4,
        Locks {
            rays: false,
            ..Locks::ALL
        },
    ));
    // Most threads have no tile of their own and go to the others' pools at once.
    let few = Raytrace {
        side: 4,
        tile: 2,
        levels: 1,
    };
    is_right(|threads| few.build(threads, Locks::ALL));
    is_noticed(&few.build(
        16,
        Locks {
            tiles: false,
            ..Locks::ALL
        },
    ));
}

#[test]
fn canneal_needs_its_atomics() {
    let all = Canneal::at(Scale::Test);
    is_right(|threads| all.build(threads, true));
    is_noticed(&all.build(4, false));
}

#[test]
fn fluidanimate_needs_its_locks() {
    let all = Fluidanimate::at(Scale::Test);
    is_right(|threads| all.build(threads, true));
    is_noticed(&all.build(4, false));
}

#[test]
fn bodytrack_needs_its_barrier() {
    let all = Bodytrack::at(Scale::Test);
    is_right(|threads| all.build(threads, true));
    is_noticed(&all.build(4, false));
}
