//! The search for the smallest history that explains a violation.

use super::candidates::{Reading, Setting};
use super::schedule::{self, Oddity, Schedule};
use super::shrink::{self, Part};
use super::world::{Attempt, World};
use crate::consistency::History;
use crate::level::{Isolation, Level};
use crate::run::{Kind, Outcome};
use crate::test::{Assertion, Seen};
use std::time::{Duration, Instant};

/// The maximum number of transactions on shared objects that are combined.
const MOST_TRANSACTIONS: usize = 4;
/// The maximum number of combinations that are tried in one pass.
const MOST_SETS: usize = 6_000;
/// The maximum number of states that are tried as the first one.
const MOST_STARTS: usize = 256;

/// The longest time of the search for an explanation.
const LONGEST: Duration = Duration::from_secs(5);

/// An explanation, before it has names.
pub(super) struct Found {
    /// The values before the first transaction.
    pub initial: Vec<Option<i64>>,
    /// The executions of `history`.
    pub all: Vec<Attempt>,
    pub history: History,
    /// The smallest part of `history` that the levels forbid.
    pub part: Part,
    /// The history of the part.
    pub small: History,
    /// For each transaction of `small`: the numbers of its actions.
    pub events: Vec<Vec<usize>>,
    pub schedule: Schedule,
    /// Whether no interleaving of the transactions ends in the state, so that the store must have
    /// changed their writes.
    pub is_fault: bool,
}

impl Found {
    /// Returns the number of executions that were combined, without the one of the assertion.
    fn executions(&self) -> usize {
        { self.all.iter() }
            .filter(|it| it.transaction.is_some())
            .count()
    }

    /// Returns the executions of `small`.
    pub(super) fn attempts(&self) -> Vec<&Attempt> {
        self.part.0.iter().map(|it| &self.all[it.0]).collect()
    }
}

/// One way to search.
#[derive(Clone, Copy)]
struct Pass {
    reading: Reading,
    /// Whether each statement has to take effect in place, at its moment.
    in_place: bool,
    is_fault: bool,
}

/// Returns the smallest history that explains the violation and that each of `levels` forbids.
/// Explanations of one violation, which began at `begin`, end after [`LONGEST`].
pub(super) fn search(world: &World<'_>, levels: &[Level], begin: Instant) -> Option<Found> {
    let pass = |reading, in_place, is_fault| Pass {
        reading,
        in_place,
        is_fault,
    };
    let last = Reading::Last;
    let after = Reading::Transaction { after: true };
    let concurrent = Reading::Transaction { after: false };
    let passes = match (world.kind, world.state.is_some()) {
        (Kind::State, true) => vec![
            pass(last, true, false),
            pass(after, true, true),
            pass(last, false, false),
            pass(after, false, true),
        ],
        (Kind::State, false) => vec![pass(last, true, false), pass(last, false, false)],
        (Kind::ConcurrentRead, _) => {
            vec![
                pass(concurrent, true, false),
                pass(concurrent, false, false),
            ]
        }
        (Kind::StaleRead, _) => vec![pass(after, true, false), pass(after, false, false)],
        // The write of an aborted transaction was kept, independent of the assertion.
        (Kind::AbortedWrite, _) => vec![pass(after, true, true), pass(after, false, true)],
    };
    let strict = [Level::new(Isolation::Serializable, true)];
    let assertion = world.assertion();
    let sets = sets(world);
    let search = |passes: &[Pass], initial: &[Option<i64>], most: usize, deadline: Instant| {
        let (begin, count) = (Instant::now(), passes.len() as u32);
        let time = deadline.saturating_duration_since(begin);
        { (1..).zip(passes) }.find_map(|(number, pass)| {
            // Each pass has its part of the time.
            let deadline = begin + time * number / count;
            let levels = if pass.is_fault { &strict[..] } else { levels };
            let sets = { sets.iter() }
                .filter(|it| it.len() <= most)
                .take(MOST_SETS);
            let reader = match pass.reading {
                Reading::Last => None,
                Reading::Transaction { .. } => Some(assertion.as_ref()?),
            };
            let mut sets = sets.take_while(|_| Instant::now() < deadline);
            sets.find_map(|set| {
                let setting = Setting {
                    world,
                    initial,
                    attempts: { set.iter() }
                        .map(|&it| &world.attempts[it])
                        .chain(reader)
                        .collect(),
                    reading: pass.reading,
                    deadline,
                };
                best(&setting, levels, *pass)
            })
        })
    };
    let from_another_state = |passes: &[Pass]| {
        let mut starts = starts(world).into_iter();
        starts.find_map(|it| search(passes, &it, 2, begin + LONGEST))
    };
    match search(&passes, &world.initial, usize::MAX, begin + LONGEST / 2) {
        // Two transactions from another state are easier to understand than some from the first
        // one that read versions of others, which are left out.
        Some(found) if !found.is_fault && found.executions() > 2 => {
            let is_simple = |it: &Pass| it.in_place && !it.is_fault;
            let simple: Vec<Pass> = passes.iter().copied().filter(is_simple).collect();
            from_another_state(&simple).or(Some(found))
        }
        Some(found) => Some(found),
        None => from_another_state(&passes),
    }
}

