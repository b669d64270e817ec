//! The histogram by tasks: every host reads the file itself, and each task counts a part of it. An
//! input that only the driver can read, a pipe for example, is first put into the pod in pieces.
//!
//! The pod holds only the location of the file, the layout of its data, and a table of counts for
//! each part, which its task writes as a whole and which is not read before all tasks are done.
//! Sums of whole numbers are the same in any order.

use super::{Bins, CHANNELS, Format, FormatError, Layout, kernel};
use core::ops::Range;
use outlive::heap::LocalHeap;
use outlive_run::driver::RunError;
use outlive_run::host::HostError;
use outlive_run::input::{InputError, InputFile, Inputs, open_regular, version_of};
use outlive_run::on_tasks::{BYTES_OF_A_NAME, Ended, PoolOf, TaskProgram, damaged, spread, unit};
use outlive_tasks::{Call, Context, PoolError, TaskError, WorkerPool, task};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The names of the path, of the [plan](Plan), and of the tables.
const FILE: &str = "file";
const PLAN: &str = "plan";
const BINS: &str = "bins";
/// The number of counts in a table.
const TABLE: usize = CHANNELS * 256;
/// The bytes that are read at a time: they stay in the processor's cache until counted.
const PIECE: usize = 256 << 10;

/// The number of bytes of a piece of a copy. With its header, a piece is a block of a power of two
/// in the pod.
const COPIED_PIECE: u64 = (64 << 20) - BYTES_OF_A_NAME;

/// Returns the name of piece `number` of a copy.
fn copied(number: u64) -> String {
    format!("piece {number}")
}

/// The program of tasks that counts the values of a file.
#[derive(Clone, Debug)]
pub struct Counting {
    file: InputFile,
    layout: Layout,
    task_bytes: u64,
}

/// The reason why a file cannot be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The path is a directory, or more or fewer than one file.
    #[error("{} is not a file; name one file", .path.display())]
    NotOne {
        /// The path.
        path: PathBuf,
    },
    /// The file begins like a picture, but is invalid or unsupported.
    #[error("{}: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The error.
        source: FormatError,
    },
}

impl Counting {
    /// The default number of bytes that a task counts: some milliseconds' work.
    pub const TASK_BYTES: u64 = 8 << 20;

    /// Opens the file at `path`, and finds its layout.
    ///
    /// # Errors
    /// If it cannot be read, or is a picture of an unsupported kind.
    pub fn open(path: &Path, format: Format) -> Result<Self, OpenError> {
        if path.is_dir() {
            return Err(OpenError::NotOne { path: path.into() });
        }
        let inputs = Inputs::find(&[path])?;
        let [file] = inputs.files() else {
            return Err(OpenError::NotOne { path: path.into() });
        };
        let mut file = file.clone();
        let unreadable = |source| InputError::Unreadable {
            path: path.into(),
            source,
        };
        let mut head = Vec::new();
        let opened = File::open(&file.path).map_err(unreadable)?;
        // The version is that of the file that is read here, even if the path names another file by
        // now.
        let metadata = opened.metadata().map_err(unreadable)?;
        let read = opened.take(Layout::HEAD as u64).read_to_end(&mut head);
        read.map_err(unreadable)?;
        (file.len, file.version) = (metadata.len(), version_of(&metadata));
        let layout = Layout::find_by(&head, file.len as usize, format);
        let layout = layout.map_err(|source| OpenError::Format {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            file,
            layout,
            task_bytes: Self::TASK_BYTES,
        })
    }

    /// Sets the maximum number of input bytes of a task.
    #[must_use]
    pub fn task_bytes(mut self, bytes: u64) -> Self {
        self.task_bytes = bytes;
        self
    }

    /// Returns the absolute path of the file; if it was copied, the path of the copy for this
    /// process.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file.len
    }

    /// Returns the layout of its data.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn data_len(&self) -> u64 {
        self.layout.data().len() as u64
    }

    /// Returns the number of bytes of the pieces of the copy; 0 if hosts read the file.
    fn pieces(&self) -> impl Iterator<Item = u64> {
        let len = if self.file.copied.is_some() {
            self.file.len
        } else {
            0
        };
        (0..len)
            .step_by(COPIED_PIECE as usize)
            .map(move |at| COPIED_PIECE.min(len - at))
    }
}

