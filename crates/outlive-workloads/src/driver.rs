//! The driver of a run: makes the pod, starts the hosts, kills those that are to be killed, sees the failures
//! told and recovered, and collects what comes out.
//!
//! The driver is a host of the pod itself, which does no work. Its main thread supervises the hosts'
//! processes ([`ProcessSupervisor`]); a second one, the director, watches the run. Hosts die with the driver: no
//! process is left behind when it is killed.

use crate::host::HostError;
use crate::input::{InputError, Inputs};
use crate::mapreduce::{MapReduce, results};
use crate::run::{CalledOff, LARGEST_UNIT, MOST_HOSTS, MapReduceRun, Plan, ROOT, Run};
use crate::size;
use crate::table::Blocks;
use outlive::heap::buddy::{AllocateError, Buddy};
use outlive::membership::{
    EventKind, Instance, InstanceId, Level, News, Process, ProcessOptions, Status, Tables,
};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::CreateError;
use outlive::supervise::{
    Child, Launch, Launched, Outlook, Place, ProcessSupervisor, Report, RestartPolicy, Stop, What,
    home,
};
use outlive::{heap, sync};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a host is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillAt {
    /// When one of its workers is right before a commit: the most work is lost (LUPIN, Table 4).
    #[default]
    Commit,
    /// At any moment.
    Random,
}

/// What happens to a host that has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervise {
    /// It is started again.
    #[default]
    Restart,
    /// The others finish without it.
    None,
}

/// What is run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is read.
    pub inputs: Inputs,
    /// How many hosts: 1 to [`MOST_HOSTS`].
    pub hosts: u32,
    /// How many workers each of them has.
    pub threads: u32,
    /// How many hosts are killed, spread evenly over the run.
    pub kills: u32,
    /// When.
    pub kill_at: KillAt,
    /// What follows.
    pub supervise: Supervise,
    /// Where the pod is made; by default somewhere in /dev/shm.
    pub pod: Option<PathBuf>,
    /// How large it is; by default as large as is estimated from the inputs.
    pub size: Option<u64>,
    /// How large units are at most; by default chosen by the inputs.
    pub unit: Option<u64>,
    /// Decides hashes, and when hosts are killed at random.
    pub seed: u64,
}

impl Options {
    /// The defaults for `inputs`: four hosts of one worker each, of which none is killed.
    pub fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            hosts: 4,
            threads: 1,
            kills: 0,
            kill_at: KillAt::default(),
            supervise: Supervise::default(),
            pod: None,
            size: None,
            unit: None,
            seed: u64::from(std::process::id()) << 32 ^ now_nanos(),
        }
    }
}

fn now_nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as u64)
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every key with its total, by falling total, then by key.
    pub totals: Vec<(Vec<u8>, u64)>,
    /// From the creation of the pod to the last total.
    pub seconds: f64,
    /// Of that, until the hosts were started: the pod was made.
    pub seconds_to_create: f64,
    /// Of that, while hosts worked.
    pub seconds_of_work: f64,
    /// The processor time of the driver and of all hosts, the dead ones' included.
    pub cpu_seconds: f64,
    /// The bytes read.
    pub bytes: u64,
    /// The units of the input.
    pub units: u64,
    /// The size of the segment.
    pub segment_bytes: u64,
    /// Where the pod was.
    pub pod: PathBuf,
    /// What failed, in order.
    pub failures: Vec<Failure>,
    /// How many units were begun and not committed, in all.
    pub units_redone: u64,
    /// How many kills were asked for and came too late: the run was over.
    pub kills_too_late: u32,
}

