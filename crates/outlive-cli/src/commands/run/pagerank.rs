//! `outlive run pagerank`: ranks the vertices of a graph on hosts, and some of them are killed.

use super::flags::Flags;
use super::play::{Interrupted, loading, play};
use crate::failure::Failure;
use clap::Args;
use outlive_workloads::driver::{Options, Outcome};
use outlive_workloads::graph::{FirstLine, Graph, GraphError, GraphInput, Separator};
use outlive_workloads::pagerank::{PageRank, Ranking, Ranks, plain};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// The ranking of a graph.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all ranks there: vertex, tab, rank; in the order of the vertices if they are numbers, or as the names \
        come in GRAPH. What is there stays until all is done; it cannot be GRAPH")
}))]
#[command(after_help = "Examples:\n  \
    outlive run pagerank links.txt --kill 2                # two of four hosts are killed\n  \
    outlive run pagerank web.mtx.xz --output ranks.tsv --verify\n  \
    outlive run pagerank flights.csv --separator comma     # names may hold spaces\n  \
    outlive run pagerank rmat:20 --hosts 2 --iterations 10 --tolerance 0 --json\n\n\
    GRAPH is a file: an edge list or a Matrix Market file (coordinate; pattern, real or integer; general or symmetric), plain or \
    compressed by gzip, xz, zstd or bzip2. An edge list has two vertices in each line, numbers or names, and more fields perhaps. \
    White space, commas, semicolons or single tabs separate fields, as in the first line, or --separator says which; names may be in \
    quotes, as in CSV. Lines that begin with # or % are comments. A first line such as \"source,target\", or one of names before \
    lines of numbers only, is a header and no edge, which the report says. Or GRAPH is rmat:SCALE[:EDGEFACTOR[:SEED]], a generated graph of 2^SCALE vertices with EDGEFACTOR (16) \
    edges for each. An edge that is there twice counts once; weights are not used.\n\n\
    The ranks sum to 1. In each iteration a vertex gets (1-D)/N, and D times: what its edges bring, the rank of \
    each source divided by how many edges leave that, and its N-th part of the ranks of all vertices that no edge leaves. The \
    last iteration is the first that changes all ranks together by less than --tolerance. (networkx calls tol what is \
    this divided by N.)\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL: --kill of them, spread over the first iterations, or over all if --tolerance is 0. The ranks are those of a run without failures, to the last bit.\n\n\
    JSON: result (vertices, edges, header, iterations, residual, converged, largest_difference, top: vertex, rank, ...), seconds, \
    cpu_seconds, units, units_redone, seed, pod, failures (host, killed_at, detected_at, detected_by, recovered_at, \
    rejoined_at, units_redone, ...; seconds since the hosts were started) and more: docs/json.md names them all.")]
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
    /// How many iterations are made at most
    #[arg(long, value_name = "N", default_value_t = PageRank::default().iterations,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    iterations: u32,
    /// How likely an edge is followed, from 0 to 1
    #[arg(long, value_name = "D", default_value_t = PageRank::default().damping, value_parser = damping)]
    damping: f64,
    /// How much all ranks together change in the last iteration, at most; at 0 all iterations are made
    #[arg(long, value_name = "E", default_value_t = PageRank::default().tolerance, value_parser = tolerance)]
    tolerance: f64,
    /// How many rows a task computes at most
    #[arg(long, value_name = "R", default_value_t = Ranking::TASK_ROWS,
          value_parser = clap::value_parser!(u32).range(1..))]
    task_rows: u32,
    /// Compute the ranks once more with one thread and ordinary memory, and compare: all to 1e-9
    #[arg(long)]
    verify: bool,
    /// How many of the highest ranks are printed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

