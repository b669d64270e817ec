//! `outlive store bench`: a benchmark on processes of its own, some of which may be killed.

mod kills;
mod phase;
mod random_kills;
mod report;
mod servers;
mod tally;

use super::compute::{monotonic, text_of};
use super::program::{Program, ProtocolName};
use super::receipts::Receipts;
use crate::amount::{Bytes, Many};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use kills::{Kill, Kind, Servers, Times};
use outlive_store::servers::{ComputeServer, Store, StoreOptions};
use outlive_store::workloads::Books;
use phase::Phase;
use random_kills::{Attrition, Plan};
use report::Report;
use servers::Server;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `outlive store bench`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store bench smallbank --seconds 5\n  \
    outlive store bench smallbank --compute 3 --memory 3 --replicas 2 --kill compute@2s\n  \
    outlive store bench smallbank --compute 3 --memory 3 --kill both@2s\n  \
    outlive store bench smallbank --kill compute@2s --reuse\n  \
    outlive store bench tatp --compute 3 --memory 3 --kill both@2s\n  \
    outlive store bench tpcc --warehouses 2 --compute 3 --memory 3 --kill both@2s\n  \
    outlive store bench smallbank --protocol ford --compute 3 --memory 3 --kill compute@2s\n  \
    outlive store bench smallbank --compute 3 --memory 3 --seconds 600 --kill-every 3s\n  \
    outlive store bench micro --write-percent 100 --hot 1000 --round-trip 2us --json\n\n\
    Each server is a process. The store is created for the run in /dev/shm, and removed. After the \
    run, the benchmark's invariant and all tables are checked; the command fails if they are not \
    consistent.\n\n\
    JSON: benchmark, protocol, seconds, committed, aborted, latency_us, consistent, failures and \
    more; docs/json.md says what they mean.")]
pub struct Bench {
    #[command(flatten)]
    program: Program,
    /// Number of compute servers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    compute: u16,
    /// Number of memory servers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    memory: u16,
    /// Number of replicas of each object
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    replicas: u16,
    /// Protocol of the transactions
    #[arg(long, value_enum, default_value_t = ProtocolName::Pandora)]
    protocol: ProtocolName,
    /// Duration of the measurement in seconds [default: 5, and at least 5 after the last --kill]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Kill a server with SIGKILL after this time, such as `compute@2s`, `memory@2s`, or `both@2s`
    /// for one of each; may be repeated
    #[arg(long, value_name = "KIND@TIME", value_parser = kills::parse)]
    kill: Vec<Kill>,
    /// Start a standby process for each kill of a compute server. It joins the store before the
    /// kill, and takes the place of the killed server as soon as that is recovered
    #[arg(long)]
    reuse: bool,
    /// Kill a random server and replace it, on average once per TIME, such as 3s; then check that
    /// no acknowledged commit is lost
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with_all = ["kill", "reuse"])]
    kill_every: Option<Duration>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Removes the store of a run when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Store::destroy(&self.0);
        let _ = std::fs::remove_file(Receipts::path(&self.0));
    }
}

/// The directory of the stores.
const SHM: &str = "/dev/shm";
/// The shortest measurement, and the time after the last kill, unless the user gives a duration.
const MIN_DEFAULT_MEASUREMENT: Duration = Duration::from_secs(5);
/// The longest wait for a server that starts, stops or is recovered.
const PATIENCE: Duration = Duration::from_secs(60);

impl Bench {
    pub fn run(self) -> Result<(), Failure> {
        let duration = self.duration();
        if let Some(late) = self.kill.iter().map(|it| it.at).find(|at| *at >= duration) {
            return Err(Failure::Usage(format!(
                "a kill after {} is not within the {} of the measurement; raise --seconds",
                humantime::format_duration(late),
                humantime::format_duration(duration)
            )));
        }
        let (compute, memory) = (self.killed(Kind::Compute), self.killed(Kind::Memory));
        if let Some(every) = self.kill_every {
            self.can_kill_every(every, duration)?;
        }
        if compute >= usize::from(self.compute) {
            return Err(Failure::Usage(format!(
                "{compute} kills leave none of {} compute servers; raise --compute",
                self.compute
            )));
        }
        if memory >= usize::from(self.replicas) {
            return Err(Failure::Usage(format!(
                "{memory} kills of memory servers may leave none of the {} replicas of an object; \
                 raise --replicas",
                self.replicas
            )));
        }
        if self.replicas > self.memory {
            return Err(Failure::Usage(format!(
                "{} replicas need as many memory servers, and there are {}; raise --memory",
                self.replicas, self.memory
            )));
        }
        if self.reuse && compute == 0 {
            return Err(Failure::Usage(
                "--reuse replaces a killed compute server, and none is killed; add \
                 `--kill compute@2s`"
                    .into(),
            ));
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let registered = signal_hook::flag::register(signal, Arc::clone(&stop));
            registered.map_err(|error| {
                Failure::new(format_args!(
                    "a signal handler cannot be installed: {error}"
                ))
            })?;
        }
        self.refuse_without_memory()?;
        // An interruption from the terminal also ends the servers, so `measure` can return various
        // errors.
        let interrupted = |error| match stop.load(Ordering::Relaxed) {
            true => stopped(),
            false => error,
        };
        let report = self.measure(duration, &stop).map_err(interrupted)?;
        // A reader that closes the output does not hide a problem.
        let printed = match self.json {
            true => output::json(&report),
            false => report.lines().into_iter().try_for_each(output::line),
        };
        match report.consistent {
            true => printed,
            false => Err(Failure::Found),
        }
    }

