//! A check of a whole barrier that trusts none of its contents.

use super::GroupBarrier;
use super::word::{Phase, Slot, State, Step};
use crate::membership::{Generations, Instance};
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};

/// An impossible state found in a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierFinding {
    /// The offset of the damaged word.
    pub at: Offset,
    /// The description of the damage.
    pub what: String,
}

impl fmt::Display for BarrierFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The results of a check of a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarrierReport {
    /// The number of members that the word counts.
    pub members: u32,
    /// The number of members that wait.
    pub waiting: u32,
    /// The seated instances that are dead or departed; the next member that waits removes them.
    pub gone: Vec<Instance>,
    /// Whether the seats could be counted: there was a moment without changes of members.
    pub at_rest: bool,
    /// The impossible states.
    pub findings: Vec<BarrierFinding>,
}

impl BarrierReport {
    /// Returns whether the check has found no impossible state.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, at: Offset, what: impl Into<String>) {
        let what = what.into();
        self.findings.push(BarrierFinding { at, what });
    }
}

impl<M: Memory> GroupBarrier<M> {
    /// The number of attempts to read the barrier without a concurrent change of members.
    const LOOKS: u32 = 100;

    /// Checks whether this can be a barrier of the pod with these generations: whether the word and
    /// every slot are valid, the seats taken are the members counted, and no instance has two
    /// seats. Changes nothing; may be called while the barrier is in use.
    pub fn check(&self, generations: Generations<M>) -> BarrierReport {
        let mut report = BarrierReport::default();
        for _ in 0..Self::LOOKS {
            let before = self.word();
            report = self.look(generations, before);
            // This load comes after those of the slots, because they acquire.
            if State::from_word(self.word(), self.seats()).map(|state| state.epoch.changes)
                == State::from_word(before, self.seats()).map(|state| state.epoch.changes)
            {
                report.at_rest = true;
                return report;
            }
        }
        // Members come and go, so the counts were taken at different moments.
        report.findings.clear();
        report
    }

    fn word(&self) -> u128 {
        self.memory.load(self.at, Ordering::Acquire)
    }

    fn look(&self, generations: Generations<M>, word: u128) -> BarrierReport {
        let mut report = BarrierReport::default();
        let state = match State::from_word(word, self.seats()) {
            Ok(state) => Some(state),
            Err(what) => {
                report.find(self.at, what.to_string());
                None
            }
        };
        let (mut members, mut seen) = (0, Vec::new());
        for seat in 0..self.seats() {
            let at = self.slot_at(seat);
            let slot = match Slot::from_word(self.memory.load(at, Ordering::Acquire)) {
                Ok(slot) => slot,
                Err(what) => {
                    report.find(at, what.to_string());
                    continue;
                }
            };
            if slot.phase == Phase::Vacant {
                continue;
            }
            let occupant = Instance::from_word(slot.occupant)
                .filter(|occupant| occupant.id < generations.capacity());
            let Some(occupant) = occupant else {
                let what = format!("{:#x} is not an instance of this pod", slot.occupant);
                report.find(at, what);
                continue;
            };
            if seen.contains(&occupant) {
                report.find(at, format!("{occupant} has two seats"));
            }
            seen.push(occupant);
            let last = state.map_or(Step::None, |state| state.last);
            let is_member = match slot.phase {
                Phase::Seated => last != Step::Out(seat),
                _ => last == Step::In(seat),
            };
            if is_member {
                members += 1;
                if generations.is_gone(occupant) {
                    report.gone.push(occupant);
                }
            }
        }
        if let Some(state) = state {
            (report.members, report.waiting) = (state.members, state.waiting);
            if state.members != members {
                let what = format!(
                    "it counts {} members, but {members} seats are taken",
                    state.members
                );
                report.find(self.at, what);
            }
        }
        report
    }
}
