//! What `--output` names: replaced when all is done, and not before.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where results are written when there are any.
pub struct Destination {
    path: PathBuf,
    to: To,
}

enum To {
    /// A file beside the one that was named, which it replaces at the end: a run that fails loses nothing.
    Beside(NamedTempFile),
    /// A pipe, a terminal or the like, which nothing can replace.
    There(File),
}

impl Destination {
    /// Opens what the results are written to at the end, and changes nothing that is there. It cannot be one of the
    /// files that `read` names: `to_be` says what is done with them.
    pub fn prepare<'i>(
        named: &Path,
        read: impl IntoIterator<Item = &'i Path>,
        to_be: &str,
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
        // Where a file could not be written, it is not replaced either. What is appended to a redirected /dev/stdout
        // comes after what is there.
        let file = OpenOptions::new()
            .append(true)
            .open(named)
            .map_err(failed)?;
        // In /dev/shm there are files as everywhere.
        let of_the_system = ["/dev", "/proc"].iter().any(|of| named.starts_with(of));
        let is_stream = of_the_system && !named.starts_with("/dev/shm");
        if is_stream || !there.is_file() {
            let path = named.to_owned();
            return Ok(Self {
                path,
                to: To::There(file),
            });
        }
        let same = |input: &Path| {
            let input = fs::metadata(input);
            input.is_ok_and(|input| (input.dev(), input.ino()) == (there.dev(), there.ino()))
        };
        if read.into_iter().any(same) {
            return Err(Failure::new(format_args!(
                "{} is one of the files to be {to_be}, and --output would replace it; name another file",
                named.display()
            )));
        }
        // Not a link to it.
        let path = fs::canonicalize(named).map_err(failed)?;
        let to = beside(&path, there.permissions().mode()).map_err(failed)?;
        Ok(Self { path, to })
    }

    /// What was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a file, which can be read again.
    pub fn is_file(&self) -> bool {
        matches!(self.to, To::Beside(_))
    }

    /// The file that results are written to which come bit by bit. They are there once they are [kept](Self::keep).
    pub fn file(&self) -> Result<File, Failure> {
        let file = match &self.to {
            To::There(file) => file.try_clone(),
            To::Beside(file) => file.as_file().try_clone(),
        };
        file.map_err(|error| cannot_be_written(&self.path, &error))
    }

    /// Puts there what was written.
    pub fn keep(self) -> Result<(), Failure> {
        let Self { path, to } = self;
        match to {
            To::There(_) => Ok(()),
            // On its way to the disk before it replaces what is there: an error that comes late loses nothing.
            To::Beside(file) => (file.as_file().sync_all())
                .and_then(|()| file.persist(&path).map(drop).map_err(|error| error.error))
                .map_err(|error| cannot_be_written(&path, &error)),
        }
    }

    /// Lets `write` write them, and puts them there.
    pub fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = whole(self.file()?, write);
        written.map_err(|error| cannot_be_written(&self.path, &error))?;
        self.keep()
    }
}

fn cannot_be_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!(
        "{} cannot be written: {error}",
        path.display()
    ))
}

/// A new file in the directory of `path`, removed unless it replaces what is there.
fn beside(path: &Path, mode: u32) -> io::Result<To> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".outlive-results-")
        .permissions(Permissions::from_mode(mode & 0o777))
        .tempfile_in(directory)
        .map(To::Beside)
}

fn whole(file: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}
