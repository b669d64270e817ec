//! How many ways to break the protocol between compute nodes its judges notice, and which ones they do not.
//!
//! `cargo run --release -p outlive-machine --example mutants [--each]`

use std::collections::BTreeMap;
use std::process::ExitCode;

use outlive_machine::protocol::Tables;
use outlive_machine::search::{Claims, SURVIVORS, Search, Shape, Suite, Violation, Walk, mutants};

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
    let each = std::env::args().any(|argument| argument == "--each");
    let (all_claims, visible) = (suite(Claims::All), suite(Claims::Visible));
    let mutants = mutants(Tables::mesi());
    let mut scores = BTreeMap::<_, [usize; 6]>::new();
    let (mut survivors, mut inconspicuous) = (Vec::new(), Vec::new());
    for mutant in &mutants {
        let (kill, seen) = (all_claims.kill(mutant), visible.kill(mutant));
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
            "{mutation:?}: {all} mutants, {dead} killed: by search {search}, by walk {walk}; \
             by what programs see alone: by search {search_seen}, by walk {walk_seen}"
        );
    }
    for name in &inconspicuous {
        println!("no program would see: {name}");
    }
    for name in &survivors {
        let why = SURVIVORS
            .iter()
            .find(|(known, _)| known == name)
            .map_or("NOT EXPLAINED", |(_, why)| why);
        println!("survives: {name}: {why}");
    }
    println!(
        "{} mutants, {} killed, {} survive",
        mutants.len(),
        mutants.len() - survivors.len(),
        survivors.len()
    );
    let explained: Vec<_> = SURVIVORS.iter().map(|(name, _)| *name).collect();
    if survivors == explained {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
