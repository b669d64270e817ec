//! The driver: creates the pod, has the workers supervised and killed, and audits the result.

use super::audit::audit;
use super::killer::{Kill, Killer, Schedule};
use super::ledger::Ledger;
use super::stage::{
    self, DRIVER, MOST_HOSTS, MOST_WORKERS, Stage, host_of, process_of, text, thread_of,
};
use super::{BROKEN, Broken, PARENT, SEED, STAGE, WORKERS};
use crate::kill::require_effective_kills;
use core::fmt;
use core::time::Duration;
use outlive::membership::{
    EventKind, GroupEvents, Member, News, Process, ProcessOptions, Settings,
};
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::{
    Child, Failure, Outlook, ProcessSupervisor, RestartPolicy, Stop, What as Told, home,
};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The time without progress after which a worker fails the run; it may wait for a recovery.
const STANDSTILL: Duration = Duration::from_secs(30);
/// The time that the workers may take to end, in a run without failures and in one with failures.
const CURTAIN: Duration = Duration::from_secs(60);
const CUT_SHORT: Duration = Duration::from_secs(5);
/// The bytes of the pod for each worker.
const WORKER_BYTES: u64 = 4 << 20;
/// The number of workers that a pod is sized for at least.
const LEAST_SIZED_FOR: u64 = 8;
/// The number of workers' failures whose text is kept.
const MAX_REPORTED_FAULTS: usize = 4;

/// The options of a chaos run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The time during which members are killed.
    pub time: Duration,
    /// The number of hosts of the workers.
    pub hosts: u32,
    /// The number of workers, each a process.
    pub processes: u32,
    /// The seed of the kills and of the workers' operations.
    pub seed: u64,
    /// The size of the pod in bytes. The default is 4 MiB for each worker, and at least 32 MiB.
    pub bytes: Option<u64>,
    /// The way in which the workers are broken, if they are.
    pub broken: Option<Broken>,
    /// Setting this flag ends the killing early; the audit follows. It is for signal handlers.
    pub enough: Arc<AtomicBool>,
}

impl Options {
    /// Returns options for kills during `time`, of 8 processes on 4 hosts.
    pub fn new(time: Duration, seed: u64) -> Self {
        Self {
            time,
            hosts: 4,
            processes: 8,
            seed,
            bytes: None,
            broken: None,
            enough: Arc::default(),
        }
    }

    /// Returns the size of the pod in bytes. A worker's large cells hold 2 MiB when they are full;
    /// the rest is for small blocks, the map, and slabs whose owners have died.
    fn bytes(&self) -> u64 {
        self.bytes
            .unwrap_or_else(|| u64::from(self.processes).max(LEAST_SIZED_FOR) * WORKER_BYTES)
    }

    fn refuse(&self) -> Result<(), String> {
        if !(1..=MOST_HOSTS).contains(&self.hosts) {
            return Err(format!(
                "there must be 1 to {MOST_HOSTS} hosts, not {}",
                self.hosts
            ));
        }
        if !(self.hosts..=MOST_WORKERS).contains(&self.processes) {
            return Err(format!(
                "there must be {} to {MOST_WORKERS} processes on {} hosts, not {}",
                self.hosts, self.hosts, self.processes
            ));
        }
        Ok(())
    }
}

/// The progress of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of operations that the workers have settled.
    pub operations: u64,
    /// The number of injected faults of each kind.
    pub kills: BTreeMap<Kill, u64>,
    /// The number of processes that were hit by them.
    pub hit: u64,
    /// The number of threads reported dead. Each left a log that a survivor recovered.
    pub threads: u64,
    /// The number of processes reported dead.
    pub processes: u64,
    /// The number of hosts reported dead.
    pub hosts: u64,
    /// The number of restarts by the supervisor.
    pub restarts: u64,
}

