//! Random walks of machines that replicate and have nodes that die.

use super::world::{Happening, Replicated};
use super::{ReplicatedRules, Setup};
use crate::search::machine::Machine;
use crate::search::random::SplitMix;
use crate::search::trace::{Counterexample, Step};
use crate::search::world::Choice;

/// The parameters of a walk of a machine with real values. Equal parameters give the same walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicatedWalk {
    /// The machine.
    pub setup: Setup,
    /// The seed of the random choices.
    pub seed: u64,
    /// The walk ends after this many steps, or when no step is possible.
    pub most_steps: u64,
}

/// The statistics of a walk that found no violation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReplicatedWalked {
    /// Stores that retired.
    pub stores: u64,
    /// Messages of the coherence protocol that arrived.
    pub deliveries: u64,
    /// Messages of replication that arrived.
    pub log_deliveries: u64,
    /// Nodes that died.
    pub deaths: u64,
    /// Interrupts; some are for another death during a recovery.
    pub interrupts: u64,
    /// Recoveries that ended.
    pub recoveries: u64,
}

impl ReplicatedWalked {
    /// Adds the statistics of another walk.
    pub fn add(&mut self, other: &ReplicatedWalked) {
        self.stores += other.stores;
        self.deliveries += other.deliveries;
        self.log_deliveries += other.log_deliveries;
        self.deaths += other.deaths;
        self.interrupts += other.interrupts;
        self.recoveries += other.recoveries;
    }
}

/// The number of last steps that a counterexample shows.
const SHOWN: usize = 60;

impl ReplicatedWalk {
    /// Walks, and checks every step.
    ///
    /// # Errors
    /// Returns the last steps before a violation.
    pub fn run(&self, rules: &ReplicatedRules) -> Result<ReplicatedWalked, Box<Counterexample>> {
        let (steps, result) = self.walk(rules, u64::MAX);
        result.map_err(|violation| {
            let shown = self.walk(rules, steps.saturating_sub(SHOWN as u64)).1;
            match shown {
                Err(counterexample) => Box::new(Counterexample {
                    violation: violation.violation,
                    ..counterexample
                }),
                Ok(_) => Box::new(violation),
            }
        })
    }

    /// Walks, and records the steps from number `recorded` on.
    fn walk(
        &self,
        rules: &ReplicatedRules,
        recorded: u64,
    ) -> (u64, Result<ReplicatedWalked, Counterexample>) {
        let mut world = Replicated::<[u64; 8]>::new(self.setup, rules);
        let mut random = SplitMix(self.seed);
        let mut walked = ReplicatedWalked::default();
        let mut record = Vec::new();
        let mut happenings = Vec::new();
        for step in 0..self.most_steps {
            world.happenings(rules, &mut happenings);
            if happenings.is_empty() {
                return (step, Ok(walked));
            }
            let happening = pick(&mut random, &happenings);
            let recovering = world.is_recovering();
            count(&mut walked, happening);
            let result = if step >= recorded {
                let (told, result) = Step::take(&mut world, rules, happening);
                record.push(told);
                result
            } else {
                world.happen(rules, happening)
            };
            walked.recoveries += u64::from(recovering && !world.is_recovering());
            if let Err(violation) = result.and_then(|()| world.judge(rules, super::Claims::All)) {
                let steps = record;
                return (step, Err(Counterexample { violation, steps }));
            }
        }
        (self.most_steps, Ok(walked))
    }
}

/// Picks a random step. Deaths are rare, and dumps and interrupts less so; messages arrive more
/// often than cores ask.
fn pick(random: &mut SplitMix, happenings: &[Happening]) -> Happening {
    let weight = |happening: &Happening| match happening {
        Happening::Die(..) => 1,
        Happening::Dump | Happening::Interrupt => 4,
        Happening::Coherence(Choice::Deliver(_)) | Happening::Log(_) | Happening::Turn(_) => 48,
        _ => 24,
    };
    let mut left = random.below(happenings.iter().map(weight).sum());
    for happening in happenings {
        match left.checked_sub(weight(happening)) {
            Some(rest) => left = rest,
            None => return *happening,
        }
    }
    happenings[0]
}

fn count(walked: &mut ReplicatedWalked, happening: Happening) {
    match happening {
        Happening::Retire(..) | Happening::Atomic(..) => walked.stores += 1,
        Happening::Coherence(Choice::Deliver(_)) => walked.deliveries += 1,
        Happening::Log(_) => walked.log_deliveries += 1,
        Happening::Die(..) => walked.deaths += 1,
        Happening::Interrupt => walked.interrupts += 1,
        _ => {}
    }
}
