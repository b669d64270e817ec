//! The format of archives, version 3, and their writer and reader.
//!
//! All numbers are little-endian, and have 32 bits unless stated otherwise. A text is its length
//! (64 bits) and its bytes.
//!
//! | field | content |
//! | --- | --- |
//! | header | `OutDedup`, the version, 0 |
//! | chunks | the stored form of each different chunk, in order of first occurrence |
//! | index: chunks | their number (64 bits); of each: stored length, length, CRC-32, SHA-256 |
//! | index: size | the number of bytes of the chunks of all files together (64 bits) |
//! | index: entries | their number (64 bits); of each: attributes, name (a text), content |
//! | trailer | where the index begins (64 bits), its length (64 bits), SHA-256 of index and these two, `pudeDtuO` |
//!
//! The stored form of a chunk is raw deflate, or the chunk itself if that is not longer. The CRC-32
//! is of the stored form, the SHA-256 of the chunk. The attributes of an entry:
//!
//! | attribute | encoding |
//! | --- | --- |
//! | kind | 8 bits: 0 directory, 1 file, 2 link, 3 hard link |
//! | parts | 8 bits: 1 if it has an owner, plus 2 if it has extended attributes |
//! | mode | the lower twelve bits of the mode |
//! | modified | seconds since 1970 (64 bits, signed) and nanoseconds |
//! | owner | if it has one: user ID and group ID |
//! | extended attributes | if any: number (64 bits); name, value (texts) of each; ordered by name |
//!
//! The content of an entry depends on its kind. A directory has none. A file has the number of its
//! holes (64 bits), the offset and length of each hole (64 bits each), the number of its chunks (64
//! bits), and the chunk numbers. A hole begins at the start of the file or at the end of a chunk;
//! the chunks fill the rest, in their order. A link has its target (a text). A hard link has the
//! entry number of its file (64 bits), which is an earlier entry.
//!
//! Version 2 is read as well. Its entries have no parts, times or holes, and modes of nine bits. It
//! has no hard links.
//!
//! Every byte is checked: the stored form of a chunk has a CRC-32, and the chunk has a SHA-256,
//! too; the index has a SHA-256; header and trailer have only one valid form. So a damaged archive
//! is refused, and the error says where it is damaged. A malicious archive cannot have names that
//! lead out of the target directory, nor chunks longer than [`chunk::MAX`](super::chunk::MAX). It
//! can name a chunk very often, so its files can be much longer than the archive. Therefore it
//! declares their total size, which is checked when the index is read, and
//! [`unpack`](super::unpack) checks the free space before it creates anything.
//!
//! Declared lengths are checked against the bytes present before memory is allocated, so reading
//! takes at most some ten times the index in memory. A long archive may be sparse, and so may its
//! index: an index is read only if it is not longer than [`INDEX`], or than
//! [the caller allows](Archive::open_at_most).

use super::attributes::Attributes;
use super::extents::{self, Span};
use super::format::{BEGINS, ENDS, HEADER, Index, OLDEST, Row, TRAILER, VERSION, header};
use super::pack::{self, Digest};
use super::{Summary, tree};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// The default limit of an index in bytes, enough for some 15 GB of different chunks.
pub const INDEX: u64 = 128 << 20;

/// An entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: parts with `/` between them.
    pub name: Vec<u8>,
    /// The archived attributes.
    pub attributes: Attributes,
    /// The contents.
    pub content: Content,
}

/// The content of an entry, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// The numbers of its chunks, in the order of the file.
        chunks: Vec<u32>,
        /// Its holes.
        holes: Vec<Span>,
    },
    /// A symbolic link, and its target.
    Link(Vec<u8>),
    /// A hard link to the file with this entry number.
    HardLink(usize),
}

impl Entry {
    /// Returns the number of bytes of its holes.
    fn hole_bytes(&self) -> u64 {
        match &self.content {
            Content::File { holes, .. } => holes.iter().map(|hole| hole.len).sum(),
            _ => 0,
        }
    }
}

