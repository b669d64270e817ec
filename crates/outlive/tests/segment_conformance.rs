//! One suite for every backend.
//!
//! Plain files in a tree that stands in for `/dev` and `/sys` play a DAX device and a PCI BAR:
//! everything about these two is tested except the hardware.

use outlive::memory::{Memory, Offset, Ordering, PersistenceDomain};
use outlive::segment::{
    AreaClass, AreaKind, AreaSize, BackendKind, CreateError, DestroyError, OpenError, OpenOptions,
    Pages, Refusal, Segment, SegmentBuilder, Unfinished,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

/// A place for one segment on one backend.
struct Medium {
    name: &'static str,
    kind: BackendKind,
    path: PathBuf,
    stand_in: bool,
    /// Whether the segment fills existing memory.
    in_place: bool,
    early_name: bool,
    directory: TempDir,
}

impl Medium {
    fn new(name: &'static str, kind: BackendKind, parent: &Path) -> Self {
        let directory = tempfile::tempdir_in(parent).unwrap();
        Self {
            name,
            kind,
            path: directory.path().join("segment"),
            stand_in: false,
            in_place: false,
            early_name: false,
            directory,
        }
    }

    /// Every backend that this machine has, one medium of each kind.
    fn all() -> Vec<Self> {
        let tmp = std::env::temp_dir();
        let shm = Path::new("/dev/shm");
        let mut all = vec![
            Self::new("ordinary file", BackendKind::File, &tmp),
            Self {
                early_name: true,
                ..Self::new("file without unnamed files", BackendKind::File, &tmp)
            },
            Self {
                path: "memfd:conformance".into(),
                ..Self::new("memfd", BackendKind::Memfd, &tmp)
            },
            Self::prepared(&tmp),
            Self::dax(&tmp),
            Self::pci(&tmp),
        ];
        if shm.is_dir() {
            all.push(Self::new("shared memory", BackendKind::File, shm));
        }
        all
    }

    /// A file of the right size, as famfs has them.
    fn prepared(parent: &Path) -> Self {
        let medium = Self {
            in_place: true,
            ..Self::new("prepared file", BackendKind::File, parent)
        };
        fs::write(&medium.path, vec![0; SIZE as usize]).unwrap();
        medium
    }

    fn dax(parent: &Path) -> Self {
        let medium = Self::new("DAX device", BackendKind::DaxDevice, parent);
        let root = medium.directory.path();
        let attributes = root.join("sys/bus/dax/devices/dax0.0");
        fs::create_dir_all(&attributes).unwrap();
        fs::write(attributes.join("size"), format!("{SIZE}\n")).unwrap();
        fs::write(attributes.join("align"), "65536\n").unwrap();
        fs::create_dir(root.join("dev")).unwrap();
        let path = root.join("dev/dax0.0");
        // A device comes with arbitrary old content.
        fs::write(&path, vec![0xA5; SIZE as usize]).unwrap();
        Self {
            path,
            stand_in: true,
            in_place: true,
            ..medium
        }
    }

    fn pci(parent: &Path) -> Self {
        let medium = Self::new("PCI BAR", BackendKind::PciBar, parent);
        let device = medium.directory.path().join("sys/devices/0000:00:04.0");
        fs::create_dir_all(&device).unwrap();
        let last = 0x3_8000_0000 + SIZE - 1;
        let resource =
            format!("0x0 0x0 0x0\n0x0 0x0 0x0\n0x0000000380000000 {last:#018x} 0x14220c\n");
        fs::write(device.join("resource"), resource).unwrap();
        fs::write(device.join("enable"), "1\n").unwrap();
        let path = device.join("resource2");
        fs::write(&path, vec![0xA5; SIZE as usize]).unwrap();
        Self {
            path,
            stand_in: true,
            in_place: true,
            ..medium
        }
    }

    fn builder<'a>(&self) -> SegmentBuilder<'a> {
        let builder = Segment::builder()
            .size(SIZE)
            .area(AreaKind::Generations, 8u64)
            .area(AreaKind::Payload, AreaSize::Rest)
            .named_area(
                AreaKind::Other(700),
                "mine",
                AreaClass::Synchronises,
                5000u64,
            );
        let builder = if self.early_name {
            builder.named_from_the_start()
        } else {
            builder
        };
        if self.stand_in {
            builder.stand_in(self.directory.path())
        } else {
            builder
        }
    }

    /// Creates the segment for the first time: the old content of a device must be given up
    /// explicitly.
    fn create(&self) -> Segment {
        self.builder()
            .replace(self.in_place)
            .create(&self.path)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn options<'a>(&self) -> OpenOptions<'a> {
        if self.stand_in {
            OpenOptions::new().stand_in(self.directory.path())
        } else {
            OpenOptions::new()
        }
    }

    fn open(&self, segment: Segment) -> Result<Segment, OpenError> {
        self.options().open(segment.path())
    }

    /// Writes to the first page, bypassing the library.
    fn scribble(&self, segment: Segment, at: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(segment.path()).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }
}

fn each(test: impl Fn(&Medium)) {
    let all = Medium::all();
    assert!(all.len() >= 6);
    for medium in &all {
        println!("{}", medium.name);
        test(medium);
    }
}

#[test]
fn what_is_created_is_opened_and_shared() {
    each(|medium| {
        let created = medium.create();
        let opened = medium.open(created).unwrap();
        for segment in [created, opened] {
            assert_eq!(segment.backend(), medium.kind);
            assert_eq!(segment.size(), SIZE);
            assert_eq!(segment.domain(), PersistenceDomain::Flushed);
            assert_eq!(segment.areas().len(), 4);
        }
        assert_eq!(created.superblock(), opened.superblock());
        let payload = opened.area(AreaKind::Payload).unwrap();
        assert_eq!(payload.end(), SIZE);
        assert_eq!(payload.class, AreaClass::Payload);
        let mine = opened.area(AreaKind::Other(700)).unwrap();
        assert_eq!((mine.name.as_str(), mine.size), ("mine", 8192));
        assert!(
            mine.offset < payload.offset,
            "the areas of synchronisation come first"
        );
        assert_eq!(opened.area(AreaKind::Logs), None);
        // Two mappings, one memory, up to the last word.
        assert_ne!(
            created.memory().address(Offset::new(0), 1),
            opened.memory().address(Offset::new(0), 1)
        );
        let last = Offset::new(SIZE - 8);
        created.memory().store(last, 7u64, Ordering::Release);
        assert_eq!(opened.memory().load::<u64>(last, Ordering::Acquire), 7);
        // SAFETY: neither handle is used again.
        unsafe {
            created.unmap();
            opened.unmap();
        }
    });
}

#[test]
fn a_new_segment_is_zeros_behind_its_superblock() {
    each(|medium| {
        let segment = medium.create();
        let mut bytes = vec![1; SIZE as usize - 4096];
        segment.memory().copy_out(Offset::new(4096), &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0), "{}", medium.name);
    });
}

#[test]
fn a_second_creation_is_refused_and_changes_nothing() {
    each(|medium| {
        if medium.kind == BackendKind::Memfd {
            return; // Each has a segment of its own.
        }
        let first = medium.create();
        let error = medium.builder().create(&medium.path).unwrap_err();
        assert!(
            matches!(error, CreateError::Exists { .. } | CreateError::Busy { .. }),
            "{}: {error}",
            medium.name
        );
        assert_eq!(medium.open(first).unwrap().uuid(), first.uuid());
    });
}

#[test]
fn a_replacement_is_refused_while_the_segment_is_open_and_clears_it_then() {
    each(|medium| {
        if medium.kind == BackendKind::Memfd {
            return;
        }
        let first = medium.create();
        let uuid = first.uuid();
        first
            .memory()
            .store(Offset::new(SIZE - 8), 7u64, Ordering::Relaxed);
        let replace = || medium.builder().replace(true).create(&medium.path);
        assert!(
            matches!(replace(), Err(CreateError::Busy { .. })),
            "{}",
            medium.name
        );
        // SAFETY: not used again.
        unsafe { first.unmap() };
        let second = replace().unwrap();
        assert_ne!(second.uuid(), uuid);
        let word: u64 = second
            .memory()
            .load(Offset::new(SIZE - 8), Ordering::Relaxed);
        assert_eq!(word, 0);
    });
}

#[test]
fn a_device_s_foreign_contents_are_given_up_only_by_name() {
    for medium in [
        Medium::dax(&std::env::temp_dir()),
        Medium::pci(&std::env::temp_dir()),
    ] {
        let error = medium.builder().create(&medium.path).unwrap_err();
        assert!(matches!(error, CreateError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&medium.path).unwrap(), vec![0xA5; SIZE as usize]);
        // A device that holds zeros is free.
        fs::write(&medium.path, vec![0; SIZE as usize]).unwrap();
        medium.builder().create(&medium.path).unwrap();
    }
}

#[test]
fn a_device_is_used_whole_or_in_part_and_not_beyond_its_end() {
    for medium in [
        Medium::dax(&std::env::temp_dir()),
        Medium::pci(&std::env::temp_dir()),
    ] {
        let builder = || {
            Segment::builder()
                .replace(true)
                .stand_in(medium.directory.path())
        };
        let whole = builder().create(&medium.path).unwrap();
        assert_eq!(whole.size(), SIZE);
        assert!(matches!(whole.pages(), Pages::Device { .. }));
        // SAFETY: not used again.
        unsafe { whole.unmap() };
        let part = builder().size(SIZE / 2 + 1).create(&medium.path).unwrap();
        assert_eq!(part.size(), SIZE / 2 + 4096);
        // SAFETY: not used again.
        unsafe { part.unmap() };
        let error = builder().size(SIZE + 1).create(&medium.path).unwrap_err();
        assert!(
            matches!(error, CreateError::MediumTooSmall { .. }),
            "{error}"
        );
    }
}

#[test]
fn damage_to_the_first_page_is_seen_and_the_open_segment_goes_on() {
    each(|medium| {
        let segment = medium.create();
        medium.scribble(segment, 100, &[0xFF]);
        let error = medium.open(segment).unwrap_err();
        assert!(
            matches!(error.refusal(), Some(Refusal::Corrupt { .. })),
            "{}: {error}",
            medium.name
        );
        medium.scribble(segment, 0, b"OUTL\0\0\0\0");
        assert_eq!(
            medium.open(segment).unwrap_err().refusal(),
            Some(&Refusal::NeverCompleted(Unfinished::Marked))
        );
        medium.scribble(segment, 0, b"nonsense");
        assert_eq!(
            medium.open(segment).unwrap_err().refusal(),
            Some(&Refusal::Foreign(*b"nonsense"))
        );
        assert_eq!(segment.areas().len(), 4);
    });
}

#[test]
fn prefaulting_is_told_to_the_end_and_changes_nothing() {
    each(|medium| {
        let mut told = Vec::new();
        let segment = medium
            .builder()
            .replace(medium.in_place)
            .prefault(|done, of| told.push((done, of)))
            .create(&medium.path)
            .unwrap();
        assert_eq!(told.last(), Some(&(SIZE, SIZE)), "{}", medium.name);
        segment
            .memory()
            .store(Offset::new(SIZE - 8), 7u64, Ordering::Relaxed);
        let mut told = Vec::new();
        let again = medium
            .options()
            .prefault(|done, of| told.push((done, of)))
            .open(segment.path())
            .unwrap();
        assert_eq!(told.last(), Some(&(SIZE, SIZE)), "{}", medium.name);
        let word: u64 = again
            .memory()
            .load(Offset::new(SIZE - 8), Ordering::Relaxed);
        assert_eq!(word, 7);
    });
}

/// The flags of the mapping at `address`, by /proc.
fn flags(address: usize) -> String {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{address:x}-");
    smaps
        .lines()
        .skip_while(|line| !line.starts_with(&start))
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .expect("the mapping is there")
        .to_owned()
        + " "
}

#[test]
fn a_mapping_is_neither_inherited_nor_dumped() {
    each(|medium| {
        let created = medium.create();
        for segment in [created, medium.open(created).unwrap()] {
            let address = segment.memory().address(Offset::new(0), 1);
            let flags = flags(address.as_ptr() as usize);
            assert!(flags.contains(" dc "), "not in a child: {flags}");
            assert!(flags.contains(" dd "), "not in a core dump: {flags}");
        }
    });
}

outlive::shared! { struct Point { x: u64, y: u64 } }
outlive::shared! { struct Pixel { x: u64, y: i64 } }

#[test]
fn roots_are_found_by_others() {
    each(|medium| {
        let created = medium.create();
        let opened = medium.open(created).unwrap();
        let place = created.area(AreaKind::Payload).unwrap().offset;
        created.roots().publish::<Point>("origin", place).unwrap();
        let found = opened.roots().find::<Point>("origin").unwrap().unwrap();
        assert_eq!(found.offset(), place);
        let error = opened
            .roots()
            .find::<Pixel>("origin")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Point (16") && error.contains("Pixel (16"),
            "{error}"
        );
        assert!(opened.roots().check().is_empty());
    });
}

#[test]
fn what_is_destroyed_is_gone() {
    each(|medium| {
        let segment = medium.create();
        if medium.stand_in {
            return; // `destroy` knows real devices only; its effect is tested in the crate.
        }
        let result = Segment::destroy(segment.path());
        if medium.kind == BackendKind::Memfd {
            assert!(matches!(result, Err(DestroyError::Unnamed { .. })));
            return;
        }
        result.unwrap();
        assert!(matches!(
            medium.open(segment),
            Err(OpenError::NotFound { .. })
        ));
        // A process that has it open continues.
        segment
            .memory()
            .store(Offset::new(SIZE - 8), 7u64, Ordering::Relaxed);
        assert!(matches!(
            Segment::destroy(segment.path()),
            Err(DestroyError::Open(OpenError::NotFound { .. }))
        ));
    });
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    each(|medium| {
        if medium.in_place {
            return;
        }
        for mode in [None, Some(0o666), Some(0o640)] {
            let directory = tempfile::tempdir_in(medium.directory.path()).unwrap();
            let path = if medium.kind == BackendKind::Memfd {
                medium.path.clone()
            } else {
                directory.path().join("segment")
            };
            let builder = match mode {
                Some(mode) => medium.builder().mode(mode),
                None => medium.builder(),
            };
            let segment = builder.create(path).unwrap();
            let found = fs::metadata(segment.path()).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode.unwrap_or(0o600), "{}", medium.name);
        }
    });
}

#[test]
fn all_pages_are_reserved() {
    use std::os::unix::fs::MetadataExt;
    each(|medium| {
        let segment = medium.create();
        let metadata = segment.file().metadata().unwrap();
        assert!(metadata.len() >= SIZE, "{}", medium.name);
        assert!(metadata.blocks() * 512 >= SIZE, "{}", medium.name);
    });
}

#[test]
fn transparent_huge_pages_are_tried_and_the_outcome_said() {
    each(|medium| {
        let segment = medium
            .builder()
            .size(if medium.in_place { SIZE } else { 4 << 20 })
            .replace(medium.in_place)
            .huge_pages(outlive::segment::HugePages::Transparent)
            .prefault(|_, _| {})
            .create(&medium.path)
            .unwrap();
        match segment.pages() {
            Pages::Transparent { huge_bytes } => assert!(huge_bytes % (2 << 20) == 0),
            Pages::Refused { why } => assert!(!why.is_empty()),
            Pages::Device { unit } => assert!(medium.stand_in && *unit >= 4096),
            other => panic!("{}: {other}", medium.name),
        }
        println!("  {}", segment.pages());
        let last = Offset::new(segment.size() - 8);
        segment.memory().store(last, 7u64, Ordering::Relaxed);
    });
}

#[test]
fn the_write_back_domain_is_refused_but_for_the_proofs() {
    each(|medium| {
        let builder = || medium.builder().domain(PersistenceDomain::WriteBack);
        let error = builder().create(&medium.path).unwrap_err();
        assert!(matches!(error, CreateError::WriteBackUnproven), "{error}");
        let segment = builder()
            .accept_unproven_write_back()
            .replace(medium.in_place)
            .create(&medium.path)
            .unwrap();
        assert_eq!(
            medium.open(segment).unwrap().memory().domain(),
            PersistenceDomain::WriteBack
        );
    });
}

#[test]
fn processes_that_wait_for_a_segment_on_a_device_do_not_keep_its_creator_out() {
    let tmp = std::env::temp_dir();
    for medium in (0..10).flat_map(|_| [Medium::dax(&tmp), Medium::pci(&tmp)]) {
        let (waits, came) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(medium.options().open(&medium.path).is_err());
                waits.send(()).unwrap();
                loop {
                    if let Ok(segment) = medium.options().open(&medium.path) {
                        return segment.uuid();
                    }
                }
            });
            came.recv().unwrap();
            let create = || medium.builder().replace(true).create(&medium.path);
            let created = create();
            let is_kept_out = matches!(created, Err(CreateError::Busy { .. }));
            // If it was, others still are: the waiting thread has to end.
            let created = created.or_else(|_| {
                loop {
                    match create() {
                        Err(CreateError::Busy { .. }) => {}
                        created => return created,
                    }
                }
            });
            assert_eq!(waiting.join().unwrap(), created.unwrap().uuid());
            assert!(!is_kept_out, "{}", medium.name);
        });
    }
}
