//! The machine without time: orders, locks, barriers, conditions, deadlocks, and errors of wrong
//! programs.

use std::collections::BTreeSet;

use outlive_machine::program::{
    Allocator, Coroutine, Cpu, LockId, Order, Outcome, Recording, Reference, ReferenceError,
    Update, Word, outcomes,
};

type Code = fn(&mut Cpu<'_>);

fn threads(codes: &[Code]) -> Vec<Coroutine> {
    let threads = codes.len();
    let thread =
        |(thread, code): (usize, &Code)| Coroutine::new(thread, threads, Recording::On, *code);
    codes.iter().enumerate().map(thread).collect()
}

const X: Word = Word(0);
const Y: Word = Word(1);

fn memory() -> Allocator {
    let mut memory = Allocator::new();
    memory.words(8);
    memory
}

fn all(memory: &Allocator, codes: &[Code], order: Order) -> BTreeSet<Outcome> {
    outcomes(
        memory.image(),
        memory.synchronisation(),
        threads(codes),
        order,
    )
    .unwrap()
}

fn loads(outcomes: &BTreeSet<Outcome>) -> BTreeSet<Vec<u64>> {
    let flat = |outcome: &Outcome| outcome.loads.concat();
    outcomes.iter().map(flat).collect()
}

/// The litmus tests of x86: their threads, and the loads (in order of threads) that TSO allows and
/// sequential consistency does not; and those that TSO forbids too.
#[test]
fn litmus_tests_come_to_what_total_store_order_allows() {
    struct Litmus {
        name: &'static str,
        codes: &'static [Code],
        relaxed: &'static [&'static [u64]],
        forbidden: &'static [&'static [u64]],
    }
    let tests = [
        Litmus {
            name: "SB",
            codes: &[
                |cpu| {
                    cpu.store(X, 1);
                    cpu.load(Y);
                },
                |cpu| {
                    cpu.store(Y, 1);
                    cpu.load(X);
                },
            ],
            relaxed: &[&[0, 0]],
            forbidden: &[],
        },
        Litmus {
            name: "SB with fences",
            codes: &[
                |cpu| {
                    cpu.store(X, 1);
                    cpu.fence();
                    cpu.load(Y);
                },
                |cpu| {
                    cpu.store(Y, 1);
                    cpu.fence();
                    cpu.load(X);
                },
            ],
            relaxed: &[],
            forbidden: &[&[0, 0]],
        },
        Litmus {
            name: "SB with atomics",
            codes: &[
                |cpu| {
                    cpu.atomic(X, Update::Exchange(1));
                    cpu.load(Y);
                },
                |cpu| {
                    cpu.atomic(Y, Update::Exchange(1));
                    cpu.load(X);
                },
            ],
            relaxed: &[],
            forbidden: &[&[0, 0, 0, 0]],
        },
        Litmus {
            name: "MP",
            codes: &[
                |cpu| {
                    cpu.store(X, 1);
                    cpu.store(Y, 1);
                },
                |cpu| {
                    cpu.load_all([Y, X]);
                },
            ],
            relaxed: &[],
            forbidden: &[&[1, 0]],
        },
        Litmus {
            name: "LB",
            codes: &[
                |cpu| {
                    let _ = cpu.load_later(X);
                    cpu.store(Y, 1);
                },
                |cpu| {
                    let _ = cpu.load_later(Y);
                    cpu.store(X, 1);
                },
            ],
            relaxed: &[],
            forbidden: &[&[1, 1]],
        },
        Litmus {
            name: "IRIW",
            codes: &[
                |cpu| cpu.store(X, 1),
                |cpu| cpu.store(Y, 1),
                |cpu| {
                    cpu.load_all([X, Y]);
                },
                |cpu| {
                    cpu.load_all([Y, X]);
                },
            ],
            relaxed: &[],
            forbidden: &[&[1, 0, 1, 0]],
        },
        Litmus {
            name: "n6: a thread sees its own store first",
            codes: &[
                |cpu| {
                    cpu.store(X, 1);
                    cpu.load_all([X, Y]);
                },
                |cpu| {
                    cpu.store(Y, 1);
                    cpu.load_all([Y, X]);
                },
            ],
            relaxed: &[&[1, 0, 1, 0]],
            forbidden: &[&[0, 0, 1, 0], &[0, 1, 1, 1]],
        },
    ];
    for Litmus {
        name,
        codes,
        relaxed,
        forbidden,
    } in tests
    {
        let memory = memory();
        let sequential = loads(&all(&memory, codes, Order::Sequential));
        let total_store = loads(&all(&memory, codes, Order::TotalStore));
        assert!(sequential.is_subset(&total_store), "{name}");
        let more: Vec<_> = total_store.difference(&sequential).cloned().collect();
        assert_eq!(more, relaxed, "{name}");
        for forbidden in forbidden {
            assert!(!total_store.contains(*forbidden), "{name}: {forbidden:?}");
        }
    }
}

