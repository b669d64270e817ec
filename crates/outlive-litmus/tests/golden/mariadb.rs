//! MariaDB.

use crate::rows::{Row, assert_judged};
use crate::servers::{Place, Program, Server, words};

pub struct Mariadb;

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
        let (data, socket, port) = (place.path("data"), place.path("socket"), place.port);
        words(&format!(
            "mariadbd --no-defaults --datadir={data} --socket={socket} --port={port} \
             --bind-address=127.0.0.1 --skip-name-resolve"
        ))
    }

    fn target(&self, place: &Place) -> String {
        format!("mariadb://root@127.0.0.1:{}/test", place.port)
    }
}

#[test]
fn levels() {
    let Some(server) = Server::start(Mariadb) else {
        return;
    };
    for parameters in [
        "read-uncommitted",
        "read-committed",
        "repeatable-read&innodb_snapshot_isolation=off",
        "repeatable-read&innodb_snapshot_isolation=on",
        "serializable",
    ] {
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
