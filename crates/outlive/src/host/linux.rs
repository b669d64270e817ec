//! The real operating system.

use super::cord::Cords;
use super::obituaries::MOST_WATCHED;
use super::proc::Place;
use super::side_file::SideFile;
use super::side_file_header::MEETING;
use super::side_file_open::Access;
use super::user_ids::{self, Kind};
use super::{
    Bells, Liveness, Obituary, Os, OsError, OsIdentity, PodFile, Presence, ProcessHandle,
    ProcessIdentity, ThreadIdentity, futex, proc, process,
};
use crate::fork::{self, OwnMutex};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The smallest limit on descriptors with which a process can join: it keeps a few for each pod,
/// and needs some briefly.
const DESCRIPTORS: u64 = 16;

const POD_REMOVED: &str = "the pod's members go on, and no other process can join them; stop them, \
    then create the pod again";
const SIDE_FILE_REMOVED: &str = "the pod's members go on, but processes that join from now on use \
    another side file and are notified of deaths later; restart the members one after the other \
    (logind's RemoveIPC removes such files when their user logs out)";

const CORD_REMOVED: &str = "the pod's members go on, but processes of other users or in other PID \
    namespaces can no longer kill this process when its host is silent; restart this process";

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
/// os.hold_obituary(3)?.expect("no other process knows this pod");
/// assert_eq!(os.obituary(3), Obituary::Held { tid: os.this_thread().tid });
/// os.release_obituary(3);
/// assert_eq!(Linux::remove_side_file(pod)?, 1);
/// # Ok::<(), outlive::host::OsError>(())
/// ```
#[derive(Debug)]
pub struct Linux {
    pod: u128,
    identity: OsIdentity,
    /// The place of the attachment. A process can enter another time namespace later.
    place: Place,
    process: ProcessIdentity,
    /// The owner of the pod's file, as it is shown to this process.
    owner: Option<u32>,
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

/// The attachments of this process.
static ATTACHED: OwnMutex<Vec<&'static Linux>> = OwnMutex::new(Vec::new);

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
    /// If `/proc`, a robust list of known layout, or free space in `/dev/shm` is missing, if a file
    /// of that name is damaged, foreign, or made for another number of obituaries, or if the owner
    /// or the group of the pod's file has no id in this user namespace ([`OsError::Unmapped`]).
    pub fn attach(
        pod: u128,
        obituaries: u32,
        access: Access,
        file: PodFile,
        has_one_kernel: bool,
    ) -> Result<&'static Self, OsError> {
        let mut attached = ATTACHED.lock();
        // A program may have no /proc any more.
        let place = Place::of_this_process();
        let is_here = |linux: &Linux| place.as_ref().map_or(true, |place| linux.place == *place);
        let is_ours =
            |linux: &&&Linux| linux.pod == pod && linux.of == fork::generation() && is_here(linux);
        if let Some(linux) = attached.iter().find(is_ours) {
            if linux.side.obituaries() != obituaries {
                return Err(OsError::Missing {
                    what: "a side file of that size",
                    hint: format!(
                        "this process has attached to the pod with {} obituaries, and now requests \
                         {obituaries}",
                        linux.side.obituaries()
                    ),
                });
            }
            let own = linux.files()?;
            if !own.pod.is_same(&file) {
                return Err(OsError::Refused {
                    path: own.pod.path().to_owned(),
                    why: "this process also uses another file with the same pod number, so one of \
                          the two is a copy"
                        .into(),
                });
            }
            if linux.identity.one_kernel != has_one_kernel {
                // Presence is locked in one file only, and others conclude from that of this kind.
                return Err(OsError::Refused {
                    path: own.pod.path().to_owned(),
                    why: "this process has attached to the pod as memory of another kind; close \
                          the pod everywhere in this process, then open it again"
                        .into(),
                });
            }
            linux.users.fetch_add(1, Ordering::Relaxed);
            return Ok(linux);
        }
        if !fork::is_certain() {
            return Err(OsError::Missing {
                what: "madvise(MADV_WIPEONFORK)",
                hint: "a forked child could be mistaken for its parent; the kernel is older than \
                       4.14, a filter refuses the call, or no memory is left"
                    .into(),
            });
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
        let place = place?;
        let process = proc::this_process(place.namespaces)?;
        let me = rustix::process::geteuid().as_raw();
        if !user_ids::is_certain(Kind::User, me) {
            return Err(OsError::Missing {
                what: "an id of the user of this process",
                hint: format!(
                    "the user may have no id of its own in this user namespace, where it is shown \
                     as {me}; map the user into the namespace (/proc/PID/uid_map), or run the \
                     process as another user"
                ),
            });
        }
        let owner = access.owner;
        let access = access.of_certain_ids(file.path())?;
        let side = SideFile::attach(Path::new(MEETING), pod, place, obituaries, access)?;
        let identity = identity_of(side.id(), place, has_one_kernel);
        // A new description instead of the caller's, whose lock must end when the caller closes it.
        // (If the file cannot be opened again, its description and lock are kept.)
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
            place,
            process,
            owner,
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
        let mut attached = ATTACHED.lock();
        if self.users.load(Ordering::Relaxed) == 1 {
            self.side.retire(|slot, tid| self.side.is_gone(slot, tid))?;
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

    /// Removes the side files that this process uses for `pod`, and ends that use. Returns whether
    /// a file was removed.
    pub(super) fn remove_attached(pod: u128) -> Result<bool, OsError> {
        let mut attached = ATTACHED.lock();
        let ours = |linux: &&Linux| linux.pod == pod && linux.of == fork::generation();
        let mut removed = false;
        while let Some(at) = attached.iter().position(ours) {
            removed |= attached[at].side.remove()?;
            attached.remove(at);
        }
        Ok(removed)
    }

    fn files(&self) -> Result<Arc<Files>, OsError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.clone().ok_or_else(|| OsError::Missing {
            what: "the pod's file",
            hint: "this process has closed the pod; open it again".into(),
        })
    }
}

/// Returns the identity of this operating system, whose side file has the number `side`.
pub(super) fn identity_of(side: u128, place: Place, has_one_kernel: bool) -> OsIdentity {
    OsIdentity {
        // A process that locks presence in the other of the two files does not see this presence:
        // it counts as another operating system.
        id: if has_one_kernel { side } else { !side },
        boot: place.boot,
        machine: proc::machine(place.boot),
        one_kernel: has_one_kernel,
    }
}

impl Os for Linux {
    fn identity(&self) -> OsIdentity {
        self.identity
    }