/// The results of two threads that both write both words, each in its order.
#[test]
fn two_writers_of_two_words() {
    let codes: &[Code] = &[
        |cpu| {
            cpu.store(X, 1);
            cpu.store(Y, 2);
        },
        |cpu| {
            cpu.store(Y, 1);
            cpu.store(X, 2);
        },
    ];
    for order in [Order::Sequential, Order::TotalStore] {
        let left = all(&memory(), codes, order);
        let left: BTreeSet<_> = left
            .iter()
            .map(|one| (one.memory[0], one.memory[1]))
            .collect();
        assert_eq!(left, BTreeSet::from([(1, 2), (2, 1), (2, 2)]), "{order:?}");
    }
}

/// The result of a random run is one of the possible outcomes; and with enough seeds, each outcome
/// occurs.
#[test]
fn random_runs_come_to_all_outcomes_and_no_other() {
    let codes: &[Code] = &[
        |cpu| {
            cpu.store(X, 1);
            let y = cpu.load(Y);
            cpu.store(Word(2), y);
        },
        |cpu| {
            cpu.store(Y, 1);
            let x = cpu.load(X);
            cpu.store(Word(3), x);
        },
    ];
    let memory = memory();
    for order in [Order::Sequential, Order::TotalStore] {
        let all: BTreeSet<_> = all(&memory, codes, order)
            .into_iter()
            .map(|one| one.memory)
            .collect();
        let run = |seed| {
            let threads = threads(codes);
            let mut machine = Reference::new(
                memory.image(),
                memory.synchronisation(),
                threads,
                order,
                seed,
            );
            machine.run().unwrap();
            (0..8)
                .map(|word| machine.word(Word(word)))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (0..2_000).map(run).collect::<BTreeSet<_>>(),
            all,
            "{order:?}"
        );
    }
}

#[test]
fn a_lock_excludes_and_a_race_without_it_is_seen() {
    let increment = |lock: Option<LockId>| {
        move |cpu: &mut Cpu<'_>| {
            if let Some(lock) = lock {
                cpu.lock(lock);
            }
            let old = cpu.load(X);
            cpu.store(X, old + 1);
            if let Some(lock) = lock {
                cpu.unlock(lock);
            }
        }
    };
    for order in [Order::Sequential, Order::TotalStore] {
        for locked in [true, false] {
            let mut memory = memory();
            let lock = memory.lock();
            let lock = locked.then_some(lock);
            let threads =
                (0..3).map(|thread| Coroutine::new(thread, 3, Recording::On, increment(lock)));
            let all = outcomes(
                memory.image(),
                memory.synchronisation(),
                threads.collect(),
                order,
            );
            let sums: BTreeSet<_> = all.unwrap().into_iter().map(|one| one.memory[0]).collect();
            let right = if locked { vec![3] } else { vec![1, 2, 3] };
            assert_eq!(Vec::from_iter(sums), right, "{order:?}, locked: {locked}");
        }
    }
}

/// Threads that pass numbers through one word, with a lock and two conditions, before a barrier.
#[test]
fn conditions_and_barriers() {
    let items = 50;
    for seed in 0..40 {
        for order in [Order::Sequential, Order::TotalStore] {
            let mut memory = memory();
            let (lock, full, empty) = (memory.lock(), memory.condition(), memory.condition());
            let barrier = memory.barrier(4);
            let sums = memory.spread::<u64>(4);
            let body = move |cpu: &mut Cpu<'_>| {
                let me = cpu.thread() as u64;
                for item in 1..=items {
                    cpu.lock(lock);
                    let gives = me < 2;
                    // The word is free (0) or holds a number.
                    while (cpu.load(X) == 0) != gives {
                        cpu.wait(if gives { empty } else { full }, lock);
                    }
                    if gives {
                        cpu.store(X, item);
                        cpu.broadcast(full);
                    } else {
                        let sum = sums.get(cpu, me) + cpu.load(X);
                        sums.set(cpu, me, sum);
                        cpu.store(X, 0);
                        cpu.broadcast(empty);
                    }
                    cpu.unlock(lock);
                }
                cpu.barrier(barrier);
                // After the barrier, each thread sees the stores of all.
                let total = sums.get(cpu, 2) + sums.get(cpu, 3);
                assert_eq!(total, items * (items + 1));
                cpu.barrier(barrier);
            };
            let threads = (0..4).map(|thread| Coroutine::new(thread, 4, Recording::Off, body));
            let (image, synchronisation) = memory.into_parts();
            let mut machine =
                Reference::new(&image, &synchronisation, threads.collect(), order, seed);
            machine.run().unwrap();
        }
    }
}

