//! The control process: starts child processes, watches them, and starts them again.

use super::place::{HostStanding, standing};
use super::plan::{AsParent, InPod, Plan, Step};
use super::report::{OnReport, log};
use super::{
    Launch, Launched, Lost, Outlook, Place, Placement, Report, RestartPolicy, Stop, Survivor,
    ThisMachine, What, fewest,
};
use crate::membership::{Instance, InstanceId, Level, Process, kill_process};
use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// How often the supervisor checks programs that have not joined, whose end is not reported.
const LOOK: Duration = Duration::from_millis(20);
/// How often the supervisor checks whether a child that has left the pod has ended.
const PENDING: Duration = Duration::from_millis(1);
/// The shortest time between two checks of a child that waits for a recovery.
const RECOVERING: Duration = Duration::from_micros(100);
/// The maximum time for killed children to end.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// A child process: its command and its host.
pub struct Child {
    id: InstanceId,
    host: InstanceId,
    policy: Option<RestartPolicy>,
    command: Box<dyn FnMut() -> Command + Send>,
}

impl Child {
    /// Creates the child that joins under `id`, meant for `host`. `command` makes the command for
    /// each start; the supervisor adds the child's [`Place`] to its environment.
    ///
    /// Give it no pipe to the supervisor: it has to survive the supervisor's death.
    pub fn new(
        id: InstanceId,
        host: InstanceId,
        command: impl FnMut() -> Command + Send + 'static,
    ) -> Self {
        Self {
            id,
            host,
            policy: None,
            command: Box::new(command),
        }
    }

    /// Sets the restart policy of this child, in place of the supervisor's.
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = Some(policy);
        self
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({} on host {})", self.id, self.host)
    }
}

/// The supervisor of a pod's processes (LUPIN §3.4: the control process).
///
/// It starts every child with an unused id, adopts those that live, and starts each again, under
/// the same id and so as the next generation, when it has died or failed and has been recovered.
/// When a host fails, its children are placed on hosts that have not.
///
/// If the supervisor dies, its children survive. Its successor (started by systemd, for example)
/// adopts them: it watches them like its own, but cannot learn their exit status, so a child that
/// leaves the pod in good order counts as finished. A child that had finished is started again by a
/// new supervisor, which knows only the live ones; a program that has nothing left to do reports
/// this by leaving again.
///
/// One supervisor acts at a time if it joins the pod under an id of its own, always the same: a
/// second one is refused while the first lives. So a standby is a second copy of the program that
/// tries to join until it succeeds.
///
/// ```no_run
/// use outlive::membership::ProcessOptions;
/// use outlive::pod::Pod;
/// use outlive::supervise::{Child, ProcessSupervisor};
/// use std::process::Command;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = "/dev/shm/shop";
/// let process = Pod::open(path)?.join(ProcessOptions::on_host(1).id(9).name("supervisor"))?;
/// let mut supervisor = ProcessSupervisor::new(process, path)
///     .child(Child::new(10, 2, || Command::new("/usr/bin/shop-orders")))
///     .child(Child::new(11, 3, || Command::new("/usr/bin/shop-stock")))
///     .on_report(|report| eprintln!("{report}"));
/// supervisor.run();
/// # Ok(())
/// # }
/// ```
pub struct ProcessSupervisor {
    process: Process,
    pod: OsString,
    policy: RestartPolicy,
    launch: Box<dyn Launch>,
    placement: Box<dyn Placement>,
    on_report: Option<OnReport>,
    hosts: Vec<InstanceId>,
    children: Vec<Supervised>,
    /// Launched programs that are no longer used, until they have ended.
    reaping: Vec<(InstanceId, Box<dyn Launched>)>,
    stop: Stop,
    began: Instant,
}

struct Supervised {
    child: Child,
    /// The host that it is on, or will be started on.
    host: InstanceId,
    plan: Plan,
    launched: Option<Box<dyn Launched>>,
    /// The exit status of the launched program if it has ended; `Some(None)` if unknown.
    ended: Option<Option<ExitStatus>>,
    /// The time since which the launched program has been out of the pod without having ended.
    ending: Option<Duration>,
    attempts: u32,
}

