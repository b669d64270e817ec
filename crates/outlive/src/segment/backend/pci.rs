//! The memory of a PCI device, mapped by its resource file in sysfs: virtual machines that share
//! memory (QEMU's ivshmem) see it as such.
//!
//! A resource file can be mapped but neither read nor written; its length is that of the BAR.
//! Futexes do not work on such memory, and the processor must treat it as ordinary memory: under
//! virtualisation it usually does, on a real bus an atomic operation may not be atomic. A machine
//! that is known to have no atomics for other machines is refused (see the module `emulated`, which
//! also lists the cases that cannot be known). Otherwise the user checks first that atomics between
//! the machines work.
//!
//! Tests: at the end of this file, and `outlive-lab study guests`, in which two machines share one.

use super::{Access, Backend, BackendKind, OpenError, open};
use crate::segment::error::{CallFailed, CreateError, Unsuitable};
use crate::segment::mapping::map_page;
use crate::segment::space::{Places, Space};
use outlive_memory::Native;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A bit of a resource's flags: memory, as opposed to ports.
const IORESOURCE_MEM: u64 = 0x200;

/// Returns the number of the BAR in a name `resourceN`; the write-combining view `resourceN_wc` has
/// none.
fn number(path: &Path) -> Option<usize> {
    let digits = path.file_name()?.to_str()?.strip_prefix("resource")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Returns whether `path` is the resource file of a PCI device, in any view.
pub(super) fn is_one(path: &Path, places: &Places) -> bool {
    let Ok(path) = fs::canonicalize(path) else {
        return false;
    };
    let name = path.file_name().and_then(|name| name.to_str());
    path.starts_with(places.at("sys"))
        && name.is_some_and(|name| name.starts_with("resource") && name != "resource")
        && path.with_file_name("resource").is_file()
}

/// Returns the length of BAR `number` as the device's file `resource` has it: a line of first
/// address, last address and flags for each.
fn length(resource: &str, number: usize) -> Result<u64, String> {
    let line = resource
        .lines()
        .nth(number)
        .ok_or_else(|| format!("the device has no BAR {number}"))?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("the line of BAR {number} is invalid: {line:?}"))?;
    let &[first, last, flags] = &numbers[..] else {
        return Err(format!("the line of BAR {number} is invalid: {line:?}"));
    };
    if flags & IORESOURCE_MEM == 0 {
        return Err(format!("BAR {number} is not memory"));
    }
    match last.checked_sub(first).and_then(|len| len.checked_add(1)) {
        Some(bytes) if bytes >= Native::GRANULE && first != 0 => Ok(bytes),
        _ => Err(format!(
            "BAR {number} has an invalid range, from {first:#x} to {last:#x}"
        )),
    }
}

/// A PCI BAR.
#[derive(Debug)]
pub(super) struct PciBar {
    file: Arc<File>,
    path: PathBuf,
    size: u64,
}

impl PciBar {
    pub fn open(path: &Path, places: &Places, access: Access) -> Result<Self, OpenError> {
        let unsuitable = |why: String| OpenError::from(Unsuitable::new(path, why));
        if let Some(why) = super::emulated::distrust(&places.at("sys")) {
            return Err(unsuitable(why));
        }
        let place =
            fs::canonicalize(path).map_err(|error| CallFailed::new("realpath", path, error))?;
        let Some(number) = number(&place) else {
            let why = "it is not the plain view of a BAR; name the file resourceN, which is not \
                       write-combining";
            return Err(unsuitable(why.into()));
        };
        let read = |name: &str| {
            let file = place.with_file_name(name);
            fs::read_to_string(&file)
                .map_err(|error| unsuitable(format!("{} is unreadable: {error}", file.display())))
        };
        let size = length(&read("resource")?, number).map_err(unsuitable)?;
        if read("enable")?.trim() == "0" {
            let enable = place.with_file_name("enable");
            let why = format!(
                "the device is disabled; enable it: echo 1 > {}",
                enable.display()
            );
            return Err(unsuitable(why));
        }
        let file = open(path, access)?;
        let found = file
            .metadata()
            .map_err(|error| CallFailed::new("fstat", path, error))?
            .len();
        if found != size {
            let why = format!("its file has {found} bytes, but the BAR has {size}");
            return Err(unsuitable(why));
        }
        Ok(Self {
            file: Arc::new(file),
            path: path.into(),
            size: size / Native::GRANULE * Native::GRANULE,
        })
    }
}

impl Backend for PciBar {
    fn kind(&self) -> BackendKind {
        BackendKind::PciBar
    }

    fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn capacity(&self) -> Result<u64, CallFailed> {
        Ok(self.size)
    }

    fn granule(&self) -> u64 {
        Native::GRANULE
    }

    fn is_fresh(&self) -> bool {
        false
    }

    fn first_page(&self) -> Result<Vec<u8>, CallFailed> {
        map_page(&self.file, &self.path, Native::GRANULE).map(|page| page.to_vec())
    }

    fn reserve(&mut self, Space { size, .. }: Space, _places: &Places) -> Result<(), CreateError> {
        if size > self.size {
            return Err(CreateError::MediumTooSmall {
                path: self.path.clone(),
                wanted: size,
                found: self.size,
            });
        }
        Ok(())
    }

    fn has_one_kernel(&self) -> bool {
        false
    }

    fn is_device(&self) -> bool {
        true
    }

    fn publish(&mut self) -> Result<(), CreateError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_s_length_is_read_and_what_is_no_memory_refused() {
        let resource = "0x00000000febf1000 0x00000000febf10ff 0x0000000000040200\n\
                        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                        0x0000000380000000 0x00000003803fffff 0x000000000014220c\n\
                        0x000000000000c000 0x000000000000dfff 0x0000000000040101\n\
                        nonsense\n\
                        0x0 0xffffffffffffffff 0x200\n";
        assert_eq!(length(resource, 2), Ok(4 << 20));
        for number in [0, 1, 3, 4, 5, 6] {
            assert!(length(resource, number).is_err(), "{number}");
        }
    }

    #[test]
    fn only_the_plain_view_has_a_number() {
        let number = |name: &str| number(Path::new(name));
        assert_eq!(
            number("/sys/devices/pci0000:00/0000:00:04.0/resource2"),
            Some(2)
        );
        for other in [
            "resource",
            "resource2_wc",
            "resource+2",
            "config",
            "resource2x",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
