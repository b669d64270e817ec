//! The dependencies that make up a violation.

use super::schedule::seen;
use crate::consistency::adya::{self, Kind};
use crate::consistency::{Event, History, Version};
use crate::level::{Isolation, Level};

/// The maximum number of transactions whose cycles are searched.
const MOST: usize = 8;

/// A dependency between two transactions of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arc {
    pub from: usize,
    pub to: usize,
    pub letter: Letter,
    /// The object; `None` for real time.
    pub object: Option<usize>,
}

/// The kind of an [`Arc`], the ones that cycles of weak levels have first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Letter {
    /// The second overwrites a version of the first.
    WriteWrite,
    /// The second reads a version of the first.
    WriteRead,
    /// The second reads a version that the first took back or overwrote itself.
    DirtyRead,
    /// The second overwrites a version that the first read.
    ReadWrite,
    /// The second changes the result of a count of the first.
    CountWrite,
    /// The first ended before the second began.
    RealTime,
}

impl Letter {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WriteWrite => "ww",
            Self::WriteRead | Self::DirtyRead => "wr",
            Self::ReadWrite | Self::CountWrite => "rw",
            Self::RealTime => "rt",
        }
    }

    pub(super) fn is_anti(self) -> bool {
        matches!(self, Self::ReadWrite | Self::CountWrite)
    }
}

/// Returns the shortest cycle of the history that one of `levels` forbids, or the read of an
/// aborted or intermediate version, if one of the levels forbids that. If there is none, the
/// shortest cycle of all.
pub(super) fn cycle(history: &History, levels: &[Level]) -> Vec<Arc> {
    let forbids_dirty =
        |it: &Level| it.isolation != Isolation::None && it.isolation != Isolation::ReadUncommitted;
    if levels.iter().any(forbids_dirty)
        && let Some(dirty) = dirty(history)
    {
        return vec![dirty];
    }
    let found = cycles(history);
    let suits = |cycle: &&Vec<Arc>| levels.iter().filter(|it| forbids(**it, cycle)).count();
    let best = |at: &&Vec<Arc>| (std::cmp::Reverse(suits(at)), at.len(), (*at).clone());
    found.iter().min_by_key(best).cloned().unwrap_or_default()
}

/// Returns a read of a committed transaction that saw an aborted or intermediate version.
fn dirty(history: &History) -> Option<Arc> {
    for to in history.committed() {
        for event in &history.transactions[to].events {
            for (object, version) in seen(event) {
                if let Version::Written { transaction, .. } = version
                    && transaction != to
                    && history.place(object, version).is_none()
                {
                    return Some(Arc {
                        from: transaction,
                        to,
                        letter: Letter::DirtyRead,
                        object: Some(object),
                    });
                }
            }
        }
    }
    None
}

/// Returns whether a level forbids a cycle.
fn forbids(level: Level, cycle: &[Arc]) -> bool {
    let has = |letter| cycle.iter().any(|it| it.letter == letter);
    let is_adjacent = || {
        let next = cycle.iter().cycle().skip(1);
        { cycle.iter().zip(next) }.any(|(a, b)| a.letter.is_anti() && b.letter.is_anti())
    };
    let has_anti = has(Letter::ReadWrite) || has(Letter::CountWrite);
    let by_isolation = match level.isolation {
        Isolation::None => false,
        Isolation::ReadUncommitted => !has(Letter::WriteRead) && !has_anti,
        Isolation::ReadCommitted => !has_anti,
        Isolation::RepeatableRead => !has(Letter::CountWrite),
        Isolation::Snapshot => !is_adjacent(),
        Isolation::Serializable => true,
    };
    by_isolation && (level.real_time || !has(Letter::RealTime))
}

/// Returns all cycles that visit each transaction at most once, each from its smallest number on.
fn cycles(history: &History) -> Vec<Vec<Arc>> {
    let mut arcs: Vec<Arc> = { adya::dependencies(history).into_iter() }
        .map(|it| Arc {
            from: it.from,
            to: it.to,
            letter: match it.kind {
                Kind::WriteWrite => Letter::WriteWrite,
                Kind::WriteRead => Letter::WriteRead,
                Kind::ReadWrite => Letter::ReadWrite,
                Kind::CountWrite => Letter::CountWrite,
            },
            object: Some(it.object),
        })
        .collect();
    arcs.extend(history.real_time_order().into_iter().map(|(from, to)| Arc {
        from,
        to,
        letter: Letter::RealTime,
        object: None,
    }));
    let mut found = Vec::new();
    for first in 0..history.transactions.len().min(MOST) {
        extend(first, &arcs, &mut Vec::new(), &mut found);
    }
    found
}

fn extend(first: usize, arcs: &[Arc], path: &mut Vec<Arc>, found: &mut Vec<Vec<Arc>>) {
    let at = path.last().map_or(first, |it| it.to);
    for arc in arcs.iter().filter(|it| it.from == at && it.to >= first) {
        let is_visited = path.iter().any(|it| it.from == arc.to);
        if arc.to == first {
            found.push([&path[..], &[*arc]].concat());
        } else if !is_visited && arc.to < MOST {
            path.push(*arc);
            extend(first, arcs, path, found);
            path.pop();
        }
    }
}

/// Returns the name of the anomaly in the literature.
pub(super) fn name(history: &History, cycle: &[Arc]) -> &'static str {
    let has = |letter| cycle.iter().any(|it| it.letter == letter);
    let antis = cycle.iter().filter(|it| it.letter.is_anti()).count();
    if has(Letter::DirtyRead) {
        let is_aborted = !history.transactions[cycle[0].from].commits;
        return match is_aborted {
            true => "aborted read (G1a)",
            false => "intermediate read (G1b)",
        };
    }
    if has(Letter::RealTime) {
        return match (antis, has(Letter::CountWrite)) {
            (0, _) => "order against real time",
            (_, true) => "stale count",
            (1, false) => "stale read",
            (_, false) => "write skew against real time",
        };
    }
    let next = cycle.iter().cycle().skip(1);
    let is_adjacent =
        { cycle.iter().zip(next) }.any(|(a, b)| a.letter.is_anti() && b.letter.is_anti());
    let is_one_object = cycle.iter().all(|it| it.object == cycle[0].object);
    match antis {
        0 if has(Letter::WriteRead) => "circular information flow (G1c)",
        0 => "dirty write (G0)",
        1 if has(Letter::CountWrite) => "phantom (G-single with a predicate)",
        1 if is_one_object && cycle.len() == 2 && has(Letter::WriteWrite) => "lost update (P4)",
        1 if is_one_object && cycle.len() == 2 => "unrepeatable read (G-single)",
        1 => "read skew (G-single)",
        _ if has(Letter::CountWrite) => "write skew over a predicate (G2)",
        _ if is_adjacent => "write skew (G2-item)",
        _ => "long fork (G-nonadjacent)",
    }
}

/// Returns whether the event is a write of the object.
pub(super) fn is_write(event: &Event, of: usize) -> bool {
    matches!(event, Event::Write { object, .. } if *object == of)
}