/// The reason why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The operating system reported an error.
    #[error("the archive cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The source is not an archive.
    #[error("this is not an archive: it does not begin with \u{201c}OutDedup\u{201d}")]
    Foreign,
    /// The version of the archive is not supported.
    #[error(
        "the archive has version {found}, and this program reads versions {OLDEST} to {VERSION}; \
         unpack it with the program that created it"
    )]
    Version {
        /// The value that was found.
        found: u32,
    },
    /// The archive does not end with a trailer.
    #[error(
        "the archive is cut off, or bytes were added: its {len} bytes do not end with the position \
         of its index"
    )]
    Ends {
        /// The length of the archive in bytes.
        len: u64,
    },
    /// The index is longer than allowed.
    #[error(
        "the archive's index has {len} bytes, and at most {most} are read, because it takes \
         memory: if you trust the author of the archive, allow more with --max-index {}M",
        len.div_ceil(1 << 20)
    )]
    IndexLen {
        /// The length of the index in bytes.
        len: u64,
        /// The maximum number of bytes that are read.
        most: u64,
    },
    /// The index is damaged.
    #[error(
        "the archive's index, {len} bytes from byte {at} on, is damaged: its checksum is wrong"
    )]
    IndexSum {
        /// The offset of the index.
        at: u64,
        /// The length of the index in bytes.
        len: u64,
    },
    /// The index is invalid although its checksum is right.
    #[error("the archive's index is wrong at byte {at}: {what}")]
    Index {
        /// The offset.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The files have another size than the archive says.
    #[error("the archive declares {declared} bytes in total, but its files have {found}")]
    Total {
        /// The declared size in bytes.
        declared: u64,
        /// The size of the files in bytes.
        found: u64,
    },
    /// An entry has an invalid name.
    #[error("\u{201c}{name}\u{201d} cannot be unpacked: {what}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A chunk is damaged.
    #[error("chunk {number}, {len} bytes from byte {at} on, is damaged: {what}")]
    Chunk {
        /// Its number.
        number: u32,
        /// The offset of its stored form.
        at: u64,
        /// The length of its stored form in bytes.
        len: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// The different chunks, and the chunks of each file. It combines the results of tasks, in the
/// order of the files.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    numbers: HashMap<Digest, u32>,
    /// The digest and length of each chunk.
    chunks: Vec<(Digest, u32)>,
    entries: Vec<Entry>,
    occurrences: u64,
    bytes: u64,
}

impl Catalog {
    /// Enters a chunk of `len` bytes. Returns its number, and whether it is new and must be packed;
    /// `None` if there are more chunks than can be numbered.
    ///
    /// # Panics
    /// If it is longer than a chunk can be.
    pub fn enter(&mut self, digest: Digest, len: usize) -> Option<(u32, bool)> {
        let next = u32::try_from(self.chunks.len()).ok()?;
        let number = *self.numbers.entry(digest).or_insert(next);
        Some((number, self.enter_as(number, digest, len)?))
    }

    /// Enters a chunk that was numbered elsewhere; chunks must be entered in the order in which
    /// they occur. Returns whether it is new; `None` if it cannot have that number.
    ///
    /// # Panics
    /// If it is longer than a chunk can be.
    pub fn enter_as(&mut self, number: u32, digest: Digest, len: usize) -> Option<bool> {
        assert!((1..=super::chunk::MAX).contains(&len));
        let is_new = match self.chunks.get(number as usize) {
            Some(known) if *known != (digest, len as u32) => return None,
            Some(_) => false,
            None if number as usize != self.chunks.len() => return None,
            None => true,
        };
        if is_new {
            self.chunks.push((digest, len as u32));
        }
        self.occurrences += 1;
        self.bytes += len as u64;
        Some(is_new)
    }

    /// Adds the entry `source`, with these chunks if it is a file.
    pub fn add(&mut self, source: &tree::Source, chunks: Vec<u32>) {
        self.entries.push(Entry {
            name: source.name.clone(),
            attributes: source.attributes.clone(),
            content: match &source.content {
                tree::Content::Directory => Content::Directory,
                tree::Content::File(file) => Content::File {
                    chunks,
                    holes: extents::holes(&file.data, file.len),
                },
                tree::Content::Link(target) => Content::Link(target.clone()),
                tree::Content::HardLink(first) => Content::HardLink(*first),
            },
        });
    }
}

/// Writes an archive, from its first byte to its last.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    at: u64,
    /// The stored length of each chunk, and the CRC-32 of its stored form.
    kept: Vec<(u32, u32)>,
}

