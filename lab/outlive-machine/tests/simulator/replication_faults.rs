//! Faults in replication or recovery are found, with the right violation.

use outlive_machine::protocol::{Cell, ReplicatedTables, StoreEvent, StoreOperation, StoreState};
use outlive_machine::search::{
    Budget, Counterexample, Fault, REPLICATED_SURVIVORS, ReplicatedRules, ReplicatedSearch,
    ReplicatedSuite, Setup, Violation, replicated_mutants,
};

fn setup(stores: &'static [u32], others: &'static [u32]) -> Setup {
    Setup {
        deaths: 1,
        ..Setup::proactive(3, 2, Budget { stores, others })
    }
}

fn found(setup: Setup, rules: &ReplicatedRules) -> Box<Counterexample> {
    let search = ReplicatedSearch {
        setup,
        most_states: 3_000_000,
    };
    let found = search.run(rules).unwrap_err();
    println!("{found}\n");
    found
}

/// The rules without this action of a row.
fn without(state: StoreState, event: StoreEvent, action: StoreOperation) -> ReplicatedRules {
    let mut tables = ReplicatedTables::recxl().clone();
    let cell = *tables.store.get(state, event).expect("a row");
    let kept = cell.actions().filter(|other| *other != action);
    tables
        .store
        .set(state, event, Some(Cell::new(kept, cell.next)));
    ReplicatedRules::strict(&tables)
}

fn is_lost(violation: Violation) -> bool {
    matches!(
        violation,
        Violation::NotRecovered { .. } | Violation::TooFewLogs { .. }
    )
}

#[test]
fn a_val_that_is_forgotten_loses_the_store() {
    for (state, event) in [
        (StoreState::RW, StoreEvent::AckLast),
        (StoreState::A, StoreEvent::HeadWritable),
        (StoreState::AH, StoreEvent::Gained),
    ] {
        let rules = without(state, event, StoreOperation::Val);
        assert!(is_lost(found(setup(&[2], &[1]), &rules).violation));
    }
}

#[test]
fn a_commit_before_all_acknowledgements_is_found() {
    let mut tables = ReplicatedTables::recxl().clone();
    let early = *tables
        .store
        .get(StoreState::RW, StoreEvent::AckLast)
        .expect("a row");
    tables
        .store
        .set(StoreState::RW, StoreEvent::Ack, Some(early));
    let violation = found(setup(&[1], &[]), &ReplicatedRules::strict(&tables)).violation;
    assert!(
        matches!(violation, Violation::NotReplicated { missing: 1, .. }),
        "{violation}"
    );
}

#[test]
fn one_replica_less_is_found() {
    let violation = found(
        setup(&[1], &[]),
        &ReplicatedRules::with(Fault::OneReplicaLess),
    )
    .violation;
    assert!(
        matches!(violation, Violation::NotReplicated { missing: 1, .. }),
        "{violation}"
    );
}

#[test]
fn entries_of_earlier_epochs_are_no_good() {
    // A node stores, another one does, and the first owns the line again and dies before it has
    // stored.
    let rules = ReplicatedRules::with(Fault::EpochsIgnored);
    assert!(is_lost(found(setup(&[1, 1], &[1]), &rules).violation));
}

#[test]
fn a_recovery_that_does_not_wait_meets_what_it_has_ended() {
    let hasty = ReplicatedRules::with(Fault::NotDrained);
    let violation = found(setup(&[1], &[]), &hasty).violation;
    assert!(
        matches!(violation, Violation::StrayAck { .. }),
        "{violation}"
    );
    // Acknowledgements could be distinguished; but messages of dead nodes still come after their
    // burial.
    let tolerant = ReplicatedRules {
        swallows_acks: true,
        ..hasty
    };
    let violation = found(setup(&[1], &[]), &tolerant).violation;
    assert!(
        matches!(
            violation,
            Violation::NamesTheDead { .. } | Violation::Protocol(_)
        ),
        "{violation}"
    );
}

#[test]
fn unvalidated_entries_are_no_good() {
    let rules = ReplicatedRules::with(Fault::UnvalidatedTaken);
    assert!(is_lost(found(setup(&[2], &[]), &rules).violation));
}

#[test]
fn units_and_memory_nodes_are_both_asked() {
    let rules = ReplicatedRules::with(Fault::UnitsSkipped);
    assert!(is_lost(found(setup(&[1], &[]), &rules).violation));
    let rules = ReplicatedRules::with(Fault::MemoryLogsSkipped);
    let dumped = Setup {
        dumps: 1,
        ..setup(&[1], &[])
    };
    assert!(is_lost(found(dumped, &rules).violation));
    // Also by the dump at the end of a recovery.
    let again = Setup {
        deaths: 2,
        ..setup(&[1], &[])
    };
    assert!(is_lost(found(again, &rules).violation));
}

