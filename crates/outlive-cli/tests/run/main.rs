//! `outlive run` and what belongs to it: each program, kills, elastic pools, launchers.

#[path = "../support/mod.rs"]
mod support;

mod blackscholes;
mod counts;
mod dedup;
mod elastic;
mod failures;
mod files;
mod histogram;
mod kmeans;
mod launchers;
mod matmul;
mod output;
mod pagerank;
mod pipes;
mod processes;
mod resize;
mod spares;
