//! Tests of the engine itself: leaving executions out leaves no outcome out, and its handling of
//! panics and of invalid scenarios.

use outlive_memory::{Memory, Offset, Ordering, Ordering::*};
use outlive_prove::explore::Exploring;
use outlive_prove::schedule::{self, Bounds, Proving, Scenario};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug)]
enum Op {
    Load(u64, Ordering),
    Store(u64, u64, Ordering),
    Add(u64, Ordering),
    Swap(u64, u64, Ordering),
    Fence(Ordering),
    Persist(u64),
}

/// Four words, two of them on one line.
fn place(word: u64) -> Offset {
    Offset::new([0, 8, 64, 128][word as usize])
}

fn run<M: Memory>(m: M, program: &[Op]) -> Vec<u64> {
    let mut seen = Vec::new();
    for op in program {
        match *op {
            Op::Load(word, order) => seen.push(m.load(place(word), order)),
            Op::Store(word, value, order) => m.store(place(word), value, order),
            Op::Add(word, order) => seen.push(m.fetch_add(place(word), 1u64, order)),
            Op::Swap(word, value, order) => {
                let found = m.compare_exchange(place(word), 0u64, value, order, Relaxed);
                seen.push(found.unwrap_or_else(|found| found));
            }
            Op::Fence(order) => m.fence(order),
            Op::Persist(word) => m.persist(place(word), 8),
        }
    }
    seen
}

type Outcome = (Vec<Option<Vec<u64>>>, Vec<bool>, Vec<u64>);

/// Returns the values that the threads saw, the dead threads, and the final memory, over all
/// executions, and whether all were run. The first thread may die; then a survivor begins.
fn outcomes<M: Proving>(
    programs: &[Vec<Op>; 3],
    bounds: Option<Bounds>,
) -> (BTreeSet<Outcome>, bool) {
    let seen: Arc<Mutex<BTreeSet<Outcome>>> = Arc::default();
    let seen_too = Arc::clone(&seen);
    let [first, second, survivor] = programs.clone();
    let scenario = Scenario::<M, Vec<u64>>::new("program")
        .mortal("first", move |m| run(m, &first))
        .thread("second", move |m| run(m, &second))
        .after_death("survivor", move |m| run(m, &survivor))
        .on_death(|m, _| m.store(place(3), 9u64, Release))
        .check(move |m, end| {
            let memory = (0..4).map(|word| m.load(place(word), Relaxed)).collect();
            let died = (0..3).map(|thread| end.died(thread)).collect();
            seen_too
                .lock()
                .unwrap()
                .insert((end.results().to_vec(), died, memory));
        });
    let report = match bounds {
        Some(bounds) => scenario.explore(&bounds),
        None => scenario.sample(&Bounds::exhaustive(), 1, 300),
    };
    report.assert_passed();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, report.complete)
}

fn op() -> impl Strategy<Value = Op> {
    let word = 0u64..4;
    let load = prop_oneof![Just(Relaxed), Just(Acquire), Just(SeqCst)];
    let store = prop_oneof![Just(Relaxed), Just(Release), Just(SeqCst)];
    let change = prop_oneof![Just(Relaxed), Just(Acquire), Just(Release), Just(AcqRel)];
    let fence = prop_oneof![Just(Acquire), Just(Release), Just(SeqCst)];
    prop_oneof![
        (word.clone(), load).prop_map(|(word, order)| Op::Load(word, order)),
        (word.clone(), 1u64..4, store)
            .prop_map(|(word, value, order)| Op::Store(word, value, order)),
        (word.clone(), change.clone()).prop_map(|(word, order)| Op::Add(word, order)),
        (word.clone(), 1u64..4, change)
            .prop_map(|(word, value, order)| Op::Swap(word, value, order)),
        fence.prop_map(Op::Fence),
        word.prop_map(Op::Persist),
    ]
}

fn programs() -> impl Strategy<Value = [Vec<Op>; 3]> {
    let program = |most| prop::collection::vec(op(), 1..=most);
    (program(3), program(2), program(1)).prop_map(|(a, b, c)| [a, b, c])
}

