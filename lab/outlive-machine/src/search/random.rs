//! Random walks through machines that are too large to search: real values, few hot lines, small
//! caches.

use super::check::Claims;
use super::trace::{Counterexample, Step};
use super::violation::Violation;
use super::world::{Access, Choice, Rules, Shape, World};
use crate::protocol::NodeId;

/// The parameters of a walk. Equal parameters give the same walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The machine. With a capacity below the number of lines, accesses force evictions.
    pub shape: Shape,
    /// The claims to check.
    pub claims: Claims,
    /// The seed of the random choices.
    pub seed: u64,
    /// The number of steps: accesses, evictions and deliveries.
    pub steps: u64,
}

/// The statistics of a walk that found no violation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Walked {
    /// Loads, stores and prefetches that cores asked for.
    pub accesses: u64,
    /// Lines dropped by caches.
    pub evictions: u64,
    /// Messages that arrived.
    pub deliveries: u64,
    /// The largest number of messages under way at one time.
    pub most_under_way: usize,
}

/// After this many steps all messages are delivered, and the machine must be quiet then.
const ROUND: u64 = 1000;
/// The number of last steps that a counterexample shows.
const SHOWN: usize = 60;

impl Walk {
    /// Walks, and checks each step: accesses use the last value of all eight words, and the line's
    /// copies and record are consistent. Every 16 steps all claims are checked; every 1000 steps,
    /// also that the machine comes to rest.
    ///
    /// # Errors
    /// Returns the last steps before a violation (the walk is repeated to record them).
    ///
    /// ```
    /// use outlive_machine::protocol::Tables;
    /// use outlive_machine::search::{Claims, Rules, Shape, Walk};
    ///
    /// let rules = Rules::strict(Tables::mesi());
    /// let shape = Shape { nodes: 8, lines: 3, capacity: 1 };
    /// let walk = Walk { shape, claims: Claims::All, seed: 7, steps: 20_000 };
    /// let walked = walk.run(&rules).expect("eight nodes are coherent");
    /// assert_eq!(Ok(walked), walk.run(&rules), "the same seed is the same walk");
    /// ```
    pub fn run(&self, rules: &Rules) -> Result<Walked, Box<Counterexample>> {
        let mut walker = Walker::new(self);
        for taken in 1..=self.steps {
            if let Err(violation) = walker.step(rules, taken) {
                return Err(self.explain(rules, taken, violation));
            }
        }
        Ok(walker.walked)
    }

    fn explain(&self, rules: &Rules, failed: u64, violation: Violation) -> Box<Counterexample> {
        let mut walker = Walker::new(self);
        for taken in 1..=failed {
            walker.recording = taken + SHOWN as u64 > failed;
            let _ = walker.step(rules, taken);
        }
        let first = walker.record.len().saturating_sub(SHOWN);
        Box::new(Counterexample {
            violation,
            steps: walker.record.split_off(first),
        })
    }
}

struct Walker {
    world: World<[u64; 8]>,
    random: SplitMix,
    walked: Walked,
    claims: Claims,
    recording: bool,
    record: Vec<Step>,
}

impl Walker {
    fn new(walk: &Walk) -> Walker {
        Walker {
            world: World::new(walk.shape, None),
            random: SplitMix(walk.seed),
            walked: Walked::default(),
            claims: walk.claims,
            recording: false,
            record: Vec::new(),
        }
    }

    fn step(&mut self, rules: &Rules, taken: u64) -> Result<(), Violation> {
        let shape = self.world.shape();
        let under_way = self.world.network().len();
        self.walked.most_under_way = self.walked.most_under_way.max(under_way);
        let kind = self.random.below(16);
        if under_way > 0 && kind < 8 {
            let place = self.random.below(under_way);
            self.take(rules, Choice::Deliver(place))?;
        } else {
            let (node, line) = (
                NodeId::new(self.random.below(shape.nodes)),
                self.random.below(shape.lines),
            );
            let access = [
                Access::Load,
                Access::Store,
                Access::Load,
                Access::Store,
                Access::Prefetch,
            ];
            let access = access[self.random.below(access.len())];
            if kind < 15 && self.world.may_access(node, line) {
                self.take(rules, Choice::Access(node, line, access))?;
            } else {
                // By chance, or because the caches are full, a line is evicted, if one can be.
                let first = self.random.below(shape.lines);
                let victims = (0..shape.lines).map(|offset| (first + offset) % shape.lines);
                let victim = victims
                    .into_iter()
                    .find(|&victim| self.world.may_evict(node, victim));
                if let Some(victim) = victim {
                    self.take(rules, Choice::Evict(node, victim))?;
                }
            }
        }
        if taken.is_multiple_of(ROUND) {
            self.come_to_rest(rules)?;
        }
        if taken.is_multiple_of(16) {
            self.world.check_claims(self.claims)
        } else {
            Ok(())
        }
    }

    fn take(&mut self, rules: &Rules, choice: Choice) -> Result<(), Violation> {
        let line = match choice {
            Choice::Access(_, line, _) => {
                self.walked.accesses += 1;
                line
            }
            Choice::Evict(_, line) => {
                self.walked.evictions += 1;
                line
            }
            Choice::Deliver(place) => {
                self.walked.deliveries += 1;
                self.world.network()[place].line
            }
        };
        if self.recording {
            let (step, result) = Step::take(&mut self.world, rules, choice);
            self.record.push(step);
            result?;
        } else {
            self.world.apply(rules, choice)?;
        }
        if self.claims == Claims::All {
            self.world.check_copies(line)
        } else {
            Ok(())
        }
    }

    /// Delivers all messages. Each waiting access is then retried, which takes a few more messages.
    fn come_to_rest(&mut self, rules: &Rules) -> Result<(), Violation> {
        let shape = self.world.shape();
        for _ in 0..64 * shape.nodes * shape.lines {
            let under_way = self.world.network().len();
            if under_way == 0 {
                return self.world.check_claims(self.claims);
            }
            let place = self.random.below(under_way);
            self.take(rules, Choice::Deliver(place))?;
        }
        Err(Violation::NoEnd)
    }
}

/// The SplitMix64 generator: small, fast, and the same on every host.
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
