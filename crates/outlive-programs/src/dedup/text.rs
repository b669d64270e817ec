//! The files of a tree as one text: the concatenation of their bytes without holes, in the order of
//! the archive. Work is divided among tasks by offsets in this text, independent of the sizes of
//! files.
//!
//! The text consists of *extents*, ranges of files without holes. A file without holes is one
//! extent, and a file without data has no extent. A chunk does not cross the end of an extent.

use super::chunk::WINDOW;
use super::extents::Span;
use super::tree::{Content, Tree};
use core::ops::Range;
use outlive::heap::LocalHeap;
use outlive_run::input::{InputError, InputFile, open_regular, path_for_all, version_of};
use outlive_tasks::{Array, Context, PoolError, TaskError, WorkerPool};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

// The names of the arrays in the pod. They hold, for each extent, its end in the text, its start in
// its file and the number of the file; and for each file, its version and the end of its path in
// the concatenation of all paths.
const ENDS: &str = "extents end";
const STARTS: &str = "extents in files";
const FILES: &str = "files of extents";
const VERSIONS: &str = "versions";
const PATHS: &str = "paths";
const PATHS_END: &str = "paths end";

/// The files of a tree, with the lengths that they had when they were found.
#[derive(Clone, Debug, Default)]
pub struct Text {
    files: Vec<InputFile>,
    /// The file number and the range of each extent.
    extents: Vec<(u64, Span)>,
    bytes: u64,
}

impl Text {
    /// Returns the text of the files of `tree`.
    ///
    /// # Errors
    /// If other processes cannot reach one of them.
    pub fn find(tree: &Tree) -> Result<Self, InputError> {
        let mut text = Self::default();
        for source in tree.entries() {
            let Content::File(file) = &source.content else {
                continue;
            };
            let path = path_for_all(&source.path).map_err(|error| InputError::Unreadable {
                path: source.path.clone(),
                source: error,
            })?;
            let number = text.files.len() as u64;
            text.extents
                .extend(source.extents().iter().map(|span| (number, *span)));
            text.bytes += source.extents().iter().map(|span| span.len).sum::<u64>();
            text.files.push(InputFile {
                path,
                len: file.len,
                version: file.version,
                copied: None,
            });
        }
        Ok(text)
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of extents.
    pub(super) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Returns the path of file `number`.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        let file = self.files.get(number as usize);
        file.map_or_else(PathBuf::new, |file| file.path.clone())
    }

    fn bytes_of_paths(&self) -> usize {
        let paths = self.files.iter().map(|file| file.path.as_os_str().len());
        paths.sum()
    }

    /// Returns the size in bytes of each array of the text in a pod.
    pub(super) fn arrays(&self) -> [u64; 6] {
        let [extents, files] = [self.extents.len(), self.files.len()].map(|count| count as u64 * 8);
        let paths = self.bytes_of_paths() as u64;
        [extents, extents, extents, files, files, paths]
    }

    /// Puts the locations of the files into a pod, but not their content.
    pub(super) fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let paths = self.files.iter().map(|file| file.path.as_os_str());
        let words = [
            (ENDS, ends(self.extents.iter().map(|(_, span)| span.len))),
            (
                STARTS,
                self.extents.iter().map(|(_, span)| span.start).collect(),
            ),
            (FILES, self.extents.iter().map(|(file, _)| *file).collect()),
            (
                VERSIONS,
                self.files.iter().map(|file| file.version).collect(),
            ),
            (PATHS_END, ends(paths.clone().map(|path| path.len() as u64))),
        ];
        for (name, words) in words {
            pool.put_array(heap, name, words.len(), |array| array.write(0, &words))?;
        }
        let paths: Vec<u8> = paths.flat_map(OsStrExt::as_bytes).copied().collect();
        pool.put_array(heap, PATHS, paths.len(), |array| array.write(0, &paths))?;
        Ok(())
    }
}

/// Returns the end offsets of consecutive items of these lengths.
fn ends(lens: impl Iterator<Item = u64>) -> Vec<u64> {
    let sum = |end: &mut u64, len| {
        *end += len;
        Some(*end)
    };
    lens.scan(0, sum).collect()
}

/// The text, as tasks find it in the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    ends: Array<u64>,
    starts: Array<u64>,
    files: Array<u64>,
    paths: Array<u8>,
    paths_end: Array<u64>,
    versions: Array<u64>,
}

