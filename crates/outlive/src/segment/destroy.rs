//! The removal of a segment.

use super::backend::{self, Access, Backend};
use super::completion::erase;
use super::error::{DestroyError, OpenError};
use super::mapping::Mapping;
use super::space::Places;
use super::superblock::{Magic, SUPERBLOCK_BYTES, Superblock};
use outlive_memory::{PersistenceDomain, WriteBackInstruction};
use std::path::Path;

pub(super) fn destroy(path: &Path, places: &Places) -> Result<(), DestroyError> {
    let backend = backend::for_opening(path, places, Access::ReadWrite)?;
    let capacity = backend.capacity().map_err(OpenError::from)?;
    let page = backend.first_page().map_err(OpenError::from)?;
    let mut word = [0; 8];
    word[..page.len().min(8)].copy_from_slice(&page[..page.len().min(8)]);
    let word = u64::from_ne_bytes(word);
    // Contents with the mark are a segment, however damaged. A page of zeros may start any file,
    // and an empty file may be any program's: a creation leaves one only if it was killed between
    // the naming of the file and its first write, on a filesystem without unnamed files.
    if let Err(refusal) = Superblock::decode(&page, capacity)
        && matches!(Magic::of(word), Magic::Zero | Magic::Foreign)
    {
        return Err(DestroyError::NotASegment {
            path: path.into(),
            refusal,
        });
    }
    if backend.is_device() {
        return erase_device(backend.as_ref(), path, word);
    }
    // A removal would remove the link only. (The path of a memfd is a link of procfs.)
    let is_file = backend.kind() == backend::BackendKind::File;
    match std::fs::read_link(path) {
        Ok(target) if is_file => Err(DestroyError::Link {
            path: path.into(),
            target,
        }),
        _ => backend.unlink(),
    }
}

fn erase_device(backend: &dyn Backend, path: &Path, seen: u64) -> Result<(), DestroyError> {
    let busy = || DestroyError::Busy { path: path.into() };
    if !backend::lock(backend.file(), path)? {
        return Err(busy());
    }
    let mapping = Mapping::new(
        backend.file(),
        backend.path(),
        backend.granule(),
        false,
        Access::ReadWrite,
    )?;
    // In either domain: written back immediately, if the processor can.
    let domain = match WriteBackInstruction::detect() {
        Some(_) => PersistenceDomain::WriteBack,
        None => PersistenceDomain::Flushed,
    };
    // SAFETY: the handle is used in this function only; other processes follow the rules.
    let memory = unsafe { mapping.memory(SUPERBLOCK_BYTES, domain) }.map_err(OpenError::from)?;
    erase(memory, seen).map_err(|_| busy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::superblock::{Refusal, Unfinished};
    use crate::segment::{CreateError, OpenOptions, Segment};
    use std::fs;

    /// A plain file stands in for a DAX device.
    #[test]
    fn a_device_loses_its_superblock_when_nobody_uses_it() {
        let root = tempfile::tempdir().unwrap();
        let attributes = root.path().join("sys/bus/dax/devices/dax0.0");
        fs::create_dir_all(&attributes).unwrap();
        fs::write(attributes.join("size"), "262144").unwrap();
        fs::write(attributes.join("align"), "65536").unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        let path = root.path().join("dev/dax0.0");
        fs::write(&path, [0xA5; 262144]).unwrap();
        let places = Places::below(root.path());

        let foreign = destroy(&path, &places).unwrap_err();
        assert!(
            matches!(foreign, DestroyError::NotASegment { .. }),
            "{foreign}"
        );
        let builder = || Segment::builder().stand_in(root.path());
        let segment = builder().replace(true).create(&path).unwrap();
        let busy = destroy(&path, &places).unwrap_err();
        assert!(matches!(busy, DestroyError::Busy { .. }), "{busy}");
        // SAFETY: not used again.
        unsafe { segment.unmap() };
        destroy(&path, &places).unwrap();
        let error = OpenOptions::new()
            .stand_in(root.path())
            .open(&path)
            .unwrap_err();
        let zeroed = Refusal::NeverCompleted(Unfinished::Zeroed);
        assert_eq!(error.refusal(), Some(&zeroed));
        let again: Result<Segment, CreateError> = builder().create(&path);
        assert_eq!(again.unwrap().size(), 262144);
    }
}
