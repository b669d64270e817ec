//! Values of rows, as arguments and in output.

use crate::failure::Failure;
use clap::Args;

/// The format of values.
#[derive(Args, Clone, Copy, Debug)]
pub struct Form {
    /// Values are signed 64-bit numbers, separated by commas, instead of text
    #[arg(long)]
    numbers: bool,
}

/// The help on values.
pub const VALUES: &str = "A value is text, or bytes in hexadecimal digits after `0x`, or numbers \
                          with --numbers. Shorter values are filled with zero bytes. A value that \
                          is not text, or begins with `0x`, is printed in hexadecimal.";

impl Form {
    /// Returns the words of a value of `words` words.
    pub fn parse(self, text: &str, words: usize) -> Result<Vec<u64>, Failure> {
        let bytes = match (self.numbers, text.strip_prefix("0x")) {
            (true, _) => numbers(text)?,
            (false, Some(digits)) => hexadecimal(digits)?,
            (false, None) => text.as_bytes().to_vec(),
        };
        let most = words * 8;
        if bytes.len() > most {
            return Err(Failure::Usage(format!(
                "the value has {} bytes, but the values of the table have {most}",
                bytes.len()
            )));
        }
        let mut value = vec![0u8; most];
        value[..bytes.len()].copy_from_slice(&bytes);
        let (value, _) = value.as_chunks();
        Ok(value.iter().copied().map(u64::from_ne_bytes).collect())
    }

    /// Returns the words of a value as [`parse`](Self::parse) reads them.
    pub fn show(self, words: &[u64]) -> String {
        if self.numbers {
            let numbers: Vec<_> = { words.iter() }
                .map(|it| it.cast_signed().to_string())
                .collect();
            return numbers.join(",");
        }
        let bytes: Vec<u8> = { words.iter() }.flat_map(|it| it.to_ne_bytes()).collect();
        let used = bytes.iter().rposition(|it| *it != 0).map_or(0, |it| it + 1);
        match core::str::from_utf8(&bytes[..used]) {
            Ok(text) if !text.starts_with("0x") && !text.contains(char::is_control) => text.into(),
            _ => format!("0x{}", digits(words)),
        }
    }
}

fn numbers(text: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    for number in text.split(',') {
        let number: i64 = number.trim().parse().map_err(|error| {
            Failure::Usage(format!(
                "`{number}` is not a signed 64-bit integer: {error}; write --numbers 100,-3, for \
                 example"
            ))
        })?;
        bytes.extend(number.to_ne_bytes());
    }
    Ok(bytes)
}

fn hexadecimal(digits: &str) -> Result<Vec<u8>, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "`0x{digits}` is not an even number of hexadecimal digits after `0x`"
        ))
    };
    // With other characters, a pair of bytes may not be a text.
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return Err(wrong());
    };
    let byte = |pair: &[u8; 2]| {
        let is_digit = pair.iter().all(u8::is_ascii_hexdigit);
        let text = core::str::from_utf8(pair).ok().filter(|_| is_digit)?;
        u8::from_str_radix(text, 16).ok()
    };
    pairs
        .iter()
        .map(|pair| byte(pair).ok_or_else(wrong))
        .collect()
}

/// Returns the bytes of a value in hexadecimal digits.
pub fn digits(words: &[u64]) -> String {
    { words.iter() }
        .flat_map(|it| it.to_ne_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the words of a value from its [`digits`].
pub fn from_digits(digits: &str, words: usize) -> Option<Vec<u64>> {
    let is_whole = digits.len() == words * 16;
    let form = Form { numbers: false };
    is_whole
        .then(|| form.parse(&format!("0x{digits}"), words).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_was_printed() {
        let text = Form { numbers: false };
        let numbers = Form { numbers: true };
        for (form, given, shown) in [
            (text, "ada", "ada"),
            (text, "", ""),
            (text, "grüße", "grüße"),
            (text, "0x0061", "0x00610000000000000000000000000000"),
            (text, "0x616461", "ada"),
            (text, "0x3078", "0x30780000000000000000000000000000"),
            (text, "a\nb", "0x610a6200000000000000000000000000"),
            (numbers, "100,-3", "100,-3"),
            (numbers, "7", "7,0"),
        ] {
            let words = form.parse(given, 2).unwrap();
            assert_eq!(form.show(&words), shown);
            assert_eq!(form.parse(shown, 2).unwrap(), words, "{given}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let text = Form { numbers: false };
        let numbers = Form { numbers: true };
        for (form, given) in [
            (text, "123456789"),
            (text, "0x123"),
            (text, "0xgg"),
            (text, "0x+1"),
            (text, "0xä"),
            (numbers, "1,2"),
            (numbers, ""),
            (numbers, "9223372036854775808"),
        ] {
            assert!(form.parse(given, 1).is_err(), "{given}");
        }
        assert_eq!(from_digits("61", 1), None, "a part of a value");
    }
}