#[test]
fn what_a_recovery_leaves_out_is_missed() {
    let again = Setup {
        deaths: 2,
        ..setup(&[1], &[])
    };
    let rules = ReplicatedRules::with(Fault::NotSaved);
    assert!(is_lost(found(again, &rules).violation));
    let rules = ReplicatedRules::with(Fault::NoRestart);
    let violation = found(setup(&[1], &[]), &rules).violation;
    assert!(
        matches!(violation, Violation::NotReplicated { .. }),
        "{violation}"
    );
    let rules = ReplicatedRules::with(Fault::SameGroups);
    let violation = found(setup(&[1], &[]), &rules).violation;
    assert!(
        matches!(violation, Violation::StoreWaits { .. }),
        "{violation}"
    );
}

/// One more round or death, with as many replicas as that needs.
fn three_replicas(nodes: usize, stores: &'static [u32], deaths: u32) -> Setup {
    let budget = Budget {
        stores,
        others: &[],
    };
    Setup {
        deaths,
        ..Setup::proactive(nodes, 3, budget)
    }
}

#[test]
fn all_have_restarted_before_a_directory_recovers() {
    let rules = ReplicatedRules::with(Fault::RestartsNotAwaited);
    let violation = found(setup(&[1, 1], &[]), &rules).violation;
    // A store commits that units have forgotten.
    assert!(
        matches!(violation, Violation::NotReplicated { .. }),
        "{violation}"
    );
}

#[test]
fn all_have_saved_before_a_unit_clears() {
    let rules = ReplicatedRules::with(Fault::SavesNotAwaited);
    let violation = found(three_replicas(3, &[0, 1], 1), &rules).violation;
    assert!(
        matches!(violation, Violation::TooFewLogs { .. }),
        "{violation}"
    );
}

#[test]
fn all_know_the_new_groups_before_a_core_goes_on() {
    let rules = ReplicatedRules::with(Fault::RegroupsLate);
    let dumped = Setup {
        dumps: 1,
        ..setup(&[0, 1], &[])
    };
    let violation = found(dumped, &rules).violation;
    assert!(
        matches!(violation, Violation::TooFewLogs { .. }),
        "{violation}"
    );
    // Without a round of its own, by another recovery while only some nodes know the new groups.
    let rules = ReplicatedRules::with(Fault::RegroupsNotAwaited);
    let violation = found(three_replicas(4, &[0, 1], 2), &rules).violation;
    assert!(
        matches!(violation, Violation::TooFewLogs { .. }),
        "{violation}"
    );
}

#[test]
fn all_lines_are_repaired_before_a_core_goes_on() {
    let rules = ReplicatedRules::with(Fault::RepairsNotAwaited);
    let violation = found(setup(&[1], &[]), &rules).violation;
    assert!(
        matches!(violation, Violation::NamesTheDead { .. }),
        "{violation}"
    );
}

#[test]
fn memory_nodes_keep_what_is_recalled_until_it_has_come() {
    let rules = ReplicatedRules::with(Fault::TruncatesEarly);
    let dumped = Setup {
        dumps: 1,
        ..setup(&[1], &[0, 1])
    };
    assert!(is_lost(found(dumped, &rules).violation));
}

#[test]
fn a_node_that_is_interrupted_lets_its_lines_go() {
    let rules = ReplicatedRules::with(Fault::HeldInRecovery);
    let held = Setup {
        holds: true,
        ..setup(&[1, 1], &[])
    };
    let violation = found(held, &rules).violation;
    assert_eq!(violation, Violation::Stuck);
}

#[test]
fn an_atomic_that_starts_over_reads_again() {
    let rules = ReplicatedRules::with(Fault::AtomicNotReadAgain);
    let atomics = Setup {
        atomics: &[1, 1],
        ..setup(&[], &[])
    };
    let violation = found(atomics, &rules).violation;
    assert!(
        matches!(violation, Violation::StaleAccess { .. }),
        "{violation}"
    );
}

#[test]
fn units_clear_only_what_is_saved() {
    // The saver has not received the VAL when the round begins, and dies with the requester, or is
    // the requester.
    let rules = ReplicatedRules::with(Fault::ClearsAll);
    let dumped = Setup {
        replicas: 3,
        deaths: 2,
        at_once: 2,
        dumps: 1,
        ..setup(&[1], &[])
    };
    assert!(is_lost(found(dumped, &rules).violation));
}

/// Every eleventh mutant of the tables, by search; the example takes all of them, by walks too.
#[test]
fn mutants_are_noticed() {
    let suite = ReplicatedSuite::small(0);
    let mutants = replicated_mutants(ReplicatedTables::recxl());
    assert!(mutants.len() > 200, "{} mutants", mutants.len());
    let explained = |name: &str| REPLICATED_SURVIVORS.iter().any(|(known, _)| *known == name);
    let sample = mutants.iter().step_by(11);
    for mutant in sample.filter(|mutant| !explained(&mutant.name)) {
        assert!(suite.kill(mutant).is_dead(), "{} survives", mutant.name);
    }
}
