//! BlackScholes: prices of European options in closed form (PARSEC's program, which LUPIN runs).
//!
//! An option's price is that of Black and Scholes, with Merton's yield of dividends: with `q = 0`,
//! as in all of PARSEC's inputs, it is PARSEC's formula. PARSEC gets the normal distribution from a
//! polynomial with an error of up to 7.5e-8 ([`Normal::Polynomial`], the default here too; PARSEC
//! additionally has the error of single precision, while this program uses double precision).
//! [`Normal::Accurate`] is right to the last digits. Logarithms and powers are computed by the
//! crate `libm`, so a host with another C library or processor gets the same bytes.
//!
//! * [`Portfolio`] is read from PARSEC's format or generated; [`kernel::price`] is the work of a
//!   task: it prices a range of options. There is nothing to merge.
//! * [`Pricing`] is the program of tasks.
//! * [`price`] is the plain program, with one thread.
//! * [`verify`](verify::verify) compares with expected values that are integrated numerically, and
//!   with the input's reference values.
//!
//! ```
//! use outlive_programs::blackscholes::{self, Normal, Portfolio};
//!
//! // Hull, "Options, Futures, and Other Derivatives", example 15.6: 4.76 and 0.81.
//! let portfolio = Portfolio::parse(
//!     b"2\n42 40 0.1 0 0.2 0.5 C 0 4.759423036851750055\n42 40 0.1 0 0.2 0.5 P 0 0.808600016880314021\n",
//! )?;
//! let prices = blackscholes::price(&portfolio, Normal::default());
//! assert_eq!(prices.iter().map(|price| format!("{price:.2}")).collect::<Vec<_>>(), ["4.76", "0.81"]);
//! blackscholes::verify::verify(&portfolio, &prices, Normal::default(), 2)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
pub mod kernel;
mod normal;
mod on_tasks;
pub mod verify;

pub use input::{Portfolio, ReadError, prices_text};
pub use normal::{Normal, POLYNOMIAL_ERROR};
pub use on_tasks::{Pricing, price_part};

/// Whether an option is one to buy or to sell. (As a word; any value of it is valid.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Kind(u64);

impl Kind {
    /// The right to buy.
    pub const CALL: Self = Self(0);
    /// The right to sell.
    pub const PUT: Self = Self(1);

    /// Returns whether the option is the right to sell.
    pub fn is_put(self) -> bool {
        self.0 != 0
    }
}

/// A European option: plain data, which may be stored in a segment.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct EuropeanOption {
    /// The present price of the share.
    pub spot: f64,
    /// The price at which the option may be bought or sold.
    pub strike: f64,
    /// The riskless rate of interest, continuously compounded: 0.1 is 10% a year.
    pub rate: f64,
    /// The yield of dividends, continuously compounded.
    pub dividend_yield: f64,
    /// The standard deviation of the share's yearly return: 0.2 is 20%.
    pub volatility: f64,
    /// The time until the option expires, in years.
    pub years: f64,
    /// The kind of the option: to buy or to sell.
    pub kind: Kind,
}

/// Prices all options of a portfolio with one thread, in ordinary memory.
pub fn price(portfolio: &Portfolio, normal: Normal) -> Vec<f64> {
    let mut prices = vec![0.0; portfolio.options().len()];
    kernel::price(portfolio.options(), normal, &mut prices);
    prices
}
