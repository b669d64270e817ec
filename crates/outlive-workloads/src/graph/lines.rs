//! The lines of a text, counted, with a limit to their length.

use super::error::shown;
use super::{GraphError, Mistake};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line: longer ones are in no text with an edge in each line.
const LONGEST: usize = 1 << 20;
/// What is read from a file at a time.
const BUFFER: usize = 256 << 10;
/// What gzip's files begin with.
const GZIP: [u8; 2] = [0x1F, 0x8B];
/// What some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// The lines of a text, one after the other.
pub(super) struct Lines<R> {
    reader: R,
    path: PathBuf,
    is_packed: bool,
    number: u64,
    line: Vec<u8>,
    /// Whether `line` is to be given out again.
    again: bool,
}

/// A file, or what is packed in it.
pub(super) type Text = BufReader<Box<dyn Read>>;

impl Lines<Text> {
    /// The lines of the file at `path`, which may be compressed by gzip: that is known by its first bytes.
    pub fn open(path: &Path) -> Result<Self, GraphError> {
        let unreadable = |source| GraphError::Unreadable {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        Self::of(BufReader::with_capacity(BUFFER, file), path)
    }

    /// The lines of what `reader` reads, called `path` in errors.
    pub fn of(mut reader: impl BufRead + 'static, path: &Path) -> Result<Self, GraphError> {
        let unreadable = |source| GraphError::Unreadable {
            path: path.into(),
            source,
        };
        let mut first = Vec::new();
        (&mut reader)
            .take(2)
            .read_to_end(&mut first)
            .map_err(unreadable)?;
        let is_packed = first == GZIP;
        let whole = io::Cursor::new(first).chain(reader);
        let text: Box<dyn Read> = match is_packed {
            true => Box::new(MultiGzDecoder::new(whole)),
            false => Box::new(whole),
        };
        Ok(Lines {
            reader: BufReader::with_capacity(BUFFER, text),
            path: path.into(),
            is_packed,
            number: 0,
            line: Vec::new(),
            again: false,
        })
    }
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end, which is a line feed or the end of the text.
    pub fn next(&mut self) -> Result<Option<&[u8]>, GraphError> {
        if !std::mem::take(&mut self.again) && !self.read()? {
            return Ok(None);
        }
        Ok(Some(&self.line))
    }

    /// Gives the line that came last once more.
    pub fn again(&mut self) {
        self.again = self.number > 0;
    }

    /// What they are called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error that the line that came last is wrong.
    #[cold]
    pub fn mistake(&self, mistake: Mistake) -> GraphError {
        GraphError::Line {
            path: self.path.clone(),
            line: self.number,
            mistake,
        }
    }

    /// The error that `found` in the line that came last is not what is `wanted`.
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
            .read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| {
            let path = self.path.clone();
            match self.is_packed {
                true => GraphError::Packed { path, source },
                false => GraphError::Unreadable { path, source },
            }
        })?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() > LONGEST {
            return Err(self.mistake(Mistake::TooLong(LONGEST)));
        }
        if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(true)
    }
}

/// What stands between white space in `line`, up to a comment: a field that begins with `#` or `%`.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
        .filter(|field| !field.is_empty())
        .take_while(|field| !matches!(field[0], b'#' | b'%'))
}

/// The number that `digits` write in the usual way, if it is less than 2^64.
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
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn all(bytes: &'static [u8]) -> Result<Vec<Vec<u8>>, GraphError> {
        let mut lines = Lines::of(bytes, Path::new("text"))?;
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(line.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn lines_end_with_a_line_feed_or_the_text() {
        for (text, expected) in [
            (&b""[..], &[][..]),
            (b"\n", &[&b""[..]]),
            (b"a", &[b"a"]),
            (b"a\n\nb c\n", &[b"a", b"", b"b c"]),
            (b"\xEF\xBB\xBF1 2\n\xEF\xBB\xBF", &[b"1 2", b"\xEF\xBB\xBF"]),
        ] {
            assert_eq!(all(text).unwrap(), expected);
        }
        let long = vec![b'x'; LONGEST].leak();
        assert_eq!(all(long).unwrap().len(), 1);
        let longer = vec![b'x'; LONGEST + 1].leak();
        let refused = all(longer).unwrap_err().to_string();
        assert!(
            refused.starts_with("text, line 1: it is longer"),
            "{refused}"
        );
    }

    #[test]
    fn what_gzip_made_is_unpacked_by_its_first_bytes() {
        let pack = |text: &[u8]| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer.write_all(text).unwrap();
            packer.finish().unwrap()
        };
        // Two files, one after the other, are one.
        let mut packed = pack(b"1 2\n3");
        packed.extend(pack(b" 4\n"));
        let whole = packed.clone().leak();
        assert_eq!(all(whole).unwrap(), [&b"1 2"[..], b"3 4"]);
        packed.truncate(packed.len() - 9);
        let refused = all(packed.leak()).unwrap_err();
        assert!(matches!(refused, GraphError::Packed { .. }), "{refused}");
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
