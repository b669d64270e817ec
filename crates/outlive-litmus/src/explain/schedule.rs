//! An order in time of the events of a history.

use super::world::Attempt;
use crate::consistency::{Event, History, Version};

/// A moment of a schedule: an event of a transaction, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub transaction: usize,
    /// The number of the event; `None` for the end.
    pub event: Option<usize>,
}

/// A way in which a moment differs from an execution of each statement in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oddity {
    /// A read returns a version that the write at this moment had replaced before.
    Stale { read: Moment, write: Moment },
    /// A write comes later in time than the one that replaces it in the order of the versions.
    Overtaken { write: Moment, by: Moment },
}

/// An order in time.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub moments: Vec<Moment>,
    pub oddities: Vec<Oddity>,
}

/// Returns an order in which each transaction executes its events in program order, reads follow
/// the writes that they see, and a transaction that ended before another one began is before it.
/// `None` if there is no such order.
///
/// Writes happen in place if possible: in the order of their versions, and each read before the
/// write that replaces its version. `Schedule::oddities` has the exceptions.
pub(super) fn schedule(history: &History, attempts: &[&Attempt]) -> Option<Schedule> {
    let mut graph = Graph::new(history);
    for (number, executed) in history.transactions.iter().enumerate() {
        let moments = graph.of(number);
        for pair in moments.windows(2) {
            graph.add(pair[0], pair[1]);
        }
        for (other, attempt) in attempts.iter().enumerate() {
            let is_ordered = history.real_time.contains(&(number, other));
            if number != other && (is_ordered || attempts[number].precedes(attempt)) {
                graph.add(*moments.last()?, graph.of(other)[0]);
            }
        }
        for (at, event) in executed.events.iter().enumerate() {
            for (object, version) in seen(event) {
                if let Some(write) = graph.write_of(history, object, version) {
                    graph.add(write, moments[at]);
                }
            }
        }
    }
    if graph.has_cycle() {
        return None;
    }
    let mut oddities = Vec::new();
    for (object, chronicle) in history.objects.iter().enumerate() {
        for pair in chronicle.writers.windows(2) {
            let last =
                |it: usize| graph.write_of(history, object, last_version(history, object, it));
            let (Some(from), Some(to)) = (last(pair[0]), last(pair[1])) else {
                continue;
            };
            if !graph.add_if_acyclic(from, to) {
                oddities.push(Oddity::Overtaken {
                    write: graph.moments[from],
                    by: graph.moments[to],
                });
            }
        }
    }
    let mut reads = Vec::new();
    for (number, executed) in history.transactions.iter().enumerate() {
        for (at, event) in executed.events.iter().enumerate() {
            let is_count = matches!(event, Event::Count { .. });
            let moment = graph.of(number)[at];
            reads.extend(seen(event).into_iter().map(|it| (moment, is_count, it)));
        }
    }
    for &(moment, is_count, (object, version)) in &reads {
        let Some(next) = graph.replaced_by(history, object, version, is_count) else {
            continue;
        };
        let is_own = graph.moments[next].transaction == graph.moments[moment].transaction;
        if !is_own && !graph.add_if_acyclic(moment, next) {
            oddities.push(Oddity::Stale {
                read: graph.moments[moment],
                write: graph.moments[next],
            });
        }
    }
    // Most stores show a write after its commit.
    for &(moment, _, (_, version)) in &reads {
        if let Version::Written { transaction, .. } = version
            && history.transactions[transaction].commits
            && transaction != graph.moments[moment].transaction
        {
            let end = graph.of(transaction).last().copied()?;
            graph.add_if_acyclic(end, moment);
        }
    }
    Some(Schedule {
        moments: graph.sorted(),
        oddities,
    })
}

/// Returns the version of an object after the last write of a transaction.
pub(super) fn last_version(history: &History, object: usize, transaction: usize) -> Version {
    Version::Written {
        transaction,
        write: history.writes(transaction, object).len().saturating_sub(1),
    }
}

