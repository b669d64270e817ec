//! The format of a side file: its header, and the offsets of its parts.

use super::OsError;
use super::proc::Place;
use super::robust::FUTEX_OFFSET;
use super::window::{WORDS, cell_at};
use crate::segment::filesystem::{file_word, is_same_file};
use bytemuck::{Pod, Zeroable};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The directory in which the processes of an operating system find their side file.
pub(crate) const MEETING: &str = "/dev/shm";

/// The byte that the users of the file lock.
pub(super) const USE_BYTE: libc::off_t = 0;

const MAGIC: [u8; 8] = *b"OUTLside";
const VERSION: u32 = 4;
/// The offset in page 0 of the word that marks the file as being cleared. It is not zero from
/// before the first byte is cleared until after the last.
pub(super) const DIRTY_AT: u64 = 1024;
pub(super) const PAGE: usize = 4096;
pub(super) const LINE: usize = 64;
/// The number of wake-up futexes. With more of them, fewer keys share one.
pub(super) const BELLS: usize = 1024;
/// The size of the record of a holder. It has the thread id at offset 0, since the kernel's mark
/// erases it from the word, and the process id and the thread's start time, which distinguish the
/// thread from others that had its id.
pub(super) const HOLDER: usize = 16;
pub(super) const HOLDER_PID_AT: usize = 4;
pub(super) const HOLDER_START_AT: usize = 8;
pub(super) const HOLDERS_AT: usize = PAGE + BELLS * LINE;
/// The offset of an obituary's word in its cell.
pub(super) const WORD_IN_CELL: usize = (32 + FUTEX_OFFSET) as usize;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Header {
    magic: [u8; 8],
    version: u32,
    pub(super) obituaries: u32,
    pod: [u64; 2],
    boot: [u64; 2],
    namespaces: u64,
    /// The random number that identifies the operating system.
    pub(super) id: [u64; 2],
    /// The identity of the file: a copy is not used.
    file: [u64; 2],
    bells: u32,
    /// The offset of an obituary's word in its cell.
    word_at: u32,
    /// The device that the file is on, folded. If a whole filesystem was copied block by block,
    /// inode and time of birth are those of the original. A side file does not survive its boot,
    /// and within one boot a mounted filesystem keeps its device number.
    device: u32,
    /// The CRC32 of all preceding fields.
    checksum: u32,
}

impl Header {
    pub(super) fn new(pod: u128, place: Place, obituaries: u32) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION,
            obituaries,
            pod: halves(pod),
            boot: halves(place.boot),
            namespaces: place.namespaces,
            id: halves(uuid::Uuid::new_v4().as_u128()),
            file: [0; 2],
            bells: BELLS as u32,
            word_at: WORD_IN_CELL as u32,
            device: 0,
            checksum: 0,
        };
        header.checksum = header.sum();
        header
    }

    /// Returns the header for the file of `metadata`.
    pub(super) fn of(mut self, metadata: &Metadata) -> Self {
        self.file = halves(file_word(metadata).unwrap_or_default());
        self.device = folded(metadata.dev());
        self.checksum = self.sum();
        self
    }

    /// Returns the number that identifies the operating system.
    pub(super) fn number(&self) -> u128 {
        u128::from(self.id[1]) << 64 | u128::from(self.id[0])
    }

    fn sum(&self) -> u32 {
        let bytes = bytemuck::bytes_of(self);
        crc32fast::hash(&bytes[..bytes.len() - 4])
    }
}

fn folded(device: u64) -> u32 {
    device as u32 ^ (device >> 32) as u32
}

fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

/// Returns the offset of the pages with the words.
pub(super) fn words_at(obituaries: u32) -> usize {
    (HOLDERS_AT + obituaries as usize * HOLDER).next_multiple_of(PAGE)
}

/// Returns the offset of the cell of obituary `slot`.
pub(super) fn cell_offset(obituaries: u32, slot: u32) -> usize {
    words_at(obituaries) + (slot / WORDS) as usize * PAGE + cell_at(slot % WORDS)
}

/// Returns the size in bytes of the side file of a pod with `ids` ids.
pub(crate) fn bytes(ids: u32) -> u64 {
    file_bytes(ids) as u64
}

pub(super) fn file_bytes(obituaries: u32) -> usize {
    words_at(obituaries) + obituaries.div_ceil(WORDS) as usize * PAGE
}

/// Reads the header of an open file, compares it with the arguments, and returns it.
pub(super) fn check(
    file: &File,
    path: &Path,
    pod: u128,
    place: Place,
    obituaries: u32,
) -> Result<Header, OsError> {
    let refused = |why: String| refused(path, &why);
    let mut header = Header::zeroed();
    file.read_exact_at(bytemuck::bytes_of_mut(&mut header), 0)
        .map_err(|error| refused(format!("its header cannot be read ({error})")))?;
    if header.magic != MAGIC {
        return Err(refused("it is not a side file of outlive".into()));
    }
    if header.version != VERSION {
        return Err(refused(format!(
            "it has format version {}, this program knows {VERSION}",
            header.version
        )));
    }
    if header.checksum != header.sum() {
        return Err(refused("its header is damaged".into()));
    }
    if (header.pod, header.boot, header.namespaces)
        != (halves(pod), halves(place.boot), place.namespaces)
        || header.bells != BELLS as u32
        || header.word_at as usize != WORD_IN_CELL
    {
        return Err(refused("its header and its name do not agree".into()));
    }
    if header.obituaries != obituaries {
        return Err(refused(format!(
            "it has {} obituaries, but the pod has {obituaries} ids",
            header.obituaries
        )));
    }
    let metadata = file.metadata();
    let metadata =
        metadata.map_err(|error| refused(format!("its metadata cannot be read ({error})")))?;
    let word = u128::from(header.file[1]) << 64 | u128::from(header.file[0]);
    if !is_same_file(word, file_word(&metadata).unwrap_or_default())
        || header.device != folded(metadata.dev())
    {
        return Err(refused("it is a copy of a side file".into()));
    }
    let bytes = metadata.len();
    if bytes != file_bytes(obituaries) as u64 {
        return Err(refused(format!(
            "it has {bytes} bytes, not {}",
            file_bytes(obituaries)
        )));
    }
    Ok(header)
}

pub(super) fn failed(doing: &str, path: &Path, error: Errno) -> OsError {
    OsError::Call {
        call: format!("{doing} {}", path.display()),
        source: error.into(),
    }
}

pub(super) fn refused(path: &Path, why: &str) -> OsError {
    OsError::Refused {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_copied_filesystem_is_a_copy() {
        let place = Place {
            boot: 1,
            namespaces: 2,
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(file_bytes(16) as u64).unwrap();
        let own = Header::new(3, place, 16).of(&file.metadata().unwrap());
        let checked = |header: Header| {
            file.write_all_at(bytemuck::bytes_of(&header), 0).unwrap();
            check(&file, Path::new("side"), 3, place, 16).map(drop)
        };
        checked(own).unwrap();
        // Inode and time of birth are the original's.
        let mut copy = Header {
            device: own.device ^ 1,
            ..own
        };
        copy.checksum = copy.sum();
        let refused = checked(copy).unwrap_err().to_string();
        assert!(refused.contains("a copy"), "{refused}");
    }
}