impl Progress {
    /// The number of injected faults.
    pub fn faults(&self) -> u64 {
        self.kills.values().sum()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills: Vec<_> = self
            .kills
            .iter()
            .map(|(kill, times)| format!("{times} {kill}"))
            .collect();
        write!(
            f,
            "{:.0} s: {} operations; {} faults ({}) on {} processes; reported dead: {} threads, {} processes, {} \
             hosts; {} restarts",
            self.elapsed.as_secs_f64(),
            self.operations,
            self.faults(),
            kills.join(", "),
            self.hit,
            self.threads,
            self.processes,
            self.hosts,
            self.restarts
        )
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The final progress.
    pub progress: Progress,
    /// The number of operations that took effect, by kind.
    pub effects: Vec<(&'static str, u64)>,
    /// The number of operations known to have had no effect.
    pub vain: u64,
    /// The faults found.
    pub failures: Vec<String>,
    /// The duration in seconds, including preparation and audit.
    pub seconds: f64,
}

impl Report {
    /// Returns whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.progress)?;
        let effects: Vec<_> = self
            .effects
            .iter()
            .map(|(name, times)| format!("{times} {name}"))
            .collect();
        write!(
            f,
            "{}, {} without effect; {} failures; {:.1} s",
            effects.join(", "),
            self.vain,
            self.failures.len(),
            self.seconds
        )?;
        for failure in &self.failures {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

/// The pod of a run, removed at the end.
struct Place {
    path: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The kernel may still be ending a victim, which holds its lock on the side file until
        // then.
        let until = Instant::now() + Duration::from_secs(10);
        while Pod::destroy_forcibly(&self.path).map_or(true, |kept| kept.is_some())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
            if !self.path.exists() {
                break;
            }
        }
    }
}

/// Runs chaos over a pod in /dev/shm. `command` makes the command of a worker, which calls
/// [`work`](super::work); `on_progress` is called every second with the progress.
///
/// # Errors
/// If the run was not possible. Faults of the pod are in the report.
pub fn run(
    options: &Options,
    command: impl Fn() -> Command + Clone + Send + 'static,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Report, String> {
    options.refuse()?;
    require_effective_kills().map_err(text)?;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = format!("/dev/shm/outlive-chaos-{}-{number}", std::process::id());
    let settings = Settings {
        heartbeat: Duration::from_millis(20),
        poll: Duration::from_millis(40),
        suspicion: Duration::from_millis(800),
        uid: rustix::process::geteuid().as_raw(),
        ..Settings::default()
    };
    let started = Instant::now();
    let pod = Pod::create(
        &path,
        PodOptions::new().size(options.bytes()).settings(settings),
    );
    let pod = pod.map_err(text)?;
    let _place = Place { path: path.into() };
    let driver = ProcessOptions::on_host(DRIVER[0])
        .id(DRIVER[1])
        .name("chaos driver");
    let process = pod.join_with(driver, stage::add_handlers);
    let process = process.map_err(text)?;
    let member = process
        .enter(Some(DRIVER[2]), "chaos audit")
        .map_err(text)?;
    let stage = Stage::prepare(&pod, &member.heap(&pod).map_err(text)?)?;
    let mut show = Show {
        options,
        pod: &pod,
        stage,
        started,
        progress: Progress::default(),
        failures: Vec::new(),
        moved: vec![(0, started); options.processes as usize],
    };
    let report = show.play(&process, &member, command, &mut on_progress);
    drop(member);
    process.leave().map_err(text)?;
    report
}

struct Show<'r> {
    options: &'r Options,
    pod: &'r Pod,
    stage: Stage,
    started: Instant,
    progress: Progress,
    failures: Vec<String>,
    /// By worker: its last settled intent, and the time since when it is the last.
    moved: Vec<(u64, Instant)>,
}

impl Show<'_> {
    fn play(
        &mut self,
        process: &Process,
        member: &Member,
        command: impl Fn() -> Command + Clone + Send + 'static,
        on_progress: &mut impl FnMut(&Progress),
    ) -> Result<Report, String> {
        let Options {
            hosts, processes, ..
        } = *self.options;
        let mut events = process.events();
        let supervision =
            Supervision::new(self.options, self.pod, self.stage, process.clone(), command);
        let killer = Killer::new(self.pod, hosts, processes)?;
        let mut schedule = Schedule::new(self.options.seed, hosts, processes);
        let supervision = supervision.begin();
        let curtain = Instant::now() + self.options.time;
        while Instant::now() < curtain && self.failures.is_empty() && !self.is_enough() {
            let blow = schedule.next();
            let strike_at = Instant::now() + blow.after;
            while Instant::now() < strike_at.min(curtain) && !self.is_enough() {
                let nap = (strike_at - Instant::now()).min(Duration::from_millis(100));
                self.listen(&mut events, nap, &supervision, on_progress);
            }
            if Instant::now() >= curtain || self.is_enough() {
                break;
            }
            match killer.strike(blow) {
                Ok(0) => {}
                Ok(hit) => {
                    *self.progress.kills.entry(blow.kill).or_default() += 1;
                    self.progress.hit += u64::from(hit);
                }
                Err(failure) => self.failures.push(failure),
            }
        }
        self.stage.stop();
        let wrong = !self.failures.is_empty();
        let until = Instant::now() + if wrong { CUT_SHORT } else { CURTAIN };
        while !supervision.is_over() && Instant::now() < until {
            self.listen(
                &mut events,
                Duration::from_millis(50),
                &supervision,
                on_progress,
            );
        }
        self.listen(&mut events, Duration::ZERO, &supervision, on_progress);
        self.failures.extend(supervision.end());
        if let Some((many, first)) = self.stage.accusations() {
            self.failures
                .push(format!("workers found {many} faults, the first: {first}"));
        }
        let (audited, sum) = audit(self.pod, self.stage, member, processes);
        self.failures.extend(audited);
        drop(events);
        self.progress.operations = sum.sequence;
        self.progress.elapsed = self.started.elapsed();
        Ok(Report {
            progress: self.progress.clone(),
            effects: sum.effects(),
            vain: sum.vain,
            failures: core::mem::take(&mut self.failures),
            seconds: self.started.elapsed().as_secs_f64(),
        })
    }

