//! `outlive run kmeans`: groups points around centres, on hosts that may be killed.

use super::destination::Destination;
use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::loading;
use super::steps::{Run, Steps, Text, Verdict};
use crate::amount;
use crate::failure::Failure;
use clap::Args;
use outlive_programs::kmeans::{Clustering, Clusters, Options, Points, ReadError, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Arguments of `outlive run kmeans`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all centres to this file, one per line: the number of its points, tab, its \
        coordinates separated by commas. An existing file is replaced only after all is done; it \
        cannot be the input")
}))]
#[command(after_help = "Examples:\n  \
    outlive run kmeans points.csv --clusters 5 --kill 2    # two of four hosts are killed\n  \
    outlive run kmeans random:500000:3:100 --clusters 100 --iterations 10 --verify\n\n\
    FILE is a NumPy .npy file with one point per row (f4, f8, i1 to i8, u1 to u8; integers that a \
    double cannot represent exactly are refused), or a text with one point per line: numbers, also \
    with Fortran's exponents (1D+5), separated by commas, semicolons or white space. Lines that \
    begin with # are ignored, and so is a first line with names. \
    random:POINTS[:DIMENSIONS[:CENTRES[:SEED]]] generates points, by default with 3 coordinates \
    and around 8 centres.\n\n\
    The initial centres are points, drawn by --initial. An iteration assigns each point to the \
    nearest centre (to the first of several), and moves each centre to the mean of its points; a \
    centre without points does not move. The last iteration is the first in which no centre moves \
    by more than --tolerance.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. With --kill K, K hosts are killed by SIGKILL, in the \
    first three iterations. The centres are identical to those of a run without failures, to the \
    last bit.\n\n\
    JSON: result (points, dimensions, clusters, iterations, moved, converged, tolerance, initial, \
    task_points, groups: points, centre; verified), seconds, cpu_seconds, units, units_redone, \
    seed, pod, failures and more: docs/json.md names them all.")]
pub struct Command {
    /// Points: text with one point a line, NumPy's .npy, or
    /// random:POINTS[:DIMENSIONS[:CENTRES[:SEED]]]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Number of groups
    #[arg(long, value_name = "K", default_value_t = Options::default().clusters as u32,
          value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// Maximum number of iterations
    #[arg(long, value_name = "N", default_value_t = Options::default().iterations,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,
    /// Largest distance by which a centre may move in the last iteration
    #[arg(long, value_name = "D", default_value_t = Options::default().tolerance, value_parser = tolerance)]
    tolerance: f64,
    /// Seed by which the points that are the initial centres are drawn
    #[arg(long, value_name = "SEED", default_value_t = Options::default().seed, value_parser = amount::whole, allow_negative_numbers = true)]
    initial: u64,
    /// Maximum number of points that a task adds up [default: some milliseconds' work]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u64).range(1..))]
    task_points: Option<u64>,
    /// Group the points again in another way with one thread, and compare
    #[arg(long)]
    verify: bool,
    /// Number of groups that are printed, those with most points first
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// The maximum number of generated coordinates.
const MOST: u64 = 1 << 30;

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text.parse().ok().filter(|e: &f64| *e >= 0.0);
    tolerance.ok_or_else(|| "it is a number, 0 or more".into())
}

/// Returns the form of the names of generated inputs.
fn form() -> [Number; 4] {
    [
        Number::up_to(MOST, "POINTS"),
        Number::up_to(1024, "DIMENSIONS").or(3),
        Number::up_to(1 << 20, "CENTRES").or(8),
        Number::SEED,
    ]
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        let generated = numbers(&self.file, &form())?;
        let read = generated.is_none().then_some(Path::new(&self.file));
        run.open_destination(read, "read")?;
        let points = Arc::new(self.load(generated)?);
        let asked = Options {
            clusters: self.clusters as usize,
            iterations: self.iterations,
            tolerance: self.tolerance,
            seed: self.initial,
        };
        let clustering = Clustering::new(&points, asked);
        // The flag does not fit the input.
        let mut clustering = clustering.map_err(|error| {
            Failure::Usage(format!("{}: {error}; see --clusters", self.file.display()))
        })?;
        if let Some(points) = self.task_points {
            clustering = clustering.with_task_points(points);
        }
        let steps = Steps {
            units: "iterations at most".into(),
            check: {
                let points = Arc::clone(&points);
                move |found: Arc<Clusters>| {
                    let checked = verify::verify(&points, &found);
                    Ok(Verdict::of(
                        checked,
                        "verified: grouping in another way gave the same result",
                    ))
                }
            },
            write: |found: &Clusters, destination: Destination| {
                destination.write(|out| write(&points, found, out))
            },
            describe: |found: &Clusters, verdict: Option<&Verdict>| {
                let task_points = clustering.task_points();
                let verified = verdict.map(Verdict::is_right);
                let found = Found::of(&self, &points, found, task_points, verified);
                let headline = format!(
                    "{} points of {} coordinates in {}, {} after {} iterations; the last one moved \
                     a centre by at most {}",
                    found.points,
                    found.dimensions,
                    self.file.display(),
                    match found.converged {
                        true => "grouped",
                        false => "not converged",
                    },
                    found.iterations,
                    found.moved,
                );
                Text {
                    is_flat: false,
                    headline,
                    lines: found.groups.iter().map(Group::line).collect(),
                    found,
                }
            },
        };
        run.play(&clustering, steps)
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
        Ok(loading("generating points".into(), || {
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

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    points: usize,
    dimensions: usize,
    clusters: usize,
    iterations: u32,
    /// The largest distance by which a centre moved in the last iteration.
    moved: f64,
    converged: bool,
    tolerance: f64,
    initial: u64,
    task_points: u64,
    groups: Vec<Group>,
    /// Whether another way gave the same result, if `--verify` was given.
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
    /// Returns a line with the first few coordinates.
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
