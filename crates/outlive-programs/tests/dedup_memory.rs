//! The memory that a malicious archive can make its reader allocate: the sizes that an index
//! declares are not trusted, so the memory is bounded by the length of the index.

use outlive_programs::dedup::archive::{Archive, ArchiveError, Catalog, INDEX, ReadAt, Writer};
use outlive_programs::dedup::attributes::Attributes;
use outlive_programs::dedup::tree::{Content, Source};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;

/// The system's allocator, which records the present and the largest allocation of each thread.
struct Counting;

thread_local! {
    static HAS: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn takes(bytes: usize) {
    let has = HAS.get().wrapping_add(bytes);
    HAS.set(has);
    // Freeing the memory of another thread makes this one's balance negative.
    if has as isize > MOST.get() as isize {
        MOST.set(has);
    }
}

// SAFETY: the system's allocator does all the work, unchanged; the recording allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        takes(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        takes(layout.size().wrapping_neg());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the result of `work`, and the most memory that it had allocated beyond the present.
fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HAS.get();
    MOST.set(before);
    let made = work();
    (made, MOST.get().wrapping_sub(before))
}

/// Returns an archive of `chunks` chunks of one byte, with this index and a right checksum.
fn archive(chunks: usize, index: &[u8]) -> Vec<u8> {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&(16 + chunks as u64).to_le_bytes());
    place[8..].copy_from_slice(&(index.len() as u64).to_le_bytes());
    let sum = Sha256::new()
        .chain_update(index)
        .chain_update(place)
        .finalize();
    let header = b"OutDedup\x03\0\0\0\0\0\0\0";
    [header, &*vec![0; chunks], index, &place, &sum, b"pudeDtuO"].concat()
}

/// Returns the bytes that an index of `index` bytes may take: the bound that `archive` documents.
fn allowed(index: usize) -> usize {
    10 * index + 4096
}

/// Asserts that `index` is refused, and takes only memory for its own bytes: nothing that it
/// declares is present.
#[track_caller]
fn promises(index: &[u8]) {
    let archive = archive(0, index);
    let (opened, most) = most(|| Archive::open(&archive[..]).map(drop));
    assert!(opened.is_err());
    let len = index.len();
    assert!(
        most <= 2 * len + 4096,
        "an index of {len} bytes took {most}"
    );
}

/// Opens an archive with `index`, and asserts that it takes no more memory than allowed.
#[track_caller]
fn open(index: &[u8]) -> Result<u64, ArchiveError> {
    open_of_chunks(0, index)
}

#[track_caller]
fn open_of_chunks(chunks: usize, index: &[u8]) -> Result<u64, ArchiveError> {
    let archive = archive(chunks, index);
    let (opened, most) = most(|| Archive::open(&archive[..]).map(|archive| archive.bytes()));
    assert!(
        most <= allowed(index.len()),
        "an index of {} bytes took {most}: {opened:?}",
        index.len()
    );
    opened
}

fn long(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Returns an index without chunks that declares `count` entries and has `entries`.
fn of_entries(count: u64, entries: &[u8]) -> Vec<u8> {
    [&long(0)[..], &long(0), &long(count), entries].concat()
}

/// Returns a directory with this name.
fn directory(name: &[u8]) -> Vec<u8> {
    [&[0][..], &[0; 17], &long(name.len() as u64), name].concat()
}

#[test]
fn memory_is_asked_for_what_is_there() {
    // Huge counts and nothing but zeros: as entries, as chunks of a file, or as the bytes of a
    // name.
    let nothing = vec![0; 1_000_000];
    promises(&of_entries(nothing.len() as u64 / 26, &nothing));
    promises(&of_entries(u64::MAX, &nothing));
    promises(&[&long(u64::MAX)[..], &nothing].concat());
    // Rows of chunks have a fixed size: these are present, and wrong.
    open(&[&long(nothing.len() as u64 / 44)[..], &nothing].concat()).unwrap_err();
    let head = [&[1][..], &[0; 17], &long(1), b"f"].concat();
    let holes = [&head[..], &long(62_000), &nothing].concat();
    promises(&of_entries(1, &holes));
    let file = [&head[..], &long(0), &long(249_000), &nothing].concat();
    promises(&of_entries(1, &file));
    // Extended attributes.
    let xattrs = [&[0, 2][..], &[0; 16], &long(58_000), &nothing].concat();
    promises(&of_entries(1, &xattrs));
    let name = [&directory(b"d")[..18], &long(900_000), &nothing].concat();
    promises(&of_entries(1, &name));
    // As many as fit, all of them present, with the shortest different names.
    let entries: Vec<u8> = (0..60_000u32)
        .flat_map(|number| directory(format!("{number:x}").as_bytes()))
        .collect();
    assert_eq!(open(&of_entries(60_000, &entries)).unwrap(), 0);
    // The last one is missing.
    open(&of_entries(60_001, &entries)).unwrap_err();
}

/// A very long archive that may be read by at most `most` bytes at a time.
struct Long {
    last: [u8; 56],
    len: u64,
    most: usize,
}

impl ReadAt for Long {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        assert!(buffer.len() <= self.most, "{} bytes are read", buffer.len());
        buffer.fill(0);
        if at == 0 {
            let header = b"OutDedup\x03\0\0\0\0\0\0\0";
            let len = buffer.len().min(16);
            buffer[..len].copy_from_slice(&header[..len]);
        } else if at == self.len - 56 {
            buffer.copy_from_slice(&self.last);
        }
        Ok(())
    }
}

