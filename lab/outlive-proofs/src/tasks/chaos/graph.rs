//! The graphs: sums of numbers by parts that are not known in advance, in rounds that are jobs of
//! their own.
//!
//! A range is cut into some parts at places that follow from its ends and the graph's number, and
//! so on until a part is short. Every task yields a sum and a number of tasks, its own among them.
//! Cutting in the same way gives the final values of both.

use xxhash_rust::xxh3::xxh3_64;

/// The most numbers that one task adds up.
const LEAF: u64 = 4;

/// Returns the parts of a range; none if it is not cut.
pub fn parts(graph: u64, from: u64, to: u64) -> Vec<(u64, u64)> {
    let len = to - from;
    if len <= LEAF {
        return Vec::new();
    }
    let word = |index: u64| {
        let words = [graph, from, to, index];
        xxh3_64(words.map(u64::to_ne_bytes).as_flattened())
    };
    let mut cuts: Vec<_> = (0..1 + word(0) % 3)
        .map(|index| from + 1 + word(1 + index) % (len - 1))
        .collect();
    cuts.extend([from, to]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|ends| (ends[0], ends[1])).collect()
}

/// Returns the sum of a range, and the number of tasks that compute it.
pub fn expected(graph: u64, from: u64, to: u64) -> [u64; 2] {
    let parts = parts(graph, from, to);
    if parts.is_empty() {
        return [(from..to).sum(), 1];
    }
    // One task cuts the range, one adds up its parts.
    let found = parts
        .into_iter()
        .map(|part| expected(graph, part.0, part.1));
    found.fold([0, 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]])
}

/// Returns the name of a range's result.
pub fn name(graph: u64, from: u64, to: u64) -> String {
    format!("{graph}: {from}..{to}")
}

/// Returns the names of the results of a range and its parts.
pub fn names(graph: u64, from: u64, to: u64) -> Vec<String> {
    let mut all = vec![name(graph, from, to)];
    for part in parts(graph, from, to) {
        all.extend(names(graph, part.0, part.1));
    }
    all
}

/// Returns the name of the job of a round.
pub fn job(graph: u64) -> String {
    format!("graph {graph}")
}

/// Registers the tasks of [chaos](crate::tasks::chaos) in a program that runs it; other programs do
/// not have them. The first of them is passed to [`run`](crate::tasks::chaos::run).
#[macro_export]
macro_rules! chaos_tasks {
    () => {
        $crate::outlive_tasks::task! {
            /// A round: a sum, and then another round, to which its own is added.
            fn chaos_round(context, graph: u64, rounds: u64, len: u64, before: [u64; 2]) {
                $crate::tasks::chaos::count(context)?;
                let name = $crate::tasks::chaos::graph::name(graph, 0, len);
                context.spawn(chaos_cut(graph, 0, len).writes(&name))?;
                context.spawn(chaos_next(graph, rounds, len, before).reads(name))
            }

            /// Cuts a range into parts, or adds up a short one, which takes a little while.
            fn chaos_cut(context, graph: u64, from: u64, to: u64) {
                $crate::tasks::chaos::count(context)?;
                let name = $crate::tasks::chaos::graph::name(graph, from, to);
                let parts = $crate::tasks::chaos::graph::parts(graph, from, to);
                if parts.is_empty() {
                    $crate::tasks::chaos::take_a_while();
                    return context.output_of(&name, &[(from..to).sum::<u64>(), 1]);
                }
                let mut last = chaos_add(graph, from, to).writes(name);
                for (from, to) in parts {
                    let part = $crate::tasks::chaos::graph::name(graph, from, to);
                    context.spawn(chaos_cut(graph, from, to).writes(&part))?;
                    last = last.reads(part);
                }
                context.spawn(last)
            }

            /// Adds up the results of the parts.
            fn chaos_add(context, graph: u64, from: u64, to: u64) {
                $crate::tasks::chaos::count(context)?;
                let mut sum = [0u64, 2];
                for (from, to) in $crate::tasks::chaos::graph::parts(graph, from, to) {
                    let name = $crate::tasks::chaos::graph::name(graph, from, to);
                    let part: [u64; 2] = context.input_of(&name)?;
                    sum = [sum[0] + part[0], sum[1] + part[1]];
                }
                context.output_of(&$crate::tasks::chaos::graph::name(graph, from, to), &sum)
            }

            /// The end of a round, and of all rounds.
            fn chaos_next(context, graph: u64, rounds: u64, len: u64, before: [u64; 2]) {
                $crate::tasks::chaos::count(context)?;
                let found: [u64; 2] = context.input_of(&$crate::tasks::chaos::graph::name(graph, 0, len))?;
                // The two tasks that belong to no part.
                let sum = [before[0] + found[0], before[1] + found[1] + 2];
                match rounds {
                    0 | 1 => context.result_of(&sum),
                    more => {
                        let next = chaos_round(graph + 1, more - 1, len, sum);
                        context.spawn_job(&$crate::tasks::chaos::graph::job(graph + 1), next)
                    }
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_a_range_wholly_and_once() {
        let mut shapes = std::collections::BTreeSet::new();
        for graph in 0..200 {
            let parts = parts(graph, 10, 110);
            assert!((2..=4).contains(&parts.len()), "{parts:?}");
            assert_eq!((parts[0].0, parts.last().unwrap().1), (10, 110));
            assert!(parts.windows(2).all(|two| two[0].1 == two[1].0));
            assert!(parts.iter().all(|part| part.0 < part.1));
            let [sum, tasks] = expected(graph, 10, 110);
            assert_eq!(sum, (10..110).sum());
            // One name for each range, and one more task for each range that is cut.
            let cut = tasks - names(graph, 10, 110).len() as u64;
            assert!((1..tasks / 2).contains(&cut), "{cut} of {tasks}");
            shapes.insert((parts, tasks));
        }
        assert!(shapes.len() > 150, "{}", shapes.len());
        assert!(parts(7, 5, 9).is_empty());
    }
}
