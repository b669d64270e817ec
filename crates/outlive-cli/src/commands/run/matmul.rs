//! `outlive run matmul`: multiplies two matrices on hosts, and some of them are killed.

use super::destination::Destination;
use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::loading;
use super::steps::{Run, Steps, Text, Verdict};
use crate::failure::Failure;
use clap::Args;
use outlive_programs::matmul::{Matrix, Multiplication, ReadError, verify};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `outlive run matmul`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write the product to this file: as a Matrix Market array if its name ends with \
        .mtx, as NumPy's .npy otherwise; both are exact. An existing file is replaced only after \
        all is done; it cannot be LEFT or RIGHT")
}))]
#[command(after_help = "Examples:\n  \
    outlive run matmul random:1000:1000:1 random:1000:1000:2 --kill 2   # two of four hosts are killed\n  \
    outlive run matmul a.npy b.npy --output product.npy --verify\n  \
    outlive run matmul a.mtx b.npy --hosts 2 --task-rows 50 --task-columns 200 --json\n\n\
    LEFT and RIGHT are files, NumPy's .npy (f4, f8, i1 to i8, u1 to u8; integers that a double \
    cannot represent exactly are refused) or Matrix Market (array; real or integer; general), or \
    random:ROWS:COLUMNS[:SEED], random numbers between -1 and 1 that follow from SEED (by default \
    1).\n\n\
    An element of the product is the sum of its terms in their order; each multiplication and each \
    addition is rounded once. The product is identical to that of three nested loops, to the last \
    bit, however the work is distributed and whichever hosts die.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. With --kill K, K hosts are killed by SIGKILL, spread \
    over the run.\n\n\
    JSON: result (rows, depth, columns, task_rows, task_columns, verified), seconds, cpu_seconds, \
    units, units_redone, seed, pod, failures (host, killed_at, detected_at, detected_by, \
    recovered_at, rejoined_at, units_redone, ...; seconds since the hosts were started) and more: \
    docs/json.md names them all.")]
pub struct Command {
    /// Left matrix: a file, or random:ROWS:COLUMNS[:SEED]
    #[arg(value_name = "LEFT")]
    left: OsString,
    /// Right matrix: a file, or random:ROWS:COLUMNS[:SEED]
    #[arg(value_name = "RIGHT")]
    right: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Maximum number of rows of the product that a task computes [default: chosen for some 10 ms]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    task_rows: Option<u32>,
    /// Maximum number of columns of them, a multiple of 8 [default: chosen for some 10 ms]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(1..1 << 31))]
    task_columns: Option<u32>,
    /// Check the product: products of both sides with random signs have to agree, row by row and up
    /// to rounding, in 20 rounds
    #[arg(long)]
    verify: bool,
}

/// The number of rounds of a check: a wrong product passes with a probability of at most 2^-20.
const ROUNDS: u32 = 20;

/// The source of a matrix.
#[derive(Clone)]
enum Input {
    File(PathBuf),
    Random {
        rows: usize,
        columns: usize,
        seed: u64,
    },
}

/// The maximum number of rows or columns of a generated matrix.
const MOST: u64 = 1 << 20;

impl Input {
    fn named(name: &OsStr) -> Result<Self, Failure> {
        let side = |name| Number::up_to(MOST, name);
        let numbers = numbers(name, &[side("ROWS"), side("COLUMNS"), Number::SEED])?;
        Ok(match numbers {
            None => Self::File(name.into()),
            Some([rows, columns, seed]) => Self::Random {
                rows: rows as usize,
                columns: columns as usize,
                seed,
            },
        })
    }

    fn load(&self) -> Result<Arc<Matrix>, Failure> {
        match self {
            Self::File(path) => {
                let loaded = loading(format!("reading {self}"), || Matrix::read(path));
                loaded.map(Arc::new).map_err(|error| match error {
                    ReadError::Unreadable { .. } => Failure::new(error),
                    _ => Failure::new(format_args!("{self}: {error}")),
                })
            }
            Self::Random {
                rows,
                columns,
                seed,
            } => {
                let generate = || Matrix::generate(*rows, *columns, *seed);
                Ok(Arc::new(loading(format!("generating {self}"), generate)))
            }
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Random {
                rows,
                columns,
                seed,
            } => write!(f, "random:{rows}:{columns}:{seed}"),
        }
    }
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let inputs = [Input::named(&self.left)?, Input::named(&self.right)?];
        let read = inputs.iter().filter_map(|input| match input {
            Input::File(path) => Some(path.as_path()),
            Input::Random { .. } => None,
        });
        // Before the temporary file beside the destination is created, so that an interruption
        // removes it.
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        run.open_destination(read, "read")?;
        let load = |input: &Input| {
            let input = input.clone();
            run.interrupted.unless(move || input.load())?
        };
        let [a, b] = [load(&inputs[0])?, load(&inputs[1])?];
        let product = Multiplication::new(&a, &b);
        // Arguments that do not fit together.
        let product = product.map_err(|error| {
            let [a, b] = &inputs;
            Failure::Usage(format!("{a} and {b}: {error}"))
        })?;
        let size = |size: u32| size as usize;
        let product = product.in_blocks_of(self.task_rows.map(size), self.task_columns.map(size));
        let seed = run.options.seed;
        let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
        let (task_rows, task_columns) = product.block();
        let [left, right] = &inputs;
        let steps = Steps {
            units: "blocks".into(),
            check: {
                let (a, b) = (Arc::clone(&a), Arc::clone(&b));
                move |product: Arc<Matrix>| {
                    let checked = verify::verify(&a, &b, &product, ROUNDS, seed);
                    let right = format!("the product is right: checked in {ROUNDS} rounds");
                    Ok(Verdict::of(checked, right))
                }
            },
            write: |product: &Matrix, destination: Destination| {
                let is_text = destination.path().extension().is_some_and(|it| it == "mtx");
                destination.write(|out| match is_text {
                    true => out.write_all(product.to_matrix_market().as_bytes()),
                    false => out.write_all(&product.to_npy()),
                })
            },
            describe: |_: &Matrix, verdict: Option<&Verdict>| Text {
                found: Found {
                    rows,
                    depth,
                    columns,
                    task_rows,
                    task_columns,
                    verified: verdict.map(Verdict::is_right),
                },
                is_flat: false,
                headline: format!("{rows} x {columns}: the product of {left} and {right}"),
                lines: Vec::new(),
            },
        };
        run.play(&product, steps)
    }
}

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    rows: usize,
    depth: usize,
    columns: usize,
    task_rows: usize,
    task_columns: usize,
    /// Whether the product is right, if `--verify` was given.
    verified: Option<bool>,
}
