//! Builds compressed sparse rows from edges.

use super::{Graph, GraphError, Labels, Notes, Vertex};

/// Returns the bytes of a graph's rows plus `held`, the bytes of its edges during construction.
fn bytes_for(vertices: u64, edges: u64, held: u64) -> u64 {
    let of_vertices = vertices.saturating_mul(12);
    of_vertices
        .saturating_add(edges.saturating_mul(4))
        .saturating_add(held)
}

/// Refuses a graph that exceeds the memory of this machine, instead of risking the OOM killer.
pub(super) fn refuse_too_large(vertices: u64, edges: u64, held: u64) -> Result<(), GraphError> {
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    let bytes = bytes_for(vertices, edges, held);
    if bytes > memory {
        return Err(GraphError::TooLarge {
            vertices,
            edges,
            bytes,
            memory,
        });
    }
    Ok(())
}

/// Returns the graph of the edges that `edges` yields, which must be the same at each call. All
/// their vertices must be less than `vertices`.
///
/// The edges are counted by target, then distributed; each vertex's edges are sorted, and
/// duplicates are dropped. Nothing but the result is allocated.
///
/// # Panics
/// If the edges were not the same the second time, or have other vertices.
pub(super) fn build<I: Iterator<Item = [Vertex; 2]>>(
    vertices: u32,
    edges: impl Fn() -> I,
    labels: Labels,
    notes: Notes,
) -> Result<Graph, GraphError> {
    let n = vertices as usize;
    refuse_too_large(vertices.into(), 0, 0)?;
    let mut begins = vec![0u64; n + 1];
    for [_, to] in edges() {
        begins[to as usize] += 1;
    }
    let mut all = 0;
    for begin in &mut begins {
        all += std::mem::replace(begin, all);
    }
    refuse_too_large(vertices.into(), all, 0)?;
    let mut sources = vec![0; all as usize];
    for [from, to] in edges() {
        let next = &mut begins[to as usize];
        sources[*next as usize] = from;
        *next += 1;
    }
    // Each word is now the end of its vertex's edges.
    let mut leaving = vec![0u32; n];
    let (mut begin, mut kept) = (0, 0);
    for end in &mut begins[..n] {
        let first = kept;
        sources[begin..*end as usize].sort_unstable();
        for at in begin..*end as usize {
            let source = sources[at];
            if kept == first || sources[kept - 1] != source {
                sources[kept] = source;
                leaving[source as usize] += 1;
                kept += 1;
            }
        }
        begin = std::mem::replace(end, first as u64) as usize;
    }
    begins[n] = kept as u64;
    sources.truncate(kept);
    sources.shrink_to_fit();
    Ok(Graph {
        begins,
        sources,
        leaving,
        labels,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn rows_are_the_set_of_the_edges(edges in prop::collection::vec([0u32..20, 0u32..20], 0..200)) {
            let graph = Graph::from_edges(20, &edges).unwrap();
            let set: BTreeSet<[u32; 2]> = edges.into_iter().map(|[from, to]| [to, from]).collect();
            let mut rows = BTreeSet::new();
            for to in 0..20 {
                let sources = graph.sources_of(to);
                prop_assert!(sources.is_sorted());
                rows.extend(sources.iter().map(|from| [to, *from]));
                let leaving = set.iter().filter(|[_, from]| *from == to).count();
                prop_assert_eq!(graph.leaving(to) as usize, leaving);
            }
            prop_assert_eq!(graph.edges(), set.len() as u64);
            prop_assert_eq!(rows, set);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let other = Graph::from_edges(3, &[[0, 3]]);
        assert!(matches!(other, Err(GraphError::NoVertex { vertex: 3, .. })));
        assert!(refuse_too_large(1 << 60, 0, 0).is_err());
        assert!(refuse_too_large(u64::MAX, u64::MAX, u64::MAX).is_err());
        let empty = Graph::from_edges(0, &[]).unwrap();
        assert_eq!((empty.vertices(), empty.edges()), (0, 0));
    }
}
