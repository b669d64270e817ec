//! The decisions of an execution, and the strategies that make them.
//!
//! Every place at which the scheduler could decide something is a *point*, numbered in the order in
//! which an execution reaches them. Each point offers a few *codes* (a thread, a message, life or
//! death), of which the first is the default: continue, read the newest, live. An execution is
//! determined by the codes that were not the default, so these, with their points, are its
//! schedule.

use std::collections::BTreeMap;
use std::fmt;

/// The kind of decision at a point. Only the random strategy needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Which thread continues, while the running thread could.
    Switch,
    /// Which thread continues, since the running thread cannot.
    Next,
    /// Whether the running thread dies.
    Death,
    /// Which message a load reads, or before which one a store is placed.
    Message,
    /// Which new value wakes a waiting thread, or which value of a lost word survives.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    taken: usize,
    offered: usize,
}

#[derive(Debug)]
enum Strategy {
    /// Depth first: the branches of the current execution, outermost first.
    Tree { path: Vec<Branch>, depth: usize },
    /// Drawn at random.
    Random(Drawing),
    /// The given decisions, by point.
    Replay(BTreeMap<u32, u16>),
}

/// Decides at every point, and records the decisions.
#[derive(Debug)]
pub(crate) struct Choices {
    strategy: Strategy,
    point: u32,
    taken: Vec<(u32, u16)>,
}

/// The scenario is not deterministic.
#[derive(Debug)]
pub(crate) struct Diverged;

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the schedule does not fit: the scenario behaved differently with the same decisions; \
             it must not depend on time, addresses, random numbers or state of earlier executions",
        )
    }
}

impl Choices {
    pub(crate) fn tree() -> Self {
        Self::new(Strategy::Tree {
            path: Vec::new(),
            depth: 0,
        })
    }

    pub(crate) fn random(seed: u64) -> Self {
        Self::new(Strategy::Random(Drawing::new(seed)))
    }

    pub(crate) fn replay(schedule: BTreeMap<u32, u16>) -> Self {
        Self::new(Strategy::Replay(schedule))
    }

    fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            point: 0,
            taken: Vec::new(),
        }
    }

    /// Passes a point at which only the default is possible.
    pub(crate) fn pass(&mut self) {
        self.point += 1;
    }

    /// Decides among `codes`; returns the index of the one taken.
    pub(crate) fn choose(&mut self, choice: Choice, codes: &[u16]) -> Result<usize, Diverged> {
        let point = self.point;
        self.point += 1;
        let index = match &mut self.strategy {
            Strategy::Replay(schedule) => match schedule.get(&point) {
                Some(code) => codes.iter().position(|c| c == code).ok_or(Diverged)?,
                None => 0,
            },
            _ if codes.len() == 1 => 0,
            Strategy::Random(drawing) => drawing.draw(choice, codes),
            Strategy::Tree { path, depth } => {
                if *depth == path.len() {
                    path.push(Branch {
                        taken: 0,
                        offered: codes.len(),
                    });
                }
                let branch = path[*depth];
                *depth += 1;
                if branch.offered != codes.len() {
                    return Err(Diverged);
                }
                branch.taken
            }
        };
        if index != 0 {
            self.taken.push((point, codes[index]));
        }
        Ok(index)
    }

    /// Starts the same execution again.
    fn rewind(&mut self) {
        self.point = 0;
        self.taken.clear();
        if let Strategy::Tree { depth, .. } = &mut self.strategy {
            *depth = 0;
        }
    }

    /// Moves to the next execution of the tree; returns false if there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, Diverged> {
        let Strategy::Tree { path, depth } = &mut self.strategy else {
            return Ok(false);
        };
        if *depth < path.len() {
            return Err(Diverged);
        }
        while let Some(last) = path.last_mut() {
            last.taken += 1;
            if last.taken < last.offered {
                self.rewind();
                return Ok(true);
            }
            path.pop();
        }
        Ok(false)
    }

    /// Returns the number of points that the execution has reached so far.
    pub(crate) fn points(&self) -> u32 {
        self.point
    }

    /// Returns the decisions that were not the default.
    pub(crate) fn taken(&self) -> &[(u32, u16)] {
        &self.taken
    }
}

