//! `lupin-restart`: the time for which members are gone (LUPIN §2.2), from a death until the next
//! incarnation has done its first piece of work under a lock. It includes the notification, the
//! recovery, the supervisor, the start and the join.
//!
//! The piece of work is an increment of a recoverable mutex's value, which the dead member was
//! about to repeat. The peer is the least that a restart takes: starting a bare thread; or killing
//! a bare process, waiting for it and starting it again, up to the first line of `main`. A host is
//! two processes, which are both killed.

use crate::children::{Launcher, Part};
use crate::paired::{Comparison, Paired};
use crate::row::{How, Row};
use crate::scratch::{ScratchPod, payload};
use crate::{Run, Study, StudyError, clock};
use outlive::membership::{Member, ProcessOptions, Settings};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::supervise::{
    Attempt, Child, Outcome, Place, ProcessSupervisor, RestartPolicy, Stop, ThreadSupervisor, home,
};
use outlive::sync::RecoverableMutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const STUDY: Study = Study {
    name: "lupin-restart",
    about: "from a member's death until it works again (LUPIN section 2.2)",
    body: study,
};

/// Members fail all the time here, and are restarted at once.
const TIRELESS: RestartPolicy = RestartPolicy {
    most: u32::MAX,
    window: Duration::from_nanos(1),
    backoff: Duration::ZERO,
    longest: Duration::ZERO,
};
const PATIENCE: Duration = Duration::from_secs(20);
const THREAD: u32 = 20;
const PROCESSES: [u32; 2] = [30, 31];
const METRIC: &str = "from its death to its first work";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let rounds = run.effort().of(2, 40, 200);
    for (case, death) in [
        ("a thread that ends alone", Death::Exit),
        ("a thread that panics", Death::Panic),
    ] {
        run.begin(case);
        let paired = threads(run, rounds, death)?;
        let comparison = Comparison {
            case,
            metric: METRIC,
            unit: "ms",
            peer: "starting a bare thread",
            paper: None,
            goal: None,
        };
        run.answer(comparison.rows(&paired));
    }
    let rounds = run.effort().of(2, 25, 120);
    let bare = "killing a bare process, waiting for it and starting it again";
    // LUPIN §2.2: memcached 1.1 ms, Cavalia 1.5 ms, Apache 12.3 ms.
    for (case, killed, paper) in [
        (
            "a process that is killed, its host lives (the paper: memcached)",
            1,
            Some(1.1),
        ),
        ("a host of two processes that are killed", 2, None),
    ] {
        run.begin(case);
        let paired = processes(run, rounds, killed)?;
        let comparison = Comparison {
            case,
            metric: METRIC,
            unit: "ms",
            peer: bare,
            paper,
            goal: None,
        };
        let rows = comparison.rows(&paired);
        run.answer(match killed {
            1 => rows,
            _ => rows.map(|row| row.how(How::Emulated)),
        });
    }
    let alone = |case: &str, metric, unit, paper| Row::paper_alone(case, metric, unit, paper);
    run.answer([
        alone("the paper's Cavalia", "restart of the process", "ms", 1.5),
        alone("the paper's Apache", "restart of the process", "ms", 12.3),
    ]);
    for (system, seconds) in [
        ("KVM virtual machine", 79.0),
        ("local server", 147.0),
        ("cloud server", 137.0),
    ] {
        let case = format!("the paper's {system} (no machine is restarted here)");
        run.answer([alone(
            &case,
            "restart of the operating system",
            "s",
            seconds,
        )]);
    }
    Ok(())
}

/// How a thread dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Death {
    /// The kernel ends the thread and nothing else.
    Exit,
    Panic,
}

fn mutex(pod: &Pod, index: u64) -> RecoverableMutex<u64> {
    let at = payload(pod) + 4096 + index * 128;
    RecoverableMutex::at(pod.segment().memory(), at)
}

fn work(mutex: &RecoverableMutex<u64>, member: &Member) -> u64 {
    let mut value = mutex
        .lock(member)
        .expect("a mutex that no dead thread held");
    *value += 1;
    *value
}

