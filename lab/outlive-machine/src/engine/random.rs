//! Reproducible random numbers.

/// A small generator of pseudo-random numbers (SplitMix64): a seed gives the same numbers on every
/// machine and in every run.
///
/// ```
/// use outlive_machine::engine::Random;
///
/// let mut one = Random::new(7);
/// let mut two = one.clone();
/// assert_eq!(one.below(100), two.below(100));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Returns a generator seeded with `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end` (0 if `end` is 0). It multiplies, with a bias of less than
    /// `end` in 2⁶⁴.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }
}
