//! KMeans: groups points around centres (Lloyd's algorithm; one of LUPIN's MapReduce programs).
//!
//! An iteration assigns each point to the nearest centre (the lowest-numbered of equally near ones)
//! and moves each centre to the mean of its points; a centre without points stays. It ends when no
//! centre moves by more than a tolerance, or after a number of iterations.
//!
//! **The result does not depend on the workers.** Sums of floating-point numbers depend on their
//! order, so an iteration that was divided differently, or partly re-executed, would give another
//! result. Here coordinates are added as whole multiples of a [`Grid`]'s step, 2^-61 of the largest
//! coordinate or finer, in 128 bits: such sums are exact, so they may be divided and combined in
//! any way. The loss is less than the rounding of any one addition of `f64`s; coordinates of at
//! least 1/256 of the largest lose nothing.
//!
//! * [`Points`] are read from text or generated; [`kernel`] is the work of a task: [`kernel::add`]
//!   adds up a chunk of points, [`kernel::Sums::merge`] combines chunks, [`kernel::Sums::means`]
//!   computes the next centres.
//! * [`Clustering`] is the program of tasks, with a job for each iteration.
//! * [`cluster`] is the plain program, with one thread.
//! * [`verify`](verify::verify) repeats all of it in another way.
//!
//! ```
//! use outlive_programs::kmeans::{self, Options, Points};
//!
//! let points = Points::parse(b"1,1\n1,2\n9,9\n9,8\n")?;
//! let found = kmeans::cluster(&points, &Options { clusters: 2, ..Options::default() })?;
//! let mut centres: Vec<&[f64]> = found.centres.chunks(2).collect();
//! centres.sort_by(|a, b| a[0].total_cmp(&b[0]));
//! assert_eq!(centres, [[1.0, 1.5], [9.0, 8.5]]);
//! kmeans::verify::verify(&points, &found)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
pub mod kernel;
mod on_tasks;
mod tasks;
pub mod verify;

pub use input::{LARGEST, MOST_DIMENSIONS, Points, ReadError};
pub use on_tasks::Clustering;
pub use tasks::{add_part, iterate};

use kernel::{Centres, Grid, Sums};
use outlive_run::random::Random;
use std::collections::HashSet;

/// The parameters of a computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The number of groups.
    pub clusters: usize,
    /// The maximum number of iterations.
    pub iterations: u32,
    /// The computation ends when no centre moves by more than this; 0: when no centre moves at all.
    pub tolerance: f64,
    /// The seed that selects the points at which the centres begin.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clusters: 8,
            iterations: 100,
            tolerance: 0.0,
            seed: 1,
        }
    }
}

/// The result of a computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The centres, one after the other, each with as many coordinates as a point has.
    pub centres: Vec<f64>,
    /// The number of points of each centre in the last iteration.
    pub counts: Vec<u64>,
    /// The number of iterations.
    pub iterations: u32,
    /// The largest distance that a centre moved in the last iteration.
    pub moved: f64,
    /// The parameters of the computation.
    pub options: Options,
}

/// The reason why points cannot be grouped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No group is requested, or more than there are different points.
    #[error(
        "{wanted} groups of {distinct} distinct points are not possible; ask for 1 to {distinct} \
         groups"
    )]
    Clusters {
        /// The requested number of groups.
        wanted: usize,
        /// The number of different points.
        distinct: usize,
    },
}

/// Returns the centres to begin with: different points, drawn with `seed`.
///
/// # Errors
/// If there are fewer different points than groups, or no group is requested.
pub fn initial(points: &Points, clusters: usize, seed: u64) -> Result<Vec<f64>, ClusterError> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let mut random = Random::new(seed);
    let mut seen = HashSet::new();
    let mut centres = Vec::new();
    for at in 0..order.len() {
        if clusters > 0 && seen.len() == clusters {
            return Ok(centres);
        }
        let other = at + random.below((order.len() - at) as u64) as usize;
        order.swap(at, other);
        let point = points.point(order[at]);
        // Added to 0, so that -0 is 0.
        if seen.insert(
            point
                .iter()
                .map(|x| (x + 0.0).to_bits())
                .collect::<Vec<_>>(),
        ) {
            centres.extend_from_slice(point);
        }
    }
    match seen.len() == clusters && clusters > 0 {
        true => Ok(centres),
        false => Err(ClusterError::Clusters {
            wanted: clusters,
            distinct: seen.len(),
        }),
    }
}

/// Returns whether iteration `iteration` (from 1), in which the centres moved by `moved`, was the
/// last.
pub fn is_last(options: &Options, iteration: u32, moved: f64) -> bool {
    iteration >= options.iterations || moved <= options.tolerance
}

/// Groups `points` with one thread, in ordinary memory, with at least one iteration.
///
/// # Errors
/// If there are fewer different points than groups, or no group is requested.
pub fn cluster(points: &Points, options: &Options) -> Result<Clusters, ClusterError> {
    let mut centres = initial(points, options.clusters, options.seed)?;
    let grid = Grid::of(kernel::largest(points.coordinates()));
    let mut sums = Sums::new(options.clusters, points.dimensions());
    let mut iterations = 0;
    loop {
        sums.clear();
        let packed = Centres::new(&centres, points.dimensions());
        kernel::add(points.coordinates(), &packed, grid, &mut sums);
        let moved = sums.means(grid, &mut centres);
        iterations += 1;
        if is_last(options, iterations, moved) {
            return Ok(Clusters {
                centres,
                counts: sums.counts().to_vec(),
                iterations,
                moved,
                options: *options,
            });
        }
    }
}
