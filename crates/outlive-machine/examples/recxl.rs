//! One workload in all configurations: time beside a named one's, and what replication does. Its result is checked each time.
//!
//! `cargo run --release -p outlive-machine --example recxl -- [workload] [test|study|tenfold|full] [configurations]
//! [seeds=N] [parameter=value …]`
//! (default: ycsb study, all, one seed)
//!
//! A parameter is a path and a value of the machine's description, as in `ours.replication.entries_per_cycle=1`. Besides the
//! configurations of the paper there is write-back that never coalesces (`wb-uncoalesced`), beside which the one of ReCXL that
//! never coalesces stands; and write-back whose store buffer has 9 entries (`wb-nine`), which hold no more stores than the 72
//! of who never coalesces, for stores that are done together have one entry. Each seed delays messages in another way: times
//! are printed as the mean of their ratios, and the least and the largest.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use outlive_machine::cluster::{self, Cluster, MessageKind, Purpose, Statistics, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::logging::ENTRY_BYTES;
use outlive_machine::program::workloads::by_name;
use outlive_machine::program::{self, Recording, Scale};

const THREADS: usize = 64;
/// Beside whose time all others' stands.
const BASE: &str = "wb";
/// Beside whose time that of who never coalesces stands, too.
const UNCOALESCED_BASE: &str = "wb-uncoalesced";

/// Names of configurations and what of the description they set.
fn configurations() -> Vec<(&'static str, String)> {
    let protocol = |name: &str| format!("ours.coherence.protocol = \"{name}\"\n");
    let mut all = vec![
        (BASE, protocol("wb")),
        (
            UNCOALESCED_BASE,
            protocol("wb") + "ours.core.coalescing = \"never\"\n",
        ),
        ("wb-nine", protocol("wb") + "ours.core.store_buffer = 9\n"),
    ];
    let others = Protocol::ALL.iter().map(|protocol| protocol.name());
    all.extend(
        others
            .filter(|name| *name != BASE)
            .map(|name| (name, protocol(name))),
    );
    all
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (settings, words): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|word| word.contains('='));
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_else(|| "ycsb".into());
    let scale = match words.next().as_deref() {
        None | Some("study") => Scale::Study,
        Some("test") => Scale::Test,
        Some("tenfold") => Scale::Tenfold,
        Some("full") => Scale::Full,
        Some(other) => return Err(format!("no scale {other}: test, study, tenfold or full").into()),
    };
    let wanted: Vec<String> = words.collect();
    let known = configurations();
    if let Some(other) = wanted
        .iter()
        .find(|wanted| known.iter().all(|(name, _)| name != wanted))
    {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        return Err(format!("no configuration {other}: {}", names.join(", ")).into());
    }
    let (seeds, settings): (Vec<&String>, Vec<&String>) = settings
        .iter()
        .partition(|setting| setting.starts_with("seeds="));
    let seeds: u64 = seeds.last().map_or(Ok(1), |seeds| seeds[6..].parse())?;
    let settings: String = settings.iter().map(|line| with_quotes(line)).collect();
    let workload = by_name(&name, THREADS, scale).ok_or(format!("no workload {name}"))?;
    println!("{name}, {scale:?}, {THREADS} threads on 16 nodes, {seeds} seeds\n{settings}");
    let mut ends: BTreeMap<&str, Vec<Time>> = BTreeMap::new();
    for (configuration, lines) in &known {
        // Who is asked for, and beside whom they stand.
        let base = *configuration == BASE
            || *configuration == UNCOALESCED_BASE
                && wanted
                    .iter()
                    .any(|name| name == Protocol::Uncoalesced.name());
        if !wanted.is_empty() && !base && !wanted.iter().any(|name| name == configuration) {
            continue;
        }
        let description: Description = format!("{lines}{settings}").parse()?;
        for seed in 1..=seeds {
            let (statistics, end) = run(configuration, &workload, &description, seed)?;
            ends.entry(configuration).or_default().push(end);
            if seed == seeds {
                report(&statistics, &description, end);
            }
        }
        let uncoalesced = *configuration == Protocol::Uncoalesced.name();
        for base in [BASE, UNCOALESCED_BASE] {
            if base == BASE || uncoalesced {
                println!("  {} of {base}", spread(&ends[configuration], &ends[base]));
            }
        }
    }
    println!("the host's memory at its peak: {} MB", peak_megabytes());
    Ok(())
}

/// A line of TOML for `path=value`, whose value may stand there without quotes.
fn with_quotes(setting: &str) -> String {
    let (path, value) = setting.split_once('=').unwrap_or((setting, ""));
    let bare = value.starts_with('"') || value.parse::<u64>().is_ok();
    match bare {
        true => format!("{path} = {value}\n"),
        false => format!("{path} = \"{value}\"\n"),
    }
}

/// The ratios of times with the same seeds: their mean, and from which to which they are.
fn spread(times: &[Time], bases: &[Time]) -> String {
    let ratios: Vec<f64> = times
        .iter()
        .zip(bases)
        .map(|(time, base)| time.as_seconds() / base.as_seconds())
        .collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!("{mean:.3} x ({least:.3} to {most:.3})")
}

fn run(
    name: &str,
    workload: &program::Workload,
    description: &Description,
    seed: u64,
) -> Result<(Statistics, Time), Box<dyn Error>> {
    let runs = Workload {
        threads: workload.threads(Recording::Off),
        image: workload.image().clone(),
        synchronisation: workload.synchronisation().clone(),
    };
    let mut simulation = Cluster::simulation(description, runs, seed)?;
    let begun = Instant::now();
    let end = cluster::run(&mut simulation)?;
    let took = begun.elapsed().as_secs_f64();
    let machine = simulation.machine();
    workload.check(&|word| machine.word(word))?;
    let statistics = machine.statistics();
    println!(
        "{name}: {end}; host {took:.1} s, {:.2} M instructions/s, {:.2} M events/s",
        statistics.total().instructions as f64 / took / 1e6,
        simulation.handled() as f64 / took / 1e6,
    );
    Ok((statistics, end))
}

fn report(statistics: &Statistics, description: &Description, end: Time) {
    let total = statistics.total();
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let (system, core) = (&description.system, &description.ours.core);
    let ticks_a_second = system.cpu_frequency.hertz() as f64 * f64::from(core.width);
    let ticks = ticks_a_second * end.as_seconds() * THREADS as f64;
    println!(
        "  stores: {} of {} instructions, {} shared, {:.1}% of these joined another; {} commits, {:.0} ns each in the buffer",
        total.stores,
        total.instructions,
        total.shared_stores,
        share(total.shared_coalesced, total.shared_stores),
        total.commits,
        total.buffer_ticks as f64 / total.commits.max(1) as f64 / ticks_a_second * 1e9,
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
