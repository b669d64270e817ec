//! `outlive run kmeans`: groups points around centres, on hosts that may be killed.

use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::{Interrupted, loading, play};
use crate::amount;
use crate::failure::Failure;
use clap::Args;
use outlive_workloads::kmeans::{Clustering, Clusters, Options, Points, ReadError, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// The grouping of points.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all centres there, one a line: the number of its points, tab, its coordinates with commas between them. What is \
        there stays until all is done; it cannot be FILE")
}))]
#[command(after_help = "Examples:\n  \
    outlive run kmeans points.csv --clusters 5 --kill 2    # two of four hosts are killed\n  \
    outlive run kmeans random:500000:3:100 --clusters 100 --iterations 10 --verify\n\n\
    FILE is NumPy's .npy with a point in each row (f4, f8, i1 to i8, u1 to u8; whole numbers that a double cannot hold are \
    refused), or text with a point in each line: numbers, also with Fortran's exponents (1D+5), separated by commas, semicolons or \
    white space. Lines that begin with # are left out, and \
    so is a first line with names. random:POINTS[:DIMENSIONS[:CENTRES[:SEED]]] are generated points, of 3 coordinates around 8 \
    centres.\n\n\
    The centres are points at first, drawn by --initial. An iteration gives each point to the nearest centre, the first of \
    several, and moves each centre to the mean of its points; one without points stays. The last iteration is the first in which no centre moves by \
    more than --tolerance.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL: --kill of them, in the first three iterations. The centres are those of a run without failures, to the last bit.\n\n\
    JSON: result (points, dimensions, clusters, iterations, moved, converged, tolerance, initial, task_points, groups: points, centre; \
    verified), seconds, cpu_seconds, units, units_redone, seed, pod, failures and more: docs/json.md names them all.")]
pub struct Command {
    /// Points: text with one point a line, NumPy's .npy, or
    /// random:POINTS[:DIMENSIONS[:CENTRES[:SEED]]]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// How many groups
    #[arg(long, value_name = "K", default_value_t = Options::default().clusters as u32,
          value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// How many iterations are made at most
    #[arg(long, value_name = "N", default_value_t = Options::default().iterations,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,
    /// How far a centre moves in the last iteration, at most
    #[arg(long, value_name = "D", default_value_t = Options::default().tolerance, value_parser = tolerance)]
    tolerance: f64,
    /// Draws the points that the centres are at first
    #[arg(long, value_name = "SEED", default_value_t = Options::default().seed, value_parser = amount::whole, allow_negative_numbers = true)]
    initial: u64,
    /// How many points a task adds up at most [default: some milliseconds' work]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u64).range(1..))]
    task_points: Option<u64>,
    /// Group them once more, another way and with one thread, and compare
    #[arg(long)]
    verify: bool,
    /// How many groups are printed, those with most points first
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// How many coordinates are generated at most.
const MOST: u64 = 1 << 30;

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text.parse().ok().filter(|e: &f64| *e >= 0.0);
    tolerance.ok_or_else(|| "it is a number, 0 or more".into())
}