    /// Returns the duration of the measurement.
    fn duration(&self) -> Duration {
        let last = self.kill.iter().map(|it| it.at).max().unwrap_or_default();
        self.seconds
            .map_or(last + MIN_DEFAULT_MEASUREMENT, Duration::from_secs)
    }

    /// Returns an error if the memory servers together need more memory than is free, before the
    /// first ones reserve theirs.
    fn refuse_without_memory(&self) -> Result<(), Failure> {
        let (servers, each) = (u64::from(self.memory), self.bytes_per_server());
        let needed = servers.saturating_mul(each);
        // If the free memory is unknown, a reservation that fails reports the lack of memory.
        let free = rustix::fs::statvfs(SHM).map_or(u64::MAX, |it| it.f_bavail * it.f_frsize);
        match needed > free {
            true => Err(Failure::new(format_args!(
                "{} are needed for {}, {} for each, and {SHM} has {} free; choose fewer keys, \
                 customers, subscribers, warehouses or orders",
                Bytes(needed),
                Many(servers, "memory server"),
                Bytes(each),
                Bytes(free)
            ))),
            false => Ok(()),
        }
    }

    /// Checks the arguments of random kills.
    fn can_kill_every(&self, every: Duration, duration: Duration) -> Result<(), Failure> {
        let least = Duration::from_millis(50);
        if every < least || every > duration {
            return Err(Failure::Usage(format!(
                "--kill-every cannot be {}; the range is {} to {}, the duration of the measurement",
                humantime::format_duration(every),
                humantime::format_duration(least),
                humantime::format_duration(duration)
            )));
        }
        if self.compute < 2 || self.replicas < 2 {
            return Err(Failure::Usage(format!(
                "random kills need 2 compute servers and 2 replicas, and there are {} and {}; \
                 raise --compute or --replicas",
                self.compute, self.replicas
            )));
        }
        Ok(())
    }

    /// Returns the number of servers of a kind that are killed.
    fn killed(&self, kind: Kind) -> usize {
        let kinds = self.kill.iter().flat_map(|it| &it.kinds);
        kinds.filter(|it| **it == kind).count()
    }

    /// Returns the number of compute servers that take the places of killed ones.
    fn standbys(&self) -> u16 {
        match self.reuse {
            true => self.killed(Kind::Compute) as u16,
            false => 0,
        }
    }

    /// Returns the largest number of compute servers with logs at one time.
    fn compute_servers(&self) -> u16 {
        // The command is one as well: it fills the tables. With random kills, new servers join
        // before the logs of killed ones are recovered, and restorers are compute servers too.
        match self.kill_every {
            None => self.compute + self.standbys() + 1,
            Some(_) => 2 * self.compute + 4,
        }
    }

    /// Returns the number of process ids if servers are killed at random: so few that they are
    /// recycled during the run.
    fn process_ids(&self) -> u16 {
        2 * self.compute_servers()
    }

    fn options(&self) -> StoreOptions {
        let (protocol, compute_servers) = (self.protocol.into(), self.compute_servers());
        let options = StoreOptions::new()
            .replicas(self.replicas)
            .compute_servers(compute_servers, self.program.coordinators)
            .protocol(protocol)
            .log_slot(self.program.log_slot(protocol))
            .members(u32::from(compute_servers + self.memory) * 8 + 64);
        match self.kill_every {
            None => options,
            Some(_) => options.process_ids(self.process_ids()).memory_servers(256),
        }
    }

    /// Returns the number of bytes of each memory server.
    fn bytes_per_server(&self) -> u64 {
        let (servers, replicas) = match self.kill_every {
            None => (self.memory, self.replicas),
            // Each may receive a replica of every partition.
            Some(_) => (1, 1),
        };
        let compute_servers = self.compute_servers();
        { &self.program }.bytes_per_server(servers, replicas, compute_servers)
    }

