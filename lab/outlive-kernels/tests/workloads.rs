//! Each workload gets its result in whatever order its threads run, and its check detects a wrong
//! result.

use outlive_kernels::{ALL, by_name};
use outlive_machine::program::{Order, Recording, Reference, Scale, Word, Workload};

fn run(workload: &Workload, order: Order, seed: u64) -> Reference {
    let mut machine = Reference::new(
        workload.image(),
        workload.synchronisation(),
        workload.threads(Recording::Off),
        order,
        seed,
    );
    if let Err(error) = machine.run() {
        panic!("{} with seed {seed}: {error}", workload.name());
    }
    machine
}

#[test]
fn results_are_right_whatever_the_order() {
    for (name, make) in ALL {
        for threads in [1, 3, 4, 64] {
            let workload = make(threads, Scale::Test);
            assert_eq!(workload.name(), *name);
            assert_eq!(workload.thread_count(), threads);
            for (seed, order) in [(1, Order::Sequential), (2, Order::TotalStore)] {
                let machine = run(&workload, order, seed);
                workload
                    .check(&|word| machine.word(word))
                    .unwrap_or_else(|wrong| panic!("{threads} threads, seed {seed}: {wrong}"));
            }
        }
    }
}

#[test]
fn a_workload_that_was_not_run_has_not_the_right_result() {
    for (name, make) in ALL {
        let workload = make(4, Scale::Test);
        let machine = Reference::of(&workload, Recording::Off, 1);
        let wrong = workload.check(&|word| machine.word(word)).expect_err(name);
        assert_eq!(wrong.workload, *name);
    }
}

/// A machine that loses or mangles a store is detected by the check or by the program itself.
#[test]
fn a_word_that_is_wrong_in_the_end_is_noticed() {
    for (name, make) in ALL {
        let workload = make(4, Scale::Test);
        let mut start = vec![0; workload.image().words as usize];
        for (first, values) in &workload.image().runs {
            start[first.0 as usize..][..values.len()].copy_from_slice(values);
        }
        let machine = run(&workload, Order::Sequential, 1);
        let written = (0..workload.image().words)
            .filter(|word| machine.word(Word(*word)) != start[*word as usize])
            .collect::<Vec<_>>();
        let (mut noticed, mut all) = (0, 0);
        for wrong in written.iter().step_by(written.len().div_ceil(100).max(1)) {
            all += 1;
            let memory = |word: Word| {
                let mangled = u64::from(word.0 == *wrong) << 62;
                machine.word(word) ^ mangled
            };
            noticed += u32::from(workload.check(&memory).is_err());
        }
        assert!(
            noticed * 2 > all,
            "{name}: of {all} mangled words {noticed} were noticed"
        );
    }
}

#[test]
fn a_seed_repeats_and_names_are_known() {
    for (name, _) in ALL {
        let workload = by_name(name, 4, Scale::Test).unwrap();
        let (one, two) = (
            run(&workload, Order::TotalStore, 5),
            run(&workload, Order::TotalStore, 5),
        );
        assert_eq!(one.counts(), two.counts());
        let same =
            (0..workload.image().words).all(|word| one.word(Word(word)) == two.word(Word(word)));
        assert!(same, "{name}");
    }
    assert!(by_name("nothing", 4, Scale::Test).is_none());
}
