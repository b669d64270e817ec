//! The destination of `--output`, which is replaced only after everything is done.

use super::play::Interrupted;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The destination of the results.
pub struct Destination {
    path: PathBuf,
    to: To,
}

enum To {
    /// A new file in the directory of the destination, which it replaces at the end: a run that
    /// fails loses nothing.
    Beside(NamedTempFile),
    /// A pipe, a terminal or another file that cannot be replaced.
    There(Stream),
}

/// A stream, written at the pace of its reader until an interruption.
struct Stream {
    file: File,
    interrupted: Interrupted,
    /// Whether a write waits for space without a limit. Otherwise it fails after a while.
    is_patient: bool,
}

/// The longest time until an interruption is handled.
const PATIENCE: Duration = Duration::from_millis(20);

impl Stream {
    fn try_clone(&self, is_patient: bool) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            interrupted: self.interrupted.clone(),
            is_patient,
        })
    }

    /// Waits until there is space, for at most `PATIENCE`. Returns whether there may be some.
    fn wait(&self) -> io::Result<bool> {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: PATIENCE.as_nanos() as i64,
        };
        let mut there = [PollFd::new(&self.file, PollFlags::OUT)];
        match poll(&mut there, Some(&patience)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.interrupted.is_heard() {
                return Err(interrupted());
            }
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait()? && !self.is_patient {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns an error of a kind for which writers do not retry.
fn interrupted() -> io::Error {
    io::Error::other("interrupted")
}

impl Destination {
    /// Opens the destination, to which results are written at the end, without changing existing
    /// contents. It cannot be one of the files in `read`; the error names their use, `to_be`.
    pub fn prepare<'i>(
        named: &Path,
        read: impl IntoIterator<Item = &'i Path>,
        to_be: &str,
        interrupted: &Interrupted,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| cannot_be_written(named, &error);
        let there = match fs::metadata(named) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = beside(named, 0o666).map_err(failed)?;
                let path = named.to_owned();
                return Ok(Self { path, to: beside });
            }
            Err(error) => return Err(failed(error)),
        };
        // /dev/shm has ordinary files.
        let of_the_system = ["/dev", "/proc"].iter().any(|of| named.starts_with(of));
        let is_stream = of_the_system && !named.starts_with("/dev/shm");
        let to_stream = |file| Self {
            path: named.to_owned(),
            to: To::There(Stream {
                file,
                interrupted: interrupted.clone(),
                is_patient: true,
            }),
        };
        if there.is_file()
            && let Some(standard) = standard_that_is(&there).map_err(failed)?
        {
            if !is_stream {
                return Err(Failure::new(format_args!(
                    "{} is the file of standard output or standard error, and would be replaced; \
                     name another file, or /dev/stdout",
                    named.display()
                )));
            }
            // Not opened again: a second open file would have a position of its own, and its writes
            // would overwrite those of others.
            return Ok(to_stream(standard));
        }
        // A file that cannot be written is not replaced either.
        let file = open(named, &there, !is_stream, interrupted).map_err(failed)?;
        if is_stream || !there.is_file() {
            return Ok(to_stream(file));
        }
        let same = |input: &Path| {
            let input = fs::metadata(input);
            input.is_ok_and(|input| is_same(&input, &there))
        };
        if read.into_iter().any(same) {
            return Err(Failure::new(format_args!(
                "{} is one of the files to be {to_be}, and would be replaced; name another file",
                named.display()
            )));
        }
        // The target of a link, not the link, is replaced.
        let path = fs::canonicalize(named).map_err(failed)?;
        let to = beside(&path, there.permissions().mode()).map_err(failed)?;
        Ok(Self { path, to })
    }

    /// Returns the path that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a file, which can be read again.
    pub fn is_file(&self) -> bool {
        matches!(self.to, To::Beside(_))
    }

    /// Returns a writer for results that are written in parts. They are in place once they are
    /// [kept](Self::keep). If the reader does not read earlier parts, a write
    /// [fails](io::ErrorKind::WouldBlock) after a moment.
    pub fn out(&self) -> Result<Box<dyn Write + Send>, Failure> {
        let path = self.path.clone();
        let out: io::Result<Box<dyn Write + Send>> = match &self.to {
            To::There(stream) => stream
                .try_clone(false)
                .map(|out| Box::new(Named { path, out }) as _),
            To::Beside(file) => {
                { file.as_file().try_clone() }.map(|out| Box::new(Named { path, out }) as _)
            }
        };
        out.map_err(|error| cannot_be_written(&self.path, &error))
    }

    /// Returns the file with the results for reading, if the destination is a file.
    pub fn file(&self) -> Result<Option<File>, Failure> {
        let file = match &self.to {
            To::There(_) => return Ok(None),
            To::Beside(file) => file.as_file().try_clone(),
        };
        let file = file.map_err(|error| cannot_be_written(&self.path, &error))?;
        Ok(Some(file))
    }

    /// Puts the written results in place.
    pub fn keep(self) -> Result<(), Failure> {
        let Self { path, to } = self;
        match to {
            To::There(_) => Ok(()),
            // Synced before it replaces the old file: a late error loses nothing.
            To::Beside(file) => (file.as_file().sync_all())
                .and_then(|()| file.persist(&path).map(drop).map_err(|error| error.error))
                .map_err(|error| cannot_be_written(&path, &error)),
        }
    }

    /// Writes the results by `write`, and puts them in place.
    pub fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = match &self.to {
            To::There(stream) => stream.try_clone(true).and_then(|out| whole(out, write)),
            To::Beside(file) => whole(file.as_file(), write),
        };
        written.map_err(|error| cannot_be_written(&self.path, &error))?;
        self.keep()
    }
}

