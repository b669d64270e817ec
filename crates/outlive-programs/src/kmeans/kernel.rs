//! The work of a task: assigns a chunk of points to centres and adds them up.

use crate::wide::widest;

/// The number of centres that are compared together.
const LANES: usize = 8;

/// The step in which coordinates are counted, a power of two. All points share one grid, chosen by
/// their [`largest`] coordinate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The reciprocal of the step.
    scale: f64,
}

impl Grid {
    /// Returns the grid for the largest coordinate `largest`, which is 2^61 to 2^62 steps.
    pub fn of(largest: f64) -> Self {
        // The exponent as encoded in the number; for subnormal numbers, too small an exponent will
        // do.
        let exponent = (largest.abs().to_bits() >> 52) as i32 - 1023;
        let power = (61 - exponent).clamp(-1000, 1000);
        Self {
            scale: f64::from_bits(((power + 1023) as u64) << 52),
        }
    }

    /// Returns the number of whole steps in `coordinate`.
    #[inline(always)]
    fn steps(self, coordinate: f64) -> i64 {
        (coordinate * self.scale) as i64
    }
}

/// Returns the largest coordinate of a chunk, without its sign. The largest of all points is the
/// largest of their chunks'.
pub fn largest(points: &[f64]) -> f64 {
    points.iter().fold(0.0, |largest, x| x.abs().max(largest))
}

/// The centres of an iteration, in the order in which they are compared: the first coordinates of
/// `LANES` centres, then the second ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Centres {
    packed: Vec<f64>,
    dimensions: usize,
}

impl Centres {
    /// Packs `centres`, which are stored one after the other.
    ///
    /// # Panics
    /// If `dimensions` is 0, or `centres` is empty or ends within a centre.
    pub fn new(centres: &[f64], dimensions: usize) -> Self {
        assert!(!centres.is_empty() && centres.len().is_multiple_of(dimensions));
        let clusters = centres.len() / dimensions;
        // Unused lanes hold infinitely far centres.
        let mut packed = vec![f64::INFINITY; clusters.next_multiple_of(LANES) * dimensions];
        for (number, centre) in centres.chunks_exact(dimensions).enumerate() {
            let block = number / LANES * LANES * dimensions;
            for (at, coordinate) in centre.iter().enumerate() {
                packed[block + at * LANES + number % LANES] = *coordinate;
            }
        }
        Self { packed, dimensions }
    }

    /// Returns the number of the centre nearest to `point`; of several, the first.
    #[inline(always)]
    fn nearest(&self, point: &[f64]) -> usize {
        // The number of the block is kept as an `f64`, so that it is selected by lanes, as the
        // square is.
        let (mut best, mut best_block) = ([f64::INFINITY; LANES], [0.0; LANES]);
        let mut number = 0.0;
        for block in self.packed.chunks_exact(LANES * self.dimensions) {
            let mut squares = [0.0; LANES];
            for (x, lanes) in point.iter().zip(block.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    let apart = x - lanes[lane];
                    squares[lane] += apart * apart;
                }
            }
            for lane in 0..LANES {
                let is_nearer = squares[lane] < best[lane];
                best[lane] = if is_nearer { squares[lane] } else { best[lane] };
                best_block[lane] = if is_nearer { number } else { best_block[lane] };
            }
            number += 1.0;
        }
        let mut nearest = (best[0], best_block[0] as usize * LANES);
        for lane in 1..LANES {
            let number = best_block[lane] as usize * LANES + lane;
            if best[lane] < nearest.0 || (best[lane] == nearest.0 && number < nearest.1) {
                nearest = (best[lane], number);
            }
        }
        nearest.1
    }
}

/// The sums of points: for each centre, the number of points nearest to it, and their sum in steps
/// of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    sums: Vec<i128>,
    counts: Vec<u64>,
}

impl Sums {
    /// Returns the sums of an empty set of points: zeros.
    pub fn new(clusters: usize, dimensions: usize) -> Self {
        Self {
            sums: vec![0; clusters * dimensions],
            counts: vec![0; clusters],
        }
    }