/// One host's failure. Times are seconds from when the hosts were started.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The host.
    pub host: u32,
    /// When it was sent SIGKILL; `None` if it died by itself.
    pub killed_at: Option<f64>,
    /// When its death was told to the pod's control group.
    pub detected_at: Option<f64>,
    /// When all that its members held had been recovered.
    pub recovered_at: Option<f64>,
    /// When its restarted process had joined, if it was restarted.
    pub rejoined_at: Option<f64>,
    /// The instances that died with it: processes and threads.
    pub lost: Vec<Instance>,
    /// The units that were lost with it, begun and not committed, and so were done again.
    pub units_redone: Vec<u64>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many units have been read from disk, about.
    pub loaded: u64,
    /// How many units have been given out to be mapped.
    pub mapped: u64,
    /// Of how many.
    pub units: u64,
    /// How many hosts have failed.
    pub failures: usize,
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A number of hosts, threads or kills that cannot be.
    #[error("{what} of {asked}: it can be {least} to {most}")]
    Impossible {
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        asked: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The pod cannot be made, joined or destroyed.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The run cannot be begun.
    #[error(transparent)]
    Begin(#[from] HostError),
    /// The segment is too small.
    #[error(
        "the segment of {size} bytes is full: a block of {wanted} bytes was wanted; ask for at least {ask} bytes with --size {}M",
        ask >> 20
    )]
    Full {
        /// The size of the segment.
        size: u64,
        /// What was wanted of it.
        wanted: u64,
        /// What to ask for.
        ask: u64,
    },
    /// A file has another length than when it was looked at.
    #[error("{} has changed while it was read; nothing was counted", .path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// A key is too long.
    #[error("{} has a token of more than 16 MiB near byte {at}; nothing was counted", .path.display())]
    TooLong {
        /// In which file.
        path: PathBuf,
        /// Where.
        at: u64,
    },
    /// All hosts have died, or given up.
    #[error(
        "all {hosts} hosts are dead, and {done} of {units} units are done; let hosts be restarted (--supervise restart), or kill fewer"
    )]
    AllDead {
        /// How many there were.
        hosts: u32,
        /// How many units were mapped.
        done: u64,
        /// Of how many.
        units: u64,
    },
    /// A worker failed, and has said why on standard error.
    #[error("worker {0} of the run failed; its host has said why")]
    Failed(u32),
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Runs `program` over the inputs. `command` makes the command that becomes a host by calling
/// [`host::work`](crate::host::work) with the [`Place`] in its environment. `stop` ends it early; `progress` is called every few milliseconds.
///
/// The pod is destroyed before this returns, and no process is left.
///
/// # Errors
/// See [`RunError`].
pub fn run<P: MapReduce>(
    options: &Options,
    (number, program): (u64, &P),
    command: impl FnMut() -> Command + Clone + Send + 'static,
    stop: &Stop,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Outcome, RunError> {
    refuse_the_impossible(options)?;
    let began = Instant::now();
    let cpu = cpu_seconds();
    let plan = plan(options, number);
    let scene = Scene::set(options, &plan, program)?;
    let created = began.elapsed();
    let mut outcome = scene.play(options, command, stop, progress)?;
    outcome.seconds_to_create = created.as_secs_f64();
    outcome.seconds = began.elapsed().as_secs_f64();
    drop(scene);
    outcome.cpu_seconds = cpu_seconds() - cpu;
    Ok(outcome)
}

fn refuse_the_impossible(options: &Options) -> Result<(), RunError> {
    let workers = u64::from(options.hosts) * u64::from(options.threads);
    let asked = [
        (
            "a number of hosts",
            u64::from(options.hosts),
            1,
            u64::from(MOST_HOSTS),
        ),
        ("a number of workers", workers, 1, 4096),
        ("a number of kills", options.kills.into(), 0, 1024),
        (
            "a size of units",
            options.unit.unwrap_or(1),
            1,
            LARGEST_UNIT,
        ),
    ];
    for (what, asked, least, most) in asked {
        if !(least..=most).contains(&asked) {
            return Err(RunError::Impossible {
                what,
                asked,
                least,
                most,
            });
        }
    }
    Ok(())
}

// Ids: the hosts, the driver's host, the hosts' processes, the driver's process and its thread, the workers.
fn process_of(hosts: u32, host: u32) -> InstanceId {
    hosts + 1 + host
}

fn plan(options: &Options, program: u64) -> Plan {
    let (hosts, threads) = (options.hosts, options.threads);
    let bytes = options.inputs.bytes();
    Plan {
        inputs: options.inputs.clone(),
        program,
        hosts,
        threads,
        first_id: 2 * hosts + 3,
        unit: options
            .unit
            .unwrap_or_else(|| Plan::unit_for(bytes, hosts * threads)),
        seed: options.seed,
        kills: options.kills,
    }
}

/// A pod made for a run. Dropped, it is destroyed.
struct Scene {
    pod: Pod,
    path: PathBuf,
    process: Option<Process>,
    run: Run,
}

impl Scene {
    fn set(options: &Options, plan: &Plan, program: &impl MapReduce) -> Result<Self, RunError> {
        let ids = plan.first_id + plan.workers() + 1;
        let keys = size::keys_of(&options.inputs, program).map_err(|source| {
            let path = options.inputs.files().first();
            InputError::Unreadable {
                path: path.map_or_else(PathBuf::new, |file| file.path.clone()),
                source,
            }
        })?;
        let wanted = size::segment_bytes(size::heap_bytes(plan, keys), ids);
        let bytes = options.size.unwrap_or(wanted);
        let (pod, path) = create(options, bytes, ids)?;
        let owned = OwnPath(Some(path));
        let memory = pod.segment().memory();
        let payload = pod.payload().ok_or(HostError::NoRun)?;
        let too_small = |wanted| RunError::Full {
            size: bytes,
            wanted,
            ask: ask_for(
                bytes,
                size::segment_bytes(size::heap_bytes(plan, keys), ids),
            ),
        };
        let metadata = Buddy::<outlive::memory::Native>::metadata_bytes(payload.size, 4096)
            .map_err(|_| too_small(payload.size))?
            .next_multiple_of(4096);
        let rest = payload.size.saturating_sub(metadata + 4096) & !4095;
        let region = (payload.offset.raw() + metadata).next_multiple_of(4096);
        let buddy = Buddy::create(
            memory,
            payload.offset,
            outlive::memory::Offset::new(region),
            rest,
            4096,
        )
        .map_err(|_| too_small(payload.size))?;
        let hosts = plan.hosts;
        let own = ProcessOptions::on_host(hosts)
            .host_name("driver")
            .id(process_of(hosts, hosts))
            .name("driver");
        let process = pod.join(own)?;
        let run = {
            let member = process
                .enter(Some(2 * hosts + 2), "driver")
                .map_err(PodError::from)?;
            let recoverers = heap::recoverers(sync::recoverers(pod.logs()));
            let blocks = Blocks {
                buddy,
                member: &member,
                recoverers: &recoverers,
            };
            // A cell of the driver's own, for the block on its way into the root.
            let cell = pod.logs().of(member.instance().id).program_room();
            let made = Run::create(plan, blocks, memory, cell);
            made.map_err(|error| match error {
                AllocateError::Full { asked, .. } | AllocateError::TooLarge { asked, .. } => {
                    too_small(asked)
                }
                _ => too_small(0),
            })?
        };
        pod.roots()
            .publish::<MapReduceRun>(ROOT, run.at())
            .map_err(HostError::from)?;
        Ok(Self {
            pod,
            path: owned.keep(),
            process: Some(process),
            run,
        })
    }
}

fn ask_for(had: u64, estimated: u64) -> u64 {
    estimated
        .max(had.saturating_mul(2))
        .next_multiple_of(1 << 20)
}

/// Removes what is there unless it is kept.
struct OwnPath(Option<PathBuf>);

impl OwnPath {
    fn keep(mut self) -> PathBuf {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = Pod::destroy(path);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.leave();
        }
        let _ = Pod::destroy(&self.path);
    }
}

