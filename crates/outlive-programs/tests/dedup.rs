//! Archives of real files: they are the same for any order of the work, unpack to the same files,
//! and are refused if damaged.

use outlive_programs::dedup::archive::{Archive, ArchiveError, Catalog, Writer};
use outlive_programs::dedup::chunk::{self, WINDOW};
use outlive_programs::dedup::tree::{Content, Tree};
use outlive_programs::dedup::unpack::{Options, UnpackError, unpack, unpack_with};
use outlive_programs::dedup::verify::{Mismatch, verify};
use outlive_programs::dedup::{pack, pack_alone};
use outlive_programs::wordcount::shipped_text;
use outlive_run::random::Random;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A directory with the shipped text, most of it again, a small file, an empty one, and entries
/// that are not files.
fn make(place: &Path) -> Tree {
    let text = shipped_text();
    let at = |name: &str| place.join(name);
    fs::create_dir_all(at("tree/deep/er")).unwrap();
    fs::create_dir(at("tree/empty")).unwrap();
    fs::write(at("tree/bible"), &text[..700_000]).unwrap();
    let again = [
        &b"In front of it. "[..],
        &text[..300_000],
        b" - ",
        &text[300_100..650_000],
    ]
    .concat();
    fs::write(at("tree/deep/again"), again).unwrap();
    fs::write(at("tree/deep/er/small"), "small").unwrap();
    fs::write(at("tree/deep/nothing"), "").unwrap();
    fs::write(at("tree/zeros"), vec![0; 300_000]).unwrap();
    let mut random = Random::new(1);
    let noise: Vec<u8> = (0..100_000).map(|_| random.word() as u8).collect();
    fs::write(at("tree/noise"), noise).unwrap();
    fs::set_permissions(at("tree/deep/er/small"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at("tree/empty"), fs::Permissions::from_mode(0o500)).unwrap();
    symlink("../bible", at("tree/deep/link")).unwrap();
    symlink("nowhere", at("tree/dangling")).unwrap();
    fs::hard_link(at("tree/bible"), at("tree/deep/er/bible")).unwrap();
    let sparse = fs::File::create(at("tree/sparse")).unwrap();
    sparse.write_all_at(&text[..200_000], 5 << 20).unwrap();
    sparse.write_all_at(b"end", 9 << 20).unwrap();
    sparse.set_len(1 << 30).unwrap();
    fs::set_permissions(at("tree/sparse"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(at("tree/deep"), fs::Permissions::from_mode(0o3755)).unwrap();
    Tree::find(&[at("tree")]).unwrap()
}

fn archive_of(tree: &Tree) -> Vec<u8> {
    let mut archive = Vec::new();
    pack_alone(tree, 6, &mut archive).unwrap();
    archive
}

#[test]
fn what_is_unpacked_is_what_was_archived() {
    let place = tempfile::tempdir().unwrap();
    let tree = make(place.path());
    let mut file = Vec::new();
    let summary = pack_alone(&tree, 6, &mut file).unwrap();
    assert_eq!(
        (summary.files, summary.archive_bytes),
        (7, file.len() as u64)
    );
    assert_eq!(summary.hard_links, 1);
    assert!(summary.hole_bytes > (1 << 30) - (1 << 20), "{summary:?}");
    // Repeated content takes no space, nor do zeros.
    assert!(summary.distinct < summary.chunks * 2 / 3, "{summary:?}");
    assert!(summary.archive_bytes < 500_000, "{summary:?}");
    println!("{summary:?}");

    let on_disk = place.path().join("archive");
    fs::write(&on_disk, &file).unwrap();
    let archive = Archive::open(fs::File::open(on_disk).unwrap()).unwrap();
    verify(&archive, &tree).unwrap();
    let copy = place.path().join("copy");
    let options = Options {
        set_ids: true,
        ..Options::default()
    };
    let unpacked = unpack_with(&archive, &copy, &options).unwrap();
    assert_eq!(
        (unpacked.files, unpacked.bytes, unpacked.hole_bytes),
        (summary.files, summary.bytes, summary.hole_bytes)
    );
    assert_eq!((unpacked.hard_links, unpacked.not_kept), (1, vec![]));
    let sparse = fs::metadata(copy.join("tree/sparse")).unwrap();
    assert!(sparse.len() == 1 << 30 && sparse.blocks() * 512 < 1 << 20);
    // An independent judge of files, links and directories.
    let same = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([place.path().join("tree"), copy.join("tree")])
        .output()
        .unwrap();
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stdout)
    );
    // Permissions and the order of names too: the copy makes the same archive.
    let again = Tree::find(&[copy.join("tree")]).unwrap();
    assert_eq!(archive_of(&again), file);
    let refused = unpack(&archive, &copy).unwrap_err();
    assert!(matches!(refused, UnpackError::NotEmpty { .. }));
}

/// A reader of the format in another language, written from its description alone.
const READER: &str = r#"
import hashlib, os, struct, sys, zlib

archive, into = sys.argv[1:]
data = open(archive, "rb").read()
assert data[:16] == b"OutDedup" + struct.pack("<II", 3, 0)
at, length = struct.unpack("<QQ", data[-56:-40])
index = data[at:at + length]
assert at + length == len(data) - 56 and data[-8:] == b"pudeDtuO"
assert hashlib.sha256(index + data[-56:-40]).digest() == data[-40:-8]
place = 0

def read(form):
    global place
    found = struct.unpack_from("<" + form, index, place)
    place += struct.calcsize("<" + form)
    return found if len(found) > 1 else found[0]

chunks, kept_at = [], 16
for _ in range(read("Q")):
    kept_length, length, crc, digest = read("III32s")
    chunk = kept = data[kept_at:kept_at + kept_length]
    kept_at += kept_length
    assert zlib.crc32(kept) == crc
    if kept_length < length:
        chunk = zlib.decompress(kept, -15)
    assert len(chunk) == length and hashlib.sha256(chunk).digest() == digest
    chunks.append(chunk)
assert kept_at == at
total, written = read("Q"), 0
directories, links, names = [], [], []
text = lambda: read(f"{read('Q')}s")
for _ in range(read("Q")):
    kind, parts, mode, seconds, nanos = read("BBIqI")
    owner = read("II") if parts & 1 else None
    xattrs = [(text(), text()) for _ in range(read("Q"))] if parts & 2 else []
    name = os.path.join(os.fsencode(into), text())
    time = seconds * 10**9 + nanos
    names.append(name)
    if kind == 0:
        os.mkdir(name)
        directories.append((name, mode, time))
    elif kind == 1:
        holes = dict(read("QQ") for _ in range(read("Q")))
        at = 0
        with open(name, "xb") as file:
            for _ in range(read("Q")):
                at += holes.pop(at, 0)
                file.seek(at)
                chunk = chunks[read("I")]
                at += file.write(chunk)
                written += len(chunk)
            file.truncate(at + holes.pop(at, 0))
            assert not holes
        for xattr, value in xattrs:
            os.setxattr(name, xattr, value)
        os.chmod(name, mode)
        os.utime(name, ns=(0, time))
    elif kind == 2:
        os.symlink(text(), name)
        os.utime(name, ns=(0, time), follow_symlinks=False)
    else:
        os.link(names[read("Q")], name)
assert place == len(index) and written == total
for name, mode, time in reversed(directories):
    os.chmod(name, mode)
    os.utime(name, ns=(0, time))
"#;

#[test]
fn another_program_reads_the_same_from_the_description() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("there is no python3 here: not tried");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = archive_of(&make(place.path()));
    let (archive, copy) = (place.path().join("archive"), place.path().join("copy"));
    fs::write(&archive, &file).unwrap();
    fs::create_dir(&copy).unwrap();
    let read = Command::new("python3")
        .args(["-c", READER])
        .args([&archive, &copy])
        .output()
        .unwrap();
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    // Names, bytes, holes, links, permissions and times: everything in this archive.
    assert_eq!(archive_of(&Tree::find(&[copy.join("tree")]).unwrap()), file);
}

