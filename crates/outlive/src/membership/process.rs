//! A process's place in a pod, and the threads that it lets write.

use super::door;
use super::events::GroupEvents;
use super::fence::{CommandAgent, FenceAgent};
use super::join::{self, Claim, JoinError};
use super::keeper;
use super::oses::enter_system;
use super::sentinel::{self, Entry, bell_of};
use super::watch::wake_watcher;
use super::{
    Credentials, FenceCommandDigest, GroupError, GroupId, Guard, Instance, InstanceId, Level,
    Member, NothingHeld, Obligations, Settings, Subscription, Tables,
};
use crate::host::{Os, OsError, OsIdentity, Presence};
use core::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;

/// How a process joins.
#[derive(Clone)]
pub struct ProcessOptions {
    host: InstanceId,
    host_name: String,
    id: Option<InstanceId>,
    name: String,
    fence_agent: Option<Arc<dyn FenceAgent>>,
    fence_command: Option<String>,
    obligations: Arc<dyn Obligations>,
    identity: Option<OsIdentity>,
    adopt_copy: bool,
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
            fence_command: None,
            obligations: Arc::new(NothingHeld),
            identity: None,
            adopt_copy: false,
        }
    }

    /// Joins also if the pod's file is a copy of the one that the pod was created in: the copy becomes a pod of its own, and
    /// the original's members count as dead in it. The original is not touched, and none of its members is killed.
    pub fn adopt_copy(mut self, adopt: bool) -> Self {
        self.adopt_copy = adopt;
        self
    }

    pub(crate) fn adopts_copy(&self) -> bool {
        self.adopt_copy
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

    /// The pod's fence command: a program and its arguments, split at white space, no shell. It gets the host's id and name as
    /// its last arguments, and exits with 0 only when the host is certainly off. Without this, a process that joins a pod with
    /// a fence command takes it from the environment variable [`FENCE_COMMAND`](Self::FENCE_COMMAND). It is never read from
    /// the pod, which keeps a [digest](super::FenceCommandDigest) of it.
    pub fn fence_command(mut self, command: impl Into<String>) -> Self {
        self.fence_command = Some(command.into());
        self
    }

    /// The environment variable that names the fence command of a process that brings none.
    pub const FENCE_COMMAND: &'static str = "OUTLIVE_FENCE_COMMAND";

    /// By what this process fences, under the pod's settings.
    fn agent(&self, settings: &Settings) -> Result<Option<Arc<dyn FenceAgent>>, JoinError> {
        let refused = |why| Err(JoinError::FenceCommand { why });
        let from_environment = || std::env::var(Self::FENCE_COMMAND).ok();
        let command = match (&self.fence_command, settings.fence_command) {
            (Some(_), None) => {
                return refused(
                    "the pod was created without one; leave it out, or create the pod with it",
                );
            }
            (None, None) => None,
            (given, Some(_)) => given.clone().or_else(from_environment),
        };
        match (command, settings.fence_command, &self.fence_agent) {
            (Some(command), Some(digest), _) if FenceCommandDigest::of(&command) != digest => {
                refused("it is not the one that the pod was created with; all members use the same")
            }
            (_, _, Some(agent)) => Ok(Some(Arc::clone(agent))),
            (Some(command), ..) => Ok(Some(Arc::new(CommandAgent {
                command,
                timeout: settings.fence_timeout,
            }))),
            (None, Some(_), None) => refused(
                "the pod was created with one, which every process brings: give it by --fence-command \
                 (`ProcessOptions::fence_command`) or in the environment variable OUTLIVE_FENCE_COMMAND",
            ),
            (None, None, None) => Ok(None),
        }
    }

    /// What stands for this operating system in the pod, if not what it says of itself.
    pub(crate) fn identity(mut self, identity: OsIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// What the rooms above owe the instances of this process. [`Pod::join`](crate::pod::Pod::join) sets
    /// it.
    pub fn obligations(mut self, obligations: Arc<dyn Obligations>) -> Self {
        self.obligations = obligations;
        self
    }
}

/// What a process's sentinel and its members share.
pub(crate) struct Shared {
    pub tables: Tables,
    pub os: &'static dyn Os,
    pub os_number: u16,
    pub settings: Settings,
    pub stop: AtomicBool,
    pub fence_agent: Option<Arc<dyn FenceAgent>>,
    pub obligations: Arc<dyn Obligations>,
    /// The process's id, once it has one.
    keeper: AtomicU32,
    /// What says to this kernel that the process has its id: from before it joins until it has left.
    presence: Mutex<Option<Presence>>,
    /// What ties it to its host's cord.
    cord: Mutex<Option<Presence>>,
    /// What keeps the number of its operating system.
    system: Mutex<Option<Presence>>,
}

impl Shared {
    pub(crate) fn new(
        tables: Tables,
        os: &'static dyn Os,
        os_number: u16,
        fence_agent: Option<Arc<dyn FenceAgent>>,
        obligations: Arc<dyn Obligations>,
    ) -> Self {
        let settings = tables.settings();
        Self {
            tables,
            os,
            os_number,
            fence_agent,
            settings,
            stop: AtomicBool::new(false),
            obligations,
            keeper: AtomicU32::new(u32::MAX),
            presence: Mutex::new(None),
            cord: Mutex::new(None),
            system: Mutex::new(None),
        }
    }

    /// Keeps the presence of the process, and its tie to the cord, until it has left.
    pub(crate) fn keep(&self, presence: Presence, cord: Option<Presence>) {
        *lock(&self.presence) = Some(presence);
        *lock(&self.cord) = cord;
    }

    /// Gives all of it up: the process has left, and writes no more.
    pub(crate) fn give_up_presence(&self) {
        for kept in [&self.cord, &self.presence, &self.system] {
            drop(lock(kept).take());
        }
    }

    /// Whether the process may use the pod: from before it joins until it has left.
    pub(crate) fn is_present(&self) -> bool {
        lock(&self.presence).is_some()
    }

    pub(crate) fn wake_keeper(&self, os: &dyn Os) {
        os.bells()
            .ring(keeper::bell_of(self.keeper.load(Ordering::Relaxed)));
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
    /// The sentinel and the keeper.
    services: Mutex<Vec<JoinHandle<()>>>,
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
        os: &'static dyn Os,
        options: ProcessOptions,
    ) -> Result<Self, JoinError> {
        let identity = options.identity.unwrap_or_else(|| os.identity());
        let (os_number, system) = enter_system(tables, os, identity)?;
        let agent = options.agent(&tables.settings())?;
        let shared = Shared::new(tables, os, os_number, agent, options.obligations);
        *lock(&shared.system) = Some(system);
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
                    let in_order = sentinel::await_keeper(shared, host, process, &in_order);
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
        shared.keeper.store(instance.id, Ordering::Relaxed);
        let (answer, begun) = mpsc::sync_channel(1);
        let keeper = service(&shared, "outlive-keeper", move |shared, os| {
            let in_order = keeper::run(shared, os, instance, &answer);
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
        lock(&inner.services).push(keeper?);
        begun
            .recv()
            .unwrap_or_else(|_| unreachable!("a keeper that panics ends the process"))
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
        self.inner.shared.os
    }

    /// Makes the calling thread a member, under `id` or any free one. It holds the id until the
    /// [`Member`] is dropped or the thread dies.
    ///
    /// # Errors
    /// If the id cannot be had, or this process is leaving or has been fenced.
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
        // Its obituary is to be watched.
        wake_watcher(shared.tables, os, inner.host);
        let tables = shared.tables;
        // SAFETY: `join` made this thread the only one that acts as `instance`, and it is raised only
        // after its obituary, the process's end, a fence or its own giving up has proven that this thread
        // does not write as it any more.
        let member = unsafe {
            Member::assume(
                tables.memory(),
                tables.generations(),
                instance,
                tables.log_at(instance.id),
                Some(os.bells()),
            )
        };
        let member = member.with_obligations(Arc::clone(&shared.obligations));
        let member = member.on_leave(move |member| {
            let shared = &counted.inner.shared;
            if shared.obligations.end(member) {
                join::leave(shared.tables, shared.os, member.instance());
            } else {
                tracing::warn!(?member, "left holding something; it counts as dead");
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

    /// Creates the control group `name`, as `member`. Only those whom `guard` admits can join it. Waits for a live thread that
    /// creates another group; if the caller dies, the group exists as a whole or not at all, and the next creator goes on.
    ///
    /// # Errors
    /// If the name is unfit or taken, there is no room, or `member` is no thread of this process.
    pub fn create_group(
        &self,
        member: &Member,
        name: &str,
        guard: &Guard,
    ) -> Result<GroupId, GroupError> {
        let tables = self.tables();
        // The word of who is creating names a thread: should it die alone, its own obituary says so.
        if !self.has(member) {
            return Err(GroupError::NotMember);
        }
        tables
            .groups()
            .create(tables.generations(), member.instance(), name, guard)
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

    /// Takes `member`'s thread out of `group`. Its process and host stay in for as long as they live.
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

    /// Whether `member` is a thread of this process.
    pub fn has(&self, member: &Member) -> bool {
        let tables = self.tables();
        member.memory() == tables.memory()
            && tables
                .records()
                .read(member.instance())
                .is_some_and(|record| record.process == Some(self.inner.instance))
    }

    /// The events of the whole pod from now on.
    pub fn events(&self) -> GroupEvents {
        let log = self.inner.shared.tables.groups().log(GroupId::POD);
        self.events_after(GroupId::POD, log.tail())
    }

    /// Wakes those of this operating system who wait for the pod's events, to look at
    /// [what else](GroupEvents::wait_for_unless) they wait for. Nothing is told by it.
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

    /// Leaves in good order, and ends the host if this was its last process. Waits for what the process
    /// has begun: a recovery, a fence command (at most the settings' `fence_timeout`), a
    /// [fence agent](super::FenceAgent) (as long as it takes). The hearts beat while it waits. The fabric
    /// manager's role is resigned as soon as no fence command or agent is at work.
    ///
    /// # Errors
    /// If threads of this process are members still; then nothing has happened.
    pub fn leave(&self) -> Result<(), StillMembers> {
        self.inner.leave()
    }
}

/// One member more, for as long as it lives.
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

/// Starts a thread of this process's own. A panic in it ends the process: it would go on without a heart,
/// or without anybody to finish for the dead, and the others can deal with a death.
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
        bells.ring(keeper::bell_of(self.instance.id));
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a process asks whether it may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Before it does anything.
    First,
    /// When others can see its host, or itself.
    Seen,
}

/// Contract 1: a generation is raised only after a fence or by what cannot err. Where neither could be
/// had for this process, it must not join. `cord`: why it has no cord, once that is known.
pub(crate) fn refuse_the_unfenceable(
    shared: &Shared,
    os: &dyn Os,
    stage: Admission,
    cord: Option<&OsError>,
) -> Result<(), JoinError> {
    let (tables, settings) = (shared.tables, &shared.settings);
    let uid = os.uid();
    let by_agent =
        (settings.fence_command.is_some() || settings.fence_agents) && shared.fence_agent.is_some();
    if by_agent {
        return Ok(());
    }
    if uid != settings.uid {
        return Err(JoinError::Unfenceable {
            why: format!(
                "it runs as user {uid} and the pod's members as user {}, who could not kill it; run it as \
                 that user, or create the pod with a fence command",
                settings.uid
            ),
        });
    }
    if os.this_thread().process.pid == 1 {
        return Err(JoinError::Unfenceable {
            why: "it is the first process of its PID namespace, which no other process of the pod could kill; start the \
                  container with an init (docker run --init; shareProcessNamespace), or create the pod with a fence \
                  command"
                .into(),
        });
    }
    let systems = tables.operating_systems();
    for (id, state) in tables.writers() {
        if state.level != Some(Level::Host) || state.host == shared.os_number {
            continue;
        }
        if !systems.absence_is_proof(shared.os_number, state.host) {
            // Looked at once, before this process holds anything: it takes its time.
            let is_over = systems.is_earlier_boot(state.host, os.identity())
                && (stage != Admission::First
                    || !door::beats_within(tables, os, id, settings.suspicion));
            if is_over {
                continue;
            }
            return Err(JoinError::Unfenceable {
                why: format!(
                    "host {id} of another machine, or of a container with a /dev/shm of its own on memory that machines \
                     share, is in the pod, and the pod was created without a fence command; create it with one, run all \
                     processes where they share /dev/shm, or, if host {id} is off, say so by \
                     `outlive pod bury PATH --host {id}`"
                ),
            });
        }
        if let Some(error) = cord {
            return Err(JoinError::Unfenceable {
                why: format!(
                    "host {id} runs in another PID namespace or with another /dev/shm, and could not kill it, because it has \
                     no cord ({error}); run all processes in one PID namespace, or create the pod with a fence command"
                ),
            });
        }
        if let Some(why) = unreachable_process(tables, os, id) {
            return Err(JoinError::Unfenceable { why });
        }
    }
    Ok(())
}

/// Why a process of the host `id`, of this kernel and another operating system, could not be killed, if there is one.
fn unreachable_process(tables: Tables, os: &dyn Os, id: InstanceId) -> Option<String> {
    let of_host = tables
        .writers()
        .filter(|(_, state)| state.level == Some(Level::Process) && u32::from(state.host) == id);
    for (process, state) in of_host {
        let record = tables
            .records()
            .read(Instance::new(process, state.generation));
        let generation = tables.generations().state(id).ok()?.generation;
        let has_cord = record.is_none_or(|record| record.has_cord) && os.finds_cord(id, generation);
        if !has_cord && os.is_present(process) {
            return Some(format!(
                "process {process} of host {id} runs in another PID namespace or with another /dev/shm, and has no cord by \
                 which it could be killed from here (all must reach the pod's file in the same directory, writable to \
                 them, on a filesystem with leases); run all processes in one PID namespace, or create the pod with a fence command"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Extent;
    use super::*;
    use outlive_memory::{Memory, Native, PersistenceDomain};

    struct Agent;

    impl FenceAgent for Agent {
        fn fence(&self, _: Instance, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    fn options(command: Option<&str>) -> ProcessOptions {
        let options = ProcessOptions::on_host(0);
        match command {
            Some(command) => options.fence_command(command),
            None => options,
        }
    }

    fn settings(command: Option<&str>) -> Settings {
        Settings {
            fence_command: command.map(FenceCommandDigest::of),
            ..Settings::default()
        }
    }

    fn refusal(own: Option<&str>, pods: Option<&str>) -> &'static str {
        match options(own).agent(&settings(pods)) {
            Err(JoinError::FenceCommand { why }) => why,
            other => panic!("{own:?} in a pod with {pods:?}: {:?}", other.map(|_| ())),
        }
    }

    #[test]
    fn a_fence_command_is_the_one_that_the_pod_was_created_with() {
        let missing = refusal(None, Some("/bin/off now"));
        assert!(missing.contains("--fence-command") && missing.contains("OUTLIVE_FENCE_COMMAND"));
        assert!(refusal(Some("/bin/off"), Some("/bin/off now")).contains("not the one"));
        assert!(refusal(Some("/bin/off"), None).contains("without one"));
        let agent = |own, pods| options(own).agent(&settings(pods)).expect("it fits");
        assert!(agent(Some("/bin/off now"), Some("/bin/off now")).is_some());
        assert!(agent(None, None).is_none());
        // An agent of the process's own does for the command, but not for a wrong one.
        let with_agent = |own| options(own).fence_agent(Arc::new(Agent));
        assert!(with_agent(None).agent(&settings(Some("/bin/off"))).is_ok());
        let wrong = with_agent(Some("/bin/on")).agent(&settings(Some("/bin/off")));
        assert!(matches!(wrong, Err(JoinError::FenceCommand { .. })));
    }

    #[test]
    fn what_stands_in_the_segment_is_never_run() {
        let extent = Extent {
            ids: 8,
            groups: 1,
            events: 8,
            log_bytes: 0,
        };
        let (places, size) = extent.lay_out();
        let memory = Native::leaked(size, PersistenceDomain::Flushed);
        let tables = Tables::new(memory, extent, places);
        tables.initialise(&settings(None));
        let at = tables.settings_at();
        for word in 0..Settings::BYTES / 8 {
            for value in [1, 9, u64::MAX, u64::from_ne_bytes(*b"/bin/rm ")] {
                memory.store(at + word * 8, value, outlive_memory::Ordering::Relaxed);
                // Either no program is run, or the process does not join.
                let agent = options(None).agent(&tables.settings());
                assert!(
                    matches!(agent, Ok(None) | Err(_)),
                    "word {word}: {value:#x}"
                );
                let other = options(Some("/bin/off")).agent(&tables.settings());
                assert!(other.is_err(), "word {word}: {value:#x}");
            }
        }
    }
}