/// Makes the pod where it was asked for; else in /dev/shm, or where temporary files are if /dev/shm has no room.
fn create(options: &Options, bytes: u64, ids: u32) -> Result<(Pod, PathBuf), RunError> {
    let make = |path: &Path| Pod::create(path, PodOptions::new().size(bytes).ids(ids).groups(1));
    if let Some(path) = &options.pod {
        return Ok((make(path)?, path.clone()));
    }
    let name = format!("outlive-run-{}-{:x}", std::process::id(), now_nanos());
    let path = Path::new("/dev/shm").join(&name);
    match make(&path) {
        Ok(pod) => Ok((pod, path)),
        Err(PodError::Create(CreateError::NoRoom(full))) => {
            let elsewhere = std::env::temp_dir().join(&name);
            // The first refusal says what is missing.
            let pod = make(&elsewhere).map_err(|_| PodError::Create(CreateError::NoRoom(full)))?;
            Ok((pod, elsewhere))
        }
        Err(error) => Err(error.into()),
    }
}

/// The processor time of this process and of all children that have ended, in seconds.
fn cpu_seconds() -> f64 {
    // SAFETY: `getrusage` writes to the structure that it is given, which zeros are valid for.
    let of = |who| unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .map(of)
        .iter()
        .map(|usage| seconds(usage.ru_utime) + seconds(usage.ru_stime))
        .sum()
}

