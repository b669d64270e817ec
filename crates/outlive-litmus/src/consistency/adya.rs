//! Levels by Adya's phenomena: cycles of dependencies.
//!
//! Definitions 2.5.2 to 2.5.10 of the thesis. With real time, the real-time edges belong to the
//! graph, and the phenomena are defined on it as before.

use super::history::{History, Version};
use super::orders::Relation;
use crate::level::{Isolation, Level};

/// The kind of a dependency between two transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The second overwrites a version of the first.
    WriteWrite,
    /// The second reads a version of the first.
    WriteRead,
    /// The second overwrites a version that the first read.
    ReadWrite,
    /// The second changes the result of a count of the first.
    CountWrite,
}

/// A direct dependency between two committed transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dependency {
    /// The transaction that comes first.
    pub from: usize,
    /// The transaction that comes second.
    pub to: usize,
    /// The kind of the dependency.
    pub kind: Kind,
    /// The object that causes the dependency.
    pub object: usize,
}

/// Returns the direct dependencies of a history.
pub fn dependencies(history: &History) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut add = |from, to, kind, object| {
        found.push(Dependency {
            from,
            to,
            kind,
            object,
        });
    };
    for (object, chronicle) in history.objects.iter().enumerate() {
        for pair in chronicle.writers.windows(2) {
            add(pair[0], pair[1], Kind::WriteWrite, object);
        }
    }
    for reader in history.committed() {
        for (is_count, view) in history.views(reader) {
            for (object, version) in view {
                let Some(place) = history.place(object, version) else {
                    continue;
                };
                let writers = &history.objects[object].writers;
                // A count depends only on versions that change whether the object is present.
                let (before, after, anti) = if is_count {
                    let changes = history.changes_of_presence(object);
                    let before = changes.iter().rfind(|&&it| it <= place).copied();
                    let after = changes.iter().find(|&&it| it > place).copied();
                    (before.unwrap_or(0), after, Kind::CountWrite)
                } else {
                    let after = (place < writers.len()).then_some(place + 1);
                    (place, after, Kind::ReadWrite)
                };
                if before > 0 {
                    add(writers[before - 1], reader, Kind::WriteRead, object);
                }
                if let Some(after) = after {
                    add(reader, writers[after - 1], anti, object);
                }
            }
        }
    }
    found.retain(|it| it.from != it.to);
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns whether `level` allows the history.
pub fn allows(history: &History, level: Level) -> bool {
    let dependencies = dependencies(history);
    let real_time = match level.real_time {
        true => history.real_time_order(),
        false => Vec::new(),
    };
    let has_no_cycle_of = |kinds: &[Kind]| {
        let of_kinds = dependencies.iter().filter(|it| kinds.contains(&it.kind));
        let pairs = of_kinds.map(|it| (it.from, it.to));
        Relation::of(
            history.transactions.len(),
            pairs.chain(real_time.iter().copied()),
        )
        .is_acyclic()
    };
    let is_read_committed =
        || !reads_dirty(history) && has_no_cycle_of(&[Kind::WriteWrite, Kind::WriteRead]);
    match level.isolation {
        Isolation::None => true,
        Isolation::ReadUncommitted => has_no_cycle_of(&[Kind::WriteWrite]),
        Isolation::ReadCommitted => is_read_committed(),
        Isolation::RepeatableRead => {
            is_read_committed()
                && has_no_cycle_of(&[Kind::WriteWrite, Kind::WriteRead, Kind::ReadWrite])
        }
        Isolation::Snapshot => {
            is_read_committed() && has_snapshots(history, &dependencies, &real_time)
        }
        Isolation::Serializable => {
            let all = [
                Kind::WriteWrite,
                Kind::WriteRead,
                Kind::ReadWrite,
                Kind::CountWrite,
            ];
            is_read_committed() && has_no_cycle_of(&all)
        }
    }
}

/// Returns whether a committed transaction read an aborted (G1a) or an intermediate (G1b) version.
fn reads_dirty(history: &History) -> bool {
    let is_dirty = |&(object, version): &(usize, Version)| history.place(object, version).is_none();
    let reads = |it: usize| history.views(it).into_iter().flat_map(|(_, view)| view);
    let committed = history.committed();
    { committed.into_iter() }.any(|it| reads(it).any(|one| is_dirty(&one)))
}

/// Returns whether start and commit points of the transactions exist, in the order of real time,
/// under which the history exhibits no G-SI.
fn has_snapshots(
    history: &History,
    dependencies: &[Dependency],
    real_time: &[(usize, usize)],
) -> bool {
    let committed = history.committed();
    let points = committed.iter().flat_map(|&it| [it, it]).collect();
    let check = |order: &[usize]| {
        let first = |it| order.iter().position(|&at| at == it);
        let last = |it| order.iter().rposition(|&at| at == it);
        let starts_after = |from: usize, to: usize| last(from) < first(to);
        let size = history.transactions.len();
        let mut graph = Relation::new(size);
        for &from in &committed {
            for &to in &committed {
                if from != to && starts_after(from, to) {
                    graph.add(from, to);
                }
            }
        }
        let is_anti = |it: &&Dependency| matches!(it.kind, Kind::ReadWrite | Kind::CountWrite);
        let (anti, direct): (Vec<&Dependency>, Vec<&Dependency>) =
            dependencies.iter().partition(is_anti);
        // G-SIa: a dependency without a start dependency.
        let no_interference = direct.iter().all(|it| starts_after(it.from, it.to));
        for it in &direct {
            graph.add(it.from, it.to);
        }
        // G-SIb: a cycle with exactly one anti-dependency.
        let closed = graph.close();
        let misses_nothing = anti.iter().all(|it| !closed.has(it.to, it.from));
        let in_time = real_time.iter().all(|&(from, to)| starts_after(from, to));
        no_interference && misses_nothing && in_time
    };
    any_arrangement(points, &mut Vec::new(), &check)
}

/// Returns whether `check` accepts one of the different orders of `left`, after `order`.
fn any_arrangement(
    left: Vec<usize>,
    order: &mut Vec<usize>,
    check: &impl Fn(&[usize]) -> bool,
) -> bool {
    if left.is_empty() {
        return check(order);
    }
    for at in 0..left.len() {
        if left[..at].contains(&left[at]) {
            continue;
        }
        let mut rest = left.clone();
        order.push(rest.remove(at));
        let found = any_arrangement(rest, order, check);
        order.pop();
        if found {
            return true;
        }
    }
    false
}