fn compare<M: Proving>(programs: &[Vec<Op>; 3]) -> Result<(), TestCaseError> {
    let bounds = || Bounds::exhaustive().executions(40_000);
    let (everything, complete) = outcomes::<M>(programs, Some(bounds().unreduced()));
    prop_assume!(complete);
    let (reduced, complete) = outcomes::<M>(programs, Some(bounds()));
    prop_assert!(complete);
    prop_assert_eq!(&reduced, &everything);
    let (drawn, _) = outcomes::<M>(programs, None);
    prop_assert!(
        drawn.is_subset(&reduced),
        "drawn but not explored: {:?}",
        drawn
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_scheduled_memory_leaves_out_shows_nothing_else(programs in programs()) {
        compare::<schedule::Scheduled>(&programs)?;
    }

    #[test]
    fn what_exploring_memory_leaves_out_shows_nothing_else(programs in programs()) {
        compare::<Exploring>(&programs)?;
    }
}

const LOCK: Offset = Offset::new(0);
const VALUE: Offset = Offset::new(64);

/// A panic is not a death: destructors run, and their stores are visible.
#[test]
fn a_panicking_thread_cleans_up() {
    struct Unlock<M: Memory>(M);
    impl<M: Memory> Drop for Unlock<M> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.0.store(VALUE, 2u64, Relaxed);
            self.0.store(LOCK, 0u64, Release);
        }
    }
    let lock = |m: schedule::Scheduled| {
        while m.exchange(LOCK, 1u64, Acquire) != 0 {
            m.spin_hint();
        }
    };
    schedule::scenario("panic")
        .thread("clumsy", move |m| {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                lock(m);
                let _unlock = Unlock(m);
                m.store(VALUE, 1u64, Relaxed);
                panic!("on purpose");
            }));
            assert!(ended.is_err());
        })
        .thread("other", move |m| {
            assert!(!std::thread::panicking());
            lock(m);
            assert_ne!(m.load::<u64>(VALUE, Relaxed), 1);
            m.store(LOCK, 0u64, Release);
        })
        .explore(&Bounds::exhaustive())
        .assert_proven();
}

#[test]
fn a_scenario_that_remembers_is_told_so() {
    let count = AtomicU64::new(0);
    let report = schedule::scenario("forgetful")
        .thread("a", move |m| {
            m.store(VALUE, 1u64, Relaxed);
            if count.fetch_add(1, Relaxed) % 5 != 4 {
                m.store(LOCK, 1u64, Relaxed);
                m.store(VALUE, 2u64, Relaxed);
            }
        })
        .thread("b", |m| {
            m.load::<u64>(VALUE, Relaxed);
            m.load::<u64>(LOCK, Relaxed);
        })
        .explore(&Bounds::exhaustive());
    assert!(
        report.expect_failure().message.contains("does not fit"),
        "{report}"
    );
}

#[test]
fn a_budget_ends_an_exploration_that_is_not_complete() {
    let add = |m: schedule::Scheduled| {
        for _ in 0..5 {
            m.fetch_add(VALUE, 1u64, Relaxed);
        }
    };
    let scenario = schedule::scenario::<()>("adds")
        .thread("a", add)
        .thread("b", add);
    let report = scenario.explore(&Bounds::exhaustive().executions(100));
    assert!(
        report.executions == 100 && !report.complete && report.passed(),
        "{report}"
    );
    // Two sequences of five interleave in 10!/(5! 5!) ways, plus the executions that learnt the
    // word.
    let report = scenario.explore(&Bounds::exhaustive());
    assert!(
        report.complete && (252..260).contains(&report.executions),
        "{report}"
    );
}

/// The trace of a word that is exchanged before any thread has read or written it.
#[test]
fn a_first_access_that_exchanges_is_traced() {
    let report = schedule::scenario::<()>("first")
        .thread("t", |m| {
            assert_eq!(m.exchange(LOCK, 1u64, Relaxed), 5, "on purpose")
        })
        .explore(&Bounds::default());
    assert!(
        report
            .expect_failure()
            .trace
            .contains("exchange  0x1 Relaxed -> 0x0"),
        "{report}"
    );
}
