//! The services that membership requires of an operating system, as one trait.
//!
//! `Linux` implements them with the kernel; `Scripted` simulates an operating system in memory, so
//! that the layers above can also be tested without processes.
//!
//! An *obituary* is a word that a thread holds while it lives and that the kernel marks when the
//! thread dies (on Linux an entry of its robust list in the side file). Every instance id has one.
//! Holding it also prevents two threads of one operating system from claiming the same id.

use super::{Bells, Presence};
use crate::segment::hint;
use core::fmt::{self, Debug};
use core::time::Duration;
use std::path::PathBuf;

/// The operating system of a process, for one pod: the processes that share a side file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OsIdentity {
    /// A random number, made by the creator of the side file.
    pub id: u128,
    /// The random id of this boot. Machines that were resumed from one snapshot share it.
    pub boot: u128,
    /// The machine, which stays the same over its boots (`/etc/machine-id`); 0 if that is not
    /// known.
    pub machine: u128,
    /// Whether this kernel alone can map the pod by the file that this process has opened: a file
    /// on a local filesystem, or a memfd.
    pub one_kernel: bool,
}

/// A process, distinguished from earlier and later ones with the same pid.
///
/// It is used in messages, and to kill a process that is known to live. Only its presence shows
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The process id, in the PID namespace of the process itself.
    pub pid: u32,
    /// The start time, in clock ticks since boot.
    pub start_time: u64,
}

/// A thread, distinguished from earlier and later ones with the same tid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadIdentity {
    /// The process that the thread belongs to.
    pub process: ProcessIdentity,
    /// The thread id.
    pub tid: u32,
    /// The start time, in clock ticks since boot.
    pub start_time: u64,
}

/// The certain knowledge about the life of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process or thread exists; it may run, sleep, or be stopped.
    Exists,
    /// The process or thread executes no more user instructions, and its address space is gone or
    /// unreachable to it.
    Gone,
    /// Nothing is known (no permission, another pid namespace, `/proc` hidden).
    Unknown,
}

/// The state of an obituary word, which the kernel marks when the thread that holds it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obituary {
    /// No thread holds it.
    Vacant,
    /// The thread `tid` holds it and was not known to be dead when the word was read.
    Held {
        /// Its thread id.
        tid: u32,
    },
    /// The thread `tid` held it when it died: it executes no more user instructions.
    Marked {
        /// Its thread id; if it died while taking or releasing: 0, or an earlier holder's.
        tid: u32,
    },
}

/// The reason why an operating system could not perform a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OsError {
    /// The call failed.
    #[error("{call} failed: {source}{}", hint(source))]
    Call {
        /// The operation, with its object.
        call: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A required facility is missing.
    #[error("{what} is missing here: {hint}")]
    Missing {
        /// The facility.
        what: &'static str,
        /// The remedy.
        hint: String,
    },
    /// A file of the pod is still used by a process.
    #[error("{} is in use: stop the members of its pod first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The owner or the group of the pod's file has no id of its own in this user namespace.
    #[error(
        "{} is refused: its {what} has no id of its own in this user namespace and is shown as \
         {id}, so the files of its members cannot be told from those of other users; map that \
         {what} into this user namespace (/etc/subuid and /etc/subgid for a container), or join \
         from the user namespace of the pod's creator",
        path.display()
    )]
    Unmapped {
        /// The pod's file.
        path: PathBuf,
        /// `"owner"` or `"group"`.
        what: &'static str,
        /// The id that is shown.
        id: u32,
    },
    /// A file has the expected name but is not the expected file.
    #[error("{} is refused: {why}; remove it once no member of its pod runs here", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// The result of killing a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// The process is gone: all its threads and its address space.
    Gone,
    /// The signal was sent, but the process did not end within the time limit (uninterruptible
    /// sleep).
    Late,
    /// The signal could not be sent: no permission, or another pid namespace.
    Refused,
}

/// A handle on one process, which never refers to another one later (a pidfd on Linux).
pub trait ProcessHandle: Debug + Send + Sync {
    /// Returns the identity of the process.
    fn identity(&self) -> ProcessIdentity;
    /// Returns whether all its threads are gone, and the address space with them.
    fn is_gone(&self) -> bool;
    /// Sends SIGKILL without waiting. Returns `false` if that is not permitted.
    fn send_kill(&self) -> bool;
    /// Waits until the process is gone, at most for `timeout`. Returns whether it is.
    fn wait_gone(&self, timeout: Duration) -> bool;
}

/// One operating system, as seen by one process of one pod.
///
/// The obituaries order memory as a lock does: [`hold_obituary`](Self::hold_obituary) and
/// [`obituary`](Self::obituary) acquire, [`release_obituary`](Self::release_obituary) releases,
/// [`clear_obituary`](Self::clear_obituary) does both, and the kernel's mark is ordered after all
/// stores of the dead thread. Obituaries may be released while a thread's own destructors run.
pub trait Os: Debug + Send + Sync {
    /// Returns the identity of this operating system.
    fn identity(&self) -> OsIdentity;
    /// Returns a time that never decreases and also advances while no member runs.
    fn now(&self) -> Duration;
    /// Returns the effective user id of this process.
    fn uid(&self) -> u32;
    /// Returns the effective group id of this process.
    fn gid(&self) -> u32;
    /// Returns whether the pod's file certainly belongs to the user of this process. Two users of
    /// two user namespaces may have the same user id.
    fn is_of_owner(&self) -> bool {
        true
    }
    /// Returns the identity of the calling thread.
    fn this_thread(&self) -> ThreadIdentity;

