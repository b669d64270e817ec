//! Transactions on mapped memory under every interleaving within bounds: a read against a commit,
//! and a theft of a stray latch against the recovery that releases it; and broken variants.

use super::small_store::{SIZE, SURVIVOR, TABLE, VICTIM, recover, transact, whole, worker};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Scenario, Scheduled};
use outlive_store::protocol::{Flaw, Policy, Retry, check};
use outlive_store::verbs::block_on;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    vec![
        Proof::of_every(read(Policy::SOUND), bounds(2), bounds(3)),
        Proof::of_every(steal(Policy::SOUND), bounds(1), bounds(2)),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let unchecked = read(Flaw::UncheckedReads.policy());
    vec![(unchecked, bounds, "a value was torn")]
}

/// Attempts are few, so that executions are short. A conflict is an outcome.
const RETRY: Retry = Retry {
    attempts: 2,
    pause: 0,
    stall: 0,
};

/// A key is read while it is written. The read returns the old value or the new one.
fn read(policy: Policy) -> Scenario {
    Scenario::new("store: a read against a commit")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            transact(m, SURVIVOR, Policy::SOUND, &[(1, Some(10))]).expect("a commit");
        })
        .thread("writer", |m| {
            transact(m, VICTIM, Policy::SOUND, &[(1, Some(11))]).expect("a commit");
        })
        .thread("reader", move |m| {
            let worker = worker(m, SURVIVOR, policy);
            let mut coordinator = worker.coordinator().expect("a slot").retry(RETRY);
            let done = coordinator.transaction(async |tx| tx.read(TABLE, 1).await);
            if let Ok(done) = block_on(done) {
                let value = whole(done.value);
                assert!([Some(10), Some(11)].contains(&value), "{value:?} was read");
            }
        })
        .check(|m, _| assert_sound(m))
}

/// A survivor recovers a dead server that has committed a write of key 1 and whose latch of it
/// remains, while another one writes the key.
fn steal(policy: Policy) -> Scenario {
    Scenario::new("store: a theft against a recovery")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            use outlive_memory::{Memory, Ordering};
            transact(m, SURVIVOR, Policy::SOUND, &[(1, Some(10))]).expect("a commit");
            let id = transact(m, VICTIM, Policy::SOUND, &[(1, Some(11))]).expect("a commit");
            m.store(
                super::small_store::first_latch(),
                id.to_word(),
                Ordering::Release,
            );
        })
        .thread("survivor", |m| recover(m, Policy::SOUND))
        .thread("writer", move |m| {
            let worker = worker(m, SURVIVOR, policy);
            let mut coordinator = worker.coordinator().expect("a slot").retry(RETRY);
            let done = coordinator.transaction(async |tx| tx.update(TABLE, 1, |_| [12; 2]).await);
            if let Ok(done) = block_on(done) {
                assert_eq!(whole(done.value), Some(11));
            }
        })
        .check(|m, _| assert_sound(m))
}

/// Asserts that the replicas agree, and that the key can be written.
fn assert_sound(m: Scheduled) {
    recover(m, Policy::SOUND);
    transact(m, SURVIVOR, Policy::SOUND, &[(1, Some(13))]).expect("a commit");
    let worker = worker(m, SURVIVOR, Policy::SOUND);
    let checked = block_on(check(&worker, core::iter::once(0), |_| false)).expect("live servers");
    assert!(
        checked.keys == 1 && checked.problems.is_empty(),
        "{checked:?}"
    );
}
