//! `outlive run pagerank`: ranks the vertices of a graph on hosts, and some of them are killed.

use super::destination::Destination;
use super::flags::Flags;
use super::play::loading;
use super::steps::{Run, Steps, Text, Verdict};
use crate::failure::Failure;
use clap::Args;
use outlive_programs::graph::{FirstLine, Graph, GraphError, GraphInput, Separator};
use outlive_programs::pagerank::{PageRank, Ranking, Ranks, plain};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Arguments of `outlive run pagerank`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all ranks to this file, one per line: vertex, tab, rank; numbers in rising \
        order, names in the order of their first occurrence in GRAPH. An existing file is replaced \
        only after all is done; it cannot be GRAPH")
}))]
#[command(after_help = "Examples:\n  \
    outlive run pagerank links.txt --kill 2                # two of four hosts are killed\n  \
    outlive run pagerank web.mtx.xz --output ranks.tsv --verify\n  \
    outlive run pagerank flights.csv --separator comma     # names may contain spaces\n  \
    outlive run pagerank rmat:20 --hosts 2 --iterations 10 --tolerance 0 --json\n\n\
    GRAPH is a file: an edge list or a Matrix Market file (coordinate; pattern, real or integer; \
    general or symmetric), plain or compressed by gzip, xz, zstd or bzip2. An edge list has two \
    vertices in each line, numbers or names, which other fields may follow. Fields are separated \
    by white space, commas, semicolons or single tabs: by those of the first line, unless \
    --separator is given. Names may be in quotes, as in CSV. Lines that begin with # or % are \
    comments. A first line such as \"source,target\", or a first line of names before lines of \
    numbers only, is read as a header and not as an edge, and the report says so. Or GRAPH is \
    rmat:SCALE[:EDGEFACTOR[:SEED]], a generated graph of 2^SCALE vertices with EDGEFACTOR (16) \
    edges for each. A repeated edge counts once; weights are ignored.\n\n\
    The ranks sum to 1. Of N vertices, an iteration gives each the rank (1-D)/N + D*(A+B), where D \
    is --damping. A is the sum over the edges to the vertex: the rank of the source, divided by \
    the number of edges that leave the source. B is the sum of the ranks of all vertices that no \
    edge leaves, divided by N. The last iteration is the first that changes all ranks together by \
    less than --tolerance. (tol of networkx is this value divided by N.)\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. With --kill K, K hosts are killed by SIGKILL, spread \
    over the first iterations, or over all if --tolerance is 0. The ranks are identical to those \
    of a run without failures, to the last bit.\n\n\
    JSON: result (vertices, edges, header, iterations, residual, converged, largest_difference, \
    top: vertex, rank, ...), seconds, cpu_seconds, units, units_redone, seed, pod, failures (host, \
    killed_at, detected_at, detected_by, recovered_at, rejoined_at, units_redone, ...; seconds \
    since the hosts were started) and more: docs/json.md names them all.")]
pub struct Command {
    /// An edge list, a Matrix Market file, or rmat:SCALE[:EDGEFACTOR[:SEED]]
    #[arg(value_name = "GRAPH")]
    graph: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Separator of fields in an edge list: space, tab, comma or semicolon [default: as in its
    /// first line]
    #[arg(long, value_name = "SEPARATOR", value_parser = separator)]
    separator: Option<Separator>,
    /// Maximum number of iterations
    #[arg(long, value_name = "N", default_value_t = PageRank::default().iterations,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    iterations: u32,
    /// Probability that an edge is followed, from 0 to 1
    #[arg(long, value_name = "D", default_value_t = PageRank::default().damping, value_parser = damping)]
    damping: f64,
    /// Largest change of all ranks together in the last iteration; 0 makes all iterations
    #[arg(long, value_name = "E", default_value_t = PageRank::default().tolerance, value_parser = tolerance)]
    tolerance: f64,
    /// Maximum number of rows that a task computes
    #[arg(long, value_name = "R", default_value_t = Ranking::TASK_ROWS,
          value_parser = clap::value_parser!(u32).range(1..))]
    task_rows: u32,
    /// Compute the ranks again with one thread and ordinary memory, and compare them to within 1e-9
    #[arg(long)]
    verify: bool,
    /// Number of the highest ranks that are printed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// The largest difference of a rank from that of the plain computation.
const AGREES: f64 = 1e-9;

fn damping(text: &str) -> Result<f64, String> {
    let damping = text.parse().ok().filter(|d| (0.0..=1.0).contains(d));
    damping.ok_or_else(|| "it is a number from 0 to 1".into())
}

fn tolerance(text: &str) -> Result<f64, String> {
    let tolerance = text.parse().ok().filter(|e: &f64| *e >= 0.0);
    tolerance.ok_or_else(|| "it is a number, 0 or more".into())
}