#[test]
fn what_differs_from_the_files_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let tree = make(place.path());
    let file = archive_of(&tree);
    let archive = Archive::open(file.as_slice()).unwrap();
    verify(&archive, &tree).unwrap();
    let bible = place.path().join("tree/bible");
    let text = fs::read(&bible).unwrap();
    let mut changed = text.clone();
    changed[400_000] ^= 1;
    for changed in [&changed[..], &text[..699_999], &[&text[..], b"."].concat()] {
        fs::write(&bible, changed).unwrap();
        assert!(matches!(
            verify(&archive, &tree),
            Err(Mismatch::Bytes { .. })
        ));
    }
    fs::write(&bible, &text).unwrap();
    verify(&archive, &tree).unwrap();
    // A hole that is filled after the file was archived.
    let sparse = fs::OpenOptions::new()
        .write(true)
        .open(place.path().join("tree/sparse"))
        .unwrap();
    sparse.write_all_at(b".", 7 << 20).unwrap();
    let wrong = verify(&archive, &tree).unwrap_err();
    assert!(wrong.to_string().contains("sparse"), "{wrong}");
    sparse.write_all_at(&[0], 7 << 20).unwrap();
    verify(&archive, &tree).unwrap();
    fs::set_permissions(&bible, fs::Permissions::from_mode(0o640)).unwrap();
    let tree = Tree::find(&[place.path().join("tree")]).unwrap();
    assert!(matches!(
        verify(&archive, &tree),
        Err(Mismatch::Entry { .. })
    ));
}

