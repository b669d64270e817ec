//! `outlive run`: its programs, and the failures, pipes and processes of a run.

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
mod matmul;
mod output;
mod pagerank;
mod pipes;
mod processes;
mod spares;
