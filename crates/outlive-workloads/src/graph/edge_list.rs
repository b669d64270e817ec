//! Edge lists: a line for each edge, from where and to where, with white space between them.
//!
//! ```text
//! # a comment, also with %
//! 1 2
//! 2   3   0.5      what follows is not used: weights, times and the like
//! 3 1              # a comment
//! ```
//!
//! Empty lines and what follows a field that begins with `#` or `%` are skipped. If all vertices are numbers
//! less than 2^32, written in the usual way (no sign, no zero before them), they are put in the order of the numbers;
//! otherwise all are names, in the order in which they come. So `7` and `07` are two vertices. A graph has the vertices that
//! its edges have: a number that is not in the list is no vertex.

use super::error::shown;
use super::labels::Numbering;
use super::lines::{Lines, fields, number};
use super::{Graph, GraphError, Labels, Mistake, Vertex, build};
use std::io::BufRead;
use std::path::Path;

/// Reads an edge list, plain or compressed by gzip, called `path` in errors.
///
/// ```
/// use outlive_workloads::graph::edge_list;
///
/// let list = "# who links to whom\nhome about\nabout home\nhome news\n";
/// let graph = edge_list::read(list.as_bytes(), "links".as_ref())?;
/// assert_eq!((graph.vertices(), graph.edges()), (3, 3));
/// assert_eq!(graph.label(2).to_string(), "news");
/// # Ok::<(), outlive_workloads::graph::GraphError>(())
/// ```
///
/// # Errors
/// If it cannot be read, is none, or has no edge.
pub fn read(reader: impl BufRead + 'static, path: &Path) -> Result<Graph, GraphError> {
    read_lines(&mut Lines::of(reader, path)?)
}

/// What the vertices of a list that is being read are called.
enum Reading {
    /// By numbers; the edges have them.
    Numbers,
    /// By names; the edges have the numbers of these.
    Names(Numbering),
}

pub(super) fn read_lines(lines: &mut Lines<impl BufRead>) -> Result<Graph, GraphError> {
    let mut edges: Vec<[u32; 2]> = Vec::new();
    let (mut reading, mut has_more) = (Reading::Numbers, false);
    while let Some(line) = lines.next()? {
        let mut fields = fields(line);
        let Some(from) = fields.next() else {
            continue;
        };
        let Some(to) = fields.next() else {
            let field = shown(from);
            drop(fields);
            return Err(lines.mistake(Mistake::OneField(field)));
        };
        has_more |= fields.next().is_some();
        if let Reading::Numbers = reading {
            match (as_usual(from), as_usual(to)) {
                (Some(from), Some(to)) => {
                    edges.push([from, to]);
                    continue;
                }
                _ => reading = Reading::Names(named(&mut edges)?),
            }
        }
        if let Reading::Names(names) = &mut reading {
            edges.push([names.number(from)?, names.number(to)?]);
        }
    }
    let path = lines.path();
    if edges.is_empty() {
        return Err(GraphError::Empty { path: path.into() });
    }
    let (vertices, labels) = match reading {
        Reading::Names(names) => {
            let names = names.into_names();
            (names.len() as u32, Labels::Names(names))
        }
        Reading::Numbers => close_gaps(&mut edges)?,
    };
    edges.shrink_to_fit();
    let (count, held) = (edges.len() as u64, size_of_val(&edges[..]) as u64);
    build::refuse_too_large(vertices.into(), count, held)?;
    build::build(vertices, || edges.iter().copied(), labels, has_more)
}

/// The number that `field` is if it is written as numbers are.
#[inline]
fn as_usual(field: &[u8]) -> Option<u32> {
    if field[0] == b'0' && field.len() > 1 {
        return None;
    }
    number(field).and_then(|number| u32::try_from(number).ok())
}

/// Makes names of the vertices that were numbers so far.
fn named(edges: &mut [[u32; 2]]) -> Result<Numbering, GraphError> {
    let mut names = Numbering::new();
    for vertex in edges.iter_mut().flatten() {
        *vertex = names.number(vertex.to_string().as_bytes())?;
    }
    Ok(names)
}