/// The hosts' processes that run, by process id in the pod.
type Running = Arc<Mutex<HashMap<InstanceId, Arc<Mutex<std::process::Child>>>>>;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts hosts as process groups of their own, which can be killed as a whole.
struct AsGroups {
    running: Running,
}

impl Launch for AsGroups {
    fn launch(&self, place: &Place, mut command: Command) -> io::Result<Box<dyn Launched>> {
        command.process_group(0);
        let child = Arc::new(Mutex::new(command.spawn()?));
        lock(&self.running).insert(place.id, Arc::clone(&child));
        Ok(Box::new(Group(child)))
    }
}

struct Group(Arc<Mutex<std::process::Child>>);

impl Group {
    /// Kills the whole group, if its leader has not been waited for.
    fn kill_all(child: &mut std::process::Child) -> bool {
        // As long as it has not been waited for, its pid is its own, and so is its group's.
        match child.try_wait() {
            Ok(None) => Pid::from_raw(child.id() as i32)
                .is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok()),
            _ => false,
        }
    }
}

impl Launched for Group {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        lock(&self.0).try_wait()
    }

    fn kill(&mut self) {
        Self::kill_all(&mut lock(&self.0));
    }

    fn pid(&self) -> Option<u32> {
        Some(lock(&self.0).id())
    }
}

