//! Counts of cycles that do not come from the list of words.
//!
//! - [`closed_form`] counts words by Burnside's lemma.
//! - [`relations`] counts words as if real time were an arbitrary relation: then one word can have
//!   two real-time edges that are not adjacent, and no transaction reads before its writer commits.
//! - [`gadgets`] does not use words: it enumerates, object by object, the reads and writes that
//!   give each transaction at most one dependency in and one out, puts objects together until the
//!   dependencies form one cycle, and counts the results up to the names of transactions.

use super::adya::dependencies;
use super::history::{Change, Chronicle, Event, Executed, History, Version};
use super::orders::permutations;
use super::possible::is_possible;
use std::collections::BTreeSet;

/// Returns the number of words of cycles over `transactions` transactions by a formula. The cycles
/// are the necklaces of three kinds of dependencies, and those of one real-time edge and then any
/// dependencies. The cycle of two transactions in which a reader precedes its writer in real time
/// is not counted.
pub fn closed_form(transactions: usize) -> usize {
    let one_real_time = 3usize.pow(transactions as u32 - 1);
    necklaces(3, transactions) + one_real_time - usize::from(transactions == 2)
}

/// Returns the number of necklaces of `length` beads of `colours` colours.
fn necklaces(colours: usize, length: usize) -> usize {
    let fixed = |rotation: usize| colours.pow(divisor(rotation, length) as u32);
    (0..length).map(fixed).sum::<usize>() / length
}

/// Returns the greatest common divisor.
fn divisor(a: usize, b: usize) -> usize {
    if a == 0 { b } else { divisor(b % a, a) }
}

/// Returns the number of words over `transactions` transactions in which real-time edges are not
/// adjacent and some edge is neither a read dependency nor a real-time edge, unless all are
/// dependencies.
///
/// A real-time edge and the dependency after it form one bead: a necklace of `transactions` places
/// is covered by beads of length 1 (three kinds) and 2 (three kinds).
pub fn relations(transactions: usize) -> usize {
    // A rotation by r with d = gcd(r, n) fixes the coverings of a circle of d places. A circle of
    // one place has no covering by a bead of length 2.
    let fixed = |rotation: usize| coverings(divisor(rotation, transactions), 3, 3);
    let all = (0..transactions).map(fixed).sum::<usize>() / transactions;
    let fixed = |rotation: usize| coverings(divisor(rotation, transactions), 1, 1);
    let only_reads = (0..transactions).map(fixed).sum::<usize>() / transactions;
    // Of the words without other edges, only the one without a real-time edge is counted.
    all - (only_reads - 1)
}

/// Returns the number of coverings of a circle of `places` numbered places by beads of length 1 and
/// of length 2, in `single` and `double` kinds.
fn coverings(places: usize, single: usize, double: usize) -> usize {
    let mut path = vec![1, single];
    for at in 2..=places {
        path.push(single * path[at - 1] + double * path[at - 2]);
    }
    let across = if places < 2 {
        0
    } else {
        double * path[places - 2]
    };
    path[places] + across
}

/// The reads and writes of one object, with the dependencies that they make.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Gadget {
    /// The writers in the order of their versions.
    writers: Vec<usize>,
    /// The reads: transaction, place of the version.
    reads: Vec<(usize, usize)>,
}

impl Gadget {
    fn history(&self, transactions: usize) -> History {
        of_gadgets(std::slice::from_ref(self), transactions, &[])
    }

    fn renamed(&self, names: &[usize]) -> Self {
        let mut reads: Vec<_> = self.reads.iter().map(|&(t, v)| (names[t], v)).collect();
        reads.sort_unstable();
        Self {
            writers: self.writers.iter().map(|&it| names[it]).collect(),
            reads,
        }
    }
}

/// Returns the history of a few objects.
fn of_gadgets(gadgets: &[Gadget], transactions: usize, real_time: &[(usize, usize)]) -> History {
    let chronicle = |it: &Gadget| Chronicle {
        present: true,
        writers: it.writers.clone(),
    };
    let executed = |transaction: usize| {
        let events = gadgets.iter().enumerate().flat_map(|(object, gadget)| {
            let mine = gadget.reads.iter().filter(move |it| it.0 == transaction);
            let version = |place: usize| match place.checked_sub(1) {
                None => Version::Initial,
                Some(at) => Version::of(gadget.writers[at]),
            };
            let read = move |it: &(usize, usize)| Event::Read {
                object,
                version: version(it.1),
            };
            let write = Event::Write {
                object,
                change: Change::Update,
            };
            let writes = gadget.writers.contains(&transaction).then_some(write);
            mine.map(read).chain(writes)
        });
        Executed {
            events: events.collect(),
            commits: true,
        }
    };
    History {
        objects: gadgets.iter().map(chronicle).collect(),
        transactions: (0..transactions).map(executed).collect(),
        real_time: real_time.to_vec(),
    }
}