/// Works as a pod's tasks do: stretches of `stretch` bytes are searched and chunks are packed in an
/// order drawn with `seed`, and some of the work is done twice.
fn by_tasks(tree: &Tree, stretch: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut shuffle = |count: usize| {
        let mut order: Vec<usize> = (0..count).chain((0..count).step_by(7)).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        order
    };
    // The extents, and the numbers of their files.
    let mut files: Vec<(usize, Vec<u8>)> = Vec::new();
    for (number, source) in tree.entries().iter().enumerate() {
        if let Content::File(content) = &source.content {
            let file = fs::File::open(&source.path).unwrap();
            for extent in &content.data {
                let mut bytes = vec![0; extent.len as usize];
                file.read_exact_at(&mut bytes, extent.start).unwrap();
                files.push((number, bytes));
            }
        }
    }

    // Tasks: the marks of a stretch. Merged: the ends of an extent's chunks.
    let mut chunks: Vec<(usize, &[u8])> = Vec::new();
    for (number, file) in &files {
        let stretches: Vec<usize> = (0..file.len()).step_by(stretch).collect();
        let mut marks = vec![Vec::new(); stretches.len()];
        for at in shuffle(stretches.len()) {
            let from = stretches[at];
            let before = &file[from.saturating_sub(WINDOW - 1)..from];
            let bytes = &file[from..file.len().min(from + stretch)];
            marks[at].clear();
            chunk::marks(before, bytes, from as u64, &mut marks[at]);
        }
        let mut from = 0;
        for end in chunk::ends(file.len() as u64, &marks.concat()) {
            chunks.push((*number, &file[from..end as usize]));
            from = end as usize;
        }
    }
    // Tasks: the digest of a chunk, and its stored form.
    let mut done = vec![None; chunks.len()];
    for at in shuffle(chunks.len()) {
        let mut packed = Vec::new();
        pack::pack(chunks[at].1, 6, &mut packed);
        done[at] = Some((pack::digest(chunks[at].1), packed));
    }
    // Merged: in the order of the files.
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive).unwrap();
    let mut catalog = Catalog::default();
    let mut next = chunks.iter().zip(done).peekable();
    for (number, source) in tree.entries().iter().enumerate() {
        let mut numbers = Vec::new();
        while let Some(((_, chunk), done)) = next.next_if(|((file, _), _)| *file == number) {
            let (digest, packed) = done.unwrap();
            let (number, is_new) = catalog.enter(digest, chunk.len()).unwrap();
            if is_new {
                writer.chunk(&packed).unwrap();
            }
            numbers.push(number);
        }
        catalog.add(source, numbers);
    }
    writer.finish(&catalog).unwrap();
    archive
}

#[test]
fn whoever_does_what_the_archive_is_the_same() {
    let place = tempfile::tempdir().unwrap();
    let tree = make(place.path());
    let alone = archive_of(&tree);
    for (seed, stretch) in [(1, 50), (2, 4096), (3, 65_537), (4, 1 << 20)] {
        assert!(
            by_tasks(&tree, stretch, seed) == alone,
            "{stretch} bytes a task"
        );
    }
}

