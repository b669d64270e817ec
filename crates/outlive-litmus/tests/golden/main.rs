//! The golden table: databases are judged at exactly the levels that they are known to give, and
//! lose acknowledged writes in a crash exactly where their settings permit it.
//!
//! Each test starts a server that is installed on this machine, and is skipped with a message
//! otherwise. docs/litmus.md has the table.
#![cfg(any(
    feature = "etcd",
    feature = "lmdb",
    feature = "mariadb",
    feature = "postgres",
    feature = "redis"
))]

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "mariadb")]
mod mariadb;
#[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis"))]
mod phenomena;
#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "redis"
))]
mod ports;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod rows;
#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "redis"
))]
mod served;
#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "redis"
))]
mod servers;
#[cfg(feature = "sqlite")]
mod sqlite;