/// The parameters for tasks.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Plan {
    layout: [u64; 5],
    /// Of the file.
    version: u64,
    /// The maximum number of bytes that a task counts.
    each: u64,
}

impl TaskProgram for Counting {
    type Result = Bins;

    const POOL: PoolOf = PoolOf {
        number: 17,
        name: "histogram",
    };

    fn check(&self) -> Result<(), RunError> {
        match self.task_bytes {
            0 => Err(RunError::Impossible {
                what: "the number of bytes of a task",
                asked: 0,
                least: 1,
                most: u64::MAX,
            }),
            _ => Ok(()),
        }
    }

    fn phase(&self) -> &'static str {
        "counting"
    }

    fn units(&self) -> u64 {
        self.data_len().div_ceil(self.task_bytes)
    }

    fn data_bytes(&self) -> Vec<u64> {
        let bins = self.units() * TABLE as u64 * 8;
        [bins].into_iter().chain(self.pieces()).collect()
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let numbers = self.units() as usize * TABLE;
        pool.put_array(heap, BINS, numbers, |bins| bins.fill(0..numbers, 0u64))?;
        pool.put(
            heap,
            FILE,
            self.file.path_for_hosts().as_os_str().as_bytes(),
        )?;
        let plan = Plan {
            layout: self.layout.to_words(),
            version: self.file.version,
            each: self.task_bytes,
        };
        pool.put(heap, PLAN, bytemuck::bytes_of(&plan))
    }

    fn put_copies(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), HostError> {
        let Some(copy) = &self.file.copied else {
            return Ok(());
        };
        let mut piece = Vec::new();
        for (number, len) in (0..).zip(self.pieces()) {
            piece.resize(len as usize, 0);
            let read = copy.file().read_exact_at(&mut piece, number * COPIED_PIECE);
            read.map_err(|source| InputError::Unreadable {
                path: copy.name().into(),
                source,
            })?;
            pool.put(heap, &copied(number), &piece)?;
        }
        Ok(())
    }

    fn begin(&self) -> Call {
        count_part(0, self.data_len())
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        _: &Ended,
    ) -> Result<Bins, HostError> {
        let tables = pool.array::<u64>(heap, BINS).ok_or(HostError::NoRun)?;
        let mut bins = Bins::default();
        for table in tables.to_vec().chunks_exact(TABLE) {
            let all = bins.counts_mut().as_flattened_mut().iter_mut();
            all.zip(table).for_each(|(bin, more)| *bin += more);
        }
        Ok(self.layout.of_channels(bins))
    }
}

task! {
    /// Counts data bytes `from..to`, or spawns tasks that do.
    pub fn count_part(context, from: u64, to: u64) {
        let plan: Plan = context.input_of(PLAN)?;
        let layout = Layout::from_words(plan.layout).filter(|_| plan.each > 0);
        let layout = layout.ok_or_else(|| damaged("the layout of the data is invalid"))?;
        if to.saturating_sub(from) > plan.each {
            return spread(context, from..to, plan.each, |part| count_part(part.start, part.end));
        }
        if to == from {
            return Ok(());
        }
        let part = from / plan.each;
        unit(context, part, || {
            let path = context.input(FILE)?.to_vec();
            let bins = match path.is_empty() {
                true => count_copy(context, &layout, from..to)?,
                false => {
                    count_file(Path::new(OsStr::from_bytes(&path)), &plan, &layout, from..to)?
                }
            };
            write(context, part as usize, &bins)
        })
    }
}

fn write(context: &Context<'_>, part: usize, bins: &Bins) -> Result<(), TaskError> {
    let tables = context.array::<u64>(BINS)?;
    if tables.len() / TABLE <= part {
        return Err(damaged("there are fewer tables than parts"));
    }
    tables.write(part * TABLE, bins.counts().as_flattened());
    Ok(())
}

