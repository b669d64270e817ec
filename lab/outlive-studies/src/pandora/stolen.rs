//! `pandora-stolen`: the time from the failure of a compute server until the first of its latches
//! is stolen, with each detector.
//!
//! The victim latches an object, and stops before its log. Another compute server tries to update
//! the object all the time, and steals the latch as soon as recovery is complete. With obituaries
//! the victim is killed. With heartbeats it is stopped, so that only its silence shows the failure,
//! and the suspicion time is that of the thesis: 5 ms.
//!
//! All servers are child processes: with such a suspicion time a busy machine can cause a fence of
//! any process, which must not be the study's. Rounds in which a server was fenced that had not
//! been stopped do not count; a row has their number.

use super::fig4_8::{STOLEN, TIDB};
use super::scratch_store::REPLICAS;
use super::server::Memory;
use crate::children::{Launcher, Part, Playing, say, sleep_for_ever};
use crate::row::{Goal, How, Row};
use crate::scratch::{ScratchPod, fresh_path, payload};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError, clock};
use outlive::membership::Settings;
use outlive::memory::{Memory as _, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive_store::protocol::{Coordinator, Member, Retry, Table, TransactionError};
use outlive_store::servers::{Store, StoreOptions};
use outlive_store::verbs::block_on;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

pub const STUDY: Study = Study {
    name: "pandora-stolen",
    about: "from a failure to the first stolen latch, with obituaries and with heartbeats",
    body: study,
};

/// The suspicion time of the thesis's failure detector.
const SUSPICION: Duration = Duration::from_millis(5);
/// The interval of heartbeats and of their checks.
const BEAT: Duration = Duration::from_millis(1);
/// The interval of heartbeats, and the suspicion time.
type Heartbeats = (Duration, Duration);
/// The bar with heartbeats, in microseconds.
const WITH_HEARTBEATS: f64 = 10_000.0;
/// The longest wait for a server or a stolen latch.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of stolen latches, and the time of the last one, in the payload of a pod.
const HOW_MANY: u64 = 0;
const WHEN: u64 = 8;

/// The name of the table, with one key.
const TABLE: &str = "latches";
const KEY: u64 = 1;

/// The role of a compute server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Latches the object and waits.
    Victim,
    /// Tries to update the object all the time.
    Thief,
}

/// A compute server that latches an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latcher {
    store: PathBuf,
    /// The pod with the times.
    times: PathBuf,
    role: Role,
}

