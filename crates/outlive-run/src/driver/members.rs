//! The members of each host that were seen alive. When a host dies by itself, they are those that
//! died with it.

use crate::crew::Crew;
use outlive::membership::{Instance, InstanceId, Level, Status, Tables};
use std::collections::{BTreeMap, HashMap};

/// The processes and threads of each incarnation of a host, as far as they were seen alive.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The incarnations of each host.
    hosts: HashMap<u32, Vec<Incarnation>>,
}

#[derive(Debug)]
struct Incarnation {
    host: Instance,
    members: BTreeMap<InstanceId, Instance>,
}

impl Members {
    /// Records the members of `crew` that live now.
    pub fn note(&mut self, tables: Tables, crew: &Crew) {
        let generations = tables.generations();
        for (id, state) in tables.writers() {
            let (host, member) = (u32::from(state.host), Instance::new(id, state.generation));
            if host >= crew.hosts || state.level == Some(Level::Host) {
                continue;
            }
            let incarnations = self.hosts.entry(host).or_default();
            let is_known = |it: &Incarnation| it.members.get(&id) == Some(&member);
            if incarnations.iter().any(is_known) {
                continue;
            }
            // A host joins before its members, so a new member is one of the current incarnation.
            let host = Instance::new(host, generations.current(host));
            match incarnations.iter_mut().find(|it| it.host == host) {
                Some(incarnation) => drop(incarnation.members.insert(id, member)),
                None => incarnations.push(Incarnation {
                    host,
                    members: BTreeMap::from([(id, member)]),
                }),
            }
        }
    }

    /// Removes and returns the members of the incarnation `host` that have not left.
    pub fn take(&mut self, host: Instance, tables: Tables) -> Vec<Instance> {
        let Some(incarnations) = self.hosts.get_mut(&host.id) else {
            return Vec::new();
        };
        let Some(at) = incarnations.iter().position(|it| it.host == host) else {
            return Vec::new();
        };
        let members = incarnations.swap_remove(at).members;
        let generations = tables.generations();
        let has_left = |it: &Instance| {
            let state = generations.state(it.id);
            state.is_ok_and(|state| state.status == Status::Left)
        };
        members.into_values().filter(|it| !has_left(it)).collect()
    }
}
