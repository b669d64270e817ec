//! The identity of a pod's file, by which a copy is recognised and adopted.
//!
//! Two words among the settings, written after the rest:
//!
//! ```text
//! FILE     128 bits: the inode number of the pod's file and its time of birth; 0: not recorded yet
//! NUMBER   128 bits: the pod's number; 0: the uuid in its superblock
//! ```
//!
//! The creator records `FILE` before the file has its name, or the first process that joins if the
//! creator could not read it. A file that records the inode and birth of another one is a copy: the
//! members that are recorded in it cannot write to it. Devices have no birth and are not copied by
//! copying a file, so they are not checked.
//!
//! A copy is *adopted* under a file lock that one process of the kernel has at a time: first the
//! copy gets a number of its own, which names its side files and cords, then `FILE` becomes the
//! copy's. A death in between leaves a copy that must be adopted again, with another number, before
//! any process can join it.

use super::{Pod, PodError};
use crate::host::PodFile;
use crate::segment::AreaKind;
use crate::segment::Superblock;
use crate::segment::filesystem::{file_word, is_same_file};
use outlive_memory::{Memory, Native, Offset, Ordering};
use std::fs::{Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use uuid::Uuid;

/// The offsets of the words in the settings: behind the extent, before the fence command.
const FILE: u64 = 176;
const NUMBER: u64 = 192;

/// The words of a pod that identify its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    memory: Native,
    settings: Offset,
}

impl Origin {
    pub(super) fn of(pod: &Pod) -> Self {
        Self::in_settings(pod.tables.memory(), pod.tables.settings_at())
    }

    pub(super) fn in_settings(memory: Native, settings: Offset) -> Self {
        Self { memory, settings }
    }

    /// Returns the pod's number; `None` if that is its uuid.
    pub(super) fn number(self) -> Option<u128> {
        // Acquire, paired with the release of an adoption.
        let number = self
            .memory
            .load::<u128>(self.settings + NUMBER, Ordering::Acquire);
        (number != 0).then_some(number)
    }

    /// Records that the pod is in the file of `metadata`, if no file is recorded yet. Returns
    /// whether the recorded file is that one now.
    pub(super) fn note(self, metadata: &Metadata) -> bool {
        let Some(own) = file_word(metadata) else {
            return true;
        };
        let at = self.settings + FILE;
        // AcqRel: a process that finds its own word there sees the number that was written before
        // it.
        let noted =
            self.memory
                .compare_exchange(at, 0u128, own, Ordering::AcqRel, Ordering::Acquire);
        self.memory.persist(at, 16);
        match noted {
            Ok(_) => true,
            Err(found) => is_same_file(found, own),
        }
    }

    /// Returns whether the recorded file, if there is one, is the file of `metadata`.
    pub(super) fn is_in(self, metadata: &Metadata) -> bool {
        let found: u128 = self.memory.load(self.settings + FILE, Ordering::Acquire);
        let own = file_word(metadata);
        found == 0 || own.is_none_or(|own| is_same_file(found, own))
    }

    /// Makes the copy in the file of `metadata` a pod of its own. Returns `false` while another
    /// process does so.
    pub(super) fn adopt(self, metadata: &Metadata, file: &PodFile) -> Result<bool, PodError> {
        let adopted = file.change_alone(|| {
            if self.note(metadata) {
                return;
            }
            let number = Uuid::new_v4().as_u128();
            let at = self.settings;
            // Release, and in this order: a process that finds the file's word finds the number.
            self.memory.store(at + NUMBER, number, Ordering::Release);
            self.memory.persist(at + NUMBER, 16);
            let own = file_word(metadata).unwrap_or_default();
            self.memory.store(at + FILE, own, Ordering::Release);
            self.memory.persist(at + FILE, 16);
        })?;
        Ok(adopted.is_some())
    }
}

/// Returns whether the file at `path` is a copy of a pod that was not adopted, so that its number
/// is the original's.
pub(super) fn is_copy(path: &Path) -> bool {
    let own = std::fs::metadata(path)
        .ok()
        .and_then(|metadata| file_word(&metadata));
    match (read_at(path), own) {
        (Some((_, file)), Some(own)) => file != 0 && !is_same_file(file, own),
        _ => false,
    }
}

/// Returns the number of the pod in the file at `path`, and the file that it records.
fn read_at(path: &Path) -> Option<(u128, u128)> {
    // Nonblocking: another user may have a lease on it, or have put a FIFO there.
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(libc::O_NONBLOCK);
    let file = how.open(path).ok()?;
    let capacity = match file.metadata().ok()?.len() {
        // A device does not report its size.
        0 => u64::MAX,
        len => len,
    };
    let mut page = Vec::new();
    (&file).take(4096).read_to_end(&mut page).ok()?;
    let superblock = Superblock::decode(&page, capacity).ok()?;
    let mut words = [[0; 16]; 2];
    let mut areas = superblock.areas.iter();
    if let Some(roles) = areas.find(|area| area.kind == AreaKind::Roles) {
        for (word, at) in words.iter_mut().zip([NUMBER, FILE]) {
            file.read_exact_at(word, roles.offset.byte() + at).ok()?;
        }
    }
    let [number, file] = words.map(u128::from_ne_bytes);
    let uuid = superblock.uuid.as_u128();
    Some((if number == 0 { uuid } else { number }, file))
}

impl Pod {
    /// Returns the number of the pod in the file at `path`, which is a part of the names of its
    /// side files and cords: its uuid, or another number if it is a copy that was adopted. `None`
    /// if the file is not a valid pod. Maps nothing.
    pub fn number_at(path: impl AsRef<Path>) -> Option<u128> {
        read_at(path.as_ref()).map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodOptions;

    #[test]
    fn a_copy_is_told_from_its_original_until_it_is_adopted() {
        let directory = tempfile::tempdir().unwrap();
        let (path, copy) = (directory.path().join("pod"), directory.path().join("copy"));
        let options = || PodOptions::new().size(4 << 20).ids(8);
        let pod = Pod::create(&path, options()).unwrap();
        let metadata = |pod: &Pod| pod.segment().file().metadata().unwrap();
        assert!(Origin::of(&pod).note(&metadata(&pod)));
        std::fs::copy(&path, &copy).unwrap();
        let copied = Pod::open(&copy).unwrap();
        let origin = Origin::of(&copied);
        assert!(!origin.note(&metadata(&copied)), "it is a copy");
        assert_eq!(Pod::number_at(&copy), Some(pod.segment().uuid().as_u128()));

        // An adoption that was cut short after the number leaves a copy.
        origin
            .memory
            .store(origin.settings + NUMBER, 7u128, Ordering::Release);
        assert!(!origin.note(&metadata(&copied)));
        let segment = copied.segment();
        let file = PodFile::new(segment.file(), segment.path(), segment.granule());
        assert!(origin.adopt(&metadata(&copied), &file).unwrap());
        assert!(origin.note(&metadata(&copied)));
        let number = origin.number().unwrap();
        assert!(number != 7 && number != segment.uuid().as_u128());
        assert_eq!(Pod::number_at(&copy), Some(number));
        // A second adoption changes nothing.
        assert!(origin.adopt(&metadata(&copied), &file).unwrap());
        assert_eq!(origin.number(), Some(number));
        assert_eq!(Pod::number_at(&path), Some(pod.segment().uuid().as_u128()));
        // A FIFO without a writer is not waited for.
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!(Pod::number_at(&fifo), None);
    }
}
