//! Verifies a result by computing it again in another way: one distance after the other, and sums
//! that are exact by other means.
//!
//! If a point is equally near to two centres, the last digit of a mean decides, so the means must
//! be as exact as in the kernel. They are computed by Shewchuk's expansions (J. R. Shewchuk,
//! *Adaptive precision floating-point arithmetic*, 1997), which represent a sum as several
//! non-overlapping `f64`s.

use super::{Clusters, Points, initial, is_last};

/// The allowed difference of a coordinate, relative to the largest one.
const APART: f64 = 1e-9;

/// A wrong result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The options are invalid for the points.
    #[error(transparent)]
    Options(#[from] super::ClusterError),
    /// Its parts do not fit together.
    #[error("{found} has {found_len} elements, and should have {expected}")]
    Shape {
        /// The value that was found.
        found: &'static str,
        /// The number of its elements.
        found_len: usize,
        /// The expected number.
        expected: usize,
    },
    /// The number of iterations is wrong.
    #[error("{found} iterations were done, and {expected} should have been")]
    Iterations {
        /// The number in the result.
        found: u32,
        /// The expected number.
        expected: u32,
    },
    /// A group has another number of points.
    #[error("group {group} has {found} points, and should have {expected}")]
    Count {
        /// The group.
        group: usize,
        /// The number in the result.
        found: u64,
        /// The expected number.
        expected: u64,
    },
    /// A centre is wrong.
    #[error("coordinate {coordinate} of centre {group} is {found}, and should be {expected}")]
    Centre {
        /// The number of the centre.
        group: usize,
        /// The number of its coordinate.
        coordinate: usize,
        /// The value that was found.
        found: f64,
        /// The expected value.
        expected: f64,
    },
}

/// Checks that `found` is the result for `points` and its options.
///
/// # Errors
/// Returns the first difference.
pub fn verify(points: &Points, found: &Clusters) -> Result<(), Mismatch> {
    let options = &found.options;
    let dimensions = points.dimensions();
    let mut centres = initial(points, options.clusters, options.seed)?;
    let shape = |what, found_len, expected| match found_len == expected {
        true => Ok(()),
        false => Err(Mismatch::Shape {
            found: what,
            found_len,
            expected,
        }),
    };
    shape("the list of centres", found.centres.len(), centres.len())?;
    shape("the list of counts", found.counts.len(), options.clusters)?;
    let mut iterations = 0;
    let counts = loop {
        let (counts, moved) = step(points, &mut centres);
        iterations += 1;
        if is_last(options, iterations, moved) {
            break counts;
        }
    };
    if iterations != found.iterations {
        return Err(Mismatch::Iterations {
            found: found.iterations,
            expected: iterations,
        });
    }
    for (group, (found, expected)) in found.counts.iter().zip(counts).enumerate() {
        if *found != expected {
            return Err(Mismatch::Count {
                group,
                found: *found,
                expected,
            });
        }
    }
    let largest = points
        .coordinates()
        .iter()
        .fold(0.0f64, |a, b| a.max(b.abs()));
    for (at, (found, expected)) in found.centres.iter().zip(centres).enumerate() {
        if (found - expected).abs() > APART * largest || found.is_nan() {
            return Err(Mismatch::Centre {
                group: at / dimensions,
                coordinate: at % dimensions,
                found: *found,
                expected,
            });
        }
    }
    Ok(())
}