impl Latcher {
    pub fn play(self) -> Result<(), StudyError> {
        let compute = Store::open(&self.store)?.join_compute()?;
        let table = compute.table::<u64>(TABLE, 64)?;
        let worker = compute.worker()?;
        let mut coordinator = worker.coordinator().map_err(StudyError::void_of)?;
        match self.role {
            Role::Victim => hold(&mut coordinator, table),
            Role::Thief => {
                let pod = Pod::open(&self.times)?;
                let (memory, at) = (pod.segment().memory(), payload(&pod));
                let put = coordinator.transaction(async |tx| tx.put(table, KEY, &0).await);
                block_on(put)?;
                let mut coordinator = coordinator.retry(Retry {
                    attempts: 1,
                    ..Retry::default()
                });
                say(&());
                loop {
                    let before = worker.counts().stolen;
                    let update = coordinator
                        .transaction(async |tx| tx.update(table, KEY, |it| it + 1).await);
                    match block_on(update) {
                        Ok(_) | Err(TransactionError::TooManyConflicts { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                    if worker.counts().stolen > before {
                        memory.store(at + WHEN, clock::now(), Ordering::Relaxed);
                        // Release: publishes the time.
                        memory.fetch_add(at + HOW_MANY, 1u64, Ordering::Release);
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }
}

/// Latches the object in a transaction that never ends.
fn hold<V: Member>(coordinator: &mut Coordinator<V>, table: Table<u64>) -> ! {
    let is_held = Cell::new(false);
    let holding = coordinator.transaction(async |tx| {
        tx.update(table, KEY, |it| it + 1).await?;
        is_held.set(true);
        pending::<()>().await;
        Ok(())
    });
    let mut holding = pin!(holding);
    block_on(poll_fn(|context| {
        let polled = holding.as_mut().poll(context);
        assert!(polled.is_pending(), "the transaction waits forever");
        match is_held.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
    say(&());
    // The transaction is not dropped, which would abort it.
    sleep_for_ever()
}

/// The servers of a store: two memory servers and a thief.
struct Servers<'a> {
    launcher: &'a Launcher,
    has_heartbeats: bool,
    // Dropped in this order: the store is destroyed when no server has it open any more.
    thief: Playing,
    memory: Vec<Playing>,
    store: StoreFile,
    times: ScratchPod,
}

/// The file of a store, which a drop destroys.
struct StoreFile(PathBuf);

impl Drop for StoreFile {
    fn drop(&mut self) {
        // A drop cannot report an error; `outlive store destroy` removes a store that stays.
        let _ = Store::destroy(&self.0);
    }
}

impl<'a> Servers<'a> {
    fn start(launcher: &'a Launcher, heartbeats: Option<Heartbeats>) -> Result<Self, StudyError> {
        let store = StoreFile(fresh_path("store"));
        let mut options = StoreOptions::new().replicas(REPLICAS).compute_servers(4, 1);
        if let Some((heartbeat, suspicion)) = heartbeats {
            options = options.heartbeats(heartbeat, suspicion);
        }
        drop(Store::create(&store.0, options.members(64))?);
        let times = ScratchPod::of_ids(4 << 20, Settings::default(), 16)?;
        let mut memory = Vec::new();
        for _ in 0..REPLICAS {
            let mut server = launcher.start(&Part::PandoraMemory(Memory {
                store: store.0.clone(),
                bytes: 1 << 20,
            }))?;
            server.await_ready()?;
            memory.push(server);
        }
        let thief = start(launcher, (&store.0, times.path()), Role::Thief)?;
        Ok(Self {
            launcher,
            has_heartbeats: heartbeats.is_some(),
            thief,
            memory,
            store,
            times,
        })
    }

    /// Returns whether a server has ended that no round has stopped.
    fn is_broken(&mut self) -> bool {
        let memory = self.memory.iter_mut().any(|it| it.ended().is_some());
        memory || self.thief.ended().is_some()
    }

    fn stolen(&self) -> (u64, u64) {
        let (memory, at): (Native, Offset) =
            (self.times.pod().segment().memory(), self.times.payload());
        let how_many = memory.load(at + HOW_MANY, Ordering::Acquire);
        (how_many, memory.load(at + WHEN, Ordering::Relaxed))
    }

    /// Returns the microseconds from the signal until the latch was stolen; `None` if a server was
    /// fenced that had not been stopped.
    fn round(&mut self, signal: Signal, phase: Duration) -> Result<Option<f64>, StudyError> {
        let paths = (self.store.0.as_path(), self.times.path());
        let mut victim = match start(self.launcher, paths, Role::Victim) {
            Ok(victim) => victim,
            // Fenced while it joined.
            Err(StudyError::Part { .. }) if self.has_heartbeats => return Ok(None),
            Err(error) => return Err(error),
        };
        std::thread::sleep(Duration::from_millis(5) + phase);
        let (before, _) = self.stolen();
        if victim.ended().is_some() || self.is_broken() {
            return Ok(None);
        }
        let begin = clock::now();
        victim.signal(signal)?;
        let until = Instant::now() + PATIENCE;
        while self.stolen().0 == before {
            if self.is_broken() {
                return Ok(None);
            }
            if Instant::now() > until {
                return Err(StudyError::void(
                    "the latch of a failed server was not stolen",
                ));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let (_, when) = self.stolen();
        victim.wait()?;
        Ok((when > begin).then(|| clock::micros(begin, when)))
    }
}

fn start(
    launcher: &Launcher,
    (store, times): (&Path, &Path),
    role: Role,
) -> Result<Playing, StudyError> {
    let mut server = launcher.start(&Part::Latcher(Latcher {
        store: store.into(),
        times: times.into(),
        role,
    }))?;
    server.hear::<()>()?;
    Ok(server)
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let detectors = [
        ("obituaries, the victim killed", None, Signal::KILL, STOLEN),
        (
            "heartbeats every 1 ms, suspicion after 5 ms, the victim stopped",
            Some((BEAT, SUSPICION)),
            Signal::STOP,
            WITH_HEARTBEATS,
        ),
    ];
    for (case, heartbeats, signal, bar) in detectors {
        run.begin(case);
        let (times, void) = measure(run, heartbeats, signal)?;
        let void = Row::new(
            case,
            "void rounds, in which a server was fenced that had not been stopped",
            "rounds",
        )
        .ours(void as f64);
        run.answer([void.how(How::Emulated)]);
        if times.is_empty() {
            let case = format!("{case} (not measured: healthy servers were fenced in all rounds)");
            let paper = SUSPICION.as_secs_f64() * 1e3;
            let metric = "time-out of the failure detector";
            run.answer([Row::paper_alone(case, metric, "ms", paper)]);
            continue;
        }
        let row = Row::new(case, "from the failure to the first stolen latch", "us")
            .ours_within(median_estimate(&times))
            .peer("locks of a dead TiDB server, as cited (not run here)", TIDB)
            .goal(Goal::ours_at_most(bar));
        run.answer([row.how(How::Emulated)]);
    }
    Ok(())
}

/// Returns the times of the rounds, and the number of void rounds. Ends early if the machine is too
/// busy for the detector.
fn measure(
    run: &Run<'_>,
    heartbeats: Option<Heartbeats>,
    signal: Signal,
) -> Result<(Vec<f64>, usize), StudyError> {
    let rounds = run.effort().of(2, 20, 100);
    let most_void = run.effort().of(6, 60, 300);
    let mut random = fastrand::Rng::with_seed(1);
    let (mut times, mut void) = (Vec::new(), 0);
    let mut servers = None;
    while times.len() < rounds && void < most_void {
        run.go_on()?;
        let now = match &mut servers {
            Some(servers) => servers,
            none => match Servers::start(run.launcher(), heartbeats) {
                Ok(started) => none.insert(started),
                // Fenced while they joined.
                Err(StudyError::Part { .. }) if heartbeats.is_some() => {
                    void += 1;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let phase = Duration::from_micros(random.u64(..2000));
        match now.round(signal, phase)? {
            Some(time) => times.push(time),
            None => {
                void += 1;
                if now.is_broken() {
                    servers = None;
                }
            }
        }
    }
    Ok((times, void))
}
