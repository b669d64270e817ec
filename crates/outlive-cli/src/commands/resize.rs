//! `outlive pod resize`: asks a pool for another number of workers while an application runs.

use super::guest::{Found, refused};
use super::{Which, pools, worker};
use crate::failure::Failure;
use crate::look::Look;
use crate::output;
use clap::Args;
use humantime::format_duration;
use outlive::pod::{Pod, PodError};
use outlive_tasks::{PoolError, PoolStatus, Volunteer, WorkerPool};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments of `outlive pod resize`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run pagerank rmat:22 --pod /dev/shm/ranks --tolerance 0 --spares 4   # in one terminal\n  \
    outlive pod resize /dev/shm/ranks --workers 2                                # in another: two of four stand by\n  \
    outlive pod resize /dev/shm/ranks --workers 8                                # the spares work too\n\n\
    A surplus worker leaves the pool when its task is done, and no work is lost. Workers that \
    stand by join the pool: the hosts and spares of a run (its driver starts all of them at the \
    beginning, and no others), workers that left at an earlier resize, and `outlive worker \
    --spare`. This command starts no process: if too few workers stand by, it says how to start \
    more. A run with --elastic continues to resize itself.\n\n\
    JSON: path, pool, least, most, before, wanted, living, guests, missing, surplus, start; \
    docs/json.md says what they mean.")]
pub struct Resize {
    #[command(flatten)]
    which: Which,
    /// Number of workers that the pool is to have
    #[arg(long, value_name = "N")]
    workers: u32,
    /// Name of the pool, if the pod has several
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Time to wait for workers to start or stop
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = patience)]
    wait: Duration,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The interval between two checks for them.
const LOOK: Duration = Duration::from_millis(5);

fn patience(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 500ms or 2s"))
}

impl Resize {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.which.path();
        let found = Found::at(path);
        let pod = self.which.open()?;
        let name = pools::choose(&pod, path, self.pool.as_deref()).map_err(Failure::new)?;
        if Look::at(&pod).there().next().is_none() {
            return Err(Failure::new(format_args!(
                "no process uses {}, so workers cannot be started or stopped. If it is the pod of \
                 a run whose driver was killed, remove it by `outlive pod destroy`; if it is a pod \
                 of your own, start `outlive worker` first",
                path.display()
            )));
        }
        let asked = self.ask(&pod, &name);
        found.leave(&pod);
        let before = asked?;
        let now = self.await_them(&pod, &name)?;
        let answer = Answer::of(&self, &pod, name, before, &now);
        match self.json {
            true => output::json(&answer),
            false => answer.tell(&now, self.wait),
        }
    }

    /// Joins the pod, requests the number and leaves. Returns the number that was wanted before.
    fn ask(&self, pod: &Pod, name: &str) -> Result<u32, Failure> {
        let process = Volunteer::new().name("resize").join(pod);
        let process = process.map_err(refused)?;
        let ask = || -> Result<u32, Failure> {
            let member = process.enter(None, "resize").map_err(PodError::from)?;
            let heap = member.heap(pod)?;
            WorkerPool::request(pod, &heap, name, self.workers).map_err(|error| match error {
                PoolError::NoRoom { .. } => Failure::Usage(error.to_string()),
                error => Failure::new(error),
            })
        };
        let asked = ask();
        process.leave().map_err(Failure::new)?;
        asked
    }

    /// Waits, for at most `--wait`, until the pool has the requested number of workers, or its
    /// wanted number has changed.
    fn await_them(&self, pod: &Pod, name: &str) -> Result<PoolStatus, Failure> {
        let until = Instant::now() + self.wait;
        loop {
            let now = WorkerPool::inspect(pod, name).map_err(Failure::new)?;
            let is_over = now.wanted != self.workers;
            if is_over || now.own() == self.workers || Instant::now() >= until {
                return Ok(now);
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    path: &'a Path,
    pool: String,
    /// The range of numbers that the pool can be asked for.
    least: u32,
    most: u32,
    /// The number that it wanted before.
    before: u32,
    /// The number that it wants now; it differs if another request has come since.
    wanted: u32,
    living: u32,
    /// The number of additional workers among the living, which do not count as wanted.
    guests: u32,
    /// The number of wanted workers that have not come.
    missing: u32,
    /// The number of surplus workers: they finish their tasks.
    surplus: u32,
    /// The command that starts the missing workers; null if none are missing, or the pool's tasks
    /// are not registered in this program.
    start: Option<String>,
}

impl<'a> Answer<'a> {
    fn of(command: &'a Resize, pod: &Pod, pool: String, before: u32, now: &PoolStatus) -> Self {
        let (path, own) = (command.which.path(), now.own());
        let missing = now.wanted.saturating_sub(own);
        // A program without the pool's tasks cannot be a worker.
        let may_start = missing > 0 && WorkerPool::open(pod, &pool).is_ok();
        let start = format!(
            "outlive worker --pod {} --pool {pool} --threads {missing}{}",
            path.display(),
            // Otherwise they would be additional, and the wanted ones would still be missing.
            if worker::has_spares(pod) {
                " --spare"
            } else {
                ""
            }
        );
        Self {
            path,
            pool,
            least: *now.room.start(),
            most: *now.room.end(),
            before,
            wanted: now.wanted,
            living: now.living(),
            guests: now.guests(),
            missing,
            surplus: own.saturating_sub(now.wanted),
            start: may_start.then_some(start),
        }
    }

    /// Prints the answer as text.
    fn tell(&self, now: &PoolStatus, wait: Duration) -> Result<(), Failure> {
        output::line(format_args!(
            "pool {}: {} workers are wanted instead of {}; {} work{}",
            self.pool,
            self.wanted,
            self.before,
            self.living - self.guests,
            match self.guests {
                0 => String::new(),
                guests => format!(", and {guests} additional"),
            }
        ))?;
        if self.wanted == 0 {
            return output::line("the work of the pool is done, so it wants no workers");
        }
        if self.missing > 0 {
            let wait = format_duration(wait);
            let how = match &self.start {
                Some(start) => format!("to start them: {start}"),
                None => "start them with the program that created the pool, because this program \
                    does not have its tasks"
                    .into(),
            };
            output::line(format_args!(
                "{} have not come in {wait}, so it seems that no worker stands by; {how}",
                self.missing
            ))?;
        }
        if self.surplus > 0 {
            output::line(format_args!(
                "surplus workers that finish their current tasks: {}",
                self.surplus
            ))?;
        }
        if now.is_elastic {
            output::line(format_args!(
                "the run continues to resize the pool, from {} to {} workers",
                self.least, self.most
            ))?;
        }
        Ok(())
    }
}
