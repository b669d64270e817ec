//! Quantities with units, and their parser.

use std::fmt;

use crate::engine::write_decimal;

use super::error::Wrong;

/// An amount of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    pub(super) const UNITS: [(&str, u64); 10] = [
        ("B", 1),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
        ("KB", 1_000),
    ];

    /// Returns `count` times 1,024 bytes.
    pub const fn kibi(count: u64) -> Self {
        Self(count * (1 << 10))
    }

    /// Returns `count` times 1,048,576 bytes.
    pub const fn mebi(count: u64) -> Self {
        Self(count * (1 << 20))
    }

    /// Returns `count` times 2³⁰ bytes.
    pub const fn gibi(count: u64) -> Self {
        Self(count * (1 << 30))
    }
}

/// Printed in the unit that gives the smallest whole number: `48 KiB`, `1500 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Self::UNITS
            .iter()
            .filter(|(_, scale)| self.0.is_multiple_of(*scale) && self.0 >= *scale);
        let (unit, scale) = whole
            .min_by_key(|(_, scale)| self.0 / scale)
            .unwrap_or(&Self::UNITS[0]);
        write!(f, "{} {unit}", self.0 / scale)
    }
}

/// A bandwidth in bytes per second (decimal, as is usual for links).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    pub(super) const UNITS: [(&str, u64); 6] = [
        ("B/s", 1),
        ("kB/s", 1_000),
        ("MB/s", 1_000_000),
        ("GB/s", 1_000_000_000),
        ("TB/s", 1_000_000_000_000),
        ("KB/s", 1_000),
    ];

    /// Returns a rate of `bytes` bytes per second, or `None` if that is 0.
    pub const fn from_bytes_per_second(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// Returns the rate in bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

/// Printed exactly, in the largest unit of which it has at least one: `160 GB/s`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "TB/s"),
            (1_000_000_000, "GB/s"),
            (1_000_000, "MB/s"),
            (1_000, "kB/s"),
        ];
        write_decimal(f, self.0, &units, "B/s")
    }
}

/// A latency in clock cycles of the part that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cycles(pub u64);

impl Cycles {
    pub(super) const UNITS: [(&str, u64); 2] = [("cycles", 1), ("cycle", 1)];
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.0,
            if self.0 == 1 { "cycle" } else { "cycles" }
        )
    }
}

/// Returns the error for a rate in bits, as link vendors give it: a hint at the unit with a similar
/// name would be wrong by a factor of eight.
fn bits(number: &str, unit: &str, units: &[(&str, u64)]) -> Option<Wrong> {
    let prefix = unit
        .strip_suffix("bit/s")
        .or(unit.strip_suffix("b/s"))
        .or(unit.strip_suffix("bps"))?;
    let meant = format!("{prefix}B/s");
    units.iter().find(|(name, _)| *name == meant)?;
    let number: f64 = number.parse().ok()?;
    Some(Wrong::new(
        format!("`{unit}` is not a unit here, since it counts bits"),
        format!("{number} {unit} are {} {meant}", number / 8.0),
    ))
}

/// Reads a decimal number with one of `units`, exactly. A value that is not a whole number of the
/// smallest unit is rejected.
pub(super) fn read_quantity(
    text: &str,
    units: &[(&str, u64)],
    example: &str,
) -> Result<u64, Wrong> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let named = || {
        units
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.contains('.') || number.ends_with('.') {
        return Err(Wrong::new(
            format!("`{text}` does not begin with a number"),
            format!("write it as \"{example}\""),
        ));
    }
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        let alike = units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit));
        if let Some(bits) = bits(number, unit, units) {
            return Err(bits);
        }
        return Err(match (alike, unit) {
            (Some((name, _)), _) => Wrong::new(
                format!("`{unit}` is not a unit here"),
                format!("did you mean `{name}`?"),
            ),
            (None, "") => Wrong::new(
                format!("`{text}` has no unit"),
                format!("give it one of {}", named()),
            ),
            (None, _) => Wrong::new(
                format!("`{unit}` is not a unit here"),
                format!("use one of {}", named()),
            ),
        });
    };
    let (smallest, _) = units[0];
    let part = part.trim_end_matches('0');
    let too_large = || {
        Wrong::new(
            format!("`{text}` is too large"),
            format!("the largest value is {} {smallest}", u64::MAX),
        )
    };
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let whole = whole.checked_mul(u128::from(scale)).ok_or_else(too_large)?;
    let fine = || {
        Wrong::new(
            format!("`{text}` is not a whole number of {smallest}"),
            "give a rounder number, or a smaller unit",
        )
    };
    let part = if part.is_empty() {
        0
    } else if part.len() > 20 {
        return Err(Wrong::new(
            format!("`{text}` has too many digits"),
            "give a rounder number, or a smaller unit",
        ));
    } else {
        let digits: u128 = part.parse().map_err(|_| fine())?;
        let scaled = digits.checked_mul(u128::from(scale)).ok_or_else(fine)?;
        let ten = 10u128.pow(part.len() as u32);
        if scaled % ten != 0 {
            return Err(fine());
        }
        scaled / ten
    };
    whole
        .checked_add(part)
        .and_then(|sum| u64::try_from(sum).ok())
        .ok_or_else(too_large)
}
