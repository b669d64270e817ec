//! How many ways to break the protocol between compute nodes its judges notice, and which ones they do not.
//!
//! `cargo run --release -p outlive-machine --example mutants`

use std::collections::BTreeMap;
use std::process::ExitCode;

use outlive_machine::protocol::Tables;
use outlive_machine::search::{Search, Shape, Suite, Walk, mutants};

fn main() -> ExitCode {
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
            most_states: 2_000_000,
        }
    };
    let shape = Shape {
        nodes: 8,
        lines: 4,
        capacity: 2,
    };
    let walk = Walk {
        shape,
        seed: 1,
        steps: 1_000_000,
    };
    let suite = Suite {
        searches: vec![search(2), search(3)],
        walks: vec![walk],
    };
    let mutants = mutants(Tables::mesi());
    let mut scores = BTreeMap::<_, [usize; 4]>::new();
    let mut survivors = Vec::new();
    for mutant in &mutants {
        let kill = suite.kill(mutant);
        let score = scores.entry(mutant.mutation).or_default();
        score[0] += 1;
        score[1] += usize::from(kill.search.is_some());
        score[2] += usize::from(kill.walk.is_some());
        score[3] += usize::from(kill.is_dead());
        if !kill.is_dead() {
            survivors.push(&mutant.name);
        }
        if std::env::args().any(|argument| argument == "--each") {
            let by = |violation: Option<_>| {
                violation.map_or("survives".to_string(), |violation| format!("{violation}"))
            };
            println!(
                "{}\n    search: {}\n    walk: {}",
                mutant.name,
                by(kill.search),
                by(kill.walk)
            );
        }
    }
    for (mutation, [all, search, walk, either]) in scores {
        println!(
            "{mutation:?}: {all} mutants; killed by search {search}, by walk {walk}, by either {either}"
        );
    }
    println!("{} mutants, {} survive", mutants.len(), survivors.len());
    for name in &survivors {
        println!("survives: {name}");
    }
    if survivors.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
