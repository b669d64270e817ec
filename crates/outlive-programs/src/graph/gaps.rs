//! Renumbering of vertices that have numbers as labels.

use super::{GraphError, Labels, Vertex};

/// Renumbers the vertices in `edges` from 0, in the order of the numbers that are their labels.
/// Returns their number and their labels.
pub(super) fn close_gaps(edges: &mut [[Vertex; 2]]) -> Result<(u32, Labels), GraphError> {
    let all = || edges.iter().flatten().copied();
    let (first, last) = all().fold((u32::MAX, 0), |(first, last), vertex| {
        (first.min(vertex), last.max(vertex))
    });
    let span = u64::from(last - first) + 1;
    let present = if span / 64 <= edges.len() as u64 {
        // A bit for each number, and the number of bits before each word.
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
            // The number is found, since all of them are in the list.
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
