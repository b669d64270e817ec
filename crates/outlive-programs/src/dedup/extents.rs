//! Extents and holes of files. A hole is a range that reads as zeros and takes no space.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The offset of the range's first byte.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
}

impl Span {
    /// Returns the offset after the range's last byte.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    fn between(start: u64, end: u64) -> Self {
        let len = end - start;
        Self { start, len }
    }
}

/// Returns the ranges of a file of `len` bytes that are not holes. Without support for holes that
/// is the whole file.
pub(super) fn data(file: &File, len: u64) -> io::Result<Vec<Span>> {
    let (mut data, mut at) = (Vec::new(), 0);
    while at < len {
        let start = match seek(file, SeekFrom::Data(at)) {
            // There is no data after `at`.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => at,
            start => start?,
        };
        if start >= len {
            break;
        }
        at = end_of_data(file, start)?.map_or(len, |end| end.min(len));
        // An inconsistent answer counts as no support for holes.
        if at <= start {
            at = len;
        }
        data.push(Span::between(start, at));
    }
    Ok(data)
}

/// Returns the first hole of `file` after `start`, if the filesystem supports holes.
fn end_of_data(file: &File, start: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Hole(start)) {
        Ok(end) => Ok(Some(end)),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the ranges of a file of `len` bytes that are not in `data`.
pub(super) fn holes(data: &[Span], len: u64) -> Vec<Span> {
    let starts = [0].into_iter().chain(data.iter().map(|span| span.end()));
    let ends = data.iter().map(|span| span.start).chain([len]);
    { starts.zip(ends) }
        .filter(|(start, end)| start < end)
        .map(|(start, end)| Span::between(start, end))
        .collect()
}

/// Returns whether `hole` of `file` takes no space.
pub(super) fn is_hole(file: &File, hole: Span) -> bool {
    let next_data = match seek(file, SeekFrom::Data(hole.start)) {
        Err(Errno::NXIO) => u64::MAX,
        next_data => next_data.unwrap_or(hole.start),
    };
    next_data >= hole.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn data_and_holes_are_told_apart() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!((data(&file, 0).unwrap(), holes(&[], 0)), (vec![], vec![]));
        file.write_all_at(&[1; 1 << 16], 1 << 20).unwrap();
        file.write_all_at(&[1; 100], 1 << 22).unwrap();
        let end = (1 << 22) + 100;
        let found = data(&file, end).unwrap();
        let expected = [
            Span {
                start: 1 << 20,
                len: 1 << 16,
            },
            Span {
                start: 1 << 22,
                len: 100,
            },
        ];
        assert_eq!(found, expected);
        let between = Span::between((1 << 20) + (1 << 16), 1 << 22);
        assert_eq!(
            holes(&found, end),
            [
                Span {
                    start: 0,
                    len: 1 << 20
                },
                between
            ]
        );
        assert!(is_hole(&file, between) && !is_hole(&file, found[0]));
        // A hole at the end of the file is found as well.
        file.set_len(1 << 23).unwrap();
        let last = *data(&file, 1 << 23).unwrap().last().unwrap();
        let hole = *holes(&[last], 1 << 23).last().unwrap();
        assert_eq!((last.end(), hole.end()), (hole.start, 1 << 23));
        assert!(is_hole(&file, hole));
    }
}
