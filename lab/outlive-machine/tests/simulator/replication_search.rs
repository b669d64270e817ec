//! Every state of small machines that replicate and whose nodes die: no committed store is lost.
//!
//! Searches that take minutes are in the example `recovery`.

use crate::support::replicated::{recxl, sound};
use outlive_machine::search::{Budget, ReplicatedSearch, Setup, Shape, Violation, When};

/// Two replicas; `stores` and `others` are the requests of each node's core.
fn setup(nodes: usize, stores: &'static [u32], others: &'static [u32]) -> Setup {
    Setup::proactive(nodes, 2, Budget { stores, others })
}

#[test]
fn all_variants_without_a_death() {
    for when in [When::Writable, When::Head, When::Retired] {
        let explored = sound(Setup {
            when,
            ..setup(3, &[1, 1], &[1])
        });
        assert!(explored.states > 5000, "{when:?}: {explored:?}");
    }
}

#[test]
fn one_of_three_dies() {
    for when in [When::Writable, When::Head, When::Retired] {
        sound(Setup {
            when,
            deaths: 1,
            ..setup(3, &[1, 1], &[])
        });
    }
}

#[test]
fn one_of_three_dies_and_others_read() {
    sound(Setup {
        deaths: 1,
        ..setup(3, &[1], &[0, 1, 1])
    });
}

#[test]
fn two_stores_behind_one_another_and_another_writer() {
    sound(Setup {
        deaths: 1,
        ..setup(3, &[2, 1], &[])
    });
}

#[test]
fn two_lines_written_and_read() {
    let two_lines = setup(3, &[2], &[0, 1]);
    sound(Setup {
        shape: Shape {
            lines: 2,
            capacity: 2,
            ..two_lines.shape
        },
        deaths: 1,
        ..two_lines
    });
}

#[test]
fn two_cores_of_a_node() {
    for when in [When::Writable, When::Retired] {
        sound(Setup {
            cores: 2,
            when,
            deaths: 1,
            ..setup(3, &[1, 1], &[])
        });
    }
}

#[test]
fn atomics_on_lines_that_others_write() {
    let atomics = |atomics, stores| Setup {
        atomics,
        deaths: 1,
        ..setup(3, stores, &[])
    };
    sound(atomics(&[1, 1], &[]));
    sound(atomics(&[1], &[0, 1]));
}

#[test]
fn lines_held_while_acknowledgements_are_under_way() {
    for when in [When::Writable, When::Retired] {
        sound(Setup {
            holds: true,
            when,
            deaths: 1,
            ..setup(3, &[1, 1], &[])
        });
    }
}

#[test]
fn a_dump_before_and_during_a_recovery() {
    sound(Setup {
        dumps: 1,
        deaths: 1,
        ..setup(3, &[1], &[0, 1])
    });
}

#[test]
fn a_search_that_is_too_small_says_so() {
    let search = ReplicatedSearch {
        setup: setup(3, &[1], &[]),
        most_states: 50,
    };
    let explored = search.run(&recxl()).unwrap();
    assert!(!explored.complete && explored.states == 50);
}

#[test]
fn write_back_loses_what_was_committed() {
    let setup = Setup {
        replicas: 0,
        deaths: 1,
        ..setup(2, &[1], &[])
    };
    let search = ReplicatedSearch {
        setup,
        most_states: 1_000_000,
    };
    let lost = search.run(&recxl()).unwrap_err();
    assert!(
        matches!(lost.violation, Violation::NotRecovered { line: 0, .. }),
        "{lost}"
    );
}
