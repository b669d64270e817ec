//! A process's place in a pod, and the threads that it lets write.

use super::events::GroupEvents;
use super::fence::FenceAgent;
use super::join::{self, Claim, JoinError};
use super::sentinel::{self, Entry, bell_of};
use super::{
    Credentials, GroupError, GroupId, Guard, Instance, InstanceId, Level, Member, Settings, State,
    Status, Subscription, Tables,
};
use crate::host::Os;
use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// What the rooms above do for a dead instance before its id is used again: finish or undo what it had
/// begun.
///
/// Called by sentinels and by joining threads, by several at once and again after a death in the middle.
pub trait Recover: Send + Sync {
    /// Recovers the dead incarnation of `id`, acting as `process`, if nobody else does. Must end by
    /// moving the id's state from [`Status::Dead`] to [`Status::Recovered`], or leave it for later.
    fn recover(&self, tables: Tables, process: Option<Instance>, id: InstanceId, dead: State);
}

/// For pods in which nothing is owned: there is nothing to finish.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingHeld;

impl Recover for NothingHeld {
    fn recover(&self, tables: Tables, _process: Option<Instance>, id: InstanceId, dead: State) {
        let recovered = State {
            status: Status::Recovered,
            ..dead
        };
        tables.generations().transition(id, dead, recovered);
    }
}

/// How a process joins.
#[derive(Clone)]
pub struct ProcessOptions {
    host: InstanceId,
    host_name: String,
    id: Option<InstanceId>,
    name: String,
    fence_agent: Option<Arc<dyn FenceAgent>>,
    recover: Arc<dyn Recover>,
}

impl fmt::Debug for ProcessOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOptions")
            .field("host", &self.host)
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ProcessOptions {
    /// Joins as a process of the host `host`: an id, stable over the host's restarts, that an
    /// administrator gave it (LUPIN §3.1). Hosts of one machine are groups of processes.
    pub fn on_host(host: InstanceId) -> Self {
        Self {
            host,
            host_name: format!("host {host}"),
            id: None,
            name: String::new(),
            fence_agent: None,
            recover: Arc::new(NothingHeld),
        }
    }

    /// The host's name, for people and for the fence command.
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.host_name = name.into();
        self
    }

    /// Joins under this id, the same after every restart. Without it, any free id is taken.
    pub fn id(mut self, id: InstanceId) -> Self {
        self.id = Some(id);
        self
    }

    /// The process's name, for people.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How hosts of other operating systems are fenced, should this process become the fabric manager.
    pub fn fence_agent(mut self, agent: Arc<dyn FenceAgent>) -> Self {
        self.fence_agent = Some(agent);
        self
    }

    /// What is done for the dead before their ids are used again.
    pub fn recover(mut self, recover: Arc<dyn Recover>) -> Self {
        self.recover = recover;
        self
    }
}

/// What a process's sentinel and its members share.
pub(crate) struct Shared {
    pub tables: Tables,
    pub os: Arc<dyn Os>,
    pub os_number: u16,
    pub settings: Settings,
    pub stop: AtomicBool,
    pub fence_agent: Option<Arc<dyn FenceAgent>>,
    recover: Arc<dyn Recover>,
}

impl Shared {
    pub(crate) fn recover(&self, id: InstanceId) {
        if let Ok(state) = self.tables.generations().state(id)
            && state.status == Status::Dead
        {
            self.recover.recover(self.tables, None, id, state);
        }
    }

    pub(crate) fn recover_everyone(&self) {
        for (id, state) in sentinel::unrecovered(self.tables) {
            self.recover.recover(self.tables, None, id, state);
        }
    }

    /// Makes `instance` a member of the pod's own group.
    pub(crate) fn announce(&self, os: &dyn Os, instance: Instance, level: Level) {
        let log = self.tables.groups().log(GroupId::POD);
        if log.tell_joined(instance, level).is_some() {
            os.bells().ring(u64::from(GroupId::POD.number()));
        }
    }
}

/// A process that has joined a pod. Clones are the same process.
///
/// It leaves when [`leave`](Self::leave) is called or the last clone is dropped. A process that ends
/// without leaving has died, and is told apart.
#[derive(Clone)]
pub struct Process {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    host: Instance,
    instance: Instance,
    /// How many members act for this process; `None` once it is leaving.
    members: Mutex<Option<usize>>,
    sentinel: Mutex<Option<JoinHandle<()>>>,
}

