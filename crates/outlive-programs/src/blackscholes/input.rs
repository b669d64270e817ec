//! Portfolios: read from PARSEC's format, written in it, or generated.

use super::{EuropeanOption, Kind, Normal, kernel};
use crate::number::number;
use crate::whole_file::{self, Unreadable};
use outlive_run::random::Random;
use std::fmt::Write;
use std::path::Path;

/// Options, and their reference prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Portfolio {
    options: Vec<EuropeanOption>,
    references: Vec<f64>,
}

/// The reason why a portfolio cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The first line is not a number of options.
    #[error("line 1: \u{201c}{found}\u{201d} is not the number of options that follow")]
    NoCount {
        /// The text found.
        found: String,
    },
    /// The number of options differs from the first line.
    #[error("{found} options follow, but the first line says {expected}")]
    Count {
        /// The number of options.
        found: usize,
        /// The number in the first line.
        expected: usize,
    },
    /// A line has not the fields of an option.
    #[error(
        "line {line} has {found} fields, but an option has 9: spot, strike, rate, dividend yield, volatility, years, C or P, dividends, reference"
    )]
    Fields {
        /// The line, from 1.
        line: usize,
        /// The number of its fields.
        found: usize,
    },
    /// A field is not a number, or neither `C` nor `P`.
    #[error("line {line}: the {field} is \u{201c}{found}\u{201d}, which is not {expected}")]
    Field {
        /// The line, from 1.
        line: usize,
        /// The field.
        field: &'static str,
        /// The text found.
        found: String,
        /// The kind of text that is expected.
        expected: &'static str,
    },
    /// A number cannot be priced.
    #[error("line {line}: the {field} is {found}, and should be from {low} to {high}")]
    Range {
        /// The line, from 1.
        line: usize,
        /// The field.
        field: &'static str,
        /// The number.
        found: f64,
        /// The minimal number that can be priced.
        low: f64,
        /// The largest number that can be priced.
        high: f64,
    },
    /// An option has dividends that are paid on certain days, which the formula cannot handle.
    #[error(
        "line {line}: there are dividends of {found} before expiry, which the formula cannot \
         price; use a dividend yield"
    )]
    Dividends {
        /// The line, from 1.
        line: usize,
        /// The value that was found.
        found: f64,
    },
}

/// The ranges that can be priced: no overflow, and no division by 0.
const FIELDS: [(&str, f64, f64); 6] = [
    ("spot", 1e-9, 1e12),
    ("strike", 1e-9, 1e12),
    ("rate", -10.0, 10.0),
    ("dividend yield", -10.0, 10.0),
    ("volatility", 1e-9, 100.0),
    ("time in years", 1e-9, 1000.0),
];