impl Scene {
    fn play(
        &self,
        options: &Options,
        command: impl FnMut() -> Command + Clone + Send + 'static,
        stop: &Stop,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Outcome, RunError> {
        let Some(process) = &self.process else {
            return Err(RunError::Interrupted);
        };
        let (run, hosts) = (self.run, options.hosts);
        let units = run.mapping().count();
        let running = Running::default();
        let policy = match options.supervise {
            Supervise::Restart => RestartPolicy {
                most: options.kills + 3,
                backoff: Duration::from_millis(1),
                longest: Duration::from_millis(100),
                ..RestartPolicy::default()
            },
            Supervise::None => RestartPolicy::NEVER,
        };
        let thresholds: Vec<u64> = (1..=u64::from(options.kills))
            .map(|kill| kill * units / (u64::from(options.kills) + 1))
            .collect();
        if options.kill_at == KillAt::Commit {
            run.arm(&thresholds);
        }
        let began = Instant::now();
        let mut director = Director {
            run,
            tables: self.pod.tables(),
            options,
            running: Arc::clone(&running),
            began,
            failures: Vec::new(),
            open: Vec::new(),
            killed: 0,
            thresholds: match options.kill_at {
                KillAt::Commit => Vec::new(),
                KillAt::Random => at_random(&thresholds, units, options),
            },
            random: options.seed | 1,
        };
        let mut events = process.events();
        let mut supervisor = ProcessSupervisor::new(process.clone(), &self.path)
            .policy(policy)
            .launch(AsGroups { running })
            .placement(home)
            .on_report(|report: &Report| {
                if let What::GaveUp { .. } = report.what {
                    // What became of it is seen when all have ended.
                }
            });
        for host in 0..hosts {
            let id = process_of(hosts, host);
            supervisor = supervisor.child(Child::new(id, host, command.clone()));
        }
        let end = supervisor.stopper();
        let (over, outlooks) = std::thread::scope(|scope| {
            let settled = Stop::default();
            let director = scope.spawn({
                let (settled, end) = (settled.clone(), end.clone());
                move || {
                    while !settled.is_stopped() {
                        if stop.is_stopped() {
                            run.call_off(CalledOff::Interrupted);
                            end.stop();
                            break;
                        }
                        if let Some(news) = events.wait_for(LOOK) {
                            director.hear(&news);
                        }
                        director.look();
                        progress(Progress {
                            loaded: run.loading().drawn(),
                            mapped: run.mapping().drawn(),
                            units,
                            failures: director.failures.len(),
                        });
                    }
                    // What is still to be told of those that died last.
                    let until = Instant::now() + LAST_NEWS;
                    while director.is_waiting() && Instant::now() < until && !stop.is_stopped() {
                        if let Some(news) = events.wait_for(LOOK) {
                            director.hear(&news);
                        }
                        director.look();
                    }
                    director
                }
            });
            let outlooks = supervisor.run();
            settled.stop();
            let director = director
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (director, outlooks)
        });
        let work = began.elapsed();
        supervisor.kill_children();
        drop(supervisor);
        if stop.is_stopped() {
            return Err(RunError::Interrupted);
        }
        if let Some(why) = run.called_off() {
            return Err(self.explain(why, options));
        }
        if !run.is_done() {
            let dead = outlooks
                .iter()
                .all(|(_, outlook)| *outlook != Outlook::Unsettled);
            debug_assert!(dead);
            return Err(RunError::AllDead {
                hosts,
                done: run.mapping().done(),
                units,
            });
        }
        let redone = (0..run.workers())
            .map(|number| run.table(number))
            .map(|table| u64::from(table.attempts() - table.committed()))
            .sum();
        let mut totals = results(run);
        crate::wordcount::sort(&mut totals);
        Ok(Outcome {
            totals,
            seconds: 0.0,
            seconds_to_create: 0.0,
            seconds_of_work: work.as_secs_f64(),
            cpu_seconds: 0.0,
            bytes: options.inputs.bytes(),
            units,
            segment_bytes: self.pod.segment().size(),
            pod: self.path.clone(),
            kills_too_late: options.kills - over.killed,
            failures: over.failures,
            units_redone: redone,
        })
    }

    fn explain(&self, why: CalledOff, options: &Options) -> RunError {
        let path = |file: u32| {
            let file = options.inputs.files().get(file as usize);
            file.map_or_else(PathBuf::new, |file| file.path.clone())
        };
        let size = self.pod.segment().size();
        match why {
            CalledOff::Interrupted => RunError::Interrupted,
            CalledOff::Full(wanted) => RunError::Full {
                size,
                wanted,
                ask: ask_for(size, size + wanted),
            },
            CalledOff::Unreadable(file, error) => InputError::Unreadable {
                path: path(file),
                source: io::Error::from_raw_os_error(error),
            }
            .into(),
            CalledOff::Changed(file) => RunError::Changed { path: path(file) },
            CalledOff::TooLong(unit) => {
                let (unit, _) = self.run.unit(unit);
                RunError::TooLong {
                    path: path(unit.file),
                    at: unit.from,
                }
            }
            CalledOff::Failed(worker) => RunError::Failed(worker),
        }
    }
}

/// How long the director sleeps between two looks, if nothing is told.
const LOOK: Duration = Duration::from_millis(1);
/// How long it waits at the end for what has not been told yet.
const LAST_NEWS: Duration = Duration::from_secs(10);

/// Random numbers of units for the kills, in order.
fn at_random(even: &[u64], units: u64, options: &Options) -> Vec<u64> {
    let mut random = options.seed | 1;
    let mut all: Vec<u64> = even
        .iter()
        .map(|_| next_random(&mut random) % units.max(1))
        .collect();
    all.sort_unstable();
    all
}

fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Watches a run, and kills hosts.
struct Director<'o> {
    run: Run,
    tables: Tables,
    options: &'o Options,
    running: Running,
    began: Instant,
    failures: Vec<Failure>,
    /// The failures that are not over.
    open: Vec<usize>,
    killed: u32,
    /// At which units hosts are still to be killed at random.
    thresholds: Vec<u64>,
    random: u64,
}