/// A process cannot leave while threads of it are members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{members} threads of this process are still members; drop their `Member`s first")]
pub struct StillMembers {
    /// How many.
    pub members: usize,
}

impl Process {
    /// Joins the pod whose membership is `tables`, through `os`. Starts the sentinel thread.
    ///
    /// If the caller dies in the middle, it was never a member, or dies as one; nothing of it remains
    /// that others would not clear away.
    ///
    /// # Errors
    /// If the id or the host cannot be had, or nobody could fence this process.
    pub fn join(
        tables: Tables,
        os: Arc<dyn Os>,
        options: ProcessOptions,
    ) -> Result<Self, JoinError> {
        let settings = tables.settings();
        let os_number = tables.operating_systems().number(os.identity())?;
        refuse_the_unfenceable(tables, &*os, os_number, &settings, &options)?;
        let shared = Arc::new(Shared {
            tables,
            os,
            os_number,
            settings,
            stop: AtomicBool::new(false),
            fence_agent: options.fence_agent,
            recover: options.recover,
        });
        let entry = Entry {
            host: options.host,
            host_name: options.host_name,
            id: options.id,
            name: options.name,
        };
        let (answer, joined) = mpsc::sync_channel(1);
        let for_sentinel = Arc::clone(&shared);
        let sentinel = std::thread::Builder::new()
            .name("outlive-sentinel".into())
            .spawn(move || {
                let shared = for_sentinel;
                let os = Arc::clone(&shared.os);
                match sentinel::enter(&shared, &*os, &entry) {
                    Err(error) => {
                        let _ = answer.send(Err(error));
                    }
                    Ok((host, process)) => {
                        let _ = answer.send(Ok((host, process)));
                        sentinel::run(&shared, &*os, host, process);
                        sentinel::exit(&shared, &*os, host, process);
                    }
                }
            })
            .map_err(|source| crate::host::OsError::Call {
                call: "starting the sentinel thread".into(),
                source,
            })?;
        let (host, instance) = match joined.recv() {
            Ok(Ok(joined)) => joined,
            Ok(Err(error)) => {
                let _ = sentinel.join();
                return Err(error);
            }
            Err(_) => unreachable!("the sentinel answers before it ends"),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                shared,
                host,
                instance,
                members: Mutex::new(Some(0)),
                sentinel: Mutex::new(Some(sentinel)),
            }),
        })
    }

    /// This process's instance.
    pub fn instance(&self) -> Instance {
        self.inner.instance
    }

    /// The host that it is on.
    pub fn host(&self) -> Instance {
        self.inner.host
    }

    /// The membership of its pod.
    pub fn tables(&self) -> Tables {
        self.inner.shared.tables
    }

    /// The operating system, as this process's pod sees it.
    pub(crate) fn os(&self) -> &dyn Os {
        &*self.inner.shared.os
    }

    /// Makes the calling thread a member, under `id` or any free one. It holds the id until the
    /// [`Member`] is dropped or the thread dies.
    ///
    /// # Errors
    /// If the id cannot be had, or this process is leaving or has been fenced.
    pub fn enter(&self, id: Option<InstanceId>, name: &str) -> Result<Member, JoinError> {
        let inner = &self.inner;
        let shared = &inner.shared;
        let gone = JoinError::Gone {
            what: "process",
            instance: inner.instance,
        };
        {
            let mut members = lock(&inner.members);
            let Some(count) = members.as_mut() else {
                return Err(gone);
            };
            *count += 1;
        }
        let os = &*shared.os;
        let claim = Claim {
            level: Level::Thread,
            host_word: inner.host.id as u16,
            host: Some(inner.host),
            process: Some(inner.instance),
            name,
        };
        let joined = match id {
            Some(id) => {
                shared.recover(id);
                join::join(shared.tables, os, shared.os_number, id, &claim)
            }
            None => join::join_any(shared.tables, os, shared.os_number, &claim),
        };
        let instance = match joined {
            Ok(instance) => instance,
            Err(error) => {
                inner.one_member_less();
                return Err(error);
            }
        };
        shared.announce(os, instance, Level::Thread);
        // Its obituary is to be watched.
        os.bells().ring(bell_of(inner.instance.id));
        let tables = shared.tables;
        // SAFETY: `join` made this thread the only one that acts as `instance`, and it is raised only
        // after its obituary, the process's end or a fence has proven that this thread cannot write.
        let member = unsafe {
            Member::assume(
                tables.memory(),
                tables.generations(),
                instance,
                tables.log_at(instance.id),
                Some(os.bells()),
            )
        };
        let inner = Arc::clone(inner);
        Ok(member.on_leave(move |instance| {
            join::leave(inner.shared.tables, &*inner.shared.os, instance);
            inner.one_member_less();
        }))
    }

    /// Creates the control group `name`. Only those whom `guard` admits can join it.
    ///
    /// # Errors
    /// If the name is unfit or taken, or there is no room.
    pub fn create_group(&self, name: &str, guard: &Guard) -> Result<GroupId, GroupError> {
        let tables = self.tables();
        tables
            .groups()
            .create(tables.generations(), self.inner.instance, name, guard)
    }

    /// Makes `member`'s thread, its process and its host members of the group `name`, and subscribes to
    /// the group's events from there on. `secret` is what the group may ask for; user and group are the
    /// process's effective ones.
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

    /// Takes `member`'s thread out of `group`. Its process and host stay in for as long as they live.
    pub fn leave_group(&self, member: &Member, group: GroupId) {
        let shared = &self.inner.shared;
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

    /// The events of the whole pod from now on.
    pub fn events(&self) -> GroupEvents {
        let log = self.inner.shared.tables.groups().log(GroupId::POD);
        self.events_after(GroupId::POD, log.tail())
    }

    fn events_after(&self, group: GroupId, after: u64) -> GroupEvents {
        let tables = self.inner.shared.tables;
        let subscription =
            Subscription::new(tables.groups().log(group), tables.extent().ids, after);
        GroupEvents::new(Arc::clone(&self.inner.shared), group, subscription)
    }

    /// Leaves in good order, and ends the host if this was its last process. Waits for the sentinel.
    ///
    /// # Errors
    /// If threads of this process are members still; then nothing has happened.
    pub fn leave(&self) -> Result<(), StillMembers> {
        self.inner.leave()
    }
}

