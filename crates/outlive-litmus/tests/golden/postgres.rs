//! PostgreSQL.

use crate::phenomena::{LOST_UPDATE, READ_SKEW, WRITE_SKEW};
use crate::rows::Row;
use crate::served::{assert_judged, assert_no_halves, survive};
use crate::servers::{Place, Program, Server, words};
use std::process::Command;

struct Postgres {
    /// Whether commits are written to the disk, and not only to the kernel's cache.
    fsync: bool,
}

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
        let (data, port) = (place.path("data"), place.port());
        let fsync = if self.fsync { "on" } else { "off" };
        words(&format!(
            "postgres -D {data} -p {port} -c listen_addresses=127.0.0.1 \
             -c unix_socket_directories= -c dynamic_shared_memory_type=mmap \
             -c deadlock_timeout=10ms -c wal_writer_delay=10s -c fsync={fsync}"
        ))
    }

    fn target(&self, place: &Place) -> String {
        format!("postgres://litmus@127.0.0.1:{}/postgres", place.port())
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

const ROWS: &[Row] = &[
    Row {
        parameters: "isolation=read-committed",
        level: "strict-read-committed",
        violated: &[WRITE_SKEW, LOST_UPDATE, READ_SKEW],
        permitted: &[],
    },
    Row {
        parameters: "isolation=repeatable-read",
        level: "strict-snapshot",
        violated: &[WRITE_SKEW],
        permitted: &[],
    },
    Row {
        parameters: "isolation=serializable",
        level: "strict-serializable",
        violated: &[],
        permitted: &[],
    },
];

#[test]
fn levels() {
    if let Some(server) = Server::start(Postgres { fsync: true }) {
        assert_judged(&server, ROWS);
    }
}

#[test]
fn acknowledged_writes() {
    let Some(server) = Server::start(Postgres { fsync: true }) else {
        return;
    };
    let survival = survive(&server, "synchronous_commit=off", 10);
    assert!(survival.lost.is_some(), "{survival:?}");
    let survival = survive(&server, "synchronous_commit=on", 5);
    assert_eq!(survival.lost, None, "{survival:?}");
    drop(server);
    // The kernel's cache survives its processes.
    let server = Server::start(Postgres { fsync: false }).expect("it has started before");
    let survival = survive(&server, "synchronous_commit=on", 3);
    assert_eq!(survival.lost, None, "{survival:?}");
}

#[test]
fn no_half_of_a_transaction_survives_a_kill() {
    if let Some(server) = Server::start(Postgres { fsync: true }) {
        assert_no_halves(&server, "isolation=serializable");
    }
}
