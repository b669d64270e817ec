//! Pseudorandom numbers from a seed, the same on every machine and in every version: a generated
//! input is identified by its seed, so that measurements are comparable.

/// Steele, Lea and Flood's splitmix64.
///
/// ```
/// use outlive_run::random::Random;
///
/// let (mut a, mut b) = (Random::new(7), Random::new(7));
/// assert_eq!(a.word(), b.word());
/// assert!(a.below(6) < 6);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with the seed `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// Returns a number below `end`, which is not 0. (The bias is less than `end` in 2^64.)
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns a nearly normally distributed number with mean 0 and variance 1. It is a sum of 12
    /// uniformly distributed numbers, so it needs no function whose results differ in the last
    /// digit between machines.
    pub fn bell(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Returns the word that splitmix64 draws in the state `word`: a bijection that maps close words
/// far apart.
#[inline]
pub fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_do_not_change() {
        // The first numbers of seed 1234567, as the authors' own program gives them.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.word(), random.word()], expected);
    }

    #[test]
    fn numbers_are_spread() {
        let mut random = Random::new(1);
        let (mut mean, mut square, mut seen) = (0.0, 0.0, [0u32; 6]);
        for _ in 0..60_000 {
            let bell = random.bell();
            mean += bell / 60_000.0;
            square += bell * bell / 60_000.0;
            seen[random.below(6) as usize] += 1;
        }
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03);
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 500));
    }
}
