//! The baseline: a careful plain PageRank with one thread and ordinary memory.

use super::{PageRank, Ranks};
use crate::graph::{Graph, Vertex};

/// Computes the ranks of `graph` with one thread.
///
/// The vector holds the contribution of each edge, its source's rank divided by the number of edges
/// that leave the source, instead of the rank. So an edge costs one number of the graph and one of
/// the vector. A rank is the stored number times the number of edges that leave.
///
/// ```
/// use outlive_programs::graph::Graph;
/// use outlive_programs::pagerank::{PageRank, plain};
///
/// let graph = Graph::from_edges(3, &[[0, 1], [1, 0], [2, 0]])?;
/// let ranks = plain(&graph, &PageRank::default());
/// assert!(ranks.converged && ranks.ranks[0] > ranks.ranks[1]);
/// assert!((ranks.ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12);
/// # Ok::<(), outlive_programs::graph::GraphError>(())
/// ```
pub fn plain(graph: &Graph, of: &PageRank) -> Ranks {
    let n = graph.vertices() as usize;
    let even = 1.0 / n as f64;
    // A vertex that no edge leaves keeps its rank.
    let shares = |vertex: usize| f64::from(graph.all_leaving()[vertex].max(1));
    let mut brings: Vec<f64> = (0..n).map(|vertex| even / shares(vertex)).collect();
    let mut next = vec![0.0; n];
    let dangling = graph.all_leaving().iter().filter(|edges| **edges == 0);
    let mut lost = dangling.count() as f64 * even;
    let (mut iterations, mut residual) = (0, f64::INFINITY);
    while iterations < of.iterations && (residual >= of.tolerance) {
        let base = (1.0 - of.damping) * even + of.damping * lost * even;
        (residual, lost) = iterate(graph, of.damping, base, &brings, &mut next);
        std::mem::swap(&mut brings, &mut next);
        iterations += 1;
    }
    for (vertex, rank) in brings.iter_mut().enumerate() {
        *rank *= shares(vertex);
    }
    Ranks {
        ranks: brings,
        iterations,
        residual,
        converged: residual < of.tolerance,
    }
}

/// The number of rows that are summed separately: one running sum of millions of small numbers
/// would lose them.
const BLOCK: usize = 1024;

/// Computes one iteration, from `brings` to `next`. Returns its residual, and the rank of all
/// dangling vertices after it.
fn iterate(graph: &Graph, damping: f64, base: f64, brings: &[f64], next: &mut [f64]) -> (f64, f64) {
    assert_eq!(brings.len(), graph.vertices() as usize);
    let (mut residual, mut lost) = (0.0, 0.0);
    for (block, next) in next.chunks_mut(BLOCK).enumerate() {
        let first = block * BLOCK;
        let rows = first..first + next.len();
        let before = &brings[rows.clone()];
        let leaving = &graph.all_leaving()[rows];
        let ends = &graph.begins()[first + 1..=first + next.len()];
        let mut begin = graph.begins()[first] as usize;
        let (mut residual_here, mut lost_here) = (0.0, 0.0);
        for (((next, brought), leaving), end) in next.iter_mut().zip(before).zip(leaving).zip(ends)
        {
            let end = *end as usize;
            // SAFETY: a graph's rows begin where the row before ends, and the last one ends with
            // the sources.
            let sources = unsafe { graph.sources().get_unchecked(begin..end) };
            begin = end;
            // SAFETY: the sources of a graph are its vertices, and `brings` has an element for each
            // vertex.
            let rank = base + damping * unsafe { sum(sources, brings) };
            let shares = f64::from((*leaving).max(1));
            residual_here += (rank - brought * shares).abs();
            if *leaving == 0 {
                lost_here += rank;
            }
            *next = rank / shares;
        }
        residual += residual_here;
        lost += lost_here;
    }
    (residual, lost)
}

