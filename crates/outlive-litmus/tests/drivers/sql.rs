//! Targets of databases with servers. The tests in `tests/golden` start the servers.

use outlive_litmus::driver;

fn refusal(target: &str) -> String {
    driver::open(target).err().unwrap().to_string()
}

/// Returns the error of a server that does not exist: nothing listens on port 1.
fn failure(target: &str) -> String {
    let driver = driver::open(target).unwrap();
    driver.create().unwrap_err().to_string()
}

#[cfg(feature = "postgres")]
#[test]
fn targets_of_postgres_are_checked() {
    let target = "postgres://me@127.0.0.1:1/db?isolation=snapshot";
    assert!(refusal(target).contains("is not one of read-committed, repeatable-read"));
    assert!(refusal("postgres://me@127.0.0.1:port/db").contains("write `postgres://USER@HOST"));
    assert!(refusal("postgres://me@127.0.0.1:1/db?sslmode=on").contains("is unknown"));
    let failure = failure("postgres://me@127.0.0.1:1/db?synchronous_commit=off");
    assert!(failure.contains("error connecting"), "{failure}");
}

#[cfg(feature = "mariadb")]
#[test]
fn targets_of_mariadb_are_checked() {
    assert!(refusal("mariadb://me@127.0.0.1:1/db?isolation=none").contains("is not one of"));
    assert!(refusal("mariadb://me@127.0.0.1:1").contains("names no database"));
    assert!(refusal("mariadb://me@127.0.0.1:port/db").contains("write `mariadb://USER@HOST"));
    assert!(refusal("mariadb://me@127.0.0.1:1/db?wait=1").contains("known are isolation"));
    let failure = failure("mariadb://me@127.0.0.1:1/db?lock_wait=0");
    assert!(failure.contains("MariaDB"), "{failure}");
}
