//! The real operating system.

use super::cord::{self, CordEntry, Cords};
use super::proc::Place;
use super::robust::{OWNER_DIED, RobustList, TID, WAITERS};
use super::side_file::{SideFile, mark_sleeper};
use super::side_file_header::MEETING;
use super::side_file_name::{self, SideFileEntry};
use super::side_file_open::Access;
use super::{
    Bells, Liveness, Obituary, Os, OsError, OsIdentity, PodFile, Presence, ProcessHandle,
    ProcessIdentity, ThreadIdentity, futex, proc, process,
};
use crate::fork;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// How long a thread sleeps between two looks where it cannot wait for several words at once.
const POLL: Duration = Duration::from_millis(1);

/// The smallest limit on descriptors with which a process can join: it keeps a few for each pod,
/// and needs some briefly.
const DESCRIPTORS: u64 = 16;

const POD_REMOVED: &str = "the pod's members go on, and no other process can join them; stop them, \
    then create the pod again";
const SIDE_FILE_REMOVED: &str = "the pod's members go on, but processes that join from now on use \
    another side file and are notified of deaths later; restart the members one after the other \
    (logind's RemoveIPC removes such files when their user logs out)";

/// Linux, as one process sees it for one pod.
///
/// A process has one for each pod, until it has [detached](Self::detach) it. A forked child does
/// not inherit it: an access there is a SIGSEGV, by design, because a child may outlive its
/// parent's obituary. A child may [`attach`](Self::attach) again.
///
/// ```
/// use outlive::host::{Access, Linux, Obituary, Os, PodFile};
///
/// let pod = u128::from_le_bytes(*uuid::Uuid::new_v4().as_bytes());
/// let segment = outlive::segment::Segment::builder().size(1 << 20).create("memfd:pod").unwrap();
/// let file = PodFile::new(segment.file(), segment.path(), segment.granule());
/// let os = Linux::attach(pod, 16, Access::default(), file, true)?;
/// os.hold_obituary(3)?.expect("nobody else knows this pod");
/// assert_eq!(os.obituary(3), Obituary::Held { tid: os.this_thread().tid });
/// os.release_obituary(3);
/// assert_eq!(Linux::remove_side_file(pod)?, 1);
/// # Ok::<(), outlive::host::OsError>(())
/// ```
#[derive(Debug)]
pub struct Linux {
    pod: u128,
    identity: OsIdentity,
    process: ProcessIdentity,
    /// The number of the process that attached it (`fork::generation`).
    of: u64,
    side: &'static SideFile,
    /// `None` once it is detached.
    files: RwLock<Option<Arc<Files>>>,
    /// The number of attachments that have not been detached. Changed under the lock of
    /// [`ATTACHED`].
    users: AtomicUsize,
    cords: Cords,
}