impl ProcessSupervisor {
    /// Creates a supervisor that acts as `process` in the pod called `pod`, the name under which
    /// the children open it.
    pub fn new(process: Process, pod: impl Into<OsString>) -> Self {
        Self {
            process,
            pod: pod.into(),
            policy: RestartPolicy::default(),
            launch: Box::new(ThisMachine),
            placement: Box::new(fewest),
            on_report: None,
            hosts: Vec::new(),
            children: Vec::new(),
            reaping: Vec::new(),
            stop: Stop::default(),
            began: Instant::now(),
        }
    }

    /// Sets the policy of children that have none of their own and are added after this call.
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Adds a child.
    ///
    /// # Panics
    /// If there already is one with its id.
    pub fn child(mut self, child: Child) -> Self {
        let id = child.id;
        assert!(
            self.children.iter().all(|known| known.child.id != id),
            "two children with the id {id}"
        );
        let host = child.host;
        self = self.host(host);
        self.children.push(Supervised {
            plan: Plan::new(child.policy.unwrap_or(self.policy)),
            host,
            child,
            launched: None,
            ended: None,
            ending: None,
            attempts: 0,
        });
        self
    }

    /// Adds a host for children of failed hosts, in addition to the hosts for which children were
    /// added. If none of these hosts is live, children are placed on the supervisor's own host.
    pub fn host(mut self, host: InstanceId) -> Self {
        if let Err(at) = self.hosts.binary_search(&host) {
            self.hosts.insert(at, host);
        }
        self
    }

    /// Sets how children are started on hosts. Default: [`ThisMachine`].
    pub fn launch(mut self, launch: impl Launch + 'static) -> Self {
        self.launch = Box::new(launch);
        self
    }