/// What a generated input is called.
fn form() -> [Number; 4] {
    let number = |name, default, range| Number {
        name,
        default,
        range,
    };
    [
        number("POINTS", None, 1..=MOST),
        number("DIMENSIONS", Some(3), 1..=1024),
        number("CENTRES", Some(8), 1..=1 << 20),
        number("SEED", Some(1), 0..=u64::MAX),
    ]
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let interrupted = Interrupted::listen()?;
        let generated = numbers(&self.file, &form())?;
        let read = generated.is_none().then_some(Path::new(&self.file));
        let destination = self.flags.destination(read, "read", &interrupted)?;
        let points = Arc::new(self.load(generated)?);
        let asked = Options {
            clusters: self.clusters as usize,
            iterations: self.iterations,
            tolerance: self.tolerance,
            seed: self.initial,
        };
        let clustering = Clustering::new(&points, asked);
        // A flag that does not go with the input.
        let mut clustering = clustering.map_err(|error| {
            Failure::Usage(format!("{}: {error}; see --clusters", self.file.display()))
        })?;
        if let Some(points) = self.task_points {
            clustering = clustering.with_task_points(points);
        }
        let options = self.flags.options(0);
        let what = "iterations at most".into();
        let outcome = play(&options, &clustering, &interrupted, what)?;
        let found = &outcome.result;
        let wrong = match self.verify {
            true => {
                let (points, found) = (Arc::clone(&points), found.clone());
                interrupted
                    .unless(move || verify::verify(&points, &found))?
                    .err()
            }
            false => None,
        };
        // What is wrong replaces nothing.
        if let (Some(destination), None) = (destination, &wrong) {
            destination.write(|out| write(&points, found, out))?;
        }
        let task_points = clustering.task_points();
        let verified = self.verify.then_some(wrong.is_none());
        let summary = Found::of(&self, &points, found, task_points, verified);
        let headline = format!(
            "{} points of {} coordinates in {}, {} after {} iterations, the last of which moved a centre by {}",
            summary.points,
            summary.dimensions,
            self.file.display(),
            if summary.converged {
                "grouped"
            } else {
                "not converged"
            },
            summary.iterations,
            summary.moved,
        );
        let checked = (verified == Some(true)).then(|| "grouped another way: the same".into());
        let groups = summary.groups.iter().map(Group::line);
        let lines = checked.into_iter().chain(groups);
        let told = self
            .flags
            .tell(&options, &outcome, &summary, headline, lines);
        wrong.map_or(told, |wrong| Err(Failure::new(wrong)))
    }

    fn load(&self, generated: Option<[u64; 4]>) -> Result<Points, Failure> {
        let path = Path::new(&self.file);
        let Some([count, dimensions, centres, seed]) = generated else {
            let points = loading(format!("reading {}", path.display()), || Points::read(path));
            return points.map_err(|error| match error {
                ReadError::Unreadable { .. } => Failure::new(error),
                _ => Failure::new(format_args!("{}: {error}", path.display())),
            });
        };
        if count * dimensions > MOST {
            return Err(Failure::Usage(format!(
                "{} has more than {MOST} coordinates; ask for fewer points",
                path.display()
            )));
        }
        let [count, dimensions, centres] = [count, dimensions, centres].map(|it| it as usize);
        Ok(loading("drawing points".into(), || {
            Points::generate(count, dimensions, centres, seed)
        }))
    }
}

fn write(points: &Points, found: &Clusters, out: &mut dyn Write) -> io::Result<()> {
    let centres = found.centres.chunks(points.dimensions());
    for (centre, count) in centres.zip(&found.counts) {
        writeln!(out, "{count}\t{}", coordinates(centre))?;
    }
    Ok(())
}

fn coordinates(centre: &[f64]) -> String {
    let coordinates: Vec<String> = centre.iter().map(ToString::to_string).collect();
    coordinates.join(",")
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    points: usize,
    dimensions: usize,
    clusters: usize,
    iterations: u32,
    /// How far the centre that moved furthest moved in the last iteration.
    moved: f64,
    converged: bool,
    tolerance: f64,
    initial: u64,
    task_points: u64,
    groups: Vec<Group>,
    /// Whether another way led there as well, if that was asked for.
    verified: Option<bool>,
}

#[derive(Serialize)]
struct Group {
    points: u64,
    centre: Vec<f64>,
}

impl Found {
    fn of(
        command: &Command,
        points: &Points,
        found: &Clusters,
        task_points: u64,
        verified: Option<bool>,
    ) -> Self {
        let centres = found.centres.chunks(points.dimensions());
        let mut groups: Vec<Group> = centres
            .zip(&found.counts)
            .map(|(centre, points)| Group {
                points: *points,
                centre: centre.to_vec(),
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.points));
        groups.truncate(command.top);
        Self {
            points: points.len(),
            dimensions: points.dimensions(),
            clusters: found.counts.len(),
            iterations: found.iterations,
            moved: found.moved,
            converged: found.moved <= command.tolerance,
            tolerance: command.tolerance,
            initial: command.initial,
            task_points,
            groups,
            verified,
        }
    }
}

impl Group {
    /// Of many coordinates, the first.
    fn line(&self) -> String {
        const SHOWN: usize = 8;
        let shown = &self.centre[..self.centre.len().min(SHOWN)];
        let more = if self.centre.len() > SHOWN {
            ",…"
        } else {
            ""
        };
        format!("{:>10}  {}{more}", self.points, coordinates(shown))
    }
}
