//! A pod for each test, and the roles that this program plays as a child.

use outlive::membership::{
    Instance, InstanceId, JoinError, Level, Process, ProcessOptions, Status,
};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::supervise::{Child, Place, ProcessSupervisor, RestartPolicy};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit of every step.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest life of a test's process, in seconds.
const LIFE: u32 = 100;

const PART: &str = "SUPERVISE_TEST_PART";
const REPORTS: &str = "SUPERVISE_TEST_REPORTS";

/// The supervisor's own host and id.
pub const OFFICE: InstanceId = 1;
pub const SUPERVISOR: InstanceId = 9;

/// Restarts come fast enough for a test.
pub fn brisk(most: u32) -> RestartPolicy {
    RestartPolicy {
        most,
        window: Duration::from_secs(60),
        backoff: Duration::from_millis(1),
        longest: Duration::from_millis(10),
    }
}

/// A pod that is removed, with all of its members, when the test ends.
pub struct Stage {
    pub path: PathBuf,
    pub pod: Pod,
}

impl Stage {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the alarm's only effect is to end this process.
        unsafe { libc::alarm(LIFE) };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!(
            "/dev/shm/outlive-test-supervise-{}-{number}",
            std::process::id()
        ));
        let pod = Pod::create(&path, PodOptions::new().size(8 << 20).ids(64).groups(1)).unwrap();
        Self { path, pod }
    }

    /// Joins the pod with this process.
    pub fn join(&self, id: InstanceId) -> Process {
        join(&self.pod, OFFICE, id)
    }

    /// A supervisor in this process.
    pub fn supervisor(&self) -> ProcessSupervisor {
        ProcessSupervisor::new(self.join(SUPERVISOR), &self.path)
    }

    /// Starts `part` with `place` in the environment and without a supervisor.
    pub fn start(&self, part: &str, id: InstanceId, host: InstanceId) -> std::process::Child {
        let mut command = program(part);
        let pod = self.path.clone().into();
        Place { pod, host, id }.to_env(&mut command);
        command.env(REPORTS, self.reports());
        command.spawn().unwrap()
    }

    fn reports(&self) -> PathBuf {
        self.path.with_extension("reports")
    }

    /// Returns the reports of the supervisors in processes of their own, a line each.
    pub fn reported(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.reports()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the live incarnation of `id`.
    pub fn lives(&self, id: InstanceId) -> Option<Instance> {
        let state = self.pod.tables().generations().state(id).unwrap();
        (state.status == Status::Live).then(|| Instance::new(id, state.generation))
    }

    pub fn host_of(&self, id: InstanceId) -> InstanceId {
        let state = self.pod.tables().generations().state(id).unwrap();
        state.host.into()
    }

    pub fn status(&self, id: InstanceId) -> Status {
        self.pod.tables().generations().state(id).unwrap().status
    }

    /// Waits until `id` lives in a later generation than `after`.
    pub fn next(&self, id: InstanceId, after: u32) -> Instance {
        wait_for(&format!("{id} to live after generation {after}"), || {
            self.lives(id).filter(|found| found.generation > after)
        })
    }

    fn pid(&self, instance: Instance) -> Option<u32> {
        let record = self.pod.tables().records().read(instance)?;
        Some(record.thread.process.pid)
    }

    /// Kills the process `instance`; returns its pid.
    pub fn kill(&self, instance: Instance) -> u32 {
        let pid = self.pid(instance).unwrap();
        assert_ne!(pid, std::process::id());
        // SAFETY: a signal to a process that this test started.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
        pid
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let tables = self.pod.tables();
        let others: Vec<_> = tables
            .writers()
            .filter(|(_, state)| state.level == Some(Level::Process))
            .filter_map(|(id, state)| self.pid(Instance::new(id, state.generation)))
            .filter(|pid| *pid != std::process::id())
            .collect();
        for pid in &others {
            // SAFETY: a signal to a process that this test started and that is still a member.
            unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
        }
        let until = Instant::now() + PATIENCE;
        while others.iter().any(|pid| is_running(*pid)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = std::fs::remove_file(self.reports());
        let destroyed = Pod::destroy_forcibly(&self.path);
        if !std::thread::panicking() {
            destroyed.unwrap();
        }
    }
}

fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// Waits until `look` finds something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Joins, as soon as the id's last incarnation is recovered.
fn join(pod: &Pod, host: InstanceId, id: InstanceId) -> Process {
    wait_for("an id to be free", || {
        match pod.join(ProcessOptions::on_host(host).id(id)) {
            Ok(process) => Some(process),
            Err(PodError::Join(JoinError::InUse { .. } | JoinError::NotRecovered { .. })) => None,
            Err(error) => panic!("{error}"),
        }
    })
}

/// This program, to play `part`.
pub fn program(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "stage::program_of_children", "--nocapture"])
        .env(PART, part)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

#[test]
fn program_of_children() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    // SAFETY: the alarm's only effect is to end this process.
    unsafe { libc::alarm(LIFE) };
    let place = Place::from_env().unwrap();
    let pod = Pod::open(Path::new(&place.pod)).unwrap();
    let joined = || {
        pod.join(ProcessOptions::on_host(place.host).id(place.id))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    match part.as_str() {
        // A member for as long as it lives.
        "stay" => {
            let _process = joined();
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        "leave" => joined().leave().unwrap(),
        "leave and fail" => {
            joined().leave().unwrap();
            std::process::exit(3);
        }
        "succeed without leaving" => {
            let _process = joined();
            std::process::exit(0);
        }
        "fail before joining" => std::process::exit(4),
        "threads" => super::threads::threads_that_the_kernel_ends(&joined()),
        "supervise" => supervise(&pod, &place),
        other => panic!("there is no role {other}"),
    }
}

/// A supervisor in a process of its own, which writes down what it reports.
fn supervise(pod: &Pod, place: &Place) {
    let mut reports = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(std::env::var_os(REPORTS).unwrap())
        .unwrap();
    ProcessSupervisor::new(join(pod, place.host, place.id), &place.pod)
        .policy(brisk(5))
        .child(Child::new(10, 2, || program("stay")))
        .child(Child::new(11, 3, || program("stay")))
        .on_report(move |report| writeln!(reports, "{report}").unwrap())
        .run();
}
