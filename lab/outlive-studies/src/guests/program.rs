//! Adds a program of this machine to the archive of a guest: the part of it that is loaded, and the
//! shared libraries that it needs.

use super::archive::Archive;
use crate::StudyError;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Adds the program at `from` as `to`, and its libraries at the paths that they have here. Inserts
/// the directories of the libraries into `libraries`.
///
/// # Errors
/// If it cannot be read, or is not an ELF file of 64 bits.
pub fn add(
    archive: &mut Archive,
    from: &Path,
    to: &str,
    libraries: &mut BTreeSet<PathBuf>,
) -> Result<(), StudyError> {
    let bytes = read(from)?;
    let Some(Elf { loaded, is_dynamic }) = Elf::of(&bytes) else {
        let what = format!("{} is not a program of 64 bits", from.display());
        return Err(StudyError::void(what));
    };
    archive.program(Path::new(to), &without_sections(&bytes[..loaded]));
    if !is_dynamic {
        return Ok(());
    }
    for (name, path) in needed(from)? {
        let Some(directory) = path.parent() else {
            continue;
        };
        let bytes = read(&path)?;
        archive.program(&path, &bytes);
        archive.program(&directory.join(name), &bytes);
        libraries.insert(directory.into());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, StudyError> {
    fs::read(path).map_err(StudyError::io(format!("reading {}", path.display())))
}

/// The properties of an ELF file that its program headers show.
struct Elf {
    /// The number of bytes, from the first on, that are loaded. The rest is for debuggers.
    loaded: usize,
    /// Whether a dynamic loader starts it.
    is_dynamic: bool,
}

/// The offsets in an ELF header of 64 bits of: the offset of the program headers, the offset of the
/// section headers, the size of a program header, the number of program headers, and the number of
/// section headers, after which is the index of their names.
const PROGRAM_HEADERS: usize = 32;
const SECTION_HEADERS: usize = 40;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;
const SECTION_HEADER_COUNT: usize = 60;
const LOAD: u64 = 1;
const INTERPRETER: u64 = 3;

impl Elf {
    fn of(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let number = |at: usize, size: usize| -> Option<u64> {
            let bytes = bytes.get(at..at + size)?.iter().rev();
            Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let first = number(PROGRAM_HEADERS, 8)? as usize;
        let size = number(PROGRAM_HEADER_SIZE, 2)? as usize;
        let count = number(PROGRAM_HEADER_COUNT, 2)? as usize;
        let mut elf = Self {
            loaded: first + size * count,
            is_dynamic: false,
        };
        for at in (0..count).map(|index| first + index * size) {
            let kind = number(at, 4)?;
            let (offset, size) = (number(at + 8, 8)?, number(at + 32, 8)?);
            if kind == LOAD {
                elf.loaded = elf.loaded.max((offset + size) as usize);
            }
            elf.is_dynamic |= kind == INTERPRETER;
        }
        (elf.loaded <= bytes.len()).then_some(elf)
    }
}

/// Returns the same file without section headers, which a running program does not need.
fn without_sections(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[SECTION_HEADERS..SECTION_HEADERS + 8].fill(0);
    bytes[SECTION_HEADER_COUNT..SECTION_HEADER_COUNT + 4].fill(0);
    bytes
}

/// Returns the names and paths of the libraries of `program`, including the loader, as the dynamic
/// loader lists them (and `ldd` shows them).
fn needed(program: &Path) -> Result<Vec<(PathBuf, PathBuf)>, StudyError> {
    let listed = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(StudyError::io("listing the libraries of this program"))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let library = |line: &str| {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        let name = Path::new(line.split_whitespace().next()?).file_name()?;
        Some((name.into(), path.into()))
    };
    Ok(text.lines().filter_map(library).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_what_is_for_debuggers_still_runs() {
        let this = std::env::current_exe().unwrap();
        let bytes = fs::read(&this).unwrap();
        let elf = Elf::of(&bytes).unwrap();
        assert!(elf.is_dynamic && elf.loaded < bytes.len());
        let directory = tempfile::tempdir().unwrap();
        let cut = directory.path().join("cut");
        fs::write(&cut, without_sections(&bytes[..elf.loaded])).unwrap();
        fs::set_permissions(&cut, fs::metadata(&this).unwrap().permissions()).unwrap();
        // A child that another test has just started may still have the file open for writing.
        let runs = || Command::new(&cut).arg("--list").output();
        let is_busy = |it: &std::io::Error| it.kind() == std::io::ErrorKind::ExecutableFileBusy;
        let mut run = runs();
        for _ in 0..100 {
            if !run.as_ref().is_err_and(is_busy) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            run = runs();
        }
        let run = run.unwrap();
        assert!(run.status.success(), "{run:?}");
        assert!(Elf::of(b"#!/bin/sh\n").is_none());
        let libraries = needed(&this).unwrap();
        assert!(
            { libraries.iter() }.any(|(name, _)| name.to_string_lossy().starts_with("libc.so"))
        );
    }
}
