//! A DAX character device: memory of its own (CXL, persistent memory) without a filesystem.
//!
//! Such a device can be mapped, in units of its alignment, but neither read nor written. Its size
//! and alignment are attributes of the dax bus in sysfs. This was written from the kernel's
//! documentation and has not been run on such a device.

use super::{Backend, BackendKind};
use crate::segment::error::{CallFailed, CreateError, Unsuitable};
use crate::segment::mapping::map_page;
use crate::segment::space::{Places, Space};
use outlive_memory::Native;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The attributes of a device in sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    size: u64,
    align: u64,
}

/// Returns the device's directory on the dax bus, if it has one.
fn directory(path: &Path, places: &Places) -> Option<PathBuf> {
    let device = fs::canonicalize(path).ok()?;
    if !device.starts_with(places.at("dev")) {
        return None;
    }
    let directory = places.at("sys/bus/dax/devices").join(device.file_name()?);
    directory.is_dir().then_some(directory)
}

/// Returns whether `path` is a DAX device.
pub(super) fn is_one(path: &Path, metadata: &Metadata, places: &Places) -> bool {
    let of_a_kind = metadata.file_type().is_char_device()
        // A plain file stands in for a device where a tree of plain files stands in for sysfs.
        || places.stand_in() && metadata.is_file();
    of_a_kind && directory(path, places).is_some()
}

impl Attributes {
    pub fn read(path: &Path, metadata: &Metadata, places: &Places) -> Result<Self, Unsuitable> {
        let directory = directory(path, places)
            .ok_or_else(|| Unsuitable::new(path, "it is not a DAX device"))?;
        let read = |name: &str| {
            let file = directory.join(name);
            fs::read_to_string(&file)
                .map(|text| text.trim().to_owned())
                .map_err(|error| {
                    Unsuitable::new(path, format!("{} is unreadable: {error}", file.display()))
                })
        };
        let number = |name: &str| {
            let text = read(name)?;
            text.parse::<u64>().map_err(|_| {
                let file = directory.join(name);
                Unsuitable::new(
                    path,
                    format!("{} holds {text:?}, which is not a number", file.display()),
                )
            })
        };
        if metadata.file_type().is_char_device() {
            // The name alone could be another device's.
            let rdev = metadata.rdev();
            let numbers = format!("{}:{}", libc::major(rdev), libc::minor(rdev));
            let known = read("dev")?;
            if known != numbers {
                let why =
                    format!("it is device {numbers}, but sysfs has device {known} under its name");
                return Err(Unsuitable::new(path, why));
            }
        }
        let (size, align) = (number("size")?, number("align")?);
        if !align.is_power_of_two() || align < Native::GRANULE {
            let why = format!(
                "its alignment is {align} bytes, not a power of two of at least {}",
                Native::GRANULE
            );
            return Err(Unsuitable::new(path, why));
        }
        if size < align {
            let why = format!(
                "its size is {size} bytes, less than its alignment; configure it (daxctl \
                 create-device)"
            );
            return Err(Unsuitable::new(path, why));
        }
        Ok(Self {
            // A partial unit cannot be mapped.
            size: size / align * align,
            align,
        })
    }
}

/// A DAX device.
#[derive(Debug)]
pub(super) struct DaxDevice {
    file: Arc<File>,
    path: PathBuf,
    attributes: Attributes,
}

impl DaxDevice {
    pub fn new(file: File, path: &Path, attributes: Attributes) -> Self {
        Self {
            file: Arc::new(file),
            path: path.into(),
            attributes,
        }
    }
}

impl Backend for DaxDevice {
    fn kind(&self) -> BackendKind {
        BackendKind::DaxDevice
    }

    fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn capacity(&self) -> Result<u64, CallFailed> {
        Ok(self.attributes.size)
    }

    fn granule(&self) -> u64 {
        self.attributes.align
    }

    fn is_fresh(&self) -> bool {
        false
    }

    fn first_page(&self) -> Result<Vec<u8>, CallFailed> {
        map_page(&self.file, &self.path, self.attributes.align).map(|page| page.to_vec())
    }

    fn reserve(&mut self, Space { size, .. }: Space, _places: &Places) -> Result<(), CreateError> {
        let found = self.attributes.size;
        if size > found {
            return Err(CreateError::MediumTooSmall {
                path: self.path.clone(),
                wanted: size,
                found,
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

    fn tree(size: &str, align: &str) -> (tempfile::TempDir, Places, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let attributes = root.path().join("sys/bus/dax/devices/dax0.0");
        fs::create_dir_all(&attributes).unwrap();
        fs::write(attributes.join("size"), size).unwrap();
        fs::write(attributes.join("align"), align).unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        let device = root.path().join("dev/dax0.0");
        fs::write(&device, "").unwrap();
        let places = Places::below(root.path());
        (root, places, device)
    }

    fn read(size: &str, align: &str) -> Result<Attributes, String> {
        let (_root, places, device) = tree(size, align);
        let metadata = fs::metadata(&device).unwrap();
        assert!(is_one(&device, &metadata, &places));
        Attributes::read(&device, &metadata, &places).map_err(|error| error.to_string())
    }

    #[test]
    fn size_and_alignment_are_read_and_checked() {
        let align = 2 << 20;
        let size = 8 << 20;
        assert_eq!(
            read("8388608\n", "2097152\n"),
            Ok(Attributes { size, align })
        );
        assert_eq!(read("9000000", "2097152"), Ok(Attributes { size, align }));
        for (size, align) in [
            ("0", "2097152"),
            ("8388608", "0"),
            ("8388608", "3000000"),
            ("8388608", "512"),
            ("", "2097152"),
            ("8M", "2097152"),
            ("-1", "2097152"),
            ("99999999999999999999999", "2097152"),
        ] {
            let message = read(size, align).unwrap_err();
            assert!(message.contains("dax0.0"), "{message}");
        }
    }

    #[test]
    fn a_missing_attribute_is_named() {
        let (root, places, device) = tree("8388608", "2097152");
        fs::remove_file(root.path().join("sys/bus/dax/devices/dax0.0/align")).unwrap();
        let metadata = fs::metadata(&device).unwrap();
        let error = Attributes::read(&device, &metadata, &places).unwrap_err();
        assert!(error.to_string().contains("align"), "{error}");
    }

    #[test]
    fn other_character_devices_are_not_dax_devices() {
        let null = Path::new("/dev/null");
        assert!(!is_one(null, &fs::metadata(null).unwrap(), &Places::real()));
        // A real device under the name of a stand-in is detected by its numbers.
        let (root, places, device) = tree("8388608", "2097152");
        let attributes = root.path().join("sys/bus/dax/devices/dax0.0");
        fs::write(attributes.join("dev"), "252:0\n").unwrap();
        let error = Attributes::read(&device, &fs::metadata(null).unwrap(), &places).unwrap_err();
        assert!(error.to_string().contains("1:3"), "{error}");
    }
}
