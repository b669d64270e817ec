//! The errors of pools.

use crate::coherent::{Phase, ServerId};
use crate::layout::Address;
use outlive::membership::{Instance, JoinError};
use outlive::objects::ObjectError;
use outlive::pod::PodError;
use outlive::segment::{CreateError, OpenError};
use std::path::PathBuf;

/// An error of an operation on a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// An option has a value that no pool can have.
    #[error("a pool cannot have {asked} {what}; the range is {least} to {most}")]
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
    /// The path is not that of a file. Servers create files next to the pool's file.
    #[error(
        "{} is not the path of a file; a pool is created in a file, such as /dev/shm/NAME, and its \
         servers create files next to it",
        .path.display()
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The pod of the pool could not be used.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The process could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The pod is not a pool, or its tables are damaged.
    #[error("{} is not a memory pool: {why}", .path.display())]
    NotAPool {
        /// The path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The segment of a new server could not be created.
    #[error(transparent)]
    CreateSegment(#[from] CreateError),
    /// The segment of a live server could not be opened.
    #[error("the segment of {server} cannot be opened: {source}")]
    OpenSegment {
        /// The server.
        server: ServerId,
        /// The reason.
        source: OpenError,
    },
    /// The file at a server's path is not the segment that the server registered.
    #[error("{} is not the segment that {server} registered", .path.display())]
    ForeignSegment {
        /// The server.
        server: ServerId,
        /// The path of the file.
        path: PathBuf,
    },
    /// The pool has its maximum number of servers.
    #[error(
        "all {most} servers of the pool are in use, or their lost slices are not freed or rebuilt \
         yet; do that, or create a pool with more servers"
    )]
    TooManyServers {
        /// The largest number.
        most: u16,
    },
    /// The pool has its maximum number of readers.
    #[error(
        "the pool has {most} readers, and cannot have more; drop one, or create a pool with more"
    )]
    TooManyReaders {
        /// The largest number.
        most: u16,
    },
    /// The reader has its maximum number of guards.
    #[error("the reader has {most} guards, and cannot have more at one time; drop one")]
    TooManyGuards {
        /// The largest number.
        most: u64,
    },
    /// A server does not exist or cannot be used.
    #[error("{server} is {phase}; allocate on a live server")]
    NotLive {
        /// The server.
        server: ServerId,
        /// Its state.
        phase: Phase,
    },
    /// The process has no server, so that nothing can be allocated on its own one.
    #[error("this process is not a server of the pool; choose another placement")]
    NotAServer,
    /// No server of the placement has a free frame.
    #[error(
        "no frame of {slice_bytes} bytes is free on {servers} live servers of this placement; free \
         memory, or add a server"
    )]
    OutOfMemory {
        /// The size of a slice, for which a frame is needed.
        slice_bytes: u64,
        /// The number of live servers that were tried.
        servers: usize,
    },
    /// No run of logical addresses is free.
    #[error(
        "no {slices} slices in one run are free; free memory, or create a pool with more slices"
    )]
    OutOfAddresses {
        /// The number of slices that are needed.
        slices: u64,
    },
    /// The allocation at the address was freed, or never existed.
    #[error("{address} is not allocated: it was freed, or never allocated")]
    Freed {
        /// The address.
        address: Address,
    },
    /// The server that had the memory at the address has died, and it has no live replica.
    #[error(
        "the slice at {address} was lost with {server}, and has no live replica; free the allocation"
    )]
    Lost {
        /// The address.
        address: Address,
        /// The server.
        server: ServerId,
    },
    /// The slice was moved to another server while a reader had a guard on it.
    #[error("the slice at {address} was moved; make a new guard, and read it again")]
    Moved {
        /// The address.
        address: Address,
    },
    /// A slice is moved by another member.
    #[error("process {by} is moving the slice at {address}; try again later")]
    BeingMoved {
        /// The address.
        address: Address,
        /// The mover.
        by: Instance,
    },
    /// A slice was not moved, because a writer keeps a guard on it.
    #[error(
        "process {by} has a write guard on the slice at {address}, so the slice was not moved; try \
         again when the guard has been dropped"
    )]
    StillWritten {
        /// The address.
        address: Address,
        /// The writer.
        by: Instance,
    },
    /// A slice was not moved, because a writer has waited for too long.
    #[error(
        "the move of the slice at {address} was cancelled because a writer waited too long; try \
         again later"
    )]
    MoveCancelled {
        /// The address.
        address: Address,
    },
    /// A slice with replicas is written by one guard at a time, and another one exists.
    #[error(
        "process {by} has a write guard on the slice at {address}; a slice with replicas has one at \
         a time, so try again when that guard has been dropped"
    )]
    BeingWritten {
        /// The address.
        address: Address,
        /// The writer.
        by: Instance,
    },
    /// A slice was not moved to a server that has another replica of it.
    #[error("{server} has another replica of the slice at {address}; choose another server")]
    HasReplica {
        /// The address.
        address: Address,
        /// The server.
        server: ServerId,
    },
    /// There are fewer servers than replicas.
    #[error(
        "{replicas} replicas need {replicas} live servers, and there are {servers}; add servers, or \
         allocate with fewer replicas"
    )]
    TooFewServers {
        /// The number of replicas.
        replicas: u64,
        /// The number of live servers.
        servers: usize,
    },
    /// The pool has its maximum number of moves.
    #[error(
        "the pool already moves {most} slices, its maximum; try again later, or create it with a \
         larger `PoolOptions::moves`"
    )]
    TooManyMoves {
        /// The largest number.
        most: u16,
    },
    /// The address is not the first one of an allocation.
    #[error("{address} is not the first address of an allocation; free that")]
    NotTheFirst {
        /// The address.
        address: Address,
    },
    /// Another process owns the allocation.
    #[error("the allocation at {address} belongs to process {owner}, which must free or keep it")]
    OfAnother {
        /// The address.
        address: Address,
        /// The owner.
        owner: Instance,
    },
    /// The address is that of the memory of a leased object, which is accessed by its name only.
    #[error("{address} is in the memory of a leased object; use the object by its name")]
    OfObject {
        /// The address.
        address: Address,
    },
    /// No leased object has this name.
    #[error("the object `{name}` does not exist")]
    NoObject {
        /// The name.
        name: String,
    },
    /// A sealed object has this name.
    #[error("the object `{name}` already exists; delete it first, or use another name")]
    ObjectExists {
        /// The name.
        name: String,
    },
    /// A process is creating an object with this name, and has not sealed it.
    #[error("the object `{name}` is being created by process {by}; wait for it")]
    BeingCreated {
        /// The name.
        name: String,
        /// The creator.
        by: Instance,
    },
    /// The creator of the object has died, or has given the object up, before it sealed it.
    #[error("the object `{name}` was given up before it was sealed; create it again")]
    Abandoned {
        /// The name.
        name: String,
    },
    /// The object does not fit into the quota of the pool beside the objects that are in use or
    /// pinned.
    #[error(
        "an object of {bytes} bytes does not fit into the quota of {quota} bytes beside the \
         objects that are in use or pinned; release or delete objects"
    )]
    OverQuota {
        /// The size of the object.
        bytes: u64,
        /// The quota of the pool.
        quota: u64,
    },
    /// The bytes are not inside the object.
    #[error("{len} bytes at byte {byte} are not inside an object of {bytes} bytes")]
    OutsideObject {
        /// The first byte.
        byte: u64,
        /// The number of bytes.
        len: u64,
        /// The size of the object.
        bytes: u64,
    },
    /// The names and leases of objects cannot be used.
    #[error(transparent)]
    Objects(ObjectError),
    /// An access is not inside one slice, or not aligned to 8 bytes.
    #[error(
        "an access of {len} bytes at byte {byte} of a slice of {slice_bytes} bytes is not inside \
         it, or not aligned to 8 bytes"
    )]
    OutsideSlice {
        /// The first byte.
        byte: u64,
        /// The number of bytes.
        len: u64,
        /// The size of a slice.
        slice_bytes: u64,
    },
    /// The address of a vector is not aligned to the size of an element.
    #[error(
        "a vector with elements of {bytes} bytes cannot begin at {address}, which is not a multiple \
         of that; use the address of the vector that was allocated"
    )]
    Misaligned {
        /// The address.
        address: Address,
        /// The size of an element.
        bytes: u64,
    },
    /// An index is not below the length of the vector.
    #[error("index {index} is outside a vector of {len} elements")]
    Index {
        /// The index.
        index: u64,
        /// The number of elements.
        len: u64,
    },
    /// A server that leaves, or the part of a server that would become private, still has data.
    #[error(
        "{server} still has {slices} slices in that part, which would be lost; free them, or end the \
         server without `leave`"
    )]
    StillHeld {
        /// The server.
        server: ServerId,
        /// The number of its slices.
        slices: u64,
    },
    /// The tables of the pool contradict each other.
    #[error("the pool is damaged: the frame of {address} on {server} belongs to another slice")]
    Damaged {
        /// The address.
        address: Address,
        /// The server.
        server: ServerId,
    },
}

impl From<ObjectError> for PoolError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::NotFound { name } => Self::NoObject { name },
            ObjectError::Exists { name } => Self::ObjectExists { name },
            other => Self::Objects(other),
        }
    }
}