fn machine(memory: &Allocator, codes: &[Code]) -> Reference {
    Reference::new(
        memory.image(),
        memory.synchronisation(),
        threads(codes),
        Order::Sequential,
        1,
    )
    .with_limit(10_000)
}

fn run(memory: &Allocator, codes: &[Code]) -> Result<(), ReferenceError> {
    machine(memory, codes).run().map(drop)
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let mut memory = memory();
    memory.locks(3);
    memory.barrier(3);
    memory.condition();
    use outlive_machine::program::{BarrierId, ConditionId};
    let error = run(
        &memory,
        &[
            |cpu| {
                cpu.lock(LockId(0));
                cpu.lock(LockId(0));
            },
            |cpu| {
                cpu.lock(LockId(1));
                cpu.wait(ConditionId(0), LockId(1));
            },
            |cpu| cpu.barrier(BarrierId(0)),
            |cpu| cpu.lock(LockId(2)),
            |cpu| {
                // Whichever of the two takes it first keeps it forever.
                cpu.lock(LockId(2));
            },
        ],
    );
    let said = error.unwrap_err().to_string();
    for part in [
        "deadlock: thread 0 waits for lock 0, which thread 0 has; ",
        "thread 1 waits for a signal of condition 0; ",
        "thread 2 waits at barrier 0, where 1 of 3 have arrived; ",
        "waits for lock 2, which thread ",
        "has, but that thread has ended",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    // The exhaustive search finds the one order among many that deadlocks.
    let threads = threads(&[
        |cpu| {
            cpu.lock(LockId(0));
            cpu.lock(LockId(1));
            cpu.unlock(LockId(1));
            cpu.unlock(LockId(0));
        },
        |cpu| {
            cpu.lock(LockId(1));
            cpu.lock(LockId(0));
            cpu.unlock(LockId(0));
            cpu.unlock(LockId(1));
        },
    ]);
    let error = outcomes(
        memory.image(),
        memory.synchronisation(),
        threads,
        Order::Sequential,
    );
    assert!(
        matches!(error, Err(ReferenceError::Deadlock(_))),
        "{error:?}"
    );
}

#[test]
fn programs_that_do_what_they_must_not() {
    let mut memory = memory();
    memory.lock();
    let error = run(&memory, &[|cpu| cpu.store(Word(16), 1)]).unwrap_err();
    assert!(
        matches!(error, ReferenceError::Outside { words: 16, .. }),
        "{error}"
    );
    let error = run(&memory, &[|cpu| cpu.lock(LockId(1))]).unwrap_err();
    assert!(
        matches!(error, ReferenceError::NoSuchObject { .. }),
        "{error}"
    );
    let error = run(&memory, &[|cpu| cpu.unlock(LockId(0))]).unwrap_err();
    assert!(matches!(error, ReferenceError::NotOwner { .. }), "{error}");
    // Recorded threads may unlock locks of others.
    let unlocks: &[Code] = &[|cpu| cpu.unlock(LockId(0))];
    let mut machine = machine(&memory, unlocks).with_locks_of_others();
    assert_eq!(machine.run().map(|counts| counts.instructions()), Ok(1));
    let spins: Code = |cpu| while cpu.load(X) == 0 {};
    assert_eq!(
        run(&memory, &[spins]),
        Err(ReferenceError::Limit { limit: 10_000 })
    );
}

#[test]
fn operations_and_touched_lines_are_counted() {
    let memory = memory();
    let own = |cpu: &mut Cpu<'_>| {
        let own = Word(8 * cpu.thread() as u64 % 8);
        cpu.compute(5);
        cpu.private_store(0);
        cpu.private_load(0);
        cpu.load(own);
        cpu.store(own, 1);
        cpu.atomic(own, Update::Add(1));
    };
    let count = |threads: usize| {
        let all = (0..threads).map(|thread| Coroutine::new(thread, threads, Recording::Off, own));
        Reference::new(
            memory.image(),
            memory.synchronisation(),
            all.collect(),
            Order::Sequential,
            1,
        )
        .run()
        .unwrap()
    };
    let alone = count(1);
    assert_eq!(alone.instructions(), 10);
    assert_eq!(alone.store_fraction(), 0.5);
    assert_eq!(alone.shared_store_fraction(), 0.0);
    let together = count(2);
    assert_eq!(together.instructions(), 20);
    assert_eq!(together.shared_store_fraction(), 4.0 / 6.0);
}
