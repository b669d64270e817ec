//! Numbers in text.

use std::borrow::Cow;

/// Parses the number in `text`; `None` if it is not a number. Exponents may have Fortran's letter:
/// `1.5D+05`, `1d5`. (`inf` and `nan` count as numbers.)
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    let text = match text.find(['d', 'D']) {
        Some(_) => Cow::from(text.replacen(['d', 'D'], "e", 1)),
        None => text.into(),
    };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_have_either_letter() {
        for text in [
            "150000", "1.5e5", "1.5E+05", "1.5d5", "1.5D+05", ".15D6", "+15d+4",
        ] {
            assert_eq!(number(text.as_bytes()), Some(150_000.0), "{text}");
        }
        for text in [
            "", "d", "1d", "d5", "1dd5", "1d5e5", "1e5d5", "1d5d", "0x1d", "1 d5", "\u{ff11}",
        ] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        assert_eq!(number(b"\xFF"), None);
    }
}
