//! `outlive store memory` and `add-memory`: the process of a memory server.

use super::Which;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive::membership::{EventKind, News};
use outlive_run::driver;
use outlive_store::servers::Store;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Arguments of `outlive store memory`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store memory /dev/shm/bank               # in one terminal\n  \
    outlive store memory /dev/shm/bank --size 1G     # in another; kill -9 it\n\n\
    Compute servers use the memory without processor time of this server. On Ctrl-C it leaves, and \
    its memory is lost.")]
pub struct Memory {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    server: Server,
}

/// Arguments of `outlive store add-memory`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store add-memory /dev/shm/bank --size 1G   # in place of a lost one\n\n\
    The command serves memory as `memory` does, and runs `restore` in another process while \
    transactions run. The server serves until interrupted, even if the restoration fails. Use \
    `memory` alone if no replicas are lost.")]
pub struct AddMemory {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    server: Server,
}

/// A memory server.
#[derive(Args, Debug)]
struct Server {
    /// Size of the server's memory: bytes, or a whole number with K, M, G or T
    #[arg(long, default_value = "64M", value_parser = amount::size)]
    size: u64,
    /// Leave when standard input is closed
    #[arg(long, hide = true)]
    until_end_of_input: bool,
}

/// The maximum time until an interruption is handled.
const PATIENCE: Duration = Duration::from_millis(200);

impl Memory {
    pub(super) fn run(self) -> Result<(), Failure> {
        self.server.serve(&self.which.path, false)
    }
}

impl AddMemory {
    pub(super) fn run(self) -> Result<(), Failure> {
        self.server.serve(&self.which.path, true)
    }
}

impl Server {
    fn serve(self, path: &Path, restores: bool) -> Result<(), Failure> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.map_err(|error| {
            Failure::new(format_args!(
                "the handlers of signals cannot be installed: {error}"
            ))
        })?;
        // A stopped server is fenced, and its memory is lost.
        driver::not_stopped_by_a_terminal();
        let store = Store::open(path)?;
        let server = store.serve_memory(self.size)?;
        let mut events = server.events();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let waiting = std::thread::Builder::new().spawn(move || {
            if signals.forever().next().is_some() {
                stopped.store(true, Ordering::Release);
            }
        });
        waiting.map_err(Failure::no_thread)?;
        if self.until_end_of_input {
            let stopped = Arc::clone(&stop);
            let reading = std::thread::Builder::new().spawn(move || {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                stopped.store(true, Ordering::Release);
            });
            reading.map_err(Failure::no_thread)?;
        }
        // A server whose output is closed still serves its memory.
        let _ = output::line(format_args!(
            "{} serves {}, process {}",
            server.id(),
            Bytes(server.region().bytes - store.configuration().log_bytes()),
            server.instance()
        ));
        let mut restoration = None;
        if restores {
            match Restoration::start(path) {
                Ok(started) => restoration = Some(started),
                Err(error) => output::note(format_args!(
                    "the restoration cannot be started: {error}; run `outlive store restore {}`",
                    path.display()
                )),
            }
        }
        let is_stopped = || stop.load(Ordering::Acquire);
        while !is_stopped() {
            let news = events.wait_for_unless(PATIENCE, is_stopped);
            restoration.take_if(Restoration::has_ended);
            if let Some(News::Event(event)) = news
                && event.kind == EventKind::ProcessDied
            {
                let _ = output::line(format_args!("process {} died", event.instance));
            }
        }
        drop((restoration, server));
        output::line("left the store; the memory is lost")
    }
}

/// A process that restores lost replicas. It is a compute server, which a stop of the store or a
/// suspicion may fence, so it is not in the process of the memory server.
struct Restoration(Child);

impl Restoration {
    fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["store", "restore"]).arg(path);
        command.stdin(Stdio::null()).spawn().map(Self)
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Restoration {
    /// The next restoration continues.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