/// Returns the sets of executions that are tried, the smallest first.
fn sets(world: &World<'_>) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..world.attempts.len()).collect();
    if let Assertion::Never(_) = world.test.assertion {
        let is_known = |it: &usize| world.attempts[*it].outcome != Outcome::Unknown;
        let known: Vec<usize> = all.iter().copied().filter(is_known).collect();
        return match known == all {
            true => vec![all],
            false => vec![known, all],
        };
    }
    // More than two equal executions show nothing else.
    let is_new = |&at: &usize| {
        let attempt = &world.attempts[at];
        let alike = world.attempts[..at].iter().filter(|it| it.is_like(attempt));
        alike.count() < 2
    };
    let pool: Vec<usize> = all.into_iter().filter(is_new).collect();
    let mut sets = Vec::new();
    for count in 1..=pool.len().min(MOST_TRANSACTIONS) {
        shrink::subsets(pool.len(), count, &mut |chosen| {
            sets.push(chosen.iter().map(|&it| pool[it]).collect());
            sets.len() < MOST_SETS
        });
    }
    sets
}

/// Returns states in which an assertion on shared objects holds: its transactions can begin in any
/// of them, so that a short explanation need not begin with the first transaction.
fn starts(world: &World<'_>) -> Vec<Vec<Option<i64>>> {
    let Assertion::Always(condition) = &world.test.assertion else {
        return Vec::new();
    };
    let mut found: Vec<Vec<Option<i64>>> = vec![Vec::new()];
    for object in 0..world.initial.len() {
        let mut values: Vec<Option<i64>> = { world.attempts.iter() }
            .flat_map(|it| it.actions.iter().filter_map(|it| it.written(object)))
            .chain(world.state.iter().map(|it| it[object]))
            .chain([world.initial[object]])
            .collect();
        values.sort_unstable();
        values.dedup();
        let extend = |state: &Vec<Option<i64>>| {
            let state = state.clone();
            let values = values.clone();
            values
                .into_iter()
                .map(move |it| [&state[..], &[it]].concat())
        };
        found = found
            .iter()
            .flat_map(extend)
            .take(64 * MOST_STARTS)
            .collect();
    }
    found.retain(|state| {
        condition.holds(&|seen| match seen {
            Seen::Object(object) => state[object],
            _ => None,
        })
    });
    found.truncate(MOST_STARTS);
    found
}

/// Returns the best explanation by these executions: with the fewest oddities, then the fewest
/// transactions and events.
fn best(setting: &Setting<'_>, levels: &[Level], pass: Pass) -> Option<Found> {
    if !setting.is_covered() {
        return None;
    }
    let mut best: Option<((usize, usize, usize), Part, History)> = None;
    let needed: Vec<usize> = match pass.reading {
        Reading::Last => Vec::new(),
        Reading::Transaction { .. } => vec![setting.attempts.len() - 1],
    };
    setting.histories(&mut |history| {
        let part = shrink::fewest_transactions(&history, levels, &needed);
        let scored = part.and_then(|part| {
            let (small, _) = shrink::restrict(&history, &part)?;
            let attempts: Vec<&Attempt> = part.0.iter().map(|it| setting.attempts[it.0]).collect();
            let schedule = schedule::schedule(&small, &attempts)?;
            // A store that lost a write is odd for this reason alone.
            let is_odd = |it: &&Oddity| match it {
                Oddity::Stale { read, .. } => attempts[read.transaction].transaction.is_some(),
                Oddity::Overtaken { .. } => true,
            };
            let odd = schedule.oddities.iter().filter(is_odd).count();
            let oddities = odd + setting.refusals(&history);
            let score = (oddities, part.0.len(), part.events());
            (!pass.in_place || oddities == 0).then_some((score, part))
        });
        if let Some((score, part)) = scored
            && best.as_ref().is_none_or(|it| score < it.0)
        {
            best = Some((score, part, history));
        }
        // Two transactions with two events each are the smallest cycle.
        best.as_ref().is_none_or(|it| it.0 > (0, 2, 4))
    });
    let (_, part, history) = best?;
    let part = shrink::fewest_events(&history, &part, levels);
    let (small, events) = shrink::restrict(&history, &part)?;
    let attempts: Vec<&Attempt> = part.0.iter().map(|it| setting.attempts[it.0]).collect();
    Some(Found {
        initial: setting.initial.to_vec(),
        schedule: schedule::schedule(&small, &attempts)?,
        all: setting.attempts.iter().map(|&it| it.clone()).collect(),
        history,
        part,
        small,
        events,
        is_fault: pass.is_fault,
    })
}
