//! The program that counts the values of a picture.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::StudyError;
use crate::children::Launcher;
use crate::cost::Cost;
use crate::scratch::Directory;
use outlive_programs::histogram::{Bins, Counting, Format, Layout, generate, kernel};
use outlive_run::driver::Outcome;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes that a task reads at once: a piece stays in the cache until it is counted.
const PIECE: usize = 256 << 10;
/// The points of a row: each row ends with a byte of padding.
const WIDTH: u32 = 8001;
/// The number of rows that are drawn; they are repeated.
const DRAWN: u32 = 640;

struct Picture {
    /// The directory that contains only the picture.
    files: Directory,
    rows: u32,
    expected: Bins,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let rows = sizes.rows;
    let files = Directory::new("picture")?;
    draw(&files.path(NAME), rows).map_err(StudyError::io("writing a picture to /dev/shm"))?;
    let mut picture = Picture {
        files,
        rows,
        expected: Bins::default(),
    };
    picture.expected = picture.count()?.1;
    Ok(Box::new(picture))
}

const NAME: &str = "picture.bmp";

/// Writes a bitmap of `rows` rows, which repeats the drawn ones.
fn draw(path: &Path, rows: u32) -> io::Result<()> {
    let drawn = generate::bmp(WIDTH, rows.min(DRAWN), 1);
    let (head, data) = drawn.split_at(54);
    let stride = data.len() / rows.min(DRAWN) as usize;
    let bytes = stride * rows as usize;
    let mut head = head.to_vec();
    // The fields for the length of the file, the number of rows, and the length of all rows.
    for (at, number) in [(2, bytes + 54), (22, rows as usize), (34, bytes)] {
        let number = u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge)?;
        head[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&head)?;
    let mut left = bytes;
    while left > 0 {
        let some = left.min(data.len());
        file.write_all(&data[..some])?;
        left -= some;
    }
    file.flush()
}

impl Picture {
    fn open(&self) -> Result<Counting, StudyError> {
        let counting = Counting::open(&self.files.path(NAME), Format::Any);
        counting.map_err(|error| StudyError::void(error.to_string()))
    }

    /// Runs the plain program, which reads the file piece by piece.
    fn count(&self) -> Result<(Cost, Bins), StudyError> {
        let counting = self.open()?;
        let (cost, bins) = Cost::of(|| count(counting.path(), counting.layout()));
        Ok((cost, bins.map_err(StudyError::io("reading the picture"))?))
    }
}

fn count(path: &Path, layout: &Layout) -> io::Result<Bins> {
    let (file, data) = (File::open(path)?, layout.data());
    let (mut bins, mut piece) = (Bins::default(), vec![0; PIECE]);
    for from in data.clone().step_by(PIECE) {
        let piece = &mut piece[..PIECE.min(data.end - from)];
        file.read_exact_at(piece, from as u64)?;
        kernel::count(piece, from - data.start, layout, &mut bins);
    }
    Ok(bins)
}

impl Subject for Picture {
    fn size(&self) -> String {
        let megabytes = u64::from(self.rows) * u64::from(WIDTH) * 3 / 1_000_000;
        format!("a picture of {megabytes} MB")
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let (cost, bins) = self.count()?;
        same(PLAIN, bins == self.expected)?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        crew.run(launcher, &self.open()?, &self.expected)
    }

    #[cfg(feature = "lupin")]
    fn for_c(&self, _: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        Ok(vec![self.files.path(NAME).into()])
    }

    /// The result is the counts of blue, green and red.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let all = self.expected.counts().as_flattened().iter();
        let expected: Vec<u8> = all.flat_map(|count| count.to_le_bytes()).collect();
        same(super::c::WHO, result == expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_programs::histogram::verify::verify;

    #[test]
    fn a_picture_of_repeated_rows_is_a_picture() {
        let files = Directory::new("test-picture").unwrap();
        let path = files.path(NAME);
        // More than are drawn, and not a multiple of them.
        draw(&path, DRAWN + 100).unwrap();
        let file = std::fs::read(&path).unwrap();
        let layout = Layout::find(&file, Format::Any).unwrap();
        let bins = count(&path, &layout).unwrap();
        assert_eq!(verify(&file, &layout, &bins), Ok(()));
        assert_eq!(bins.total(), u64::from(WIDTH * 3 * (DRAWN + 100)));
    }
}