    fn is_enough(&self) -> bool {
        self.options.enough.load(Ordering::Relaxed)
    }

    /// Handles events for a while, and checks that every worker makes progress.
    fn listen(
        &mut self,
        events: &mut GroupEvents,
        time: Duration,
        supervision: &Supervising,
        on_progress: &mut impl FnMut(&Progress),
    ) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match events.wait_for(left) {
                Some(News::Event(event)) => match event.kind {
                    EventKind::ThreadDied => self.progress.threads += 1,
                    EventKind::ProcessDied => self.progress.processes += 1,
                    EventKind::HostDied => self.progress.hosts += 1,
                    _ => {}
                },
                Some(_) => {}
                None => break,
            }
        }
        self.progress.restarts = supervision.restarts();
        if self.failures.is_empty() {
            // The report describes the failures, with their number, at the end.
            if self.stage.accusations().is_some() {
                self.failures.push("a worker found a fault".into());
            } else if supervision.faults() != 0 {
                self.failures
                    .push("a worker failed without being killed".into());
            }
        }
        let elapsed = self.started.elapsed();
        if elapsed.as_secs() != self.progress.elapsed.as_secs() {
            self.check_workers();
            self.progress.elapsed = elapsed;
            on_progress(&self.progress);
        }
    }

    fn check_workers(&mut self) {
        let logs = self.pod.logs();
        self.progress.operations = 0;
        for worker in 0..self.options.processes {
            let room = logs.of(thread_of(worker)).program_room();
            let sequence = Ledger::at(self.stage.memory, room).sequence();
            self.progress.operations += sequence;
            let (before, since) = &mut self.moved[worker as usize];
            if *before != sequence {
                (*before, *since) = (sequence, Instant::now());
            } else if since.elapsed() > STANDSTILL && !self.stage.is_stopped() {
                self.failures.push(format!(
                    "worker {worker} has made no progress for {STANDSTILL:?} after operation \
                     {sequence}"
                ));
            }
        }
    }
}

/// The supervisor, before it runs on its thread.
struct Supervision {
    supervisor: ProcessSupervisor,
    told: Arc<Heard>,
    stop: Stop,
}

#[derive(Default)]
struct Heard {
    restarts: AtomicU64,
    /// The number of failures that no kill explains.
    faults: AtomicU64,
    /// The first [`MAX_REPORTED_FAULTS`] of them.
    failures: Mutex<Vec<String>>,
}

