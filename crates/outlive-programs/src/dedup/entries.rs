//! Encoding and decoding of the entries of an index. [`archive`](super::archive) describes the
//! format.

use super::archive::{ArchiveError, Content, Entry};
use super::attributes::{Attributes, MODE, Owner, Time, Xattr};
use super::extents::Span;
use super::format::{Reader, Row};
use std::collections::HashMap;

const DIRECTORY: u8 = 0;
const FILE: u8 = 1;
const LINK: u8 = 2;
const HARD_LINK: u8 = 3;

/// Flags of the optional parts of an entry.
const OWNER: u8 = 1;
const XATTRS: u8 = 2;

/// Returns the least size of an entry in bytes.
const fn least(version: u32) -> usize {
    if version == 2 { 13 } else { 26 }
}
/// The size of a hole in bytes, and the least size of an extended attribute.
const HOLE: usize = 16;
const XATTR: usize = 17;
/// The limits of Linux for files and for values of extended attributes, in bytes.
const LONGEST_FILE: u64 = i64::MAX as u64;
const LONGEST_VALUE: usize = 1 << 16;

/// Appends `entry` to `bytes`.
pub fn encode(entry: &Entry, bytes: &mut Vec<u8>) {
    let Attributes {
        mode,
        modified,
        owner,
        xattrs,
    } = &entry.attributes;
    bytes.push(match &entry.content {
        Content::Directory => DIRECTORY,
        Content::File { .. } => FILE,
        Content::Link(_) => LINK,
        Content::HardLink(_) => HARD_LINK,
    });
    let parts = if owner.is_some() { OWNER } else { 0 };
    bytes.push(parts | if xattrs.is_empty() { 0 } else { XATTRS });
    bytes.extend(mode.to_le_bytes());
    let modified = modified.unwrap_or(Time {
        seconds: 0,
        nanos: 0,
    });
    bytes.extend(modified.seconds.to_le_bytes());
    bytes.extend(modified.nanos.to_le_bytes());
    if let Some(Owner { user, group }) = owner {
        bytes.extend([user.to_le_bytes(), group.to_le_bytes()].concat());
    }
    if !xattrs.is_empty() {
        long(bytes, xattrs.len() as u64);
        for Xattr { name, value } in xattrs {
            text(bytes, name);
            text(bytes, value);
        }
    }
    text(bytes, &entry.name);
    match &entry.content {
        Content::Directory => {}
        Content::File { chunks, holes } => {
            long(bytes, holes.len() as u64);
            for hole in holes {
                long(bytes, hole.start);
                long(bytes, hole.len);
            }
            long(bytes, chunks.len() as u64);
            bytes.extend(chunks.iter().flat_map(|number| number.to_le_bytes()));
        }
        Content::Link(target) => text(bytes, target),
        Content::HardLink(first) => long(bytes, *first as u64),
    }
}

