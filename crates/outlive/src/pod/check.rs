//! Checks every invariant of a pod from outside.

use super::Pod;
use super::leaks::{Leak, leaks};
use crate::heap::{Heap, HeapStatistics};
use crate::membership::{GroupId, Instance, InstanceId, Level, Standing, State, Status};
use crate::objects::Directory;
use crate::structures::{self, Finding};
use core::fmt;
use outlive_memory::Offset;
use std::collections::HashSet;

/// A violated invariant of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The module that the violated words belong to.
    pub room: &'static str,
    /// The offset of the violation, if it has one.
    pub at: Option<Offset>,
    /// The description of the violation.
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

/// The extent and the findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// The number of ids that were checked.
    pub ids: u32,
    /// The number of these ids with an incarnation that may write.
    pub alive: u32,
    /// The number of control groups.
    pub groups: u32,
    /// The number of events.
    pub events: u64,
    /// The use of the heap, if the pod has one.
    pub heap: Option<HeapCheck>,
    /// The number of named objects; `None` if the pod has no directory of objects, or it is
    /// damaged.
    pub objects: Option<u64>,
    /// Whether the check searched for leaked blocks. It does so only if the pod has a heap and is
    /// not in use, its dead members are recovered, and no other invariant is violated.
    pub leaks_searched: bool,
    /// The violated invariants.
    pub violations: Vec<Violation>,
}

/// The use of a heap. If the heap is used during the check, the numbers may not be consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapCheck {
    /// The allocated and free memory, by size.
    pub statistics: HeapStatistics,
    /// The number of blocks that are retired and not freed.
    pub retired: u64,
}

/// How often a heap in use is checked: a fault found every time is real, any other was transient.
const LOOKS: usize = 4;