impl Portfolio {
    /// Reads the file at `path` in the format of [`parse`](Self::parse).
    ///
    /// # Errors
    /// If it cannot be read, or is invalid.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&whole_file::read(path)?)
    }

    /// Reads PARSEC's format: the number of options in the first line, and an option in each of the
    /// following: spot, strike, rate, dividend yield, volatility, years, `C` (to buy) or `P` (to
    /// sell), dividends (0), and a reference price. Empty lines are skipped.
    ///
    /// # Errors
    /// At the first invalid line.
    pub fn parse(text: &[u8]) -> Result<Self, ReadError> {
        let mut lines = (1..).zip(text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
        let first = lines.next().map_or(&b""[..], |(_, first)| first);
        let expected: usize =
            count(first).ok_or_else(|| ReadError::NoCount { found: said(first) })?;
        // An option takes 18 bytes at least, which bounds the memory that is allocated.
        let likely = expected.min(text.len() / 18);
        let (mut options, mut references) =
            (Vec::with_capacity(likely), Vec::with_capacity(likely));
        for (line, bytes) in lines.filter(|(_, bytes)| !bytes.is_empty()) {
            let (option, reference) = option(line, bytes)?;
            options.push(option);
            references.push(reference);
        }
        match options.len() == expected {
            true => Ok(Self {
                options,
                references,
            }),
            false => Err(ReadError::Count {
                found: options.len(),
                expected,
            }),
        }
    }

    /// Generates `count` options, drawn with `seed`; their numbers have few digits, as on a market.
    /// Their reference prices are accurate.
    pub fn generate(count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut of = |low: u64, high: u64, by: f64| (low + random.below(high - low)) as f64 / by;
        let options: Vec<_> = (0..count)
            .map(|_| {
                let spot = of(1_000, 20_000, 100.0);
                EuropeanOption {
                    spot,
                    // Near the spot.
                    strike: (spot * of(60, 150, 1.0)).round() / 100.0,
                    rate: of(0, 1_000, 10_000.0),
                    dividend_yield: 0.0,
                    volatility: of(5, 90, 100.0),
                    years: of(5, 300, 100.0),
                    kind: Kind(of(0, 2, 1.0) as u64),
                }
            })
            .collect();
        let mut references = vec![0.0; count];
        kernel::price(&options, Normal::Accurate, &mut references);
        Self {
            options,
            references,
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &[EuropeanOption] {
        &self.options
    }

    /// Returns the reference price of each option, from the input.
    pub fn references(&self) -> &[f64] {
        &self.references
    }

    /// Returns the portfolio in PARSEC's format. The numbers are as short as they can be without
    /// losing a bit.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.options.len());
        for (option, reference) in self.options.iter().zip(&self.references) {
            let EuropeanOption {
                spot,
                strike,
                rate,
                dividend_yield,
                volatility,
                years,
                kind,
            } = option;
            let kind = if kind.is_put() { 'P' } else { 'C' };
            let _ = writeln!(
                text,
                "{spot} {strike} {rate} {dividend_yield} {volatility} {years} {kind} 0 {reference}"
            );
        }
        text
    }
}

/// Formats prices as PARSEC's program does: their number, and one a line with 18 decimals.
pub fn prices_text(prices: &[f64]) -> String {
    let mut text = format!("{}\n", prices.len());
    for price in prices {
        let _ = writeln!(text, "{price:.18}");
    }
    text
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}

fn count(bytes: &[u8]) -> Option<usize> {
    str::from_utf8(bytes).ok()?.parse().ok()
}

fn option(line: usize, bytes: &[u8]) -> Result<(EuropeanOption, f64), ReadError> {
    let mut fields = [&b""[..]; 9];
    let mut found = 0;
    for field in bytes
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
    {
        if let Some(place) = fields.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    if found != fields.len() {
        return Err(ReadError::Fields { line, found });
    }
    let wrong = |field, at: usize, expected| ReadError::Field {
        line,
        field,
        found: said(fields[at]),
        expected,
    };
    let mut numbers = [0.0; 6];
    for (at, (field, low, high)) in FIELDS.into_iter().enumerate() {
        let found: f64 = number(fields[at]).ok_or_else(|| wrong(field, at, "a number"))?;
        if !(low..=high).contains(&found) {
            return Err(ReadError::Range {
                line,
                field,
                found,
                low,
                high,
            });
        }
        numbers[at] = found;
    }
    let kind = match fields[6] {
        b"C" | b"c" => Kind::CALL,
        b"P" | b"p" => Kind::PUT,
        _ => return Err(wrong("kind", 6, "C or P")),
    };
    let dividends: f64 = number(fields[7]).ok_or_else(|| wrong("dividends", 7, "a number"))?;
    if dividends != 0.0 {
        return Err(ReadError::Dividends {
            line,
            found: dividends,
        });
    }
    let reference: f64 = number(fields[8])
        .filter(|reference: &f64| reference.is_finite())
        .ok_or_else(|| wrong("reference", 8, "a number"))?;
    let [spot, strike, rate, dividend_yield, volatility, years] = numbers;
    let option = EuropeanOption {
        spot,
        strike,
        rate,
        dividend_yield,
        volatility,
        years,
        kind,
    };
    Ok((option, reference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(count in 0usize..30, seed in any::<u64>()) {
            let portfolio = Portfolio::generate(count, seed);
            prop_assert_eq!(Portfolio::parse(portfolio.to_text().as_bytes()).unwrap(), portfolio);
        }

        #[test]
        fn any_bytes_are_options_or_are_refused(
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::sample::select(b"0123456789.eE+- \nCPinf\xff".to_vec())),
                0..6,
            ),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut text = Portfolio::generate(3, 5).to_text().into_bytes();
            for (at, byte) in changes {
                let at = at.index(text.len());
                text[at] = byte;
            }
            text.truncate(cut.index(text.len() * 2));
            if let Ok(portfolio) = Portfolio::parse(&text) {
                for normal in [Normal::Polynomial, Normal::Accurate] {
                    let prices = super::super::price(&portfolio, normal);
                    prop_assert!(prices.iter().all(|price| price.is_finite()), "{portfolio:?}");
                }
            }
        }
    }

    #[test]
    fn it_says_where_it_is_wrong() {
        let said = |text: &str| Portfolio::parse(text.as_bytes()).unwrap_err().to_string();
        let line = |line: &str| said(&format!("1\n{line}\n"));
        assert!(said("").contains("line 1: “” is not the number"));
        assert!(
            said("2\n42 40 .1 0 .2 .5 C 0 0\n")
                .contains("1 options follow, but the first line says 2")
        );
        assert!(line("42 40 0.1 0 0.2 0.5 C").contains("line 2 has 7 fields"));
        assert!(line("42 40 0.1 0 0.2 0.5 X 0 0").contains("the kind is “X”, which is not C or P"));
        assert!(line("42 4o 0.1 0 0.2 0.5 C 0 0").contains("the strike is “4o”"));
        assert!(
            line("42 40 0.1 0 0 0.5 C 0 0").contains("the volatility is 0, and should be from")
        );
        assert!(line("42 40 nan 0 0.2 0.5 C 0 0").contains("the rate is NaN"));
        assert!(line("42 40 0.1 0 0.2 0.5 C 1.5 0").contains("use a dividend yield"));
    }

    #[test]
    fn prices_are_written_as_parsec_does() {
        assert_eq!(
            prices_text(&[4.5, -0.0625]),
            "2\n4.500000000000000000\n-0.062500000000000000\n"
        );
    }
}