/// How far a rank may be from what the plain computation finds.
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
        // Before there is a file beside the one that is to be replaced: it goes when the command ends by itself.
        let interrupted = Interrupted::listen()?;
        let destination = self.flags.destination(read, "read", &interrupted)?;
        let graph = {
            let (input, separator) = (input.clone(), self.separator);
            Arc::new(interrupted.unless(move || load(&input, separator))??)
        };
        let options = self.flags.options(0);
        let ranking = Ranking {
            of: PageRank {
                damping: self.damping,
                tolerance: self.tolerance,
                iterations: self.iterations,
            },
            task_rows: self.task_rows,
            ..Ranking::new(&graph)
        };
        let what = "iterations at most".into();
        let outcome = play(&options, &ranking, &interrupted, what)?;
        let verified = self
            .verify
            .then(|| verify(&graph, ranking.of, &outcome.result, &interrupted))
            .transpose()?;
        let wrong = verified.filter(|difference| *difference > AGREES);
        // What is wrong replaces nothing.
        if let (Some(destination), None) = (destination, wrong) {
            destination.write(|out| write(&graph, &outcome.result, out))?;
        }
        let told = self.tell(&options, &input, &graph, &outcome, verified);
        match wrong {
            Some(difference) => Err(Failure::new(format_args!(
                "a rank is {difference:e} beside what the plain computation finds"
            ))),
            None => told,
        }
    }

    fn tell(
        &self,
        options: &Options,
        input: &GraphInput,
        graph: &Graph,
        outcome: &Outcome<Ranks>,
        verified: Option<f64>,
    ) -> Result<(), Failure> {
        let found = Found::of(self, graph, &outcome.result, verified);
        let headline = format!(
            "{} vertices and {} edges of {input}, {} after {} iterations, which changed the ranks by {:.3e} at last",
            found.vertices,
            found.edges,
            if found.converged {
                "ranked"
            } else {
                "not converged"
            },
            found.iterations,
            outcome.result.residual,
        );
        let verified = verified.map(|difference| {
            format!("no rank is more than {difference:.1e} beside what the plain computation finds")
        });
        let top = found.top.iter();
        let top = top.map(|top| format!("{:>14.9}  {}", top.rank, top.vertex));
        let header = match graph.first_line() {
            FirstLine::Header { line, text } => Some(format!(
                "line {line}, {text:?}, was read as a header, not as an edge"
            )),
            _ => None,
        };
        let lines = header.into_iter().chain(verified).chain(top);
        self.flags.tell(options, outcome, &found, headline, lines)
    }
}

fn load(input: &GraphInput, separator: Option<Separator>) -> Result<Graph, Failure> {
    let what = match input {
        GraphInput::File(_) => format!("reading {input}"),
        GraphInput::Rmat(_) => format!("generating {input}"),
    };
    let graph = loading(what, || input.load_separated(separator));
    let graph = graph.map_err(Failure::new)?;
    if graph.has_more_than_edges() {
        let note = "has more than edges, weights for example, which are not used";
        // If standard error is closed, nobody wants to know.
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

/// The largest difference to what one thread finds in as many iterations.
fn verify(
    graph: &Arc<Graph>,
    of: PageRank,
    ranks: &Ranks,
    interrupted: &Interrupted,
) -> Result<f64, Failure> {
    let of = PageRank {
        tolerance: 0.0,
        iterations: ranks.iterations,
        ..of
    };
    let graph = Arc::clone(graph);
    let plain = interrupted.unless(move || plain(&graph, &of))?;
    Ok(plain.largest_difference(ranks))
}

fn write(graph: &Graph, ranks: &Ranks, out: &mut dyn Write) -> io::Result<()> {
    for (vertex, rank) in (0..).zip(&ranks.ranks) {
        graph.label(vertex).write_to(&mut *out)?;
        writeln!(out, "\t{rank}")?;
    }
    Ok(())
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    vertices: u32,
    /// Each counted once.
    edges: u64,
    /// The first line of an edge list, if it was read as a header.
    header: Option<String>,
    /// The first line of an edge list, if it was read as an edge and may be a header.
    perhaps_header: Option<String>,
    iterations: u32,
    /// How much the last iteration changed all ranks together; null if none was made.
    residual: Option<f64>,
    converged: bool,
    damping: f64,
    tolerance: f64,
    task_rows: u32,
    /// The largest difference to what the plain computation found, if it was asked for.
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
