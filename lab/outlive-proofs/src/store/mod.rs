//! Stores: verbs on every backend, and the servers' entries under kills and interleavings.

mod break_sweeps;
mod breaking;
mod catalogue_sweeps;
pub mod conformance;
mod epoch_scenarios;
pub mod interleavings;
mod litmus;
pub mod lost_answers;
pub mod network;
pub mod restoration_sweeps;
pub mod scenarios;
mod small_configuration;
pub mod small_store;
mod steal_sweeps;
mod stop_scenarios;
pub mod sweeps;
mod transaction_scenarios;
mod transaction_sweeps;
pub mod transactions;

pub use litmus::{Litmus, Program, Step};

/// The sizes of a store without tables and logs.
const fn sizes(replicas: u16, process_ids: u16) -> outlive_store::servers::Sizes {
    outlive_store::servers::Sizes {
        replicas,
        memory_servers: 64,
        process_ids,
        tables: 0,
        log_areas: 0,
        coordinators: 0,
        log_slot_bytes: 0,
        protocol: outlive_store::protocol::Protocol::Pandora,
    }
}
