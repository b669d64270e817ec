//! Everything that is not a sound segment is refused, by its name and with its place.

use outlive::segment::{
    AreaKind, AreaSize, BackendKind, CreateError, DestroyError, LayoutError, OpenError, Refusal,
    Segment, Unfinished,
};
use proptest::prelude::*;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SIZE: u64 = 128 << 10;

/// A directory with one sound segment, not open any more.
fn segment() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let segment = Segment::builder()
        .size(SIZE)
        .area(AreaKind::Payload, AreaSize::Rest)
        .create(&path)
        .unwrap();
    // SAFETY: not used again.
    unsafe { segment.unmap() };
    (directory, path)
}

/// Returns why the file at `path` is refused.
fn refusal(path: &Path) -> Refusal {
    match Segment::open(path) {
        Err(OpenError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

fn change(path: &Path, change: impl FnOnce(&File)) {
    change(&File::options().read(true).write(true).open(path).unwrap());
}

#[test]
fn nothing_a_directory_and_other_things_are_no_segments() {
    let (directory, path) = segment();
    let at = |name: &str| directory.path().join(name);
    assert!(matches!(
        Segment::open(at("nothing")),
        Err(OpenError::NotFound { .. })
    ));
    for unsuitable in [directory.path(), Path::new("/dev/null")] {
        let error = Segment::open(unsuitable).unwrap_err();
        assert!(matches!(error, OpenError::Unsuitable(_)), "{error}");
        let error = Segment::builder().create(unsuitable).unwrap_err();
        assert!(matches!(error, CreateError::Unsuitable(_)), "{error}");
        let error = Segment::destroy(unsuitable).unwrap_err();
        assert!(
            matches!(error, DestroyError::Open(OpenError::Unsuitable(_))),
            "{error}"
        );
    }
    let socket = at("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(
        Segment::open(&socket),
        Err(OpenError::Unsuitable(_))
    ));
    // Through a symbolic link it is the segment.
    std::os::unix::fs::symlink(&path, at("link")).unwrap();
    assert_eq!(
        Segment::open(at("link")).unwrap().backend(),
        BackendKind::File
    );
    // A directory that is not there, and a name that is a dangling link.
    let error = Segment::builder().create(at("no/segment")).unwrap_err();
    assert!(matches!(error, CreateError::Unsuitable(_)), "{error}");
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    let error = Segment::builder().create(at("dangling")).unwrap_err();
    assert!(matches!(error, CreateError::Exists { .. }), "{error}");
    assert!(!at("nowhere").exists());
}

#[test]
fn a_file_without_permission_is_denied() {
    let (_directory, path) = segment();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(_directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let opened = std::thread::spawn(move || {
        // Of this thread alone: root may do anything.
        // SAFETY: the raw call changes this thread's ids, not the process's.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
        Segment::open(path).map(|_| ())
    });
    let error = opened.join().unwrap().unwrap_err();
    assert!(matches!(error, OpenError::Denied { .. }), "{error}");
}

#[test]
fn a_file_that_was_cut_is_truncated_at_whatever_place() {
    let (_directory, path) = segment();
    for length in [SIZE - 1, SIZE - 4096, 5000, 4096, 4095, 100, 9, 8] {
        change(&path, |file| file.set_len(length).unwrap());
        let expected = if length < 4096 { 4096 } else { SIZE };
        assert_eq!(
            refusal(&path),
            Refusal::Truncated {
                expected,
                found: length
            }
        );
    }
    // Less than the magic is not known as a segment at all.
    change(&path, |file| file.set_len(3).unwrap());
    assert!(matches!(refusal(&path), Refusal::Foreign(_)));
    change(&path, |file| file.set_len(0).unwrap());
    assert_eq!(refusal(&path), Refusal::NeverCompleted(Unfinished::Empty));
}

#[test]
fn a_sparse_copy_gets_its_pages_when_it_is_opened() {
    use std::os::unix::fs::MetadataExt;
    let (directory, path) = segment();
    let copy = directory.path().join("copy");
    let first = fs::read(&path).unwrap()[..4096].to_vec();
    let file = File::create(&copy).unwrap();
    file.write_all_at(&first, 0).unwrap();
    file.set_len(SIZE).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < SIZE);
    Segment::open(&copy).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= SIZE);
}

#[test]
fn a_memfd_that_is_not_sealed_is_refused() {
    let (_directory, path) = segment();
    let bytes = fs::read(&path).unwrap();
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("loose", flags).unwrap());
    file.write_all_at(&bytes, 0).unwrap();
    let error = Segment::from_file(file.try_clone().unwrap()).unwrap_err();
    assert!(error.to_string().contains("sealed"), "{error}");
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
    let segment = Segment::from_file(file).unwrap();
    assert_eq!(segment.backend(), BackendKind::Memfd);
}

#[test]
fn a_memfd_of_ours_cannot_be_shrunk() {
    let segment = Segment::builder()
        .size(SIZE)
        .create("memfd:sealed")
        .unwrap();
    assert!(segment.file().set_len(4096).is_err());
    assert!(segment.file().set_len(SIZE * 2).is_err());
}