    /// Sets where children of failed hosts are placed. Default: [`fewest`].
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.placement = Box::new(placement);
        self
    }

    /// Sets the receiver of the reports, on the supervisor's thread. They go to `tracing` as well.
    pub fn on_report(mut self, receiver: impl FnMut(&Report) + Send + 'static) -> Self {
        self.on_report = Some(Box::new(receiver));
        self
    }

    /// Returns a handle that stops this supervisor. The children continue to run.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Supervises with the calling thread until every child is finished or given up, or the
    /// supervisor is stopped. Returns the outlook of each child. Children that are live continue to
    /// run, and another call supervises them again.
    pub fn run(&mut self) -> Vec<(InstanceId, Outlook)> {
        // Subscribed before the first look, so that every change after a look wakes us.
        let mut events = self.process.events();
        while !self.stop.is_stopped() {
            self.look();
            if self.settled() && self.reaping.is_empty() {
                break;
            }
            if events.wait_for(self.nap()).is_some() {
                // The tables say what happened; an event only says that something did.
                while events.poll().is_some() {}
            }
        }
        self.children
            .iter()
            .map(|child| (child.child.id, child.plan.outlook()))
            .collect()
    }

    /// Kills all live children, its own and adopted ones, and waits at most 5 s until they are
    /// gone. Returns those that it could not kill: on another operating system, not permitted, or
    /// in uninterruptible sleep.
    pub fn kill_children(&mut self) -> Vec<InstanceId> {
        let until = Instant::now() + LAST_BREATH;
        let left = || until.saturating_duration_since(Instant::now());
        for child in &mut self.children {
            if let Some(mut launched) = child.launched.take() {
                launched.kill();
                self.reaping.push((child.child.id, launched));
            }
        }
        let tables = self.process.tables();
        let lives = |child: &Supervised| match in_pod(&self.process, child.child.id) {
            Some(InPod::Lives { instance, .. }) => Some((child.child.id, instance)),
            _ => None,
        };
        let mut alive: Vec<_> = self.children.iter().filter_map(lives).collect();
        loop {
            // All are killed before any is waited for.
            alive.retain(|&(_, instance)| {
                !(is_here(&self.process, instance)
                    && kill_process(tables, self.process.os(), instance))
            });
            let waits = alive
                .iter()
                .any(|&(_, instance)| is_here(&self.process, instance));
            if !waits || left().is_zero() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let spared = alive.into_iter().map(|(id, _)| id).collect();
        while !self.reap() && !left().is_zero() {
            std::thread::sleep(Duration::from_millis(1));
        }
        spared
    }

    fn settled(&self) -> bool {
        self.children
            .iter()
            .all(|child| child.plan.outlook() != Outlook::Unsettled)
    }

    /// Returns how long to sleep without an event.
    fn nap(&self) -> Duration {
        let now = self.began.elapsed();
        if self.settled() {
            // Only killed programs are waited for.
            return PENDING;
        }
        // A child that has left the pod probably ends soon, without an event.
        let ending = |child: &Supervised| Some((now - child.ending?) / 8);
        let ending = self.children.iter().filter_map(ending).min();
        let longest = ending.map_or(LOOK, |nap| nap.clamp(PENDING, LOOK));
        self.children
            .iter()
            .filter_map(|child| child.plan.due())
            // A child that is due and has not been started waits for a recovery or a host, whose
            // end no event reports: mostly for a fraction of a millisecond, and forever if no
            // process can recover it.
            .map(|due| match due.checked_sub(now) {
                Some(nap) if !nap.is_zero() => nap,
                _ => ((now - due) / 4).clamp(RECOVERING, LOOK),
            })
            .min()
            .map_or(longest, |nap| nap.min(longest))
    }

    /// Checks all children once.
    fn look(&mut self) {
        for i in 0..self.children.len() {
            while self.step(i) {}
        }
        self.reap();
    }

    /// Takes the next step for child `i`. Returns whether there may be more to do.
    fn step(&mut self, i: usize) -> bool {
        let child = &mut self.children[i];
        let id = child.child.id;
        // Its end before the table: see `Plan::look`.
        let mut parent = child.as_parent(&self.process);
        let Some(seen) = in_pod(&self.process, id) else {
            return false;
        };
        if parent == AsParent::Runs && child.plan.shows_death(seen) {
            // It died between the two, and now its status is available.
            parent = child.as_parent(&self.process);
        }
        let mut same = false;
        if let InPod::Lives { instance, host } = seen {
            child.host = host;
            let pid = child.launched.as_ref().and_then(|launched| launched.pid());
            same = pid.is_some() && pid == pid_of(&self.process, instance);
        }
        let now = self.began.elapsed();
        let step = child.plan.look(now, seen, parent, same);
        let ending = parent == AsParent::Runs && child.plan.is_ending(seen);
        child.ending = ending.then(|| child.ending.unwrap_or(now));
        if !child.plan.is_launched()
            && let Some(mut launched) = child.launched.take()
            && child.ended.is_none()
        {
            launched.kill();
            self.reaping.push((id, launched));
        }
        match step {
            None => false,
            Some(Step::Tell(what)) => {
                self.report(id, what);
                true
            }
            Some(Step::Start) => self.choose_host(i).is_some_and(|host| {
                self.start(i, host, seen);
                true
            }),
        }
    }

    fn start(&mut self, i: usize, host: InstanceId, seen: InPod) {
        // Before the next incarnation overwrites the record that holds the previous one's end.
        self.reap();
        let child = &mut self.children[i];
        let id = child.child.id;
        let from = core::mem::replace(&mut child.host, host);
        let place = Place {
            pod: self.pod.clone(),
            host,
            id,
        };
        let mut command = (child.child.command)();
        place.to_env(&mut command);
        let launched = self.launch.launch(&place, command);
        let what = match launched {
            Ok(launched) => {
                child.launched = Some(launched);
                child.ended = None;
                child.plan.started(seen);
                child.attempts += 1;
                What::Started {
                    attempt: child.attempts - 1,
                    host,
                }
            }
            Err(error) => {
                let why = error.to_string();
                child.plan.not_started(self.began.elapsed(), why)
            }
        };
        if from != host {
            self.report(id, What::Moved { from, to: host });
        }
        self.report(id, what);
    }

    /// Returns the host on which child `i` is started now; `None` if the supervisor has to wait.
    fn choose_host(&mut self, i: usize) -> Option<InstanceId> {
        let tables = self.process.tables();
        let child = &self.children[i];
        let (id, host, home) = (child.child.id, child.host, child.child.host);
        match standing(tables, host) {
            HostStanding::Lives | HostStanding::Vacant => return Some(host),
            HostStanding::Unsettled => return None,
            HostStanding::Failed => {}
        }
        let mut load: BTreeMap<InstanceId, usize> = self
            .hosts
            .iter()
            .filter(|host| standing(tables, **host) == HostStanding::Lives)
            .map(|host| (*host, 0))
            .collect();
        if load.is_empty() {
            load.insert(self.process.host().id, 0);
        }
        for other in self.children.iter().filter(|other| other.plan.runs()) {
            if let Some(children) = load.get_mut(&other.host) {
                *children += 1;
            }
        }
        let survivors: Vec<_> = load
            .into_iter()
            .map(|(host, children)| Survivor { host, children })
            .collect();
        self.placement.place(&Lost { id, host, home }, &survivors)
    }

    /// Reaps programs that have ended. Returns whether none is left.
    fn reap(&mut self) -> bool {
        let records = self.process.tables().records();
        self.reaping.retain_mut(|(id, launched)| {
            let ended = launched.try_wait();
            if let (Ok(Some(status)), Some(pid)) = (&ended, launched.pid()) {
                records.note_ended(*id, pid, status.into_raw());
            }
            matches!(ended, Ok(None))
        });
        self.reaping.is_empty()
    }

    fn report(&mut self, id: InstanceId, what: What) {
        let report = Report {
            id,
            level: Level::Process,
            what,
        };
        log(&report);
        if let Some(receiver) = &mut self.on_report {
            receiver(&report);
        }
    }
}