/// Returns the pairs of the dependencies of `history`; `None` if a transaction has two incoming or
/// two outgoing ones, or a read or a write belongs to none.
fn sparse_pairs(history: &History) -> Option<Vec<(usize, usize)>> {
    let found = dependencies(history);
    let pairs: Vec<(usize, usize)> = found.iter().map(|it| (it.from, it.to)).collect();
    let is_unique = |list: Vec<usize>| {
        let set: BTreeSet<usize> = list.iter().copied().collect();
        set.len() == list.len()
    };
    let sparse = is_unique(pairs.iter().map(|it| it.0).collect())
        && is_unique(pairs.iter().map(|it| it.1).collect());
    sparse.then_some(pairs)
}

/// Returns all objects over `transactions` transactions that make dependencies, with at most one
/// incoming and one outgoing for each transaction, and no read or write that belongs to none.
fn all_gadgets(transactions: usize) -> Vec<(Gadget, Vec<(usize, usize)>)> {
    let names: Vec<usize> = (0..transactions).collect();
    let mut found = Vec::new();
    for chosen in 1..1usize << transactions {
        let writers: Vec<usize> = { names.iter().copied() }
            .filter(|it| chosen >> it & 1 == 1)
            .collect();
        for writers in permutations(&writers) {
            let places = writers.len();
            let reads = { names.iter() }.flat_map(|&t| (0..=places).map(move |v| (t, v)));
            // Reads of own versions make no dependency.
            let foreign: Vec<_> = { reads }
                .filter(|&(t, v)| v == 0 || writers[v - 1] != t)
                .collect();
            let gadget = Gadget {
                writers,
                reads: Vec::new(),
            };
            extend(gadget, &foreign, transactions, &mut found);
        }
    }
    found
}

/// Adds to `found` all sparse objects that extend `gadget` by some of `reads`.
fn extend(
    gadget: Gadget,
    reads: &[(usize, usize)],
    transactions: usize,
    found: &mut Vec<(Gadget, Vec<(usize, usize)>)>,
) {
    let history = gadget.history(transactions);
    // More reads only add dependencies.
    let Some(pairs) = sparse_pairs(&history) else {
        return;
    };
    let is_used = |it: &usize| pairs.iter().any(|&(from, to)| from == *it || to == *it);
    if !pairs.is_empty() && gadget.writers.iter().all(is_used) {
        found.push((gadget.clone(), pairs.clone()));
    }
    for (at, &read) in reads.iter().enumerate() {
        let mut more = gadget.clone();
        more.reads.push(read);
        let adds = dependencies(&more.history(transactions)).len() > pairs.len();
        if adds {
            extend(more, &reads[at + 1..], transactions, found);
        }
    }
}

/// Returns the numbers of minimal cycles over `transactions` transactions: with an object of its
/// own for each dependency, and with some object that carries two or more.
pub fn gadgets(transactions: usize) -> (usize, usize) {
    let all = all_gadgets(transactions);
    let mut found = BTreeSet::new();
    let names: Vec<usize> = (0..transactions).collect();
    let renamings = permutations(&names);
    // Each cycle is a renaming of one along 0, 1, 2 ...; its real-time edge can be any.
    let successor = |it: usize| (it + 1) % transactions;
    let along: Vec<_> = { all.into_iter() }
        .filter(|(_, pairs)| pairs.iter().all(|&(from, to)| to == successor(from)))
        .collect();
    for real_time in (0..=transactions).map(|it| (it < transactions).then_some(it)) {
        let mut left: BTreeSet<usize> = (0..transactions).collect();
        let edges: Vec<(usize, usize)> = { real_time.iter() }
            .map(|&it| (it, successor(it)))
            .collect();
        if let Some(it) = real_time {
            left.remove(&it);
        }
        cover(&left, &along, &mut Vec::new(), &mut |chosen| {
            let history = of_gadgets(chosen, transactions, &edges);
            if is_possible(&history) {
                let renamed = |names: &Vec<usize>| {
                    let mut objects: Vec<_> = chosen.iter().map(|it| it.renamed(names)).collect();
                    objects.sort();
                    let edges: Vec<_> = { edges.iter() }
                        .map(|&(a, b)| (names[a], names[b]))
                        .collect();
                    (objects, edges)
                };
                found.extend(renamings.iter().map(renamed).min());
            }
        });
    }
    let is_apart = |edges: usize, objects: usize| edges + objects == transactions;
    let apart = { found.iter() }
        .filter(|(objects, edges)| is_apart(edges.len(), objects.len()))
        .count();
    (apart, found.len() - apart)
}

/// Calls `visit` with each choice of objects whose dependencies are exactly those from `left`.
fn cover(
    left: &BTreeSet<usize>,
    all: &[(Gadget, Vec<(usize, usize)>)],
    chosen: &mut Vec<Gadget>,
    visit: &mut impl FnMut(&[Gadget]),
) {
    let Some(first) = left.first() else {
        return visit(chosen);
    };
    for (gadget, pairs) in all {
        let froms: BTreeSet<usize> = pairs.iter().map(|it| it.0).collect();
        if froms.contains(first) && froms.is_subset(left) {
            chosen.push(gadget.clone());
            let rest = left.difference(&froms).copied().collect();
            cover(&rest, all, chosen, visit);
            chosen.pop();
        }
    }
}