impl<W: Write> Writer<W> {
    /// Begins an archive.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&header(VERSION))?;
        Ok(Self {
            out,
            at: HEADER,
            kept: Vec::new(),
        })
    }

    /// Returns the destination.
    pub(super) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the stored form of the next chunk, in the order of their numbers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn chunk(&mut self, packed: &[u8]) -> io::Result<()> {
        self.out.write_all(packed)?;
        self.kept
            .push((packed.len() as u32, crc32fast::hash(packed)));
        self.at += packed.len() as u64;
        Ok(())
    }

    /// Writes the index and ends the archive.
    ///
    /// # Errors
    /// If it cannot be written.
    ///
    /// # Panics
    /// If the number of written chunks differs from that of the catalog.
    pub fn finish(mut self, catalog: &Catalog) -> io::Result<Summary> {
        self.end(catalog)
    }

    /// Does the same as [`finish`](Self::finish), without consuming the writer.
    pub(super) fn end(&mut self, catalog: &Catalog) -> io::Result<Summary> {
        assert_eq!(
            self.kept.len(),
            catalog.chunks.len(),
            "a chunk was not written"
        );
        let rows = self.kept.iter().zip(&catalog.chunks);
        let index = Index {
            chunks: rows
                .map(|((packed_len, sum), (digest, len))| Row {
                    at: 0,
                    packed_len: *packed_len,
                    len: *len,
                    sum: *sum,
                    digest: *digest,
                })
                .collect(),
            entries: catalog.entries.clone(),
            bytes: catalog.bytes,
        };
        let index = index.encode();
        self.out.write_all(&index)?;
        self.out.write_all(&trailer(&index, self.at))?;
        self.out.flush()?;
        let count = |is: fn(&Content) -> bool| {
            let contents = catalog.entries.iter().map(|entry| &entry.content);
            contents.filter(|content| is(content)).count() as u64
        };
        let entries = catalog.entries.iter();
        Ok(Summary {
            files: count(|content| matches!(content, Content::File { .. })),
            bytes: catalog.bytes,
            hard_links: count(|content| matches!(content, Content::HardLink(_))),
            hole_bytes: (entries.map(Entry::hole_bytes)).fold(0, u64::saturating_add),
            chunks: catalog.occurrences,
            distinct: catalog.chunks.len() as u64,
            archive_bytes: self.at + index.len() as u64 + TRAILER,
        })
    }
}

/// Returns the trailer for an index that begins at byte `at`.
fn trailer(index: &[u8], at: u64) -> Vec<u8> {
    let place = [at.to_le_bytes(), (index.len() as u64).to_le_bytes()].concat();
    let sum = Sha256::new()
        .chain_update(index)
        .chain_update(&place)
        .finalize();
    [&place[..], &sum, ENDS].concat()
}

/// A source of an archive's bytes.
pub trait ReadAt {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// If it is not known.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let found = self.get(at..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An archive with a valid index.
#[derive(Debug)]
pub struct Archive<S> {
    source: S,
    index: Index,
}

impl<S: ReadAt> Archive<S> {
    /// Opens an archive: reads its header, its trailer and its index, if that has at most [`INDEX`]
    /// bytes.
    ///
    /// # Errors
    /// If it is not an archive, is damaged there, or has a longer index.
    pub fn open(source: S) -> Result<Self, ArchiveError> {
        Self::open_at_most(source, INDEX)
    }

