//! The lines of a text, counted, with a limit to their length.

use super::error::shown;
use super::{GraphError, Mistake, kinds};
use crate::compressed::{self, Compression};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line in bytes; a text with an edge in each line has no longer ones.
const LONGEST: usize = 1 << 20;
/// The bytes that are read from a file at a time.
const BUFFER: usize = 256 << 10;
/// The mark that some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// The lines of a text, one after the other.
pub(super) struct Lines<R> {
    reader: R,
    path: PathBuf,
    compression: Option<Compression>,
    /// The byte that ends a line.
    end: u8,
    number: u64,
    line: Vec<u8>,
    /// Whether `next` returns `line` again.
    again: bool,
}

/// A file, or the decompressed content of one.
pub(super) type Text = BufReader<Box<dyn Read>>;

impl Lines<Text> {
    /// Opens the file at `path`, which may be compressed.
    pub fn open(path: &Path) -> Result<Self, GraphError> {
        let file = File::open(path).map_err(|source| unreadable(path, None, source))?;
        Self::of(BufReader::with_capacity(BUFFER, file), path)
    }

    /// Returns the lines of `reader`, called `path` in errors. The first bytes show the
    /// compression, and the first line the byte that ends lines.
    pub fn of(mut reader: impl BufRead + 'static, path: &Path) -> Result<Self, GraphError> {
        let mut first = beginning(&mut reader).map_err(|source| unreadable(path, None, source))?;
        let compression = Compression::of(&first);
        let mut text: Box<dyn Read> = Box::new(reader);
        if let Some(compression) = compression {
            let packed = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(text));
            text = compression.reader(packed);
            let unpacked = beginning(&mut text);
            first = unpacked.map_err(|source| unreadable(path, Some(compression), source))?;
            if Compression::of(&first).is_some() || compressed::unsupported(&first).is_some() {
                return Err(GraphError::CompressedTwice { path: path.into() });
            }
        } else if let Some(by) = compressed::unsupported(&first) {
            let path = path.into();
            return Err(GraphError::Compressed { path, by });
        }
        if let Some(kind) = kinds::recognised(&first) {
            let path = path.into();
            return Err(GraphError::Foreign { path, kind });
        }
        let end = line_end(&first);
        let text: Box<dyn Read> = Box::new(io::Cursor::new(first).chain(text));
        Ok(Lines {
            reader: BufReader::with_capacity(BUFFER, text),
            path: path.into(),
            compression,
            end,
            number: 0,
            line: Vec::new(),
            again: false,
        })
    }
}

/// Reads the first bytes, by which the kind of a file is recognised.
fn beginning(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    reader.take(kinds::TOLD_BY as u64).read_to_end(&mut first)?;
    Ok(first)
}

/// Returns the byte that ends the lines of a text that begins with `first`: a carriage return if
/// the first line ends with one alone, else a line feed, which may follow carriage returns.
fn line_end(first: &[u8]) -> u8 {
    let end = first.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let next = end.and_then(|at| first[at..].iter().find(|byte| **byte != b'\r'));
    match next {
        Some(b'\n') | None => b'\n',
        Some(_) => b'\r',
    }
}

fn unreadable(path: &Path, compression: Option<Compression>, source: io::Error) -> GraphError {
    let path = path.into();
    match compression {
        Some(by) => GraphError::Packed { path, by, source },
        None => GraphError::Unreadable { path, source },
    }
}

impl<R: BufRead> Lines<R> {
    /// Returns the next line without its end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, GraphError> {
        if !std::mem::take(&mut self.again) && !self.read()? {
            return Ok(None);
        }
        Ok(Some(&self.line))
    }

    /// Makes `next` return the last line once more.
    pub fn again(&mut self) {
        self.again = self.number > 0;
    }

    /// Returns the path of the text.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the line that was read last, counted from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the error that the last line is wrong.
    #[cold]
    pub fn mistake(&self, mistake: Mistake) -> GraphError {
        GraphError::Line {
            path: self.path.clone(),
            line: self.number,
            mistake,
        }
    }

    /// Returns the error that `found` in the last line is not `wanted`.
    #[cold]
    pub fn no_number(&self, found: &[u8], wanted: &'static str) -> GraphError {
        let found = shown(found);
        self.mistake(Mistake::NoNumber { found, wanted })
    }

    fn read(&mut self) -> Result<bool, GraphError> {
        self.line.clear();
        let most = LONGEST as u64 + 1;
        let read = (&mut self.reader)
            .take(most)
            .read_until(self.end, &mut self.line);
        let read = read.map_err(|source| unreadable(&self.path, self.compression, source))?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&self.end) {
            self.line.pop();
        } else if self.line.len() > LONGEST {
            return Err(self.mistake(Mistake::TooLong(LONGEST)));
        }
        while self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(true)
    }
}

/// Returns the number that `digits` write in the usual way, if it is less than 2^64.
#[inline]
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::fixtures::Packed;

    fn all(bytes: &'static [u8]) -> Result<Vec<Vec<u8>>, GraphError> {
        let mut lines = Lines::of(bytes, Path::new("text"))?;
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(line.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn lines_end_as_the_first_one_does() {
        for (text, expected) in [
            (&b""[..], &[][..]),
            (b"\n", &[&b""[..]]),
            (b"a", &[b"a"]),
            (b"a\n\nb c\n", &[b"a", b"", b"b c"]),
            (b"a\r\nb\r\r\n\r\n", &[b"a", b"b", b""]),
            (b"a\rb c\r\rd", &[b"a", b"b c", b"", b"d"]),
            (b"\r\ra\r", &[b"", b"", b"a"]),
            (b"a\r", &[b"a"]),
            (b"a\nb\rc\n", &[b"a", b"b\rc"]),
            (b"\xEF\xBB\xBF1 2\n\xEF\xBB\xBF", &[b"1 2", b"\xEF\xBB\xBF"]),
        ] {
            assert_eq!(all(text).unwrap(), expected);
        }
        let long = vec![b'x'; LONGEST].leak();
        assert_eq!(all(long).unwrap().len(), 1);
        let longer = vec![b'x'; LONGEST + 1].leak();
        let refused = all(longer).unwrap_err().to_string();
        assert!(
            refused.starts_with("text, line 1: the line is longer"),
            "{refused}"
        );
    }

    #[test]
    fn packed_text_is_told_by_its_first_bytes() {
        let packed = Packed::of(Compression::Gzip);
        assert_eq!(
            all(packed.twice.leak()).unwrap(),
            [&b"1 2"[..], b"2 3", b"1 2", b"2 3"]
        );
        let mut cut = packed.once.to_vec();
        cut.truncate(cut.len() - 9);
        let refused = all(cut.leak()).unwrap_err();
        assert!(matches!(refused, GraphError::Packed { .. }), "{refused}");
        let refused = all(b"\x04\x22\x4D\x18...").unwrap_err().to_string();
        assert!(
            refused.starts_with("text is compressed by lz4"),
            "{refused}"
        );
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        std::io::Write::write_all(&mut packer, packed.once).unwrap();
        let refused = all(packer.finish().unwrap().leak()).unwrap_err();
        assert!(
            matches!(refused, GraphError::CompressedTwice { .. }),
            "{refused}"
        );
        let refused = all(b"PAR1....").unwrap_err().to_string();
        assert!(refused.starts_with("text is a Parquet file"), "{refused}");
    }

    #[test]
    fn numbers_are_digits() {
        for (digits, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
        ] {
            assert_eq!(number(digits.as_bytes()), expected, "{digits}");
        }
    }
}