/// A process whose thread dies on request and is restarted. A thread that the kernel ended never
/// gives back its member, so its process cannot leave cleanly. It must therefore not be the study's
/// process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mortals {
    pod: PathBuf,
    death: Death,
}

/// The words in the payload by which a supervised thread and the study communicate.
#[derive(Clone, Copy)]
struct Talk {
    memory: Native,
    /// The number of incarnations that have worked.
    worked: Offset,
    /// The time at which the last of them had worked.
    when: Offset,
    /// The incarnation that is to die.
    die: Offset,
    /// The time at which it died.
    died: Offset,
}

impl Talk {
    fn of(pod: &Pod) -> Self {
        let (memory, at) = (pod.segment().memory(), payload(pod));
        Self {
            memory,
            worked: at,
            when: at + 8,
            die: at + 128,
            died: at + 16,
        }
    }

    fn read(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Acquire)
    }

    fn write(self, at: Offset, value: u64) {
        self.memory.store(at, value, Ordering::Release);
    }
}

impl Mortals {
    pub fn play(self) -> Result<(), StudyError> {
        let pod = Pod::open(&self.pod)?;
        let process = pod.join(ProcessOptions::on_host(1).name("mortals"))?;
        let (talk, mutex) = (Talk::of(&pod), mutex(&pod, 0));
        let body = move |member: &Member, _: Attempt| -> Outcome {
            work(&mutex, member);
            talk.write(talk.when, clock::now());
            let me = talk.memory.fetch_add(talk.worked, 1u64, Ordering::AcqRel) + 1;
            while talk.read(talk.die) < me {
                std::thread::sleep(Duration::from_micros(100));
            }
            talk.write(talk.died, clock::now());
            match self.death {
                // SAFETY: ends this thread alone. It leaves behind in this process its stack and a
                // handle that its supervisor drops.
                Death::Exit => unsafe {
                    libc::syscall(libc::SYS_exit, 0);
                    unreachable!("the thread has ended")
                },
                // Without a panic message.
                Death::Panic => std::panic::resume_unwind(Box::new("as requested")),
            }
        };
        let mut supervisor = ThreadSupervisor::new(process)
            .policy(TIRELESS)
            .thread(THREAD, "phoenix", body);
        supervisor.run();
        Ok(())
    }
}

fn threads(run: &Run<'_>, rounds: usize, death: Death) -> Result<Paired, StudyError> {
    let scratch = ScratchPod::new(8 << 20, Settings::default())?;
    let talk = Talk::of(scratch.pod());
    let pod = scratch.path().to_owned();
    // Dropped, and so killed, before the pod is destroyed.
    let _mortals = run
        .launcher()
        .start(&Part::Mortals(Mortals { pod, death }))?;
    let until_worked = |many: u64| {
        await_that("a thread was started again", || {
            talk.read(talk.worked) >= many
        })
    };
    until_worked(1)?;
    let ours = || {
        let now = talk.read(talk.worked);
        talk.write(talk.die, now);
        until_worked(now + 1)?;
        let (died, when) = (talk.read(talk.died), talk.read(talk.when));
        Ok(clock::micros(died, when) / 1000.0)
    };
    let peer = || {
        let start = clock::now();
        let thread = std::thread::spawn(clock::now);
        let running = thread.join().expect("a thread that reads the clock");
        Ok(clock::micros(start, running) / 1000.0)
    };
    Paired::measure(run, rounds, ours, peer)
}

