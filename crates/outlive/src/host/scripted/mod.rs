//! An operating system that is simulated in memory, by a script.
//!
//! Several processes of one scripted operating system share one state; a test acts as any of their
//! threads through [`Scripted::seen_by`]. Nothing is concurrent unless the test makes it so: time
//! passes only when a thread waits (or the test [`advance`](Scripted::advance)s it), and an event
//! that the test scheduled by [`at`](Scripted::at) happens at its time, in the middle of the wait.

mod acting;

pub use acting::ScriptedOs;

use super::{Obituary, OsIdentity, ProcessIdentity, ThreadIdentity};
use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The pid of the first scripted process.
const FIRST_PID: u32 = 100;

/// A scripted operating system.
///
/// ```
/// use outlive::host::{Liveness, Obituary, Os, Scripted};
///
/// let os = Scripted::new(1, 16);
/// let (victim, watcher) = (os.spawn_process(), os.spawn_process());
/// let main = os.main_thread(victim);
/// os.seen_by(main).hold_obituary(3)?.unwrap();
///
/// os.kill_process(victim);
/// let seen = os.seen_by(os.main_thread(watcher));
/// assert_eq!(seen.obituary(3), Obituary::Marked { tid: main.tid });
/// assert_eq!(seen.thread_liveness(main), Liveness::Gone);
/// assert!(seen.open_process(victim)?.is_none());
/// # Ok::<(), outlive::host::OsError>(())
/// ```
#[derive(Clone)]
pub struct Scripted {
    machine: &'static Machine,
}

#[derive(Default)]
struct State {
    now: Duration,
    next_id: u32,
    next_start: u64,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    obituaries: Vec<Slot>,
    bells: BTreeMap<u64, u32>,
    events: Vec<(Duration, Event)>,
    wakes: Vec<u32>,
}

type Event = Box<dyn FnOnce(&Scripted) + Send>;

#[derive(Clone, Copy, Default)]
struct Slot {
    holder: u32,
    marked: bool,
}

/// The presences of one kernel: for each id, whether the address space of its process still exists.
type Presences = Arc<Mutex<BTreeMap<u32, Arc<AtomicBool>>>>;

/// The cords of one kernel: for each host and incarnation, the processes that are tied to its cord.
type Cords = Arc<Mutex<BTreeMap<(u32, u32), Vec<(Scripted, ProcessIdentity)>>>>;

/// A presence that a scripted process has.
#[derive(Debug)]
struct Claimed {
    presences: Presences,
    id: u32,
    alive: Arc<AtomicBool>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut presences = self
            .presences
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if presences
            .get(&self.id)
            .is_some_and(|of| Arc::ptr_eq(of, &self.alive))
        {
            presences.remove(&self.id);
        }
    }
}

struct Process {
    identity: ProcessIdentity,
    /// Whether its address space exists.
    alive: Arc<AtomicBool>,
    gone: bool,
    told_to_die: bool,
    unkillable: bool,
    refuses: bool,
    hidden: bool,
    stopped: bool,
}

struct Thread {
    identity: ThreadIdentity,
    gone: bool,
}

struct Machine {
    identity: OsIdentity,
    presences: Presences,
    cords: Cords,
    state: Mutex<State>,
    bells: OnceLock<Scripted>,
}

