//! Runs each workload without time and checks its result. Prints the share of stores among its
//! accesses, and the share of stores that go to lines that several threads touch, next to the known
//! shares of the program that it models.
//!
//! `cargo run --release -p outlive-kernels --example workloads -- [threads]
//! [test|study|tenfold|full] [names]` (default: 64 study, all).

use std::error::Error;
use std::time::Instant;

use outlive_kernels::{ALL, by_name};
use outlive_machine::program::{Recording, Reference, Scale};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().map_or(Ok(64), |threads| threads.parse())?;
    let scale = match arguments.next().as_deref() {
        None | Some("study") => Scale::Study,
        Some("test") => Scale::Test,
        Some("tenfold") => Scale::Tenfold,
        Some("full") => Scale::Full,
        Some(other) => {
            return Err(
                format!("there is no scale {other}; use test, study, tenfold or full").into(),
            );
        }
    };
    let mut names: Vec<String> = arguments.collect();
    if names.is_empty() {
        names = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    println!("{threads} threads, {scale:?}; shares in %: ours, known (ours / known)");
    println!(
        "{:14} {:>12} {:>7} {:>24} {:>24} {:>9}",
        "workload", "instructions", "MB", "stores of accesses", "shared of stores", "M ops/s"
    );
    for name in names {
        let workload =
            by_name(&name, threads, scale).ok_or(format!("there is no workload {name}"))?;
        let mut machine = Reference::of(&workload, Recording::Off, 1);
        let begun = Instant::now();
        let counts = machine.run()?;
        let seconds = begun.elapsed().as_secs_f64();
        workload.check(&|word| machine.word(word))?;
        let beside = |ours: f64, known: Option<f64>| match known {
            None => format!("{:.2}, -", ours * 100.0),
            Some(known) => format!(
                "{:.2}, {:.2} ({:.2})",
                ours * 100.0,
                known * 100.0,
                ours / known
            ),
        };
        let origin = workload.origin();
        println!(
            "{name:14} {:>12} {:>7} {:>24} {:>24} {:>9.1}",
            counts.instructions(),
            (workload.image().words * 8) >> 20,
            beside(counts.store_fraction(), origin.stores),
            beside(counts.shared_store_fraction(), origin.shared_stores),
            (counts.instructions() - counts.compute) as f64 / seconds / 1e6,
        );
        println!("{:14} {} ({})", "", origin.program, origin.source);
        match origin.differs {
            _ if origin.is_near(&counts) => {}
            Some(why) => println!(
                "{:14} differs from the published share by more than a quarter: {why}",
                ""
            ),
            None => println!(
                "{:14} differs from the published share by more than a quarter",
                ""
            ),
        }
    }
    Ok(())
}