impl Inner {
    fn one_member_less(&self) {
        if let Some(count) = lock(&self.members).as_mut() {
            *count -= 1;
        }
    }

    fn leave(&self) -> Result<(), StillMembers> {
        {
            let mut members = lock(&self.members);
            match *members {
                Some(0) | None => *members = None,
                Some(members) => return Err(StillMembers { members }),
            }
        }
        let sentinel = lock(&self.sentinel).take();
        if let Some(sentinel) = sentinel {
            self.shared.stop.store(true, Ordering::Release);
            self.shared.os.bells().ring(bell_of(self.instance.id));
            // A sentinel that panicked has left its obituary marked; others bury the process.
            let _ = sentinel.join();
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contract 1: a generation is raised only after a fence or by what cannot err. Where neither could be
/// had for this process, it must not join.
fn refuse_the_unfenceable(
    tables: Tables,
    os: &dyn Os,
    os_number: u16,
    settings: &Settings,
    options: &ProcessOptions,
) -> Result<(), JoinError> {
    let uid = os.uid();
    if uid != settings.uid && uid != 0 {
        return Err(JoinError::Unfenceable {
            why: format!(
                "it runs as user {uid} and the pod's members as user {}, who cannot kill it; run it as that user",
                settings.uid
            ),
        });
    }
    let others = tables.writers().any(|(_, state)| {
        state.level == Some(Level::Host)
            && state.host != os_number
            && !tables
                .operating_systems()
                .is_earlier_boot(state.host, os.identity())
    });
    if others && options.fence_agent.is_none() && settings.fence_command.is_none() {
        return Err(JoinError::Unfenceable {
            why: "hosts of another operating system (another machine, boot or pid namespace) are in \
                  the pod, and it was created without a fence command; create it with one, or run all \
                  processes where they can kill each other"
                .into(),
        });
    }
    Ok(())
}
