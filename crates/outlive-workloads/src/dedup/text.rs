//! The files of a tree as one text: their bytes one after the other, in the order of the archive. By its places in that
//! text, work is dealt to tasks however large or small files are.

use super::chunk::WINDOW;
use super::tree::{Content, Tree};
use crate::input::{InputError, InputFile, path_for_all, version_of};
use core::ops::Range;
use outlive::heap::LocalHeap;
use outlive_tasks::{Array, Context, PoolError, TaskError, WorkerPool};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

// The names of the arrays in the pod: where files end in the text, their versions, their paths one after the other, and where
// these end.
const ENDS: &str = "files end";
const VERSIONS: &str = "versions";
const PATHS: &str = "paths";
const PATHS_END: &str = "paths end";

/// The files of a tree, and how long each was when it was looked at.
#[derive(Clone, Debug, Default)]
pub struct Text {
    files: Vec<InputFile>,
    bytes: u64,
}

impl Text {
    /// Looks at the files of `tree`, and opens each of them once, so that what cannot be read is known now.
    ///
    /// # Errors
    /// At the first that cannot be read.
    pub fn find(tree: &Tree) -> Result<Self, InputError> {
        let mut text = Self::default();
        let files = tree.entries().iter();
        for source in files.filter(|source| source.content == Content::File) {
            let path = source.path.clone();
            let looked = look(&path);
            let file = looked.map_err(|source| InputError::Unreadable {
                path: path.clone(),
                source,
            })?;
            let file = file.ok_or_else(|| InputError::NoLength { path: path.clone() })?;
            text.bytes += file.len;
            text.files.push(file);
        }
        Ok(text)
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many files it is of.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// How long its files are.
    pub(super) fn lens(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|file| file.len)
    }

    /// Where file `number` is.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        let file = self.files.get(number as usize);
        file.map_or_else(PathBuf::new, |file| file.path.clone())
    }

    fn bytes_of_paths(&self) -> usize {
        let paths = self.files.iter().map(|file| file.path.as_os_str().len());
        paths.sum()
    }

    /// How many bytes each of the arrays has that stand for it in a pod.
    pub(super) fn arrays(&self) -> [u64; 4] {
        let words = self.files.len() as u64 * 8;
        [words, words, words, self.bytes_of_paths() as u64]
    }

    /// Puts it into a pod: not what the files say, but where they are.
    pub(super) fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let ends = |of: fn(&InputFile) -> u64| -> Vec<u64> {
            let mut end = 0;
            let lens = self.files.iter().map(of);
            lens.map(|len| {
                end += len;
                end
            })
            .collect()
        };
        let (files_end, paths_end) = (
            ends(|file| file.len),
            ends(|file| file.path.as_os_str().len() as u64),
        );
        let versions = self.files.iter().map(|file| file.version).collect();
        let words = [
            (ENDS, files_end),
            (PATHS_END, paths_end),
            (VERSIONS, versions),
        ];
        for (name, words) in words {
            pool.put_array(heap, name, words.len(), |array| array.write(0, &words))?;
        }
        let paths: Vec<u8> = { self.files.iter() }
            .flat_map(|file| file.path.as_os_str().as_bytes())
            .copied()
            .collect();
        pool.put_array(heap, PATHS, paths.len(), |array| array.write(0, &paths))?;
        Ok(())
    }
}

/// What the file at `path` is; `None` if it says that it is empty, and is not.
fn look(path: &Path) -> io::Result<Option<InputFile>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let (len, version) = (metadata.len(), version_of(&metadata));
    let is_odd = len == 0 && file.read(&mut [0])? != 0;
    let path = path_for_all(path)?;
    Ok((!is_odd).then_some(InputFile {
        path,
        len,
        version,
        copied: None,
    }))
}

/// The text, as tasks find it in the pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    ends: Array<u64>,
    paths: Array<u8>,
    paths_end: Array<u64>,
    versions: Array<u64>,
}

/// A piece of one file.
pub(super) struct Piece<'b> {
    /// Where in what was read.
    pub at: usize,
    /// What the file has before it: [`WINDOW`] - 1 bytes, or all there are.
    pub before: &'b [u8],
    /// The bytes.
    pub bytes: &'b [u8],
}

impl Files {
    /// That of the pool of `context`.
    pub fn of(context: &Context<'_>) -> Result<Self, TaskError> {
        Ok(Self {
            ends: context.array(ENDS)?,
            paths: context.array(PATHS)?,
            paths_end: context.array(PATHS_END)?,
            versions: context.array(VERSIONS)?,
        })
    }

    /// The first file that ends behind byte `at`; how many there are, if none does.
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

    /// Where file `number` is in the text.
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

    /// Reads as many bytes as `into` has from byte `from` on, and shows `each` piece of a file among them.
    ///
    /// # Errors
    /// If a file cannot be read, or is not as long as it was.
    pub fn read(
        self,
        from: u64,
        into: &mut [u8],
        mut each: impl FnMut(Piece<'_>),
    ) -> Result<(), Trouble> {
        let (mut at, mut number) = (0, self.at(from));
        while at < into.len() {
            if number == self.ends.len() {
                // A damaged segment: nobody asks for more than there is.
                return Err(self.changed(number));
            }
            let file = self.range(number);
            let begin = from + at as u64 - file.start;
            let len = (file.end - file.start - begin).min((into.len() - at) as u64) as usize;
            let bytes = &mut into[at..at + len];
            let mut before = [0; WINDOW - 1];
            let before = &mut before[..begin.min(WINDOW as u64 - 1) as usize];
            let ends = begin + len as u64 == file.end - file.start;
            let mut read = || {
                let file = File::open(self.path(number))?;
                if version_of(&file.metadata()?) != self.versions.get(number) {
                    return Ok(true);
                }
                file.read_exact_at(before, begin - before.len() as u64)?;
                file.read_exact_at(bytes, begin)?;
                // Whether there is more than there was, or another file.
                Ok::<_, io::Error>(ends && file.read_at(&mut [0], begin + len as u64)? != 0)
            };
            match read() {
                Ok(false) => {}
                Ok(true) => return Err(self.changed(number)),
                Err(source) if source.raw_os_error().is_some() => {
                    let path = self.path(number);
                    return Err(Trouble::Unreadable { path, source });
                }
                // It ends early.
                Err(_) => return Err(self.changed(number)),
            }
            if len > 0 {
                each(Piece { at, before, bytes });
            }
            at += len;
            number += 1;
        }
        Ok(())
    }

    fn changed(self, number: usize) -> Trouble {
        let path = match number < self.ends.len() {
            true => self.path(number),
            false => PathBuf::new(),
        };
        let number = number as u32;
        Trouble::Changed { number, path }
    }
}

/// Why a part of the text could not be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The operating system said no to this worker.
    Unreadable { path: PathBuf, source: io::Error },
    /// A file has another length than when it was looked at.
    Changed { number: u32, path: PathBuf },
}

impl From<Trouble> for TaskError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            // Another host may have a way to it.
            Trouble::Unreadable { path, source } => {
                Self::unable(format_args!("{} cannot be read: {source}", path.display()))
            }
            Trouble::Changed { path, .. } => Self::new(format_args!(
                "{} has changed while it was read; nothing was made of it",
                path.display()
            )),
        }
    }
}
