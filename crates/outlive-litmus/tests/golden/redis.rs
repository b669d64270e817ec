//! Redis. Single commands isolate nothing and cannot be rolled back; `WATCH` and scripts are
//! strictly serializable. Acknowledged writes survive a crash only if each is written to the log.

use crate::phenomena::{DIRTY_READ, LOST_UPDATE, READ_SKEW, WRITE_SKEW};
use crate::rows::Row;
use crate::served::{assert_judged, survive};
use crate::servers::{Place, Program, Server, words};
use outlive_litmus::driver::StepError;
use outlive_litmus::run::Outage;

/// A server with this value of `appendfsync`, or without a log.
struct Redis(Option<&'static str>);

impl Program for Redis {
    fn needs(&self) -> Vec<&'static str> {
        vec!["redis-server"]
    }

    fn prepare(&self, _place: &Place) -> Option<Vec<String>> {
        None
    }

    fn serve(&self, place: &Place) -> Vec<String> {
        let server = format!("redis-server --port {} --bind 127.0.0.1", place.port());
        match self.0 {
            None => {
                let mut command = words(&format!("{server} --appendonly no --save"));
                // No snapshots.
                command.push(String::new());
                command
            }
            Some(fsync) => words(&format!("{server} --appendonly yes --appendfsync {fsync}")),
        }
    }

    fn target(&self, place: &Place) -> String {
        format!("redis://127.0.0.1:{}", place.port())
    }
}

/// The tests of direct writes, which fail with single commands. With these, all tests fail except
/// those with aborts, which are not applicable, and most of those of real time, since each command
/// is atomic.
const DIRECT_WRITE: &[&str] = &[
    "litmus-1",
    "litmus-1-opposite",
    "litmus-1-insert-delete",
    "litmus-1-write-insert-delete",
    "litmus-1-delete-insert",
    "litmus-1-three-objects",
    "litmus-1-three-transactions",
    "dirty-write",
    "overwritten-by-the-seen",
];

#[test]
fn single_commands() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    let row = Row {
        parameters: "mode=plain",
        level: "none",
        violated: &[DIRECT_WRITE, WRITE_SKEW, LOST_UPDATE, READ_SKEW, DIRTY_READ],
        permitted: &[],
    };
    assert_judged(&server, &[row]);
}

#[test]
fn transactions() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    let row = |parameters| Row {
        parameters,
        level: "strict-serializable",
        violated: &[],
        permitted: &[],
    };
    assert_judged(&server, &["mode=watch", "mode=lua"].map(row));
}

#[test]
fn acknowledged_writes() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    let survival = survive(&server, "mode=lua", 5);
    assert!(survival.lost.is_some(), "{survival:?}");
    drop(server);
    let server = Server::start(Redis(Some("always"))).expect("it has started before");
    for mode in ["plain", "watch", "lua"] {
        let survival = survive(&server, &format!("mode={mode}"), 5);
        assert_eq!((survival.kills, survival.lost), (5, None));
    }
}

#[test]
fn keys_of_another_user_are_refused_and_kept() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    let driver = server.driver("");
    driver.set(&[(5, Some(50))]).unwrap();
    let problem = driver.create().unwrap_err().problem;
    assert!(problem.contains("has keys `outlive_litmus:*`"), "{problem}");
    let mut client = driver.connect().unwrap();
    client.begin().unwrap();
    assert_eq!(client.read(5), Ok(Some(50)));
}

#[test]
fn a_commit_without_an_answer_is_unknown() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    for mode in ["mode=watch", "mode=lua"] {
        let driver = server.driver(mode);
        driver.set(&[(1, Some(10))]).unwrap();
        let mut client = driver.connect().unwrap();
        client.begin().unwrap();
        client.write(1, 11).unwrap();
        server.kill().unwrap();
        assert!(matches!(client.commit(), Err(StepError::Lost(_))));
        server.recover().unwrap();
    }
}