    /// Builds the sums from their stored parts.
    ///
    /// # Panics
    /// If the number of sums is not a multiple of the number of counts.
    pub fn from_parts(sums: Vec<i128>, counts: Vec<u64>) -> Self {
        assert!(!counts.is_empty() && sums.len().is_multiple_of(counts.len()));
        Self { sums, counts }
    }

    /// Returns the sums of the coordinates, centre after centre, in steps of the grid.
    pub fn sums(&self) -> &[i128] {
        &self.sums
    }

    /// Returns the number of points of each centre.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Resets the sums to those of no points.
    pub fn clear(&mut self) {
        self.sums.fill(0);
        self.counts.fill(0);
    }

    /// Adds the sums of other points. The result is the same to the bit in any order.
    ///
    /// # Panics
    /// If the numbers of centres or dimensions differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(
            (self.sums.len(), self.counts.len()),
            (other.sums.len(), other.counts.len())
        );
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum += more;
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// Moves `centres` to the means; a centre without points stays. Returns the largest distance
    /// that a centre moved.
    ///
    /// # Panics
    /// If the number of `centres` differs from that of the sums.
    pub fn means(&self, grid: Grid, centres: &mut [f64]) -> f64 {
        assert_eq!(centres.len(), self.sums.len());
        let dimensions = self.sums.len() / self.counts.len();
        let mut furthest = 0.0f64;
        let sums = self.sums.chunks_exact(dimensions);
        let all = centres.chunks_exact_mut(dimensions).zip(sums);
        for ((centre, sums), count) in all.zip(&self.counts) {
            if *count == 0 {
                continue;
            }
            let mut square = 0.0;
            for (coordinate, sum) in centre.iter_mut().zip(sums) {
                let mean = *sum as f64 / *count as f64 / grid.scale;
                square += (mean - *coordinate) * (mean - *coordinate);
                *coordinate = mean;
            }
            furthest = furthest.max(square.sqrt());
        }
        furthest
    }
}

widest! {
    /// Adds the points of a chunk, stored one after the other, to `sums`. A task has sums of its
    /// own, and a re-executed task begins with empty ones.
    ///
    /// # Panics
    /// If the chunk ends within a point, or `sums` is of fewer centres or dimensions than
    /// `centres`.
    pub fn add(points: &[f64], centres: &Centres, grid: Grid, sums: &mut Sums) {
        let dimensions = centres.dimensions;
        assert!(points.len().is_multiple_of(dimensions), "the chunk ends within a point");
        for point in points.chunks_exact(dimensions) {
            let nearest = centres.nearest(point);
            sums.counts[nearest] += 1;
            let sums = &mut sums.sums[nearest * dimensions..][..dimensions];
            for (sum, x) in sums.iter_mut().zip(point) {
                *sum += i128::from(grid.steps(*x));
            }
        }
    }
}

