//! The program that prices options.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::StudyError;
use crate::children::Launcher;
use crate::cost::Cost;
#[cfg(feature = "lupin")]
use crate::scratch::Directory;
use outlive_programs::blackscholes::{Normal, Portfolio, Pricing, price};
use outlive_run::driver::Outcome;

struct Priced {
    portfolio: Portfolio,
    expected: Vec<f64>,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let portfolio = Portfolio::generate(sizes.options, 1);
    let expected = price(&portfolio, Normal::default());
    Ok(Box::new(Priced {
        portfolio,
        expected,
    }))
}

impl Subject for Priced {
    fn size(&self) -> String {
        format!("{} options", self.expected.len())
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let (cost, prices) = Cost::of(|| price(&self.portfolio, Normal::default()));
        same(PLAIN, prices == self.expected)?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        crew.run(launcher, &Pricing::new(&self.portfolio), &self.expected)
    }

    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        use outlive_programs::blackscholes::EuropeanOption;
        let count = (self.expected.len() as u64).to_le_bytes();
        let mut bytes = Vec::with_capacity(8 + size_of_val(self.portfolio.options()));
        bytes.extend_from_slice(&count);
        for option in self.portfolio.options() {
            let EuropeanOption {
                spot,
                strike,
                rate,
                dividend_yield,
                volatility,
                years,
                kind,
            } = *option;
            for number in [spot, strike, rate, dividend_yield, volatility, years] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&u64::from(kind.is_put()).to_le_bytes());
        }
        Ok(vec![files.write("options", &bytes)?.into()])
    }

    /// Another library's logarithms and powers differ in the last digits.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let options = self.portfolio.options();
        let mut all = super::numbers_of(result).zip(&self.expected).zip(options);
        let are_near = all.all(|((found, expected), option)| {
            (found - expected).abs() <= 1e-12 * (option.spot + option.strike)
        });
        let is_whole = result.len() == self.expected.len() * 8;
        same(super::c::WHO, is_whole && are_near)
    }
}