#[derive(Debug)]
struct Files {
    pod: PodFile,
    /// The file in which presence is locked.
    presence: PodFile,
    /// The pod's file and the side file, each only if it had a name at first, with the message to
    /// report when it has lost its name.
    named: Vec<(PodFile, &'static str)>,
}

/// What this process has attached to. Entries of an earlier process (before a fork) are dead.
static ATTACHED: Mutex<Vec<&'static Linux>> = Mutex::new(Vec::new());

impl Linux {
    /// Attaches this process to the side file of `pod`, which has `obituaries` obituaries, one for
    /// each id; creates it with `access` if this operating system has none. A second call for the
    /// same pod returns the result of the first one.
    ///
    /// `file` is the pod's file. Presence is locked in it if `has_one_kernel` is set: one kernel at
    /// a time can map the file, and all processes that map it see its locks. Otherwise presence is
    /// locked in the side file, where only this operating system sees it.
    ///
    /// A caller that dies in the middle leaves a complete file or none.
    ///
    /// # Errors
    /// If `/proc`, a robust list of known layout, or room in `/dev/shm` is missing, or a file of that name
    /// is damaged, foreign, or made for another number of obituaries.
    pub fn attach(
        pod: u128,
        obituaries: u32,
        access: Access,
        file: PodFile,
        has_one_kernel: bool,
    ) -> Result<&'static Self, OsError> {
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = proc::this_process()?;
        if let Some(linux) = attached
            .iter()
            .find(|linux| linux.pod == pod && linux.of == fork::generation())
        {
            if linux.side.obituaries() != obituaries {
                return Err(OsError::Missing {
                    what: "a side file of that size",
                    hint: format!(
                        "this process attached with {} obituaries before, now with {obituaries}",
                        linux.side.obituaries()
                    ),
                });
            }
            let own = linux.files()?;
            if !own.pod.is_same(&file) {
                return Err(OsError::Refused {
                    path: own.pod.path().to_owned(),
                    why: "this process uses another file with the number of the same pod, of which one is a copy"
                        .into(),
                });
            }
            linux.users.fetch_add(1, Ordering::Relaxed);
            return Ok(linux);
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(most) = most.filter(|most| *most < DESCRIPTORS) {
            return Err(OsError::Missing {
                what: "a sufficient limit on descriptors",
                hint: format!(
                    "the limit is {most} (RLIMIT_NOFILE), and a process that joins a pod needs \
                     {DESCRIPTORS} in addition to the program's own; raise the limit with \
                     `ulimit -n`"
                ),
            });
        }
        let place = Place::of_this_process()?;
        let side = SideFile::attach(Path::new(MEETING), pod, place, obituaries, access)?;
        let identity = OsIdentity {
            // Processes that lock presence in the other file do not see this one's: they are
            // another operating system.
            id: if has_one_kernel {
                side.id()
            } else {
                !side.id()
            },
            boot: place.boot,
            machine: proc::machine(),
            one_kernel: false,
        };
        // Not the caller's description, whose lock must end when the caller closes it. (If the file
        // cannot be opened again, its description and lock are kept.)
        let file = file.reopened().unwrap_or(file);
        let presence = match has_one_kernel {
            true => file.clone(),
            false => side.pod_file()?,
        };
        let directory = file.directory();
        let named = [
            (file.clone(), POD_REMOVED),
            (side.pod_file()?, SIDE_FILE_REMOVED),
        ];
        let named = named.into_iter().filter(|(file, _)| file.has_name());
        let named = named.collect();
        let linux = &*Box::leak(Box::new(Self {
            pod,
            identity,
            process,
            of: fork::generation(),
            side: Box::leak(Box::new(side)),
            cords: Cords::new(&directory, pod, access),
            files: RwLock::new(Some(Arc::new(Files {
                pod: file,
                presence,
                named,
            }))),
            users: AtomicUsize::new(1),
        }));
        attached.push(linux);
        Ok(linux)
    }

    /// Undoes one [`attach`](Self::attach). The last one releases the descriptors and the memory of
    /// the side file. Its addresses stay reserved, and an access through a handle that came from
    /// here (obituaries, wake-up futexes) is a SIGSEGV from then on.
    ///
    /// # Errors
    /// [`OsError::InUse`] while a thread of this process holds an obituary; then nothing has
    /// changed.
    pub fn detach(&'static self) -> Result<(), OsError> {
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.users.load(Ordering::Relaxed) == 1 {
            self.side.retire(|slot, tid| self.is_gone(slot, tid))?;
            attached.retain(|linux| !core::ptr::eq(*linux, self));
            *self.files.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let _ = self
            .users
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| {
                users.checked_sub(1)
            });
        Ok(())
    }

    fn files(&self) -> Result<Arc<Files>, OsError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.clone().ok_or_else(|| OsError::Missing {
            what: "the pod's file",
            hint: "this process has closed the pod; open it again".into(),
        })
    }

    /// The side files that lie here, of all pods and boots: for a clean-up of those whose pod is gone.
    ///
    /// # Errors
    /// If `/dev/shm` cannot be listed.
    pub fn side_files() -> Result<Vec<SideFileEntry>, OsError> {
        side_file_name::list(Path::new(MEETING))
    }

    /// Returns the id of this boot, if `/proc` shows it.
    pub fn this_boot() -> Option<u128> {
        Place::of_this_process().ok().map(|place| place.boot)
    }

    /// Returns whether processes of this PID namespace have, or had, a side file for `pod`. For
    /// observers that must not create one.
    pub fn has_side_file(pod: u128) -> bool {
        Place::of_this_process().is_ok_and(|place| {
            let mut names =
                (0..side_file_name::NAMES).map(|other| side_file_name::name(pod, place, other));
            names.any(|name| Path::new(MEETING).join(name).exists())
        })
    }

    /// The cords in `/dev/shm`, of all pods: for a clean-up of those whose pod is gone.
    ///
    /// # Errors
    /// If `/dev/shm` cannot be listed.
    pub fn cords() -> Result<Vec<CordEntry>, OsError> {
        cord::list(Path::new(MEETING)).map_err(|source| OsError::Call {
            call: format!("listing {MEETING}"),
            source,
        })
    }

