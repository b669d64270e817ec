//! Transactions on mapped memory, in one process.

mod support;

use outlive_store::protocol::{
    Abort, Conflict, Outcome, Protocol, Retry, Table, TransactionError, Worker,
};
use outlive_store::servers::{Behind, Members, Store, StoreError, StoreOptions};
use outlive_store::tables::{Geometry, TransactionId};
use outlive_store::verbs::{Link, block_on};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use support::{World, put, read};

impl World {
    /// A store with this protocol and two memory servers.
    fn with(protocol: Protocol, name: &str) -> Self {
        let options = StoreOptions::new().protocol(protocol);
        Self::new(&format!("{name}-{protocol}"), 2, options)
    }

    /// A worker whose verbs are not complete when they are posted.
    fn worker_behind_link(&self) -> Rc<Worker<Members<Behind>>> {
        let link = Link {
            round_trip: Duration::from_micros(20),
            ..Link::default()
        };
        self.compute().worker_behind(link, 1).unwrap()
    }
}

#[test]
fn a_transaction_sees_its_own_writes() {
    Protocol::ALL.into_iter().for_each(see_own_writes);
}

fn see_own_writes(protocol: Protocol) {
    let world = World::with(protocol, "own");
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    let done = coordinator.transaction(async |tx| {
        assert_eq!(tx.read(table, 1).await?, None);
        assert!(!tx.write(table, 1, &5).await?);
        assert!(tx.insert(table, 1, &10).await?);
        assert!(!tx.insert(table, 1, &11).await?);
        assert_eq!(tx.read(table, 1).await?, Some(10));
        assert_eq!(tx.update(table, 1, |it| it + 1).await?, Some(10));
        assert_eq!(tx.delete(table, 1).await?, Some(11));
        assert_eq!(tx.read(table, 1).await?, None);
        assert!(tx.insert(table, 1, &20).await?);
        assert!(tx.insert(table, 2, &30).await?);
        Ok(())
    });
    block_on(done).unwrap();
    assert_eq!(read(&mut coordinator, table, 1), Some(20));
    let done = coordinator.transaction(async |tx| {
        assert_eq!(tx.delete(table, 2).await?, Some(30));
        assert!(tx.insert(table, 2, &31).await?);
        tx.write(table, 1, &21).await?;
        Err::<(), _>(tx.abort())
    });
    let aborted = block_on(done).unwrap_err();
    assert_eq!(aborted, TransactionError::Aborted(Abort::User));
    assert_eq!(read(&mut coordinator, table, 1), Some(20));
    assert_eq!(read(&mut coordinator, table, 2), Some(30));
    let checked = world.store.check().unwrap();
    assert_eq!((checked.keys, checked.held), (2, 0));
    assert!(checked.problems.is_empty(), "{checked:?}");
}

#[test]
fn keys_are_inserted_and_deleted_until_the_table_is_full() {
    let world = World::new("full", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 1000).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    for round in 0..3 {
        let mut inserted = 0;
        let full = loop {
            let key = round << 32 | inserted;
            let done = coordinator.transaction(async |tx| tx.insert(table, key, &key).await);
            match block_on(done) {
                Ok(done) => assert!(done.value),
                Err(error) => break error,
            }
            inserted += 1;
        };
        assert_eq!(
            full,
            TransactionError::Aborted(Abort::TableFull { table: 0 })
        );
        assert!(inserted > 1000, "{inserted} keys in round {round}");
        for key in 0..inserted {
            let key = round << 32 | key;
            let done = coordinator.transaction(async |tx| tx.delete(table, key).await);
            assert_eq!(block_on(done).unwrap().value, Some(key));
        }
        let checked = world.store.check().unwrap();
        assert_eq!((checked.keys, checked.extra), (0, 0));
        assert!(checked.problems.is_empty(), "{checked:?}");
    }
}

