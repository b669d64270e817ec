//! Words: the shapes of minimal cycles.
//!
//! A cycle is a word of edges, up to rotation; letter `i` is the edge from transaction `i` to the
//! next one, and the last one leads back. Each dependency has an object of its own, so that the
//! history of a word has no shorter cycle. Three rules leave out words that are not minimal or not
//! possible:
//!
//! - no two adjacent real-time edges: they compose to one;
//! - no two real-time edges at all: if `a` ended before `b` began and `c` before `d`, then `a`
//!   ended before `d` began or `c` before `b`, and one of these closes a shorter cycle;
//! - not a real-time edge and one read dependency: the reader would have ended before its writer
//!   began.

use super::history::{Change, Chronicle, Event, Executed, History, Version};

/// An edge between consecutive transactions of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edge {
    /// The second overwrites the version of the first.
    WriteWrite,
    /// The second reads the version of the first.
    WriteRead,
    /// The second overwrites the version that the first read.
    ReadWrite,
    /// The first was acknowledged before the second began.
    RealTime,
}

impl Edge {
    /// All variants.
    pub const ALL: [Self; 4] = [
        Self::WriteWrite,
        Self::WriteRead,
        Self::ReadWrite,
        Self::RealTime,
    ];

    /// Returns the usual abbreviation of the edge's kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteWrite => "ww",
            Self::WriteRead => "wr",
            Self::ReadWrite => "rw",
            Self::RealTime => "rt",
        }
    }
}

/// The shape of a minimal cycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Word(Vec<Edge>);

impl Word {
    /// Returns all words of cycles over `transactions` transactions.
    pub fn all(transactions: usize) -> Vec<Self> {
        let words = sequences(transactions).into_iter();
        { words.filter(|it| is_least_rotation(it) && is_minimal(it)) }
            .map(Self)
            .collect()
    }

    /// Returns the edges.
    pub fn edges(&self) -> &[Edge] {
        &self.0
    }

    /// Returns the history of the word, with an object of its own for each dependency.
    pub fn history(&self) -> History {
        let objects: Vec<usize> = (0..self.dependencies()).collect();
        self.history_over(&objects, objects.len())
    }

    /// Returns the number of edges that are dependencies.
    pub(super) fn dependencies(&self) -> usize {
        self.0.iter().filter(|&&it| it != Edge::RealTime).count()
    }

    /// Returns the history in which dependency `i` is on the object `on[i]` of `objects` objects,
    /// with the writers of an object in the order of the word.
    ///
    /// A transaction executes the action of its outgoing edge before that of its incoming one, as
    /// far as possible: so each outgoing action can happen before all incoming ones.
    pub(super) fn history_over(&self, on: &[usize], objects: usize) -> History {
        let all = self.0.len();
        let mut history = History {
            objects: vec![
                Chronicle {
                    present: true,
                    writers: Vec::new()
                };
                objects
            ],
            transactions: vec![
                Executed {
                    events: Vec::new(),
                    commits: true
                };
                all
            ],
            real_time: Vec::new(),
        };
        let mut left = on.iter().copied();
        let mut incoming = vec![Vec::new(); all];
        for (from, &edge) in self.0.iter().enumerate() {
            let to = (from + 1) % all;
            if edge == Edge::RealTime {
                history.real_time.push((from, to));
                continue;
            }
            let object = left.next().expect("an object for each dependency");
            let write = Event::Write {
                object,
                change: Change::Update,
            };
            let read = |version| Event::Read { object, version };
            let (first, second) = match edge {
                Edge::WriteRead => (write, read(Version::of(from))),
                Edge::WriteWrite => (write.clone(), write),
                _ => (read(Version::Initial), write),
            };
            for (writer, event) in [(from, &first), (to, &second)] {
                let writers = &mut history.objects[object].writers;
                if matches!(event, Event::Write { .. }) && !writers.contains(&writer) {
                    writers.push(writer);
                }
            }
            history.transactions[from].events.push(first);
            incoming[to].push(second);
        }
        for (transaction, event) in incoming.into_iter().enumerate() {
            for event in event {
                place(&mut history.transactions[transaction].events, event);
            }
        }
        history
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|it| it.name()).collect();
        f.write_str(&names.join("-"))
    }
}

/// Adds the event of an incoming edge to the one of the outgoing edge. A transaction writes an
/// object once, and reads the version of another transaction before that.
fn place(events: &mut Vec<Event>, event: Event) {
    let own_write = { events.iter() }
        .position(|it| matches!(it, Event::Write { .. }) && it.object() == event.object());
    match own_write {
        Some(_) if matches!(event, Event::Write { .. }) => {}
        Some(at) => events.insert(at, event),
        None => events.push(event),
    }
}

/// Returns all sequences of `length` edges.
pub(super) fn sequences(length: usize) -> Vec<Vec<Edge>> {
    super::orders::choices(&vec![Edge::ALL.to_vec(); length])
}

/// Returns whether no rotation of the sequence is less than it.
pub(super) fn is_least_rotation(edges: &[Edge]) -> bool {
    let rotated = |by: usize| [&edges[by..], &edges[..by]].concat();
    (1..edges.len()).all(|by| *edges <= *rotated(by))
}

/// Returns whether the cycle is minimal and possible, by the rules at the head of this file.
fn is_minimal(edges: &[Edge]) -> bool {
    let real_time = edges.iter().filter(|&&it| it == Edge::RealTime).count();
    let is_backward = edges.len() == 2 && real_time == 1 && edges.contains(&Edge::WriteRead);
    real_time <= 1 && !is_backward
}
