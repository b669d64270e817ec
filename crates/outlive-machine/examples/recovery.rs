//! Searches small machines that replicate their stores for a way to lose one when nodes die, and walks at random through
//! larger ones.
//!
//! `cargo run --release -p outlive-machine --example recovery [--full]`

use std::process::ExitCode;
use std::time::Instant;

use outlive_machine::protocol::ReplicatedTables;
use outlive_machine::search::{
    Budget, ReplicatedRules, ReplicatedSearch, ReplicatedWalk, Setup, Shape, When,
};

/// Nodes, lines, N_r, when, stores and other accesses of each node, deaths, dumps.
type Machine = (
    usize,
    usize,
    usize,
    When,
    &'static [u32],
    &'static [u32],
    u32,
    u32,
);

fn setup((nodes, lines, replicas, when, stores, others, deaths, dumps): Machine) -> Setup {
    Setup {
        shape: Shape {
            nodes,
            lines,
            capacity: lines,
        },
        when,
        deaths,
        dumps,
        ..Setup::proactive(nodes, replicas, Budget { stores, others })
    }
}

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--full");
    let rules = ReplicatedRules::strict(ReplicatedTables::recxl());
    let mut machines: Vec<Machine> = vec![
        (3, 1, 2, When::Writable, &[1, 1], &[], 1, 0),
        (3, 1, 2, When::Head, &[1, 1], &[], 1, 0),
        (3, 1, 2, When::Retired, &[1, 1], &[], 1, 0),
        (3, 1, 2, When::Retired, &[2, 1], &[], 1, 0),
        (3, 1, 2, When::Retired, &[1], &[1, 1, 1], 1, 0),
        (3, 1, 2, When::Retired, &[1, 1], &[], 2, 0),
        (3, 1, 3, When::Retired, &[1, 1], &[], 2, 0),
        (4, 1, 3, When::Retired, &[1], &[], 2, 1),
    ];
    if full {
        let more: [Machine; 5] = [
            (3, 1, 2, When::Retired, &[1, 1, 1], &[], 1, 0),
            (3, 1, 2, When::Retired, &[2, 1], &[1, 1], 1, 0),
            (3, 2, 2, When::Retired, &[2, 1], &[], 1, 0),
            (4, 1, 2, When::Retired, &[2, 1], &[], 1, 1),
            (4, 1, 3, When::Retired, &[1, 1], &[], 2, 0),
        ];
        machines.extend(more);
    }
    let mut sound = true;
    for machine in machines {
        let setup = setup(machine);
        let search = ReplicatedSearch {
            setup,
            most_states: 20_000_000,
        };
        let (nodes, lines, replicas, when, stores, others, deaths, dumps) = machine;
        print!(
            "search: {nodes} nodes, {lines} lines, N_r {replicas}, {when:?}, stores {stores:?}, others {others:?}, \
             {deaths} deaths, {dumps} dumps: "
        );
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
    sound &= walk(&rules, if full { 100_000 } else { 5_000 });
    match sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Five nodes of which three die, with four replicas.
fn walk(rules: &ReplicatedRules, walks: u64) -> bool {
    let begun = Instant::now();
    let (mut stores, mut deaths, mut interrupts, mut recoveries) = (0, 0, 0, 0);
    for seed in 0..walks {
        let when = [When::Writable, When::Head, When::Retired][seed as usize % 3];
        let walk = ReplicatedWalk {
            setup: Setup {
                buffer: 4,
                at_once: 3,
                ..setup((5, 2, 4, when, &[40; 5], &[40; 5], 3, 10))
            },
            seed,
            most_steps: 20_000,
        };
        match walk.run(rules) {
            Ok(walked) => {
                stores += walked.stores;
                deaths += walked.deaths;
                interrupts += walked.interrupts;
                recoveries += walked.recoveries;
            }
            Err(counterexample) => {
                println!("walk {seed}: broken\n{counterexample}");
                return false;
            }
        }
    }
    println!(
        "{walks} walks: 5 nodes, 2 lines, N_r 4: {stores} stores, {deaths} deaths, {interrupts} interrupts, \
         {recoveries} recoveries, {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    true
}
