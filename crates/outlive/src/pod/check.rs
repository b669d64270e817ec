//! Every invariant of a pod, looked at from outside.

use super::Pod;
use crate::heap::{Heap, HeapStatistics};
use crate::membership::{GroupId, Instance, InstanceId, Level, Standing, State, Status};
use crate::structures::{self, Finding};
use core::fmt;
use outlive_memory::Offset;

/// Something in a pod that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which room's words it is in.
    pub room: &'static str,
    /// Where it stands, if at one place.
    pub at: Option<Offset>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} at {at}: {}", self.room, self.what),
            None => write!(f, "{}: {}", self.room, self.what),
        }
    }
}

/// What a check looked at and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// How many ids were looked at.
    pub ids: u32,
    /// How many of them have an incarnation that may write.
    pub alive: u32,
    /// How many control groups.
    pub groups: u32,
    /// How many events.
    pub events: u64,
    /// How the heap is used, if the pod has one.
    pub heap: Option<HeapCheck>,
    /// What cannot be.
    pub violations: Vec<Violation>,
}

/// What a check saw of a heap. Of one that is used meanwhile, the numbers need not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapCheck {
    /// What is allocated and free, by size.
    pub statistics: HeapStatistics,
    /// How many blocks are retired and not freed.
    pub retired: u64,
}

/// How often a heap that is used is looked at: what is seen every time is wrong, the rest was on its way.
const LOOKS: usize = 4;

impl Check {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn of(pod: &Pod) -> Self {
        let mut check = Self {
            ids: pod.tables().extent().ids,
            ..Self::default()
        };
        check.look_at_members(pod);
        check.look_at_role(pod);
        check.look_at_groups(pod);
        if let Some(heap) = pod.heap() {
            check.look_at_heap(pod, heap);
            check.look_at_structures(heap);
        }
        check
    }

    fn look_at_heap(&mut self, pod: &Pod, heap: Heap) {
        let logs = pod.logs();
        let (wrong, report) = heap_violations(pod, heap);
        self.look_again(wrong, || heap_violations(pod, heap).0);
        self.heap = Some(HeapCheck {
            statistics: report,
            retired: (0..logs.capacity())
                .map(|id| heap.retired(logs.of(id)).count() as u64)
                .sum(),
        });
    }

    /// Checks the lists and maps in the heap.
    fn look_at_structures(&mut self, heap: Heap) {
        let look = || -> Vec<Violation> {
            let violation = |finding: Finding| Violation {
                room: "structures",
                at: Some(finding.at),
                what: finding.what,
            };
            structures::check_all(&heap)
                .into_iter()
                .map(violation)
                .collect()
        };
        self.look_again(look(), look);
    }

    /// Records the violations of `wrong` that every check finds.
    fn look_again(&mut self, mut wrong: Vec<Violation>, look: impl Fn() -> Vec<Violation>) {
        for _ in 1..LOOKS {
            if self.alive == 0 || wrong.is_empty() {
                break;
            }
            std::thread::sleep(core::time::Duration::from_millis(2));
            let again = look();
            wrong.retain(|violation| again.contains(violation));
        }
        self.violations.extend(wrong);
    }

    fn violated(&mut self, room: &'static str, at: Option<Offset>, what: String) {
        self.violations.push(Violation { room, at, what });
    }

    fn look_at_members(&mut self, pod: &Pod) {
        let generations = pod.tables().generations();
        for id in 0..self.ids {
            let at = Some(generations.word_at(id));
            match generations.state(id) {
                Err(word) => {
                    self.violated(
                        "generations",
                        at,
                        format!("id {id} has no state: {word:#x}"),
                    );
                }
                Ok(state) => {
                    self.alive += u32::from(state.status.may_write());
                    if let Some(what) = wrong_with(pod, id, state) {
                        // It may have changed under our eyes: look again before accusing.
                        if generations.state(id) == Ok(state) {
                            self.violated("generations", at, format!("id {id}, {state}: {what}"));
                        }
                    }
                }
            }
        }
    }

