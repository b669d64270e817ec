//! The errors of stores.

use super::{BadConfiguration, Phase, RestoreError, TableError};
use crate::verbs::ServerId;
use core::time::Duration;
use outlive::membership::{Instance, JoinError, NobodyToFence};
use outlive::pod::PodError;
use outlive::segment::{CreateError, OpenError};
use std::path::PathBuf;

/// An error of an operation on a store or its servers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An option has a value that no store can have.
    #[error("a store cannot have {asked} {what}; the range is {least} to {most}")]
    Impossible {
        /// The name of the option.
        what: &'static str,
        /// The requested value.
        asked: u64,
        /// The smallest possible value.
        least: u64,
        /// The largest possible value.
        most: u64,
    },
    /// The path is not that of a file. Memory servers create files next to the store's file.
    #[error(
        "{} is not the path of a file; a store is created in a file, such as /dev/shm/NAME, and \
         its memory servers create files next to it",
        .path.display()
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The pod of the store could not be used.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The process could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The pod is not a store.
    #[error("{} is not a store: {source}", .path.display())]
    NotAStore {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: BadConfiguration,
    },
    /// The segment of a new memory server could not be created.
    #[error(transparent)]
    CreateSegment(#[from] CreateError),
    /// The segment of a memory server could not be opened.
    #[error("the segment of {server} cannot be opened: {source}")]
    OpenSegment {
        /// The server.
        server: ServerId,
        /// The reason.
        source: OpenError,
    },
    /// The file at a memory server's path is not the segment that the server registered.
    #[error(
        "{} is not the segment that {server} registered; restart the memory server",
        .path.display()
    )]
    ForeignSegment {
        /// The server.
        server: ServerId,
        /// The path of the file.
        path: PathBuf,
    },
    /// The store has its maximum number of memory servers, dead ones included.
    #[error(
        "the store has had {most} memory servers, dead ones included, which is its maximum; create \
         a store with a larger one (`outlive store create --memory-servers`)"
    )]
    TooManyMemoryServers {
        /// The largest number.
        most: u16,
    },
    /// A table could not be created or opened, or there are too few memory servers for one.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Lost replicas could not be replaced.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Too many compute servers have logs.
    #[error(
        "{most} compute servers have logs, and the store has no more log areas; create a store \
         with more (`StoreOptions::compute_servers`)"
    )]
    TooManyComputeServers {
        /// The number of log areas.
        most: u16,
    },
    /// All process ids are in use, or have failed and cannot be recycled.
    #[error(
        "all {process_ids} process ids of the store are in use or have failed; create a store with \
         more (`StoreOptions::process_ids`)"
    )]
    NoProcessId {
        /// The number of ids.
        process_ids: u16,
    },
    /// A memory server does not exist or cannot be used.
    #[error("{server} is {phase}; connect to a live one (`outlive store status` lists them)")]
    NotLive {
        /// The server.
        server: ServerId,
        /// Its state.
        phase: Phase,
    },
    /// All compute servers are being stopped. No other one can join, and no other process can stop
    /// them.
    #[error("the compute servers of the store are being stopped; retry when the stop has ended")]
    Stopping,
    /// Compute servers have not left in time.
    #[error(
        "{} compute servers have not left or are not recovered after {waited:?}, among them {}; \
         end their programs, or fence them (`outlive store stop --force`)",
        .servers.len(), .servers.first().map_or_else(String::new, Instance::to_string)
    )]
    NotStopped {
        /// The instances of their processes.
        servers: Vec<Instance>,
        /// The time for which the stop waited.
        waited: Duration,
    },
    /// The process is not another live compute server.
    #[error(
        "process {server} is not another live compute server; `outlive store status` lists them"
    )]
    NoSuchProcess {
        /// The process.
        server: Instance,
    },
    /// The compute server has left or died, so that it cannot be fenced.
    #[error(transparent)]
    NobodyToFence(#[from] NobodyToFence),
    /// A fence was not completed in time. The server is not recovered before the fence is complete.
    #[error(
        "compute server {server} could not be fenced within {waited:?}; it may still write. If its \
         host is on another machine, members need a fence command"
    )]
    NotFenced {
        /// The instance of its process.
        server: Instance,
        /// The time limit.
        waited: Duration,
    },
}
