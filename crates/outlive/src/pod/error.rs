//! What can go wrong at the front door.

use crate::heap::{SecondWay, buddy};
use crate::host::OsError;
use crate::membership::{GroupError, Instance, JoinError, NotBuried, StillMembers};
use crate::segment::{CallFailed, CreateError, DestroyError, OpenError};
use core::time::Duration;
use std::path::PathBuf;

/// Why a pod could not be created, opened, joined or destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PodError {
    /// The options ask for what no pod can have.
    #[error("the pod's {what} cannot be {asked}: it can be {least} to {most}")]
    Impossible {
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        asked: u64,
        /// The least that it can have.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A healthy host would be suspected between two of its heartbeats.
    #[error(
        "hosts that beat every {heartbeat:?} cannot be suspected after {suspicion:?} of silence; set the suspicion to at least twice the heartbeat"
    )]
    Impatient {
        /// How often hearts are to beat.
        heartbeat: Duration,
        /// After what silence a host is to be suspected.
        suspicion: Duration,
    },
    /// The segment could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The segment could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The segment could not be removed.
    #[error(transparent)]
    Destroy(#[from] DestroyError),
    /// The segment is sound and no pod.
    #[error("{} is a segment, but not a pod: {why}", .path.display())]
    NoMembership {
        /// Where it is.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The pod was created in another file.
    #[error(
        "{} is a copy of a pod; members of the original stand in it, and none of them can write to it. To make it a pod of \
         its own, in which they count as dead, join it with --adopt-copy (`ProcessOptions::adopt_copy`)",
        .path.display()
    )]
    Copy {
        /// Where the copy is.
        path: PathBuf,
    },
    /// What should be its heap is none.
    #[error("the heap of the pod {} is damaged: {source}", .path.display())]
    Heap {
        /// Where the pod is.
        path: PathBuf,
        /// What is wrong.
        source: buddy::OpenError,
    },
    /// It was created without a heap.
    #[error("the pod {} has no heap: it was created without one", .path.display())]
    NoHeap {
        /// Where it is.
        path: PathBuf,
    },
    /// The thread has a way to the heap already.
    #[error(transparent)]
    SecondWay(#[from] SecondWay),
    /// The pod is in use, and the operation needs a pod that is not.
    #[error("the pod {} is in use: {why}", .path.display())]
    InUse {
        /// Where the pod is.
        path: PathBuf,
        /// By whom.
        why: String,
    },
    /// A member did not join by way of a pod, so nothing is known of how its dead are recovered.
    #[error("{member} is not a member of the pod {}", .path.display())]
    Stranger {
        /// The member.
        member: Instance,
        /// Where the pod is.
        path: PathBuf,
    },
    /// The process or thread could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The process could not leave.
    #[error(transparent)]
    Leave(#[from] StillMembers),
    /// A host could not be declared dead on an operator's word.
    #[error(transparent)]
    NotBuried(#[from] NotBuried),
    /// A control group could not be created or joined.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The operating system said no.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A system call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}
