//! `outlive run matmul`: multiplies two matrices on hosts, and some of them are killed.

use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::{Interrupted, loading, play};
use crate::failure::Failure;
use clap::Args;
use outlive_workloads::driver::Outcome;
use outlive_workloads::matmul::{Matrix, Multiplication, ReadError, verify};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The multiplication of two matrices.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write the product there: as Matrix Market's array if the name ends with .mtx, as NumPy's .npy otherwise; both \
        keep every bit. What is there stays until all is done; it cannot be LEFT or RIGHT")
}))]
#[command(after_help = "Examples:\n  \
    outlive run matmul random:1000:1000:1 random:1000:1000:2 --kill 2   # two of four hosts are killed\n  \
    outlive run matmul a.npy b.npy --output product.npy --verify\n  \
    outlive run matmul a.mtx b.npy --hosts 2 --task-rows 50 --task-columns 200 --json\n\n\
    LEFT and RIGHT are files, NumPy's .npy (f4, f8, i1 to i8, u1 to u8; whole numbers that a double cannot hold are refused) or Matrix Market (array; real or \
    integer; general), or \
    random:ROWS:COLUMNS[:SEED], numbers between -1 and 1 that the SEED (1) decides.\n\n\
    An element of the product is the sum of its terms in their order, each product and each sum rounded once: the bits that \
    three nested loops give, however the work is dealt and whoever dies.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL: --kill of them, spread over the run.\n\n\
    JSON: result (rows, depth, columns, task_rows, task_columns, verified), seconds, \
    cpu_seconds, units, units_redone, seed, pod, failures (host, killed_at, detected_at, detected_by, recovered_at, \
    rejoined_at, units_redone, ...; seconds since the hosts were started) and more: docs/json.md names them all.")]
pub struct Command {
    /// A file, or random:ROWS:COLUMNS[:SEED]
    #[arg(value_name = "LEFT")]
    left: OsString,
    /// The same
    #[arg(value_name = "RIGHT")]
    right: OsString,
    #[command(flatten)]
    flags: Flags,
    /// How many rows of the product a task makes at most [default: chosen for some 10 ms]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    task_rows: Option<u32>,
    /// How many columns of them, a multiple of 8 [default: the same]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(1..1 << 31))]
    task_columns: Option<u32>,
    /// Check the product: products of both sides with random signs have to agree, row by row and up to rounding, in 20 rounds
    #[arg(long)]
    verify: bool,
}

/// In how many rounds a product is checked: a wrong one passes with a probability of at most 2^-20.
const ROUNDS: u32 = 20;

/// Where a matrix comes from.
#[derive(Clone)]
enum Input {
    File(PathBuf),
    Random {
        rows: usize,
        columns: usize,
        seed: u64,
    },
}

/// How many rows or columns a generated matrix has at most.
const MOST: u64 = 1 << 20;

impl Input {
    fn named(name: &OsStr) -> Result<Self, Failure> {
        let side = |name| Number {
            name,
            default: None,
            range: 1..=MOST,
        };
        let seed = Number {
            name: "SEED",
            default: Some(1),
            range: 0..=u64::MAX,
        };
        let numbers = numbers(name, &[side("ROWS"), side("COLUMNS"), seed])?;
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
        // Before there is a file beside the one that is to be replaced: it goes when the command ends by itself.
        let interrupted = Interrupted::listen()?;
        let destination = self.flags.destination(read, "read", &interrupted)?;
        let load = |input: &Input| {
            let input = input.clone();
            interrupted.unless(move || input.load())?
        };
        let [a, b] = [load(&inputs[0])?, load(&inputs[1])?];
        let product = Multiplication::new(&a, &b);
        // Arguments that do not go together.
        let product = product.map_err(|error| {
            let [a, b] = &inputs;
            Failure::Usage(format!("{a} and {b}: {error}"))
        })?;
        let size = |size: u32| size as usize;
        let product = product.in_blocks_of(self.task_rows.map(size), self.task_columns.map(size));
        let options = self.flags.options(0);
        let outcome = play(&options, &product, &interrupted, "blocks".into())?;
        let (task_rows, task_columns) = product.block();
        let (product, outcome): (Matrix, Outcome<()>) = outcome.split();
        let product = Arc::new(product);
        let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
        let seed = options.seed;
        let checked = Arc::clone(&product);
        let check = move || verify::verify(&a, &b, &checked, ROUNDS, seed);
        let checked = self.verify.then(|| interrupted.unless(check)).transpose()?;
        // What is wrong replaces nothing.
        if let (Some(destination), None | Some(Ok(()))) = (destination, &checked) {
            let is_text = destination.path().extension().is_some_and(|it| it == "mtx");
            destination.write(|out| match is_text {
                true => out.write_all(product.to_matrix_market().as_bytes()),
                false => out.write_all(&product.to_npy()),
            })?;
        }
        let found = Found {
            rows,
            depth,
            columns,
            task_rows,
            task_columns,
            verified: checked.as_ref().map(Result::is_ok),
        };
        let headline = format!(
            "{rows} x {columns}: the product of {} and {}",
            inputs[0], inputs[1]
        );
        let verified = matches!(checked, Some(Ok(())));
        let lines = verified.then(|| format!("the product is right: checked in {ROUNDS} rounds"));
        let told = self.flags.tell(&options, &outcome, &found, headline, lines);
        match checked {
            Some(Err(wrong)) => Err(Failure::new(wrong)),
            _ => told,
        }
    }
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    rows: usize,
    depth: usize,
    columns: usize,
    task_rows: usize,
    task_columns: usize,
    /// Whether the product is right, if that was asked.
    verified: Option<bool>,
}
