//! Threads that are Rust code: the operations that the machine gets from them, clones, panics, and
//! the cleanup of dropped ones.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlive_machine::engine::Random;
use outlive_machine::program::{
    Coroutine, Cpu, LockId, Next, NotRecorded, Op, Recording, Thread, Update, Word,
};

fn message(run: impl FnOnce()) -> String {
    let reason = panic::catch_unwind(AssertUnwindSafe(run)).expect_err("it should have panicked");
    let owned = reason.downcast_ref::<String>().cloned();
    owned.unwrap_or_else(|| (*reason.downcast_ref::<&str>().unwrap()).to_owned())
}

fn one(body: impl Fn(&mut Cpu<'_>) + Send + Sync + 'static) -> Coroutine {
    Coroutine::new(0, 1, Recording::On, body)
}

#[test]
fn operations_come_in_order_and_runs_of_computing_as_one() {
    let mut thread = Coroutine::new(2, 5, Recording::Off, |cpu| {
        cpu.compute(1);
        cpu.compute(2);
        cpu.store(Word(cpu.thread() as u64), cpu.threads() as u64);
        cpu.compute(u32::MAX);
        cpu.compute(7);
        cpu.lock(LockId(0));
        cpu.private_load(64);
        cpu.fence();
        cpu.compute(4);
    });
    let ops = std::iter::from_fn(|| match thread.next() {
        Next::Op(op) => Some(op),
        Next::Waits => panic!("it has no loads"),
        Next::Ended => None,
    });
    let expected = [
        Op::Compute(3),
        Op::Store(Word(2), 5),
        Op::Compute(u32::MAX),
        Op::Compute(7),
        Op::Lock(LockId(0)),
        Op::PrivateLoad(64),
        Op::Fence,
        Op::Compute(4),
    ];
    assert_eq!(ops.collect::<Vec<_>>(), expected);
    assert_eq!(thread.next(), Next::Ended);
}

#[test]
fn loads_overlap_until_a_value_is_asked_for() {
    let mut thread = one(|cpu| {
        let pending = [0, 1, 2].map(|word| cpu.load_later(Word(word)));
        cpu.compute(9);
        let sum = pending.map(|pending| cpu.value(pending)).iter().sum();
        cpu.store(Word(3), sum);
    });
    for word in 0..3 {
        assert_eq!(thread.next(), Next::Op(Op::Load(Word(word))));
    }
    assert_eq!(thread.next(), Next::Op(Op::Compute(9)));
    for value in 1..=3 {
        assert_eq!(thread.next(), Next::Waits);
        thread.deliver(value * 10);
    }
    assert_eq!(thread.next(), Next::Op(Op::Store(Word(3), 60)));
    assert_eq!(thread.next(), Next::Ended);
}

#[test]
fn a_value_can_come_before_it_is_asked_for_and_need_not_be_asked_for() {
    let mut thread = one(|cpu| {
        let _ = cpu.load_later(Word(0));
        let old = cpu.atomic(Word(1), Update::Add(1));
        let number = cpu.load_f64(Word(2));
        cpu.store_f64(Word(3), number + old as f64);
    });
    assert_eq!(thread.next(), Next::Op(Op::Load(Word(0))));
    thread.deliver(99);
    assert_eq!(thread.next(), Next::Op(Op::Atomic(Word(1), Update::Add(1))));
    thread.deliver(2);
    assert_eq!(thread.next(), Next::Op(Op::Load(Word(2))));
    thread.deliver(0.5f64.to_bits());
    assert_eq!(
        thread.next(),
        Next::Op(Op::Store(Word(3), 2.5f64.to_bits()))
    );
}

/// A program whose path depends on its loads.
fn wanderer(cpu: &mut Cpu<'_>) {
    let mut state = cpu.thread() as u64;
    for round in 0..200 {
        let first = cpu.load_later(Word(state % 64));
        let second = cpu.load_later(Word(state % 61));
        cpu.compute((state % 5) as u32);
        state = state.wrapping_mul(31).wrapping_add(cpu.value(second));
        if state.is_multiple_of(3) {
            cpu.store(Word(round), state);
            state ^= cpu.atomic(Word(state % 64), Update::Exchange(state));
        }
        state ^= cpu.value(first);
    }
}

/// Takes up to `steps` steps: an operation, or a value for the oldest load that has none, decided
/// by `random`.
fn wander(thread: &mut Coroutine, open: &mut u64, random: &mut Random, steps: u64) -> Vec<Next> {
    let mut all = Vec::new();
    for _ in 0..steps {
        if *open > 0 && random.below(2) == 0 {
            *open -= 1;
            thread.deliver(random.bits());
        } else {
            let next = thread.next();
            *open += u64::from(matches!(next, Next::Op(Op::Load(_) | Op::Atomic(..))));
            all.push(next);
        }
    }
    all
}

#[test]
fn a_clone_at_any_point_does_the_same_from_there_on() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut original = Coroutine::new(3, 4, Recording::On, wanderer);
        let mut open = 0;
        let steps = random.below(1_200);
        wander(&mut original, &mut open, &mut random, steps);
        // A clone of a clone that has not caught up; it gets values before it has.
        let mut clone = original.clone().clone();
        let mut open_of_clone = open;
        let mut random_of_clone = random.clone();
        let rest = wander(&mut clone, &mut open_of_clone, &mut random_of_clone, 1_500);
        assert_eq!(
            rest,
            wander(&mut original, &mut open, &mut random, 1_500),
            "seed {seed}"
        );
        assert_eq!(open, open_of_clone);
        assert!(
            rest.contains(&Next::Ended),
            "seed {seed} does not reach the end"
        );
    }
}