impl Director<'_> {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Whether a failure has not been seen through.
    fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    fn look(&mut self) {
        match self.options.kill_at {
            KillAt::Commit => {
                let halted: Vec<u32> = self.run.halted().skip(self.killed as usize).collect();
                for host in halted {
                    self.kill(host);
                }
            }
            KillAt::Random => {
                let drawn = self.run.mapping().drawn();
                while self.thresholds.first().is_some_and(|unit| drawn > *unit) {
                    let Some(host) = self.any_host() else { break };
                    self.thresholds.remove(0);
                    self.kill(host);
                }
            }
        }
        self.follow();
    }

    /// A host that lives and has been killed no more often than others.
    fn any_host(&mut self) -> Option<u32> {
        if self.run.is_done() {
            return None;
        }
        let times = |host: u32| self.failures.iter().filter(|f| f.host == host).count();
        let alive: Vec<u32> = (0..self.options.hosts)
            .filter(|host| !self.members_of(*host).is_empty())
            .collect();
        let least = alive.iter().map(|host| times(*host)).min()?;
        let fresh: Vec<u32> = alive
            .into_iter()
            .filter(|host| times(*host) == least)
            .collect();
        let at = next_random(&mut self.random) % fresh.len() as u64;
        Some(fresh[at as usize])
    }

    /// The instances of `host` that live: its processes and threads.
    fn members_of(&self, host: u32) -> Vec<Instance> {
        self.tables
            .writers()
            .filter(|(_, state)| u32::from(state.host) == host && state.level != Some(Level::Host))
            .map(|(id, state)| Instance::new(id, state.generation))
            .collect()
    }

    fn kill(&mut self, host: u32) {
        self.killed += 1;
        self.run.hit(host);
        let lost = self.members_of(host);
        let child = lock(&self.running)
            .get(&process_of(self.options.hosts, host))
            .cloned();
        let killed_at = self.now();
        if let Some(child) = child {
            Group::kill_all(&mut lock(&child));
        }
        self.open.push(self.failures.len());
        self.failures.push(Failure {
            host,
            killed_at: Some(killed_at),
            detected_at: None,
            recovered_at: None,
            rejoined_at: None,
            lost,
            units_redone: Vec::new(),
        });
        let hosts_hit = self.killed as usize;
        if hosts_hit.is_multiple_of(self.options.hosts as usize) {
            self.run.spare_nobody();
        }
    }

    fn hear(&mut self, news: &News) {
        let News::Event(event) = news else {
            return;
        };
        if event.kind != EventKind::HostDied || event.instance.id >= self.options.hosts {
            return;
        }
        let (host, now) = (event.instance.id, self.now());
        let untold = |failure: &&mut Failure| failure.host == host && failure.detected_at.is_none();
        match self.failures.iter_mut().find(untold) {
            Some(failure) => failure.detected_at = Some(now),
            // Nobody killed it.
            None => {
                self.open.push(self.failures.len());
                self.failures.push(Failure {
                    host,
                    killed_at: None,
                    detected_at: Some(now),
                    recovered_at: None,
                    rejoined_at: None,
                    lost: Vec::new(),
                    units_redone: Vec::new(),
                });
            }
        }
    }

    /// Looks how far the failures are that are not over.
    fn follow(&mut self) {
        let (now, generations) = (self.now(), self.tables.generations());
        for index in std::mem::take(&mut self.open) {
            let failure = &mut self.failures[index];
            let lives = |instance: &Instance| !generations.is_gone(*instance);
            if failure.detected_at.is_some() && failure.recovered_at.is_none() {
                let unsettled = |instance: &Instance| {
                    lives(instance)
                        || generations
                            .state(instance.id)
                            .is_ok_and(|state| state.status == Status::Dead)
                };
                if !failure.lost.iter().any(unsettled) {
                    failure.recovered_at = Some(now);
                }
            }
            let process = process_of(self.options.hosts, failure.host);
            let live = |id| {
                generations
                    .state(id)
                    .is_ok_and(|state| state.status == Status::Live)
            };
            if failure.recovered_at.is_some() && live(process) {
                failure.rejoined_at = Some(now);
            }
            let wants_to_rejoin =
                self.options.supervise == Supervise::Restart && !self.run.is_done();
            if failure.recovered_at.is_none() || (wants_to_rejoin && failure.rejoined_at.is_none())
            {
                self.open.push(index);
            }
        }
    }
}

/// The executable of this process: what a driver starts as hosts if it is its own host program.
///
/// # Errors
/// If the operating system does not say.
pub fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Lets this process die with the driver that started it, whose process id is `driver`.
///
/// # Errors
/// If the driver is gone.
pub fn die_with(driver: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    if parent == Some(driver) {
        Ok(())
    } else {
        Err(io::Error::other(
            "the process that started this one is gone",
        ))
    }
}
