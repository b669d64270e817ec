//! The crash states of a swept run, each stored as its changes to the previous one.

use super::control::Control;
use super::coverage::{Coverage, PassedPoint};
use super::tracer::Moment;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// A state of the memory that a kill left, or would have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The number of instructions after which the state first held.
    pub step: u64,
    /// The number of instructions for which it held.
    pub steps: u64,
    /// The instruction that would have been next.
    pub instruction: u64,
    pub point: Option<PassedPoint>,
    pub returned: bool,
    /// The end of its changes, where those of the next case begin.
    changes_end: usize,
}

/// Crash states in order. An instruction changes a word or two, so a state costs a few bytes.
#[derive(Debug)]
pub(super) struct Cases {
    initial: Vec<u64>,
    /// The memory as of the last case.
    current: Vec<u64>,
    /// Words by index, and their new values.
    changes: Vec<(u32, u64)>,
    cases: Vec<Case>,
    last_point: u64,
}

impl Cases {
    /// No cases yet; the first one's changes are relative to `initial`.
    pub(super) fn from(initial: Vec<u64>) -> Self {
        Self {
            current: initial.clone(),
            initial,
            changes: Vec::new(),
            cases: Vec::new(),
            last_point: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cases.len()
    }

    pub(super) fn get(&self, index: usize) -> Case {
        self.cases[index]
    }

    /// Records the state of `memory` after `step` instructions. A state that differs from the last
    /// one in memory or last point is a case of its own, and so is the state in which the operation
    /// has returned. Nothing has changed outside `parts`.
    pub(super) fn note(
        &mut self,
        memory: &[AtomicU64],
        parts: impl Iterator<Item = Range<usize>>,
        control: &Control,
        moment: Moment,
    ) {
        self.look(memory, parts, control, moment, moment.returned);
    }

    /// Returns whether all of `memory` is as in the last case.
    pub(super) fn is(&self, memory: &[AtomicU64]) -> bool {
        let mut both = memory.iter().zip(&self.current);
        both.all(|(word, current)| word.load(Ordering::Relaxed) == *current)
    }

    /// Does what [`note`](Self::note) does, but always adds a case: another victim left it.
    pub(super) fn note_alone(&mut self, memory: &[AtomicU64], control: &Control, moment: Moment) {
        let all = core::iter::once(0..memory.len());
        self.look(memory, all, control, moment, true);
    }

    fn look(
        &mut self,
        memory: &[AtomicU64],
        parts: impl Iterator<Item = Range<usize>>,
        control: &Control,
        moment: Moment,
        alone: bool,
    ) {
        let before = self.changes.len();
        for part in parts {
            // This runs after every instruction, so it first compares without a branch for each
            // word.
            let (words, current) = (&memory[part.clone()], &mut self.current[part.clone()]);
            let differing = words.iter().zip(&*current);
            let differing = differing.fold(0, |all, (word, current)| {
                all | (word.load(Ordering::Relaxed) ^ current)
            });
            if differing == 0 {
                continue;
            }
            for (index, (word, current)) in words.iter().zip(current).enumerate() {
                let now = word.load(Ordering::Relaxed);
                if now != *current {
                    *current = now;
                    self.changes.push(((part.start + index) as u32, now));
                }
            }
        }
        let packed_point = control.raw_point();
        let same = self.changes.len() == before && packed_point == self.last_point;
        self.last_point = packed_point;
        match self.cases.last_mut() {
            Some(last) if same && !alone => last.steps += 1,
            _ => self.cases.push(Case {
                step: moment.step,
                steps: 1,
                instruction: moment.instruction,
                point: control.point(),
                returned: moment.returned,
                changes_end: self.changes.len(),
            }),
        }
    }

    /// Goes through the cases from `from` on, each with its memory.
    pub(super) fn replay(&self, from: usize) -> Replay<'_> {
        let mut replay = Replay {
            cases: self,
            next: 0,
            image: self.initial.clone(),
        };
        while replay.next < from && replay.advance().is_some() {}
        replay
    }

    /// Returns the cases whose memory is not that of the next one. Of cases that differ in the last
    /// crash point only, this is the one of which most can be demanded.
    pub(super) fn memories(&self) -> Vec<usize> {
        let last = |index: &usize| match self.cases.get(index + 1) {
            Some(next) => next.changes_end != self.cases[*index].changes_end,
            None => true,
        };
        (0..self.cases.len()).filter(last).collect()
    }

    /// Returns the case in which a kill after `step` instructions leaves the memory.
    pub(super) fn at_step(&self, step: u64) -> usize {
        self.cases.partition_point(|case| case.step <= step) - 1
    }

    /// Counts for each crash point the instructions at which a kill was simulated.
    pub(super) fn cover(&self, coverage: &mut Coverage) {
        for case in &self.cases {
            if let Some(point) = case.point {
                coverage.count(point, case.steps);
            }
        }
    }
}

/// The memory of each case in turn.
pub(super) struct Replay<'a> {
    cases: &'a Cases,
    next: usize,
    image: Vec<u64>,
}

impl Replay<'_> {
    /// Returns the next case and its number.
    pub(super) fn advance(&mut self) -> Option<(usize, Case)> {
        let case = *self.cases.cases.get(self.next)?;
        let start = match self.next {
            0 => 0,
            next => self.cases.cases[next - 1].changes_end,
        };
        for (index, value) in &self.cases.changes[start..case.changes_end] {
            self.image[*index as usize] = *value;
        }
        self.next += 1;
        Some((self.next - 1, case))
    }

    /// Returns the memory of the case that [`advance`](Self::advance) returned last.
    pub(super) fn image(&self) -> &[u64] {
        &self.image
    }
}
