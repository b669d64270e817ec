//! How many crash points are tried in a second, for each program and configuration.
//!
//! `cargo run --release -p outlive-machine --example crash -- [points] [part of a name]`

use std::error::Error;
use std::time::Instant;

use outlive_machine::crash::Proof;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let points: u64 = arguments.next().map_or(Ok(100), |points| points.parse())?;
    let part = arguments.next().unwrap_or_default();
    let (mut all, mut failed) = (0, 0);
    let begun = Instant::now();
    for proof in Proof::all() {
        let name = proof.name();
        if !name.contains(&part) {
            continue;
        }
        let begun = Instant::now();
        let report = proof.run(points, 1, &|_| {})?;
        let took = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {} points of {} events, {} recoveries, {} stores, {} lines restored, {} failed; {took:.2} s, {:.0} points/s",
            report.points,
            report.events,
            report.recoveries,
            report.stores,
            report.restored,
            report.failed,
            report.points as f64 / took
        );
        for failed in &report.failures {
            println!("  {}: {}", failed.point, failed.what);
        }
        all += report.points;
        failed += report.failed;
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{all} points, {failed} failed; {took:.1} s, {:.0} points/s",
        all as f64 / took
    );
    Ok(())
}
