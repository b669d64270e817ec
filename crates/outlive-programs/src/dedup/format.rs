//! The index of an archive, as it is written and read. [`archive`](super::archive) describes the
//! format.

use super::archive::{ArchiveError, Entry};
use super::pack::{DIGEST, Digest};
use super::{chunk, entries};

/// The first and the last bytes of an archive.
pub const BEGINS: &[u8; 8] = b"OutDedup";
pub const ENDS: &[u8; 8] = b"pudeDtuO";
/// The version that is written, and the oldest version that is read.
pub const VERSION: u32 = 3;
pub const OLDEST: u32 = 2;
/// The lengths of the header and the trailer, in bytes.
pub const HEADER: u64 = 16;
pub const TRAILER: u64 = 56;
/// The length of a chunk's row in bytes.
const ROW: usize = 12 + DIGEST;

/// The row of a chunk in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The offset of the chunk's stored form: the sum of the stored lengths before it.
    pub at: u64,
    /// The stored length in bytes.
    pub packed_len: u32,
    /// The length of the chunk in bytes.
    pub len: u32,
    /// The CRC-32 of the stored form.
    pub sum: u32,
    /// The chunk's SHA-256.
    pub digest: Digest,
}

/// The index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    pub chunks: Vec<Row>,
    pub entries: Vec<Entry>,
    /// The number of bytes of all files without holes. It must be known before a file is created,
    /// since a chunk can occur very often.
    pub bytes: u64,
}

pub fn header(version: u32) -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(BEGINS);
    header[8..12].copy_from_slice(&version.to_le_bytes());
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
            entries::encode(entry, &mut bytes);
        }
        bytes
    }

    /// Decodes the index `bytes`, which begins at byte `at` of the archive, the end of the chunks.
    pub fn decode(bytes: &[u8], at: u64, version: u32) -> Result<Self, ArchiveError> {
        let mut reader = Reader {
            at,
            ..Reader::of(bytes)
        };
        let chunks = reader.chunks()?;
        let declared = reader.long()?;
        let (entries, found) = entries::decode(&mut reader, version, &chunks)?;
        if !reader.bytes.is_empty() {
            return Err(reader.wrong("other bytes follow the last entry"));
        }
        if found != declared {
            return Err(ArchiveError::Total { declared, found });
        }
        Ok(Self {
            chunks,
            entries,
            bytes: found,
        })
    }
}

/// Reads an index from its beginning.
#[derive(Clone, Copy)]
pub struct Reader<'b> {
    /// The bytes that are left.
    bytes: &'b [u8],
    /// The length of the whole index, and its offset in the archive.
    len: usize,
    at: u64,
}

impl<'b> Reader<'b> {
    pub fn of(bytes: &'b [u8]) -> Self {
        let (len, at) = (bytes.len(), 0);
        Self { bytes, len, at }
    }