widest! {
    /// Writes the number of the nearest centre of each point of a chunk.
    ///
    /// # Panics
    /// If there is not one number for each point.
    pub fn assign(points: &[f64], centres: &Centres, numbers: &mut [u32]) {
        assert_eq!(points.len(), numbers.len() * centres.dimensions);
        for (point, number) in points.chunks_exact(centres.dimensions).zip(numbers) {
            *number = centres.nearest(point) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Points;
    use super::*;
    use proptest::prelude::*;

    /// The definition.
    fn nearest_plainly(point: &[f64], centres: &[f64]) -> usize {
        let square = |centre: &[f64]| -> f64 {
            let apart = point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b));
            apart.fold(0.0, |sum, square| sum + square)
        };
        let mut best = (f64::INFINITY, 0);
        for (number, centre) in centres.chunks(point.len()).enumerate() {
            if square(centre) < best.0 {
                best = (square(centre), number);
            }
        }
        best.1
    }

    proptest! {
        #[test]
        fn the_nearest_is_the_first_of_the_nearest(
            dimensions in 1usize..6,
            raw in prop::collection::vec(-4i8..5, 6..200),
            clusters in 1usize..30,
        ) {
            // Whole numbers, so that many are equally near.
            let all: Vec<f64> = raw.iter().map(|x| f64::from(*x)).collect();
            let points = &all[..all.len() / dimensions * dimensions];
            let clusters = clusters.min(points.len() / dimensions);
            let centres = &points[..clusters * dimensions];
            let packed = Centres::new(centres, dimensions);
            let mut numbers = vec![0; points.len() / dimensions];
            assign(points, &packed, &mut numbers);
            for (point, number) in points.chunks(dimensions).zip(numbers) {
                prop_assert_eq!(nearest_plainly(point, centres), number as usize);
            }
        }

        #[test]
        fn however_the_work_is_divided_the_result_is_the_same(
            seed in any::<u64>(),
            dimensions in 1usize..5,
            cuts in prop::collection::vec(0usize..300, 0..9),
            turn in 0usize..9,
        ) {
            let points = Points::generate(300, dimensions, 7, seed);
            let mut centres = super::super::initial(&points, 11, seed).unwrap();
            let packed = Centres::new(&centres, dimensions);
            let grid = Grid::of(largest(points.coordinates()));
            let mut whole = Sums::new(11, dimensions);
            add(points.coordinates(), &packed, grid, &mut whole);

            let mut cuts = [vec![0, 300], cuts].concat();
            cuts.sort_unstable();
            let mut parts: Vec<Sums> = cuts
                .windows(2)
                .map(|ends| {
                    let mut sums = Sums::new(11, dimensions);
                    let chunk = &points.coordinates()[ends[0] * dimensions..ends[1] * dimensions];
                    add(chunk, &packed, grid, &mut sums);
                    sums
                })
                .collect();
            let turn = turn % parts.len();
            parts.rotate_left(turn);
            let mut merged = Sums::new(11, dimensions);
            parts.iter().for_each(|part| merged.merge(part));
            prop_assert_eq!(&merged, &whole);
            let again = Sums::from_parts(merged.sums().to_vec(), merged.counts().to_vec());
            let mut same = centres.clone();
            whole.means(grid, &mut centres);
            again.means(grid, &mut same);
            prop_assert_eq!(centres, same);
        }
    }

    /// The reason for the grid: the test above can fail.
    #[test]
    fn sums_of_floating_point_numbers_depend_on_who_did_what() {
        let points = Points::generate(1000, 1, 1, 1);
        let sum = |part: &[f64]| part.iter().fold(0.0, |sum, x| sum + x);
        let cut_at = |at: usize| {
            let (first, second) = points.coordinates().split_at(at);
            sum(first) + sum(second)
        };
        assert!((1..1000).any(|at| cut_at(at) != cut_at(0)));
    }

    #[test]
    fn a_centre_without_points_stays_where_it_is() {
        let mut centres = [0.0, 500.0];
        let grid = Grid::of(10.0);
        let mut sums = Sums::new(2, 1);
        add(&[1.0, 3.0], &Centres::new(&centres, 1), grid, &mut sums);
        assert_eq!(
            (sums.means(grid, &mut centres), sums.counts()),
            (2.0, &[2, 0][..])
        );
        assert_eq!(centres, [2.0, 500.0]);
    }

    #[test]
    fn the_grid_reaches_from_the_smallest_to_the_largest() {
        for largest in [0.0, 5e-324, 1e-300, 0.1, 1.0, 1e9, -3.0, 1e150] {
            let grid = Grid::of(largest);
            let steps = grid.steps(largest);
            assert!(steps.unsigned_abs() < 1 << 62, "{largest}");
            if largest.abs() > 1e-280 {
                assert_eq!(steps as f64 / grid.scale, largest);
                assert_eq!(
                    grid.steps(largest / 255.0) as f64 / grid.scale,
                    largest / 255.0
                );
            }
        }
    }
}
