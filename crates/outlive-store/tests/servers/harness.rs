//! Servers in processes of their own, and the files of a store.

use super::{LIMIT, PATH, ROLE};
use outlive_store::servers::{Store, StoreOptions, StoreStatus};
use outlive_store::verbs::{Batch, Connection, RemoteOffset, VerbError, block_on};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Server {
    pub child: Child,
    input: Option<ChildStdin>,
    pub output: BufReader<ChildStdout>,
}

impl Server {
    pub fn spawn(role: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = { command.args(["server", "--exact", "--nocapture"]) }
            .env(ROLE, role)
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    /// Starts a server. Returns it with its number when it is live.
    pub fn start(role: &str, path: &Path) -> (Self, u16) {
        let mut server = Self::spawn(role, path);
        let mut line = String::new();
        while server.output.read_line(&mut line).unwrap() > 0 {
            if let Some(id) = line.trim().strip_prefix("serves ") {
                return (server, id.parse().unwrap());
            }
            line.clear();
        }
        panic!("the server did not start");
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops all its threads. (A signal alone is on its way for as long as the thread that takes it
    /// waits for a processor.)
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets a memory server leave, and waits until it has ended.
    pub fn leave(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Place(pub std::path::PathBuf);

impl Place {
    pub fn new(name: &str, options: StoreOptions) -> (Self, Store) {
        let path = format!("/dev/shm/outlive-store-{name}-{}", std::process::id());
        let store = Store::create(&path, options.members(64)).unwrap();
        (Self(path.into()), store)
    }

    /// Returns the number of files of memory servers.
    pub fn segments(&self) -> usize {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let prefix = format!("{name}.");
        let files = std::fs::read_dir(self.0.parent().unwrap()).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        { names.filter(|it| it.to_str().is_some_and(|it| it.starts_with(&prefix))) }.count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Store::destroy(&self.0);
    }
}

pub fn read(server: &impl Connection, at: u64) -> Result<u64, VerbError> {
    let mut batch = Batch::new();
    let slot = batch.read(RemoteOffset::new(at), 1);
    let done = block_on(server.post(batch)).finished()?;
    Ok(done.value(slot))
}

/// Waits until `holds` is true for the status, and returns that status.
pub fn await_status(store: &Store, holds: impl Fn(&StoreStatus) -> bool) -> StoreStatus {
    let begin = Instant::now();
    loop {
        let status = store.status();
        if holds(&status) {
            return status;
        }
        assert!(begin.elapsed() < LIMIT, "{status:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
