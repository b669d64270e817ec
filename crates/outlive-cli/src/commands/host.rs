//! `outlive pod host`: a host with idle members.
//!
//! The started process joins as the first process of the host, and starts the others as its
//! children, which the kernel kills with it: one `kill -9` is the death of the host. On an
//! interruption, it stops its children and leaves in good order.

use super::Which;
use crate::event_text::describe;
use crate::failure::Failure;
use crate::look::Look;
use crate::output;
use clap::Args;
use outlive::membership::{Level, Member, Process, ProcessOptions};
use outlive::pod::Pod;
use outlive_run::driver::die_with;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Arguments of `outlive pod host`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod host /dev/shm/demo --host 0\n  \
    outlive pod host /dev/shm/demo --host 1 --name node-b --processes 2 --threads 3\n\n\
    Start two hosts and `kill -9` one: the other one reports its death. On Ctrl-C, a host leaves \
    in good order.")]
pub struct Host {
    #[command(flatten)]
    which: Which,
    /// The host's id, the same after every restart. If a host with this id is up, this becomes an
    /// additional process of it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=65_535))]
    host: u32,
    /// The host's name, shown in `pod status` and passed to the fence command [default: host N]
    #[arg(long)]
    name: Option<String>,
    /// Number of its processes; all but the first are children and die with it
    #[arg(long, value_name = "P", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: u32,
    /// Number of member threads of each process
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=4096))]
    threads: u32,
    /// The pod's fence command, if it was created with one [default: OUTLIVE_FENCE_COMMAND of the
    /// environment]
    #[arg(long, value_name = "COMMAND")]
    fence_command: Option<String>,
    /// Join even if the pod's file is a copy, which becomes a pod of its own: the original's
    /// members count as dead in it
    #[arg(long)]
    adopt_copy: bool,
    /// Index of this process in its host, and the pid of the first process, which started it
    #[arg(long, hide = true, num_args = 2, value_names = ["INDEX", "PID"])]
    child: Option<Vec<u32>>,
}

/// The longest time until the end of a child is handled.
const REAPING: Duration = Duration::from_secs(1);

impl Host {
    pub fn run(self) -> Result<(), Failure> {
        let index = match self.child.as_deref() {
            Some(&[index, parent]) => {
                die_with(parent).map_err(Failure::new)?;
                index
            }
            _ => 0,
        };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
            Failure::new(format_args!(
                "the handlers of signals cannot be installed: {error}"
            ))
        })?;
        let pod = self.which.open()?;
        let others = if index == 0 {
            processes_of(&pod, self.host)
        } else {
            Vec::new()
        };
        let mut options =
            ProcessOptions::on_host(self.host).name(format!("pod host {}.{index}", self.host));
        if let Some(name) = &self.name {
            options = options.host_name(name);
        }
        if let Some(command) = &self.fence_command {
            options = options.fence_command(command);
        }
        options = options.adopt_copy(self.adopt_copy);
        let process = pod.join(options)?;
        let idlers = Idlers::start(&process, self.threads, index)?;
        let outcome = if index == 0 {
            self.lead(&pod, &process, &others, signals)
        } else {
            let _ = signals.forever().next();
            Ok(())
        };
        idlers.stop();
        process.leave().map_err(Failure::new)?;
        match outcome {
            Ok(()) if index == 0 => output::line("left in good order"),
            outcome => outcome,
        }
    }

    /// Starts the other processes, and prints events until an interruption or the output is closed.
    fn lead(
        &self,
        pod: &Pod,
        process: &Process,
        others: &[String],
        mut signals: Signals,
    ) -> Result<(), Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let interruption = (process.clone(), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let (process, stop) = interruption;
                let _ = signals.forever().next();
                stop.store(true, Ordering::Relaxed);
                process.ring();
            })
            .map_err(|error| {
                Failure::new(format_args!(
                    "the thread that waits for signals cannot be started: {error}"
                ))
            })?;
        let mut events = process.events();
        let started = Instant::now();
        output::line(format_args!(
            "host {} joined {}: process {}, pid {}",
            process.host(),
            self.which.path().display(),
            process.instance(),
            std::process::id(),
        ))?;
        if !others.is_empty() {
            output::line(format_args!(
                "host {} was up already ({}): this process is one more process of it, and the host \
                 is up until the last of them ends; to start another host, use another --host",
                process.host(),
                others.join(", "),
            ))?;
        }
        let mut children = Children::default();
        for index in 1..self.processes {
            children.start(self, index)?;
        }
        let is_stopped = || stop.load(Ordering::Relaxed);
        while !is_stopped() {
            if let Some(news) = events.wait_for_unless(REAPING, is_stopped) {
                output::line(format_args!(
                    "{:9.3} s  {}",
                    started.elapsed().as_secs_f64(),
                    describe(pod.tables(), &news)
                ))?;
            }
            children.reap();
        }
        Ok(())
    }
}