/// In each round, the keys of another main bucket fill all extra buckets of its partition.
#[test]
fn buckets_of_deleted_keys_are_used_for_the_next_keys() {
    let world = World::new("chains", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 1000).unwrap();
    let geometry = Geometry::for_keys(1000, 1, 16);
    let of_bucket = |bucket| (0..).filter(move |key| geometry.home(*key) == (3, bucket));
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    for round in 0..100 {
        let bucket = round % geometry.main;
        let mut inserted = Vec::new();
        for key in of_bucket(bucket) {
            let done = coordinator.transaction(async |tx| tx.insert(table, key, &key).await);
            match block_on(done) {
                Ok(done) => assert!(done.value),
                Err(TransactionError::Aborted(Abort::TableFull { .. })) => break,
                Err(error) => panic!("{error}"),
            }
            inserted.push(key);
        }
        assert_eq!(inserted.len() as u32, (1 + geometry.extra) * 8);
        if round % 10 == 0 {
            let checked = world.store.check().unwrap();
            assert_eq!(checked.extra, geometry.extra.into());
            assert!(checked.problems.is_empty(), "{checked:?}");
        }
        // The chain loses its buckets at the front, at the end and in the middle.
        fastrand::Rng::with_seed(round.into()).shuffle(&mut inserted);
        for keys in inserted.chunks(3) {
            let done = coordinator.transaction(async |tx| {
                for key in keys {
                    assert_eq!(tx.delete(table, *key).await?, Some(*key));
                }
                Ok(())
            });
            block_on(done).unwrap();
        }
        let checked = world.store.check().unwrap();
        assert_eq!((checked.keys, checked.extra), (0, 0));
        assert!(checked.problems.is_empty(), "{checked:?}");
    }
}

