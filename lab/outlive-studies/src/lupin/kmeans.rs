//! The program that groups points.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::StudyError;
use crate::children::Launcher;
use crate::cost::Cost;
#[cfg(feature = "lupin")]
use crate::scratch::Directory;
use outlive_programs::kmeans::{ClusterError, Clustering, Clusters, Options, Points, cluster};
use outlive_run::driver::Outcome;

/// The default numbers of clusters and of coordinates of Phoenix's program.
const CLUSTERS: usize = 100;
const DIMENSIONS: usize = 3;
const ITERATIONS: u32 = 10;

struct Groups {
    points: Points,
    options: Options,
    expected: Clusters,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let points = Points::generate(sizes.points, DIMENSIONS, CLUSTERS, 1);
    let options = Options {
        clusters: CLUSTERS,
        iterations: ITERATIONS,
        ..Options::default()
    };
    let expected = cluster(&points, &options).map_err(refused)?;
    Ok(Box::new(Groups {
        points,
        options,
        expected,
    }))
}

fn refused(error: ClusterError) -> StudyError {
    StudyError::void(error.to_string())
}

impl Subject for Groups {
    fn size(&self) -> String {
        let (points, iterations) = (self.points.len(), self.expected.iterations);
        format!("{points} points, {CLUSTERS} groups, {iterations} iterations")
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let (cost, found) = Cost::of(|| cluster(&self.points, &self.options));
        same(PLAIN, found.map_err(refused)? == self.expected)?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        let clustering = Clustering::new(&self.points, self.options).map_err(refused)?;
        crew.run(launcher, &clustering, &self.expected)
    }

    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        use outlive_programs::kmeans::initial;
        let first = initial(&self.points, CLUSTERS, self.options.seed).map_err(refused)?;
        let points = self.points.coordinates();
        let points = super::bytes_of(&[self.points.len(), DIMENSIONS], points);
        let first = super::bytes_of(&[CLUSTERS, DIMENSIONS], &first);
        Ok(vec![
            files.write("points", &points)?.into(),
            files.write("centres", &first)?.into(),
            self.expected.iterations.to_string().into(),
        ])
    }

    /// In C, sums of floating-point numbers depend on the division of the work; ours do not. So the
    /// centres must be close, and each must have the same number of points.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let (centres, counts) = result.split_at(result.len() * DIMENSIONS / (DIMENSIONS + 1));
        let expected = &self.expected.centres;
        let are_near = super::numbers_of(centres)
            .zip(expected)
            .all(|(found, expected)| (found - expected).abs() <= 1e-9 * expected.abs());
        let (counts, _) = counts.as_chunks::<8>();
        let counts: Vec<u64> = counts.iter().map(|it| u64::from_le_bytes(*it)).collect();
        let is_whole = centres.len() == expected.len() * 8;
        same(
            super::c::WHO,
            is_whole && are_near && counts == self.expected.counts,
        )
    }
}
