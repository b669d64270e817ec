//! Verifies prices: against expected values that share no formula with them, and against the
//! references of the input.
//!
//! The worth of an option is the mean of its future payment, discounted. Here the mean is
//! integrated over the normal density, over the range in which the option pays anything, by Gauss's
//! rule with eight points in each of many short stretches: this needs neither a distribution
//! function nor the closed form.

use super::{EuropeanOption, Normal, POLYNOMIAL_ERROR, Portfolio};

/// The allowed difference from the reference, as in PARSEC's own check; relative to the worth of
/// both sides together if that exceeds 1. (PARSEC's references are nearer to prices by the
/// polynomial, 5e-6 at most in the options tested here, than to accurate ones, 1.5e-5.)
pub const REFERENCE_ERROR: f64 = 1e-4;
/// The allowed difference of a price from the integral, relative to the worth of both sides, in
/// addition to the error of the distribution.
const APART: f64 = 1e-11;

/// A wrong price.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The numbers of prices and options differ.
    #[error("the result has {found} prices of {expected} options")]
    Count {
        /// The number of prices.
        found: usize,
        /// The number of options.
        expected: usize,
    },
    /// A price differs.
    #[error(
        "the price of option {option} is {found}, but {by} gives {expected}, with a tolerance of \
         {allowed:e}"
    )]
    Price {
        /// The number of the option, from 0.
        option: usize,
        /// Its price.
        found: f64,
        /// The expected price.
        expected: f64,
        /// The allowed difference.
        allowed: f64,
        /// The source of the expected price.
        by: &'static str,
    },
}

/// Checks that `prices`, computed with `normal`, are those of `portfolio`: compares every price
/// with its reference, and `sample` of them, evenly spread, with the integral (about 40 µs each).
///
/// # Errors
/// The first wrong price.
pub fn verify(
    portfolio: &Portfolio,
    prices: &[f64],
    normal: Normal,
    sample: usize,
) -> Result<(), Mismatch> {
    let (found, expected) = (prices.len(), portfolio.options().len());
    if found != expected {
        return Err(Mismatch::Count { found, expected });
    }
    let compare = |option, expected: f64, allowed: f64, by| {
        let found: f64 = prices[option];
        // Not inverted, so that NaN is an error.
        match (found - expected).abs() <= allowed {
            true => Ok(()),
            false => Err(Mismatch::Price {
                option,
                found,
                expected,
                allowed,
                by,
            }),
        }
    };
    for (number, reference) in portfolio.references().iter().enumerate() {
        let allowed = REFERENCE_ERROR * scale(&portfolio.options()[number]).max(1.0);
        compare(number, *reference, allowed, "the input's reference")?;
    }
    let error = APART
        + match normal {
            Normal::Polynomial => POLYNOMIAL_ERROR,
            Normal::Accurate => 0.0,
        };
    let sample = sample.min(expected);
    for number in (0..sample).map(|at| at * expected / sample) {
        let option = &portfolio.options()[number];
        compare(
            number,
            integral(option),
            error * scale(option),
            "integration",
        )?;
    }
    Ok(())
}

/// Returns the present worth of both sides of the contract, added.
fn scale(option: &EuropeanOption) -> f64 {
    option.spot * (-option.dividend_yield * option.years).exp()
        + option.strike * (-option.rate * option.years).exp()
}

/// Distances from the middle of a stretch of length 2, and their weights.
const GAUSS: [(f64, f64); 4] = [
    (0.183_434_642_495_649_8, 0.362_683_783_378_362),
    (0.525_532_409_916_329, 0.313_706_645_877_887_3),
    (0.796_666_477_413_626_7, 0.222_381_034_453_374_5),
    (0.960_289_856_497_536_3, 0.101_228_536_290_376_3),
];

