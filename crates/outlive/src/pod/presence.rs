//! Whether the members of a pod are alive, read from outside.
//!
//! The table of generations says which members may write. While any member lives, each death
//! reaches the table within a millisecond, but after the last member was killed, no member is left
//! to record its death. Here the operating system is asked itself, and nothing is changed.
//!
//! Tests: `tests/pod_destroy.rs`, and those of the command `outlive pod status`.

use super::{MemberStatus, Pod, Status as PodStatus};
use crate::host::ObservedOs;
use crate::membership::{InstanceId, Level, Status};
use std::collections::BTreeMap;

/// Whether the process or thread of an incarnation is known to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The process or thread is alive.
    Here,
    /// The process or thread has died, and its generation has not been raised yet.
    Gone,
    /// The presence cannot be determined here: the member runs on another operating system.
    Unknown,
}

impl Pod {
    /// Returns the presence of each member in `status` that may write. Needs no membership.
    pub fn presences(&self, status: &PodStatus) -> BTreeMap<InstanceId, Presence> {
        let here = Here::of(self);
        let writers = { status.members.iter() }.filter(|of| of.state.status.may_write());
        let mut all: BTreeMap<_, _> = { writers.clone() }
            .map(|of| (of.id, here.presence(self, of)))
            .collect();
        let is_host = |of: &MemberStatus| of.state.level == Some(Level::Host);
        // A host is gone if all its processes are, and no other process sends its heartbeat.
        for host in writers.clone().filter(|of| is_host(of)) {
            let is_of_it = |of: &MemberStatus| !is_host(of) && u32::from(of.state.host) == host.id;
            let is_used = { writers.clone() }
                .any(|of| is_of_it(of) && all.get(&of.id) != Some(&Presence::Gone));
            if !is_used && all.get(&host.id) == Some(&Presence::Here) {
                all.insert(host.id, Presence::Gone);
            }
        }
        all
    }
}

/// The operating system that this process runs on, if members of the pod run on it too.
struct Here {
    os: Option<(ObservedOs, u16)>,
}

impl Here {
    fn of(pod: &Pod) -> Self {
        let find = || {
            let os = pod.observe_os().ok()??;
            let systems = pod.tables.operating_systems();
            let number = systems.find(os.identity())?;
            Some((os, number))
        };
        Self { os: find() }
    }

    /// Returns the presence of a member that may write.
    fn presence(&self, pod: &Pod, status: &MemberStatus) -> Presence {
        let presence = self.evidence(pod, status);
        // It may have left, or its generation been raised, between the two checks.
        match pod.tables.generations().state(status.id) {
            Ok(state) if state == status.state => presence,
            _ => Presence::Here,
        }
    }

    /// Returns what the kernel knows of a member that may write.
    fn evidence(&self, pod: &Pod, status: &MemberStatus) -> Presence {
        let (tables, state) = (pod.tables, status.state);
        let systems = tables.operating_systems();
        let Some(its_os) = tables.os_of(state) else {
            return Presence::Unknown;
        };
        let is_here = { self.os.as_ref() }.is_some_and(|(_, number)| *number == its_os);
        let absence_is_proof =
            is_here || pod.segment.has_one_kernel() && systems.has_one_kernel(its_os);
        let absent = match &self.os {
            _ if absence_is_proof => Presence::Gone,
            Some((os, _)) if systems.is_earlier_boot(its_os, os.identity()) => Presence::Gone,
            _ => Presence::Unknown,
        };
        let is_locked = |id| { self.os.as_ref() }.is_some_and(|(os, _)| os.is_present(id));
        let process = |id| match pod.is_present(id) {
            // Nothing is known of the processes of another operating system.
            Ok(true) if !is_here && !pod.segment.has_one_kernel() && !is_locked(id) => absent,
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
