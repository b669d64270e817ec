//! Who is in a pod, and how they are.

use super::Pod;
use crate::membership::{GroupId, Instance, InstanceId, Record, State};

/// One id that is or was a member.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The id.
    pub id: InstanceId,
    /// Its state in the table of generations.
    pub state: State,
    /// Where its incarnation runs or, once it has left or died, ran; `None` if nothing is known.
    pub record: Option<Record>,
    /// How often its heart has beaten (hosts and processes).
    pub beats: u64,
}

impl MemberStatus {
    /// The incarnation that the record is about: for the dead, the one before the raised generation.
    pub fn instance(&self) -> Instance {
        self.record
            .as_ref()
            .map_or(Instance::new(self.id, self.state.generation), |record| {
                record.instance
            })
    }
}

/// One control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Which one.
    pub id: GroupId,
    /// Its name; empty for the pod's own.
    pub name: String,
    /// How many members it has now.
    pub members: u32,
    /// How many events have been told.
    pub events: u64,
}

/// A look at a pod. Members come and go while it is taken, so it is a view of each id by itself.
#[derive(Clone, Debug)]
pub struct Status {
    /// Every id that was ever used, by number.
    pub members: Vec<MemberStatus>,
    /// Who holds the fabric manager's role.
    pub manager: Option<Instance>,
    /// The control groups, the pod's own first.
    pub groups: Vec<GroupStatus>,
}

impl Status {
    pub(super) fn of(pod: &Pod) -> Self {
        let tables = pod.tables();
        let (generations, records) = (tables.generations(), tables.records());
        let ids = tables.extent().ids;
        let members = (0..ids)
            .filter_map(|id| {
                let state = generations.state(id).ok()?;
                state.level?;
                // The record of a dead incarnation is that of the generation before.
                let record = [state.generation, state.generation.saturating_sub(1)]
                    .into_iter()
                    .find_map(|generation| records.read(Instance::new(id, generation)));
                Some(MemberStatus {
                    id,
                    state,
                    record,
                    beats: records.beats(id),
                })
            })
            .collect();
        let groups = tables.groups();
        let groups = groups
            .all()
            .map(|id| {
                let log = groups.log(id);
                let members = (0..ids)
                    .filter(|id| log.member(*id).standing.is_in())
                    .count();
                GroupStatus {
                    id,
                    name: groups.name(id),
                    members: members as u32,
                    events: log.tail(),
                }
            })
            .collect();
        Self {
            members,
            manager: tables.role().holder(),
            groups,
        }
    }
}