/// Otherwise the other workers of the process would wait for the epoch without end.
#[test]
fn a_commit_of_ones_own_that_does_not_end_is_reported() {
    let mut world = World::new("unresolved", 3, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    let configuration = world.store.configuration();
    let own = TransactionId::new(world.compute().id().get(), 1, 1);
    assert!(configuration.enter_commit(0, own, configuration.epoch()));
    // A thread that panics may leave latches.
    let connection = world.compute().connect(world.memory[2].id()).unwrap();
    let panicked = std::thread::spawn(move || {
        let _connection = connection;
        panic!("leaves latches");
    });
    assert!(panicked.join().is_err());
    put(&mut coordinator, table, 1, 1);
    drop(world.memory.remove(0));
    let retry = Retry {
        deadline: Some(Duration::from_secs(60)),
        ..Retry::default()
    };
    let mut coordinator = coordinator.retry(retry);
    let done = coordinator.transaction(async |tx| tx.put(table, 1, &2).await);
    let error = block_on(done).unwrap_err();
    assert!(matches!(error, TransactionError::Unresolved), "{error}");
    configuration.leave_commit(0, own, false);
    put(&mut coordinator, table, 1, 3);
}

#[test]
fn what_is_impossible_is_refused() {
    let options = StoreOptions::new().compute_servers(1, 2).log_slot(384);
    let world = World::new("refused", 2, options);
    let compute = world.compute();
    let table = compute.table::<u64>("t", 100).unwrap();
    assert_eq!(
        compute.table::<u64>("t", 5).unwrap().number(),
        table.number()
    );
    let refused = |result: Result<Table<[u64; 3]>, StoreError>, why: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(
        compute.table("t", 100),
        "values of 8 bytes, but this program uses values of 24",
    );
    refused(compute.table("", 100), "1 to 32 bytes");
    refused(compute.table("u", 0), "1 to 8589934592 keys");
    refused(
        compute.table("u", 100_000_000),
        "start larger memory servers",
    );
    let large = compute.table::<[u64; 6]>("w", 9).unwrap_err().to_string();
    assert!(large.contains("large enough for 32"), "{large}");
    let worker = compute.worker().unwrap();
    let mut coordinator = worker.coordinator().unwrap();
    let _second = worker.coordinator().unwrap();
    let error = worker.coordinator().unwrap_err().to_string();
    assert!(error.contains("all 2 log slots"), "{error}");
    let done = coordinator.transaction(async |tx| {
        for key in 0..10 {
            tx.insert(table, key, &key).await?;
        }
        Ok(())
    });
    let error = block_on(done).unwrap_err().to_string();
    assert!(error.contains("its log slot has 48"), "{error}");
    assert_eq!(read(&mut coordinator, table, 0), None);
    let other = Store::open(&world.path).unwrap().join_compute().unwrap();
    let error = other.worker().unwrap_err().to_string();
    assert!(error.contains("1 compute servers have logs"), "{error}");
    drop((coordinator, _second, worker));
}

#[test]
fn an_attempt_that_is_dropped_or_panics_holds_no_latch() {
    Protocol::ALL.into_iter().for_each(drop_and_panic);
}

fn drop_and_panic(protocol: Protocol) {
    let world = World::with(protocol, "dropped");
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let worker = world.worker_behind_link();
    let mut one = worker.coordinator().unwrap();
    let retry = Retry {
        attempts: 1,
        pause: 0,
        ..Retry::default()
    };
    let mut other = worker.coordinator().unwrap().retry(retry);
    put(&mut one, table, 1, 0);
    put(&mut one, table, 2, 0);
    let whole = (0..21).map(|round| {
        let begin = Instant::now();
        let done = one.transaction(async |tx| {
            tx.update(table, 1, |_| 0).await?;
            tx.insert(table, 500 + round, &0).await?;
            tx.update(table, 2, |_| 0).await
        });
        block_on(done).unwrap();
        begin.elapsed()
    });
    // The median: on a busy machine, some take many times as long.
    let mut whole: Vec<Duration> = whole.collect();
    whole.sort_unstable();
    let whole = whole[whole.len() / 2];
    let (mut dropped, mut committed) = (0, 0);
    for round in 1..400 {
        let mut polls = 0;
        let body = one.transaction(async |tx| {
            tx.update(table, 1, |_| round).await?;
            tx.insert(table, 1000 + round, &round).await?;
            tx.update(table, 2, |_| round).await
        });
        let mut body = Box::pin(body);
        // At another moment each time; a third of the rounds wait for longer than a transaction has
        // taken on this machine.
        let mut context = Context::from_waker(Waker::noop());
        let end = Instant::now() + whole * (round % 60) as u32 / 40;
        while Instant::now() < end && polls >= 0 {
            polls = match body.as_mut().poll(&mut context) {
                Poll::Ready(done) => done.map(|_| -1).unwrap(),
                Poll::Pending => polls + 1,
            };
        }
        match polls {
            -1 => committed += 1,
            _ => dropped += 1,
        }
        drop(body);
        // A single attempt: no latch is left.
        let done = other.transaction(async |tx| {
            let found = (tx.read(table, 1).await?, tx.read(table, 2).await?);
            let is_inserted = tx.read(table, 1000 + round).await?.is_some();
            tx.write(table, 1, &0).await?;
            tx.write(table, 2, &0).await?;
            Ok((found, is_inserted))
        });
        let ((first, second), is_inserted) = block_on(done).unwrap().value;
        assert_eq!(first, second);
        assert_eq!(first == Some(round), is_inserted);
        assert!(is_inserted || polls >= 0, "a committed transaction is lost");
    }
    assert!(
        dropped > 20 && committed > 20,
        "{protocol}: {dropped} dropped, {committed} committed"
    );
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        block_on(one.transaction(async |tx| {
            tx.write(table, 1, &7).await?;
            panic!("in the middle");
            #[expect(unreachable_code)]
            Ok(())
        }))
    }));
    assert!(panicked.is_err());
    assert_eq!(read(&mut other, table, 1), Some(0));
}