/// Returns the text of a schedule: `12:2,30:101`, or `-` if all decisions are the default.
pub(crate) fn write_schedule(taken: &[(u32, u16)]) -> String {
    if taken.is_empty() {
        return "-".to_owned();
    }
    let words: Vec<_> = taken
        .iter()
        .map(|(point, code)| format!("{point}:{code}"))
        .collect();
    words.join(",")
}

pub(crate) fn read_schedule(text: &str) -> Option<BTreeMap<u32, u16>> {
    if text == "-" {
        return Some(BTreeMap::new());
    }
    let word = |word: &str| {
        let (point, code) = word.split_once(':')?;
        Some((point.parse().ok()?, code.parse().ok()?))
    };
    text.split(',').map(word).collect()
}

/// splitmix64: good enough to draw schedules, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll().is_multiple_of(n)
    }
}

/// Draws schedules. Half of the seeds walk at random; half give every thread a priority, run the
/// highest, and lower it at a few random moments (after Burckhardt et al., ASPLOS '10: it finds
/// bugs that need few orderings with a probability that does not fall with the length of the
/// execution).
#[derive(Debug)]
struct Drawing {
    dice: Dice,
    /// Empty for a random walk; otherwise by code.
    priorities: Option<BTreeMap<u16, u64>>,
    lowest: u64,
    switch_one_in: u64,
    death_one_in: u64,
    message_one_in: u64,
}

impl Drawing {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let prioritised = dice.one_in(2);
        Self {
            priorities: prioritised.then(BTreeMap::new),
            lowest: 1 << 32,
            switch_one_in: 1 << (1 + dice.below(5)),
            death_one_in: 1 << (2 + dice.below(5)),
            message_one_in: 1 << (1 + dice.below(4)),
            dice,
        }
    }

    fn draw(&mut self, choice: Choice, codes: &[u16]) -> usize {
        match choice {
            Choice::Death => usize::from(self.dice.one_in(self.death_one_in)),
            Choice::Message if self.dice.one_in(self.message_one_in) => {
                1 + self.dice.below(codes.len() - 1)
            }
            Choice::Message => 0,
            Choice::Any => self.dice.below(codes.len()),
            Choice::Switch | Choice::Next => self.next(choice, codes),
        }
    }

    fn next(&mut self, choice: Choice, codes: &[u16]) -> usize {
        let moves = self.dice.one_in(self.switch_one_in);
        let Some(priorities) = &mut self.priorities else {
            let stays = choice == Choice::Switch && !moves;
            return if stays {
                0
            } else {
                self.dice.below(codes.len())
            };
        };
        for code in codes {
            let priority = (1 << 33) | self.dice.roll() >> 32;
            priorities.entry(*code).or_insert(priority);
        }
        if moves {
            self.lowest -= 1;
            priorities.insert(codes[0], self.lowest);
        }
        let highest = codes
            .iter()
            .enumerate()
            .max_by_key(|(_, code)| priorities[code]);
        highest.expect("at least one code").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_walked_once_and_completely() {
        let mut choices = Choices::tree();
        let mut seen = Vec::new();
        loop {
            let first = choices.choose(Choice::Any, &[0, 1, 2]).unwrap();
            let second = if first == 1 {
                choices.choose(Choice::Any, &[0, 1]).unwrap()
            } else {
                9
            };
            seen.push((first, second));
            if !choices.advance().unwrap() {
                break;
            }
        }
        assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (2, 9)]);
    }

    #[test]
    fn a_schedule_comes_back_from_its_text() {
        for taken in [vec![], vec![(3, 2), (40, 101)]] {
            let text = write_schedule(&taken);
            let back: Vec<_> = read_schedule(&text).unwrap().into_iter().collect();
            assert_eq!(back, taken);
        }
        assert!(read_schedule("3").is_none());
        assert!(read_schedule("").is_none());
    }
}