/// Returns the sum of the contributions of `sources`, in four parts, so that an addition does not
/// wait for the previous one.
///
/// # Safety
/// Each source is an index of `brings`.
#[inline(always)]
unsafe fn sum(sources: &[Vertex], brings: &[f64]) -> f64 {
    // SAFETY: the caller's.
    let brought = |source: &Vertex| unsafe { *brings.get_unchecked(*source as usize) };
    let mut sums = [0.0; 4];
    let (fours, rest) = sources.as_chunks::<4>();
    for four in fours {
        for (sum, source) in sums.iter_mut().zip(four) {
            *sum += brought(source);
        }
    }
    let mut last = 0.0;
    for source in rest {
        last += brought(source);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the same by a matrix, with every rule written out once more.
    fn by_matrix(n: usize, edges: &[[u32; 2]], of: &PageRank) -> (Vec<f64>, u32, f64) {
        let mut adjacent = vec![vec![0.0; n]; n];
        for [from, to] in edges {
            adjacent[*from as usize][*to as usize] = 1.0;
        }
        let follow: Vec<Vec<f64>> = adjacent
            .iter()
            .map(|row| match row.iter().sum::<f64>() {
                0.0 => vec![1.0 / n as f64; n],
                all => row.iter().map(|edge| edge / all).collect(),
            })
            .collect();
        let mut ranks = vec![1.0 / n as f64; n];
        for iteration in 1..=of.iterations {
            let next: Vec<f64> = (0..n)
                .map(|to| {
                    let followed: f64 = (0..n).map(|from| ranks[from] * follow[from][to]).sum();
                    (1.0 - of.damping) / n as f64 + of.damping * followed
                })
                .collect();
            let residual: f64 = ranks.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
            ranks = next;
            if residual < of.tolerance || iteration == of.iterations {
                return (ranks, iteration, residual);
            }
        }
        (ranks, 0, f64::INFINITY)
    }

    proptest! {
        #[test]
        fn it_is_the_power_iteration_of_the_dense_matrix(
            n in 1u32..40,
            edges in prop::collection::vec([0u32..40, 0u32..40], 0..200),
            damping in 0.0f64..1.0,
            iterations in 0u32..60,
        ) {
            let edges: Vec<[u32; 2]> = edges.into_iter().map(|edge| edge.map(|at| at % n)).collect();
            let graph = Graph::from_edges(n, &edges).unwrap();
            let of = PageRank { damping, tolerance: 1e-7, iterations };
            let found = plain(&graph, &of);
            let (expected, made, residual) = by_matrix(n as usize, &edges, &of);
            for (found, expected) in found.ranks.iter().zip(&expected) {
                prop_assert!((found - expected).abs() < 1e-13, "{} is {}", found, expected);
            }
            prop_assert!((found.ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            // A residual at the border of the tolerance may be on either side of it.
            if (residual - of.tolerance).abs() > 1e-13 && found.iterations == made {
                prop_assert_eq!(found.converged, residual < of.tolerance);
            }
            prop_assert!(found.iterations.abs_diff(made) <= 1);
        }
    }

    #[test]
    fn it_ends_when_it_has_converged_or_after_as_many_iterations_as_are_allowed() {
        let graph = Graph::from_edges(4, &[[0, 1], [1, 2], [2, 0], [3, 0]]).unwrap();
        let ranks = plain(&graph, &PageRank::default());
        assert!(ranks.converged && ranks.residual < 1e-10 && ranks.iterations < 200);
        let of = PageRank {
            iterations: 10,
            ..PageRank::default()
        };
        let ranks = plain(&graph, &of);
        assert!(!ranks.converged && ranks.residual > 1e-10);
        assert_eq!(ranks.iterations, 10);
        // All of them, at 0, though the ranks do not change any more.
        let even = Graph::from_edges(2, &[[0, 1], [1, 0]]).unwrap();
        let of = PageRank {
            tolerance: 0.0,
            iterations: 7,
            ..PageRank::default()
        };
        let ranks = plain(&even, &of);
        assert_eq!(
            (ranks.iterations, ranks.residual, &ranks.ranks[..]),
            (7, 0.0, &[0.5, 0.5][..])
        );
        let none = plain(
            &even,
            &PageRank {
                iterations: 0,
                ..of
            },
        );
        assert_eq!(
            (none.iterations, none.converged, &none.ranks[..]),
            (0, false, &[0.5, 0.5][..])
        );
        assert!(
            plain(&Graph::from_edges(0, &[]).unwrap(), &of)
                .ranks
                .is_empty()
        );
    }

    #[test]
    fn ranks_of_many_vertices_sum_to_1() {
        // Most are dangling and have the same rank, so all rounding goes in one direction.
        let edges: Vec<[u32; 2]> = (0..1000).map(|from| [from, from * 7 % 1000]).collect();
        let graph = Graph::from_edges(1_000_003, &edges).unwrap();
        let ranks = plain(&graph, &PageRank::default());
        let sum: f64 = ranks
            .ranks
            .chunks(1000)
            .map(|some| some.iter().sum::<f64>())
            .sum();
        assert!((sum - 1.0).abs() < 1e-13, "{sum}");
    }

    #[test]
    fn differences_are_found() {
        let ranks = |ranks: &[f64]| Ranks {
            ranks: ranks.to_vec(),
            iterations: 1,
            residual: 0.0,
            converged: true,
        };
        let these = ranks(&[0.5, 0.5]);
        assert_eq!(these.largest_difference(&these), 0.0);
        assert_eq!(these.largest_difference(&ranks(&[0.5, 0.25])), 0.25);
        assert_eq!(these.largest_difference(&ranks(&[0.5])), f64::INFINITY);
        assert_eq!(
            these.largest_difference(&ranks(&[f64::NAN, 0.5])),
            f64::INFINITY
        );
    }
}