/// A supervisor on a thread of its own. A drop stops it.
struct Supervision {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Supervision {
    fn start(stop: Stop, run: impl FnOnce() + Send + 'static) -> Result<Self, StudyError> {
        let thread = std::thread::Builder::new().name("supervisor".into());
        let thread = thread
            .spawn(run)
            .map_err(StudyError::io("starting a thread"))?;
        let thread = Some(thread);
        Ok(Self { stop, thread })
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), StudyError> {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > until {
            return Err(StudyError::void(format!("not within {PATIENCE:?}: {what}")));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// A process that works once and waits until it is killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phoenix {
    index: u64,
}

/// Returns where a phoenix writes its process id, how often it has worked, and when it last had.
fn says(pod: &Pod, index: u64) -> [Offset; 3] {
    let at = payload(pod) + index * 128;
    [at, at + 8, at + 16]
}

impl Phoenix {
    pub fn play(self) -> Result<(), StudyError> {
        let place = Place::from_env().map_err(|error| StudyError::void(error.to_string()))?;
        let pod = Pod::open(&place.pod)?;
        let options = ProcessOptions::on_host(place.host)
            .id(place.id)
            .name("phoenix");
        let process = pod.join(options)?;
        let member = process.enter(None, "phoenix")?;
        work(&mutex(&pod, self.index), &member);
        let ([pid, worked, when], memory) = (says(&pod, self.index), pod.segment().memory());
        memory.store(when, clock::now(), Ordering::Relaxed);
        memory.store(pid, u64::from(std::process::id()), Ordering::Relaxed);
        // Release: publishes the other two.
        memory.fetch_add(worked, 1u64, Ordering::Release);
        crate::children::sleep_for_ever()
    }
}

/// Runs a host of two processes, of which `killed` are killed.
fn processes(run: &Run<'_>, rounds: usize, killed: u64) -> Result<Paired, StudyError> {
    let scratch = ScratchPod::new(8 << 20, Settings::default())?;
    let process = scratch.join(0)?;
    let mut supervisor = ProcessSupervisor::new(process.clone(), scratch.path())
        .policy(TIRELESS)
        .placement(home);
    for (index, id) in (0..).zip(PROCESSES) {
        let launcher: Launcher = run.launcher().clone();
        let command = move || launcher.command(&Part::Phoenix(Phoenix { index }));
        supervisor = supervisor.child(Child::new(id, 1, command));
    }
    // The thread that starts the children must outlive them.
    let (told, gone) = mpsc::channel();
    let supervision = Supervision::start(supervisor.stopper(), move || {
        supervisor.run();
        let _ = told.send(supervisor.kill_children());
    })?;
    let (pod, memory) = (scratch.pod().clone(), scratch.pod().segment().memory());
    let many = PROCESSES.len() as u64;
    let worked = |index| memory.load::<u64>(says(&pod, index)[1], Ordering::Acquire);
    let first = await_that("processes were started", || {
        (0..many).all(|index| worked(index) > 0)
    });
    let ours = || {
        let before: Vec<u64> = (0..many).map(worked).collect();
        let start = clock::now();
        for index in 0..killed {
            kill(memory, says(&pod, index)[0])?;
        }
        await_that("processes were started again", || {
            (0..killed).all(|index| worked(index) > before[index as usize])
        })?;
        let when = |index| memory.load::<u64>(says(&pod, index)[2], Ordering::Relaxed);
        let last = (0..killed).map(when).max().unwrap_or(start);
        Ok(clock::micros(start, last) / 1000.0)
    };
    let peer = || {
        let mut bare = run.launcher().start(&Part::Bare)?;
        bare.await_ready()?;
        let start = clock::now();
        bare.signal(Signal::KILL)?;
        bare.wait()?;
        let mut again = run.launcher().start(&Part::Bare)?;
        again.await_ready()?;
        Ok(clock::micros(start, clock::now()) / 1000.0)
    };
    let paired = first.and_then(|()| Paired::measure(run, rounds, ours, peer));
    drop(supervision);
    match gone.recv() {
        Ok(spared) if spared.is_empty() => {}
        _ => return Err(StudyError::void("a process could not be killed at the end")),
    }
    process.leave()?;
    paired
}

fn kill(memory: Native, pid: Offset) -> Result<(), StudyError> {
    let pid: u64 = memory.load(pid, Ordering::Relaxed);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| StudyError::void("a process has no id"))?;
    kill_process(pid, Signal::KILL)
        .map_err(|errno| StudyError::io("killing a process")(errno.into()))
}
