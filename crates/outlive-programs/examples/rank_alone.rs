//! Ranks a graph with the plain computation: `rank_alone GRAPH [ITERATIONS]`. If a number of
//! iterations is given, all of them are made.

use outlive_programs::graph::GraphInput;
use outlive_programs::pagerank::{PageRank, plain};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().ok_or("which graph?")?;
    let mut of = PageRank::default();
    if let Some(iterations) = arguments.next() {
        of.iterations = iterations.to_string_lossy().parse()?;
        of.tolerance = 0.0;
    }
    let began = Instant::now();
    let graph = GraphInput::named(&name)?.load()?;
    let loaded = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let ranks = plain(&graph, &of);
    println!(
        "{} vertices, {} edges, read in {loaded:.3} s; {} iterations in {:.3} s; residual {:e}",
        graph.vertices(),
        graph.edges(),
        ranks.iterations,
        began.elapsed().as_secs_f64(),
        ranks.residual,
    );
    Ok(())
}
