//! The driver: makes the pod, has the workers supervised and killed, and judges what is left.

use super::audit::audit;
use super::killer::{Kill, Killer, Schedule};
use super::ledger::Ledger;
use super::stage::{
    self, DRIVER, MOST_HOSTS, MOST_WORKERS, Stage, host_of, process_of, text, thread_of,
};
use super::{BROKEN, Broken, SEED, STAGE, WORKERS};
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

/// For how long a worker may do nothing: it must be waiting for the dead then.
const STANDSTILL: Duration = Duration::from_secs(30);
/// How long the workers may take to end; and how long when something is wrong already.
const CURTAIN: Duration = Duration::from_secs(60);
const CUT_SHORT: Duration = Duration::from_secs(5);
/// How much of the pod there is for each worker.
const WORKER_BYTES: u64 = 4 << 20;
/// For how many workers there is room at least.
const LEAST_SIZED_FOR: u64 = 8;
/// How many failures of workers are kept in words.
const MOST_TOLD: usize = 4;

/// What a chaos run is to be like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// For how long members are killed.
    pub time: Duration,
    /// How many hosts the workers are on.
    pub hosts: u32,
    /// How many workers there are, each a process.
    pub processes: u32,
    /// What the kills and the work follow from.
    pub seed: u64,
    /// How large the pod is, if not 4 MiB for each worker and 32 MiB at least.
    pub bytes: Option<u64>,
    /// What is wrong with the workers, if they are to be broken ones.
    pub broken: Option<Broken>,
    /// Set, it ends the killing early; the reckoning follows. For signal handlers.
    pub enough: Arc<AtomicBool>,
}

impl Options {
    /// Kills for `time`, of 8 processes on 4 hosts.
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

    /// How large the pod is. A worker's large cells hold 2 MiB when they are full; the rest is for small
    /// blocks, the map, and slabs whose owners have died.
    fn bytes(&self) -> u64 {
        self.bytes
            .unwrap_or_else(|| u64::from(self.processes).max(LEAST_SIZED_FOR) * WORKER_BYTES)
    }

    fn refuse(&self) -> Result<(), String> {
        if !(1..=MOST_HOSTS).contains(&self.hosts) {
            return Err(format!("1 to {MOST_HOSTS} hosts, not {}", self.hosts));
        }
        if !(self.hosts..=MOST_WORKERS).contains(&self.processes) {
            return Err(format!(
                "{} to {MOST_WORKERS} processes on {} hosts, not {}",
                self.hosts, self.hosts, self.processes
            ));
        }
        Ok(())
    }
}

/// How far a run has come.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// For how long it has been running.
    pub elapsed: Duration,
    /// How many operations the workers have settled.
    pub operations: u64,
    /// How many blows of each kind were dealt.
    pub kills: BTreeMap<Kill, u64>,
    /// How many processes were hit by them.
    pub hit: u64,
    /// How many threads were told dead: each left a log that somebody recovered.
    pub threads: u64,
    /// How many processes were told dead.
    pub processes: u64,
    /// How many hosts were told dead.
    pub hosts: u64,
    /// How often the supervisor has started somebody again.
    pub restarts: u64,
}

impl Progress {
    /// How many blows were dealt.
    pub fn blows(&self) -> u64 {
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
            "{:.0} s: {} operations; {} blows ({}) on {} processes; told dead: {} threads, {} processes, {} \
             hosts; {} restarts",
            self.elapsed.as_secs_f64(),
            self.operations,
            self.blows(),
            kills.join(", "),
            self.hit,
            self.threads,
            self.processes,
            self.hosts,
            self.restarts
        )
    }
}

/// What a run did and found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How far it came.
    pub progress: Progress,
    /// What was done, by kind: how often it took effect.
    pub effects: Vec<(&'static str, u64)>,
    /// How many operations had no effect, each known to have had none.
    pub vain: u64,
    /// What is wrong.
    pub failures: Vec<String>,
    /// How long it took, preparation and audit included.
    pub seconds: f64,
}

impl Report {
    /// Whether nothing is wrong.
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
        // The kernel may still be ending a victim, which holds its lock on the side file until then.
        let until = Instant::now() + Duration::from_secs(10);
        while Pod::destroy(&self.path).map_or(true, |kept| kept.is_some()) && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
            if !self.path.exists() {
                break;
            }
        }
    }
}

/// Runs chaos over a pod in /dev/shm. `command` makes the command of a worker, which calls
/// [`work`](super::work); `hear` is told every second how far it is.
///
/// # Errors
/// If it could not be run. What is wrong with the pod stands in the report.
pub fn run(
    options: &Options,
    command: impl Fn() -> Command + Clone + Send + 'static,
    mut hear: impl FnMut(&Progress),
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
    let report = show.play(&process, &member, command, &mut hear);
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
    /// By worker: its last intent that is settled, and since when.
    moved: Vec<(u64, Instant)>,
}

impl Show<'_> {
    fn play(
        &mut self,
        process: &Process,
        member: &Member,
        command: impl Fn() -> Command + Clone + Send + 'static,
        hear: &mut impl FnMut(&Progress),
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
                self.listen(&mut events, nap, &supervision, hear);
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
            self.listen(&mut events, Duration::from_millis(50), &supervision, hear);
        }
        self.listen(&mut events, Duration::ZERO, &supervision, hear);
        self.failures.extend(supervision.end());
        if let Some((many, first)) = self.stage.accusations() {
            self.failures.push(format!(
                "workers found {many} things wrong, the first: {first}"
            ));
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

    /// Hears what is told for a while, and looks whether everybody moves.
    fn listen(
        &mut self,
        events: &mut GroupEvents,
        time: Duration,
        supervision: &Supervising,
        hear: &mut impl FnMut(&Progress),
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
            // What it was stands in the report once more, with how many there were.
            if self.stage.accusations().is_some() {
                self.failures.push("a worker found something wrong".into());
            } else if supervision.faults() != 0 {
                self.failures.push("a worker failed of itself".into());
            }
        }
        let elapsed = self.started.elapsed();
        if elapsed.as_secs() != self.progress.elapsed.as_secs() {
            self.look_at_workers();
            self.progress.elapsed = elapsed;
            hear(&self.progress);
        }
    }

    fn look_at_workers(&mut self) {
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
                    "worker {worker} has done nothing for {STANDSTILL:?} after operation {sequence}"
                ));
            }
        }
    }
}

/// The supervisor on its thread.
struct Supervision {
    supervisor: ProcessSupervisor,
    told: Arc<Heard>,
    stop: Stop,
}

#[derive(Default)]
struct Heard {
    restarts: AtomicU64,
    /// How many failures there were that no kill explains.
    faults: AtomicU64,
    /// The first of them.
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
                .map(|(id, outlook)| format!("process {id} has not ended well: {outlook:?}"))
                .collect();
            if !unfinished.is_empty() {
                supervisor.kill_children();
            }
            unfinished
        });
        Supervising { thread, told, stop }
    }
}

/// Whether a worker died as workers are meant to die here: by SIGKILL, be it the killer's or that of whoever
/// fences its host. How one ended cannot be known when its death was told before its parent could ask.
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
            && failures.len() < MOST_TOLD
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

    /// Ends it, and says what went wrong.
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
        if faults > MOST_TOLD as u64 {
            failures.push(format!("{faults} failures of workers, not all told"));
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