/// The number of the next operating system.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Scripted {
    /// Returns an operating system whose boot id is `boot`, with `obituaries` obituaries for its
    /// one pod. (It is never freed, since `Os::bells` returns a `'static` reference.)
    pub fn new(boot: u128, obituaries: u32) -> Self {
        Self::on_machine(0, boot, obituaries)
    }

    /// Does the same as [`new`](Self::new), on the machine with the id `machine`.
    pub fn on_machine(machine: u128, boot: u128, obituaries: u32) -> Self {
        let identity = OsIdentity {
            id: NEXT.fetch_add(1, Ordering::Relaxed).into(),
            boot,
            machine,
            one_kernel: false,
        };
        Self::with(identity, Presences::default(), Cords::default(), obituaries)
    }

    /// Does the same as [`new`](Self::new), for a pod in a file that one kernel at a time can map.
    pub fn on_local_file(boot: u128, obituaries: u32) -> Self {
        let identity = OsIdentity {
            id: NEXT.fetch_add(1, Ordering::Relaxed).into(),
            boot,
            machine: 0,
            one_kernel: true,
        };
        Self::with(identity, Presences::default(), Cords::default(), obituaries)
    }

    /// Returns another operating system on the same kernel, with obituaries of its own: another PID
    /// namespace, or another `/dev/shm`.
    pub fn beside(&self) -> Self {
        let identity = OsIdentity {
            id: NEXT.fetch_add(1, Ordering::Relaxed).into(),
            ..self.machine.identity
        };
        let obituaries = self.state().obituaries.len() as u32;
        let (presences, cords) = (&self.machine.presences, &self.machine.cords);
        Self::with(
            identity,
            Arc::clone(presences),
            Arc::clone(cords),
            obituaries,
        )
    }

    fn with(identity: OsIdentity, presences: Presences, cords: Cords, obituaries: u32) -> Self {
        let state = State {
            next_id: FIRST_PID,
            next_start: 1,
            obituaries: vec![Slot::default(); obituaries as usize],
            ..State::default()
        };
        Self {
            machine: Box::leak(Box::new(Machine {
                identity,
                presences,
                cords,
                state: Mutex::new(state),
                bells: OnceLock::new(),
            })),
        }
    }

    /// Starts a process with one thread, its leader.
    pub fn spawn_process(&self) -> ProcessIdentity {
        let mut state = self.state();
        let pid = state.fresh_id();
        state.spawn(pid)
    }

    /// Starts a process with the pid of `earlier`, which must be gone, and a later start time.
    pub fn recycle_pid(&self, earlier: ProcessIdentity) -> ProcessIdentity {
        let mut state = self.state();
        assert!(state.process(earlier).gone, "its pid is in use");
        state.spawn(earlier.pid)
    }

    /// Starts a thread of `process`.
    pub fn spawn_thread(&self, process: ProcessIdentity) -> ThreadIdentity {
        let mut state = self.state();
        let tid = state.fresh_id();
        state.spawn_thread(process, tid)
    }

    /// Returns the leader thread of `process`.
    pub fn main_thread(&self, process: ProcessIdentity) -> ThreadIdentity {
        ThreadIdentity {
            process,
            tid: process.pid,
            start_time: process.start_time,
        }
    }

    /// Returns the operating system as `thread` sees it. Calls through it are made by `thread`.
    pub fn seen_by(&self, thread: ThreadIdentity) -> Arc<ScriptedOs> {
        Arc::new(ScriptedOs {
            os: self.clone(),
            thread,
        })
    }

    /// Kills `process`, even if it refuses kills: all its obituaries are marked, then it is gone.
    pub fn kill_process(&self, process: ProcessIdentity) {
        self.begin_death(process);
        self.end_death(process);
    }

    /// Executes the first half of a death: the threads are gone and their obituaries marked, but
    /// the address space is still being released, so the process does not count as gone yet.
    pub fn begin_death(&self, process: ProcessIdentity) {
        let mut state = self.state();
        for at in 0..state.threads.len() {
            if state.threads[at].identity.process == process {
                state.end_thread(at, true);
            }
        }
    }

    /// Executes the second half of a death: the process is gone.
    pub fn end_death(&self, process: ProcessIdentity) {
        let mut state = self.state();
        let process = state.process(process);
        process.gone = true;
        process.alive.store(false, Ordering::SeqCst);
    }

    /// Lets `process` call exec: its threads end, and it continues with a new address space.
    pub fn exec(&self, process: ProcessIdentity) {
        self.begin_death(process);
        let mut state = self.state();
        let alive = Arc::new(AtomicBool::new(true));
        let before = core::mem::replace(&mut state.process(process).alive, alive);
        before.store(false, Ordering::SeqCst);
        state.spawn_thread(process, process.pid);
    }

    /// Ends one thread, with its obituaries `marked` or (a thread that called exec, a robust list
    /// that was too long) not. Its process lives on.
    pub fn kill_thread(&self, thread: ThreadIdentity, marked: bool) {
        let mut state = self.state();
        let at = state.threads.iter().position(|t| t.identity == thread);
        state.end_thread(at.expect("no such thread"), marked);
    }

    /// Stops `process`, as SIGSTOP does: it still exists. The test must not let it act before it is
    /// [resumed](Self::resume).
    pub fn stop(&self, process: ProcessIdentity) {
        self.state().process(process).stopped = true;
    }

    /// Continues a stopped process.
    pub fn resume(&self, process: ProcessIdentity) {
        self.state().process(process).stopped = false;
    }

    /// Returns whether `process` is stopped.
    pub fn is_stopped(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).stopped
    }

    /// Puts `process` into uninterruptible sleep, or out of it: a kill is accepted and takes effect
    /// only when it wakes.
    pub fn make_unkillable(&self, process: ProcessIdentity, unkillable: bool) {
        let mut state = self.state();
        let target = state.process(process);
        target.unkillable = unkillable;
        let dies = !unkillable && target.told_to_die && !target.gone;
        drop(state);
        if dies {
            self.kill_process(process);
        }
    }

    /// Makes every attempt to kill `process` be refused (no permission), or allows it again.
    pub fn refuse_kills(&self, process: ProcessIdentity, refuses: bool) {
        self.state().process(process).refuses = refuses;
    }

    /// Hides `process` (`/proc` with hidepid), or shows it. The liveness of hidden threads is
    /// unknown.
    pub fn hide(&self, process: ProcessIdentity, hidden: bool) {
        self.state().process(process).hidden = hidden;
    }

    /// Returns whether `process` is gone.
    pub fn is_gone(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).gone
    }

    /// Returns whether SIGKILL has been sent to `process`.
    pub fn was_told_to_die(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).told_to_die
    }

    /// Returns the slots for which watchers were woken since the last call, in order.
    pub fn take_wakes(&self) -> Vec<u32> {
        core::mem::take(&mut self.state().wakes)
    }

    /// Schedules `event` for when the clock reaches `time`, or for the next wait if it has already.
    pub fn at(&self, time: Duration, event: impl FnOnce(&Scripted) + Send + 'static) {
        self.state().events.push((time, Box::new(event)));
    }

    /// Returns the time of the scripted clock.
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Lets the time `by` pass, with all events in it.
    pub fn advance(&self, by: Duration) {
        let until = self.now() + by;
        self.pass_time(until, || false);
    }

    /// Lets time pass until `until`, or until `done`, which is checked before each event, is true.
    fn pass_time(&self, until: Duration, done: impl Fn() -> bool) {
        while !done() {
            let mut state = self.state();
            // The earliest event that is due; of several at one time, the first scheduled.
            let due = (0..state.events.len())
                .filter(|&at| state.events[at].0 <= until)
                .min_by_key(|&at| state.events[at].0);
            let Some(due) = due else {
                state.now = state.now.max(until);
                return;
            };
            let (time, event) = state.events.remove(due);
            state.now = state.now.max(time);
            drop(state);
            event(self);
        }
    }

    fn state(&self) -> MutexGuard<'static, State> {
        self.machine.lock()
    }
}