    /// Returns the monotonic clock, which stops while the machine is suspended: no member can beat
    /// then, so that time must not count as silence. The clock that counts suspension
    /// (`CLOCK_BOOTTIME`) would make every member look silent on resumption. The monotonic clock is
    /// also that of the futex time-outs.
    fn now(&self) -> Duration {
        futex::monotonic()
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn gid(&self) -> u32 {
        rustix::process::getegid().as_raw()
    }

    fn is_of_owner(&self) -> bool {
        let is_mine = |owner| owner == self.uid() && user_ids::is_certain(Kind::User, owner);
        // The owner of a device is not the creator of the pod in it, so there the namespace counts.
        self.owner.is_none_or(is_mine) || !self.identity.one_kernel && user_ids::has_all(Kind::User)
    }

    fn this_thread(&self) -> ThreadIdentity {
        proc::this_thread(self.process, self.place.namespaces)
    }

    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
        process::open(process, self.place.namespaces)
    }

    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness {
        proc::liveness(thread, self.place.namespaces)
    }

    fn bells(&self) -> &'static dyn Bells {
        self.side
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
        let removed = removed.map(|(file, what_follows)| (file.path().to_owned(), *what_follows));
        let cords = self.cords.missing().into_iter();
        removed
            .chain(cords.map(|path| (path, CORD_REMOVED)))
            .collect()
    }

    fn remove_cord(&self, host: u32, generation: u32) {
        self.cords.remove(host, generation);
    }

    fn most_watched(&self) -> usize {
        MOST_WATCHED
    }

    fn wake_watchers(&self, slot: u32) {
        self.side.wake_watchers(slot);
    }

    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError> {
        self.side.hold_obituary(slot, self.this_thread())
    }

    fn release_obituary(&self, slot: u32) {
        self.side.release_obituary(slot);
    }

    fn obituary(&self, slot: u32) -> Obituary {
        self.side.obituary(slot)
    }

    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        self.side.clear_obituary(slot, seen)
    }

    fn holder(&self, slot: u32) -> Option<ThreadIdentity> {
        self.side.who_holds(slot)
    }

    fn clear_if_gone(&self, slot: u32) -> bool {
        self.side.clear_if_gone(slot)
    }

    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        self.side.wait_for_news(held, key, seen, timeout);
    }
}