/// Counts `range` of the data of the file at `path`.
fn count_file(
    path: &Path,
    plan: &Plan,
    layout: &Layout,
    range: Range<u64>,
) -> Result<Bins, TaskError> {
    let shown = path.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(path),
        // Another host may be able to read it.
        _ => TaskError::unable(format_args!("{shown} cannot be read: {error}")),
    };
    let file = open_regular(path).map_err(failed)?;
    if version_of(&file.metadata().map_err(failed)?) != plan.version {
        return Err(changed(path));
    }
    count_by_pieces(layout, range, |bytes, at| {
        file.read_exact_at(bytes, at).map_err(failed)
    })
}

/// Counts `range` of the data of the copy in the pod.
fn count_copy(
    context: &Context<'_>,
    layout: &Layout,
    range: Range<u64>,
) -> Result<Bins, TaskError> {
    count_by_pieces(layout, range, |mut bytes, mut at| {
        while !bytes.is_empty() {
            let piece = context.array::<u8>(&copied(at / COPIED_PIECE))?;
            let first = (at % COPIED_PIECE) as usize;
            let len = bytes.len().min(piece.len().saturating_sub(first));
            if len == 0 {
                return Err(damaged("a piece of the file is too short"));
            }
            let (now, later) = bytes.split_at_mut(len);
            piece.read(first, now);
            (bytes, at) = (later, at + len as u64);
        }
        Ok(())
    })
}

/// Counts `range` of the data; `read` fills a buffer from a place in the file.
fn count_by_pieces(
    layout: &Layout,
    range: Range<u64>,
    read: impl Fn(&mut [u8], u64) -> Result<(), TaskError>,
) -> Result<Bins, TaskError> {
    let (mut bins, mut at) = (Bins::default(), range.start);
    let mut piece = vec![0; PIECE.min((range.end - range.start) as usize)];
    while at < range.end {
        let len = piece.len().min((range.end - at) as usize);
        let bytes = &mut piece[..len];
        read(bytes, layout.data().start as u64 + at)?;
        kernel::count(bytes, at as usize, layout, &mut bins);
        at += len as u64;
    }
    Ok(bins)
}

fn changed(path: &Path) -> TaskError {
    TaskError::new(format_args!(
        "{} has changed while it was read; nothing was counted",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{count, generate};
    use super::*;

    #[test]
    fn a_file_is_counted_in_parts_and_not_if_it_has_changed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("picture.bmp");
        // Larger than a piece.
        let picture = generate::bmp(401, 300, 2);
        std::fs::write(&path, &picture).unwrap();
        let counting = Counting::open(&path, Format::Any).unwrap();
        let layout = counting.layout();
        let plan = Plan {
            layout: layout.to_words(),
            version: counting.file.version,
            each: 1,
        };
        let of = |range| count_file(&path, &plan, layout, range);
        let (middle, end) = (111_111, counting.data_len());
        let mut bins = of(0..middle).unwrap();
        bins.merge(&of(middle..end).unwrap());
        assert_eq!(bins, count(&picture, layout));
        // Another file of the same length replaces it.
        std::fs::rename(&path, place.path().join("before")).unwrap();
        std::fs::write(&path, &picture).unwrap();
        let replaced = of(0..middle).unwrap_err().to_string();
        assert!(replaced.contains("has changed"), "{replaced}");
        // Longer, shorter, gone.
        std::fs::write(&path, [&picture[..], b"more"].concat()).unwrap();
        let said = of(0..middle).unwrap_err().to_string();
        assert!(said.ends_with("picture.bmp has changed while it was read; nothing was counted"));
        std::fs::write(&path, &picture[..picture.len() - 1]).unwrap();
        assert!(
            of(0..middle)
                .unwrap_err()
                .to_string()
                .contains("has changed")
        );
        std::fs::remove_file(&path).unwrap();
        assert!(
            of(0..middle)
                .unwrap_err()
                .to_string()
                .contains("cannot be read: No such")
        );
        // The file is shorter than declared.
        std::fs::write(&path, &picture).unwrap();
        let beyond = end..end + 1000;
        assert!(of(beyond).unwrap_err().to_string().contains("has changed"));
    }
}
