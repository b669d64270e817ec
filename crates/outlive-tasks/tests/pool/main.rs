//! Worker pools: their jobs, data, sizes and failures, on threads and processes.

mod support;

mod damaged;
mod elastic;
mod full;
mod mended;
mod poison;
mod removal;
mod requests;
mod setback;
mod threads;
mod unable;
mod waiting;
