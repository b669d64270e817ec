//! Redis. Single commands isolate nothing and cannot be rolled back; `WATCH` and scripts are
//! strictly serializable. Acknowledged writes survive a crash only if each is written to the log.

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
        let server = format!("redis-server --port {} --bind 127.0.0.1", place.port);
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
        format!("redis://127.0.0.1:{}", place.port)
    }
}

/// The tests that fail with single commands: all but those with aborts, which are not applicable,
/// and those of real time, because each command is atomic.
const PLAIN: &[&str] = &[
    "litmus-1",
    "litmus-1-opposite",
    "litmus-1-insert-delete",
    "litmus-1-write-insert-delete",
    "litmus-1-delete-insert",
    "litmus-1-three-objects",
    "litmus-1-three-transactions",
    "dirty-write",
    "litmus-2",
    "litmus-2-delete-insert",
    "litmus-2-four-objects",
    "litmus-2-three-transactions",
    "lost-update",
    "lost-update-three",
    "lost-write",
    "unrepeatable-read",
    "read-skew",
    "read-skew-write",
    "read-skew-delete",
    "observed-transaction-vanishes",
    "long-fork",
    "write-skew",
    "write-skew-both",
    "write-skew-delete",
    "write-skew-three",
    "read-only-anomaly",
    "litmus-3",
    "litmus-3-delete-insert",
    "litmus-3-insert-delete",
    "litmus-3-three-followers",
    "litmus-3-two-counters",
    "circular-information-flow",
    "circular-information-flow-three",
    "overwritten-by-the-seen",
    "intermediate-read",
    "intermediate-insert",
    "intermediate-delete",
    "intermediate-insert-counted",
    "litmus-2-insert-delete",
    "predicate-many-preceders",
    "predicate-many-preceders-delete",
    "partial-count",
    "predicate-write-skew",
    "predicate-write-skew-delete",
    "absence-write-skew",
    "real-time-write-skew",
];

#[test]
fn single_commands() {
    let Some(server) = Server::start(Redis(None)) else {
        return;
    };
    let row = Row {
        parameters: "mode=plain",
        level: "none",
        violated: &[PLAIN],
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
