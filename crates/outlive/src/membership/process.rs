//! A process as a member of a pod, and its threads that may write.

use super::admission::{Admission, refuse_the_unfenceable};
use super::events::GroupEvents;
use super::join::{self, Claim, JoinError};
use super::operating_systems::enter_system;
use super::recovery_thread;
use super::request::request_fence;
use super::sentinel::{self, Entry, bell_of};
use super::shared::{Shared, lock};
use super::watch::wake_watcher;
use super::{
    Credentials, GroupError, GroupId, Guard, Instance, InstanceId, Level, Member, NobodyToFence,
    ProcessOptions, Subscription, Tables,
};
use crate::host::Os;
use core::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;

/// A process that has joined a pod. Clones are the same process.
///
/// It leaves when [`leave`](Self::leave) is called or the last clone is dropped. A process that
/// ends without leaving has died, and is reported as dead.
#[derive(Clone)]
pub struct Process {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    host: Instance,
    instance: Instance,
    /// The number of members that act for this process; `None` once it is leaving.
    members: Mutex<Option<usize>>,
    /// The sentinel and the recovery thread.
    services: Mutex<Vec<JoinHandle<()>>>,
}

/// The error if a process leaves while threads of it are members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{members} threads of this process are still members; drop their `Member`s first")]
pub struct StillMembers {
    /// The number of threads that are members.
    pub members: usize,
}

