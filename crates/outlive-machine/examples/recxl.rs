//! One workload in all configurations: time beside write-back's, and what replication does. Its result is checked each time.
//!
//! `cargo run --release -p outlive-machine --example recxl -- [workload] [test|study|tenfold|full] [configurations]`
//! (default: ycsb study, all)

use std::error::Error;
use std::time::Instant;

use outlive_machine::cluster::{self, Cluster, MessageKind, Purpose, Statistics, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::logging::ENTRY_BYTES;
use outlive_machine::program::workloads::by_name;
use outlive_machine::program::{Recording, Scale};

const THREADS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "ycsb".into());
    let scale = match arguments.next().as_deref() {
        None | Some("study") => Scale::Study,
        Some("test") => Scale::Test,
        Some("tenfold") => Scale::Tenfold,
        Some("full") => Scale::Full,
        Some(other) => return Err(format!("no scale {other}: test, study, tenfold or full").into()),
    };
    let wanted: Vec<String> = arguments.collect();
    let workload = by_name(&name, THREADS, scale).ok_or(format!("no workload {name}"))?;
    println!("{name}, {scale:?}, {THREADS} threads on 16 nodes");
    let mut base = None;
    for protocol in Protocol::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == protocol.name()) {
            continue;
        }
        let mut description = Description::default();
        description.ours.coherence.protocol = *protocol;
        let runs = Workload {
            threads: workload.threads(Recording::Off),
            image: workload.image().clone(),
            synchronisation: workload.synchronisation().clone(),
        };
        let mut simulation = Cluster::simulation(&description, runs, 1)?;
        let begun = Instant::now();
        let end = cluster::run(&mut simulation)?;
        let took = begun.elapsed().as_secs_f64();
        let machine = simulation.machine();
        workload.check(&|word| machine.word(word))?;
        let base = *base.get_or_insert(end);
        let statistics = machine.statistics();
        println!(
            "{}: {end}, {:.3} x; host {took:.1} s, {:.2} M instructions/s, {:.2} M events/s",
            protocol.name(),
            end.as_seconds() / base.as_seconds(),
            statistics.total().instructions as f64 / took / 1e6,
            simulation.handled() as f64 / took / 1e6,
        );
        report(&statistics, end);
    }
    println!("the host's memory at its peak: {} MB", peak_megabytes());
    Ok(())
}

fn report(statistics: &Statistics, end: Time) {
    let total = statistics.total();
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let ticks = 2.4e9 * 5.0 * end.as_seconds() * THREADS as f64;
    println!(
        "  stores: {} of {} instructions, {} shared, {:.1}% of these joined another; {} commits, {:.0} ns each in the buffer",
        total.stores,
        total.instructions,
        total.shared_stores,
        share(total.shared_coalesced, total.shared_stores),
        total.commits,
        total.buffer_ticks as f64 / total.commits.max(1) as f64 / 12.0,
    );
    println!(
        "  store buffers: full {:.1}% of the time; the oldest waits for its replicas alone {:.1}%",
        total.buffer_full_ticks as f64 / ticks * 100.0,
        total.replica_ticks as f64 / ticks * 100.0,
    );
    let rate = |bytes: u64| bytes as f64 / end.as_seconds() / 1e9;
    let purposes = [Purpose::Access, Purpose::Replication, Purpose::Dump];
    let [access, replication, dump] =
        purposes.map(|purpose| rate(statistics.messages.for_purpose(purpose).bytes));
    println!(
        "  GB/s of all nodes: accesses {access:.2}, replication {replication:.2}, dumps {dump:.3}"
    );
    for kind in MessageKind::ALL {
        let traffic = statistics.messages.of(*kind);
        if traffic.messages > 0 {
            print!("  {kind:?} {}", traffic.messages);
        }
    }
    println!();
    if total.replicated == 0 {
        return;
    }
    println!(
        "  replicated {}, {:.1}% when they were the oldest",
        total.replicated,
        share(total.replicated_oldest, total.replicated)
    );
    let units = &statistics.logging;
    let most = |count: fn(&outlive_machine::logging::LoggingCounts) -> u64| {
        units.iter().map(count).max().unwrap_or_default()
    };
    let sum = |count: fn(&outlive_machine::logging::LoggingCounts) -> u64| {
        units.iter().map(count).sum::<u64>()
    };
    let (saved, dumped) = (sum(|unit| unit.saved), sum(|unit| unit.dumped_bytes));
    println!(
        "  logs: at most {} B in SRAM, {} B beyond it, {:.3} MB in DRAM; {} entries saved in {} B, factor {:.1}",
        most(|unit| u64::from(unit.peak_sram)) * ENTRY_BYTES as u64,
        most(|unit| u64::from(unit.peak_spill)) * ENTRY_BYTES as u64,
        (most(|unit| unit.peak_log) * ENTRY_BYTES as u64) as f64 / 1e6,
        saved,
        dumped,
        (saved * ENTRY_BYTES as u64) as f64 / dumped.max(1) as f64,
    );
}

/// What Linux says that this process has needed; 0 elsewhere.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}
