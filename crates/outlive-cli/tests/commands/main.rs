//! The other commands: pods, stores, checks and repair, limits, help and reports.

#[path = "../support/mod.rs"]
mod support;

mod help;
mod json;
mod limits;
mod litmus;
mod litmus_history;
mod litmus_runs;
mod objects;
mod pod;
mod pool;
mod repair;
mod seccomp;
mod store;
mod store_driver;
mod store_kills;
mod store_rows;
mod watch;
