//! Compute servers are stopped in good order, or fenced.

use super::LIMIT;
use super::harness::{Place, Server};
use outlive::membership::{ProcessOptions, Status};
use outlive_store::protocol::TransactionError;
use outlive_store::servers::{Stopped, Store, StoreError, StoreOptions};
use outlive_store::verbs::block_on;
use std::io::BufRead;
use std::time::{Duration, Instant};

/// Returns a store with two memory servers.
fn served(name: &str) -> (Place, Store, [Server; 2]) {
    let (place, store) = Place::new(name, StoreOptions::new());
    let memory = [(); 2].map(|()| Server::start("memory", &place.0).0);
    (place, store, memory)
}

#[test]
fn a_stop_ends_all_compute_servers_and_leaves_no_log() {
    let (place, store, _memory) = served("stop");
    let (mut first, _) = Server::start("transact", &place.0);
    let (mut second, _) = Server::start("transact", &place.0);
    std::thread::scope(|scope| {
        for output in [&mut first.output, &mut second.output] {
            scope.spawn(move || std::io::copy(output, &mut std::io::sink()));
        }
        let begin = Instant::now();
        while store.check().unwrap().keys < 2 && begin.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stopped = store.stop(LIMIT, false);
        let compute = store.status().compute;
        let logs = store.configuration().log_owners().count();
        let checked = store.check();
        if stopped.is_err() {
            // The threads that read the outputs end with the processes.
            let _ = (first.child.kill(), second.child.kill());
        }
        let stopped = stopped.unwrap();
        assert_eq!((stopped.ended, stopped.fenced), (2, 0));
        assert_eq!((compute, logs), (Vec::new(), 0));
        let checked = checked.unwrap();
        assert!(checked.problems.is_empty(), "{checked:?}");
        let latches = checked.stray + checked.held;
        assert_eq!((checked.keys, latches, checked.unrecovered), (2, 0, 0));
    });
    assert!(first.child.wait().unwrap().success());
    assert!(second.child.wait().unwrap().success());
}

#[test]
fn nothing_begins_during_a_stop_and_all_is_possible_after_it() {
    let (_place, store, _memory) = served("stop-again");
    let compute = store.join_compute().unwrap();
    let table = compute.table::<u64>("t", 10).unwrap();
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let put = coordinator.transaction(async |tx| tx.put(table, 1, &7).await);
    block_on(put).unwrap();
    std::thread::scope(|scope| {
        // The stop waits until this compute server has left.
        let stopping = scope.spawn(|| store.stop(LIMIT, false));
        while !compute.is_stopping() {
            assert!(!stopping.is_finished(), "the stop was not noticed");
        }
        let read = coordinator.transaction(async |tx| tx.read(table, 1).await);
        assert_eq!(block_on(read), Err(TransactionError::Stopping));
        let refused = store.join_compute().unwrap_err();
        assert!(matches!(refused, StoreError::Stopping), "{refused}");
        let again = store.stop(Duration::ZERO, false).unwrap_err();
        assert!(matches!(again, StoreError::Stopping), "{again}");
        drop((coordinator, compute));
        assert_eq!(stopping.join().unwrap().unwrap().ended, 1);
    });
    assert_eq!(store.stop(Duration::MAX, true).unwrap(), Stopped::default());

    let compute = store.join_compute().unwrap();
    let error = store.stop(Duration::ZERO, false).unwrap_err();
    let live = [compute.instance()];
    assert!(
        matches!(&error, StoreError::NotStopped { servers, .. } if *servers == live),
        "{error}"
    );
    let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
    let read = coordinator.transaction(async |tx| tx.read(table, 1).await);
    assert_eq!(block_on(read).unwrap().value, Some(7));
}

#[test]
fn a_stop_fences_the_compute_servers_that_do_not_leave() {
    let (place, store, _memory) = served("stop-fence");
    // It executes no transactions, so it does not learn of the stop.
    let (mut idle, _) = Server::start("compute", &place.0);
    // It is stopped by a signal in the middle of a transaction, or between two.
    let (mut stuck, _) = Server::start("transact", &place.0);
    let mut line = String::new();
    for _ in 0..20 {
        stuck.output.read_line(&mut line).unwrap();
    }
    stuck.stop();
    let stopped = store.stop(Duration::from_millis(50), true).unwrap();
    // The stopped server can also be suspected and fenced before this stop fences it.
    assert!(
        stopped.fenced >= 1 && stopped.ended + stopped.fenced == 2,
        "{stopped:?}"
    );
    assert!(!idle.child.wait().unwrap().success());
    assert!(store.status().recoveries > 0, "{:?}", store.status());
    let checked = store.check().unwrap();
    assert!(checked.problems.is_empty(), "{checked:?}");
    assert_eq!((checked.held, checked.unrecovered), (0, 0));
}

#[test]
fn transactions_begin_again_when_the_process_that_stops_them_dies() {
    let (place, store, _memory) = served("stop-dies");
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
    // The claim of the dead process does not prevent another stop.
    let error = store.stop(Duration::ZERO, false).unwrap_err();
    assert!(matches!(error, StoreError::NotStopped { .. }), "{error}");
    let put = coordinator.transaction(async |tx| tx.put(table, 1, &1).await);
    block_on(put).unwrap();
}

/// A member of the pod that is not one of the store recovers the logs of dead members, and leaves
/// their entries in the store's configuration.
#[test]
fn a_claim_that_a_foreign_member_has_left_is_released() {
    let (place, store, memory) = served("stop-foreign");
    let (idle, _) = Server::start("compute", &place.0);
    let stopper = Server::spawn("stop", &place.0);
    let begin = Instant::now();
    while store.configuration().stopper().is_none() {
        assert!(begin.elapsed() < LIMIT, "no stop has begun");
    }
    let (status, claimant) = (store.status(), store.configuration().stopper());
    let memory_owners = status.memory.iter().filter_map(|it| it.owner);
    let owners = memory_owners.chain(status.compute.iter().map(|it| it.owner));
    let dead: Vec<_> = owners.chain(claimant).map(|it| it.id).collect();
    assert_eq!(dead.len(), 4);
    let [one, two] = memory;
    let all = [one, two, idle, stopper];
    // All are stopped first, so that no survivor recovers another.
    all.iter().for_each(Server::stop);
    all.into_iter().for_each(Server::kill);
    let foreign = store.pod().join(ProcessOptions::on_own_host()).unwrap();
    let is_recovered = || {
        let members = store.pod().status().members.into_iter();
        let mut all = members.filter(|it| dead.contains(&it.id));
        all.all(|it| it.state.status == Status::Recovered)
    };
    while !is_recovered() {
        assert!(begin.elapsed() < LIMIT, "{:?}", store.pod().status());
    }
    foreign.leave().unwrap();
    assert!(store.configuration().stopper().is_some());
    store.stop(Duration::ZERO, false).unwrap();
    assert_eq!(store.configuration().stopper(), None);
}