/// Describes the present processes of `host`.
fn processes_of(pod: &Pod, host: u32) -> Vec<String> {
    let look = Look::at(pod);
    let here = look.there().filter(|seen| {
        seen.state().level == Some(Level::Process) && u32::from(seen.state().host) == host
    });
    here.map(|seen| format!("process {}, pid {}", seen.status.instance(), seen.pid()))
        .collect()
}

/// The other processes of the host. Drop stops them and waits for their end.
#[derive(Default)]
struct Children {
    running: Vec<Child>,
}

impl Children {
    fn start(&mut self, host: &Host, index: u32) -> Result<(), Failure> {
        let failed = |error| {
            Failure::new(format_args!(
                "process {index} could not be started: {error}"
            ))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(["pod", "host"])
            .arg(host.which.path())
            .args(["--host", &host.host.to_string()])
            .args(["--threads", &host.threads.to_string()])
            .args([
                "--child",
                &index.to_string(),
                &std::process::id().to_string(),
            ])
            .stdin(Stdio::null());
        if let Some(name) = &host.name {
            command.args(["--name", name]);
        }
        if let Some(fence) = &host.fence_command {
            command.args(["--fence-command", fence]);
        }
        self.running.push(command.spawn().map_err(failed)?);
        Ok(())
    }

    /// Removes children that have ended: the pod's events report them.
    fn reap(&mut self) {
        self.running
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.reap();
        for child in &self.running {
            // It has not been reaped, so the pid is still its own.
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for child in &mut self.running {
            let _ = child.wait();
        }
    }
}

/// Member threads that do nothing.
struct Idlers {
    threads: Vec<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Idlers {
    fn start(process: &Process, count: u32, index: u32) -> Result<Self, Failure> {
        let mut idlers = Self {
            threads: Vec::new(),
        };
        for number in 0..count {
            let (process, host) = (process.clone(), process.host().id);
            let (stop, stopped) = mpsc::channel::<()>();
            let (answer, entered) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name(format!("idler {number}"))
                .spawn(move || {
                    let entered: Result<Member, _> =
                        process.enter(None, &format!("idler {host}.{index}.{number}"));
                    match entered {
                        Ok(_member) => {
                            let _ = answer.send(Ok(()));
                            // Until the sender is dropped.
                            let _ = stopped.recv();
                        }
                        Err(error) => {
                            let _ = answer.send(Err(error));
                        }
                    }
                })
                .map_err(|error| {
                    Failure::new(format_args!(
                        "thread {number} cannot be started: {error}; raise the limits on threads \
                         (`ulimit -u`)"
                    ))
                });
            let joined = thread.and_then(|thread| {
                idlers.threads.push((stop, thread));
                match entered.recv() {
                    Ok(entered) => entered.map_err(Failure::new),
                    Err(_) => Err(Failure::new(format_args!(
                        "thread {number} ended before it had joined the pod"
                    ))),
                }
            });
            if let Err(failure) = joined {
                idlers.stop();
                return Err(failure);
            }
        }
        Ok(idlers)
    }

    fn stop(self) {
        for (stop, thread) in self.threads {
            drop(stop);
            let _ = thread.join();
        }
    }
}
