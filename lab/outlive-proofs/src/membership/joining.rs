//! Joining and leaving, killed at their instructions and system calls: real processes over real
//! pods.

use core::time::Duration;
use outlive::membership::{JoinPoint, LeavePoint, ProcessOptions, Settings, Status, steps};
use outlive::pod::{Pod, PodOptions};
use outlive_prove::kill::{Crash, PointKind, RealSweep, Suite, Window};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    suite.add_real(ComeAndGo);
    suite.add_real(ComeAndClose);
}

/// A host, a process and a thread join and leave. Wherever they die, survivors detect it, nothing
/// stays claimed, and all three ids can be joined again.
pub struct ComeAndGo;

/// A whole process comes and goes as programs do: it opens the pod, joins, leaves and closes it,
/// with the side file, the presence, the cord and the threads that belong to that. Survivors detect
/// its death, its ids can be joined again, and nothing of the pod is left when it is destroyed.
pub struct ComeAndClose;

/// A pod in /dev/shm that is destroyed with its last user.
pub struct World {
    path: PathBuf,
    /// The pod's number, as in the names of its files.
    number: String,
}

impl World {
    fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/outlive-sweep-{}-{number}", std::process::id());
        let settings = Settings {
            heartbeat: Duration::from_millis(2),
            poll: Duration::from_millis(4),
            uid: rustix::process::geteuid().as_raw(),
            ..Settings::default()
        };
        let options = PodOptions::new()
            .size(1 << 20)
            .ids(16)
            .groups(1)
            .events(64)
            .settings(settings);
        let pod = Pod::create(&path, options).map_err(|error| error.to_string())?;
        Ok(Self {
            path: path.into(),
            number: format!("{:032x}", pod.segment().uuid().as_u128()),
        })
    }

    /// Returns the pod's number, as in the names of its files.
    pub fn number(&self) -> &str {
        &self.number
    }

    /// Returns the files in /dev/shm that are named after the pod.
    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir("/dev/shm").into_iter().flatten();
        let paths = files.flatten().map(|file| file.path());
        paths
            .filter(|path| path.to_string_lossy().contains(&self.number))
            .collect()
    }

    /// Waits, as a survivor, until the victim's ids are given up, and joins them again.
    fn recover(&self, ids: &[u32], window: Window, crash: &Crash) {
        let pod = Pod::open(&self.path).expect("the pod opens");
        window.begin();
        let options = ProcessOptions::on_host(0).name("survivor");
        let process = pod.join(options).expect("the survivor joins");
        let generations = pod.tables().generations();
        // The victim's ids, which a recoverer that died may have joined too, are given up.
        let until = Instant::now() + PATIENCE;
        for &id in ids {
            while generations
                .state(id)
                .is_ok_and(|state| state.status.may_write() || state.status == Status::Dead)
            {
                assert!(
                    Instant::now() < until,
                    "id {id} stays claimed ({})",
                    crash.at
                );
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        // They are available again, the thread's with a log of its own.
        let member = process
            .enter(Some(THREAD), "again")
            .expect("its id is free");
        drop(member);
        process.leave().expect("no member is left");
        let again = pod
            .join(ProcessOptions::on_host(HOST).id(PROCESS))
            .expect("the host and the process come back");
        again.leave().expect("no member is left");
    }

    fn check(&self) -> Result<(), String> {
        let pod = Pod::open(&self.path).map_err(|error| error.to_string())?;
        let check = pod.check();
        // This is the counting process: without the close it would keep thousands of descriptors.
        pod.close().map_err(|error| error.to_string())?;
        if !check.is_clean() {
            return Err(format!("{:?}", check.violations));
        }
        if check.alive != 0 {
            return Err(format!("{} ids are alive, but no member is", check.alive));
        }
        Ok(())
    }

    fn destroy(&self) {
        // The kernel may still be ending a victim, which holds its lock on the side file until
        // then.
        let until = Instant::now() + PATIENCE;
        while self.path.exists()
            && Pod::destroy_forcibly(&self.path).is_err()
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.destroy();
        for file in self.files() {
            let _ = std::fs::remove_file(file);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const HOST: u32 = 1;
const PROCESS: u32 = 5;
const THREAD: u32 = 9;

impl RealSweep for ComeAndGo {
    type World = World;

    fn name(&self) -> String {
        "instance.join and leave".into()
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<JoinPoint>(), PointKind::of::<LeavePoint>()]
    }

    fn prepare(&self) -> Result<World, String> {
        World::new()
    }

    fn operate(&self, world: &World, window: Window) {
        let pod = Pod::open(&world.path).expect("the pod opens");
        let os = pod.os().expect("an operating system");
        let identity = pod.identity().expect("an operating system");
        let tables = pod.tables().through(window.mark(pod.segment().memory()));
        window.begin();
        steps::come_and_go(tables, os, identity, HOST, PROCESS, THREAD)
            .expect("nothing is in the way");
        window.end();
    }

    fn recover(&self, world: &World, window: Window, crash: &Crash) {
        world.recover(&[HOST, PROCESS, THREAD], window, crash);
    }

    fn check(&self, world: &World, _crash: &Crash) -> Result<(), String> {
        world.check()
    }
}

impl RealSweep for ComeAndClose {
    type World = World;

    fn name(&self) -> String {
        "pod.join, leave and close".into()
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        Vec::new()
    }

    fn prepare(&self) -> Result<World, String> {
        World::new()
    }

    fn operate(&self, world: &World, window: Window) {
        window.begin();
        let pod = Pod::open(&world.path).expect("the pod opens");
        let options = ProcessOptions::on_host(HOST).id(PROCESS);
        let process = pod.join(options).expect("the host and the process come");
        process.leave().expect("no member is left");
        pod.close().expect("nothing is in use");
        window.end();
    }

    fn recover(&self, world: &World, window: Window, crash: &Crash) {
        world.recover(&[HOST, PROCESS], window, crash);
    }

    fn check(&self, world: &World, _crash: &Crash) -> Result<(), String> {
        world.check()?;
        world.destroy();
        let left = world.files();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?} is left of a pod that was destroyed")),
        }
    }
}