/// Returns whether `named` is the same file as standard output. Devices other than a terminal do
/// not count: two outputs to /dev/null do not mix.
pub fn is_standard_output(named: &Path) -> bool {
    let (named, standard) = (fs::metadata(named), status_of(io::stdout().as_fd()));
    let (Ok(named), Ok(standard)) = (named, standard) else {
        return false;
    };
    is_same(&named, &standard)
        && (!named.file_type().is_char_device() || io::stdout().is_terminal())
}

/// Returns standard output or standard error, if it is the file `there`: a duplicate, which shares
/// its position in the file.
fn standard_that_is(there: &Metadata) -> io::Result<Option<File>> {
    let (output, errors) = (io::stdout(), io::stderr());
    for standard in [output.as_fd(), errors.as_fd()] {
        // A closed one is not the file.
        if status_of(standard).is_ok_and(|status| is_same(there, &status)) {
            return Ok(Some(File::from(standard.try_clone_to_owned()?)));
        }
    }
    Ok(None)
}

fn status_of(file: BorrowedFd<'_>) -> io::Result<Metadata> {
    File::from(file.try_clone_to_owned()?).metadata()
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn cannot_be_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!(
        "{} cannot be written: {error}{}",
        path.display(),
        what_to_do(error)
    ))
}

/// Returns what to do about an error of writing, as the end of its message; empty if that is not
/// known.
fn what_to_do(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull => "; free space on its filesystem, or name a file on another one",
        ErrorKind::QuotaExceeded => {
            "; free some of this user's quota there, or name a file on another filesystem"
        }
        _ => "",
    }
}

/// A writer whose errors for a lack of space name the path.
struct Named<W> {
    path: PathBuf,
    out: W,
}

impl<W> Named<W> {
    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| match what_to_do(&error) {
            "" => error,
            advice => {
                let said = format!("{}: {error}{advice}", self.path.display());
                io::Error::new(error.kind(), said)
            }
        })
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.named(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.named(flushed)
    }
}

/// Opens an existing file for appending: output to a redirected /dev/stdout comes after its
/// contents. If `waits`, waits for a reader of a pipe.
fn open(path: &Path, there: &Metadata, waits: bool, stop: &Interrupted) -> io::Result<File> {
    let mut how = OpenOptions::new();
    // The flag has no effect on regular files.
    let how = how
        .append(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let is_pipe = there.file_type().is_fifo() && waits;
    loop {
        let opened = how.open(path);
        let nobody_reads = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::NXIO);
        if !is_pipe || !opened.as_ref().is_err_and(nobody_reads) {
            return opened;
        }
        if stop.is_heard() {
            return Err(interrupted());
        }
        thread::sleep(PATIENCE);
    }
}

/// Creates a file in the directory of `path`, which is removed unless it replaces that at `path`.
fn beside(path: &Path, mode: u32) -> io::Result<To> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::metadata(directory)?;
    tempfile::Builder::new()
        .prefix(".outlive-results-")
        .permissions(Permissions::from_mode(mode & 0o777))
        .tempfile_in(directory)
        .map(To::Beside)
        // Removes the name of the temporary file from the error.
        .map_err(|error| error.kind().into())
}

fn whole(file: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}
