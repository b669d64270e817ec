//! A snapshot of a pod, read from outside: its members, and whether they are alive.
//!
//! The table of generations says which members may write. Only the operating system knows whether
//! such a member still exists: while any member lives, each death reaches the table within a
//! millisecond, but after the last member was killed, no member is left to record its death. A look
//! asks the operating system itself, and changes nothing.

use crate::output::printable;
use outlive::host::ObservedOs;
use outlive::membership::{Instance, InstanceId, Level, State, Status};
use outlive::objects::Directory;
use outlive::pod::{GroupStatus, MemberStatus, Pod};
use outlive::recovery::LockEntry;
use std::collections::BTreeMap;

/// Whether the process or thread of an incarnation is known to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is alive.
    Here,
    /// It has died, and its generation has not been raised yet.
    Gone,
    /// It cannot be determined from here: the member runs on another operating system.
    Unknown,
}

/// A member, as a look has found it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The status in the pod.
    pub status: MemberStatus,
    /// The answer of the operating system, for members that may write.
    pub presence: Option<Presence>,
    /// The locks in the member's log.
    pub locks: Vec<LockEntry>,
    /// The names of the mutexes that the member holds.
    pub mutexes: Vec<String>,
    /// The member that recovers it, if there is one.
    pub recoverer: Option<Instance>,
}

impl Seen {
    /// Returns the member's id.
    pub fn id(&self) -> InstanceId {
        self.status.id
    }

    /// Returns the member's state.
    pub fn state(&self) -> State {
        self.status.state
    }

    /// Returns the name of the member's level.
    pub fn level(&self) -> &'static str {
        self.state().level.map_or("member", Level::name)
    }

    /// Describes the member's condition; for a dead member, with the new generation.
    pub fn condition(&self) -> String {
        let state = self.state();
        let name = state.status.name();
        match (self.presence, state.status, self.recoverer) {
            (Some(Presence::Gone), ..) => format!("{name}, but gone"),
            (_, Status::Dead, Some(by)) => {
                format!("dead, generation {}, recovered by {by}", state.generation)
            }
            (_, Status::Dead | Status::Recovered, _) => {
                format!("{name}, generation {}", state.generation)
            }
            _ => name.into(),
        }
    }

    /// Returns the number of locks in the member's log and the names of the mutexes that it holds,
    /// as text.
    pub fn lock_summary(&self) -> String {
        let count = Some(self.locks.len()).filter(|count| *count > 0);
        let names = self.mutexes.iter().map(printable);
        let parts: Vec<_> = { count.map(|count| count.to_string()).into_iter() }
            .chain(names)
            .collect();
        match parts.is_empty() {
            true => "-".into(),
            false => parts.join(", "),
        }
    }

    /// Returns the member's process id; for a thread, its process id and its thread id.
    pub fn pid(&self) -> String {
        let Some(record) = &self.status.record else {
            return "-".into();
        };
        match self.state().level {
            Some(Level::Thread) => format!("{}/{}", record.thread.process.pid, record.thread.tid),
            Some(Level::Process) => record.thread.process.pid.to_string(),
            _ => "-".into(),
        }
    }

    /// Returns the name that the member gave itself.
    pub fn name(&self) -> &str {
        self.status
            .record
            .as_ref()
            .map_or("", |record| &record.name)
    }

    /// Returns whether the member may write and is not known to be gone.
    pub fn is_there(&self) -> bool {
        self.presence
            .is_some_and(|presence| presence != Presence::Gone)
    }
}

/// A pod, as a look has found it.
#[derive(Clone, Debug)]
pub struct Look {
    /// All ids that were ever used.
    pub members: BTreeMap<InstanceId, Seen>,
    /// The fabric manager, if there is one.
    pub manager: Option<Instance>,
    /// The control groups, the pod's own first.
    pub groups: Vec<GroupStatus>,
}

impl Look {
    /// Looks at `pod` without writing to it.
    pub fn at(pod: &Pod) -> Self {
        let status = pod.status();
        let here = Here::of(pod);
        let logs = pod.logs();
        let mutexes = named_mutexes(pod);
        let mut members: BTreeMap<_, _> = status
            .members
            .into_iter()
            .map(|status| {
                let log = logs.of(status.id);
                let claimant = log
                    .claimant()
                    .filter(|_| status.state.status == Status::Dead);
                let seen = Seen {
                    presence: here.presence(pod, &status),
                    locks: log.locks().collect(),
                    mutexes: mutexes.get(&status.instance()).cloned().unwrap_or_default(),
                    recoverer: claimant.filter(|claimant| Some(*claimant) != log.owner()),
                    status,
                };
                (seen.id(), seen)
            })
            .collect();
        let empty: Vec<_> = members
            .values()
            .filter(|seen| is_empty_host(seen, &members))
            .map(Seen::id)
            .collect();
        for id in empty {
            if let Some(host) = members.get_mut(&id) {
                host.presence = Some(Presence::Gone);
            }
        }
        Self {
            members,
            manager: status.manager,
            groups: status.groups,
        }
    }