#[test]
fn without_a_record_there_is_no_clone() {
    let thread = Coroutine::new(7, 8, Recording::Off, |_| {});
    assert_eq!(thread.try_clone().unwrap_err(), NotRecorded { thread: 7 });
    let said = message(|| drop(thread.clone()));
    assert!(
        said.contains("thread 7") && said.contains("Recording::On"),
        "{said}"
    );
}

#[test]
fn code_that_is_no_function_of_its_loads_is_found_when_it_is_cloned() {
    for shorter in [false, true] {
        let runs = AtomicUsize::new(0);
        let mut thread = one(move |cpu| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            if !(shorter && run > 0) {
                cpu.store(Word(0), run as u64);
            }
            cpu.load(Word(1));
        });
        assert_eq!(thread.next(), Next::Op(Op::Store(Word(0), 0)));
        let mut clone = thread.clone();
        let said = message(|| {
            clone.next();
        });
        assert!(
            said.contains("must be a function of the values of its loads"),
            "{said}"
        );
    }
}

#[test]
fn a_panic_reaches_the_machine_with_its_message() {
    let mut thread = Coroutine::new(3, 4, Recording::Off, |cpu| {
        let value = cpu.load(Word(0));
        assert!(value == 1, "found {value}");
    });
    assert_eq!(thread.next(), Next::Op(Op::Load(Word(0))));
    thread.deliver(2);
    let said = message(|| {
        thread.next();
    });
    assert_eq!(said, "thread 3 panicked: found 2");
    assert_eq!(thread.next(), Next::Ended, "nothing is left of it");
}

struct Tells(Arc<AtomicUsize>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_a_dropped_thread_had_is_dropped_also_while_the_machine_panics() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let start = || {
        let dropped = Arc::clone(&dropped);
        let mut thread = one(move |cpu| {
            let _tells = Tells(Arc::clone(&dropped));
            cpu.load(Word(0));
        });
        assert_eq!(thread.next(), Next::Op(Op::Load(Word(0))));
        thread
    };
    drop(start());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    let said = message(|| {
        let _thread = start();
        panic!("the machine fails");
    });
    assert_eq!(said, "the machine fails");
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    // A thread that never began leaves nothing behind, and neither does one that has ended.
    drop(one(|_| {}));
}

#[test]
fn values_are_given_only_to_who_waits_for_one() {
    let mut thread = one(|cpu| {
        cpu.load(Word(0));
    });
    let said = message(|| thread.deliver(1));
    assert!(said.contains("none of its loads waits"), "{said}");
    assert_eq!(thread.next(), Next::Op(Op::Load(Word(0))));
    thread.deliver(1);
    assert!(message(|| thread.deliver(1)).contains("none of its loads waits"));
}

#[test]
fn a_value_that_is_asked_for_too_late_is_an_error_and_not_another_value() {
    let ask_after = |later: u64| {
        let mut thread = one(move |cpu| {
            let first = cpu.load_later(Word(0));
            for word in 1..=later {
                let _ = cpu.load_later(Word(word));
            }
            assert_eq!(cpu.value(first), 100);
        });
        let mut value = 100;
        while let Next::Op(_) = thread.next() {
            thread.deliver(value);
            value += 1;
        }
    };
    ask_after(511);
    let said = message(|| ask_after(512));
    assert!(said.contains("load 0 after 512 later ones"), "{said}");
}
