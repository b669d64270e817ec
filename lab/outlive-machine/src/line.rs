//! Cache lines and their addresses.

use std::fmt;

/// The real values of a cache line: 8 words of 8 bytes.
pub type Line = [u64; 8];

/// The address of a cache line: a byte address divided by 64.
///
/// ```
/// use outlive_machine::line::LineAddress;
///
/// assert_eq!(LineAddress::of_byte(130), LineAddress(2));
/// assert_eq!(LineAddress::word_of_byte(130 + 8), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineAddress(pub u64);

impl LineAddress {
    /// Returns the line that holds the byte at `address`.
    pub const fn of_byte(address: u64) -> Self {
        Self(address / size_of::<Line>() as u64)
    }

    /// Returns the word of its line that holds the byte at `address`, from 0 to 7.
    pub const fn word_of_byte(address: u64) -> usize {
        (address as usize % size_of::<Line>()) / size_of::<u64>()
    }
}

impl fmt::Display for LineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {:#x}", self.0)
    }
}
