//! The index of an archive, as it is written and read. [`archive`](super::archive) describes the format.

use super::archive::{ArchiveError, Content, Entry};
use super::chunk;
use super::pack::{DIGEST, Digest};
use std::collections::HashMap;

/// What an archive begins with, and what it ends with.
pub const BEGINS: &[u8; 8] = b"OutDedup";
pub const ENDS: &[u8; 8] = b"pudeDtuO";
/// The version that is written and read here.
pub const VERSION: u32 = 2;
/// How long what stands before the first chunk is, and what stands behind the index.
pub const HEADER: u64 = 16;
pub const TRAILER: u64 = 56;
/// How long a chunk's row is.
const ROW: usize = 12 + DIGEST;

const DIRECTORY: u8 = 0;
const FILE: u8 = 1;
const LINK: u8 = 2;

/// What the index says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where what is kept of it begins; this is the sum of the lengths before it.
    pub at: u64,
    /// How long that is.
    pub packed_len: u32,
    /// How long the chunk is.
    pub len: u32,
    /// The CRC-32 of what is kept of it.
    pub sum: u32,
    /// The chunk's SHA-256.
    pub digest: Digest,
}

/// The index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    pub chunks: Vec<Row>,
    pub entries: Vec<Entry>,
    /// How many bytes all files have together: to be known before any is made, since a chunk may be named very often.
    pub bytes: u64,
}

pub fn header() -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(BEGINS);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

impl Index {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let long = |bytes: &mut Vec<u8>, number: usize| {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        };
        long(&mut bytes, self.chunks.len());
        for row in &self.chunks {
            for number in [row.packed_len, row.len, row.sum] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&row.digest);
        }
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        long(&mut bytes, self.entries.len());
        for entry in &self.entries {
            let kind = match &entry.content {
                Content::Directory => DIRECTORY,
                Content::File(_) => FILE,
                Content::Link(_) => LINK,
            };
            bytes.push(kind);
            bytes.extend_from_slice(&entry.mode.to_le_bytes());
            long(&mut bytes, entry.name.len());
            bytes.extend_from_slice(&entry.name);
            match &entry.content {
                Content::Directory => {}
                Content::File(chunks) => {
                    long(&mut bytes, chunks.len());
                    bytes.extend(chunks.iter().flat_map(|number| number.to_le_bytes()));
                }
                Content::Link(target) => {
                    long(&mut bytes, target.len());
                    bytes.extend_from_slice(target);
                }
            }
        }
        bytes
    }

    /// Reads the index `bytes`, which begins at byte `at` of the archive: where the chunks end.
    pub fn decode(bytes: &[u8], at: u64) -> Result<Self, ArchiveError> {
        let mut reader = Reader {
            bytes,
            len: bytes.len(),
            at,
        };
        let chunks = reader.chunks()?;
        let (declared, mut bytes) = (reader.long()?, 0);
        let count = reader.count(13)?;
        let there = reader.entries_there(count);
        let mut entries = Vec::with_capacity(there);
        // Which names there are, and whether they are of directories.
        let mut names: HashMap<&[u8], bool> = HashMap::with_capacity(there);
        for _ in 0..count {
            let kind = reader.take(1)?[0];
            let mode = reader.number()?;
            if mode > 0o777 {
                return Err(reader.wrong("an entry has permissions that do not exist"));
            }
            let len = reader.count(1)?;
            let name = reader.take(len)?;
            check_name(name, &names)?;
            if names.insert(name, kind == DIRECTORY).is_some() {
                return Err(bad_name(name, "it is there twice"));
            }
            let content = match kind {
                DIRECTORY => Content::Directory,
                FILE => {
                    let len = reader.count(4)?;
                    let numbers = reader.take(len * 4)?.as_chunks::<4>().0;
                    let numbers: Vec<u32> =
                        numbers.iter().map(|n| u32::from_le_bytes(*n)).collect();
                    for number in &numbers {
                        let chunk = chunks.get(*number as usize).ok_or_else(|| {
                            reader.wrong("a file is of a chunk that is not there")
                        })?;
                        // More than 64 bits would take an index of 2^50 bytes.
                        bytes += u64::from(chunk.len);
                    }
                    Content::File(numbers)
                }
                LINK => {
                    let len = reader.count(1)?;
                    let target = reader.take(len)?;
                    if target.is_empty() || target.contains(&0) {
                        return Err(bad_name(name, "the link leads nowhere"));
                    }
                    Content::Link(target.to_vec())
                }
                _ => return Err(reader.wrong("an entry is neither file nor directory nor link")),
            };
            entries.push(Entry {
                name: name.to_vec(),
                mode,
                content,
            });
        }
        if !reader.bytes.is_empty() {
            return Err(reader.wrong("something stands behind the last entry"));
        }
        if bytes != declared {
            let found = bytes;
            return Err(ArchiveError::Total { declared, found });
        }
        Ok(Self {
            chunks,
            entries,
            bytes,
        })
    }
}

