//! Sizes, numbers and permissions, parsed and printed. (Durations are `humantime`'s: `8ms`, `2s`,
//! `1m 30s`.)

use std::fmt::{self, Display};

const UNITS: [(&str, u32); 5] = [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Parses a size in bytes: `4096`, `64K`, `64M`, `2GiB`. The units are binary.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit
        .strip_suffix("IB")
        .or(unit.strip_suffix('B'))
        .unwrap_or(&unit);
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let (Ok(number), Some((_, shift))) = (number.parse::<u64>(), known) else {
        return Err("a size is a whole number of bytes, or of K, M, G or T, such as 64M".into());
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Err("a size cannot be 0".into()),
        Some(bytes) => Ok(bytes),
        None => Err("a size has to be below 2^64 bytes".into()),
    }
}

/// Parses an unsigned 64-bit integer: `17`, `0x11`.
pub fn whole(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        // `from_str_radix` would accept a sign.
        Some(digits) if digits.starts_with(['+', '-']) => return Err(no_whole()),
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| no_whole())
}

fn no_whole() -> String {
    format!(
        "give a whole number from 0 to {}, such as 17 or 0x11",
        u64::MAX
    )
}

/// Parses a file's permissions: octal, as for chmod.
pub fn mode(text: &str) -> Result<u32, String> {
    let octal = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(octal, 8) {
        // A user who may read a file can hold read locks on it.
        Ok(mode) if mode <= 0o777 && (mode & 0o044) >> 1 & !mode != 0 => Err(format!(
            "with mode {mode:03o} users that can read the pod but not write to it could prevent \
             others from joining; allow them both or neither, such as by 660"
        )),
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permissions are octal, from 0 to 777, such as 600 or 660".into()),
    }
}

/// A number of bytes, printed exactly where it is a whole number of a unit.
#[derive(Clone, Copy)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = UNITS
            .iter()
            .rev()
            .find(|(_, shift)| self.0 >> shift > 0)
            .unwrap_or(&UNITS[0]);
        if *shift == 0 {
            return Many(self.0, "byte").fmt(f);
        }
        if self.0.is_multiple_of(1 << shift) {
            return write!(f, "{} {unit}iB", self.0 >> shift);
        }
        write!(f, "{:.1} {unit}iB", self.0 as f64 / (1u64 << shift) as f64)
    }
}

/// A count of things with the singular of their name, printed in the singular or plural.
#[derive(Clone, Copy)]
pub struct Many(pub u64, pub &'static str);

impl Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, one) = self;
        let ending = match (count, one.ends_with('s')) {
            (1, _) => "",
            (_, true) => "es",
            (_, false) => "s",
        };
        write!(f, "{count} {one}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("64mb"), Ok(64 << 20));
        assert_eq!(size("3GiB"), Ok(3 << 30));
        assert_eq!(size("2 K"), Ok(2048));
        for bad in [
            "",
            "M",
            "-1",
            "1.5G",
            "10X",
            "0",
            "0K",
            "99999999999T",
            "20000000T",
            "8i",
        ] {
            assert!(size(bad).is_err(), "{bad:?} was accepted as a size");
        }
    }

    #[test]
    fn whole_numbers_may_be_hexadecimal() {
        assert_eq!((whole("17"), whole("0x11")), (Ok(17), Ok(17)));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "x", "-1", "0x", "0x+1", "1.5", "18446744073709551616"] {
            assert!(whole(bad).is_err(), "{bad:?} was accepted as a number");
        }
    }

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(17).to_string(), "17 bytes");
        assert_eq!(Bytes(0).to_string(), "0 bytes");
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(mode("600"), Ok(0o600));
        assert_eq!(mode("0o660"), Ok(0o660));
        for bad in ["", "8", "1000", "rw", "640", "604"] {
            assert!(mode(bad).is_err(), "{bad:?} was accepted as permissions");
        }
    }
}