    fn start_memory(&self, path: &Path, stop: &AtomicBool) -> Result<Vec<Server>, Failure> {
        let start = |_| {
            // One after another, so that their numbers are in this order.
            let mut child = Server::memory(path, self.bytes_per_server())?;
            child.wait_until_ready(stop)?;
            Ok(child)
        };
        (0..self.memory).map(start).collect()
    }

    /// Starts the compute servers, the standbys last.
    fn start_clients(
        &self,
        path: &Path,
        arguments: &[String],
        stop: &AtomicBool,
    ) -> Result<Vec<Server>, Failure> {
        let all = 0..self.compute + self.standbys();
        let children = all.map(|_| Server::compute(path, arguments));
        let mut children = children.collect::<Result<Vec<_>, _>>()?;
        for child in &mut children {
            child.wait_until_ready(stop)?;
        }
        Ok(children)
    }

    /// Executes the benchmark.
    fn measure(&self, duration: Duration, stop: &AtomicBool) -> Result<Report, Failure> {
        let path = PathBuf::from(format!("{SHM}/outlive-bench-{}", std::process::id()));
        let phase = Phase::begin("starting the memory servers");
        let store = Store::create(&path, self.options())?;
        let scratch = Scratch(path);
        let mut memory = self.start_memory(&scratch.0, stop)?;
        let compute = store.join_compute()?;
        let mut coordinator = compute.worker()?.coordinator().map_err(Failure::new)?;
        let (books, argument) = match (self.kill_every, self.kill.is_empty()) {
            (Some(_), _) => (Books::Commits, Some("--receipts")),
            (None, false) => (Books::Ledger, Some("--has-kills")),
            (None, true) => (Books::Program, None),
        };
        let benchmark = self.program.open(&compute, books)?;
        let failed = |error| Failure::new(text_of(&error));
        phase.next("loading the tables");
        let begin = Instant::now();
        benchmark.load(&mut coordinator).map_err(failed)?;
        let loaded = begin.elapsed();

        let receipts = self.kill_every.map(|_| Receipts::create(&scratch.0));
        let receipts = receipts.transpose()?;
        let mut arguments = self.program.arguments();
        arguments.extend(argument.map(String::from));
        let mut clients = self.start_clients(&scratch.0, &arguments, stop)?;
        phase.next("measuring");
        let mut standbys = clients.split_off(self.compute.into());
        let times = Times {
            start: monotonic(),
            duration,
        };
        for client in &mut clients {
            client.begin(duration)?;
        }
        let mut report = Report::new(self, duration, loaded, times.start);
        let change = if let (Some(every), Some(receipts)) = (self.kill_every, receipts) {
            // Random kills have a progress bar of their own.
            phase.pause();
            let plan = self.plan(&scratch.0, every, &arguments, times);
            let attrition = Attrition::new(plan, &compute, stop, clients, memory);
            let (mut tally, killed, left) = attrition.execute(&mut report)?;
            memory = left;
            report.add_failures(&killed, &[]);
            let ids = (self.process_ids(), self.program.coordinators);
            let lost =
                tally.check_commits(&benchmark, &mut coordinator, &receipts, &killed, ids)?;
            lost.into_iter().for_each(|it| report.problem(it));
            report.add_random_kills(tally);
            0
        } else {
            let servers = Servers {
                compute: &mut clients,
                standbys: &mut standbys,
                memory: &mut memory,
            };
            self.kill_as_planned(&compute, servers, times, stop, &mut report)?;
            report.change
        };
        phase.next("checking the tables");
        let surplus = benchmark.surplus(&mut coordinator, change);
        let checked = store.check().map_err(Failure::new)?;
        report.add_check(surplus.map_err(failed)?, checked);
        // The memory servers serve the tables until here.
        drop(memory);
        Ok(report)
    }

    /// Returns the plan of random kills, one in `every` on average.
    fn plan<'a>(
        &self,
        path: &'a Path,
        every: Duration,
        arguments: &'a [String],
        times: Times,
    ) -> Plan<'a> {
        Plan {
            path,
            every,
            seed: self.program.seed,
            tolerated: usize::from(self.replicas - 1),
            arguments,
            bytes: self.bytes_per_server(),
            times,
        }
    }

    /// Executes the planned kills, if any, and waits for the end of the compute servers.
    fn kill_as_planned(
        &self,
        compute: &ComputeServer,
        mut servers: Servers<'_>,
        times: Times,
        stop: &AtomicBool,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let killed = kills::execute(&self.kill, compute, &mut servers, times, stop)?;
        for client in servers.compute.iter_mut().chain(&mut *servers.standbys) {
            client.wait_for_end(stop)?;
            report.add(&client.messages);
        }
        report.add_failures(&killed, servers.standbys);
        Ok(())
    }
}

/// Returns the failure of a run that a signal has ended.
fn stopped() -> Failure {
    Failure::new("the benchmark was interrupted; its store is removed")
}
