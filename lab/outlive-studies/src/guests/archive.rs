//! Writes the files of a guest as a cpio archive of the format "newc", which the kernel unpacks
//! into memory.
//!
//! An entry is a header of 110 characters, the name with a zero byte, padding, the bytes, padding:
//! both paddings to 4 bytes. Numbers are 8 hexadecimal digits. The entry `TRAILER!!!` is the last
//! one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

/// An archive that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    there: BTreeSet<PathBuf>,
}

impl Archive {
    /// Adds an empty directory, and its parent directories.
    pub fn directory(&mut self, path: &Path) {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for directory in ancestors.into_iter().rev() {
            if self.there.insert(directory.into()) {
                self.entry(directory, DIRECTORY, &[]);
            }
        }
    }

    /// Adds a file, and its parent directories. Does nothing if the path was added before.
    pub fn file(&mut self, path: &Path, bytes: &[u8]) {
        self.add(path, FILE, bytes);
    }

    /// Adds an executable file, as [`file`](Self::file) does.
    pub fn program(&mut self, path: &Path, bytes: &[u8]) {
        self.add(path, PROGRAM, bytes);
    }

    /// Returns the complete archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn add(&mut self, path: &Path, mode: u32, bytes: &[u8]) {
        if let Some(directory) = path.parent() {
            self.directory(directory);
        }
        if self.there.insert(path.into()) {
            self.entry(path, mode, bytes);
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, bytes: &[u8]) {
        let name = path.strip_prefix("/").unwrap_or(path);
        let name = name.as_os_str().as_encoded_bytes();
        if name.is_empty() {
            return;
        }
        self.entries += 1;
        let (size, name_size) = (bytes.len() as u32, name.len() as u32 + 1);
        let [owner, group, time, device, check] = [0; 5];
        let numbers = [
            self.entries,
            mode,
            owner,
            group,
            1,
            time,
            size,
            device,
            device,
            device,
            device,
            name_size,
            check,
        ];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_what_was_added_once_and_padded() {
        let mut archive = Archive::default();
        archive.program(Path::new("/bin/x"), b"12345");
        archive.file(Path::new("/bin/x"), b"again");
        archive.file(Path::new("/y"), b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let headers: Vec<&str> = text.split("070701").skip(1).collect();
        let name = |header: &str| header[104..].split('\0').next().unwrap().to_owned();
        let names: Vec<String> = headers.iter().map(|header| name(header)).collect();
        assert_eq!(names, ["bin", "bin/x", "y", "TRAILER!!!"]);
        assert_eq!(&headers[1][8..16], "000081ed");
        assert_eq!(&headers[1][48..56], "00000005");
        assert!(headers[1].contains("12345\0\0\0"));
    }
}