/// Numbers the vertices from 0, in the order of the numbers that they are called by.
fn close_gaps(edges: &mut [[Vertex; 2]]) -> Result<(u32, Labels), GraphError> {
    let all = || edges.iter().flatten().copied();
    let (first, last) = all().fold((u32::MAX, 0), |(first, last), vertex| {
        (first.min(vertex), last.max(vertex))
    });
    let span = u64::from(last - first) + 1;
    let present = if span / 64 <= edges.len() as u64 {
        // A bit for each number, and how many come before each word.
        let mut bits = vec![0u64; span.div_ceil(64) as usize];
        for vertex in all() {
            let at = vertex - first;
            bits[at as usize / 64] |= 1 << (at % 64);
        }
        let mut before = 0u64;
        let ranks: Vec<u64> = bits
            .iter()
            .map(|word| {
                let rank = before;
                before += u64::from(word.count_ones());
                rank
            })
            .collect();
        let present = (before < span).then(|| {
            let bits = bits.iter().zip((u64::from(first)..).step_by(64));
            let numbers = bits.flat_map(|(word, from)| {
                let set = (0..64).filter(move |bit| word >> bit & 1 != 0);
                set.map(move |bit| (from + bit) as u32)
            });
            numbers.collect::<Vec<u32>>()
        });
        if before > u32::MAX.into() {
            return Err(GraphError::TooManyVertices);
        }
        for vertex in edges.iter_mut().flatten() {
            let at = *vertex - first;
            let (word, below) = (at as usize / 64, (1u64 << (at % 64)) - 1);
            *vertex = (ranks[word] + u64::from((bits[word] & below).count_ones())) as u32;
        }
        present
    } else {
        let mut numbers: Vec<u32> = all().collect();
        numbers.sort_unstable();
        numbers.dedup();
        for vertex in edges.iter_mut().flatten() {
            // It is there: all of them are.
            *vertex = numbers.partition_point(|number| number < vertex) as u32;
        }
        Some(numbers)
    };
    Ok(match present {
        Some(numbers) => (numbers.len() as u32, Labels::Numbers(numbers)),
        None => (
            u32::try_from(span).map_err(|_| GraphError::TooManyVertices)?,
            Labels::Range {
                first: first.into(),
            },
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Label;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn graph_of(text: &str) -> Result<Graph, GraphError> {
        read(std::io::Cursor::new(text.to_owned()), Path::new("list"))
    }

    /// The edges, by what their vertices are called.
    fn edges_of(graph: &Graph) -> BTreeSet<(String, String)> {
        let vertices = 0..graph.vertices();
        let of = |to| graph.sources_of(to).iter().map(move |from| (*from, to));
        let named = |(from, to)| {
            let name = |vertex| graph.label(vertex).to_string();
            (name(from), name(to))
        };
        vertices.flat_map(of).map(named).collect()
    }

    #[test]
    fn numbers_keep_their_order_and_names_come_as_they_come() {
        let graph = graph_of("# c\n\n%c\n30 10\r\n\t10   20 0.5\n20 30 # c\n30 10\n").unwrap();
        assert_eq!(graph.labels(), &Labels::Numbers(vec![10, 20, 30]));
        assert_eq!(graph.sources_of(0), [2]);
        assert_eq!(graph.edges(), 3);
        assert!(graph.has_more_than_edges());
        let graph = graph_of("5 6\n6 7 # 5\n7 5").unwrap();
        assert_eq!(graph.labels(), &Labels::Range { first: 5 });
        assert!(!graph.has_more_than_edges());
        // Far apart.
        let graph = graph_of("4294967295 0\n0 4000000000\n").unwrap();
        let far = vec![0, 4_000_000_000, u32::MAX];
        assert_eq!(graph.labels(), &Labels::Numbers(far));
        // One that is no number makes names of all.
        for odd in ["x", "07", "-1", "1.0", "4294967296", "\u{e9}"] {
            let graph = graph_of(&format!("7 3\n3 {odd}\n{odd} 7\n")).unwrap();
            let expected = [("7", "3"), ("3", odd), (odd, "7")];
            let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
            assert_eq!(edges_of(&graph), BTreeSet::from(expected), "{odd}");
            assert_eq!(graph.label(0), Label::Name(b"7"));
        }
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let told = |text: &str| graph_of(text).unwrap_err().to_string();
        assert_eq!(told("# none\n"), "list has no edge and no vertex");
        let one = told("1 2\n\n1,2\n");
        assert!(
            one.starts_with("list, line 3: it has the field \"1,2\""),
            "{one}"
        );
        let comment = told("1 # 2\n");
        assert!(
            comment.starts_with("list, line 1: it has the field"),
            "{comment}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_graph_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(std::io::Cursor::new(bytes), Path::new("bytes"));
        }

        #[test]
        fn almost_a_list_is_a_graph_or_an_error(text in "([0-9a#% \t\n-]|4294967295|\n){0,80}") {
            if let Ok(graph) = graph_of(&text) {
                prop_assert!(graph.sources().iter().all(|source| *source < graph.vertices()));
            }
        }

        #[test]
        fn what_is_written_is_read(
            edges in prop::collection::vec((0u32..50, 0u32..50), 1..100),
            spread in prop::sample::select(vec![1u32, 3, 80_000_000]),
            names: bool,
        ) {
            let name = |vertex: u32| match names {
                true => format!("v{vertex}"),
                false => (vertex * spread).to_string(),
            };
            let named: Vec<_> = edges.iter().map(|(a, b)| (name(*a), name(*b))).collect();
            let text: String = named.iter().map(|(a, b)| format!("{a}\t{b}\n")).collect();
            let graph = graph_of(&text).unwrap();
            prop_assert_eq!(edges_of(&graph), named.into_iter().collect::<BTreeSet<_>>());
        }
    }
}