impl Process {
    /// Joins the pod whose membership is `tables`, through `os`. Starts the sentinel thread.
    ///
    /// If the caller dies in the middle, it was never a member, or dies as one; survivors clear
    /// everything that it leaves.
    ///
    /// # Errors
    /// Fails if the id or the host is not available, or if no member could fence this process.
    pub fn join(
        tables: Tables,
        os: &'static dyn Os,
        options: ProcessOptions,
    ) -> Result<Self, JoinError> {
        let (os_number, system) = enter_system(tables, os, os.identity())?;
        let agent = options.agent(&tables.settings())?;
        let shared = Shared::new(tables, os, os_number, agent, options.obligations);
        shared.keep_system(system);
        let shared = Arc::new(shared);
        refuse_the_unfenceable(&shared, shared.os, Admission::First, None)?;
        let entry = Entry {
            host: options.host,
            host_name: options.host_name,
            id: options.id,
            name: options.name,
        };
        let (answer, joined) = mpsc::sync_channel(1);
        let (settled, in_order) = mpsc::sync_channel(1);
        let sentinel = service(
            &shared,
            "outlive-sentinel",
            move |shared, os| match sentinel::enter(shared, os, &entry) {
                Err(error) => {
                    let _ = answer.send(Err(error));
                }
                Ok((host, process)) => {
                    let _ = answer.send(Ok((host, process)));
                    sentinel::run(shared, os, host, process);
                    let in_order =
                        sentinel::await_recovery_thread(shared, host, process, &in_order);
                    sentinel::exit(shared, os, host, process, in_order);
                }
            },
        )?;
        let (host, instance) = match joined.recv() {
            Ok(Ok(joined)) => joined,
            Ok(Err(error)) => {
                let _ = sentinel.join();
                return Err(error);
            }
            Err(_) => unreachable!("a sentinel that panics ends the process"),
        };
        shared.recovery_thread.store(instance.id, Ordering::Relaxed);
        let (answer, begun) = mpsc::sync_channel(1);
        let recovery_thread = service(&shared, "outlive-recovery_thread", move |shared, os| {
            let in_order = recovery_thread::run(shared, os, instance, &answer);
            let _ = settled.send(in_order);
        });
        let inner = Inner {
            shared,
            host,
            instance,
            members: Mutex::new(Some(0)),
            services: Mutex::new(vec![sentinel]),
        };
        // From here on, dropping `inner` leaves.
        lock(&inner.services).push(recovery_thread?);
        begun
            .recv()
            .unwrap_or_else(|_| unreachable!("a recovery thread that panics ends the process"))
            .map_err(|why| JoinError::NotRecovered {
                id: instance.id,
                why,
            })?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the state that its threads share, which lives as long as one of them uses it.
    pub(crate) fn shared(&self) -> Weak<Shared> {
        Arc::downgrade(&self.inner.shared)
    }

    /// Returns the instance of this process.
    pub fn instance(&self) -> Instance {
        self.inner.instance
    }

    /// Returns the host that the process is on.
    pub fn host(&self) -> Instance {
        self.inner.host
    }

    /// Returns the membership of the process's pod.
    pub fn tables(&self) -> Tables {
        self.inner.shared.tables
    }

    /// Returns the operating system, as this process's pod sees it.
    pub(crate) fn os(&self) -> &dyn Os {
        self.inner.shared.os
    }

    /// Makes the calling thread a member, under `id` or any free one. It holds the id until the
    /// [`Member`] is dropped or the thread dies.
    ///
    /// # Errors
    /// Fails if the id is not available, or if this process is leaving or has been fenced.
    pub fn enter(&self, id: Option<InstanceId>, name: &str) -> Result<Member, JoinError> {
        let inner = &self.inner;
        let shared = &inner.shared;
        let counted = Counted::new(inner)?;
        let os = shared.os;
        let claim = Claim {
            level: Level::Thread,
            host_word: inner.host.id as u16,
            host: Some(inner.host),
            process: Some(inner.instance),
            has_cord: false,
            name,
        };
        let instance = match id {
            Some(id) => join::join(shared.tables, os, shared.os_number, id, &claim)?,
            None => join::join_any(shared.tables, os, shared.os_number, &claim)?,
        };
        // The watcher is to sleep on the new obituary too.
        wake_watcher(shared.tables, os, inner.host);
        let tables = shared.tables;
        // SAFETY: `join` made this thread the only one that acts as `instance`, and it is raised
        // only after its obituary, the process's end, a fence or its own giving up has proven that
        // this thread does not write as it any more.
        let member = unsafe {
            Member::assume(
                tables.memory(),
                tables.generations(),
                instance,
                tables.log_at(instance.id),
                Some(os.bells()),
            )
        };
        let member = member
            .with_obligations(Arc::clone(&shared.obligations))
            .with_records(tables.records());
        let member = member.on_leave(move |member| {
            let shared = &counted.inner.shared;
            if shared.obligations.end(member) {
                join::leave(shared.tables, shared.os, member.instance());
            } else {
                tracing::warn!(
                    ?member,
                    "a member left although its log could not be closed; it counts as dead"
                );
                join::give_up(shared.tables, shared.os, member.instance());
            }
        });
        shared
            .obligations
            .begin(&member)
            .map_err(|why| JoinError::NotRecovered {
                id: instance.id,
                why,
            })?;
        shared.announce(os, instance, Level::Thread);
        Ok(member)
    }

    /// Creates the control group `name`, as `member`. Only members that `guard` admits can join it.
    /// Waits while a live thread creates another group. If the caller dies, the group exists as a
    /// whole or not at all, and the next creator is not held up.
    ///
    /// # Errors
    /// If the name is not valid or taken, the table of groups is full, or `member` is not a thread
    /// of this process.
    pub fn create_group(
        &self,
        member: &Member,
        name: &str,
        guard: &Guard,
    ) -> Result<GroupId, GroupError> {
        let tables = self.tables();
        // The creator's word names a thread: if only that thread dies, its obituary shows it.
        if !self.has(member) {
            return Err(GroupError::NotMember);
        }
        tables
            .groups()
            .create(tables.generations(), member.instance(), name, guard)
    }

    /// Makes `member`'s thread, its process and its host members of the group `name`, and
    /// subscribes to the group's events from there on. `secret` is the secret that the group may
    /// require; user and group are the process's effective ones.
    ///
    /// # Errors
    /// If there is no such group or it refuses these credentials.
    pub fn join_group(
        &self,
        member: &Member,
        name: &str,
        secret: Option<&[u8]>,
    ) -> Result<GroupEvents, GroupError> {
        let shared = &self.inner.shared;
        if !self.has(member) {
            return Err(GroupError::NotMember);
        }
        let credentials = Credentials {
            uid: shared.os.uid(),
            gid: shared.os.gid(),
            secret: secret.map(<[u8]>::to_vec),
        };
        let groups = shared.tables.groups();
        let group = groups.admit(name, &credentials)?;
        let log = groups.log(group);
        let before = log.tail();
        for (instance, level) in [
            (self.inner.host, Level::Host),
            (self.inner.instance, Level::Process),
            (member.instance(), Level::Thread),
        ] {
            if log.tell_joined(instance, level).is_some() {
                shared.os.bells().ring(u64::from(group.number()));
            }
        }
        Ok(self.events_after(group, before))
    }

    /// Takes `member`'s thread out of `group`. Its process and host stay in for as long as they
    /// live.
    pub fn leave_group(&self, member: &Member, group: GroupId) {
        let shared = &self.inner.shared;
        if !self.has(member) {
            return;
        }
        if shared
            .tables
            .groups()
            .log(group)
            .tell_left(member.instance())
            .is_some()
        {
            shared.os.bells().ring(u64::from(group.number()));
        }
    }

    /// Requests a fence of the host of `member` (a host, a process or a thread) although its
    /// heartbeat beats: for example, because a worker of it does not finish a task. Returns the
    /// host, which no process can join from now on.
    ///
    /// The fabric manager fences it at its next round as if it were silent: its processes are
    /// killed, and its generation is raised when none of them can write. The host may be the
    /// caller's own. A host that cannot be fenced (it runs on another kernel, and there is no fence
    /// command) continues to run, and is reported as suspected.
    ///
    /// ```
    /// # use outlive::membership::ProcessOptions;
    /// # use outlive::pod::{Pod, PodOptions};
    /// # let path = format!("/dev/shm/outlive-doc-fence-{}", std::process::id());
    /// let pod = Pod::create(&path, PodOptions::new().size(4 << 20).ids(8))?;
    /// let process = pod.join(ProcessOptions::on_host(0))?;
    /// let member = process.enter(None, "worker")?;
    /// let gone = member.instance();
    /// drop(member);
    /// assert!(process.fence(gone).is_err());
    /// # process.leave()?;
    /// # Pod::destroy(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `member` has left or died.
    ///
    /// # Crash
    /// The fence is requested or not.
    pub fn fence(&self, member: Instance) -> Result<Instance, NobodyToFence> {
        request_fence(self.tables(), member)
    }

    /// Returns whether `member` is a thread of this process.
    pub fn has(&self, member: &Member) -> bool {
        let tables = self.tables();
        member.memory() == tables.memory()
            && tables
                .records()
                .read(member.instance())
                .is_some_and(|record| record.process == Some(self.inner.instance))
    }

    /// Returns the events of the whole pod from now on.
    pub fn events(&self) -> GroupEvents {
        let log = self.inner.shared.tables.groups().log(GroupId::POD);
        self.events_after(GroupId::POD, log.tail())
    }

    /// Wakes the threads of this operating system that wait for the pod's events, so that they
    /// check the [condition](GroupEvents::wait_for_unless) with which they wait. Reports no event.
    pub fn ring(&self) {
        let bell = u64::from(GroupId::POD.number());
        self.inner.shared.os.bells().ring(bell);
    }

    fn events_after(&self, group: GroupId, after: u64) -> GroupEvents {
        let tables = self.inner.shared.tables;
        let subscription =
            Subscription::new(tables.groups().log(group), tables.extent().ids, after);
        GroupEvents::new(
            Arc::clone(&self.inner.shared),
            self.inner.instance,
            self.inner.host,
            group,
            subscription,
        )
    }

    /// Leaves in good order, and ends the host if this was its last process. Waits for operations
    /// that the process has begun: a recovery, a fence command (at most the settings'
    /// `fence_timeout`), a [fence agent](super::FenceAgent) (as long as it takes). Heartbeats
    /// continue while it waits. The fabric manager's role is resigned as soon as no fence command
    /// or agent is at work.
    ///
    /// # Errors
    /// Fails if threads of this process are still members; then nothing has changed.
    pub fn leave(&self) -> Result<(), StillMembers> {
        self.inner.leave()
    }
}

/// A count of one member, for as long as the value lives.
struct Counted {
    inner: Arc<Inner>,
}

impl Counted {
    fn new(inner: &Arc<Inner>) -> Result<Self, JoinError> {
        match lock(&inner.members).as_mut() {
            Some(count) => *count += 1,
            None => {
                return Err(JoinError::Gone {
                    what: "process",
                    instance: inner.instance,
                });
            }
        }
        Ok(Self {
            inner: Arc::clone(inner),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.inner.members).as_mut() {
            *count -= 1;
        }
    }
}

/// Starts a sentinel or recovery thread of this process. A panic in it aborts the process, which
/// would otherwise continue without a heartbeat, or without recovering dead members. Other members
/// can recover from its death.
fn service(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce(&Shared, &dyn Os) + Send + 'static,
) -> Result<JoinHandle<()>, JoinError> {
    let shared = Arc::clone(shared);
    let thread = crate::host::spawn_service(name, move || {
        let body = AssertUnwindSafe(|| body(&shared, shared.os));
        if std::panic::catch_unwind(body).is_err() {
            std::process::abort();
        }
    });
    thread.map_err(JoinError::from)
}

impl Inner {
    fn leave(&self) -> Result<(), StillMembers> {
        {
            let mut members = lock(&self.members);
            match *members {
                Some(0) | None => *members = None,
                Some(members) => return Err(StillMembers { members }),
            }
        }
        let services = core::mem::take(&mut *lock(&self.services));
        if services.is_empty() {
            return Ok(());
        }
        self.shared.stop.store(true, Ordering::Release);
        let bells = self.shared.os.bells();
        bells.ring(recovery_thread::bell_of(self.instance.id));
        bells.ring(bell_of(self.instance.id));
        for service in services {
            // One of them may be dropping the last handle: it ends by itself.
            if service.thread().id() != std::thread::current().id() {
                let _ = service.join();
            }
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Members hold an `Arc`, so none is left.
        let _ = self.leave();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({} on host {})", self.instance(), self.host())
    }
}