#[test]
fn an_attempt_with_a_failed_or_dropped_access_is_not_committed() {
    let world = World::new("swallowed", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let worker = world.compute().worker_behind(Link::default(), 1).unwrap();
    let mut one = worker.coordinator().unwrap();
    let retry = Retry {
        attempts: 1,
        pause: 0,
        ..Retry::default()
    };
    let other = RefCell::new(worker.coordinator().unwrap().retry(retry));
    put(&mut one, table, 1, 0);
    let done = one.transaction(async |tx| {
        tx.write(table, 1, &1).await?;
        let mut other = other.borrow_mut();
        let inner = other.transaction(async |tx| {
            // The program ignores that the key is latched.
            let _ = tx.read(table, 1).await;
            tx.insert(table, 2, &2).await.map(drop).or(Ok(()))
        });
        let error = block_on(inner).unwrap_err();
        assert!(
            matches!(error, TransactionError::TooManyConflicts { .. }),
            "{error}"
        );
        Ok(())
    });
    block_on(done).unwrap();
    let mut other = other.borrow_mut();
    let inner = other.transaction(async |tx| {
        // The program stops waiting for an insertion after some polls.
        let mut inserting = Box::pin(tx.insert(table, 3, &3));
        for _ in 0..3 {
            let _ = inserting
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(inserting);
        Ok(())
    });
    let error = block_on(inner).unwrap_err();
    assert!(
        matches!(error, TransactionError::TooManyConflicts { .. }),
        "{error}"
    );
    assert_eq!(read(&mut one, table, 2), None);
    assert_eq!(read(&mut one, table, 3), None);
    let checked = world.store.check().unwrap();
    assert!(
        checked.problems.is_empty() && checked.held == 0,
        "{checked:?}"
    );
}

#[test]
fn conflicts_end_in_an_error_after_the_last_attempt() {
    let world = World::new("conflict", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let worker = world.compute().worker().unwrap();
    let mut one = worker.coordinator().unwrap();
    put(&mut one, table, 1, 0);
    let retry = Retry {
        attempts: 3,
        pause: 1,
        ..Retry::default()
    };
    let other = worker.coordinator().unwrap().retry(retry);
    let other = RefCell::new(other);
    let done = one.transaction(async |tx| {
        tx.write(table, 1, &1).await?;
        let holder = tx.id();
        let mut other = other.borrow_mut();
        let inner = other.transaction(async |tx| tx.read(table, 1).await);
        let error = block_on(inner).unwrap_err();
        let last = Conflict::Latched(holder);
        assert_eq!(
            error,
            TransactionError::TooManyConflicts { attempts: 3, last }
        );
        Ok(())
    });
    block_on(done).unwrap();
    assert_eq!(read(&mut other.borrow_mut(), table, 1), Some(1));
}

#[test]
fn a_deadline_ends_the_attempts() {
    let world = World::new("deadline", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 10).unwrap();
    let worker = world.compute().worker().unwrap();
    let mut holder = worker.coordinator().unwrap();
    put(&mut holder, table, 1, 1);
    let deadline = Some(Duration::from_millis(20));
    let retry = Retry {
        attempts: u32::MAX,
        deadline,
        ..Retry::default()
    };
    let other = RefCell::new(worker.coordinator().unwrap().retry(retry));
    let begin = Instant::now();
    let holding = holder.transaction(async |tx| {
        tx.write(table, 1, &2).await?;
        let mut other = other.borrow_mut();
        let refused = other.transaction(async |tx| tx.write(table, 1, &3).await);
        let refused = block_on(refused).map(|it| it.value);
        assert_eq!(refused, Err(TransactionError::DeadlineExceeded));
        Ok(())
    });
    block_on(holding).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(20));
    let mut other = other.into_inner();
    // A deadline that has not passed changes nothing.
    put(&mut other, table, 1, 4);
    assert_eq!(read(&mut other, table, 1), Some(4));
}

#[test]
fn transactions_go_on_after_the_loss_of_a_memory_server() {
    let mut world = World::new("loss", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    for key in 0..100 {
        put(&mut coordinator, table, key, key);
    }
    // The server leaves while the attempt holds a latch.
    let server = RefCell::new(Some(world.memory.remove(0)));
    let done = coordinator.transaction(async |tx| {
        tx.update(table, 1, |it| it + 1).await?;
        drop(server.take());
        tx.update(table, 2, |it| it + 1).await?;
        Ok(())
    });
    assert_eq!(block_on(done).unwrap().attempts, 2);
    for key in 0..100 {
        let expected = key + u64::from([1, 2].contains(&key));
        assert_eq!(read(&mut coordinator, table, key), Some(expected));
    }
    let store = world.store.clone();
    let checked = store.check().unwrap();
    assert_eq!(
        (checked.keys, checked.under_replicated(), checked.lost()),
        (100, 16, 0)
    );
    assert!(checked.problems.is_empty(), "{checked:?}");
    // A compute server that joins afterwards has one log server.
    let second = store.join_compute().unwrap();
    let mut other = second.worker().unwrap().coordinator().unwrap();
    put(&mut other, table, 1, 7);
    assert_eq!(read(&mut coordinator, table, 1), Some(7));
    drop((other, second));

    world.memory.clear();
    let error = block_on(coordinator.transaction(async |tx| tx.read(table, 1).await)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("and with them its keys"), "{text}");
}

#[test]
fn the_outcome_of_the_last_commit_is_known() {
    let world = World::new("outcome", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    let mut commit = || {
        let done = coordinator.transaction(async |tx| tx.put(table, 1, &1).await);
        block_on(done).unwrap().id
    };
    let (first, second) = (commit(), commit());
    let (store, server) = (&world.store, world.compute().instance());
    assert_eq!(store.outcome(server, second), Outcome::Committed);
    assert_eq!(store.outcome(server, first), Outcome::Unknown);
}

#[test]
fn the_outcomes_of_a_process_ids_next_owner_are_not_taken_for_those_of_the_first() {
    let mut world = World::new("owners", 2, StoreOptions::new());
    let store = world.store.clone();
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut first = None;
    for begun in [true, false] {
        if !begun {
            world.compute = Some(store.join_compute().unwrap());
        }
        let compute = world.compute.take().unwrap();
        let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
        let done = coordinator.transaction(async |tx| tx.put(table, 1, &1).await);
        let attempt = block_on(done).unwrap().id;
        let server = compute.instance();
        assert_eq!(compute.id().get(), 1);
        drop((coordinator, compute));
        assert_eq!(store.outcome(server, attempt), Outcome::Committed);
        if let Some((server, attempt)) = first.replace((server, attempt)) {
            // Its log area has another user.
            assert_eq!(store.outcome(server, attempt), Outcome::Unknown);
        }
    }
}

#[test]
fn a_future_that_is_dropped_while_it_ends_delays_no_epoch() {
    let mut world = World::new("ends", 2, StoreOptions::new());
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let worker = world.worker_behind_link();
    let mut one = worker.coordinator().unwrap();
    let other = RefCell::new(worker.coordinator().unwrap());
    put(&mut one, table, 1, 0);
    put(&mut one, table, 2, 0);
    let store = world.store.clone();
    let context = &mut Context::from_waker(Waker::noop());
    for micros in 0..2000 {
        // The attempt fails in its validation, when it is registered.
        let done = one.transaction(async |tx| {
            let value = tx.read(table, 1).await?.unwrap();
            tx.write(table, 2, &value).await?;
            put(&mut other.borrow_mut(), table, 1, value + 1);
            Ok(())
        });
        let mut done = Box::pin(done);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(micros % 400) {
            if done.as_mut().poll(context).is_ready() {
                break;
            }
        }
        drop(done);
        // No commit is registered in the present epoch, 0.
        assert!(store.configuration().is_settled(1), "after {micros} µs");
    }
    world.memory.remove(0);
    put(&mut other.borrow_mut(), table, 1, 7);
    assert_eq!(read(&mut one, table, 1), Some(7));
}

#[test]
fn money_is_conserved_by_threads_of_two_compute_servers() {
    const ACCOUNTS: u64 = 20;
    let world = World::new("threads", 2, StoreOptions::new());
    let second = Store::open(&world.path).unwrap().join_compute().unwrap();
    let table = world.compute().table::<u64>("t", 100).unwrap();
    let mut coordinator = world.compute().worker().unwrap().coordinator().unwrap();
    for account in 0..ACCOUNTS {
        put(&mut coordinator, table, account, 100);
    }
    std::thread::scope(|scope| {
        for number in 0..4 {
            let compute = if number % 2 == 0 {
                world.compute()
            } else {
                &second
            };
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
                for _ in 0..2000 {
                    let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
                    let done = coordinator.transaction(async |tx| {
                        let balance = tx.read(table, from).await?.unwrap();
                        if balance == 0 || from == to {
                            return Ok(());
                        }
                        tx.write(table, from, &(balance - 1)).await?;
                        tx.update(table, to, |it| it + 1).await?;
                        Ok(())
                    });
                    block_on(done).unwrap();
                }
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS)
        .filter_map(|it| read(&mut coordinator, table, it))
        .sum();
    assert_eq!(sum, ACCOUNTS * 100);
    let checked = world.store.check().unwrap();
    assert!(
        checked.problems.is_empty() && checked.held == 0,
        "{checked:?}"
    );
}
