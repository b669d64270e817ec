//! MariaDB.

use crate::phenomena::{ABORTED_READ, DIRTY_READ, LOST_UPDATE, READ_SKEW, WRITE_SKEW};
use crate::rows::Row;
use crate::served::{assert_judged, assert_no_halves, survive};
use crate::servers::{Place, Program, Server, words};

struct Mariadb {
    /// The setting `innodb_flush_log_at_trx_commit`: 0 writes the log once a second, 1 with each
    /// commit, 2 with each commit to the kernel's cache, which survives a kill.
    flush: u8,
}

impl Program for Mariadb {
    fn needs(&self) -> Vec<&'static str> {
        vec!["mariadb-install-db", "mariadbd"]
    }

    fn prepare(&self, place: &Place) -> Option<Vec<String>> {
        let data = place.path("data");
        let options = "--auth-root-authentication-method=normal --skip-name-resolve";
        Some(words(&format!(
            "mariadb-install-db --no-defaults --datadir={data} {options}"
        )))
    }

    fn serve(&self, place: &Place) -> Vec<String> {
        let (data, socket, port) = (place.path("data"), place.path("socket"), place.port());
        let flush = self.flush;
        words(&format!(
            "mariadbd --no-defaults --datadir={data} --socket={socket} --port={port} \
             --bind-address=127.0.0.1 --skip-name-resolve \
             --innodb-flush-log-at-trx-commit={flush}"
        ))
    }

    fn target(&self, place: &Place) -> String {
        format!("mariadb://root@127.0.0.1:{}/test", place.port())
    }
}

const ROWS: &[Row] = &[
    Row {
        parameters: "isolation=read-uncommitted",
        level: "strict-read-uncommitted",
        violated: &[WRITE_SKEW, LOST_UPDATE, READ_SKEW, DIRTY_READ, ABORTED_READ],
        permitted: &[],
    },
    Row {
        parameters: "isolation=read-committed",
        level: "strict-read-committed",
        violated: &[WRITE_SKEW, LOST_UPDATE, READ_SKEW],
        permitted: &[],
    },
    Row {
        parameters: "isolation=repeatable-read&innodb_snapshot_isolation=off",
        level: "strict-read-committed",
        violated: &[WRITE_SKEW, LOST_UPDATE],
        permitted: &[],
    },
    Row {
        parameters: "isolation=repeatable-read&innodb_snapshot_isolation=on",
        level: "strict-snapshot",
        violated: &[WRITE_SKEW],
        permitted: LOST_UPDATE,
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
    if let Some(server) = Server::start(Mariadb { flush: 1 }) {
        assert_judged(&server, ROWS);
    }
}

#[test]
fn acknowledged_writes() {
    for flush in [0, 1, 2] {
        let Some(server) = Server::start(Mariadb { flush }) else {
            return;
        };
        let survival = survive(&server, "", 5);
        assert_eq!(survival.lost.is_some(), flush == 0, "{survival:?}");
    }
}

#[test]
fn no_half_of_a_transaction_survives_a_kill() {
    if let Some(server) = Server::start(Mariadb { flush: 1 }) {
        assert_no_halves(&server, "isolation=serializable");
    }
}
