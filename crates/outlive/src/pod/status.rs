//! The members of a pod and their states.

use super::Pod;
use crate::membership::{GroupId, Instance, InstanceId, Record, State};

/// One id that is or was a member.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The id of the member.
    pub id: InstanceId,
    /// The state in the table of generations.
    pub state: State,
    /// The record of the member's incarnation, which names its thread. It is kept after the member
    /// has left or died. `None` if it is unknown.
    pub record: Option<Record>,
    /// The number of the member's heartbeats (hosts and processes).
    pub beats: u64,
}

impl MemberStatus {
    /// Returns the incarnation that the record describes: for a dead one, the one before the raised
    /// generation.
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
    /// The id of the group.
    pub id: GroupId,
    /// The name; empty for the pod's own.
    pub name: String,
    /// The number of the group's current members.
    pub members: u32,
    /// The number of events that were reported.
    pub events: u64,
}

/// A snapshot of a pod. Members may join and leave while it is taken, so it is consistent for each
/// id only.
#[derive(Clone, Debug)]
pub struct Status {
    /// Every id that was ever used, by number.
    pub members: Vec<MemberStatus>,
    /// The holder of the fabric manager's role.
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