/// Returns the mean payment of `option`, discounted.
pub fn integral(option: &EuropeanOption) -> f64 {
    let deviation = option.volatility * option.years.sqrt();
    let growth = (option.rate - option.dividend_yield) * option.years - deviation * deviation / 2.0;
    let discount = -option.rate * option.years;
    let sign = if option.kind.is_put() { -1.0 } else { 1.0 };
    // The density, and its product with a share's price, vanish ten deviations from the middle.
    let ends = [-10.0, deviation + 10.0];
    let pays_from = ((option.strike / option.spot).ln() - growth) / deviation;
    let (from, to) = match option.kind.is_put() {
        true => (ends[0], pays_from.min(ends[1])),
        false => (pays_from.max(ends[0]), ends[1]),
    };
    if from >= to {
        return 0.0;
    }
    // Both parts in one power each, so that nothing overflows.
    let pays = |z: f64| {
        let density = discount - z * z / 2.0;
        let share = option.spot * (growth + deviation * z + density).exp();
        sign * (share - option.strike * density.exp())
    };
    let stretches = ((to - from) * 2.0 * (1.0 + deviation)).ceil();
    let half = (to - from) / stretches / 2.0;
    let mut sum = 0.0;
    for number in 0..stretches as usize {
        let middle = from + half * (2 * number + 1) as f64;
        for (at, weight) in GAUSS {
            sum += weight * (pays(middle - half * at) + pays(middle + half * at));
        }
    }
    sum * half / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, price};
    use super::*;
    use proptest::prelude::*;

    /// Options of PARSEC's input, with its reference prices (made by DerivaGem, Hull's program).
    const PARSEC: &str = "36
