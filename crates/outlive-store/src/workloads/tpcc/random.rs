//! The random choices of TPC-C.

use fastrand::Rng;

/// The constant of each non-uniform choice. It is the same for the load and the run.
const C: u64 = 87;

/// Returns a number from `least` to `most` by TPC-C's non-uniform distribution.
fn non_uniform(random: &mut Rng, bits: u64, least: u64, most: u64) -> u64 {
    let either = random.u64(..=bits) | random.u64(least..=most);
    (either + C) % (most - least + 1) + least
}

/// Returns a customer of a district, 0 to 2,999.
pub(super) fn customer(random: &mut Rng) -> u64 {
    non_uniform(random, 1023, 1, 3000) - 1
}

/// Returns an item, 0 to 99,999.
pub(super) fn item(random: &mut Rng) -> u64 {
    non_uniform(random, 8191, 1, 100_000) - 1
}

/// Returns the number of a last name, 0 to 999.
pub(super) fn name(random: &mut Rng) -> u64 {
    non_uniform(random, 255, 0, 999)
}

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// Returns the last name with this number.
pub(super) fn last_name(number: u64) -> [u8; 16] {
    let digits = [number / 100, number / 10 % 10, number % 10];
    let letters = digits
        .iter()
        .flat_map(|digit| SYLLABLES[*digit as usize].bytes());
    let mut name = [0; 16];
    name.iter_mut()
        .zip(letters)
        .for_each(|(place, letter)| *place = letter);
    name
}

/// Returns random letters.
pub(super) fn text<const N: usize>(random: &mut Rng) -> [u8; N] {
    [0; N].map(|_| random.u8(b'a'..=b'z'))
}

/// Returns random digits.
pub(super) fn digits<const N: usize>(random: &mut Rng) -> [u8; N] {
    [0; N].map(|_| random.u8(b'0'..=b'9'))
}
