//! `outlive pod resize`: a pool of workers is asked to have another number of them while an application runs.

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

/// Another number of workers.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run pagerank rmat:22 --pod /dev/shm/ranks --tolerance 0 --spares 4   # in one terminal\n  \
    outlive pod resize /dev/shm/ranks --workers 2                                # in another: two of four stand by\n  \
    outlive pod resize /dev/shm/ranks --workers 8                                # the spares come, too\n\n\
    Who is one too many leaves when its task is done, and nothing is lost by it. Who stands by comes: the hosts and spares of a run \
    (its driver starts them all at its beginning, and no others), those that were sent away before, and `outlive worker --spare`. \
    This command starts nobody: if there are too few, it says so, and how to start more. A run with --elastic goes on to \
    resize itself.\n\n\
    JSON: path, pool, least, most, before, wanted, living, guests, missing, surplus, start; docs/json.md says what they mean.")]
pub struct Resize {
    #[command(flatten)]
    which: Which,
    /// How many workers the pool is to have
    #[arg(long, value_name = "N")]
    workers: u32,
    /// Which pool of the pod, if it has several
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// For how long to wait until they have come or gone
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = patience)]
    wait: Duration,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// How often it is looked whether they have.
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
                "nobody uses {}: no process is there that could come or go. The pod of a run whose driver was killed is \
                 removed by `outlive pod destroy`; to work in one of your own, start `outlive worker` first",
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

    /// Joins, asks and leaves.
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

    /// Waits until there are as many workers as were asked for, or something else is wanted by now; not for ever.
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
    /// How many workers the pool can be asked to have.
    least: u32,
    most: u32,
    /// How many it wanted before.
    before: u32,
    /// How many it wants now: something else if somebody else has said so since.
    wanted: u32,
    living: u32,
    /// How many of the living came to work besides: they are none of the wanted.
    guests: u32,
    /// How many of the wanted have not come.
    missing: u32,
    /// How many are there too many: they finish their tasks.
    surplus: u32,
    /// How to start those who are missing; null if none are, or this program has other tasks than the pool.
    start: Option<String>,
}

impl<'a> Answer<'a> {
    fn of(command: &'a Resize, pod: &Pod, pool: String, before: u32, now: &PoolStatus) -> Self {
        let (path, own) = (command.which.path(), now.own());
        let missing = now.wanted.saturating_sub(own);
        // Whoever has other tasks is no worker there.
        let may_start = missing > 0 && WorkerPool::open(pod, &pool).is_ok();
        let start = format!(
            "outlive worker --pod {} --pool {pool} --threads {missing}{}",
            path.display(),
            // Else they would work besides, and the wanted would be missing still.
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

    /// Says it to people.
    fn tell(&self, now: &PoolStatus, wait: Duration) -> Result<(), Failure> {
        output::line(format_args!(
            "pool {}: {} workers are wanted instead of {}; {} work{}",
            self.pool,
            self.wanted,
            self.before,
            self.living - self.guests,
            match self.guests {
                0 => String::new(),
                guests => format!(", and {guests} besides"),
            }
        ))?;
        if self.wanted == 0 {
            return output::line("what it was made for is done meanwhile");
        }
        if self.missing > 0 {
            let wait = format_duration(wait);
            let how = match &self.start {
                Some(start) => format!("to start them: {start}"),
                None => "it is for the program that made the pool to start them, since its tasks are not this one's".into(),
            };
            output::line(format_args!(
                "{} have not come in {wait}, so it seems that nobody stands by; {how}",
                self.missing
            ))?;
        }
        if self.surplus > 0 {
            output::line(format_args!(
                "{} more finish the tasks that they are at",
                self.surplus
            ))?;
        }
        if now.is_elastic {
            output::line(format_args!(
                "it goes on to resize itself, from {} to {} workers",
                self.least, self.most
            ))?;
        }
        Ok(())
    }
}