#[test]
fn a_fifo_in_the_place_of_a_file_is_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let tree = make(place.path());
    let file = place.path().join("tree/noise");
    fs::remove_file(&file).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, mode, 0).unwrap();
    let refused = pack_alone(&tree, 6, Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("not a regular file any more"), "{refused}");
}

/// More hard links than ext4 allows for one file.
const MANY: usize = 66_000;

#[test]
fn hard_links_that_have_to_be_copies_count_for_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("0");
    fs::write(&file, [7; 10_000]).unwrap();
    let tree = Tree::find(&[&file]).unwrap();
    let mut packed = Vec::new();
    pack_alone(&tree, 6, &mut packed).unwrap();
    let archive = Archive::open(packed.as_slice()).unwrap();
    let (mut kept, mut chunk) = (Vec::new(), Vec::new());
    let (mut catalog, mut file) = (Catalog::default(), Vec::new());
    let mut writer = Writer::new(&mut file).unwrap();
    let mut numbers = Vec::new();
    for number in 0..archive.chunks() {
        archive.restore(number, &mut kept, &mut chunk).unwrap();
        let entered = catalog.enter(pack::digest(&chunk), chunk.len());
        numbers.push(entered.unwrap().0);
        writer.chunk(&kept).unwrap();
    }
    catalog.add(&tree.entries()[0], numbers);
    for number in 1..MANY {
        let mut link = tree.entries()[0].clone();
        link.name = number.to_string().into_bytes();
        link.content = Content::HardLink(0);
        catalog.add(&link, Vec::new());
    }
    writer.finish(&catalog).unwrap();
    let archive = Archive::open(file.as_slice()).unwrap();
    // Space for the file, and for no copy of it.
    let options = Options {
        most: 20_000,
        ..Options::default()
    };
    match unpack_with(&archive, &place.path().join("copy"), &options) {
        Ok(unpacked) => {
            assert_eq!(unpacked.hard_links as usize, MANY - 1);
            println!("skipped: a file of this filesystem can have more than {MANY} names");
        }
        Err(UnpackError::NoRoomForCopy { needed, left, .. }) => assert!(needed > left),
        Err(error) => panic!("{error}"),
    }
    let unpacked = unpack(&archive, &place.path().join("all")).unwrap();
    assert_eq!(unpacked.hard_links + unpacked.files, MANY as u64);
    assert!(unpacked.files <= 2, "one copy is enough");
}

/// Writes an archive of version 2.
fn of_version_2(name: &[u8], mode: u32, chunk: &[u8]) -> Vec<u8> {
    let long = |number: usize| (number as u64).to_le_bytes();
    let mut packed = Vec::new();
    pack::pack(chunk, 6, &mut packed);
    let row = [
        packed.len() as u32,
        chunk.len() as u32,
        crc32fast::hash(&packed),
    ];
    let row = row.map(u32::to_le_bytes).concat();
    let entry = [
        &[1][..],
        &mode.to_le_bytes(),
        &long(name.len()),
        name,
        &long(1),
        &[0; 4],
    ];
    let index = [
        &long(1)[..],
        &row,
        &pack::digest(chunk),
        &long(chunk.len()),
        &long(1),
    ]
    .concat();
    let index = [index, entry.concat()].concat();
    let place = [long(16 + packed.len()), long(index.len())].concat();
    let sum = pack::digest(&[&index[..], &place].concat());
    let header = b"OutDedup\x02\0\0\0\0\0\0\0";
    [header, &packed[..], &index, &place, &sum, b"pudeDtuO"].concat()
}

