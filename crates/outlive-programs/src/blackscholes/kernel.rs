//! The work of a task: prices a range of options.

use super::{EuropeanOption, Normal};

/// Writes the price of each of `options` to `prices`.
///
/// # Panics
/// If the numbers of prices and options differ.
pub fn price(options: &[EuropeanOption], normal: Normal, prices: &mut [f64]) {
    assert_eq!(options.len(), prices.len());
    // Chosen once, so that the loop has no branch on it.
    match normal {
        Normal::Polynomial => each(options, prices, super::normal::polynomial),
        Normal::Accurate => each(options, prices, super::normal::accurate),
    }
}

#[inline(always)]
fn each(options: &[EuropeanOption], prices: &mut [f64], below: impl Fn(f64) -> f64) {
    for (option, price) in options.iter().zip(prices) {
        *price = one(option, &below);
    }
}

/// Returns the present values of both sides of the contract, weighted with probabilities and
/// subtracted; for a put, all signs are reversed.
#[inline(always)]
fn one(option: &EuropeanOption, below: impl Fn(f64) -> f64) -> f64 {
    let sign = if option.kind.is_put() { -1.0 } else { 1.0 };
    let deviation = option.volatility * option.years.sqrt();
    let drift = option.rate - option.dividend_yield + option.volatility * option.volatility * 0.5;
    let d1 = (libm::log(option.spot / option.strike) + drift * option.years) / deviation;
    let d2 = d1 - deviation;
    let share = match option.dividend_yield {
        0.0 => option.spot,
        rate => option.spot * libm::exp(-rate * option.years),
    };
    let payment = option.strike * libm::exp(-option.rate * option.years);
    sign * (share * below(sign * d1) - payment * below(sign * d2))
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Portfolio, price};
    use super::*;
    use proptest::prelude::*;

    fn option(numbers: [f64; 6], kind: Kind) -> EuropeanOption {
        let [spot, strike, rate, dividend_yield, volatility, years] = numbers;
        EuropeanOption {
            spot,
            strike,
            rate,
            dividend_yield,
            volatility,
            years,
            kind,
        }
    }

    fn of(numbers: [f64; 6], kind: Kind, normal: Normal) -> f64 {
        let mut price = [0.0];
        super::price(&[option(numbers, kind)], normal, &mut price);
        price[0]
    }

    /// Spot, strike, rate, yield, volatility, years; the price with all printed digits.
    #[test]
    fn prices_are_those_of_the_textbooks() {
        let printed = [
            // J. C. Hull, Options, Futures, and Other Derivatives, 9th edition: examples 15.6, 17.1
            // and 17.2.
            ([42.0, 40.0, 0.1, 0.0, 0.2, 0.5], Kind::CALL, "4.76"),
            ([42.0, 40.0, 0.1, 0.0, 0.2, 0.5], Kind::PUT, "0.81"),
            (
                [930.0, 900.0, 0.08, 0.03, 0.2, 2.0 / 12.0],
                Kind::CALL,
                "51.83",
            ),
            (
                [1.6, 1.6, 0.08, 0.11, 0.141, 4.0 / 12.0],
                Kind::CALL,
                "0.0430",
            ),
            // E. G. Haug, The Complete Guide to Option Pricing Formulas, 2nd edition, 1.1.1 and
            // 1.1.2.
            ([60.0, 65.0, 0.08, 0.0, 0.3, 0.25], Kind::CALL, "2.1334"),
            ([100.0, 95.0, 0.1, 0.05, 0.2, 0.5], Kind::PUT, "2.4648"),
        ];
        for (numbers, kind, expected) in printed {
            for normal in [Normal::Polynomial, Normal::Accurate] {
                let digits = expected.len() - expected.find('.').unwrap() - 1;
                let price = of(numbers, kind, normal);
                assert_eq!(
                    format!("{price:.digits$}"),
                    expected,
                    "{numbers:?} {normal:?}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn a_call_less_a_put_is_what_both_sides_are_worth(
            spot in 1.0..200.0, strike in 1.0..200.0, rate in -0.05..0.2, q in 0.0..0.1,
            volatility in 0.01..1.5, years in 0.01..5.0,
        ) {
            let numbers: [f64; 6] = [spot, strike, rate, q, volatility, years];
            let sides = spot * f64::exp(-q * years) - strike * f64::exp(-rate * years);
            for (normal, allowed) in [(Normal::Accurate, 1e-12), (Normal::Polynomial, 1e-12)] {
                let [call, put] = [Kind::CALL, Kind::PUT].map(|kind| of(numbers, kind, normal));
                prop_assert!((call - put - sides).abs() < allowed * (spot + strike));
            }
        }

        #[test]
        fn however_the_options_are_dealt_the_prices_are_the_same(
            seed in any::<u64>(), cut in 0usize..=64, accurate in any::<bool>(),
        ) {
            let normal = if accurate { Normal::Accurate } else { Normal::Polynomial };
            let portfolio = Portfolio::generate(64, seed);
            let mut prices = vec![f64::NAN; 64];
            let (first, second) = prices.split_at_mut(cut);
            super::price(&portfolio.options()[cut..], normal, second);
            super::price(&portfolio.options()[..cut], normal, first);
            prop_assert_eq!(prices, price(&portfolio, normal));
        }
    }
}
