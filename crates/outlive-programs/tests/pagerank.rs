//! PageRank against networkx, to 1e-9: the ranks in `tests/pagerank`, written by `expected.py`
//! there.

use outlive_programs::graph::{Graph, GraphInput};
use outlive_programs::pagerank::{PageRank, plain};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

fn graph_of(name: &str) -> Graph {
    let input = if name.starts_with("rmat:") {
        name.into()
    } else {
        Path::new("tests/pagerank").join(name)
    };
    let input = GraphInput::named(input.as_os_str()).unwrap();
    input.load().unwrap()
}

/// Returns the numbers of vertices and edges, and the rank of each vertex, by networkx.
fn expected(name: &str) -> ([u64; 2], HashMap<String, f64>) {
    let path = format!("tests/pagerank/{}.ranks", name.replace(':', "-"));
    let text = fs::read_to_string(path).unwrap();
    let (comments, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let sizes: Vec<u64> = comments[1]
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let ranks = lines.iter().map(|line| {
        let (vertex, rank) = line.split_once('\t').unwrap();
        (vertex.to_owned(), rank.parse().unwrap())
    });
    (sizes.try_into().unwrap(), ranks.collect())
}

#[test]
fn ranks_are_those_of_networkx() {
    for name in ["packages.txt.gz", "small.mtx", "rmat:9:8:5"] {
        let graph = graph_of(name);
        let ([vertices, edges], expected) = expected(name);
        assert_eq!(u64::from(graph.vertices()), vertices, "{name}");
        assert_eq!(graph.edges(), edges, "{name}");
        let found = plain(&graph, &PageRank::default());
        assert!(found.converged, "{name}");
        assert_eq!(expected.len(), found.ranks.len());
        let mut most = 0.0f64;
        for (vertex, rank) in (0..).zip(&found.ranks) {
            let wanted = expected[&graph.label(vertex).to_string()];
            most = most.max((rank - wanted).abs());
        }
        println!(
            "{name}: {} iterations, at most {most:e} beside",
            found.iterations
        );
        assert!(most < 1e-9, "{name}: {most:e}");
    }
}