proptest! {
    /// For any length of an archive, and any declared index.
    #[test]
    fn a_long_archive_takes_no_more_than_is_allowed(
        len in 72u64..=u64::MAX,
        at in prop_oneof![Just(16), any::<u64>()],
        index in prop_oneof![any::<u64>().prop_map(Some), Just(None)],
        most_index in 0u64..100_000,
    ) {
        // The right length, or another one.
        let index = index.unwrap_or((len - 56).wrapping_sub(at));
        let mut last = [0; 56];
        last[..8].copy_from_slice(&long(at));
        last[8..16].copy_from_slice(&long(index));
        last[48..].copy_from_slice(b"pudeDtuO");
        let source = Long { last, len, most: (most_index as usize).max(56) };
        let (opened, most) = most(|| Archive::open_at_most(source, most_index).map(drop));
        prop_assert!(opened.is_err());
        prop_assert!(most <= allowed(most_index as usize), "{} bytes: {:?}", most, opened);
        if at == 16 && index == len - 72 && index > most_index {
            let is_said = matches!(opened, Err(ArchiveError::IndexLen { len, .. }) if len == index);
            prop_assert!(is_said, "{:?}", opened);
        }
    }

    /// For any content of an index.
    #[test]
    fn whatever_an_index_says_it_takes_as_much_as_its_length_lets_it(
        chunks in 0usize..4,
        entries in prop_oneof![0u64..40, any::<u64>()],
        parts in prop::collection::vec(
            (0u8..5, 0u32..0o10_000, prop_oneof![0u64..4, any::<u64>()], prop::collection::vec(any::<u8>(), 0..6),
             prop_oneof![0u64..30, any::<u64>()], 0usize..30),
            0..20,
        ),
    ) {
        let mut index = long(chunks as u64).to_vec();
        for _ in 0..chunks {
            index.extend([1u8, 0, 0, 0].repeat(2));
            index.extend([0; 36]);
        }
        index.extend([long(0), long(entries)].concat());
        for (kind, mode, name_len, name, count, words) in parts {
            index.extend([kind, 0]);
            index.extend(mode.to_le_bytes());
            index.extend([0; 12]);
            // Right in some cases, so that the following parts are reached.
            let name_len = if name_len < 4 { name.len() as u64 } else { name_len };
            index.extend(long(name_len));
            index.extend(name);
            if kind == 1 {
                index.extend(long(0));
            }
            if kind != 0 {
                index.extend(long(count));
                index.extend(vec![0; words * 4]);
            }
        }
        // It need not be valid.
        let _ = open_of_chunks(chunks, &index);
    }
}

#[test]
fn nobody_has_to_allow_an_index_of_usual_length() {
    let entry = |number: u32| Source {
        path: "nowhere".into(),
        name: format!("{number}").into_bytes(),
        attributes: Attributes {
            mode: 0o600,
            ..Attributes::default()
        },
        content: Content::Directory,
    };
    let mut catalog = Catalog::default();
    (0..1000).for_each(|number| catalog.add(&entry(number), Vec::new()));
    let mut file = Vec::new();
    Writer::new(&mut file).unwrap().finish(&catalog).unwrap();
    let index = file.len() as u64 - 72;
    assert!(index < INDEX);
    let opened = |most| Archive::open_at_most(&file[..], most).map(|it| it.entries().len());
    assert_eq!(opened(index).unwrap(), 1000);
    let refused = opened(index - 1).unwrap_err().to_string();
    assert!(
        refused.contains("allow more with --max-index 1M"),
        "{refused}"
    );
    // Each entry takes a block.
    let archive = Archive::open(&file[..]).unwrap();
    assert_eq!(
        (archive.bytes(), archive.bytes_in_blocks(4096)),
        (0, 1000 * 4096)
    );
}