fn separator(text: &str) -> Result<Separator, String> {
    Separator::named(text).ok_or_else(|| "it is space, tab, comma or semicolon".into())
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let input = GraphInput::named(&self.graph).map_err(|error| match error {
            GraphError::Generator { .. } => Failure::Usage(error.to_string()),
            _ => Failure::new(error),
        })?;
        let read: Option<&Path> = match &input {
            GraphInput::File(path) => Some(path),
            GraphInput::Rmat(_) if self.separator.is_some() => {
                let what = "--separator is for edge lists, and this graph is generated";
                return Err(Failure::Usage(what.into()));
            }
            GraphInput::Rmat(_) => None,
        };
        // Before the temporary file beside the destination is created, so that an interruption
        // removes it.
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        run.open_destination(read, "read")?;
        let graph = {
            let (input, separator) = (input.clone(), self.separator);
            Arc::new(run.interrupted.unless(move || load(&input, separator))??)
        };
        let ranking = Ranking {
            of: PageRank {
                damping: self.damping,
                tolerance: self.tolerance,
                iterations: self.iterations,
            },
            task_rows: self.task_rows,
            ..Ranking::new(&graph)
        };
        let steps = Steps {
            units: "iterations at most".into(),
            check: {
                let (graph, of) = (Arc::clone(&graph), ranking.of);
                move |ranks: Arc<Ranks>| Ok(check(&graph, of, &ranks))
            },
            write: |ranks: &Ranks, destination: Destination| {
                destination.write(|out| write(&graph, ranks, out))
            },
            describe: |ranks: &Ranks, verdict: Option<&Verdict>| {
                self.describe(&input, &graph, ranks, verdict)
            },
        };
        run.play(&ranking, steps)
    }

    fn describe(
        &self,
        input: &GraphInput,
        graph: &Graph,
        ranks: &Ranks,
        verdict: Option<&Verdict>,
    ) -> Text<Found> {
        let difference = verdict.and_then(Verdict::difference);
        let found = Found::of(self, graph, ranks, difference);
        let headline = format!(
            "{} vertices and {} edges of {input}, {} after {} iterations; the last one changed the \
             ranks by {:.3e}",
            found.vertices,
            found.edges,
            match found.converged {
                true => "ranked",
                false => "not converged",
            },
            found.iterations,
            ranks.residual,
        );
        let header = match graph.first_line() {
            FirstLine::Header { line, text } => Some(format!(
                "line {line}, {text:?}, was read as a header, not as an edge"
            )),
            _ => None,
        };
        let top = found.top.iter();
        let top = top.map(|top| format!("{:>14.9}  {}", top.rank, top.vertex));
        Text {
            is_flat: false,
            headline,
            lines: header.into_iter().chain(top).collect(),
            found,
        }
    }
}

/// Compares `ranks` with those that one thread computes in as many iterations.
fn check(graph: &Graph, of: PageRank, ranks: &Ranks) -> Verdict {
    let of = PageRank {
        tolerance: 0.0,
        iterations: ranks.iterations,
        ..of
    };
    let difference = plain(graph, &of).largest_difference(ranks);
    let is_close = difference <= AGREES;
    let wrong = || format!("a rank differs by {difference:e} from that of the plain computation");
    let checked = is_close.then_some(()).ok_or_else(wrong);
    let right =
        format!("no rank differs by more than {difference:.1e} from that of the plain computation");
    Verdict::of(checked, right).with_difference(difference)
}

fn load(input: &GraphInput, separator: Option<Separator>) -> Result<Graph, Failure> {
    let what = match input {
        GraphInput::File(_) => format!("reading {input}"),
        GraphInput::Rmat(_) => format!("generating {input}"),
    };
    let graph = loading(what, || input.load_separated(separator));
    let graph = graph.map_err(Failure::new)?;
    if graph.has_more_than_edges() {
        let note = "has more than edges, such as weights, which are ignored";
        // If standard error is closed, the note is lost.
        let _ = writeln!(io::stderr(), "outlive: note: {input} {note}");
    }
    if let FirstLine::PerhapsHeader { line, text } = graph.first_line() {
        let note =
            "was read as an edge, and no other line has its names; remove it if it is a header";
        let _ = writeln!(
            io::stderr(),
            "outlive: note: line {line} of {input}, {text:?}, {note}"
        );
    }
    Ok(graph)
}

fn write(graph: &Graph, ranks: &Ranks, out: &mut dyn Write) -> io::Result<()> {
    for (vertex, rank) in (0..).zip(&ranks.ranks) {
        graph.label(vertex).write_to(&mut *out)?;
        writeln!(out, "\t{rank}")?;
    }
    Ok(())
}

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    vertices: u32,
    /// The number of distinct edges.
    edges: u64,
    /// The first line of an edge list, if it was read as a header.
    header: Option<String>,
    /// The first line of an edge list, if it was read as an edge and may be a header.
    perhaps_header: Option<String>,
    iterations: u32,
    /// The change of all ranks together in the last iteration; null if there was none.
    residual: Option<f64>,
    converged: bool,
    damping: f64,
    tolerance: f64,
    task_rows: u32,
    /// The largest difference from the plain computation, if `--verify` was given.
    largest_difference: Option<f64>,
    top: Vec<Top>,
}

#[derive(Serialize)]
struct Top {
    vertex: String,
    rank: f64,
}

impl Found {
    fn of(command: &Command, graph: &Graph, ranks: &Ranks, verified: Option<f64>) -> Self {
        let mut order: Vec<u32> = (0..graph.vertices()).collect();
        let rank = |vertex: u32| ranks.ranks[vertex as usize];
        let falling = |a: &u32, b: &u32| rank(*b).total_cmp(&rank(*a)).then(a.cmp(b));
        let top = command.top.min(order.len());
        if top < order.len() {
            order.select_nth_unstable_by(top, falling);
            order.truncate(top);
        }
        order.sort_unstable_by(falling);
        let top = order.into_iter().map(|vertex| Top {
            vertex: graph.label(vertex).to_string(),
            rank: rank(vertex),
        });
        let (header, perhaps_header) = match graph.first_line() {
            FirstLine::Edge => (None, None),
            FirstLine::Header { text, .. } => (Some(text.clone()), None),
            FirstLine::PerhapsHeader { text, .. } => (None, Some(text.clone())),
        };
        Self {
            vertices: graph.vertices(),
            edges: graph.edges(),
            header,
            perhaps_header,
            iterations: ranks.iterations,
            residual: ranks.residual.is_finite().then_some(ranks.residual),
            converged: ranks.converged,
            damping: command.damping,
            tolerance: command.tolerance,
            task_rows: command.task_rows,
            largest_difference: verified,
            top: top.collect(),
        }
    }
}
