//! The statistics that claims need: medians and their intervals.
//!
//! Times on a shared machine have long tails and no known distribution, so nothing here assumes
//! one. The interval of a median is the sign test's, from order statistics; the interval of
//! anything else comes from resampling, with a fixed seed, so that the same data give the same
//! interval.

use outlive_run::random::Random;

/// A value and the 95% interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value itself.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// Returns an estimate without uncertainty.
    pub fn exactly(value: f64) -> Self {
        let (low, high) = (value, value);
        Self { value, low, high }
    }
}

/// Returns the median of `data`.
///
/// # Panics
/// If `data` is empty.
pub fn median(data: &[f64]) -> f64 {
    let sorted = sorted(data);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Returns the largest of `data`.
///
/// # Panics
/// If `data` is empty.
pub fn longest(data: &[f64]) -> f64 {
    *sorted(data).last().expect("some data")
}

/// Returns the median of `data` with its 95% interval: the narrowest pair of order statistics,
/// equally far from both ends, between which the true median lies with that probability.
///
/// Fewer than six values have no such pair; the interval is then their whole range.
///
/// ```
/// use outlive_studies::statistics::median_estimate;
/// let estimate = median_estimate(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0]);
/// assert_eq!((estimate.low, estimate.value, estimate.high), (2.0, 5.5, 9.0));
/// ```
///
/// # Panics
/// If `data` is empty.
pub fn median_estimate(data: &[f64]) -> Estimate {
    let sorted = sorted(data);
    let outside = outside(sorted.len());
    Estimate {
        value: median(data),
        low: sorted[outside],
        high: sorted[sorted.len() - 1 - outside],
    }
}

/// Returns the number of ordered values of `count` that may be left out at each end.
fn outside(count: usize) -> usize {
    // The probability that at most k values fall below the median is that of at most k heads.
    let mut probability = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut below, mut k) = (probability, 0);
    if probability == 0.0 {
        // Beyond a thousand values the normal approximation is as good.
        let count = count as f64;
        return (0.5 * count - 0.98 * count.sqrt() - 0.5).floor() as usize;
    }
    // Leaving out k at each end misses the median when at most k values lie on one side of it.
    while below <= 0.025 {
        k += 1;
        probability *= (count - k + 1) as f64 / k as f64;
        below += probability;
    }
    k.saturating_sub(1)
}

/// Returns `statistic` of all `rounds`, with its 95% interval from resampling the rounds.
///
/// # Panics
/// If there are no rounds.
pub fn bootstrap<T: Clone>(rounds: &[T], statistic: impl Fn(&[T]) -> f64) -> Estimate {
    bootstrap_of([rounds], |[rounds]| statistic(rounds))
}

/// As [`bootstrap`], of several cases, whose rounds are resampled case by case.
///
/// # Panics
/// If a case has no rounds.
pub fn bootstrap_of<T: Clone, const N: usize>(
    cases: [&[T]; N],
    statistic: impl Fn([&[T]; N]) -> f64,
) -> Estimate {
    const RESAMPLES: usize = 2000;
    let is_empty = cases.iter().any(|rounds| rounds.is_empty());
    assert!(!is_empty, "an estimate from no rounds");
    let mut random = Random::new(0x6F75_746C_6976_6521);
    let mut drawn = cases.map(<[T]>::to_vec);
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for (drawn, rounds) in drawn.iter_mut().zip(cases) {
                for place in drawn {
                    *place = rounds[random.below(rounds.len() as u64) as usize].clone();
                }
            }
            statistic(drawn.each_ref().map(Vec::as_slice))
        })
        .collect();
    values.sort_by(f64::total_cmp);
    Estimate {
        value: statistic(cases),
        low: values[RESAMPLES * 25 / 1000],
        high: values[RESAMPLES * 975 / 1000 - 1],
    }
}

fn sorted(data: &[f64]) -> Vec<f64> {
    assert!(!data.is_empty(), "an estimate from no data");
    let mut sorted = data.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(longest(&[3.0, 9.0, 2.0]), 9.0);
    }

    /// The published table of the sign test's 95% limits: how many order statistics to leave out.
    #[test]
    fn the_interval_is_the_sign_tests() {
        for (count, left_out) in [
            (1, 0),
            (5, 0),
            (6, 0),
            (8, 0),
            (9, 1),
            (10, 1),
            (11, 1),
            (12, 2),
            (15, 3),
            (20, 5),
            (25, 7),
            (30, 9),
            (40, 13),
            (50, 17),
            (100, 39),
        ] {
            assert_eq!(outside(count), left_out, "of {count}");
        }
        // The approximation continues where the exact numbers end.
        let (exact, beyond) = (outside(1000), outside(1100));
        assert!((468..=469).contains(&exact), "{exact}");
        assert!((516..=518).contains(&beyond), "{beyond}");
    }

    /// Of many samples from one population, about 95% have the true median in their interval, and
    /// not many fewer.
    #[test]
    fn the_interval_covers_what_it_says() {
        let mut random = Random::new(7);
        let mut uniform = || random.word() as f64 / u64::MAX as f64;
        let (mut covered, mut resampled) = (0, 0);
        for _ in 0..400 {
            // Skewed, as times are: the true median of u/(1-u) is 1.
            let sample: Vec<f64> = (0..31)
                .map(|_| uniform())
                .map(|u| u / (1.0 - u + 1e-9))
                .collect();
            let signs = median_estimate(&sample);
            covered += u32::from(signs.low <= 1.0 && 1.0 <= signs.high);
        }
        for _ in 0..60 {
            let sample: Vec<f64> = (0..31).map(|_| uniform()).collect();
            let drawn = bootstrap(&sample, median);
            resampled += u32::from(drawn.low <= 0.5 && 0.5 <= drawn.high);
        }
        assert!(covered >= 372, "{covered} of 400");
        assert!(resampled >= 50, "{resampled} of 60");
    }

    #[test]
    fn resampling_repeats_itself_and_brackets_the_value() {
        let data: Vec<f64> = (0..50).map(f64::from).collect();
        let first = bootstrap(&data, median);
        assert_eq!(first, bootstrap(&data, median));
        assert_eq!(first.value, 24.5);
        assert!(first.low < 24.5 && 24.5 < first.high);
        assert!(first.high - first.low < 30.0, "{first:?}");
    }
}
