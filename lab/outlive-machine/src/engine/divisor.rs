//! Division by a number that is known in advance.

/// A divisor and its reciprocal. Dividing by it takes two multiplications, a fraction of the time
/// of the processor's 64-bit or 128-bit division. Each event needs several such divisions, of
/// messages and ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    /// (2⁶⁴ - 1) / divisor, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    ///
    /// If `divisor` is zero.
    pub const fn new(divisor: u64) -> Divisor {
        assert!(divisor > 0, "nothing can be divided by zero");
        Divisor {
            divisor,
            reciprocal: u64::MAX / divisor,
        }
    }

    pub const fn get(self) -> u64 {
        self.divisor
    }

    /// Returns quotient and remainder.
    #[inline]
    pub const fn divide(self, number: u64) -> (u64, u64) {
        // Let d be the divisor. The reciprocal is at least 2⁶⁴ / d - 1, and less than 2⁶⁴ / d. So
        // the estimate before rounding is above number / d - 1. Rounded down, it is the quotient or
        // one less.
        let estimate = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - estimate * self.divisor;
        if rest >= self.divisor {
            (estimate + 1, rest - self.divisor)
        } else {
            (estimate, rest)
        }
    }

    /// Returns quotient and remainder of a 128-bit number; the quotient must fit 64 bits.
    #[inline]
    pub fn divide_wide(self, number: u128) -> (u64, u64) {
        if let Ok(number) = u64::try_from(number) {
            return self.divide(number);
        }
        let divisor = u128::from(self.divisor);
        let quotient = u64::try_from(number / divisor);
        let quotient = quotient.expect("simulated time ends after 2^64 picoseconds");
        (quotient, (number % divisor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of all magnitudes, and numbers around powers of two.
    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![
            (any::<u64>(), 0..64u32).prop_map(|(number, bits)| number >> bits),
            (0..64u32, 0..5u64)
                .prop_map(|(bit, more)| (1u64 << bit).wrapping_add(more).wrapping_sub(2)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_divides_as_the_processor_does(number in numbers(), divisor in numbers(), high in 0..u64::MAX) {
            let divisor = divisor.max(1);
            let by = Divisor::new(divisor);
            prop_assert_eq!(by.divide(number), (number / divisor, number % divisor));
            let multiple = u128::from(divisor) * u128::from(high) + u128::from(number % divisor);
            prop_assert_eq!(by.divide_wide(multiple), (high, number % divisor));
        }
    }
}