impl Check {
    /// Returns whether there are no violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn of(pod: &Pod) -> Self {
        let mut check = Self {
            ids: pod.tables().extent().ids,
            ..Self::default()
        };
        check.check_members(pod);
        check.check_role(pod);
        check.check_groups(pod);
        for error in pod.roots().check() {
            check.violated("roots", None, error.to_string());
        }
        if let Some(heap) = pod.heap() {
            check.check_heap(pod, heap);
            check.check_structures(heap);
            check.check_objects(heap);
            if check.is_clean() {
                check.find_leaks(pod, heap);
            }
        }
        check
    }

    fn check_heap(&mut self, pod: &Pod, heap: Heap) {
        let logs = pod.logs();
        let (wrong, report) = heap_violations(pod, heap);
        self.recheck(wrong, || heap_violations(pod, heap).0);
        self.heap = Some(HeapCheck {
            statistics: report,
            retired: (0..logs.capacity())
                .map(|id| heap.retired(logs.of(id)).count() as u64)
                .sum(),
        });
    }

    /// Checks the lists and maps in the heap.
    fn check_structures(&mut self, heap: Heap) {
        let look = || violations("structures", structures::check_all(&heap));
        self.recheck(look(), look);
    }

    /// Checks the named objects and the leases.
    fn check_objects(&mut self, heap: Heap) {
        let directory = match Directory::open(heap) {
            Ok(None) => return,
            Ok(Some(directory)) => directory,
            Err(error) => {
                return self.violated("objects", Some(heap.root()), error.to_string());
            }
        };
        let look = || violations("objects", directory.check());
        self.recheck(look(), look);
        self.objects = directory.observe().ok().map(|all| all.len() as u64);
    }

    fn find_leaks(&mut self, pod: &Pod, heap: Heap) {
        let Some(leaks) = leaks(pod, heap) else {
            return;
        };
        self.leaks_searched = true;
        for Leak { block, bytes } in leaks {
            let what = format!(
                "the block of {bytes} bytes has leaked: it is allocated, but no root, named object \
                 or log leads to it"
            );
            self.violated("heap", Some(block), what);
        }
    }

    /// Records the violations of `wrong` that every check finds.
    fn recheck(&mut self, mut wrong: Vec<Violation>, look: impl Fn() -> Vec<Violation>) {
        // Also if no member could write at first: a process may have joined since.
        for _ in 1..LOOKS {
            if wrong.is_empty() {
                break;
            }
            std::thread::sleep(core::time::Duration::from_millis(2));
            let again: HashSet<Violation> = look().into_iter().collect();
            wrong.retain(|violation| again.contains(violation));
        }
        self.violations.extend(wrong);
    }

    fn violated(&mut self, room: &'static str, at: Option<Offset>, what: String) {
        self.violations.push(Violation { room, at, what });
    }

    fn check_members(&mut self, pod: &Pod) {
        let generations = pod.tables().generations();
        for id in 0..self.ids {
            let at = Some(generations.word_at(id));
            match generations.state(id) {
                Err(word) => {
                    self.violated(
                        "generations",
                        at,
                        format!("the state of id {id} is invalid: {word:#x}"),
                    );
                }
                Ok(state) => {
                    self.alive += u32::from(state.status.may_write());
                    if let Some(what) = wrong_with(pod, id, state) {
                        // It may have changed during the check: check again before reporting.
                        if generations.state(id) == Ok(state) {
                            self.violated("generations", at, format!("id {id}, {state}: {what}"));
                        }
                    }
                }
            }
        }
    }

    fn check_role(&mut self, pod: &Pod) {
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

    fn check_groups(&mut self, pod: &Pod) {
        let groups = pod.tables().groups();
        for group in groups.all() {
            self.groups += 1;
            self.check_group(pod, group);
        }
    }

    fn check_group(&mut self, pod: &Pod, group: GroupId) {
        let (groups, generations) = (pod.tables().groups(), pod.tables().generations());
        let log = groups.log(group);
        let tail = log.tail();
        self.events = self.events.saturating_add(tail);
        if tail >= 1 << 48 {
            let what = format!("{group} counts {tail} events, which is impossible");
            self.violated("groups", None, what);
            return;
        }
        let remembered = u64::from(pod.tables().extent().events);
        for sequence in tail.saturating_sub(remembered.saturating_sub(1)).max(1)..=tail {
            // An event that the moving ring overwrote is not a violation; any other missing event
            // is.
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
                let what = format!("{group} records {instance} in the slot of id {id}");
                self.violated("groups", None, what);
            } else if generations.current(id) < instance.generation {
                let what = format!("{group} records {instance}, which never existed");
                self.violated("groups", None, what);
            } else if member.standing == Standing::Died && !generations.is_dead(instance) {
                let what = format!(
                    "{group} records the death of {instance}, which is the current incarnation"
                );
                self.violated("groups", None, what);
            }
            if member.sequence > log.tail().saturating_add(1) {
                let what = format!(
                    "{group} records event {} for id {id}, but has only {} events",
                    member.sequence,
                    log.tail()
                );
                self.violated("groups", None, what);
            }
        }
    }
}

fn violations(room: &'static str, findings: Vec<Finding>) -> Vec<Violation> {
    let violation = |Finding { at, what }| Violation {
        room,
        at: Some(at),
        what,
    };
    findings.into_iter().map(violation).collect()
}

/// Returns the faults that the heap seems to have now.
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

/// Returns the reason why `id` cannot be in `state`, if there is one.
fn wrong_with(pod: &Pod, id: InstanceId, state: State) -> Option<String> {
    let tables = pod.tables();
    let Some(level) = state.level else {
        return (state != State::FREE).then(|| "it was used, but has no level".into());
    };
    if state.generation == 0 || state.status == Status::Free {
        return Some("it was used, but has no generation".into());
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
            return Some(format!("the id of its host, {}, is not a host", state.host));
        }
    }
    if state.status == Status::Live
        && tables
            .records()
            .read(Instance::new(id, state.generation))
            .is_none()
    {
        return Some("it is live, but has no record".into());
    }
    None
}