/// Computes an iteration. Returns each centre's number of points, and the largest move.
fn step(points: &Points, centres: &mut [f64]) -> (Vec<u64>, f64) {
    let dimensions = points.dimensions();
    let mut counts = vec![0u64; centres.len() / dimensions];
    let mut sums = vec![Expansion::default(); centres.len()];
    for number in 0..points.len() {
        let point = points.point(number);
        let mut nearest = (f64::INFINITY, 0);
        for (group, centre) in centres.chunks(dimensions).enumerate() {
            let mut square = 0.0;
            for (x, y) in point.iter().zip(centre) {
                square += (x - y).powi(2);
            }
            if square < nearest.0 {
                nearest = (square, group);
            }
        }
        counts[nearest.1] += 1;
        for (at, x) in point.iter().enumerate() {
            sums[nearest.1 * dimensions + at].add(*x);
        }
    }
    let mut furthest = 0.0f64;
    for (group, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let mut square = 0.0;
        for at in group * dimensions..(group + 1) * dimensions {
            let mean = sums[at].value() / *count as f64;
            square += (mean - centres[at]).powi(2);
            centres[at] = mean;
        }
        furthest = furthest.max(square.sqrt());
    }
    (counts, furthest)
}

/// An exact sum: numbers of growing size that do not overlap.
#[derive(Clone, Default)]
struct Expansion(Vec<f64>);

impl Expansion {
    fn add(&mut self, mut x: f64) {
        let mut kept = 0;
        for at in 0..self.0.len() {
            let (mut large, mut small) = (x, self.0[at]);
            if large.abs() < small.abs() {
                (large, small) = (small, large);
            }
            let sum = large + small;
            let rest = small - (sum - large);
            if rest != 0.0 {
                self.0[kept] = rest;
                kept += 1;
            }
            x = sum;
        }
        self.0.truncate(kept);
        self.0.push(x);
    }

    /// Returns the sum, rounded once (except for a tie that a third part would break).
    fn value(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, part| sum + part)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, cluster};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_the_program_finds_is_right_to_the_bit(
            seed in any::<u64>(),
            dimensions in 1usize..6,
            clusters in 1usize..20,
            whole in any::<bool>(),
        ) {
            let points = match whole {
                false => Points::generate(400, dimensions, 5, seed),
                // Whole numbers, many of them equally near to two centres.
                true => {
                    let mut random = outlive_run::random::Random::new(seed);
                    let text: String = (0..300)
                        .map(|_| format!("{} {}\n", random.below(12), random.below(9)))
                        .collect();
                    Points::parse(text.as_bytes()).unwrap()
                }
            };
            let found = cluster(&points, &Options { clusters, seed, ..Options::default() }).unwrap();
            prop_assert_eq!(verify(&points, &found), Ok(()));
            let mut centres = initial(&points, clusters, seed).unwrap();
            for _ in 0..found.iterations {
                step(&points, &mut centres);
            }
            prop_assert_eq!(&centres, &found.centres);
        }
    }

    #[test]
    fn what_is_wrong_is_noticed() {
        let points = Points::generate(1000, 3, 4, 9);
        let right = cluster(
            &points,
            &Options {
                clusters: 4,
                ..Options::default()
            },
        )
        .unwrap();
        assert!(right.iterations > 1 && right.moved == 0.0);
        let wrong = |change: &dyn Fn(&mut super::Clusters)| {
            let mut found = right.clone();
            change(&mut found);
            verify(&points, &found).unwrap_err().to_string()
        };
        let said = wrong(&|found| found.counts[2] += 1);
        assert!(said.contains("group 2 has"), "{said}");
        let said = wrong(&|found| found.centres[4] += 1e-3);
        assert!(said.contains("coordinate 1 of centre 1"), "{said}");
        let said = wrong(&|found| found.iterations += 1);
        assert!(said.contains("iterations"), "{said}");
        let said = wrong(&|found| found.options.clusters = 2000);
        assert!(said.contains("ask for 1 to 1000 groups"), "{said}");
        wrong(&|found| found.centres[0] = f64::NAN);
        wrong(&|found| found.counts.truncate(1));
    }

    #[test]
    fn a_centre_without_points_stays_where_it_is() {
        // Two centres at 0 and 10, and no point is nearer to a third.
        let points = Points::parse(b"0\n10\n").unwrap();
        let mut centres = vec![0.0, 10.0, 500.0];
        assert_eq!(step(&points, &mut centres), (vec![1, 1, 0], 0.0));
        assert_eq!(centres, [0.0, 10.0, 500.0]);
    }
}
