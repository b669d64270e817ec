//! A guest: a virtual machine of QEMU, its monitor, a shell in it, and the lines that it writes.

use super::needs::Needs;
use crate::{Run, StudyError};
use outlive_run::driver::die_with;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The parameters with which every guest of a laboratory is started.
pub struct Machine {
    pub needs: Needs,
    /// The directory of the guests' sockets.
    pub directory: PathBuf,
    /// The archive with the files of a guest.
    pub archive: PathBuf,
    /// The environment of a guest's first process, as words of the kernel's command line.
    pub environment: String,
    /// The memory of a guest, in MiB.
    pub memory: u64,
    /// The file that is the memory shared by all guests, and its size in MiB.
    pub shared: (PathBuf, u64),
}

/// A line that a guest has written.
#[derive(Clone, Debug)]
pub struct Heard {
    pub guest: &'static str,
    pub port: Port,
    pub line: String,
    pub at: Instant,
}

/// The serial port of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Requests of its fence command.
    Fence,
    /// Output of its programs.
    News,
}

/// A running guest. A drop kills it.
pub struct Guest {
    pub name: &'static str,
    qemu: Child,
    shell: Lines,
    monitor: Lines,
    fence: UnixStream,
    /// The time from its start until its shell was ready.
    pub boot: Duration,
    pub started: Instant,
}

/// The time that a command of its shell may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// The time that a guest may take to start. It takes seconds, but a kernel on an emulated processor
/// may stand still before its first line: then the guest is started again.
const BOOT: Duration = Duration::from_secs(60);
const STARTS: usize = 3;
/// The interval at which an interruption is checked.
const INTERVAL: Duration = Duration::from_millis(50);

impl Guest {
    /// Starts a guest, and waits until its shell is ready. Its lines are sent to `heard`.
    ///
    /// # Errors
    /// If it does not start in three attempts.
    pub fn start(
        run: &Run<'_>,
        machine: &Machine,
        name: &'static str,
        heard: &Sender<Heard>,
    ) -> Result<Self, StudyError> {
        let mut starts = 1;
        loop {
            match Self::start_once(run, machine, name, heard) {
                Err(StudyError::Void { .. }) if starts < STARTS => starts += 1,
                result => return result,
            }
        }
    }