42.00 40.00 0.1000 0.00 0.20 0.50 C 0.00 4.759423036851750055
42.00 40.00 0.1000 0.00 0.20 0.50 P 0.00 0.808600016880314021
100.00 100.00 0.0500 0.00 0.15 1.00 P 0.00 3.714602051381290071
100.00 100.00 0.0500 0.00 0.15 1.00 C 0.00 8.591659601309890704
60.00 65.00 0.0800 0.00 0.30 0.25 C 0.00 2.133371966735750025
100.00 90.00 0.1000 0.00 0.10 0.10 C 0.00 10.895610714793999563
100.00 90.00 0.1000 0.00 0.10 0.50 C 0.00 14.421570828843300660
100.00 90.00 0.1000 0.00 0.10 1.00 C 0.00 18.630859120667498274
100.00 100.00 0.1000 0.00 0.10 0.10 C 0.00 1.814984118378420108
100.00 100.00 0.1000 0.00 0.10 0.50 C 0.00 5.850273604284979889
100.00 100.00 0.1000 0.00 0.10 1.00 C 0.00 10.308147243666800463
100.00 110.00 0.1000 0.00 0.10 0.10 C 0.00 0.003523074865584340
100.00 110.00 0.1000 0.00 0.10 0.50 C 0.00 1.140722843827409960
100.00 110.00 0.1000 0.00 0.10 1.00 C 0.00 4.216747020308850402
100.00 90.00 0.1000 0.00 0.25 0.10 C 0.00 11.135244618346700207
100.00 90.00 0.1000 0.00 0.25 0.50 C 0.00 16.092638844092299166
100.00 90.00 0.1000 0.00 0.25 1.00 C 0.00 21.163454658480098658
100.00 100.00 0.1000 0.00 0.25 0.10 C 0.00 3.659962660310000171
100.00 100.00 0.1000 0.00 0.25 0.50 C 0.00 9.582231441086729973
100.00 100.00 0.1000 0.00 0.25 1.00 C 0.00 14.975798441718900733
100.00 110.00 0.1000 0.00 0.25 0.10 C 0.00 0.589613262035412977
100.00 110.00 0.1000 0.00 0.25 0.50 C 0.00 5.123575416865319809
100.00 110.00 0.1000 0.00 0.25 1.00 C 0.00 10.160055944516599880
100.00 90.00 0.1000 0.00 0.50 0.10 C 0.00 12.919509619564699676
100.00 90.00 0.1000 0.00 0.50 0.50 C 0.00 21.438280655724401669
100.00 90.00 0.1000 0.00 0.50 1.00 C 0.00 28.643647264488201643
100.00 100.00 0.1000 0.00 0.50 0.10 C 0.00 6.779936664291260406
100.00 100.00 0.1000 0.00 0.50 0.50 C 0.00 16.263193147074300526
100.00 100.00 0.1000 0.00 0.50 1.00 C 0.00 23.926745214162700393
100.00 110.00 0.1000 0.00 0.50 0.10 C 0.00 3.061909566605539812
100.00 110.00 0.1000 0.00 0.50 0.50 C 0.00 12.155688815568700178
100.00 110.00 0.1000 0.00 0.50 1.00 C 0.00 19.929858372066298955
100.00 90.00 0.1000 0.00 0.10 0.10 P 0.00 0.000095752219082624
100.00 90.00 0.1000 0.00 0.10 0.50 P 0.00 0.032219033907538303
100.00 90.00 0.1000 0.00 0.10 1.00 P 0.00 0.066226743903883001
100.00 100.00 0.1000 0.00 0.10 0.10 P 0.00 0.819967493295226002
";

    #[test]
    fn parsecs_options_cost_what_its_reference_column_says() {
        let portfolio = Portfolio::parse(PARSEC.as_bytes()).unwrap();
        for normal in [Normal::Polynomial, Normal::Accurate] {
            let prices = price(&portfolio, normal);
            assert_eq!(verify(&portfolio, &prices, normal, 36), Ok(()));
            let apart = prices.iter().zip(portfolio.references());
            let worst = apart.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!("{normal:?}: at most {worst:e} from PARSEC's reference");
            // Far nearer than PARSEC allows.
            assert!(worst < 3e-5, "{worst:e}");
        }
    }

    proptest! {
        #[test]
        fn the_closed_form_is_the_integral(
            spot in 1.0..200.0, strike in 1.0..200.0, rate in -0.1..0.3, dividend_yield in 0.0..0.2,
            volatility in prop_oneof![0.01..1.0, 1.0..3.0], years in 0.01..5.0, put in any::<bool>(),
        ) {
            let kind = if put { Kind::PUT } else { Kind::CALL };
            let option = EuropeanOption { spot, strike, rate, dividend_yield, volatility, years, kind };
            for (normal, error) in [(Normal::Accurate, APART), (Normal::Polynomial, POLYNOMIAL_ERROR)] {
                let mut found = [0.0];
                super::super::kernel::price(&[option], normal, &mut found);
                let apart = (found[0] - integral(&option)).abs();
                prop_assert!(apart <= error * scale(&option), "{apart:e} of {}", scale(&option));
            }
        }
    }

    #[test]
    fn a_wrong_price_is_noticed() {
        let portfolio = Portfolio::generate(500, 4);
        let right = price(&portfolio, Normal::Accurate);
        assert_eq!(verify(&portfolio, &right, Normal::Accurate, 500), Ok(()));
        let wrong = |change: &dyn Fn(&mut Vec<f64>)| {
            let mut prices = right.clone();
            change(&mut prices);
            verify(&portfolio, &prices, Normal::Accurate, 500)
                .unwrap_err()
                .to_string()
        };
        let said = wrong(&|prices| prices[123] *= 1.0 + 1e-7);
        assert!(
            said.contains("option 123 is") && said.contains("integration"),
            "{said}"
        );
        let said = wrong(&|prices| prices[7] += 1.0);
        assert!(
            said.contains("option 7 is") && said.contains("reference"),
            "{said}"
        );
        wrong(&|prices| prices[499] = f64::NAN);
        assert!(wrong(&|prices| prices.truncate(499)).contains("499 prices of 500 options"));
    }
}
