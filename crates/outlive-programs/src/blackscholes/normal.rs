//! The normal distribution: the probability that a variable of mean 0 and variance 1 is below `x`.

/// The method of computing the normal distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normal {
    /// As PARSEC does it, by a polynomial of Hastings (Abramowitz and Stegun, 26.2.17) with an
    /// error of up to [`POLYNOMIAL_ERROR`] everywhere. The price of an almost worthless option may
    /// be below 0 by that error times the worth of both sides.
    #[default]
    Polynomial,
    /// By the complementary error function; right except for the last digits, however small it is.
    Accurate,
}

/// The largest error of [`Normal::Polynomial`].
pub const POLYNOMIAL_ERROR: f64 = 7.5e-8;

impl Normal {
    /// Returns the probability of a value below `x`.
    pub fn below(self, x: f64) -> f64 {
        match self {
            Self::Polynomial => polynomial(x),
            Self::Accurate => accurate(x),
        }
    }
}

#[inline(always)]
pub(super) fn polynomial(x: f64) -> f64 {
    let density = 0.398_942_280_401_432_7 * libm::exp(-0.5 * x * x);
    let k = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let sum = 0.319_381_530
        + k * (-0.356_563_782 + k * (1.781_477_937 + k * (-1.821_255_978 + k * 1.330_274_429)));
    // The probability beyond `|x|`.
    let tail = density * k * sum;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[inline(always)]
pub(super) fn accurate(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accurate_one_is_right_in_the_body_and_in_the_tails() {
        // Computed with 40 digits by mpmath.
        let known = [
            (-30.0, 4.906713927148187e-198),
            (-8.0, 6.220960574271784e-16),
            (-5.5, 1.8989562465887718e-08),
            (-3.0, 0.0013498980316300946),
            (-1.96, 0.024997895148220435),
            (-0.5, 0.3085375387259869),
            (-0.01, 0.4960106436853684),
            (0.0, 0.5),
            (0.1, 0.539827837277029),
            (1.0, 0.8413447460685429),
            (2.3263, 0.9899987239832014),
            (4.0, 0.9999683287581669),
            (7.5, 0.9999999999999681),
        ];
        for (x, expected) in known {
            let found = Normal::Accurate.below(x);
            // Far out, an error of half an ulp in the argument is one of x * x / 2 ulp in the
            // result.
            let allowed = (2.0 + x * x) * f64::EPSILON;
            assert!(
                (found - expected).abs() <= allowed * expected,
                "{x}: {found} {expected}"
            );
        }
    }

    #[test]
    fn the_polynomial_is_as_good_as_it_is_said_to_be() {
        let mut worst = 0.0f64;
        for step in -80_000..=80_000 {
            let x = f64::from(step) / 10_000.0;
            worst = worst.max((Normal::Polynomial.below(x) - Normal::Accurate.below(x)).abs());
        }
        // Not better either: the bound is tight.
        assert!((7.4e-8..POLYNOMIAL_ERROR).contains(&worst), "{worst:e}");
    }
}