impl Machine {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn spawn(&mut self, pid: u32) -> ProcessIdentity {
        let identity = ProcessIdentity {
            pid,
            start_time: self.next_start,
        };
        self.processes.push(Process {
            identity,
            alive: Arc::new(AtomicBool::new(true)),
            gone: false,
            told_to_die: false,
            unkillable: false,
            refuses: false,
            hidden: false,
            stopped: false,
        });
        self.spawn_thread(identity, pid);
        identity
    }

    fn spawn_thread(&mut self, process: ProcessIdentity, tid: u32) -> ThreadIdentity {
        assert!(!self.process(process).gone, "its process is gone");
        let identity = ThreadIdentity {
            process,
            tid,
            start_time: self.next_start,
        };
        self.next_start += 1;
        self.threads.push(Thread {
            identity,
            gone: false,
        });
        identity
    }

    fn process(&mut self, identity: ProcessIdentity) -> &mut Process {
        let mut processes = self.processes.iter_mut();
        processes
            .find(|process| process.identity == identity)
            .expect("no such process")
    }

    fn end_thread(&mut self, at: usize, marked: bool) {
        let thread = &mut self.threads[at];
        if core::mem::replace(&mut thread.gone, true) || !marked {
            return;
        }
        let tid = thread.identity.tid;
        for slot in self.obituaries.iter_mut() {
            slot.marked |= slot.holder == tid;
        }
    }

    fn obituary(&self, slot: u32) -> Obituary {
        let Slot { holder, marked } = self.obituaries[slot as usize];
        match (holder, marked) {
            (0, _) => Obituary::Vacant,
            (tid, false) => Obituary::Held { tid },
            (tid, true) => Obituary::Marked { tid },
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scripted({})", self.machine.identity)
    }
}
