//! Copies of inputs that only this process can read, or that can be read only once.

use super::{InputError, InputFile, unreadable};
use rustix::event::{PollFd, PollFlags, poll};
use std::env;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes that are copied at a time.
const PIECE: usize = 256 << 10;

/// A copy in a file without a name, which exists as long as this value.
#[derive(Clone, Debug)]
pub struct Copied {
    name: PathBuf,
    copy: Arc<File>,
}

impl Copied {
    /// Returns the name of the original.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the copy.
    pub fn file(&self) -> &File {
        &self.copy
    }
}

impl PartialEq for Copied {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.copy, &other.copy)
    }
}

impl Eq for Copied {}

/// Returns whether `path` names this process's standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| path == Path::new(name))
}

/// Opens the pipe at `path`. Standard input is not opened again: another user may have created it,
/// and a socket cannot be opened.
pub(super) fn open_pipe(path: &Path) -> io::Result<File> {
    match is_standard_input(path) {
        true => Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
        false => File::open(path),
    }
}

/// Copies `original`, which is called `name`, to its end to a temporary file.
pub(super) fn copy(name: &Path, mut original: File) -> Result<InputFile, InputError> {
    let directory = env::temp_dir();
    let no_copy = |source| InputError::NoCopy {
        path: name.into(),
        directory: directory.clone(),
        source,
    };
    let mut copy = tempfile::tempfile_in(&directory).map_err(no_copy)?;
    let (mut piece, mut len) = (vec![0; PIECE], 0);
    loop {
        let read = match original.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Another process that shares the pipe may have made it nonblocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&original).map_err(unreadable(name))?;
                continue;
            }
            Err(error) => return Err(unreadable(name)(error)),
        };
        copy.write_all(&piece[..read]).map_err(no_copy)?;
        len += read as u64;
    }
    Ok(InputFile {
        path: format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd()).into(),
        len,
        version: 0,
        copied: Some(Copied {
            name: name.into(),
            copy: Arc::new(copy),
        }),
    })
}

/// Waits until bytes can be read.
fn wait(pipe: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Inputs;
    use super::*;
    use rustix::io::ioctl_fionbio;
    use std::fs;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_pipe_is_copied_to_its_end() {
        for waits in [true, false] {
            let (reader, mut writer) = io::pipe().unwrap();
            if !waits {
                ioctl_fionbio(&reader, true).unwrap();
            }
            let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
            let bytes: Vec<u8> = (0..PIECE + 1000).map(|number| number as u8).collect();
            let file = thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&bytes[..10]).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    writer.write_all(&bytes[10..]).unwrap();
                    drop(writer);
                });
                copy(
                    &path,
                    File::from(reader.as_fd().try_clone_to_owned().unwrap()),
                )
                .unwrap()
            });
            assert_eq!((file.len, file.name()), (bytes.len() as u64, &*path));
            assert!(fs::read(&file.path).unwrap() == bytes);
            // The end of the pipe.
            let inputs = Inputs::find(&[&path]).unwrap();
            assert_eq!((inputs.files().len(), inputs.bytes()), (1, 0));
        }
    }
}