fn long(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    long(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

/// An entry in its encoded form.
struct Raw<'b> {
    kind: u8,
    mode: u32,
    modified: Option<Time>,
    owner: Option<Owner>,
    xattrs: &'b [u8],
    xattr_count: usize,
    name: &'b [u8],
    holes: &'b [u8],
    chunks: &'b [u8],
    target: &'b [u8],
    first: u64,
}

impl<'b> Raw<'b> {
    /// Reads the next entry without allocating.
    fn read(reader: &mut Reader<'b>, version: u32) -> Result<Self, ArchiveError> {
        let kind = reader.take(1)?[0];
        let parts = if version == 2 { 0 } else { reader.take(1)?[0] };
        if parts & !(OWNER | XATTRS) != 0 {
            return Err(reader.wrong("an entry has unknown optional parts"));
        }
        let mode = reader.number()?;
        let modified = match version {
            2 => None,
            _ => Some(Time {
                seconds: reader.long()? as i64,
                nanos: reader.number()?,
            }),
        };
        let owner = match parts & OWNER {
            0 => None,
            _ => Some(Owner {
                user: reader.number()?,
                group: reader.number()?,
            }),
        };
        let (mut xattrs, mut xattr_count) = (&[][..], 0);
        if parts & XATTRS != 0 {
            xattr_count = reader.count(XATTR)?;
            let mut after = *reader;
            for _ in 0..xattr_count {
                after.text()?;
                after.text()?;
            }
            xattrs = reader.take(reader.left() - after.left())?;
        }
        let mut raw = Self {
            kind,
            mode,
            modified,
            owner,
            xattrs,
            xattr_count,
            name: reader.text()?,
            holes: &[],
            chunks: &[],
            target: &[],
            first: 0,
        };
        match kind {
            DIRECTORY => {}
            FILE => {
                if version > 2 {
                    let count = reader.count(HOLE)?;
                    raw.holes = reader.take(count * HOLE)?;
                }
                let count = reader.count(4)?;
                raw.chunks = reader.take(count * 4)?;
            }
            LINK => raw.target = reader.text()?,
            HARD_LINK if version > 2 => raw.first = reader.long()?,
            _ => return Err(reader.wrong("an entry is neither a file, a directory nor a link")),
        }
        Ok(raw)
    }

    fn xattrs(&self, reader: &Reader<'_>) -> Result<Vec<Xattr>, ArchiveError> {
        let mut inner = Reader::of(self.xattrs);
        let mut xattrs: Vec<Xattr> = Vec::with_capacity(self.xattr_count);
        for _ in 0..self.xattr_count {
            let (name, value) = (inner.text()?, inner.text()?);
            let is_name = !name.is_empty() && name.len() <= 255 && !name.contains(&0);
            if !is_name || value.len() > LONGEST_VALUE {
                return Err(reader.wrong("an extended attribute cannot be set: bad name or length"));
            }
            if xattrs.last().is_some_and(|last| *last.name >= *name) {
                return Err(reader
                    .wrong("extended attributes are not sorted by name, or a name occurs twice"));
            }
            let (name, value) = (name.to_vec(), value.to_vec());
            xattrs.push(Xattr { name, value });
        }
        Ok(xattrs)
    }

    fn attributes(&self, reader: &Reader<'_>, version: u32) -> Result<Attributes, ArchiveError> {
        let most = if version == 2 { 0o777 } else { MODE };
        if self.mode > most {
            return Err(reader.wrong("an entry has invalid permissions"));
        }
        if self
            .modified
            .is_some_and(|time| time.nanos >= 1_000_000_000)
        {
            return Err(reader.wrong("an entry has a time with more than 999999999 nanoseconds"));
        }
        // chown(2) takes this value as "leave unchanged".
        let none = u32::MAX;
        if { self.owner }.is_some_and(|owner| owner.user == none || owner.group == none) {
            return Err(reader.wrong("an entry has an owner with an invalid ID"));
        }
        Ok(Attributes {
            mode: self.mode,
            modified: self.modified,
            owner: self.owner,
            xattrs: self.xattrs(reader)?,
        })
    }

    /// Returns the content of a file, and the number of bytes of its chunks.
    fn file(&self, reader: &Reader<'_>, chunks: &[Row]) -> Result<(Content, u64), ArchiveError> {
        let numbers = self.chunks.as_chunks::<4>().0;
        let numbers: Vec<u32> = numbers.iter().map(|n| u32::from_le_bytes(*n)).collect();
        let holes: Vec<Span> = { self.holes.as_chunks::<HOLE>().0.iter() }
            .map(|hole| {
                let [start, len] = [0, 8].map(|at| {
                    u64::from_le_bytes(hole[at..at + 8].try_into().expect("of eight bytes"))
                });
                Span { start, len }
            })
            .collect();
        let (mut at, mut bytes, mut left) = (0u64, 0, holes.iter().peekable());
        for number in numbers.iter().map(Some).chain([None]) {
            // Saturated lengths are refused below.
            if let Some(hole) = left.next_if(|hole| hole.start == at) {
                if hole.len == 0 {
                    return Err(reader.wrong("a file has a hole without bytes"));
                }
                at = hole.end();
            }
            if let Some(number) = number {
                let chunk = chunks.get(*number as usize);
                let chunk =
                    chunk.ok_or_else(|| reader.wrong("a file has a chunk that does not exist"))?;
                // An overflow would take an index of 2^50 bytes.
                bytes += u64::from(chunk.len);
                at = at.saturating_add(chunk.len.into());
            }
        }
        if left.next().is_some() {
            return Err(reader.wrong("a file has a hole that does not begin where a chunk ends"));
        }
        if at > LONGEST_FILE {
            return Err(reader.wrong("a file has 2^63 bytes or more"));
        }
        let content = Content::File {
            chunks: numbers,
            holes,
        };
        Ok((content, bytes))
    }
}

/// Reads the entries of an index with these chunks. Returns them, and the number of bytes of their
/// files without holes.
pub fn decode(
    reader: &mut Reader<'_>,
    version: u32,
    chunks: &[Row],
) -> Result<(Vec<Entry>, u64), ArchiveError> {
    let count = reader.count(least(version))?;
    let there = entries_there(*reader, count, version);
    let mut entries: Vec<Entry> = Vec::with_capacity(there);
    // The names so far, and whether each is a directory.
    let mut names: HashMap<&[u8], bool> = HashMap::with_capacity(there);
    let mut bytes = 0;
    for _ in 0..count {
        let raw = Raw::read(reader, version)?;
        let name = raw.name;
        check_name(name, &names)?;
        if names.insert(name, raw.kind == DIRECTORY).is_some() {
            return Err(bad_name(name, "the archive has this name twice"));
        }
        let content = match raw.kind {
            DIRECTORY => Content::Directory,
            FILE => {
                let (content, of_file) = raw.file(reader, chunks)?;
                bytes += of_file;
                content
            }
            LINK if raw.target.is_empty() || raw.target.contains(&0) => {
                return Err(bad_name(
                    name,
                    "the target of the link is empty or contains NUL",
                ));
            }
            LINK => Content::Link(raw.target.to_vec()),
            _ => {
                let first = usize::try_from(raw.first).unwrap_or(usize::MAX);
                let is_file = |entry: &Entry| matches!(entry.content, Content::File { .. });
                if !entries.get(first).is_some_and(is_file) {
                    return Err(bad_name(
                        name,
                        "the target of the hard link is not an earlier file",
                    ));
                }
                Content::HardLink(first)
            }
        };
        entries.push(Entry {
            name: name.to_vec(),
            attributes: raw.attributes(reader, version)?,
            content,
        });
    }
    Ok((entries, bytes))
}

/// Returns how many of the declared `count` entries are present, without allocating. The caller
/// then allocates memory once, for these entries only, even if `count` is too large.
fn entries_there(mut reader: Reader<'_>, count: usize, version: u32) -> usize {
    // Entries without a name are refused. A run of zeros would be read as many of them.
    let mut is_there = || Raw::read(&mut reader, version).is_ok_and(|entry| !entry.name.is_empty());
    (0..count).take_while(|_| is_there()).count()
}

fn bad_name(name: &[u8], what: &'static str) -> ArchiveError {
    let name = String::from_utf8_lossy(&name[..name.len().min(200)]).into_owned();
    ArchiveError::Name { name, what }
}

/// Checks that `name` stays inside the target directory, and that its parent directory is an
/// earlier entry.
fn check_name(name: &[u8], names: &HashMap<&[u8], bool>) -> Result<(), ArchiveError> {
    let leads_away = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
    if name.split(|byte| *byte == b'/').any(leads_away) {
        return Err(bad_name(name, "it leads out of the archive"));
    }
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(end) if names.get(&name[..end]) != Some(&true) => Err(bad_name(
            name,
            "its parent directory is not an earlier entry",
        )),
        _ => Ok(()),
    }
}
