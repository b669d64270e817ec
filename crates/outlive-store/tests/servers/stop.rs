//! Compute servers are stopped in good order, or fenced.

use super::harness::{Place, Server};
use super::{LIMIT, last_attempt};
use outlive_store::protocol::TransactionError;
use outlive_store::servers::{StoreError, StoreOptions};
use outlive_store::verbs::block_on;
use std::time::{Duration, Instant};

#[test]
fn a_stop_ends_all_compute_servers_and_leaves_no_log() {
    let (place, store) = Place::new("stop", StoreOptions::new());
    let _memory: Vec<_> = (0..2).map(|_| Server::start("memory", &place.0)).collect();
    let (mut first, _) = Server::start("transact", &place.0);
    let (mut second, _) = Server::start("transact", &place.0);
    std::thread::scope(|scope| {
        for server in [&mut first, &mut second] {
            scope.spawn(move || {
                let _ = last_attempt(server);
            });
        }
        let stopped = store.stop(LIMIT, false).unwrap();
        assert_eq!((stopped.ended, stopped.fenced), (2, 0));
    });
    assert!(first.child.wait().unwrap().success());
    assert!(second.child.wait().unwrap().success());
    let checked = store.check().unwrap();
    assert!(checked.problems.is_empty(), "{checked:?}");
    let latches = checked.stray + checked.held;
    assert_eq!((checked.keys, latches, checked.unrecovered), (2, 0, 0));
    assert_eq!(store.status().compute, []);

    // The store can be used again, and a compute server that does not leave is an error.
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let read = coordinator.transaction(async |tx| tx.read(table, 1).await);
    assert!(block_on(read).unwrap().value.is_some());
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| store.stop(Duration::from_millis(300), false));
        while !compute.is_stopping() {
            assert!(!stopping.is_finished(), "the stop was not noticed");
        }
        let read = coordinator.transaction(async |tx| tx.read(table, 1).await);
        assert_eq!(block_on(read), Err(TransactionError::Stopping));
        let refused = store.join_compute().unwrap_err();
        assert!(matches!(refused, StoreError::Stopping), "{refused}");
        let again = store.stop(Duration::ZERO, false).unwrap_err();
        assert!(matches!(again, StoreError::Stopping), "{again}");
        let error = stopping.join().unwrap().unwrap_err();
        let live = [compute.instance()];
        assert!(
            matches!(&error, StoreError::NotStopped { servers, .. } if *servers == live),
            "{error}"
        );
    });
    // Transactions begin again.
    let read = coordinator.transaction(async |tx| tx.read(table, 1).await);
    assert!(block_on(read).unwrap().value.is_some());
}

#[test]
fn a_stop_fences_the_compute_servers_that_do_not_leave() {
    let (place, store) = Place::new("stop-fence", StoreOptions::new());
    let _memory: Vec<_> = (0..2).map(|_| Server::start("memory", &place.0)).collect();
    // It executes no transactions, so it does not learn of the stop.
    let (mut deaf, _) = Server::start("compute", &place.0);
    // It is stopped by a signal in the middle of a transaction, or between two.
    let (stuck, _) = Server::start("transact", &place.0);
    stuck.stop();
    let stopped = store.stop(Duration::from_millis(50), true).unwrap();
    assert_eq!((stopped.ended, stopped.fenced), (0, 2));
    assert!(!deaf.child.wait().unwrap().success());
    let checked = store.check().unwrap();
    assert!(checked.problems.is_empty(), "{checked:?}");
    assert_eq!((checked.held, checked.unrecovered), (0, 0));
}

#[test]
fn transactions_begin_again_when_the_process_that_stops_them_dies() {
    let (place, store) = Place::new("stop-dies", StoreOptions::new());
    let _memory: Vec<_> = (0..2).map(|_| Server::start("memory", &place.0)).collect();
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let stopper = Server::spawn("stop", &place.0);
    let begin = Instant::now();
    while !compute.is_stopping() {
        assert!(begin.elapsed() < LIMIT, "the stop was not noticed");
    }
    stopper.kill();
    while compute.is_stopping() {
        assert!(begin.elapsed() < LIMIT, "the death was not noticed");
    }
    let put = coordinator.transaction(async |tx| tx.put(table, 1, &1).await);
    block_on(put).unwrap();
}
