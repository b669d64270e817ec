//! Quantities in decimal units, printed exactly.

use std::fmt;

/// Writes `value` in the largest of `units` (largest first) of which it has at least one, else in
/// `smallest`.
pub(crate) fn write_decimal(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
    smallest: &str,
) -> fmt::Result {
    let &(scale, unit) = units
        .iter()
        .find(|(scale, _)| value >= *scale)
        .unwrap_or(&(1, smallest));
    let (whole, part) = (value / scale, value % scale);
    if part == 0 {
        return write!(f, "{whole} {unit}");
    }
    let digits = format!("{part:0width$}", width = scale.ilog10() as usize);
    write!(f, "{whole}.{} {unit}", digits.trim_end_matches('0'))
}