impl Supervision {
    fn new(
        options: &Options,
        pod: &Pod,
        stage: Stage,
        process: Process,
        command: impl Fn() -> Command + Clone + Send + 'static,
    ) -> Self {
        let told = Arc::<Heard>::default();
        let hears = Arc::clone(&told);
        let mut supervisor = ProcessSupervisor::new(process, pod.segment().path())
            .policy(RestartPolicy {
                most: u32::MAX,
                window: Duration::from_secs(60),
                backoff: Duration::from_millis(1),
                longest: Duration::from_millis(20),
            })
            .placement(home)
            .on_report(move |report| match &report.what {
                Told::Started { attempt, .. } if *attempt > 0 => {
                    hears.restarts.fetch_add(1, Ordering::Relaxed);
                }
                Told::GaveUp { .. } => hears.accuse(report.to_string()),
                Told::Failed { how, .. } if !was_killed(how) => hears.accuse(report.to_string()),
                _ => {}
            });
        let (workers, seed, broken) = (options.processes, options.seed, options.broken);
        for worker in 0..workers {
            let command = command.clone();
            let host = host_of(worker, options.hosts);
            supervisor = supervisor.child(Child::new(process_of(worker), host, move || {
                let mut command = command();
                command
                    .env(PARENT, std::process::id().to_string())
                    .env(WORKERS, workers.to_string())
                    .env(STAGE, stage.place().to_string())
                    .env(SEED, seed.to_string());
                if let Some(broken) = broken {
                    command.env(BROKEN, broken.name());
                }
                command
            }));
        }
        let stop = supervisor.stopper();
        Self {
            supervisor,
            told,
            stop,
        }
    }

    fn begin(self) -> Supervising {
        let Self {
            mut supervisor,
            told,
            stop,
        } = self;
        // The workers die with the thread that starts them.
        let thread = std::thread::spawn(move || {
            let outlooks = supervisor.run();
            let unfinished: Vec<_> = outlooks
                .into_iter()
                .filter(|(_, outlook)| *outlook != Outlook::Finished)
                .map(|(id, outlook)| format!("process {id} did not end normally: {outlook:?}"))
                .collect();
            if !unfinished.is_empty() {
                supervisor.kill_children();
            }
            unfinished
        });
        Supervising { thread, told, stop }
    }
}

/// Returns whether a worker died by SIGKILL, the only death allowed here: sent by the killer, or by
/// a process that fences the worker's host. The status is unknown if the death was reported before
/// the parent could ask for it; this counts as SIGKILL.
fn was_killed(how: &Failure) -> bool {
    match how {
        Failure::Died { status: None } => true,
        Failure::Died {
            status: Some(status),
        }
        | Failure::Exited { status } => status.signal() == Some(libc::SIGKILL),
        _ => false,
    }
}

impl Heard {
    fn accuse(&self, what: String) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut failures) = self.failures.lock()
            && failures.len() < MAX_REPORTED_FAULTS
        {
            failures.push(what);
        }
    }
}

struct Supervising {
    thread: std::thread::JoinHandle<Vec<String>>,
    told: Arc<Heard>,
    stop: Stop,
}

impl Supervising {
    fn restarts(&self) -> u64 {
        self.told.restarts.load(Ordering::Relaxed)
    }

    fn faults(&self) -> u64 {
        self.told.faults.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the supervision, and returns its failures.
    fn end(self) -> Vec<String> {
        self.stop.stop();
        let mut failures = self
            .thread
            .join()
            .unwrap_or_else(|_| vec!["the supervisor panicked".into()]);
        if let Ok(told) = self.told.failures.lock() {
            failures.extend(told.iter().cloned());
        }
        let faults = self.told.faults.load(Ordering::Relaxed);
        if faults > MAX_REPORTED_FAULTS as u64 {
            failures.push(format!(
                "{faults} failures of workers, not all of which are reported"
            ));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    #[test]
    fn a_worker_dies_of_sigkill_only() {
        let ended = |raw| Some(ExitStatus::from_raw(raw));
        assert!(was_killed(&Failure::Died { status: None }));
        assert!(was_killed(&Failure::Died {
            status: ended(libc::SIGKILL)
        }));
        assert!(was_killed(&Failure::Exited {
            status: ExitStatus::from_raw(libc::SIGKILL)
        }));
        for raw in [
            0,
            101 << 8,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGABRT | 0x80,
        ] {
            assert!(!was_killed(&Failure::Died { status: ended(raw) }), "{raw}");
            let status = ExitStatus::from_raw(raw);
            assert!(!was_killed(&Failure::Exited { status }), "{raw}");
        }
        let why = String::new();
        assert!(!was_killed(&Failure::NotStarted { why }));
    }
}
