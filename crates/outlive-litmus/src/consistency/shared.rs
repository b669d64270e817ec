//! Cycles whose dependencies share objects: words with a set partition of their dependencies.
//!
//! A partition is kept if its history, under some version order, has exactly the dependencies of
//! the word: no other dependency is a chord, which would close a shorter cycle, or is parallel to
//! an edge.

use super::adya::{Kind, dependencies};
use super::history::{Event, History, Version};
use super::orders::{choices, permutations};
use super::possible::is_possible;
use super::word::{Edge, Word};
use std::collections::BTreeSet;

/// A word whose dependencies share objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The word, whose dependencies share objects.
    pub word: Word,
    /// The object of each dependency, numbered in the order of the word.
    pub on: Vec<usize>,
    /// The history of the word.
    pub history: History,
}

impl Shared {
    /// Returns all words over `transactions` transactions whose dependencies share objects, up to
    /// the names of transactions and objects.
    pub fn all(transactions: usize) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        let words = Word::all(transactions).into_iter();
        let mut found: Vec<Self> = words.flat_map(|it| partitions_of(&it)).collect();
        found.retain(|it| seen.insert(signature(&it.history)));
        found
    }
}

/// Returns the histories of a word in which an object carries two or more dependencies.
fn partitions_of(word: &Word) -> Vec<Shared> {
    let mut found = Vec::new();
    for on in partitions(word.dependencies()) {
        let objects = on.iter().max().map_or(0, |it| it + 1);
        if objects == on.len() {
            continue;
        }
        let plain = word.history_over(&on, objects);
        let orders: Vec<_> = { plain.objects.iter() }
            .map(|it| permutations(&it.writers))
            .collect();
        for writers in choices(&orders) {
            let mut history = plain.clone();
            for (object, writers) in writers.into_iter().enumerate() {
                history.objects[object].writers = writers;
            }
            see_predecessors(&mut history, word, &on);
            if has_exactly(&history, word) && is_possible(&history) {
                found.push(Shared {
                    word: word.clone(),
                    on: on.clone(),
                    history,
                });
            }
        }
    }
    found
}

/// Makes the read of each anti-dependency see the version before that of the next transaction.
fn see_predecessors(history: &mut History, word: &Word, on: &[usize]) {
    let all = word.edges().len();
    let dependencies = word.edges().iter().enumerate();
    let dependencies = dependencies.filter(|it| *it.1 != Edge::RealTime);
    for ((from, edge), &object) in dependencies.zip(on) {
        if *edge != Edge::ReadWrite {
            continue;
        }
        let writers = &history.objects[object].writers;
        let next = writers.iter().position(|&it| it == (from + 1) % all);
        let seen = match next
            .expect("the next transaction writes the object")
            .checked_sub(1)
        {
            None => Version::Initial,
            Some(before) => Version::of(writers[before]),
        };
        for event in &mut history.transactions[from].events {
            if let Event::Read {
                object: of,
                version: version @ Version::Initial,
            } = event
                && *of == object
            {
                *version = seen;
            }
        }
    }
}

/// Returns whether the dependencies of the history are exactly those of the word, each on one
/// object.
fn has_exactly(history: &History, word: &Word) -> bool {
    let all = word.edges().len();
    let kind = |edge| match edge {
        Edge::WriteWrite => Some(Kind::WriteWrite),
        Edge::WriteRead => Some(Kind::WriteRead),
        Edge::ReadWrite => Some(Kind::ReadWrite),
        Edge::RealTime => None,
    };
    let found = dependencies(history);
    let is_of_word = |from: usize, to: usize, it: Kind| {
        to == (from + 1) % all && kind(word.edges()[from]) == Some(it)
    };
    let froms: BTreeSet<usize> = found.iter().map(|it| it.from).collect();
    { found.iter() }.all(|it| is_of_word(it.from, it.to, it.kind))
        && froms.len() == found.len()
        && found.len() == word.dependencies()
}

/// Returns the set partitions of `size` things: the class of each, numbered by first occurrence.
fn partitions(size: usize) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new()];
    for _ in 0..size {
        let extend = |classes: &Vec<usize>| {
            let next = classes.iter().max().map_or(0, |it| it + 1);
            let classes = classes.clone();
            (0..=next).map(move |class| [&classes[..], &[class]].concat())
        };
        found = found.iter().flat_map(extend).collect();
    }
    found
}

/// One object of a history: its writers in order, and its reads.
type ObjectSignature = (Vec<usize>, Vec<(usize, Version)>);

/// Returns a value that is equal for histories that differ by names only.
fn signature(history: &History) -> (Vec<ObjectSignature>, Vec<(usize, usize)>) {
    let names: Vec<usize> = (0..history.transactions.len()).collect();
    let renamed = |names: Vec<usize>| {
        let rename = |version: Version| match version {
            Version::Written { transaction, write } => Version::Written {
                transaction: names[transaction],
                write,
            },
            Version::Initial => Version::Initial,
        };
        let object = |object: usize| {
            let writers = history.objects[object].writers.iter();
            let events = history.transactions.iter().enumerate();
            let events = events.flat_map(|(at, it)| it.events.iter().map(move |it| (at, it)));
            let read = |(at, event): (usize, &Event)| match event {
                Event::Read {
                    object: of,
                    version,
                } if *of == object => Some((names[at], rename(*version))),
                _ => None,
            };
            let mut reads: Vec<_> = events.filter_map(read).collect();
            reads.sort_unstable();
            (writers.map(|&it| names[it]).collect(), reads)
        };
        let mut objects: Vec<ObjectSignature> = (0..history.objects.len()).map(object).collect();
        objects.sort();
        let real_time = history.real_time.iter();
        let real_time = real_time.map(|&(a, b)| (names[a], names[b])).collect();
        (objects, real_time)
    };
    { permutations(&names).into_iter() }
        .map(renamed)
        .min()
        .expect("at least one renaming")
}