    /// Returns the number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    pub fn wrong(&self, what: &'static str) -> ArchiveError {
        let at = self.at + (self.len - self.bytes.len()) as u64;
        ArchiveError::Index { at, what }
    }

    pub fn take(&mut self, len: usize) -> Result<&'b [u8], ArchiveError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.wrong("it ends too early"));
        };
        self.bytes = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u32, ArchiveError> {
        Ok(self
            .take(4)?
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    pub fn long(&mut self) -> Result<u64, ArchiveError> {
        let (low, high) = (self.number()?, self.number()?);
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Reads a number of items that take at least `each` bytes each. It is refused if that is more
    /// than the bytes left, so callers may allocate for it.
    pub fn count(&mut self, each: usize) -> Result<usize, ArchiveError> {
        let count = self.long()?;
        match count <= (self.bytes.len() / each) as u64 {
            true => Ok(count as usize),
            false => Err(self.wrong("it ends too early")),
        }
    }

    /// Reads the next text.
    pub fn text(&mut self) -> Result<&'b [u8], ArchiveError> {
        let len = self.count(1)?;
        self.take(len)
    }

    fn chunks(&mut self) -> Result<Vec<Row>, ArchiveError> {
        let count = self.count(ROW)?;
        let mut chunks = Vec::with_capacity(count);
        let mut at = HEADER;
        for _ in 0..count {
            let [packed_len, len, sum] = [self.number()?, self.number()?, self.number()?];
            let digest = self.take(DIGEST)?.try_into().expect("DIGEST bytes");
            if len == 0 || len as usize > chunk::MAX || packed_len == 0 || packed_len > len {
                return Err(self.wrong("a chunk has an invalid length"));
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
    use super::super::archive::{Archive, Content, seal};
    use super::super::attributes::{Attributes, Owner, Time, Xattr};
    use super::super::extents::Span;
    use super::super::tree::Tree;
    use super::super::{pack_alone, unpack};
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::sync::LazyLock;

    /// An archive of two nested directories, a file with two names, a file that is one hole, and a
    /// link.
    static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("t/d")).unwrap();
        fs::write(place.path().join("t/d/a"), "a".repeat(100)).unwrap();
        fs::hard_link(place.path().join("t/d/a"), place.path().join("t/d/b")).unwrap();
        let hole = fs::File::create(place.path().join("t/d/c")).unwrap();
        hole.set_len(1 << 20).unwrap();
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
        /// An index is not trusted because its checksum is right.
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
            attributes: Attributes {
                mode: 0o600,
                ..Attributes::default()
            },
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
            Index::decode(&index.encode(), HEADER, VERSION)
                .unwrap_err()
                .to_string()
        };
        for away in ["", "/etc", "..", "a/../../b", "./a", "a//b", "a/", "a\0b"] {
            assert!(
                refused(&[name("a"), name(away)]).contains("leads out"),
                "{away}"
            );
        }
        assert!(refused(&[link.clone(), name("l/passwd")]).contains("is not an earlier entry"));
        assert!(refused(&[name("b/a"), name("b")]).contains("is not an earlier entry"));
        assert!(refused(&[name("b"), name("b")]).contains("twice"));
        let file = |chunks: &[u32], holes: &[(u64, u64)]| Entry {
            content: Content::File {
                chunks: chunks.to_vec(),
                holes: { holes.iter() }
                    .map(|(start, len)| Span {
                        start: *start,
                        len: *len,
                    })
                    .collect(),
            },
            ..name("f")
        };
        assert!(refused(&[file(&[0], &[])]).contains("a chunk that does not exist"));
        for (holes, said) in [
            (&[(1, 5)][..], "does not begin where a chunk ends"),
            (&[(0, 0)], "a hole without bytes"),
            (&[(0, 5), (5, 6)], "does not begin where a chunk ends"),
            (&[(0, 1 << 63)], "2^63 bytes or more"),
            (&[(0, u64::MAX)], "2^63 bytes or more"),
        ] {
            let refused = refused(&[file(&[], holes)]);
            assert!(refused.contains(said), "{holes:?}: {refused}");
        }
        // The target of a hard link is an earlier file.
        let hard = |first| Entry {
            content: Content::HardLink(first),
            ..name("h")
        };
        for (entries, first) in [
            (name("d"), 0),
            (link, 0),
            (file(&[], &[]), 1),
            (name("d"), 7),
        ] {
            assert!(refused(&[entries, hard(first)]).contains("is not an earlier file"));
        }
        let twice = Entry {
            name: b"i".into(),
            ..hard(1)
        };
        let refused_twice = refused(&[file(&[], &[]), hard(0), twice]);
        assert!(
            refused_twice.contains("hard link is not"),
            "{refused_twice}"
        );
    }

    #[test]
    fn attributes_that_cannot_be_are_refused() {
        let refused = |attributes: Attributes| {
            let entry = Entry {
                name: b"a".into(),
                attributes,
                content: Content::Directory,
            };
            let index = Index {
                entries: vec![entry],
                ..Index::default()
            };
            let decoded = Index::decode(&index.encode(), HEADER, VERSION);
            decoded.map(drop).map_err(|error| error.to_string())
        };
        let good = || Attributes {
            mode: 0o7755,
            modified: Some(Time {
                seconds: -5,
                nanos: 999_999_999,
            }),
            owner: Some(Owner { user: 7, group: 8 }),
            xattrs: ["user.a", "user.b"]
                .map(|name| Xattr {
                    name: name.into(),
                    value: Vec::new(),
                })
                .to_vec(),
        };
        assert_eq!(refused(good()), Ok(()));
        let but = |change: fn(&mut Attributes)| {
            let mut attributes = good();
            change(&mut attributes);
            refused(attributes).unwrap_err()
        };
        assert!(but(|it| it.mode = 0o10_000).contains("permissions"));
        assert!(
            but(|it| it.modified = Some(Time {
                seconds: 0,
                nanos: 1_000_000_000
            }))
            .contains("a time")
        );
        assert!(
            but(|it| it.owner = Some(Owner {
                user: u32::MAX,
                group: 0
            }))
            .contains("an owner")
        );
        assert!(but(|it| it.xattrs.swap(0, 1)).contains("not sorted by name"));
        assert!(but(|it| it.xattrs[1].name = b"user.a".into()).contains("not sorted by name"));
        assert!(but(|it| it.xattrs[0].name.clear()).contains("cannot be"));
        assert!(but(|it| it.xattrs[0].name = b"a\0b".into()).contains("cannot be"));
        assert!(but(|it| it.xattrs[0].value = vec![0; 65_537]).contains("cannot be"));
    }

    #[test]
    fn an_index_is_what_was_written() {
        let archive = &*SMALL;
        let end = archive.len() - TRAILER as usize;
        let at = u64::from_le_bytes(archive[end..end + 8].try_into().unwrap());
        let bytes = &archive[at as usize..end];
        let index = Index::decode(bytes, at, VERSION).unwrap();
        assert_eq!(
            (index.encode(), index.chunks.len(), index.entries.len()),
            (bytes.to_vec(), 1, 6)
        );
        let hole = Span {
            start: 0,
            len: 1 << 20,
        };
        let expected = Content::File {
            chunks: vec![],
            holes: vec![hole],
        };
        assert_eq!(index.entries[4].content, expected);
        assert_eq!(index.entries[3].content, Content::HardLink(2));
        // Chunks that are longer than the bytes present, or than a chunk can be.
        for (packed_len, len) in [(13u32, 100u32), (200, 100), (0, 100), (12, 70_000), (12, 0)] {
            let mut index = index.clone();
            (index.chunks[0].packed_len, index.chunks[0].len) = (packed_len, len);
            assert!(Index::decode(&index.encode(), at, VERSION).is_err());
        }
        assert!(
            Index::decode(&[&u64::MAX.to_le_bytes()[..], bytes].concat(), at, VERSION).is_err()
        );
    }

    #[test]
    fn files_have_as_many_bytes_as_the_archive_says() {
        let end = SMALL.len() - TRAILER as usize;
        let at = u64::from_le_bytes(SMALL[end..end + 8].try_into().unwrap());
        let index = Index::decode(&SMALL[at as usize..end], at, VERSION).unwrap();
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
            assert!(
                said.contains(&format!("{declared} bytes in total")),
                "{said}"
            );
            assert!(said.ends_with("its files have 100"), "{said}");
        }
        // A chunk that is named once more.
        let mut more = index.clone();
        for entry in &mut more.entries {
            if let Content::File { chunks, .. } = &mut entry.content
                && !chunks.is_empty()
            {
                chunks.push(0);
            }
        }
        let said = opened(&more).unwrap_err().to_string();
        assert!(
            said.contains("100 bytes in total, but its files have 200"),
            "{said}"
        );
    }
}
