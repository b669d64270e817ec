//! Transactions on mapped memory under every interleaving within bounds: a read against a commit, a
//! theft of a stray latch against the recovery that releases it, and writes against the recycling
//! of a process id; and broken variants.

use super::small_store::{
    SIZE, SURVIVOR, TABLE, VICTIM, first_latch, recover, recycle, transact, whole, worker,
};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Scenario, Scheduled};
use outlive_store::protocol::{Flaw, Policy, Retry, check};
use outlive_store::tables::TransactionId;
use outlive_store::verbs::block_on;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    vec![
        Proof::of_every(read(Policy::SOUND), bounds(2), bounds(3)),
        Proof::of_every(steal(Policy::SOUND), bounds(1), bounds(2)),
        Proof::of_every(reuse(Policy::SOUND), bounds(1), bounds(2)),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    let unchecked = read(Flaw::UncheckedReads.policy());
    let remembers = reuse(Flaw::RemembersFailedIds.policy());
    let writes = reuse(Flaw::RecyclesByWrites.policy());
    vec![
        (unchecked, bounds(2), "a value was torn"),
        (remembers, bounds(2), "a value was torn"),
        (writes, bounds(2), "a value was torn"),
    ]
}

/// Attempts are few, so that executions are short. A conflict is an outcome.
const RETRY: Retry = Retry {
    attempts: 2,
    pause: 0,
    stall: 0,
    deadline: None,
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
            transact(m, SURVIVOR, Policy::SOUND, &[(1, Some(10))]).expect("a commit");
            let id = transact(m, VICTIM, Policy::SOUND, &[(1, Some(11))]).expect("a commit");
            m.store(first_latch(), id.to_word(), Ordering::Release);
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

/// The number of committed increments.
const COMMITTED: Offset = Offset::new(192);

/// Increments key 1, up to `times` times.
fn increment(m: Scheduled, process: u16, policy: Policy, times: u64) {
    let worker = worker(m, process, policy);
    let mut coordinator = worker.coordinator().expect("a slot").retry(RETRY);
    for _ in 0..times {
        let adding = coordinator.transaction(async |tx| {
            tx.update(TABLE, 1, |[one, other]| [one + 1, other + 1])
                .await
        });
        if block_on(adding).is_ok() {
            m.fetch_add(COMMITTED, 1u64, Ordering::AcqRel);
        }
    }
}

/// A process id is recycled, and its next owner increments key 1, as a survivor does twice. The
/// failed owner has left a stray latch of the key.
fn reuse(policy: Policy) -> Scenario {
    Scenario::new("store: writes against a recycling")
        .memory(SIZE)
        .prepare(|m: Scheduled| {
            transact(m, SURVIVOR, Policy::SOUND, &[(1, Some(0))]).expect("a commit");
            recover(m, Policy::SOUND);
            let stray = TransactionId::new(VICTIM, 0, 7).to_word();
            m.store(first_latch(), stray, Ordering::Release);
        })
        .thread("recycler", move |m| {
            recycle(m, policy);
            increment(m, VICTIM, policy, 1);
        })
        .thread("writer", move |m| increment(m, SURVIVOR, policy, 2))
        .check(|m, _| {
            let worker = worker(m, SURVIVOR, Policy::SOUND);
            let mut coordinator = worker.coordinator().expect("a slot");
            let read = coordinator.transaction(async |tx| tx.read(TABLE, 1).await);
            let value = whole(block_on(read).expect("a commit").value);
            let committed = m.load::<u64>(COMMITTED, Ordering::Acquire);
            assert_eq!(value, Some(committed), "an update was lost");
            assert_sound(m);
        })
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
