//! PostgreSQL.

use crate::rows::{Row, assert_judged, survive};
use crate::servers::{Place, Program, Server, words};
use std::process::Command;

struct Postgres;

impl Program for Postgres {
    fn needs(&self) -> Vec<&'static str> {
        vec!["initdb", "postgres", "ipcrm"]
    }

    fn prepare(&self, place: &Place) -> Option<Vec<String>> {
        let data = place.path("data");
        let options = "--username=litmus --auth=trust --encoding=UTF8 --locale=C --no-sync";
        Some(words(&format!("initdb --pgdata={data} {options}")))
    }

    fn serve(&self, place: &Place) -> Vec<String> {
        let (data, port) = (place.path("data"), place.port);
        words(&format!(
            "postgres -D {data} -p {port} -c listen_addresses=127.0.0.1 \
             -c unix_socket_directories= -c dynamic_shared_memory_type=mmap \
             -c deadlock_timeout=10ms -c wal_writer_delay=10s"
        ))
    }

    fn target(&self, place: &Place) -> String {
        format!("postgres://litmus@127.0.0.1:{}/postgres", place.port)
    }

    /// Removes the shared memory segment by which a server recognises others on its data. Its
    /// identifier is the second number of the seventh line of this file.
    fn clean(&self, place: &Place) {
        let file = std::fs::read_to_string(place.path("data/postmaster.pid")).unwrap_or_default();
        let line = file.lines().nth(6).unwrap_or_default();
        if let Some(segment) = line.split_whitespace().nth(1) {
            let _ = Command::new("ipcrm").args(["-m", segment]).status();
        }
    }
}

#[test]
fn levels() {
    let Some(server) = Server::start(Postgres) else {
        return;
    };
    for parameters in ["read-committed", "repeatable-read", "serializable"] {
        let row = Row {
            name: parameters,
            level: "none",
            violated: &[],
            permitted: &[],
        };
        let driver = server.driver(&format!("isolation={parameters}"));
        let result = std::panic::catch_unwind(|| assert_judged(&driver, &row));
        eprintln!("{}", result.is_ok());
    }
}

#[test]
fn acknowledged_writes() {
    let Some(server) = Server::start(Postgres) else {
        return;
    };
    let survival = survive(&server.driver("synchronous_commit=off"), &server, 10);
    assert!(survival.lost.is_some(), "{survival:?}");
    let survival = survive(&server.driver("synchronous_commit=on"), &server, 5);
    assert_eq!(survival.lost, None);
}