    /// Returns the hosts, each followed by its processes, each followed by its threads, with their
    /// depths. Each member appears once.
    pub fn tree(&self) -> Vec<(usize, &Seen)> {
        let of = |level, wanted: &dyn Fn(&Seen) -> bool| {
            let all = self.members.values();
            all.filter(|seen| seen.state().level == Some(level) && wanted(seen))
                .collect::<Vec<_>>()
        };
        let process_of = |thread: &Seen| {
            thread
                .status
                .record
                .as_ref()
                .and_then(|record| record.process)
        };
        let mut tree: Vec<(usize, &Seen)> = Vec::new();
        for host in of(Level::Host, &|_| true) {
            tree.push((0, host));
            let on_it = |seen: &Seen| InstanceId::from(seen.state().host) == host.id();
            for process in of(Level::Process, &on_it) {
                tree.push((1, process));
                let its_own = |thread: &Seen| {
                    on_it(thread) && process_of(thread) == Some(process.status.instance())
                };
                tree.extend(
                    of(Level::Thread, &its_own)
                        .into_iter()
                        .map(|thread| (2, thread)),
                );
            }
        }
        // Threads of processes whose ids are in use again, and remnants of damage.
        let shown: Vec<_> = tree.iter().map(|(_, seen)| seen.id()).collect();
        let rest: Vec<_> = self
            .members
            .values()
            .filter(|seen| !shown.contains(&seen.id()))
            .collect();
        for seen in rest {
            let host = tree.iter().position(|(depth, host)| {
                *depth == 0 && host.id() == InstanceId::from(seen.state().host)
            });
            let after = |at: usize| {
                tree[at + 1..]
                    .iter()
                    .position(|(depth, _)| *depth == 0)
                    .map_or(tree.len(), |next| at + 1 + next)
            };
            let place = host.map_or(tree.len(), after);
            tree.insert(place, (1, seen));
        }
        tree
    }

    /// Returns the members that may write and are not known to be gone.
    pub fn there(&self) -> impl Iterator<Item = &Seen> {
        self.members.values().filter(|seen| seen.is_there())
    }
}

/// Returns the names of the mutexes that each member holds. Ignores damage, which `outlive pod
/// check` reports.
fn named_mutexes(pod: &Pod) -> BTreeMap<Instance, Vec<String>> {
    let directory = pod.heap().and_then(|heap| Directory::open(heap).ok()?);
    let all = directory.and_then(|directory| directory.observe().ok());
    let mut held: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for object in all.unwrap_or_default() {
        if let Some(holder) = object.holder {
            held.entry(holder).or_default().push(object.name);
        }
    }
    held
}

/// Returns whether `host` is gone: all its processes are, and no other process sends its heartbeat.
fn is_empty_host(host: &Seen, members: &BTreeMap<InstanceId, Seen>) -> bool {
    host.state().level == Some(Level::Host)
        && host.presence == Some(Presence::Here)
        && !members.values().any(|seen| {
            seen.state().level != Some(Level::Host)
                && InstanceId::from(seen.state().host) == host.id()
                && seen.is_there()
        })
}

/// The operating system that this process runs on, if members of the pod run on it too.
struct Here {
    os: Option<(ObservedOs, u16)>,
}

impl Here {
    fn of(pod: &Pod) -> Self {
        let find = || {
            let os = pod.observe_os().ok()??;
            let systems = pod.tables().operating_systems();
            let number = systems.find(os.identity())?;
            Some((os, number))
        };
        Self { os: find() }
    }

    fn presence(&self, pod: &Pod, status: &MemberStatus) -> Option<Presence> {
        let state = status.state;
        if !state.status.may_write() {
            return None;
        }
        let presence = self.evidence(pod, status);
        // It may have left, or its generation been raised, between the two checks.
        Some(
            if pod.tables().generations().state(status.id) == Ok(state) {
                presence
            } else {
                Presence::Here
            },
        )
    }

    /// Returns what the kernel knows of a member that may write.
    fn evidence(&self, pod: &Pod, status: &MemberStatus) -> Presence {
        let (tables, state) = (pod.tables(), status.state);
        let systems = tables.operating_systems();
        let Some(its_os) = tables.os_of(state) else {
            return Presence::Unknown;
        };
        let is_here = { self.os.as_ref() }.is_some_and(|(_, number)| *number == its_os);
        let absence_is_proof =
            is_here || pod.segment().has_one_kernel() && systems.has_one_kernel(its_os);
        let absent = match &self.os {
            _ if absence_is_proof => Presence::Gone,
            Some((os, _)) if systems.is_earlier_boot(its_os, os.identity()) => Presence::Gone,
            _ => Presence::Unknown,
        };
        let process = |id| match pod.is_present(id) {
            Ok(true) => Presence::Here,
            Ok(false) => absent,
            Err(_) => Presence::Unknown,
        };
        match (state.level, &self.os) {
            (Some(Level::Process), _) => process(status.id),
            // Decided later, from its processes.
            (Some(Level::Host), _) if absence_is_proof && state.status != Status::Joining => {
                Presence::Here
            }
            (Some(Level::Host), _) if !absence_is_proof => absent,
            // A thread, or a host that is being joined: the obituary is that of the joining thread.
            (_, Some((os, _))) if is_here => match os.is_held(status.id) {
                true => Presence::Here,
                false => Presence::Gone,
            },
            _ => match status.record.as_ref().and_then(|record| record.process) {
                Some(of) => process(of.id),
                None => Presence::Unknown,
            },
        }
    }
}
