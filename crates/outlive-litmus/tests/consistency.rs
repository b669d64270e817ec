//! The definitions of levels against each other, and the numbers of cycles against independent
//! counts.

use outlive_litmus::consistency::{
    Change, Chronicle, Edge, Event, Executed, History, Shared, Special, Version, Word, counts,
    forbidden, weakest,
};
use outlive_litmus::level::{Isolation, Level};
use std::collections::BTreeMap;

const TRANSACTIONS: std::ops::RangeInclusive<usize> = 2..=4;

#[test]
fn words_are_as_many_as_independent_counts_say() {
    for (transactions, expected) in TRANSACTIONS.zip([8, 20, 51]) {
        let words = Word::all(transactions).len();
        let (apart, shared) = counts::gadgets(transactions);
        let constructed = Shared::all(transactions).len();
        println!(
            "{transactions} transactions: {words} words, {} by the closed form, {apart} by objects; \
             {constructed} with shared objects, {shared} by objects",
            counts::closed_form(transactions)
        );
        assert_eq!(words, expected);
        assert_eq!(counts::closed_form(transactions), words);
        assert_eq!(apart, words);
        assert_eq!(shared, constructed);
    }
}

/// Real time as an arbitrary relation, and reads of committed values only, give other words: the
/// number of these is counted by listing them too.
#[test]
fn words_over_relations_are_as_many_as_their_closed_form_says() {
    for (transactions, expected) in TRANSACTIONS.zip([8, 19, 55]) {
        let listed = words_over_relations(transactions);
        println!("{transactions} transactions: {listed} words over relations");
        assert_eq!(listed, expected);
        assert_eq!(counts::relations(transactions), expected);
    }
}

/// Lists words up to rotation, without adjacent real-time edges, and without those of read
/// dependencies and real-time edges only.
fn words_over_relations(length: usize) -> usize {
    let mut found = std::collections::BTreeSet::new();
    for number in 0..4usize.pow(length as u32) {
        let letter = |at: usize| Edge::ALL[number / 4usize.pow(at as u32) % 4];
        let word: Vec<Edge> = (0..length).map(letter).collect();
        let is_time = |at: usize| word[at % length] == Edge::RealTime;
        let is_apart = (0..length).all(|at| !(is_time(at) && is_time(at + 1)));
        let is_backward = { word.iter() }.all(|it| matches!(it, Edge::RealTime | Edge::WriteRead));
        let has_time = word.contains(&Edge::RealTime);
        if is_apart && !(is_backward && has_time) {
            let rotations = (0..length).map(|by| [&word[by..], &word[..by]].concat());
            found.insert(rotations.min());
        }
    }
    found.len()
}

/// The coarse levels, weakest first; SI is weaker than serializability here, since repeatable read
/// is left out.
const COARSE: [Level; 5] = [
    Level::new(Isolation::ReadCommitted, false),
    Level::new(Isolation::Snapshot, false),
    Level::new(Isolation::Serializable, false),
    Level::new(Isolation::Snapshot, true),
    Level::new(Isolation::Serializable, true),
];

#[test]
fn words_are_forbidden_by_the_levels_that_their_letters_say() {
    let mut by_level = BTreeMap::new();
    for word in TRANSACTIONS.flat_map(Word::all) {
        let levels = forbidden(&word.history()).expect("both definitions agree");
        let edges = word.edges();
        let has = |edge| edges.contains(&edge);
        let is_anti = |at: usize| edges[at % edges.len()] == Edge::ReadWrite;
        let is_adjacent = (0..edges.len()).any(|at| is_anti(at) && is_anti(at + 1));
        let isolations = if is_adjacent {
            vec![Isolation::RepeatableRead]
        } else if has(Edge::ReadWrite) {
            vec![Isolation::RepeatableRead, Isolation::Snapshot]
        } else if has(Edge::WriteRead) {
            vec![Isolation::ReadCommitted]
        } else {
            vec![Isolation::ReadUncommitted]
        };
        let real_time = has(Edge::RealTime);
        let expected: Vec<Level> = { isolations.into_iter() }
            .map(|it| Level::new(it, real_time))
            .collect();
        assert_eq!(weakest(&levels), expected, "{word}");
        let coarse = COARSE.iter().find(|it| levels.contains(it));
        let coarse = coarse.expect("strict serializability forbids all cycles");
        *by_level.entry(coarse.to_string()).or_insert(0) += 1;
    }
    println!("{by_level:?}");
    let expected = [
        ("read-committed", 13),
        ("snapshot", 17),
        ("serializable", 11),
        ("strict-snapshot", 32),
        ("strict-serializable", 6),
    ];
    let expected = expected.map(|(name, number)| (name.to_string(), number));
    assert_eq!(by_level, BTreeMap::from(expected));
}

