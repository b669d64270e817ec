//! Division by a number that is known long before.

/// A divisor, and its reciprocal. Dividing by it takes two multiplications, a fraction of what the processor's division takes, and
/// of what one of 128 bits takes; and messages and ticks are divided several times in each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    /// 2⁶⁴ - 1 over the divisor, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    ///
    /// If it is zero.
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

    /// Quotient and remainder.
    #[inline]
    pub const fn divide(self, number: u64) -> (u64, u64) {
        // With d the divisor, the reciprocal is 2⁶⁴ / d - 1 at least, and less than 2⁶⁴ / d. So the estimate before it is rounded
        // is above number / d - 1, and rounded down it is the quotient or one less.
        let estimate = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - estimate * self.divisor;
        if rest >= self.divisor {
            (estimate + 1, rest - self.divisor)
        } else {
            (estimate, rest)
        }
    }

    /// Quotient and remainder of a number that may need more than 64 bits; the quotient must not.
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

    /// Numbers of all magnitudes, and those at their edges.
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
