//! Counts the ways to break the protocol between compute nodes that its judges notice, and lists
//! those that they miss.
//!
//! `cargo run --release -p outlive-machine --example mutants [--each] [--replication]`
//!
//! With `--replication`, only the tables of stores and of burials are mutated. Mutants are tried on
//! all processors, with their number on standard error. With `--each`, each mutant's result is
//! printed.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use outlive_machine::protocol::{ReplicatedTables, Tables};
use outlive_machine::search::{
    Claims, REPLICATED_SURVIVORS, ReplicatedSuite, SURVIVORS, Search, Shape, Suite, Violation,
    Walk, mutants, replicated_mutants,
};

fn suite(claims: Claims) -> Suite {
    let search = |nodes| {
        let shape = Shape {
            nodes,
            lines: 1,
            capacity: 1,
        };
        Search {
            shape,
            budget: None,
            symmetric: true,
            claims,
            most_states: 4_000_000,
        }
    };
    let shape = Shape {
        nodes: 8,
        lines: 4,
        capacity: 2,
    };
    Suite {
        searches: vec![search(2), search(3)],
        walks: vec![Walk {
            shape,
            claims,
            seed: 1,
            steps: 1_000_000,
        }],
    }
}

fn main() -> ExitCode {
    let has = |option| std::env::args().any(|argument| argument == option);
    let each = has("--each");
    let coherent = has("--replication") || coherence(each);
    match replication(each) && coherent {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns the result of each mutant, in their order.
fn on_all_processors<M: Sync, K: Send>(mutants: &[M], kill: impl Fn(&M) -> K + Sync) -> Vec<K> {
    const BETWEEN: Duration = Duration::from_secs(10);
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let mut kills: Vec<Option<K>> = mutants.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (tell, next, kill) = (tell.clone(), &next, &kill);
            scope.spawn(move || {
                // Relaxed: it hands out numbers and orders nothing.
                let take = || next.fetch_add(1, Ordering::Relaxed);
                let taken = std::iter::repeat_with(take).map_while(|n| Some((n, mutants.get(n)?)));
                for (n, mutant) in taken {
                    if tell.send((n, kill(mutant))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut last = Instant::now();
        for (done, (n, killed)) in told.into_iter().enumerate() {
            kills[n] = Some(killed);
            if last.elapsed() > BETWEEN {
                eprintln!("{} of {} mutants", done + 1, mutants.len());
                last = Instant::now();
            }
        }
    });
    kills.into_iter().flatten().collect()
}

/// Mutates stores and burials. Returns whether exactly the explained mutants survive.
fn replication(each: bool) -> bool {
    let suite = ReplicatedSuite::small(300);
    let mutants = replicated_mutants(ReplicatedTables::recxl());
    let mut scores = BTreeMap::<_, [usize; 4]>::new();
    let mut survivors = Vec::new();
    let kills = on_all_processors(&mutants, |mutant| suite.kill(mutant));
    for (mutant, kill) in mutants.iter().zip(kills) {
        let score = scores.entry(mutant.mutation).or_default();
        score[0] += 1;
        score[1] += usize::from(kill.is_dead());
        score[2] += usize::from(kill.search.is_some());
        score[3] += usize::from(kill.walk.is_some());
        if !kill.is_dead() {
            survivors.push(mutant.name.as_str());
        }
        if each {
            let by = |violation: Option<Violation>| {
                violation.map_or("survives".to_string(), |found| found.to_string())
            };
            println!("{}", mutant.name);
            println!("    search: {}; walk: {}", by(kill.search), by(kill.walk));
        }
    }
    for (mutation, [all, dead, search, walk]) in scores {
        println!(
            "replication, {mutation:?}: {all} mutants, {dead} killed: by search {search}, by walk {walk}"
        );
    }
    report(&survivors, mutants.len(), REPLICATED_SURVIVORS)
}

/// Prints the survivors. Returns whether exactly the explained mutants survive.
fn report(survivors: &[&str], all: usize, explained: &[(&str, &str)]) -> bool {
    for name in survivors {
        let why = explained
            .iter()
            .find(|(known, _)| known == name)
            .map_or("NOT EXPLAINED", |(_, why)| why);
        println!("survives: {name}: {why}");
    }
    println!(
        "{all} mutants, {} killed, {} survive",
        all - survivors.len(),
        survivors.len()
    );
    survivors.iter().eq(explained.iter().map(|(name, _)| name))
}

/// Mutates agents and directories. Returns whether exactly the explained mutants survive.
fn coherence(each: bool) -> bool {
    let (all_claims, visible) = (suite(Claims::All), suite(Claims::Visible));
    let mutants = mutants(Tables::mesi());
    let mut scores = BTreeMap::<_, [usize; 6]>::new();
    let (mut survivors, mut inconspicuous) = (Vec::new(), Vec::new());
    let kills = on_all_processors(&mutants, |mutant| {
        (all_claims.kill(mutant), visible.kill(mutant))
    });
    for (mutant, (kill, seen)) in mutants.iter().zip(kills) {
        let score = scores.entry(mutant.mutation).or_default();
        score[0] += 1;
        score[1] += usize::from(kill.is_dead());
        score[2] += usize::from(kill.search.is_some());
        score[3] += usize::from(kill.walk.is_some());
        score[4] += usize::from(seen.search.is_some());
        score[5] += usize::from(seen.walk.is_some());
        match (kill.is_dead(), seen.is_dead()) {
            (false, _) => survivors.push(mutant.name.as_str()),
            (true, false) => inconspicuous.push(mutant.name.as_str()),
            (true, true) => {}
        }
        if each {
            let by = |violation: Option<Violation>| {
                violation.map_or("survives".to_string(), |found| found.to_string())
            };
            println!("{}", mutant.name);
            println!(
                "    all claims: search: {}; walk: {}",
                by(kill.search),
                by(kill.walk)
            );
            println!(
                "    visible: search: {}; walk: {}",
                by(seen.search),
                by(seen.walk)
            );
        }
    }
    for (mutation, [all, dead, search, walk, search_seen, walk_seen]) in scores {
        println!(
            "{mutation:?}: {all} mutants, {dead} killed: by search {search}, by walk {walk}; by \
             effects that programs see: by search {search_seen}, by walk {walk_seen}"
        );
    }
    for name in &inconspicuous {
        println!("no program would see: {name}");
    }
    report(&survivors, mutants.len(), SURVIVORS)
}