impl Supervised {
    fn as_parent(&mut self, process: &Process) -> AsParent {
        if let Some(status) = self.ended {
            return AsParent::Ended(status);
        }
        let Some(launched) = &mut self.launched else {
            return AsParent::Ended(None);
        };
        match launched.try_wait() {
            Ok(None) => return AsParent::Runs,
            Ok(Some(status)) => {
                self.ended = Some(Some(status));
                if let Some(pid) = launched.pid() {
                    let records = process.tables().records();
                    records.note_ended(self.child.id, pid, status.into_raw());
                }
            }
            // It was reaped elsewhere, or its end cannot be known.
            Err(error) => {
                tracing::warn!(
                    id = self.child.id, %error,
                    "the exit status of a child cannot be read"
                );
                self.ended = Some(None);
            }
        }
        AsParent::Ended(self.ended.flatten())
    }
}

/// Returns the table's view of `id`; `None` if the table is corrupt there, which is not for a
/// supervisor to judge.
fn in_pod(process: &Process, id: InstanceId) -> Option<InPod> {
    let tables = process.tables();
    if id >= tables.extent().ids {
        return Some(InPod::Unusable("the pod has no such id"));
    }
    let state = tables.generations().state(id).ok()?;
    Some(InPod::of(id, state))
}

/// Returns whether `instance` runs on the supervisor's own operating system.
fn is_here(process: &Process, instance: Instance) -> bool {
    let tables = process.tables();
    let os_of = |id| {
        let state = tables.generations().state(id).ok()?;
        tables.os_of(state)
    };
    os_of(instance.id).is_some_and(|os| os_of(process.instance().id) == Some(os))
}

/// Returns the process id of `instance`, if it runs on the supervisor's own operating system.
fn pid_of(process: &Process, instance: Instance) -> Option<u32> {
    let record = process.tables().records().read(instance)?;
    is_here(process, instance).then_some(record.thread.process.pid)
}

impl fmt::Debug for ProcessSupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSupervisor")
            .field("process", &self.process)
            .field("pod", &self.pod)
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}
