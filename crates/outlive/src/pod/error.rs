//! The errors of pods.

use crate::heap::{SecondWay, buddy};
use crate::host::OsError;
use crate::membership::{GroupError, Instance, JoinError, NotBuried, StillMembers};
use crate::objects::ObjectError;
use crate::segment::{CallFailed, CreateError, DestroyError, OpenError};
use core::time::Duration;
use std::path::PathBuf;

/// The reason why a pod could not be created, opened, joined or destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PodError {
    /// An option has a value that no pod can have.
    #[error("the pod's {what} cannot be {asked}; the range is {least} to {most}")]
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
    /// A healthy host would be suspected between two of its heartbeats.
    #[error(
        "a suspicion time of {suspicion:?} is too short for a heartbeat interval of {heartbeat:?}; set it to at least twice the interval"
    )]
    Impatient {
        /// The requested interval of heartbeats.
        heartbeat: Duration,
        /// The requested silence after which a host is suspected.
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
    /// The segment is sound, but not a pod.
    #[error("{} is a segment, but not a pod: {why}", .path.display())]
    NoMembership {
        /// The path of the segment.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The pod was created in another file.
    #[error(
        "{} is a copy of a pod: members recorded in it belong to the original. To make it a \
         separate pod, in which they count as dead, run `outlive pod host --adopt-copy` \
         (`ProcessOptions::adopt_copy`)",
        .path.display()
    )]
    Copy {
        /// The path of the copy.
        path: PathBuf,
    },
    /// The pod was opened for an observer.
    #[error(
        "{} was opened for an observer (`Pod::observe`), which cannot write to it; open it with \
         `Pod::open` to join or repair it",
        .path.display()
    )]
    ReadOnly {
        /// The path of the pod.
        path: PathBuf,
    },
    /// The pod's file has lost its name since it was opened: the pod was destroyed.
    #[error(
        "the pod {} was removed after this process opened it, so other processes cannot find it; \
         open the path again, or create a new pod there",
        .path.display()
    )]
    Removed {
        /// The path by which the pod was opened.
        path: PathBuf,
    },
    /// The pod's heap is damaged.
    #[error("the heap of the pod {} is damaged: {source}; create a new pod", .path.display())]
    Heap {
        /// The path of the pod.
        path: PathBuf,
        /// The damage.
        source: buddy::OpenError,
    },
    /// The pod was created without a heap.
    #[error(
        "the pod {} has no heap: it was created without one; create a pod with a heap",
        .path.display()
    )]
    NoHeap {
        /// The path of the pod.
        path: PathBuf,
    },
    /// The thread already has a heap handle.
    #[error(transparent)]
    SecondWay(#[from] SecondWay),
    /// The pod is in use, and the operation needs a pod that is not.
    #[error("the pod {} is in use: {why}", .path.display())]
    InUse {
        /// The path of the pod.
        path: PathBuf,
        /// The description of the use.
        why: String,
    },
    /// A member is of another pod, or did not join through a pod and has no recovery handlers.
    #[error("{member} is not a member of the pod {}; use a member of this pod", .path.display())]
    Stranger {
        /// The member.
        member: Instance,
        /// The path of the pod.
        path: PathBuf,
    },
    /// The process or thread could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The process could not leave.
    #[error(transparent)]
    Leave(#[from] StillMembers),
    /// A host could not be declared dead, although an operator asserted that it is off.
    #[error(transparent)]
    NotBuried(#[from] NotBuried),
    /// A control group could not be created or joined.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The directory of named objects could not be opened.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// The operating system refused or lacks something.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A system call failed.
    #[error(transparent)]
    Call(#[from] CallFailed),
}
