//! An operating system that is played in memory, by a script.
//!
//! Several processes of one scripted operating system share one state; a test acts as any of their
//! threads through [`Scripted::seen_by`]. Nothing is concurrent unless the test makes it so: time passes
//! only when somebody waits (or the test [`advance`](Scripted::advance)s it), and what the test scheduled
//! by [`at`](Scripted::at) happens when its time comes, in the middle of the wait.

use super::{
    Bells, Liveness, Obituary, Os, OsError, OsIdentity, Presence, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
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
    /// An operating system whose boot id is `boot`, with `obituaries` obituaries for its one pod. (Its few
    /// hundred bytes are never freed: bells live for ever.)
    pub fn new(boot: u128, obituaries: u32) -> Self {
        Self::on_machine(0, boot, obituaries)
    }

    /// As [`new`](Self::new), on the machine with the id `machine`.
    pub fn on_machine(machine: u128, boot: u128, obituaries: u32) -> Self {
        let identity = OsIdentity {
            id: NEXT.fetch_add(1, Ordering::Relaxed).into(),
            boot,
            machine,
            one_kernel: false,
        };
        Self::with(identity, Presences::default(), Cords::default(), obituaries)
    }

    /// As [`new`](Self::new), for a pod in a file that one kernel at a time can map.
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

    /// A new process with one thread, its leader.
    pub fn spawn_process(&self) -> ProcessIdentity {
        let mut state = self.state();
        let pid = state.fresh_id();
        state.spawn(pid)
    }

    /// A new process with the pid of `earlier`, which must be gone, and a later start time.
    pub fn recycle_pid(&self, earlier: ProcessIdentity) -> ProcessIdentity {
        let mut state = self.state();
        assert!(state.process(earlier).gone, "its pid is in use");
        state.spawn(earlier.pid)
    }

    /// A new thread of `process`.
    pub fn spawn_thread(&self, process: ProcessIdentity) -> ThreadIdentity {
        let mut state = self.state();
        let tid = state.fresh_id();
        state.spawn_thread(process, tid)
    }

    /// The leader thread of `process`.
    pub fn main_thread(&self, process: ProcessIdentity) -> ThreadIdentity {
        ThreadIdentity {
            process,
            tid: process.pid,
            start_time: process.start_time,
        }
    }

    /// The operating system as `thread` sees it: what is done through it, `thread` does.
    pub fn seen_by(&self, thread: ThreadIdentity) -> Arc<ScriptedOs> {
        Arc::new(ScriptedOs {
            os: self.clone(),
            thread,
        })
    }

    /// Kills `process`, whatever it refuses: all its obituaries are marked, then it is gone.
    pub fn kill_process(&self, process: ProcessIdentity) {
        self.begin_death(process);
        self.end_death(process);
    }

    /// The first half of a death: the threads are gone and their obituaries marked, but the address space
    /// is still being torn down, so the process does not count as gone yet.
    pub fn begin_death(&self, process: ProcessIdentity) {
        let mut state = self.state();
        for at in 0..state.threads.len() {
            if state.threads[at].identity.process == process {
                state.end_thread(at, true);
            }
        }
    }

    /// The second half of a death: the process is gone.
    pub fn end_death(&self, process: ProcessIdentity) {
        let mut state = self.state();
        let process = state.process(process);
        process.gone = true;
        process.alive.store(false, Ordering::SeqCst);
    }

    /// Lets `process` call exec: its threads end, and the process goes on with a new address space.
    pub fn exec(&self, process: ProcessIdentity) {
        self.begin_death(process);
        let mut state = self.state();
        let alive = Arc::new(AtomicBool::new(true));
        let before = core::mem::replace(&mut state.process(process).alive, alive);
        before.store(false, Ordering::SeqCst);
        state.spawn_thread(process, process.pid);
    }

    /// Ends one thread, with its obituaries `marked` or (a thread that called exec, a robust list that
    /// was too long) not. Its process lives on.
    pub fn kill_thread(&self, thread: ThreadIdentity, marked: bool) {
        let mut state = self.state();
        let at = state.threads.iter().position(|t| t.identity == thread);
        state.end_thread(at.expect("no such thread"), marked);
    }

    /// Stops `process` (SIGSTOP): it exists and does nothing. What it would do is the test's not to do.
    pub fn stop(&self, process: ProcessIdentity) {
        self.state().process(process).stopped = true;
    }

    /// Lets a stopped process go on.
    pub fn resume(&self, process: ProcessIdentity) {
        self.state().process(process).stopped = false;
    }

    /// Whether `process` is stopped.
    pub fn is_stopped(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).stopped
    }

    /// Puts `process` into uninterruptible sleep, or out of it: a kill is accepted and takes effect only
    /// when it wakes.
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

    /// Hides `process` (`/proc` with hidepid), or shows it again: nothing can be said of its threads.
    pub fn hide(&self, process: ProcessIdentity, hidden: bool) {
        self.state().process(process).hidden = hidden;
    }

    /// Whether `process` is gone.
    pub fn is_gone(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).gone
    }

    /// Whether somebody has sent SIGKILL to `process`.
    pub fn was_told_to_die(&self, process: ProcessIdentity) -> bool {
        self.state().process(process).told_to_die
    }

    /// The slots for which watchers were woken, in order, since this was last asked.
    pub fn take_wakes(&self) -> Vec<u32> {
        core::mem::take(&mut self.state().wakes)
    }

    /// Lets `event` happen when the clock reaches `time`; at the next wait, if it has already.
    pub fn at(&self, time: Duration, event: impl FnOnce(&Scripted) + Send + 'static) {
        self.state().events.push((time, Box::new(event)));
    }

    /// The scripted clock.
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Lets `by` of time pass, with all that is to happen in it.
    pub fn advance(&self, by: Duration) {
        let until = self.now() + by;
        self.pass_time(until, || false);
    }

    /// Lets time pass until `until`, or until `done` after something happened.
    fn pass_time(&self, until: Duration, done: impl Fn() -> bool) {
        while !done() {
            let mut state = self.state();
            // The earliest event that is due; of several for one moment, the one that was scheduled first.
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

/// A scripted operating system as one of its threads sees it.
#[derive(Clone)]
pub struct ScriptedOs {
    os: Scripted,
    thread: ThreadIdentity,
}

impl ScriptedOs {
    /// The thread that acts through this.
    pub fn thread(&self) -> ThreadIdentity {
        self.thread
    }

    /// The operating system.
    pub fn scripted(&self) -> &Scripted {
        &self.os
    }

    /// A dead thread executes nothing.
    fn acting(&self) -> MutexGuard<'static, State> {
        let state = self.os.state();
        let me = state.threads.iter().find(|t| t.identity == self.thread);
        let dead = me.is_none_or(|thread| thread.gone);
        if dead {
            drop(state);
            panic!("the script lets the dead act: {:?}", self.thread);
        }
        state
    }
}

impl Os for ScriptedOs {
    fn identity(&self) -> OsIdentity {
        self.os.machine.identity
    }

    fn now(&self) -> Duration {
        self.os.now()
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn gid(&self) -> u32 {
        1000
    }

    fn this_thread(&self) -> ThreadIdentity {
        self.thread
    }

    fn claim_presence(&self, id: u32) -> Result<Option<Presence>, OsError> {
        let alive = Arc::clone(&self.acting().process(self.thread.process).alive);
        let presences = Arc::clone(&self.os.machine.presences);
        let mut all = presences.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&id).is_some_and(|of| of.load(Ordering::SeqCst)) {
            return Ok(None);
        }
        all.insert(id, Arc::clone(&alive));
        drop(all);
        Ok(Some(Presence::new(Claimed {
            presences,
            id,
            alive,
        })))
    }

    fn claim_presence_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.claim_presence(id)
    }

    fn is_present(&self, id: u32) -> bool {
        let all = self.os.machine.presences.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        all.get(&id).is_some_and(|of| of.load(Ordering::SeqCst))
    }

    fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        // A lock that several processes may have is one presence for each of them.
        let pid = self.thread.process.pid;
        self.claim_presence(1 << 31 | u32::from(number) << 15 | pid)
    }

    fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        let all = self.os.machine.presences.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let first = 1 << 31 | u32::from(number) << 15;
        let mut users = all.range(first..first + (1 << 15));
        let is_used = users.any(|(_, of)| of.load(Ordering::SeqCst));
        Ok((!is_used).then(|| Presence::new(())))
    }

    fn tie_cord(&self, host: u32, generation: u32) -> Result<Presence, OsError> {
        let mut cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let tied = cords.entry((host, generation)).or_default();
        tied.push((self.os.clone(), self.thread.process));
        Ok(Presence::new(()))
    }

    fn pull_cord(&self, host: u32, generation: u32) -> bool {
        drop(self.acting());
        let tied = {
            let cords = self
                .os
                .machine
                .cords
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cords.get(&(host, generation)).cloned().unwrap_or_default()
        };
        let mut pulled = false;
        for (os, process) in tied {
            let handle = ScriptedHandle { os, process };
            // A process that refuses kills represents the first process of a PID namespace.
            pulled |= !handle.is_gone() && handle.send_kill();
        }
        pulled
    }

    fn finds_cord(&self, host: u32, generation: u32) -> bool {
        let cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cords.contains_key(&(host, generation))
    }

    fn has_cord_of_another(&self, _host: u32, _generation: u32) -> bool {
        false
    }

    fn maps_pod(&self, _process: ProcessIdentity) -> bool {
        true
    }

    fn remove_cord(&self, host: u32, generation: u32) {
        let mut cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cords.remove(&(host, generation));
    }

    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
        let state = self.acting();
        let mut processes = state.processes.iter();
        match processes.find(|known| known.identity == process) {
            Some(known) if known.gone => Ok(None),
            Some(known) if known.hidden => Err(OsError::Missing {
                what: "/proc of other processes",
                hint: "the script hides it".into(),
            }),
            Some(_) => Ok(Some(Box::new(ScriptedHandle {
                os: self.os.clone(),
                process,
            }))),
            None => Ok(None),
        }
    }

    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness {
        let state = self.acting();
        let hidden = |p: &&Process| p.identity == thread.process && p.hidden && !p.gone;
        if state.processes.iter().any(|process| hidden(&process)) {
            return Liveness::Unknown;
        }
        match state.threads.iter().find(|t| t.identity == thread) {
            Some(known) if !known.gone => Liveness::Exists,
            _ => Liveness::Gone,
        }
    }

    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError> {
        let mut state = self.acting();
        let seen = state.obituary(slot);
        if seen != Obituary::Vacant {
            return Ok(Err(seen));
        }
        state.obituaries[slot as usize].holder = self.thread.tid;
        Ok(Ok(()))
    }

    fn release_obituary(&self, slot: u32) {
        let mut state = self.acting();
        if state.obituaries[slot as usize].holder == self.thread.tid {
            state.obituaries[slot as usize] = Slot::default();
        }
    }

    fn obituary(&self, slot: u32) -> Obituary {
        self.acting().obituary(slot)
    }

    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        let mut state = self.acting();
        let clears = seen != Obituary::Vacant && state.obituary(slot) == seen;
        if clears {
            state.obituaries[slot as usize] = Slot::default();
        }
        clears
    }

    fn holder(&self, slot: u32) -> Option<ThreadIdentity> {
        let state = self.acting();
        let tid = state.obituaries[slot as usize].holder;
        let mut threads = state.threads.iter().rev();
        threads
            .find(|thread| thread.identity.tid == tid)
            .map(|thread| thread.identity)
    }

    fn clear_if_gone(&self, slot: u32) -> bool {
        let Some(holder) = self.holder(slot) else {
            return false;
        };
        let unmarked = !self.acting().obituaries[slot as usize].marked;
        let gone = unmarked && self.thread_liveness(holder) == Liveness::Gone;
        if gone {
            self.acting().obituaries[slot as usize] = Slot::default();
        }
        gone
    }

    fn bells(&self) -> &'static dyn Bells {
        self.os.machine.bells.get_or_init(|| self.os.clone())
    }

    /// If there is no news yet, time passes up to `timeout`, and with it what the script has in store.
    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        let until = self.acting().now + timeout;
        self.os.pass_time(until, || {
            let state = self.os.state();
            let same = |&(slot, tid): &(u32, u32)| state.obituary(slot) == Obituary::Held { tid };
            state.bells.get(&key).copied().unwrap_or(0) != seen || !held.iter().all(same)
        });
    }

    fn most_watched(&self) -> usize {
        127
    }

    fn wake_watchers(&self, slot: u32) {
        self.acting().wakes.push(slot);
    }
}