/// Both definitions agree on all histories of two objects with few reads and writes, not only on
/// those of tests.
#[test]
fn the_definitions_agree_on_all_small_histories() {
    let mut histories = 0;
    let mut forbidden_by = BTreeMap::new();
    for seed in 0..20_000u64 {
        let history = arbitrary(seed);
        let levels = forbidden(&history).unwrap_or_else(|it| panic!("{it}: {history:?}"));
        for &level in &levels {
            let implied = Level::all().filter(|it| it.implies(level));
            for stronger in implied {
                assert!(
                    levels.contains(&stronger),
                    "{level} but not {stronger}: {history:?}"
                );
            }
        }
        for level in weakest(&levels) {
            *forbidden_by.entry(level.to_string()).or_insert(0) += 1;
        }
        histories += 1;
    }
    println!("{histories} histories, by weakest forbidding level: {forbidden_by:?}");
    // Each level but the empty ones draws a line somewhere.
    assert_eq!(
        forbidden_by.len(),
        Level::all().count() - 2,
        "{forbidden_by:?}"
    );
}

/// Returns a history of 2 to 4 transactions over 2 objects, with counts, aborts and real time.
fn arbitrary(seed: u64) -> History {
    let mut state = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(0x1234_5678_9ABC_DEF1);
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % bound
    };
    let transactions = 2 + below(3);
    let commits: Vec<bool> = (0..transactions).map(|_| below(8) > 0).collect();
    let mut history = History {
        objects: Vec::new(),
        transactions: { commits.iter() }
            .map(|&commits| Executed {
                events: Vec::new(),
                commits,
            })
            .collect(),
        real_time: Vec::new(),
    };
    for object in 0..2 {
        let mut writers = Vec::new();
        let present = below(2) == 0;
        let mut is_present = present;
        for (transaction, &commits) in commits.iter().enumerate() {
            if below(2) > 0 {
                continue;
            }
            for _ in 0..1 + below(6) / 5 {
                let change = match (is_present, below(3)) {
                    (true, 0) => Change::Delete,
                    (true, _) => Change::Update,
                    (false, _) => Change::Insert,
                };
                is_present = change != Change::Delete;
                let events = &mut history.transactions[transaction].events;
                events.push(Event::Write { object, change });
            }
            if commits {
                writers.insert(below(writers.len() + 1), transaction);
            }
        }
        history.objects.push(Chronicle { present, writers });
    }
    let versions = |object: usize| {
        let written = (0..transactions).flat_map(|transaction| {
            let writes = history.writes(transaction, object).len();
            (0..writes).map(move |write| Version::Written { transaction, write })
        });
        [Version::Initial]
            .into_iter()
            .chain(written)
            .collect::<Vec<_>>()
    };
    let versions = [versions(0), versions(1)];
    for transaction in 0..transactions {
        for _ in 0..below(3) {
            let seen = [0, 1].map(|object: usize| versions[object][below(versions[object].len())]);
            let event = match below(4) {
                0 => Event::Count {
                    versions: seen.to_vec(),
                },
                it => Event::Read {
                    object: it % 2,
                    version: seen[it % 2],
                },
            };
            history.transactions[transaction].events.insert(0, event);
        }
    }
    for from in 0..transactions {
        for to in from + 1..transactions {
            if below(5) == 0 {
                history.real_time.push((from, to));
            }
        }
    }
    history
}

#[test]
fn the_special_histories_are_forbidden_where_the_literature_says() {
    let named = |name: &str| {
        let mut all = Special::all().into_iter();
        let found = all.find(|it| it.name == name).expect("a special history");
        let levels = forbidden(&found.history).expect("both definitions agree");
        let names: Vec<String> = weakest(&levels).iter().map(Level::to_string).collect();
        names.join(" ")
    };
    for name in [
        "aborted-read",
        "aborted-count",
        "intermediate-read",
        "mutual-count",
    ] {
        assert_eq!(named(name), "read-committed", "{name}");
    }
    for name in ["phantom-insert", "phantom-delete", "count-then-read"] {
        assert_eq!(named(name), "snapshot", "{name}");
    }
    for name in ["write-skew-insert", "write-skew-delete", "write-skew-count"] {
        assert_eq!(named(name), "serializable", "{name}");
    }
    assert_eq!(named("write-skew-absent"), "repeatable-read");
    assert_eq!(named("read-then-count"), "repeatable-read snapshot");
    assert_eq!(named("read-skew-absent"), "repeatable-read snapshot");
    assert_eq!(named("stale-count"), "strict-snapshot");
}