    /// Claims the presence of id `id`. It lasts as long as the result or as the address space of
    /// the calling process, whichever ends first, and is never inherited. Returns `None` if any
    /// process of this kernel has claimed it already.
    ///
    /// # Errors
    /// If the pod's file cannot be locked.
    fn claim_presence(&self, id: u32) -> Result<Option<Presence>, OsError>;
    /// Does the same as [`claim_presence`](Self::claim_presence), for a short time: dropping the
    /// result frees the presence even if a process that was forked in between has inherited it.
    ///
    /// # Errors
    /// If the pod's file cannot be locked.
    fn claim_presence_briefly(&self, id: u32) -> Result<Option<Presence>, OsError>;
    /// Returns whether a process of this kernel has the presence of id `id`. `false` proves that a
    /// process of this kernel that had it can no longer write to the pod; `true` proves nothing.
    ///
    /// Acquires: a caller that gets `false` sees what the process did before its end.
    fn is_present(&self, id: u32) -> bool;

    /// Registers this process, for as long as the result lives, as one on the operating system with
    /// this number in the pod's table. Returns `None` while the number is reserved.
    ///
    /// # Errors
    /// If the pod's file cannot be locked.
    fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError>;
    /// Reserves this number of an operating system for as long as the result lives: no process of
    /// this kernel can register with it. Returns `None` if one is registered.
    ///
    /// # Errors
    /// If the pod's file cannot be locked.
    fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError>;

    /// Ties this process to the cord of the incarnation `generation` of the host `host`, for as
    /// long as the result lives. The cord is a file: the kernel kills all processes that are tied
    /// to it when a process *pulls* it, that is, opens it for writing. Users that may write to the
    /// pod may do so.
    ///
    /// # Errors
    /// If cords are not available here; then only users that may signal the process can kill it.
    fn tie_cord(&self, host: u32, generation: u32) -> Result<Presence, OsError>;
    /// Pulls that cord, which kills all processes that are tied to it, in any PID namespace and of
    /// any user, except for the first process of a PID namespace. Does not wait. Returns `false` if
    /// no process is tied to it, or this process may not pull it.
    fn pull_cord(&self, host: u32, generation: u32) -> bool;
    /// Returns whether that cord exists where this process can pull it. A cord in another directory
    /// cannot be pulled.
    fn finds_cord(&self, host: u32, generation: u32) -> bool;
    /// Returns whether processes of another user have a cord of that incarnation.
    fn has_cord_of_another(&self, host: u32, generation: u32) -> bool;
    /// Returns whether `process` is seen to have the pod mapped. A user of the pod may forge the
    /// record of a process in the segment; this check prevents that another process is killed for
    /// it.
    fn maps_pod(&self, process: ProcessIdentity) -> bool;
    /// Removes the cord of an incarnation that has ended.
    fn remove_cord(&self, host: u32, generation: u32);

    /// Returns those files of the pod (its own, its side file) that have lost their names since
    /// this process began to use them. A process that joins does not find the pod there. Each file
    /// comes with a message: the consequences, and what to do.
    fn removed_files(&self) -> Vec<(PathBuf, &'static str)> {
        Vec::new()
    }

    /// Opens a handle on `process`; `None` if it is gone (or its pid is reused).
    ///
    /// # Errors
    /// If it exists but cannot be watched, or cannot be distinguished from a later process with its
    /// pid.
    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError>;
    /// Returns whether `thread` exists. A zombie thread is gone.
    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness;

    /// Takes the obituary `slot` for the calling thread, so that no kill at any instruction leaves
    /// it held and unmarked. If it is not vacant, takes nothing and returns its content.
    ///
    /// # Errors
    /// If this thread cannot hold obituaries.
    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError>;
    /// Releases an obituary that the calling thread holds.
    fn release_obituary(&self, slot: u32);
    /// Returns the content of obituary `slot`.
    fn obituary(&self, slot: u32) -> Obituary;
    /// Makes obituary `slot` vacant if it still is `seen`. For marked obituaries, and for unmarked
    /// ones whose holder is [`Liveness::Gone`].
    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool;

    /// Returns the holder of obituary `slot`, if it is known. Use it only for a kill or a message,
    /// since the holder may change at any time.
    fn holder(&self, slot: u32) -> Option<ThreadIdentity>;
    /// Makes obituary `slot` vacant if it is unmarked and its holder is [`Liveness::Gone`]. Of
    /// several callers, one does. A live holder keeps it, even if its tid is reused.
    fn clear_if_gone(&self, slot: u32) -> bool;

    /// Returns the wake-up futexes of this operating system for this pod.
    fn bells(&self) -> &'static dyn Bells;
    /// Sleeps until one of the obituaries `held` (each given with the tid that held it) changes, or
    /// the count of the wake-up futex `key` has changed from `seen`, at most for `timeout`; may
    /// return early. Takes at most [`most_watched`](Self::most_watched) obituaries; the caller
    /// watches more of them in turns.
    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration);
    /// Returns the number of obituaries that one [`wait_for_news`](Self::wait_for_news) can watch.
    fn most_watched(&self) -> usize;
    /// Wakes every watcher of obituary `slot` on this operating system: the kernel wakes only one.
    fn wake_watchers(&self, slot: u32);
}

impl fmt::Display for OsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "operating system {:032x}, boot {:032x}",
            self.id, self.boot
        )
    }
}