/// A piece of one extent.
pub(super) struct Piece<'b> {
    /// The offset in the bytes read.
    pub at: usize,
    /// The preceding bytes of the extent, at most [`WINDOW`] - 1.
    pub before: &'b [u8],
    /// The bytes.
    pub bytes: &'b [u8],
}

impl Extents {
    /// Opens the text of the pool of `context`.
    pub fn of(context: &Context<'_>) -> Result<Self, TaskError> {
        Ok(Self {
            ends: context.array(ENDS)?,
            starts: context.array(STARTS)?,
            files: context.array(FILES)?,
            paths: context.array(PATHS)?,
            paths_end: context.array(PATHS_END)?,
            versions: context.array(VERSIONS)?,
        })
    }

    /// Returns the number of the first extent that ends after byte `at`, or the number of extents
    /// if all end before.
    pub fn at(self, at: u64) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.ends.get(middle) <= at {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the range of extent `number` in the text.
    pub fn range(self, number: usize) -> Range<u64> {
        let ends = |number| self.ends.get(number);
        number.checked_sub(1).map_or(0, ends)..ends(number)
    }

    fn path(self, number: usize) -> PathBuf {
        let ends = |number| self.paths_end.get(number) as usize;
        let from = number.checked_sub(1).map_or(0, ends);
        let mut path = vec![0; ends(number).saturating_sub(from)];
        self.paths.read(from, &mut path);
        OsStr::from_bytes(&path).into()
    }

    /// Fills `into` with the text from byte `from` on, and passes each piece of an extent to
    /// `each`.
    ///
    /// # Errors
    /// If a file cannot be read, or has changed.
    pub fn read(
        self,
        from: u64,
        into: &mut [u8],
        mut each: impl FnMut(Piece<'_>),
    ) -> Result<(), Trouble> {
        let (mut at, mut number) = (0, self.at(from));
        while at < into.len() {
            if number == self.ends.len() {
                // A damaged segment: tasks do not read beyond the text.
                return Err(self.changed(self.versions.len()));
            }
            let (extent, file) = (self.range(number), self.files.get(number) as usize);
            if file >= self.versions.len() {
                return Err(self.changed(file));
            }
            let begin = from + at as u64 - extent.start;
            let len = (extent.end - extent.start - begin).min((into.len() - at) as u64) as usize;
            let bytes = &mut into[at..at + len];
            let mut before = [0; WINDOW - 1];
            let before = &mut before[..begin.min(WINDOW as u64 - 1) as usize];
            let begin = self.starts.get(number).saturating_add(begin);
            let mut read = || {
                let opened = open_regular(&self.path(file))?;
                let is_changed = || {
                    let version = version_of(&opened.metadata()?);
                    Ok::<_, io::Error>(version != self.versions.get(file))
                };
                if is_changed()? {
                    return Ok(true);
                }
                opened.read_exact_at(before, begin - before.len() as u64)?;
                opened.read_exact_at(bytes, begin)?;
                is_changed()
            };
            match read() {
                Ok(false) => {}
                Ok(true) => return Err(self.changed(file)),
                Err(source) if source.raw_os_error().is_some() => {
                    let path = self.path(file);
                    return Err(Trouble::Unreadable { path, source });
                }
                // The file ends early.
                Err(_) => return Err(self.changed(file)),
            }
            each(Piece { at, before, bytes });
            at += len;
            number += 1;
        }
        Ok(())
    }

    fn changed(self, number: usize) -> Trouble {
        let path = match number < self.versions.len() {
            true => self.path(number),
            false => PathBuf::new(),
        };
        let number = number as u32;
        Trouble::Changed { number, path }
    }
}

/// The reason why a part of the text could not be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The operating system reported an error to this worker.
    Unreadable { path: PathBuf, source: io::Error },
    /// A file has changed since it was found.
    Changed { number: u32, path: PathBuf },
}

impl From<Trouble> for TaskError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            // Another host may be able to read it.
            Trouble::Unreadable { path, source } => {
                Self::unable(format_args!("{} cannot be read: {source}", path.display()))
            }
            Trouble::Changed { path, .. } => Self::new(format_args!(
                "{} has changed while it was read, so there is no result; run again",
                path.display()
            )),
        }
    }
}