impl Bells for Scripted {
    fn read(&self, key: u64) -> u32 {
        self.state().bells.get(&key).copied().unwrap_or(0)
    }

    fn wait(&self, key: u64, seen: u32, timeout: Duration) {
        let until = self.now() + timeout;
        self.pass_time(until, || self.read(key) != seen);
    }

    fn ring(&self, key: u64) {
        let mut state = self.state();
        let bell = state.bells.entry(key).or_default();
        *bell = bell.wrapping_add(1);
    }
}

struct ScriptedHandle {
    os: Scripted,
    process: ProcessIdentity,
}

impl ProcessHandle for ScriptedHandle {
    fn identity(&self) -> ProcessIdentity {
        self.process
    }

    fn is_gone(&self) -> bool {
        self.os.state().process(self.process).gone
    }

    fn send_kill(&self) -> bool {
        let mut state = self.os.state();
        let process = state.process(self.process);
        if process.gone {
            return true;
        }
        if process.refuses {
            return false;
        }
        process.told_to_die = true;
        let dies = !process.unkillable;
        drop(state);
        if dies {
            self.os.kill_process(self.process);
        }
        true
    }

    fn wait_gone(&self, timeout: Duration) -> bool {
        let until = self.os.now() + timeout;
        self.os.pass_time(until, || self.is_gone());
        self.is_gone()
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scripted({})", self.machine.identity)
    }
}

impl fmt::Debug for ScriptedOs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} seen by {}", self.os, self.thread.tid)
    }
}

impl fmt::Debug for ScriptedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedHandle({})", self.process.pid)
    }
}
