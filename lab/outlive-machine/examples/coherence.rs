//! Searches small machines for a way to break the protocol between compute nodes, and walks at
//! random through larger ones.
//!
//! `cargo run --release -p outlive-machine --example coherence [--full]`

use std::process::ExitCode;
use std::time::Instant;

use outlive_machine::protocol::Tables;
use outlive_machine::search::{Claims, Rules, Search, Shape, Walk};

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--full");
    let rules = Rules::strict(Tables::mesi());
    // Nodes, lines, space for lines, requests of each node.
    let mut machines = vec![
        (2, 1, 1, None),
        (3, 1, 1, None),
        (2, 2, 1, None),
        (2, 2, 2, Some(4)),
        (3, 2, 1, Some(2)),
    ];
    if full {
        machines.extend([(3, 2, 1, Some(3)), (4, 1, 1, None)]);
    }
    let (mut sound, claims) = (true, Claims::All);
    for (nodes, lines, capacity, budget) in machines {
        let shape = Shape {
            nodes,
            lines,
            capacity,
        };
        let search = Search {
            shape,
            budget,
            symmetric: true,
            claims,
            most_states: 40_000_000,
        };
        let asks = budget.map_or("any accesses".to_string(), |budget| {
            format!("{budget} accesses a node")
        });
        print!("search: {nodes} nodes, {lines} lines, room for {capacity}, {asks}: ");
        let begun = Instant::now();
        match search.run(&rules) {
            Ok(explored) => {
                println!("{explored}, {:.1} s", begun.elapsed().as_secs_f64());
                sound &= explored.complete;
            }
            Err(counterexample) => {
                println!("broken\n{counterexample}");
                sound = false;
            }
        }
    }
    let steps = if full { 100_000_000 } else { 5_000_000 };
    for (seed, nodes, lines, capacity) in [(1, 8, 4, 2), (2, 8, 1, 1), (3, 16, 6, 2)] {
        print!("walk {seed}: {nodes} nodes, {lines} lines, room for {capacity}: ");
        let begun = Instant::now();
        match (Walk {
            shape: Shape {
                nodes,
                lines,
                capacity,
            },
            claims,
            seed,
            steps,
        })
        .run(&rules)
        {
            Ok(walked) => println!(
                "{} accesses, {} evictions, {} deliveries, at most {} messages under way, {:.1} s",
                walked.accesses,
                walked.evictions,
                walked.deliveries,
                walked.most_under_way,
                begun.elapsed().as_secs_f64()
            ),
            Err(counterexample) => {
                println!("broken\n{counterexample}");
                sound = false;
            }
        }
    }
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
