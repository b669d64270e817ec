//! A snapshot of a pod, read from outside: its members, and whether they are alive.
//!
//! The table of generations says which members may write. Only the operating system knows whether
//! such a member still exists: while any member lives, each death reaches the table within a
//! millisecond, but after the last member was killed, no member is left to record its death. A look
//! asks the operating system itself, and changes nothing.

use crate::output::printable;
use outlive::membership::{Instance, InstanceId, Level, State, Status};
use outlive::objects::Directory;
pub use outlive::pod::Presence;
use outlive::pod::{GroupStatus, MemberStatus, Pod};
use outlive::recovery::LockEntry;
use std::collections::BTreeMap;

/// The observed state of a member.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The status in the pod.
    pub status: MemberStatus,
    /// Whether the member is known to be alive, if it may write.
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

/// The observed state of a pod.
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
    /// Observes the state of `pod` without writing to it.
    pub fn at(pod: &Pod) -> Self {
        let status = pod.status();
        let presences = pod.presences(&status);
        let logs = pod.logs();
        let mutexes = named_mutexes(pod);
        let members = status
            .members
            .into_iter()
            .map(|status| {
                let log = logs.of(status.id);
                let claimant = log
                    .claimant()
                    .filter(|_| status.state.status == Status::Dead);
                let seen = Seen {
                    presence: presences.get(&status.id).copied(),
                    locks: log.locks().collect(),
                    mutexes: mutexes.get(&status.instance()).cloned().unwrap_or_default(),
                    recoverer: claimant.filter(|claimant| Some(*claimant) != log.owner()),
                    status,
                };
                (seen.id(), seen)
            })
            .collect();
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
