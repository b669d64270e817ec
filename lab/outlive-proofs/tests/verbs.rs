//! The conformance suite of verbs on all backends, and the simulated network's failures.

use outlive_proofs::store::conformance::{Linked, Simulated, Threads, conforms};
use outlive_proofs::store::lost_answers::{Client, compute_crash, memory_crash, revocation, run};
use outlive_proofs::store::network::Seen;

#[test]
fn the_simulated_network_conforms_and_uses_every_freedom() {
    conforms(&Simulated(2_000), true).unwrap();
}

#[test]
fn mapped_memory_conforms() {
    conforms(&Threads(3_000), false).unwrap();
}

#[test]
fn the_emulated_link_conforms() {
    conforms(&Linked(2_000), false).unwrap();
}

#[test]
fn clients_find_out_the_effect_of_verbs_whose_answers_were_lost() {
    let mut all = Seen::default();
    let mut counted = 0;
    for seed in 0..5_000 {
        let run = run(Client::Careful, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        counted += run.counted;
        all.lost_answers += run.seen.lost_answers;
        all.dropped += run.seen.dropped;
        all.lost += run.seen.lost;
        all.duplicates += run.seen.duplicates;
        all.reordered += run.seen.reordered;
        all.faults += run.seen.faults;
    }
    println!("{counted} additions, {all:?}");
    for (name, times) in [
        ("lost answers", all.lost_answers),
        ("dropped verbs", all.dropped),
        ("lost packets", all.lost),
        ("duplicates", all.duplicates),
        ("reordered packets", all.reordered),
        ("faults", all.faults),
    ] {
        assert!(times > 100, "{times} {name}");
    }
}

#[test]
fn clients_that_repeat_verbs_blindly_are_caught() {
    for client in [
        Client::RepeatsLatching,
        Client::RepeatsReleasing,
        Client::OnBrokenServers,
    ] {
        // A run in which a client waits for ever is long: a few are enough.
        let mut caught = (0..5_000).filter(|seed| run(client, *seed).is_err());
        let caught = caught.by_ref().take(3).count();
        assert_eq!(caught, 3, "{client:?}");
    }
}

#[test]
fn the_latch_of_a_compute_server_that_crashed_is_freed() {
    let held = (0..2_000).filter(|seed| compute_crash(*seed).unwrap());
    let held = held.count();
    assert!((100..1_900).contains(&held), "{held} of 2,000");
}

#[test]
fn the_memory_of_a_server_that_died_is_not_read() {
    let runs = (0..2_000).map(|seed| memory_crash(seed).unwrap());
    assert!(runs.filter(|deaths| *deaths > 0).count() > 1_000);
}

#[test]
fn no_verb_takes_effect_after_a_revocation() {
    let dropped: u64 = (0..2_000).map(|seed| revocation(seed).unwrap()).sum();
    assert!(dropped > 1_000, "{dropped} verbs were dropped");
}

#[test]
fn a_run_is_repeated_by_its_seed() {
    let of = |seed| format!("{:?}", run(Client::Careful, seed));
    assert!((0..100).all(|seed| of(seed) == of(seed)));
}