fn bad_name(name: &[u8], what: &'static str) -> ArchiveError {
    let name = String::from_utf8_lossy(&name[..name.len().min(200)]).into_owned();
    ArchiveError::Name { name, what }
}

/// Whether `name` stays within the place where the archive is unpacked, in a directory that came before.
fn check_name(name: &[u8], names: &HashMap<&[u8], bool>) -> Result<(), ArchiveError> {
    let leads_away = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
    if name.split(|byte| *byte == b'/').any(leads_away) {
        return Err(bad_name(name, "it leads out of the archive"));
    }
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(end) if names.get(&name[..end]) != Some(&true) => Err(bad_name(
            name,
            "the directory that it is in does not come before it",
        )),
        _ => Ok(()),
    }
}

/// Reads an index from its beginning.
#[derive(Clone, Copy)]
struct Reader<'b> {
    /// What is left.
    bytes: &'b [u8],
    /// How long all of it is, and where in the archive it begins.
    len: usize,
    at: u64,
}

impl<'b> Reader<'b> {
    fn wrong(&self, what: &'static str) -> ArchiveError {
        let at = self.at + (self.len - self.bytes.len()) as u64;
        ArchiveError::Index { at, what }
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], ArchiveError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.wrong("it ends too early"));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, ArchiveError> {
        Ok(self
            .take(4)?
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn long(&mut self) -> Result<u64, ArchiveError> {
        let (low, high) = (self.number()?, self.number()?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// How many things follow that take `each` bytes at least. So what is not there is not asked for.
    fn count(&mut self, each: usize) -> Result<usize, ArchiveError> {
        let count = self.long()?;
        match count <= (self.bytes.len() / each) as u64 {
            true => Ok(count as usize),
            false => Err(self.wrong("it ends too early")),
        }
    }

    /// How many of the `count` entries that are to follow are there, which takes no memory: room is made for as many, and not for
    /// what a number says, nor again and again as they come.
    fn entries_there(mut self, count: usize) -> usize {
        let mut skip = || {
            let kind = self.take(1)?[0];
            self.number()?;
            let name = self.count(1)?;
            if self.take(name)?.is_empty() {
                // Such are refused, and many of them are many zeros.
                return Err(self.wrong("an entry has no name"));
            }
            let content = match kind {
                FILE => self.count(4)? * 4,
                LINK => self.count(1)?,
                _ => 0,
            };
            self.take(content)
        };
        (0..count).take_while(|_| skip().is_ok()).count()
    }

    fn chunks(&mut self) -> Result<Vec<Row>, ArchiveError> {
        let count = self.count(ROW)?;
        let mut chunks = Vec::with_capacity(count);
        let mut at = HEADER;
        for _ in 0..count {
            let [packed_len, len, sum] = [self.number()?, self.number()?, self.number()?];
            let digest = self.take(DIGEST)?.try_into().expect("as long as it is");
            if len == 0 || len as usize > chunk::MAX || packed_len == 0 || packed_len > len {
                return Err(self.wrong("a chunk has a length that cannot be"));
            }
            chunks.push(Row {
                at,
                packed_len,
                len,
                sum,
                digest,
            });
            at += u64::from(packed_len);
        }
        match at == self.at {
            true => Ok(chunks),
            false => Err(self.wrong("the chunks do not end where the index begins")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::{Archive, seal};
    use super::super::tree::Tree;
    use super::super::{pack_alone, unpack};
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::sync::LazyLock;

    /// An archive of a directory, a directory in it, a file in that, and a link.
    static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("t/d")).unwrap();
        fs::write(place.path().join("t/d/a"), "a".repeat(100)).unwrap();
        std::os::unix::fs::symlink("d/a", place.path().join("t/l")).unwrap();
        let mut archive = Vec::new();
        pack_alone(
            &Tree::find(&[place.path().join("t")]).unwrap(),
            6,
            &mut archive,
        )
        .unwrap();
        archive
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Of an index with a right checksum nothing is believed.
        #[test]
        fn whatever_an_index_says_nothing_is_made_elsewhere(
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), prop::sample::select(b"/.\0\x01\x02\xff".to_vec())]),
                1..5,
            ),
        ) {
            let mut archive = SMALL.clone();
            let end = archive.len() - TRAILER as usize;
            let from = u64::from_le_bytes(archive[end..end + 8].try_into().unwrap()) as usize;
            for (at, byte) in changes {
                let at = from + at.index(end - from);
                archive[at] = byte;
            }
            seal(&mut archive);
            if let Ok(archive) = Archive::open(archive.as_slice()) {
                let place = tempfile::tempdir().unwrap();
                let _ = unpack::unpack(&archive, &place.path().join("in/to"));
                for outside in [place.path(), &place.path().join("in")] {
                    prop_assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
                }
            }
        }
    }

    #[test]
    fn names_that_lead_away_are_refused() {
        let name = |name: &str| Entry {
            name: name.into(),
            mode: 0o600,
            content: Content::Directory,
        };
        let link = Entry {
            content: Content::Link(b"/etc".to_vec()),
            ..name("l")
        };
        let refused = |entries: &[Entry]| {
            let index = Index {
                entries: entries.to_vec(),
                ..Index::default()
            };
            Index::decode(&index.encode(), HEADER)
                .unwrap_err()
                .to_string()
        };
        for away in ["", "/etc", "..", "a/../../b", "./a", "a//b", "a/", "a\0b"] {
            assert!(
                refused(&[name("a"), name(away)]).contains("leads out"),
                "{away}"
            );
        }
        assert!(refused(&[link, name("l/passwd")]).contains("does not come before"));
        assert!(refused(&[name("b/a"), name("b")]).contains("does not come before"));
        assert!(refused(&[name("b"), name("b")]).contains("twice"));
        let mode = Entry {
            mode: 0o4755,
            ..name("s")
        };
        assert!(refused(&[mode]).contains("permissions"));
        let file = Entry {
            content: Content::File(vec![0]),
            ..name("f")
        };
        assert!(refused(&[file]).contains("a chunk that is not there"));
    }

    #[test]
    fn an_index_is_what_was_written() {
        let archive = &*SMALL;
        let end = archive.len() - TRAILER as usize;
        let at = u64::from_le_bytes(archive[end..end + 8].try_into().unwrap());
        let bytes = &archive[at as usize..end];
        let index = Index::decode(bytes, at).unwrap();
        assert_eq!(
            (index.encode(), index.chunks.len(), index.entries.len()),
            (bytes.to_vec(), 1, 4)
        );
        // Chunks that are longer than what is there, or than a chunk can be.
        for (packed_len, len) in [(13u32, 100u32), (200, 100), (0, 100), (12, 70_000), (12, 0)] {
            let mut index = index.clone();
            (index.chunks[0].packed_len, index.chunks[0].len) = (packed_len, len);
            assert!(Index::decode(&index.encode(), at).is_err());
        }
        assert!(Index::decode(&[&u64::MAX.to_le_bytes()[..], bytes].concat(), at).is_err());
    }

    #[test]
    fn files_have_as_many_bytes_as_the_archive_says() {
        let end = SMALL.len() - TRAILER as usize;
        let at = u64::from_le_bytes(SMALL[end..end + 8].try_into().unwrap());
        let index = Index::decode(&SMALL[at as usize..end], at).unwrap();
        assert_eq!(index.bytes, 100);
        assert_eq!(Archive::open(SMALL.as_slice()).unwrap().bytes(), 100);
        let opened = |index: &Index| {
            let mut archive = [&SMALL[..at as usize], &index.encode(), &SMALL[end..]].concat();
            let (end, len) = (
                archive.len() - TRAILER as usize,
                index.encode().len() as u64,
            );
            archive[end + 8..end + 16].copy_from_slice(&len.to_le_bytes());
            seal(&mut archive);
            Archive::open(archive.as_slice()).map(|archive| archive.bytes())
        };
        assert_eq!(opened(&index).unwrap(), 100);
        for declared in [0, 99, 101, u64::MAX] {
            let index = Index {
                bytes: declared,
                ..index.clone()
            };
            let said = opened(&index).unwrap_err().to_string();
            assert!(said.contains(&format!("{declared} bytes in all")), "{said}");
            assert!(said.ends_with("its files have 100"), "{said}");
        }
        // A chunk that is named once more.
        let mut more = index.clone();
        for entry in &mut more.entries {
            if let Content::File(chunks) = &mut entry.content {
                chunks.push(0);
            }
        }
        let said = opened(&more).unwrap_err().to_string();
        assert!(
            said.contains("100 bytes in all, and its files have 200"),
            "{said}"
        );
    }
}