    /// Opens an archive with an index of at most `most` bytes. Needs some ten times that memory.
    ///
    /// # Errors
    /// If it is not an archive, is damaged there, or has a longer index.
    pub fn open_at_most(source: S, most: u64) -> Result<Self, ArchiveError> {
        let len = source.size()?;
        let mut begins = [0; HEADER as usize];
        let known = begins.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        source.read_at(&mut begins[..known], 0)?;
        if begins[..8] != *BEGINS {
            return Err(ArchiveError::Foreign);
        }
        let ends = ArchiveError::Ends { len };
        if len < HEADER + TRAILER {
            return Err(ends);
        }
        let found = u32::from_le_bytes([begins[8], begins[9], begins[10], begins[11]]);
        if !(OLDEST..=VERSION).contains(&found) {
            return Err(ArchiveError::Version { found });
        }
        if begins != header(found) {
            let what = "reserved bytes of the header are not 0";
            return Err(ArchiveError::Index { at: 12, what });
        }
        let mut last = [0; TRAILER as usize];
        source.read_at(&mut last, len - TRAILER)?;
        let [at, index_len] = [0, 8].map(|from| {
            let bytes = last[from..from + 8].iter().rev();
            bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let fits = at >= HEADER && at.checked_add(index_len) == Some(len - TRAILER);
        if last[48..] != *ENDS || !fits {
            return Err(ends);
        }
        if index_len > most {
            let len = index_len;
            return Err(ArchiveError::IndexLen { len, most });
        }
        let mut index = Vec::new();
        let room = usize::try_from(index_len).map_err(|_| ends)?;
        index
            .try_reserve_exact(room)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        index.resize(room, 0);
        source.read_at(&mut index, at)?;
        if trailer(&index, at) != last {
            return Err(ArchiveError::IndexSum { at, len: index_len });
        }
        let index = Index::decode(&index, at, found)?;
        Ok(Self { source, index })
    }

    /// Returns the archive's entries; every directory comes before its contents.
    pub fn entries(&self) -> &[Entry] {
        &self.index.entries
    }

    /// Returns the number of bytes of all files, without holes.
    pub fn bytes(&self) -> u64 {
        self.index.bytes
    }

    /// Returns the number of bytes the archive takes in blocks of `block` bytes. Every file takes
    /// at least one block, and every directory and every link takes one; a hard link takes none. So
    /// an archive of many empty entries is not small.
    pub fn bytes_in_blocks(&self, block: u64) -> u64 {
        let block = block.max(1);
        let each = self.entries().iter().map(|entry| match &entry.content {
            Content::File { chunks, holes } => self.blocks_of(chunks, holes, block),
            Content::Directory | Content::Link(_) => 1,
            Content::HardLink(_) => 0,
        });
        let blocks = each.fold(0, u64::saturating_add);
        blocks.saturating_mul(block)
    }

    /// Returns the number of blocks that a file takes.
    pub(super) fn blocks_of(&self, chunks: &[u32], holes: &[Span], block: u64) -> u64 {
        // `next` is the first block that is not counted yet.
        let (mut blocks, mut next) = (0, 0);
        for (at, number) in self.pieces(chunks, holes) {
            let end = at + u64::from(self.index.chunks[number as usize].len);
            let (first, after) = ((at / block).max(next), end.div_ceil(block));
            blocks += after.saturating_sub(first);
            next = next.max(after);
        }
        blocks.max(1)
    }

    /// Returns the offset and number of each chunk of a file.
    pub(super) fn pieces(
        &self,
        chunks: &[u32],
        holes: &[Span],
    ) -> impl Iterator<Item = (u64, u32)> {
        let (mut at, mut holes) = (0, holes.iter().peekable());
        chunks.iter().map(move |number| {
            if let Some(hole) = holes.next_if(|hole| hole.start == at) {
                at = hole.end();
            }
            let begin = at;
            at += u64::from(self.index.chunks[*number as usize].len);
            (begin, *number)
        })
    }

    /// Returns the length of a file with these chunks and holes.
    pub(super) fn len_of(&self, chunks: &[u32], holes: &[Span]) -> u64 {
        let chunks = chunks
            .iter()
            .map(|number| self.index.chunks[*number as usize].len.into());
        chunks.chain(holes.iter().map(|hole| hole.len)).sum()
    }

    /// Returns whether the owners of all entries are archived.
    pub fn has_owners(&self) -> bool {
        let mut entries = self.entries().iter();
        entries.all(|entry| entry.attributes.owner.is_some())
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u32 {
        self.index.chunks.len() as u32
    }

    /// Restores chunk `number` in `chunk`. `packed` is a scratch buffer.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    ///
    /// # Panics
    /// If the chunk does not exist.
    pub fn restore(
        &self,
        number: u32,
        packed: &mut Vec<u8>,
        chunk: &mut Vec<u8>,
    ) -> Result<(), ArchiveError> {
        let Row {
            at,
            packed_len,
            len,
            sum,
            digest,
        } = self.index.chunks[number as usize];
        let damaged = |what| {
            Err(ArchiveError::Chunk {
                number,
                at,
                len: packed_len,
                what,
            })
        };
        packed.resize(packed_len as usize, 0);
        self.source.read_at(packed, at)?;
        if crc32fast::hash(packed) != sum {
            return damaged("its checksum is wrong");
        }
        if !pack::unpack(packed, len as usize, chunk) {
            return damaged("it cannot be decompressed");
        }
        if pack::digest(chunk) != digest {
            return damaged("its SHA-256 is wrong");
        }
        Ok(())
    }

    /// Restores every chunk, which proves that all of the archive can be unpacked. Returns their
    /// number of bytes.
    ///
    /// # Errors
    /// At the first damaged chunk.
    pub fn check(&self) -> Result<u64, ArchiveError> {
        let (mut packed, mut chunk, mut bytes) = (Vec::new(), Vec::new(), 0);
        for number in 0..self.chunks() {
            self.restore(number, &mut packed, &mut chunk)?;
            bytes += chunk.len() as u64;
        }
        Ok(bytes)
    }
}

/// Puts the right checksum on a changed index, for tests of invalid indexes.
#[cfg(test)]
pub(super) fn seal(archive: &mut [u8]) {
    let end = archive.len() - TRAILER as usize;
    let at = u64::from_le_bytes(archive[end..end + 8].try_into().unwrap());
    let trailer = trailer(&archive[at as usize..end], at);
    archive[end..].copy_from_slice(&trailer);
}