#[test]
fn archives_of_the_version_before_are_read() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("old");
    let text = "as it was ".repeat(200);
    fs::write(&file, &text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let archive = of_version_2(b"old", 0o640, text.as_bytes());
    let archive = Archive::open(&archive[..]).unwrap();
    verify(&archive, &Tree::find(&[&file]).unwrap()).unwrap();
    let copy = place.path().join("copy");
    assert_eq!(unpack(&archive, &copy).unwrap().not_kept, vec![]);
    assert_eq!(fs::read_to_string(copy.join("old")).unwrap(), text);
    let mode = fs::metadata(copy.join("old")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    // A setuid bit did not exist in that version.
    let wrong = of_version_2(b"old", 0o4755, b"text");
    assert!(
        read(&wrong)
            .unwrap_err()
            .to_string()
            .contains("permissions")
    );
}

/// Opens an archive and reads all of it.
fn read(archive: &[u8]) -> Result<u64, ArchiveError> {
    Archive::open(archive)?.check()
}

#[test]
fn a_byte_that_changed_is_noticed_wherever_it_is() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("t")).unwrap();
    fs::write(place.path().join("t/a"), &shipped_text()[..9_000]).unwrap();
    fs::write(place.path().join("t/b"), "b").unwrap();
    symlink("a", place.path().join("t/l")).unwrap();
    let archive = archive_of(&Tree::find(&[place.path().join("t")]).unwrap());
    read(&archive).unwrap();
    for at in 0..archive.len() {
        for change in [1, 0x80, 0xFF] {
            let mut damaged = archive.clone();
            damaged[at] ^= change;
            assert!(read(&damaged).is_err(), "byte {at} changed by {change}");
        }
        assert!(read(&archive[..at]).is_err(), "cut off at {at}");
    }
    let said = |archive: &[u8]| read(archive).unwrap_err().to_string();
    assert!(said(b"PK\x03\x04").contains("not an archive"));
    assert!(said(&archive[..archive.len() - 1]).contains("cut off"));
    assert!(said(&[&archive[..], b"\n"].concat()).contains("bytes were added"));
    let mut next = archive.clone();
    next[8] = 4;
    assert!(said(&next).contains("version 4, and this program reads versions 2 to 3"));
    next = archive.clone();
    next[100] ^= 4;
    assert!(said(&next).contains("chunk 0"), "{}", said(&next));
}

/// An archive of some chunks, small enough to be made again often.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("t")).unwrap();
    fs::write(place.path().join("t/a"), &shipped_text()[..50_000]).unwrap();
    fs::write(place.path().join("t/b"), &shipped_text()[20_000..60_000]).unwrap();
    archive_of(&Tree::find(&[place.path().join("t")]).unwrap())
});

/// A kind of damage to an archive.
#[derive(Clone, Debug)]
enum Damage {
    Changed(prop::sample::Index, u8),
    Lost(prop::sample::Index, usize),
    Added(prop::sample::Index, Vec<u8>),
    Moved(prop::sample::Index, prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, to)| Damage::Changed(at, to)),
        (at(), 1usize..3000).prop_map(|(at, count)| Damage::Lost(at, count)),
        (at(), prop::collection::vec(any::<u8>(), 1..60))
            .prop_map(|(at, bytes)| Damage::Added(at, bytes)),
        (at(), at(), 1usize..3000).prop_map(|(from, to, count)| Damage::Moved(from, to, count)),
        at().prop_map(Damage::Cut),
    ]
}

impl Damage {
    fn happen(&self, archive: &mut Vec<u8>) {
        let len = archive.len().max(1);
        let end = |at: usize, count: usize| archive.len().min(at + count);
        match self {
            _ if archive.is_empty() => {}
            Self::Changed(at, to) => archive[at.index(len)] = *to,
            Self::Lost(at, count) => {
                let at = at.index(len);
                let end = end(at, *count);
                archive.drain(at..end);
            }
            Self::Added(at, bytes) => {
                let at = at.index(len);
                archive.splice(at..at, bytes.iter().copied());
            }
            Self::Moved(from, to, count) => {
                let (from, to) = (from.index(len), to.index(len));
                let count = (*count).min(len - from.max(to));
                archive.copy_within(from..from + count, to);
            }
            Self::Cut(at) => archive.truncate(at.index(len)),
        }
    }
}

proptest! {
    /// Any damage to an archive is noticed: every byte has a checksum.
    #[test]
    fn a_damaged_archive_is_refused(damages in prop::collection::vec(damage(), 1..4)) {
        let mut archive = SMALL.clone();
        damages.iter().for_each(|damage| damage.happen(&mut archive));
        prop_assert_eq!(read(&archive).is_ok(), archive == *SMALL);
    }

    #[test]
    fn any_bytes_are_an_archive_or_are_refused(
        head in prop::sample::select(vec![&b"OutDedup"[..], b"OutDedup\x01\0\0\0\0\0\0\0", b""]),
        tail in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert!(read(&[head, &tail, b"pudeDtuO"].concat()).is_err());
    }
}