/// Returns the versions that a read or count saw, with their objects.
pub(super) fn seen(event: &Event) -> Vec<(usize, Version)> {
    match event {
        Event::Read { object, version } => vec![(*object, *version)],
        Event::Count { versions } => versions.iter().copied().enumerate().collect(),
        Event::Write { .. } => Vec::new(),
    }
}

/// Moments with an order.
struct Graph {
    moments: Vec<Moment>,
    after: Vec<Vec<usize>>,
}

impl Graph {
    fn new(history: &History) -> Self {
        let of = |(transaction, it): (usize, &crate::consistency::Executed)| {
            let events = (0..it.events.len()).map(Some).chain([None]);
            let moments = events.map(move |event| Moment { transaction, event });
            moments.collect::<Vec<_>>()
        };
        let moments: Vec<Moment> = history
            .transactions
            .iter()
            .enumerate()
            .flat_map(of)
            .collect();
        Self {
            after: vec![Vec::new(); moments.len()],
            moments,
        }
    }

    /// Returns the moments of a transaction.
    fn of(&self, transaction: usize) -> Vec<usize> {
        let all = 0..self.moments.len();
        all.filter(|&it| self.moments[it].transaction == transaction)
            .collect()
    }

    /// Returns the moment of the write of a version.
    fn write_of(&self, history: &History, object: usize, version: Version) -> Option<usize> {
        let Version::Written { transaction, write } = version else {
            return None;
        };
        let events = history.transactions[transaction].events.iter().enumerate();
        let is_write = |it: &Event| matches!(it, Event::Write { object: of, .. } if *of == object);
        let at = { events }.filter(|it| is_write(it.1)).nth(write)?.0;
        Some(self.of(transaction)[at])
    }

    /// Returns the moment at which a version is replaced, in place: by the next write of its
    /// transaction, by the end of it if that aborts, or by the next writer. For a count, only
    /// writes that change whether the object is present matter.
    fn replaced_by(
        &self,
        history: &History,
        object: usize,
        version: Version,
        is_count: bool,
    ) -> Option<usize> {
        if let Some(place) = history.place(object, version) {
            let writers = &history.objects[object].writers;
            let changes = history.changes_of_presence(object);
            let next = match is_count {
                true => changes.iter().find(|&&it| it > place).copied()?,
                false => place + 1,
            };
            let writer = *writers.get(next - 1)?;
            return self.write_of(history, object, Version::of(writer));
        }
        let Version::Written { transaction, write } = version else {
            return None;
        };
        let next = Version::Written {
            transaction,
            write: write + 1,
        };
        let end = || self.of(transaction).last().copied();
        self.write_of(history, object, next).or_else(end)
    }

    fn add(&mut self, from: usize, to: usize) {
        self.after[from].push(to);
    }

    fn add_if_acyclic(&mut self, from: usize, to: usize) -> bool {
        let is_acyclic = from != to && !self.reaches(to, from);
        if is_acyclic {
            self.add(from, to);
        }
        is_acyclic
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut open = vec![from];
        let mut seen = vec![false; self.moments.len()];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(&self.after[at]);
            }
        }
        false
    }

    fn has_cycle(&self) -> bool {
        let all = 0..self.moments.len();
        { all }.any(|it| self.after[it].iter().any(|&next| self.reaches(next, it)))
    }

    /// Returns the moments in an order. A transaction goes on as long as the order allows it.
    fn sorted(&self) -> Vec<Moment> {
        let size = self.moments.len();
        let mut waits = vec![0; size];
        for next in self.after.iter().flatten() {
            waits[*next] += 1;
        }
        let mut sorted = Vec::new();
        let mut is_done = vec![false; size];
        let mut current = 0;
        while sorted.len() < size {
            let free = |it: &usize| !is_done[*it] && waits[*it] == 0;
            let ready: Vec<usize> = (0..size).filter(free).collect();
            let same = ready
                .iter()
                .find(|&&it| self.moments[it].transaction == current);
            let Some(&next) = same.or(ready.first()) else {
                break;
            };
            is_done[next] = true;
            for &after in &self.after[next] {
                waits[after] -= 1;
            }
            current = self.moments[next].transaction;
            sorted.push(self.moments[next]);
        }
        sorted
    }
}
