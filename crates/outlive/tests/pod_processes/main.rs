//! Pods of real processes: they join, die of SIGKILL, are stopped and fenced, and the others
//! continue.
//!
//! A child is this test program again, with a role in its environment.

mod barrier;
mod child;
mod deaths;
mod fenced;
mod leaving;
mod owed;
mod work;

use outlive::membership::{Event, EventKind, GroupEvents, News, ProcessOptions, Settings};
use outlive::pod::{Pod, PodOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit for conditions that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pod that is destroyed, and its children killed, when the test ends.
struct Scene {
    path: PathBuf,
    pod: Pod,
    children: Vec<Child>,
}

fn settings() -> Settings {
    Settings {
        uid: rustix::process::geteuid().as_raw(),
        heartbeat: Duration::from_millis(10),
        poll: Duration::from_millis(20),
        ..Settings::default()
    }
}

impl Scene {
    fn new(settings: Settings) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "/dev/shm/outlive-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let options = PodOptions::new()
            .size(4 << 20)
            .ids(64)
            .groups(2)
            .settings(settings)
            .without_heap();
        let pod = Pod::create(&name, options).expect("a pod in /dev/shm");
        Self {
            path: name.into(),
            pod,
            children: Vec::new(),
        }
    }

    /// Starts a child that plays `role` on `host`.
    fn child(&mut self, role: &str, host: u32) -> usize {
        let child = Command::new(std::env::current_exe().expect("a path"))
            .args(["child::play", "--exact", "--nocapture", "--test-threads=1"])
            .env("OUTLIVE_TEST_ROLE", role)
            .env("OUTLIVE_TEST_POD", &self.path)
            .env("OUTLIVE_TEST_HOST", host.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts again");
        self.children.push(child);
        self.children.len() - 1
    }

    fn kill(&mut self, child: usize) {
        self.children[child].kill().expect("a child can be killed");
    }

    fn join(&self, host: u32) -> outlive::membership::Process {
        self.pod
            .join(ProcessOptions::on_host(host).name("test"))
            .expect("joining")
    }

    /// Asserts that the pod's check is clean.
    fn assert_sound(&self) {
        let check = self.pod.check();
        assert!(check.is_clean(), "{:#?}", check.violations);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(error) = Pod::destroy_forcibly(&self.path)
            && !std::thread::panicking()
        {
            panic!("the pod could not be destroyed: {error}");
        }
    }
}

/// Waits until an event of `kind` about `id` is reported; returns it.
fn await_event(events: &mut GroupEvents, kind: EventKind, id: Option<u32>) -> Event {
    let until = Instant::now() + PATIENCE;
    let mut others = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match events.wait_for(left) {
            Some(News::Event(event))
                if event.kind == kind && id.is_none_or(|id| id == event.instance.id) =>
            {
                return event;
            }
            Some(other) => others.push(other),
            None => {}
        }
    }
    panic!("{kind:?} of {id:?} was not reported within {PATIENCE:?}; but {others:#?}");
}

/// Waits until `what` holds.
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
