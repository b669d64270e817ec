//! Servers of databases for the tests: started on free ports of the loopback interface, in
//! temporary directories, killed and started again, and removed at the end.
//!
//! A server that is dropped is killed with all its processes, also if the test fails. If the test's
//! own process is killed, the kernel kills the server (`setpriv --pdeathsig`).

use crate::ports;
use outlive_litmus::driver::{self, Driver};
use outlive_litmus::run::Outage;
use rustix::process::{Pid, Signal};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time in which a server starts or ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directory and the port of a server.
pub struct Place {
    /// A directory, which is empty at first and belongs to the user of the server.
    pub directory: PathBuf,
    /// The ports of 127.0.0.1 that the server listens on.
    pub ports: Vec<u16>,
}

impl Place {
    /// Returns the port of a server that has one.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Returns a path in the directory, as text for an argument.
    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// A program that serves a database.
pub trait Program: Send + Sync {
    /// Returns the programs that have to be installed.
    fn needs(&self) -> Vec<&'static str>;

    /// Returns the number of ports that the server listens on.
    fn ports(&self) -> usize {
        1
    }

    /// Returns the command that prepares the directory, if there is one.
    fn prepare(&self, place: &Place) -> Option<Vec<String>>;

    /// Returns the command that serves in the foreground. A command is the name of one of the
    /// programs in [`needs`](Self::needs), and its arguments.
    fn serve(&self, place: &Place) -> Vec<String>;

    /// Returns the target of `outlive litmus`, to which parameters can be added.
    fn target(&self, place: &Place) -> String;

    /// Removes resources outside of the directory, after the server was killed.
    fn clean(&self, _place: &Place) {}
}

/// A running server.
pub struct Server {
    program: Box<dyn Program>,
    place: Place,
    child: Mutex<Option<Child>>,
    _directory: TempDir,
}

impl Server {
    /// Starts a server, and waits until it accepts connections. Returns `None`, with a message, if
    /// its programs are not installed; with `OUTLIVE_REQUIRE_SERVERS` in the environment, the test
    /// fails then, so that a machine that must run it cannot skip it unnoticed.
    pub fn start(program: impl Program + 'static) -> Option<Self> {
        let needed = [program.needs(), vec!["setpriv"]].concat();
        if let Some(missing) = needed.iter().find(|it| find(it).is_none()) {
            let is_required = std::env::var_os("OUTLIVE_REQUIRE_SERVERS").is_some();
            assert!(!is_required, "`{missing}` is required, and not installed");
            eprintln!("skipped: `{missing}` is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        if let Some([uid, gid]) = user() {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut server = Self {
            program: Box::new(program),
            place: Place {
                directory: directory.path().into(),
                ports: Vec::new(),
            },
            child: Mutex::new(None),
            _directory: directory,
        };
        if let Some(prepare) = server.program.prepare(&server.place) {
            let status = server.command(&prepare).status().unwrap();
            assert!(status.success(), "{prepare:?}: {}", server.log());
        }
        // Another process can take a free port before the server does.
        for _ in 0..3 {
            let ports = 0..server.program.ports();
            server.place.ports = ports.map(|_| ports::next()).collect();
            match server.recover() {
                Ok(()) => return Some(server),
                Err(reason) => eprintln!("{reason}"),
            }
        }
        panic!("the server does not start: {}", server.log());
    }

    /// Returns the target of the server, with parameters such as `isolation=serializable`.
    pub fn target(&self, parameters: &str) -> String {
        format!("{}?{parameters}", self.program.target(&self.place))
    }

    /// Returns the driver for the server with these parameters.
    pub fn driver(&self, parameters: &str) -> Arc<dyn Driver> {
        Arc::from(driver::open(&self.target(parameters)).unwrap())
    }

    fn command(&self, command: &[String]) -> Command {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL"]);
        if let Some([uid, gid]) = user() {
            setpriv
                .arg(format!("--reuid={uid}"))
                .arg(format!("--regid={gid}"));
            setpriv.arg("--clear-groups");
        }
        let log = || {
            let path = self.place.path("log");
            fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .unwrap()
        };
        setpriv
            .arg("--")
            .arg(find(&command[0]).unwrap())
            .args(&command[1..])
            .current_dir(&self.place.directory)
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log());
        setpriv
    }

    /// Returns the last lines that the server has printed.
    fn log(&self) -> String {
        let log = fs::read(self.place.path("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage for Server {
    /// Kills all processes of the server at once.
    fn kill(&self) -> Result<(), String> {
        match self.child().take() {
            Some(child) => kill(child),
            None => Ok(()),
        }
    }

    /// Starts the server, and waits until it accepts connections. Its process is killed when the
    /// thread ends.
    fn recover(&self) -> Result<(), String> {
        let command = self.command(&self.program.serve(&self.place)).spawn();
        *self.child() = Some(command.map_err(|it| it.to_string())?);
        let begin = Instant::now();
        let target = self.program.target(&self.place);
        let driver = driver::open(&target).map_err(|it| it.to_string())?;
        loop {
            let Err(error) = driver.connect() else {
                return Ok(());
            };
            let ended = self.child().as_mut().map(|it| it.try_wait().unwrap());
            if !matches!(ended, Some(None)) || begin.elapsed() > PATIENCE {
                self.kill()?;
                return Err(format!("{target} does not serve: {error}: {}", self.log()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let killed = self.kill();
        self.program.clean(&self.place);
        if !thread::panicking() {
            killed.unwrap();
        }
    }
}

/// Kills a process and its descendants, and waits for their ends.
fn kill(mut child: Child) -> Result<(), String> {
    let begin = Instant::now();
    let wait = |until: &dyn Fn() -> bool, problem: &str| {
        while !until() {
            if begin.elapsed() > PATIENCE {
                return Err(problem.to_string());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let main = child.id();
    // A stopped process starts no others.
    signal(main, Signal::STOP);
    let stopped = wait(
        &|| status(main).is_none_or(|(state, _)| matches!(state, 'T' | 'Z' | 'X')),
        "the server does not stop",
    );
    let mut all = vec![main];
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        all.extend(children(parent));
        at += 1;
    }
    all.iter().for_each(|it| signal(*it, Signal::KILL));
    child.wait().map_err(|it| it.to_string())?;
    let is_over = || !all[1..].iter().any(|it| is_alive(*it));
    stopped.and(wait(&is_over, "a process of the server does not end"))
}

/// Sends a signal to a process, which may have ended.
fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Returns the state of a process and its parent.
fn status(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, can contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn is_alive(pid: u32) -> bool {
    status(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    pids.filter(|it| status(*it).is_some_and(|(_, its)| its == parent))
        .collect()
}

/// Returns the path of an installed program.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    // Debian has a directory for each version of PostgreSQL.
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<_> = versions.flatten().map(|it| it.path().join("bin")).collect();
        versions.sort();
        places.extend(versions.into_iter().rev());
    }
    let mut places = places.into_iter().map(|it| it.join(program));
    places.find(|it| it.is_file())
}

/// Returns the ids of the user that executes the servers, and of its group, if the test is executed
/// by root: some servers refuse root.
fn user() -> Option<[u32; 2]> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(["-u", "-g"].map(|option| {
        let output = Command::new("id")
            .args([option, "nobody"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().unwrap()
    }))
}

/// Splits a command at its spaces.
pub fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(String::from).collect()
}