    fn look_at_role(&mut self, pod: &Pod) {
        let tables = pod.tables();
        let Some(holder) = tables.role().holder() else {
            return;
        };
        let known =
            holder.id < self.ids && tables.generations().current(holder.id) >= holder.generation;
        if !known {
            let what = format!("the fabric manager {holder} has never been a member");
            self.violated("roles", None, what);
        }
    }

    fn look_at_groups(&mut self, pod: &Pod) {
        let groups = pod.tables().groups();
        for group in groups.all() {
            self.groups += 1;
            self.look_at_group(pod, group);
        }
    }

    fn look_at_group(&mut self, pod: &Pod, group: GroupId) {
        let (groups, generations) = (pod.tables().groups(), pod.tables().generations());
        let log = groups.log(group);
        let tail = log.tail();
        self.events = self.events.saturating_add(tail);
        if tail >= 1 << 48 {
            let what = format!("{group} says that {tail} events have happened, which cannot be");
            self.violated("groups", None, what);
            return;
        }
        let remembered = u64::from(pod.tables().extent().events);
        for sequence in tail.saturating_sub(remembered.saturating_sub(1)).max(1)..=tail {
            // Gone because the ring has moved on is not a violation; gone although it has not, is.
            if log.event(sequence).is_none() && log.tail() < sequence.saturating_add(remembered) {
                let what = format!("{group} has lost event {sequence} of {tail}");
                self.violated("groups", None, what);
            }
        }
        for id in 0..self.ids {
            let member = log.member(id);
            let Some(instance) = member.instance else {
                continue;
            };
            if instance.id != id {
                let what = format!("{group} has {instance} in the place of id {id}");
                self.violated("groups", None, what);
            } else if generations.current(id) < instance.generation {
                let what = format!("{group} knows {instance}, which has never been");
                self.violated("groups", None, what);
            } else if member.standing == Standing::Died && !generations.is_dead(instance) {
                let what = format!("{group} was told that {instance} died, and it is current");
                self.violated("groups", None, what);
            }
            if member.sequence > log.tail().saturating_add(1) {
                let what = format!(
                    "{group} shows event {} of {} for id {id}",
                    member.sequence,
                    log.tail()
                );
                self.violated("groups", None, what);
            }
        }
    }
}

/// What looks wrong with the heap now.
fn heap_violations(pod: &Pod, heap: Heap) -> (Vec<Violation>, HeapStatistics) {
    let report = heap.check();
    let members = heap.check_members(pod.logs(), pod.tables().generations());
    let retired = heap.check_retired(pod.logs());
    let violation = |at: Option<Offset>, what: String| Violation {
        room: "heap",
        at,
        what,
    };
    let mut wrong: Vec<Violation> = report
        .findings
        .iter()
        .chain(&members)
        .map(|finding| violation(Some(finding.place()), finding.to_string()))
        .chain(
            retired
                .iter()
                .map(|bad| violation(Some(bad.at), bad.to_string())),
        )
        .collect();
    if report.left_out > 0 {
        wrong.push(violation(None, format!("and {} more", report.left_out)));
    }
    (wrong, report.statistics)
}

/// What is wrong with `id` being in `state`, if something is.
fn wrong_with(pod: &Pod, id: InstanceId, state: State) -> Option<String> {
    let tables = pod.tables();
    let Some(level) = state.level else {
        return (state != State::FREE).then(|| "it was used and has no level".into());
    };
    if state.generation == 0 || state.status == Status::Free {
        return Some("it was used and has no generation".into());
    }
    if matches!(state.status, Status::Fencing) && level != Level::Host {
        return Some("only hosts are fenced".into());
    }
    if !state.status.may_write() {
        return None;
    }
    if level != Level::Host {
        let host = tables.generations().state(state.host.into()).ok();
        if u32::from(state.host) >= tables.extent().ids
            || host.is_none_or(|host| host.level != Some(Level::Host))
        {
            return Some(format!("its host {} is none", state.host));
        }
    }
    if state.status == Status::Live
        && tables
            .records()
            .read(Instance::new(id, state.generation))
            .is_none()
    {
        return Some("it is live and has no record".into());
    }
    None
}
