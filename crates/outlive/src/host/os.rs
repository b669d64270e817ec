//! What membership asks of an operating system, as one trait.
//!
//! `Linux` answers with the kernel's own means; `Scripted` plays an
//! operating system in memory, so that everything above is tested without processes too.
//!
//! An *obituary* is a word that a thread holds while it lives and that the kernel marks when the thread
//! dies (on Linux an entry of its robust list in the side file). There is one for every instance id, and
//! holding it is also what keeps two threads of one operating system from claiming one id.

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
    /// The machine, which stays the same over its boots (`/etc/machine-id`); 0 if that is not known.
    pub machine: u128,
    /// Whether this kernel alone can map the pod by the file that this process has opened: a file
    /// on a local filesystem, or a memfd.
    pub one_kernel: bool,
}

/// A process, told apart from an earlier or later one with the same pid.
///
/// It is used in messages, and to kill a process that is known to live. Only the presence of its id
/// says whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

/// A thread, told apart from an earlier or later one with the same tid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadIdentity {
    /// The process that it belongs to.
    pub process: ProcessIdentity,
    /// Its thread id.
    pub tid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

/// What can be said of a process or thread without erring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It exists; it may run, sleep, or be stopped.
    Exists,
    /// It executes no more user instructions and its address space is gone or unreachable to it.
    Gone,
    /// Nothing is known (no permission, another pid namespace, `/proc` hidden).
    Unknown,
}

/// What stands in an obituary word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obituary {
    /// Nobody holds it.
    Vacant,
    /// The thread `tid` holds it and was not known to be dead when the word was read.
    Held {
        /// Its thread id.
        tid: u32,
    },
    /// The thread `tid` held it when it died: it executes no more user instructions.
    Marked {
        /// Its thread id; 0 if it died while it was taking the obituary or giving it back.
        tid: u32,
    },
}

/// Why an operating system could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OsError {
    /// The call failed.
    #[error("{call} failed: {source}{}", hint(source))]
    Call {
        /// What was attempted, with its object.
        call: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Something that is needed is not there.
    #[error("{what} is missing here: {hint}")]
    Missing {
        /// The facility.
        what: &'static str,
        /// What to do about it.
        hint: String,
    },
    /// A file of ours is still used by a process.
    #[error("{} is in use: stop the members of its pod first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A file has the name of ours but is not what we look for.
    #[error("{} is refused: {why}; remove it once no member of its pod runs here", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// How the killing of a process went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// It is gone: every thread and the address space.
    Gone,
    /// It was told to die but was not seen gone within the time given (uninterruptible sleep).
    Late,
    /// It could not be told: no permission, or another pid namespace.
    Refused,
}

/// A handle on one process that cannot come to mean another (a pidfd on Linux).
pub trait ProcessHandle: Debug + Send + Sync {
    /// Which process this is.
    fn identity(&self) -> ProcessIdentity;
    /// Whether all its threads, and the address space with them, are gone.
    fn is_gone(&self) -> bool;
    /// Sends SIGKILL without waiting. `false` if it may not.
    fn send_kill(&self) -> bool;
    /// Waits until the process is gone, at most for `timeout`.
    fn wait_gone(&self, timeout: Duration) -> bool;
}

/// One operating system, as seen by one process of one pod.
///
/// The obituaries order memory as a lock does: [`hold_obituary`](Self::hold_obituary) and
/// [`obituary`](Self::obituary) acquire, [`release_obituary`](Self::release_obituary) releases,
/// [`clear_obituary`](Self::clear_obituary) does both, and a mark is after everything that the dead thread
/// did. They may be released while a thread's own destructors run.
pub trait Os: Debug + Send + Sync {
    /// Which operating system this is.
    fn identity(&self) -> OsIdentity;
    /// Time that never goes back and goes on while nobody runs.
    fn now(&self) -> Duration;
    /// The effective user id of this process.
    fn uid(&self) -> u32;
    /// The effective group id of this process.
    fn gid(&self) -> u32;
    /// The calling thread.
    fn this_thread(&self) -> ThreadIdentity;

    /// Claims the presence of id `id`. It lasts as long as the result or as the address space of
    /// the calling process, whichever ends first, and is never inherited. Returns `None` if any
    /// process of this kernel has claimed it already.
    ///
    /// # Errors
    /// If the pod's file cannot be locked.
    fn claim_presence(&self, id: u32) -> Result<Option<Presence>, OsError>;
    /// As [`claim_presence`](Self::claim_presence), for a short time: dropping the result frees the
    /// presence even if a process that was forked in between has inherited it.
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
    /// long as the result lives. Users that may write to the pod may pull the cord.
    ///
    /// # Errors
    /// If cords are not available here; then only users that may signal the process can kill it.
    fn tie_cord(&self, host: u32, generation: u32) -> Result<Presence, OsError>;
    /// Kills all processes that are tied to that cord, in any PID namespace and of any user, except
    /// for the first process of a PID namespace. Does not wait. Returns `false` if no process is
    /// tied to it, or this process may not pull it.
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

    /// Opens a handle on `process`; `None` if it is gone (or its pid is another's by now).
    ///
    /// # Errors
    /// If it exists but cannot be watched, or cannot be distinguished from a later process with its
    /// pid.
    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError>;
    /// Whether `thread` exists. A zombie thread is gone.
    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness;

    /// Takes the obituary `slot` for the calling thread, so that no kill at any instruction leaves it
    /// held and unmarked. Returns what stood there if it was not vacant, and then takes nothing.
    ///
    /// # Errors
    /// If this thread cannot have obituaries.
    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError>;
    /// Gives back an obituary that the calling thread holds.
    fn release_obituary(&self, slot: u32);
    /// What stands in obituary `slot`.
    fn obituary(&self, slot: u32) -> Obituary;
    /// Makes obituary `slot` vacant if `seen` still stands there. For marked obituaries, and for those
    /// whose holder is [`Liveness::Gone`] without having been marked.
    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool;

    /// Who holds obituary `slot`, if that is known: not to be relied on for more than a kill or a message,
    /// since the holder may change at any time.
    fn holder(&self, slot: u32) -> Option<ThreadIdentity>;
    /// Makes obituary `slot` vacant if its holder is [`Liveness::Gone`] without having been marked. Of
    /// several callers one does; a holder that lives keeps it, whatever others were that had its tid.
    fn clear_if_gone(&self, slot: u32) -> bool;

    /// The bells of this operating system for this pod.
    fn bells(&self) -> &'static dyn Bells;
    /// Sleeps until one of the obituaries `held` (each given with the tid that held it) changes, or the
    /// bell `key` has rung since its count was `seen`, at most for `timeout`; may return early. At most
    /// [`most_watched`](Self::most_watched) obituaries; more are watched in turns by the caller.
    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration);
    /// How many obituaries one [`wait_for_news`](Self::wait_for_news) can watch.
    fn most_watched(&self) -> usize;
    /// Wakes every thread of this operating system that watches obituary `slot`: the kernel wakes only
    /// one of them.
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
