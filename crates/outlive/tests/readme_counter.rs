//! The README's program, run as the README says: processes are killed and stopped at any moment,
//! and the count goes on.

mod pod_file;

use outlive::membership::ProcessOptions;
use outlive::pod::Pod;
use outlive::sync::RecoverableMutex;
use pod_file::PodFile;
use std::error::Error;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The time limit of each step.
const LIMIT: Duration = Duration::from_secs(60);
const HOSTS: u32 = 3;

#[path = "../examples/counter.rs"]
mod counter;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args()
        .nth(1)
        .is_some_and(|path| path.starts_with("/dev/shm/"))
    {
        return counter::main();
    }
    let readme = include_str!("../../../README.md");
    let transfer = include_str!("../examples/transfer.rs");
    let counter = include_str!("../examples/counter.rs").replace(
        "/// Creates the pod, or counts in it forever.\npub fn main",
        "fn main",
    );
    let words = include_str!("../examples/words.rs");
    for program in [transfer, words, &counter] {
        let (_, program) = program.split_once("\n\n").expect("a head");
        assert!(readme.contains(program), "the README has another program");
    }
    let (done, ended) = channel();
    let tester = std::thread::spawn(move || {
        hosts_that_are_killed_or_stopped_hold_nobody_up();
        done.send(()).unwrap();
    });
    if ended.recv_timeout(4 * LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("not within {:?}", 4 * LIMIT);
    }
    tester.join().map_err(|_| "it failed".into())
}

/// A process of the program, killed when this is dropped.
struct Host(Child);

impl Host {
    fn start(path: &str, what: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self(
            command
                .args([path, what])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    fn ends(&mut self) -> ExitStatus {
        let until = Instant::now() + LIMIT;
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(Instant::now() < until, "it was not ended within {LIMIT:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hosts_that_are_killed_or_stopped_hold_nobody_up() {
    let place = PodFile::new("readme");
    let path = &place.0;
    assert!(Host::start(path, "create").ends().success());
    let mut hosts: Vec<_> = (0..HOSTS)
        .map(|host| Host::start(path, &host.to_string()))
        .collect();
    let pod = Pod::open(path).unwrap();
    let process = pod.join(ProcessOptions::on_host(HOSTS)).unwrap();
    {
        let member = process.enter(None, "test").unwrap();
        let at = pod.payload().unwrap().offset;
        let counter = RecoverableMutex::<u64>::at(pod.segment().memory(), at);
        let count = || *counter.lock(&member).unwrap();
        let goes_on = || {
            let (before, until) = (count(), Instant::now() + LIMIT);
            while count() < before + 1000 {
                assert!(Instant::now() < until, "no process counts");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        goes_on();
        for round in 0..2 * HOSTS {
            let id = round % HOSTS;
            let host = &mut hosts[id as usize];
            // In turn the host is killed, or it is stopped and another host kills it.
            host.signal(if round % 2 == 0 {
                libc::SIGKILL
            } else {
                libc::SIGSTOP
            });
            assert_eq!(host.ends().signal(), Some(libc::SIGKILL));
            goes_on();
            *host = Host::start(path, &id.to_string());
        }
    }
    drop(hosts);
    process.leave().unwrap();
}
