//! A session: all that a thread needs to use the named objects of a pod. Tests:
//! `tests/pod_session.rs`.

use super::{Pod, PodError};
use crate::heap::LocalHeap;
use crate::membership::{Member, Process, ProcessOptions};
use crate::objects::{
    Array, Cell, Client, Counter, Directory, Named, Object, ObjectError, Objects,
};
use crate::segment::Shared;
use crate::structures::{Datum, List, Map, OrderedDatum};
use crate::sync::{GroupBarrier, RecoverableMutex, Repair};
use core::fmt;
use core::time::Duration;
use self_cell::self_cell;
use std::time::Instant;

self_cell!(
    /// A member and its heap handle.
    struct Entered {
        owner: Member,
        #[covariant]
        dependent: LocalHeap,
    }
);

/// A thread's use of a pod: its process, its member and its heap handle in one value, and the pod's
/// [named objects](crate::objects).
///
/// ```
/// use outlive::pod::{Pod, PodOptions};
/// # let path = format!("/dev/shm/outlive-doc-session-{}", std::process::id());
/// let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?; // the others: Pod::open(&path)
/// {
///     let session = pod.session()?;
///     let words = session.map::<str, u64>("words")?;
///     words.upsert("ash", &1, |n| n + 1)?;
///     let total = session.mutex("total", 0u64)?;
///     *total.lock()? += 1; // were this process to die in here, the total would be whole
/// }
/// # Pod::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Hosts
///
/// The process of a session is a host of its own, unless it was [joined](Pod::session_of)
/// otherwise. If such a process is stopped (by Ctrl-Z, or a debugger), it is fenced after the
/// suspicion time, that is, killed, and its locks and handles are released. Processes that share a
/// host share its heartbeat: a stopped one is not noticed while another one of them runs, so other
/// members wait for the locks that it holds. Share a host among processes that fail together
/// anyway, such as the workers of a server.
///
/// # Crash
/// If the process dies, its handles, locks and half-done operations are recovered by the other
/// members, or by the next process that joins.
pub struct Session {
    // First: it is dropped before the process leaves.
    entered: Entered,
    directory: Directory,
    process: Process,
    pod: Pod,
}

impl Pod {
    /// Opens a session: joins the pod with the calling thread, as a process on a host of its own.
    ///
    /// # Errors
    /// If the pod has no heap or no free ids (three are needed), this process could not be fenced,
    /// the directory of objects is damaged or there is no memory for it, or the pod was destroyed
    /// ([`PodError::Removed`]).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Pod::join`].
    pub fn session(&self) -> Result<Session, PodError> {
        let process = self.join(ProcessOptions::on_own_host())?;
        self.session_of(&process)
    }

    /// Opens a session: joins the pod with the calling thread, as a thread of `process`, which has
    /// joined this pod: for further threads, and for processes that [join](Self::join) in their own
    /// way. A session and its handles stay in their thread; each thread opens the objects by name.
    ///
    /// ```
    /// use outlive::pod::{Pod, PodOptions};
    /// # let path = format!("/dev/shm/outlive-doc-threads-{}", std::process::id());
    /// let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?;
    /// # {
    /// let session = pod.session()?;
    /// let process = session.process();
    /// let count = |word: &str| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     let session = pod.session_of(process)?; // this thread's
    ///     let words = session.map::<str, u64>("words")?;
    ///     Ok(words.upsert(word, &1, |n| n + 1)?)
    /// };
    /// std::thread::scope(|scope| {
    ///     let threads = ["ash", "oak", "ash"].map(|word| scope.spawn(move || count(word)));
    ///     threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    /// })?;
    /// assert_eq!(session.map::<str, u64>("words")?.get("ash"), Some(2));
    /// # }
    /// # Pod::destroy(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// If the pod has no heap or no free id, `process` is of another pod, or the directory of
    /// objects is damaged or there is no memory for it.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Pod::join`].
    pub fn session_of(&self, process: &Process) -> Result<Session, PodError> {
        let member = process.enter(None, "session")?;
        let entered = Entered::try_new(member, |member| member.heap(self))?;
        let directory = Directory::open_or_create(entered.borrow_dependent())?;
        Ok(Session {
            entered,
            directory,
            process: process.clone(),
            pod: self.clone(),
        })
    }
}

impl Session {
    /// Returns the pod.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Returns the process, by which other threads enter.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the member of this thread.
    pub fn member(&self) -> &Member {
        self.entered.borrow_owner()
    }

    /// Returns the heap handle of this thread.
    pub fn heap(&self) -> &LocalHeap<'_> {
        self.entered.borrow_dependent()
    }

    /// Returns the named objects, with the operations on names: open, create, unlink, remove, list.
    pub fn objects(&self) -> Objects<'_> {
        Objects::of(self.heap(), self.directory)
    }

    /// Opens the object `name` of any type, or creates it with `init`.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn object<T: Object>(
        &self,
        name: &str,
        init: T::Init,
    ) -> Result<Named<'_, T>, ObjectError> {
        self.objects().open_or_create(name, init)
    }

    /// Opens or creates a map.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn map<K: Datum + ?Sized, V: Datum + ?Sized>(
        &self,
        name: &str,
    ) -> Result<Named<'_, Map<K, V>>, ObjectError> {
        self.object(name, ())
    }

    /// Opens or creates a list.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn list<K: OrderedDatum + ?Sized, V: Datum + ?Sized>(
        &self,
        name: &str,
    ) -> Result<Named<'_, List<K, V>>, ObjectError> {
        self.object(name, ())
    }

    /// Opens a mutex over a value, or creates it with the value `first`.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn mutex<T: Repair + Shared>(
        &self,
        name: &str,
        first: T,
    ) -> Result<Named<'_, RecoverableMutex<T>>, ObjectError> {
        self.object(name, first)
    }

    /// Opens a counter, or creates it with 0.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn counter(&self, name: &str) -> Result<Named<'_, Counter>, ObjectError> {
        self.object(name, 0)
    }

    /// Opens a client, or creates it: see [`Client`]. If another member uses it, this waits for
    /// twice the suspicion time: that member may be dead, and not reported yet.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::client`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::client`].
    pub fn client(&self, name: &str) -> Result<Client<'_>, ObjectError> {
        let until = Instant::now() + 2 * self.pod.settings().suspicion;
        loop {
            match self.objects().client(name) {
                Err(ObjectError::ClientInUse { users, .. })
                    if Instant::now() < until && !users.contains(&self.member().instance().id) =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => return opened,
            }
        }
    }

    /// Opens a cell, or creates it with the value `first`.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn cell<V: Datum + ?Sized>(
        &self,
        name: &str,
        first: &V,
    ) -> Result<Named<'_, Cell<V>>, ObjectError>
    where
        V::Owned: Clone,
    {
        self.object(name, first.owned())
    }

    /// Opens an array, or creates it with `len` elements that are zero. An array that exists keeps
    /// its length.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn array<T: Shared>(
        &self,
        name: &str,
        len: u64,
    ) -> Result<Named<'_, Array<T>>, ObjectError> {
        self.object(name, len)
    }

    /// Opens a barrier, or creates it with this number of seats. A barrier that exists keeps its
    /// seats.
    ///
    /// # Errors
    /// Returns the errors of [`Objects::open_or_create`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Objects::open_or_create`].
    pub fn barrier(&self, name: &str, seats: u32) -> Result<Named<'_, GroupBarrier>, ObjectError> {
        self.object(name, seats)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Handles that were forgotten; all others are gone.
        self.objects().give_up_all();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, {:?})", self.member(), self.process)
    }
}