    /// Removes the cords of `pod` in the directory of the pod's file and in `/dev/shm`. Call it
    /// when the pod is destroyed.
    pub fn remove_cords(directory: Option<&Path>, pod: u128, access: Access) {
        for directory in directory.into_iter().chain([Path::new(MEETING)]) {
            Cords::new(directory, pod, access).remove_all();
        }
    }

    /// Removes the side files of `pod`; returns how many there were. Call it when the pod is destroyed,
    /// and hold or watch no obituary of it any more in this process.
    ///
    /// # Errors
    /// [`OsError::InUse`] while another process is attached.
    pub fn remove_side_file(pod: u128) -> Result<usize, OsError> {
        let mut attached = ATTACHED.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = |linux: &&Linux| linux.pod == pod && linux.of == fork::generation();
        let mut removed = 0;
        if let Some(at) = attached.iter().position(ours) {
            removed += usize::from(attached[at].side.remove()?);
            attached.remove(at);
        }
        for entry in Self::side_files()? {
            if entry.pod != pod {
                continue;
            }
            match entry.remove() {
                Ok(is_removed) => removed += usize::from(is_removed),
                // The file of another user, which may have created it to block this name.
                Err(OsError::Call { source, .. })
                    if source.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    tracing::warn!(path = %entry.path.display(), "it stays, for it is another user's");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Returns whether the thread `tid`, which holds obituary `slot`, is gone.
    fn is_gone(&self, slot: u32, tid: u32) -> bool {
        // Acquire, paired with the holder's last store, and first: what is read after it is this holder's, not its
        // predecessor's.
        let said = self.side.holder(slot).load(Ordering::Acquire);
        let pid = self.side.holder_pid(slot).load(Ordering::Relaxed);
        let start_time = self.side.holder_start(slot).load(Ordering::Relaxed);
        if said != tid || start_time == 0 {
            // It had not said more of itself, or its start is not known.
            return proc::no_such_tid(tid);
        }
        let holder = ThreadIdentity {
            process: ProcessIdentity { pid, start_time: 0 },
            tid,
            start_time,
        };
        proc::liveness(holder) == Liveness::Gone
    }

    /// What stands in a slot whose word is `word`.
    fn reading(&self, slot: u32, word: u32) -> Obituary {
        if word & OWNER_DIED != 0 {
            // Relaxed: written before the holder died, which the acquire load of the word has seen.
            let tid = self.side.holder(slot).load(Ordering::Relaxed);
            return Obituary::Marked { tid };
        }
        match word & TID {
            0 => Obituary::Vacant,
            tid => Obituary::Held { tid },
        }
    }

    /// Marks the words as watched, so that the kernel wakes us. `false` if one has changed already.
    fn watch(&self, held: &[(u32, u32)]) -> bool {
        held.iter().all(|&(slot, tid)| {
            let word = self.side.word(slot);
            // Relaxed: this word alone decides; what it tells is read again by `obituary`.
            let seen = word.load(Ordering::Relaxed);
            seen == tid | WAITERS
                || seen == tid
                    && word
                        .compare_exchange(tid, tid | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                        .map_or_else(|seen| seen == tid | WAITERS, |_| true)
        })
    }

    /// Wakes the other watchers of those words that have changed: the kernel wakes one watcher only, and
    /// it was us, whatever else we may have been woken by at the same time.
    fn pass_on(&self, held: &[(u32, u32)]) {
        for &(slot, tid) in held {
            let word = self.side.word(slot);
            if word.load(Ordering::Relaxed) & !WAITERS != tid {
                futex::wake_all(word);
            }
        }
    }

    /// Without `futex_waitv`: sleeps on the bell and looks at the words every millisecond.
    fn poll_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        let start = Instant::now();
        while self.side.read(key) == seen
            && held
                .iter()
                .all(|&(slot, tid)| self.side.word(slot).load(Ordering::Relaxed) & !WAITERS == tid)
        {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            self.side.wait(key, seen, left.min(POLL));
        }
    }
}

impl Os for Linux {
    fn identity(&self) -> OsIdentity {
        self.identity
    }

    /// The monotonic clock, which stands still while the machine is suspended: nobody beats then, so that
    /// silence is nobody's fault. The clock that counts suspension (`CLOCK_BOOTTIME`) would make every
    /// member look silent on resumption. It is also the clock of the futex timeouts.
    fn now(&self) -> Duration {
        futex::monotonic()
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn gid(&self) -> u32 {
        rustix::process::getegid().as_raw()
    }

    fn this_thread(&self) -> ThreadIdentity {
        proc::this_thread(self.process)
    }

    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
        process::open(process)
    }

    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness {
        proc::liveness(thread)
    }

    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError> {
        let list = RobustList::of_this_thread()?;
        let window = self.side.window(slot, &list)?;
        let entry = SideFile::entry(&window, slot);
        let tid = proc::this_tid();
        let word = self.side.word(slot);
        // SAFETY: `entry` was made for this list's offset. Its window is unmapped only after this
        // thread has given the word back, or has died and another thread has taken the word.
        match unsafe { list.hold(entry, word, tid) } {
            Ok(()) => {
                self.side.keep_window(slot, tid, window);
                let me = proc::this_thread(self.process);
                let (pid, start) = (me.process.pid, me.start_time);
                self.side.holder_pid(slot).store(pid, Ordering::Relaxed);
                self.side.holder_start(slot).store(start, Ordering::Relaxed);
                // Only the holder writes it. Killed before this, the mark names nobody (or a holder whom
                // somebody cleared while it said Held); the word itself is marked in any case.
                self.side.holder(slot).store(tid, Ordering::Release);
                Ok(Ok(()))
            }
            Err(seen) => Ok(Err(self.reading(slot, seen))),
        }
    }

    fn release_obituary(&self, slot: u32) {
        let tid = proc::this_tid();
        let word = self.side.word(slot);
        // Relaxed: only this thread puts its own id there.
        if word.load(Ordering::Relaxed) & TID != tid {
            tracing::error!(
                slot,
                tid,
                "an obituary was to be released that this thread does not hold"
            );
            return;
        }
        let list = RobustList::of_this_thread();
        let list = list.expect("the thread that holds an obituary has a robust list");
        let Some(window) = self.side.take_window(slot) else {
            // Another user of the pod has written this thread's id there.
            tracing::error!(
                slot,
                tid,
                "an obituary names this thread, which does not hold it"
            );
            return;
        };
        let entry = SideFile::entry(&window, slot);
        self.side.holder(slot).store(0, Ordering::Relaxed);
        self.side.holder_start(slot).store(0, Ordering::Relaxed);
        // SAFETY: as in `hold_obituary`; this thread holds the word, so its entry is linked.
        let old = unsafe { list.release(entry, word) };
        if old & WAITERS != 0 {
            futex::wake_all(word);
        }
    }

    fn obituary(&self, slot: u32) -> Obituary {
        // Acquire: who sees the mark sees all that the dead thread wrote, since the kernel's exchange
        // orders it.
        let word = self.side.word(slot).load(Ordering::Acquire);
        self.reading(slot, word)
    }

    /// The kernel's mark names nobody, so a clearing that sleeps while another clears, a third holds and
    /// dies, could take the third's mark for the first's. The holder's id is cleared first, by
    /// compare-and-swap, so that of all who saw one mark a single one goes on. What then remains of the
    /// race hides a mark, never makes one: liveness tells that death, later.
    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        let word = self.side.word(slot);
        let now = word.load(Ordering::Acquire);
        if self.reading(slot, now) != seen || seen == Obituary::Vacant {
            return false;
        }
        let Obituary::Marked { tid } = seen else {
            return self.clear_if_gone(slot);
        };
        let holder = self.side.holder(slot);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if holder.compare_exchange(tid, 0, success, failure).is_err() {
            return false;
        }
        // AcqRel: the next holder sees what was done about this one. The loop is for the waiters bit,
        // which a watcher may set meanwhile.
        let cleared = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old & !WAITERS == now & !WAITERS).then_some(0)
        });
        if let Ok(old) = cleared
            && old & WAITERS != 0
        {
            futex::wake_all(word);
        }
        cleared.is_ok()
    }

    fn holder(&self, slot: u32) -> Option<ThreadIdentity> {
        // Acquire, paired with the holder's last store: the rest is this holder's.
        let tid = self.side.holder(slot).load(Ordering::Acquire);
        let pid = self.side.holder_pid(slot).load(Ordering::Relaxed);
        let start_time = self.side.holder_start(slot).load(Ordering::Relaxed);
        if tid == 0 || self.obituary(slot) != (Obituary::Held { tid }) {
            return None;
        }
        let process = ProcessIdentity {
            pid,
            start_time: match proc::is_own() {
                true => proc::start_time_of(pid)?,
                false => 0,
            },
        };
        Some(ThreadIdentity {
            process,
            tid,
            start_time,
        })
    }

    /// All threads that clear an unmarked word do so under a lock. So while the lock is held, a
    /// word that is not vacant keeps its holder, dead or alive: no other thread clears it, and none
    /// takes it. One compare-and-swap suffices then, and a death before or after it leaves nothing
    /// half done.
    fn clear_if_gone(&self, slot: u32) -> bool {
        let held_by = |word: u32| word & TID != 0 && word & OWNER_DIED == 0;
        let word = self.side.word(slot);
        if !held_by(word.load(Ordering::Relaxed)) {
            return false;
        }
        let cleared = self.side.while_clearing(slot, || {
            // Acquire: the holder's record of itself was written before.
            let now = word.load(Ordering::Acquire);
            let tid = now & TID;
            if !held_by(now) || !self.is_gone(slot, tid) {
                return None;
            }
            // Without it what is said of the thread's start counts for nobody. (Not if the kernel has marked the word meanwhile,
            // and somebody else has cleared it.)
            let holder = self.side.holder(slot);
            let _ = holder.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
            // AcqRel: the next holder sees what was done about this one. The loop is for the waiters bit, which a watcher
            // may set meanwhile.
            let taken = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old & !WAITERS == tid).then_some(0)
            });
            taken.ok()
        });
        match cleared.flatten() {
            Some(old) => {
                if old & WAITERS != 0 {
                    futex::wake_all(word);
                }
                true
            }
            None => false,
        }
    }

    fn bells(&self) -> &'static dyn Bells {
        self.side
    }

    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        assert!(
            held.len() <= self.most_watched(),
            "{} obituaries watched at once",
            held.len()
        );
        if !futex::can_wait_any() {
            return self.poll_for_news(held, key, seen, timeout);
        }
        let bell = self.side.bell(key);
        if self.watch(held)
            && let Some(value) = mark_sleeper(bell, seen)
        {
            let mut waiters = [futex::Waiter::NONE; futex::MOST_WORDS];
            waiters[0] = futex::Waiter::new(bell, value);
            for (waiter, &(slot, tid)) in waiters[1..].iter_mut().zip(held) {
                *waiter = futex::Waiter::new(self.side.word(slot), tid | WAITERS);
            }
            futex::wait_any(&waiters[..=held.len()], timeout);
        }
        self.pass_on(held);
    }

    fn claim_presence(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.files()?.presence.claim(id)
    }

    fn claim_presence_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.files()?.presence.claim_briefly(id)
    }

    fn is_present(&self, id: u32) -> bool {
        // A closed file proves no death.
        self.files()
            .map_or(true, |files| files.presence.is_locked(id))
    }

    fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.files()?.presence.use_system(number)
    }

    fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        self.files()?.presence.reserve_system(number)
    }

    fn tie_cord(&self, host: u32, generation: u32) -> Result<Presence, OsError> {
        self.cords.tie(host, generation)
    }

    fn pull_cord(&self, host: u32, generation: u32) -> bool {
        self.cords.pull(host, generation)
    }

    fn finds_cord(&self, host: u32, generation: u32) -> bool {
        self.cords.finds(host, generation)
    }

    fn has_cord_of_another(&self, host: u32, generation: u32) -> bool {
        self.cords.is_of_another(host, generation)
    }

    fn maps_pod(&self, process: ProcessIdentity) -> bool {
        let files = self.files();
        files.is_ok_and(|files| files.pod.is_mapped_by(process.pid))
    }

    fn removed_files(&self) -> Vec<(PathBuf, &'static str)> {
        let Ok(files) = self.files() else {
            return Vec::new();
        };
        let removed = files.named.iter().filter(|(file, _)| !file.has_name());
        removed
            .map(|(file, what_follows)| (file.path().to_owned(), *what_follows))
            .collect()
    }

    fn remove_cord(&self, host: u32, generation: u32) {
        self.cords.remove(host, generation);
    }

    fn most_watched(&self) -> usize {
        futex::MOST_WORDS - 1
    }

    fn wake_watchers(&self, slot: u32) {
        futex::wake_all(self.side.word(slot));
    }
}