#[test]
fn only_segments_are_destroyed() {
    let (directory, path) = segment();
    let text = directory.path().join("text");
    fs::write(&text, "the only copy of my thesis").unwrap();
    let zeros = directory.path().join("zeros");
    fs::write(&zeros, [0; 8192]).unwrap();
    let empty = directory.path().join("empty");
    fs::write(&empty, "").unwrap();
    for other in [&text, &zeros, &empty] {
        let error = Segment::destroy(other).unwrap_err();
        assert!(matches!(error, DestroyError::NotASegment { .. }), "{error}");
        assert!(other.exists());
    }
    // Nor are they replaced, except that a file of zeros may have been prepared for it.
    let error = Segment::builder().create(&text).unwrap_err();
    assert!(matches!(error, CreateError::Exists { .. }), "{error}");
    // The images of some filesystems begin with zeros.
    let image = directory.path().join("image");
    let mut contents = vec![0; 1 << 20];
    contents[1 << 16] = 1;
    std::fs::write(&image, &contents).unwrap();
    let error = Segment::builder().replace(true).create(&image).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(std::fs::read(&image).unwrap(), contents);
    let error = Segment::builder().replace(true).create(&text).unwrap_err();
    assert!(matches!(error, CreateError::Unsuitable(_)), "{error}");
    assert_eq!(fs::read(&text).unwrap(), b"the only copy of my thesis");
    let error = Segment::builder().create(&zeros).unwrap_err();
    assert!(matches!(error, CreateError::Exists { .. }), "{error}");
    // A file that bears the mark is a segment, even if it is damaged.
    change(&path, |file| file.write_all_at(&[0xFF; 64], 200).unwrap());
    Segment::destroy(&path).unwrap();
    for left in [b"OUTLxxxx", b"OUTLIVE\x01"] {
        fs::write(&path, left).unwrap();
        Segment::destroy(&path).unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn impossible_sizes_and_areas_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let layout = |result: Result<Segment, CreateError>| match result {
        Err(CreateError::Layout(error)) => error,
        other => panic!("{other:?}"),
    };
    for name in [path.to_str().unwrap(), "memfd:impossible"] {
        let error = layout(Segment::builder().size(4096).create(name));
        assert!(matches!(error, LayoutError::TooSmall { .. }), "{error}");
        let error = layout(Segment::builder().size(u64::MAX).create(name));
        assert!(matches!(error, LayoutError::TooLarge(_)), "{error}");
        let rest = Segment::builder().area(AreaKind::Payload, AreaSize::Rest);
        assert_eq!(
            layout(rest.create(name)),
            LayoutError::NoSize(AreaKind::Payload)
        );
        // A size that no machine has.
        let error = Segment::builder().size(1 << 47).create(name).unwrap_err();
        assert!(matches!(error, CreateError::NoRoom(_)), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn reserved_huge_pages_are_refused_where_there_are_too_few_with_the_command_that_reserves_them() {
    let root = tempfile::tempdir().unwrap();
    let pool = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
    fs::create_dir_all(&pool).unwrap();
    let write = |name: &str, number: u64| fs::write(pool.join(name), number.to_string()).unwrap();
    let create = |path: &str| {
        let builder = Segment::builder().size(10 << 20).stand_in(root.path());
        let huge = outlive::segment::HugePages::Reserved;
        builder.huge_pages(huge).create(path).unwrap_err()
    };
    write("nr_hugepages", 7);
    write("free_hugepages", 4);
    write("resv_hugepages", 1);
    let file = root.path().join("file");
    for path in ["memfd:huge", file.to_str().unwrap()] {
        let error = create(path);
        let CreateError::NoHugePages {
            needed,
            free,
            page_size,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((needed, free, page_size), (5, 3, 2 << 20));
        let command = "`echo 9 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`";
        assert!(error.to_string().contains(command), "{error}");
    }
    assert!(!file.exists());
    // The pages that the kernel may allocate beyond the pool count as free; here no such pages
    // exist.
    write("nr_overcommit_hugepages", 3);
    write("surplus_hugepages", 1);
    let error = create(file.to_str().unwrap());
    assert!(error.to_string().contains("mount -t hugetlbfs"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A file with any content is opened as the segment that it declares, or refused.
    #[test]
    fn any_file_is_a_segment_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        marked in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let mut bytes = bytes;
        if marked && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(b"OUTLIVE\x01");
        }
        fs::write(&path, bytes).unwrap();
        prop_assert!(Segment::open(&path).unwrap_err().refusal().is_some());
    }

    /// A segment that was scribbled over anywhere and cut is opened whole or refused, and its roots
    /// are read or refused.
    #[test]
    fn a_mutated_segment_is_sound_or_refused(
        changes in prop::collection::vec((0u64..SIZE, prop::collection::vec(any::<u8>(), 1..40)), 0..5),
        early in prop::collection::vec((4096u64..4096 + 2 * 768, any::<u8>()), 0..5),
        length in prop_oneof![3 => Just(SIZE), 1 => 0..2 * SIZE],
    ) {
        let (_directory, path) = segment();
        let opened = Segment::open(&path).unwrap();
        let place = opened.area(AreaKind::Payload).unwrap().offset;
        opened.roots().publish::<u64>("root", place).unwrap();
        // SAFETY: not used again.
        unsafe { opened.unmap() };
        let mut superblock_hit = false;
        change(&path, |file| {
            for (at, bytes) in &changes {
                file.write_all_at(bytes, *at).unwrap();
                superblock_hit |= *at < 4096;
            }
            for (at, byte) in &early {
                file.write_all_at(&[*byte], *at).unwrap();
            }
            file.set_len(length).unwrap();
        });
        match Segment::open(&path) {
            Ok(segment) => {
                prop_assert!(length >= SIZE);
                prop_assert_eq!(segment.size(), SIZE);
                let roots = segment.roots();
                let _ = roots.check();
                for root in roots.list().unwrap_or_default() {
                    prop_assert!(root.offset.byte() + root.size <= SIZE);
                }
                let _ = roots.find::<u64>("root");
                let _ = roots.publish::<u32>("new", place);
                // SAFETY: not used again.
                unsafe { segment.unmap() };
            }
            Err(error) => {
                prop_assert!(error.refusal().is_some(), "{}", error);
                prop_assert!(length < SIZE || superblock_hit, "{}", error);
            }
        }
    }
}