    fn start_once(
        run: &Run<'_>,
        machine: &Machine,
        name: &'static str,
        heard: &Sender<Heard>,
    ) -> Result<Self, StudyError> {
        let socket = |port: &str| machine.directory.join(format!("{name}-{port}"));
        let ports = ["monitor", "shell", "fence", "news"].map(socket);
        for socket in &ports {
            let _ = std::fs::remove_file(socket);
        }
        let serve = |socket: &Path| format!("path={},server=on,wait=off", socket.display());
        let [monitor, shell, fence, news] = ports.each_ref().map(|socket| serve(socket));
        let console = machine.directory.join(format!("{name}-console"));
        let (shared, size) = &machine.shared;
        let mut command = Command::new(&machine.needs.qemu);
        command
            .args(["-machine", "pc", "-accel", "tcg,thread=multi"])
            // With one processor, the guest's atomic instructions would not be atomic for the other
            // guest.
            .args(["-cpu", "max", "-smp", "2"])
            .args(["-m", &machine.memory.to_string()])
            .args(["-nodefaults", "-nographic", "-no-reboot"])
            .arg("-kernel")
            .arg(&machine.needs.kernel)
            .arg("-initrd")
            .arg(&machine.archive)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 earlyprintk=ttyS0 panic=-1 {}",
                machine.environment
            ))
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=pod,share=on,size={size}M,mem-path={}",
                shared.display()
            ))
            .args(["-device", "ivshmem-plain,memdev=pod"])
            .args(["-chardev", &format!("socket,id=monitor,{monitor}")])
            .args(["-mon", "chardev=monitor,mode=control"])
            .args(["-serial", &format!("file:{}", console.display())]);
        // Each has an interrupt of its own: of those that share one, as they do by default, some
        // are lost, and characters with them.
        let lines = [
            ("shell", &shell, 3),
            ("fence", &fence, 6),
            ("news", &news, 7),
        ];
        for (index, (port, socket, interrupt)) in (1..).zip(lines) {
            let device = format!("isa-serial,chardev={port},index={index},irq={interrupt}");
            command.args(["-chardev", &format!("socket,id={port},{socket}")]);
            command.args(["-device", &device]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // A process group of its own, so that Ctrl-C interrupts only the study.
            .process_group(0);
        let parent = std::process::id();
        // SAFETY: after the fork the closure makes two system calls, and allocates only to fail.
        unsafe { command.pre_exec(move || die_with(parent)) };
        let started = Instant::now();
        let program = machine.needs.qemu.display();
        let qemu = command.spawn();
        let mut qemu = Killed(Some(
            qemu.map_err(StudyError::io(format!("starting {program}")))?,
        ));
        let [monitor, shell, fence, news] = ports;
        let mut connect = |socket: &Path| qemu.connect(run, socket, &console);
        let (monitor, shell) = (Lines::new(connect(&monitor)?), Lines::new(connect(&shell)?));
        let (fence, news) = (connect(&fence)?, connect(&news)?);
        let tell = |port, stream: &UnixStream| tell(name, port, stream, heard.clone());
        tell(Port::Fence, &fence)?;
        tell(Port::News, &news)?;
        let mut guest = Self {
            name,
            qemu: qemu.keep(),
            shell,
            monitor,
            fence,
            boot: Duration::ZERO,
            started,
        };
        guest.monitor.next(run, started + BOOT)?;
        guest.ask_monitor(run, "qmp_capabilities")?;
        let ready = guest.shell.next(run, started + BOOT);
        guest.boot = started.elapsed();
        match ready {
            Ok(line) if line == "ready" => Ok(guest),
            Ok(line) => Err(guest.failed(format!("its shell says {line:?} when it starts"))),
            Err(StudyError::Stopped) => Err(StudyError::Stopped),
            Err(error) => {
                let said = std::fs::read(&console).unwrap_or_default();
                let said =
                    String::from_utf8_lossy(&said[said.len().saturating_sub(2000)..]).into_owned();
                Err(guest.failed(format!(
                    "it does not start ({STARTS} times): {error}; its console says {said:?}"
                )))
            }
        }
    }

    /// Runs `command` in its shell. Returns the output.
    ///
    /// # Errors
    /// If its exit status is not 0, or it takes too long.
    pub fn shell(&mut self, run: &Run<'_>, command: &str) -> Result<String, StudyError> {
        match self.try_shell(run, command)? {
            (0, said) => Ok(said),
            (status, said) => {
                Err(self.failed(format!("`{command}` exits with {status}, saying: {said}")))
            }
        }
    }

    /// Runs `command` in its shell. Returns the exit status and the output.
    pub fn try_shell(&mut self, run: &Run<'_>, command: &str) -> Result<(i32, String), StudyError> {
        let sent = format!("{}:{command}\n", command.len());
        self.shell.write(sent.as_bytes())?;
        let (until, mut said) = (Instant::now() + PATIENCE, String::new());
        loop {
            let line = match self.shell.next(run, until) {
                Ok(line) => line,
                Err(StudyError::Stopped) => return Err(StudyError::Stopped),
                Err(error) => {
                    return Err(
                        self.failed(format!("`{command}`: {error}; so far it says: {said}"))
                    );
                }
            };
            let status = line
                .strip_prefix("<<")
                .and_then(|line| line.strip_suffix(">>"));
            match status.map(|status| (status, status.parse())) {
                Some((_, Ok(status))) => return Ok((status, said)),
                // The serial port has lost a part of it, and nothing was executed.
                Some(("again", _)) => self.shell.write(sent.as_bytes())?,
                _ => said += &format!("{line}\n"),
            }
        }
    }

    /// Makes its monitor execute `command`, such as `stop` or `cont`.
    pub fn ask_monitor(&mut self, run: &Run<'_>, command: &str) -> Result<(), StudyError> {
        self.monitor
            .write(format!("{}\n", json!({ "execute": command })).as_bytes())?;
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.monitor.next(run, until)?;
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            if said.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = said.get("error") {
                return Err(self.failed(format!("its monitor refuses `{command}`: {error}")));
            }
        }
    }

    /// Ends it by its monitor, and waits until no process of it is left. Does nothing if it has
    /// ended.
    pub fn quit(&mut self) -> Result<(), StudyError> {
        // The monitor may end before it has answered, or may have ended before.
        let _ = self.monitor.write(b"{\"execute\":\"quit\"}\n");
        let until = Instant::now() + Duration::from_secs(5);
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        let _ = self.qemu.kill();
        let ended = self.qemu.wait();
        ended.map(drop).map_err(StudyError::io("waiting for QEMU"))
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.qemu.try_wait(), Ok(Some(_)))
    }

    /// Answers its fence command, which asked about `host`.
    pub fn answer(&mut self, host: &str, word: &str) -> Result<(), StudyError> {
        let line = format!("{word} {host}\n");
        let written = self.fence.write_all(line.as_bytes());
        written.map_err(StudyError::io("answering the fence command"))
    }

    pub fn failed(&self, what: String) -> StudyError {
        StudyError::void(format!("the guest {}: {what}", self.name))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails only if the process was reaped already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// A process that is killed unless it is kept.
struct Killed(Option<Child>);

impl Killed {
    fn keep(mut self) -> Child {
        self.0.take().expect("kept once")
    }

    /// Connects to a socket that the process creates.
    fn connect(
        &mut self,
        run: &Run<'_>,
        socket: &Path,
        console: &Path,
    ) -> Result<UnixStream, StudyError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let error = match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            run.go_on()?;
            let ended = self
                .0
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(StudyError::void(format!("QEMU has ended with {status}")));
            }
            if Instant::now() > until {
                let doing = format!("connecting to {} ({})", socket.display(), console.display());
                return Err(StudyError::io(doing)(error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads lines of `stream` on a thread of its own, until the guest ends.
fn tell(
    guest: &'static str,
    port: Port,
    stream: &UnixStream,
    heard: Sender<Heard>,
) -> Result<(), StudyError> {
    let stream = stream.try_clone();
    let lines = BufReader::new(stream.map_err(StudyError::io("reading from a guest"))?);
    let thread = std::thread::Builder::new().name(format!("{guest} says"));
    let started = thread.spawn(move || {
        for line in lines.split(b'\n').map_while(Result::ok) {
            let (at, line) = (Instant::now(), String::from_utf8_lossy(&line));
            let line = line.trim().to_owned();
            // If there is no receiver any more, the guest is about to be killed.
            let _ = heard.send(Heard {
                guest,
                port,
                line,
                at,
            });
        }
    });
    started
        .map(drop)
        .map_err(StudyError::io("starting a thread"))
}

/// The lines of a stream, each read with a time-out.
struct Lines {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Lines {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StudyError> {
        let written = self.stream.write_all(bytes);
        written.map_err(StudyError::io("writing to a guest"))
    }

    fn next(&mut self, run: &Run<'_>, until: Instant) -> Result<String, StudyError> {
        let failed = || StudyError::io("reading from a guest");
        self.stream
            .set_read_timeout(Some(INTERVAL))
            .map_err(failed())?;
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim().to_owned());
            }
            run.go_on()?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(StudyError::void("it has ended")),
                Ok(count) => self.read.extend(&bytes[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    if Instant::now() > until {
                        return Err(StudyError::void("no answer in time"));
                    }
                }
                Err(error) => return Err(failed()(error)),
            }
        }
    }
}
