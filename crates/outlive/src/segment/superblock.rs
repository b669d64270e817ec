//! The first page of a segment: its identity, and the places of its areas.
//!
//! The page is written once, when the segment is created, and never changes. A reader loads it once
//! into private memory, checks the copy and uses only that, so that a later corruption of the page
//! cannot mislead it.
//!
//! ```text
//!    0  magic            "OUTLIVE\x01"; "OUTLNNNN" with other bytes while it is being created
//!    8  byte order       0x0A0B0C0D, as the creator's processor stores it
//!   12  format           the number of the format, below
//!   16  checksum         CRC-32 of the whole page but for these four bytes (and with the complete magic)
//!   20  number of areas
//!   24  pod uuid         16 bytes
//!   40  size             of the segment in bytes, a multiple of 4096
//!   48  domain           1 flushed, 2 write-back
//!   52  reserved         0
//!   56  created          seconds since 1970
//!   64  areas            32 places of 64 bytes: kind, class, offset, size, name
//! 2112  reserved         0 up to 4096
//! ```
//!
//! Numbers are in the byte order of the processor that created the segment; a processor of the
//! other order refuses it. The first 24 bytes and the extent of the checksum mean the same in every
//! format, forever, so that damage can be told from an unknown format.

use super::area::{Area, AreaClass, AreaKind, AreaName};
use super::roots::Roots;
use bytemuck::{Pod, Zeroable};
use core::fmt;
use outlive_memory::{Native, Offset, PersistenceDomain};
use uuid::Uuid;

/// The size of a superblock: one page.
pub(super) const SUPERBLOCK_BYTES: u64 = 4096;
/// A superblock's bytes.
pub(super) type Page = [u8; SUPERBLOCK_BYTES as usize];
/// The maximum number of areas of a segment.
pub(super) const MOST_AREAS: usize = 32;

/// The first word of a complete segment.
const COMPLETE: [u8; 8] = *b"OUTLIVE\x01";
/// The first half of the first word, complete or not.
const OURS: [u8; 4] = *b"OUTL";
const BYTE_ORDER: u32 = 0x0A0B_0C0D;
const CHECKSUM_AT: usize = 16;

/// Returns the first word of a segment that is being created, told apart from other attempts by
/// `nonce`.
pub(super) fn incomplete_word(nonce: u32) -> u64 {
    let mut bytes = COMPLETE;
    let complete_half = u32::from_ne_bytes([COMPLETE[4], COMPLETE[5], COMPLETE[6], COMPLETE[7]]);
    let nonce = if nonce == complete_half { 0 } else { nonce };
    bytes[4..].copy_from_slice(&nonce.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// The meaning of the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Magic {
    Zero,
    Incomplete,
    Complete,
    Foreign,
}

impl Magic {
    pub fn of(word: u64) -> Self {
        let bytes = word.to_ne_bytes();
        match bytes {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Zero,
            COMPLETE => Self::Complete,
            _ if bytes[..4] == OURS => Self::Incomplete,
            _ => Self::Foreign,
        }
    }
}

/// The description of a segment in its first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The identity of the pod that this segment belongs to.
    pub uuid: Uuid,
    /// The size of the segment in bytes.
    pub size: u64,
    /// The persistence domain: which stores survive the loss of a host's caches.
    pub domain: PersistenceDomain,
    /// The time of its creation, in seconds since 1970, by the creator's clock.
    pub created: u64,
    /// The areas of the segment.
    pub areas: Vec<Area>,
}

/// The reason why a byte range is not accepted as a segment. Positions are byte offsets from its
/// start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The segment's creator has not finished, or died before it finished.
    #[error(
        "the segment was never completed ({0}): if no process is creating it now, remove it and \
         create it again"
    )]
    NeverCompleted(Unfinished),
    /// There are fewer bytes than a superblock has, or than the superblock names.
    #[error(
        "truncated: a segment of {expected} bytes has only {found} here; copy the whole segment \
         again"
    )]
    Truncated {
        /// The minimal number of bytes expected.
        expected: u64,
        /// The number of bytes found.
        found: u64,
    },
    /// The range begins with bytes that Outlive never writes.
    #[error("not an Outlive segment: it begins with {:02x?} at 0x0", .0)]
    Foreign([u8; 8]),
    /// The segment was created by a processor of the other byte order.
    #[error(
        "foreign layout: created on a processor of the other byte order (0x8 holds {0:#010x}); use \
         it on such a processor"
    )]
    ForeignByteOrder(u32),
    /// The checksum does not match.
    #[error(
        "corrupt superblock: the checksum at 0x10 is {stored:#010x}, the page's is \
         {computed:#010x}; create a new segment"
    )]
    Corrupt {
        /// The checksum in the superblock.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// Its format is of a later version of Outlive.
    #[error(
        "format {found} (at 0xc) is too new for this library, which reads formats up to {newest}: \
         use a newer Outlive"
    )]
    Newer {
        /// The segment's format.
        found: u32,
        /// The newest that this library reads.
        newest: u32,
    },
    /// Its format is of an earlier version, which this one does not read any more.
    #[error(
        "format {found} (at 0xc) is too old for this library, which reads formats from {oldest}: \
         copy the contents to a new segment with an older Outlive"
    )]
    Older {
        /// The segment's format.
        found: u32,
        /// The oldest that this library reads.
        oldest: u32,
    },
    /// A field has a value that no library of this format writes.
    #[error("invalid {field} at {at:#x}: {value:#x} {why}; create a new segment")]
    Field {
        /// The field.
        field: &'static str,
        /// The offset.
        at: u64,
        /// The value.
        value: u64,
        /// The error in the value.
        why: &'static str,
    },
    /// Two areas share bytes.
    #[error(
        "the areas {first} and {second} of the table at 0x40 overlap at {at:#x}; create a new \
         segment"
    )]
    Overlap {
        /// Index of the one.
        first: usize,
        /// Index of the other.
        second: usize,
        /// The first byte that both have.
        at: u64,
    },
    /// Two areas are of one kind.
    #[error(
        "the areas {first} and {second} of the table at 0x40 are both `{kind}`; create a new \
         segment"
    )]
    Twice {
        /// Index of the one.
        first: usize,
        /// Index of the other.
        second: usize,
        /// The kind.
        kind: AreaKind,
    },
    /// An area that every segment has is missing.
    #[error("the table at 0x40 has no area `{0}`; create a new segment")]
    Missing(AreaKind),
}

/// The progress of an unfinished creation, as far as it can be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The medium has no bytes.
    Empty,
    /// The first page is all zeros.
    Zeroed,
    /// The first page is marked as being created.
    Marked,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::Zeroed => "its first page is all zeros",
            Self::Marked => "it is marked as being created",
        })
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawArea {
    kind: u32,
    class: u32,
    offset: u64,
    size: u64,
    name: [u8; AreaName::BYTES],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    byte_order: u32,
    format: u32,
    checksum: u32,
    area_count: u32,
    uuid: [u8; 16],
    size: u64,
    domain: u32,
    reserved: u32,
    created: u64,
    areas: [RawArea; MOST_AREAS],
}

const AREAS_AT: u64 = 64;
const AREA_BYTES: u64 = size_of::<RawArea>() as u64;
const _: () = assert!(size_of::<Raw>() as u64 == AREAS_AT + MOST_AREAS as u64 * AREA_BYTES);
const _: () = assert!(core::mem::offset_of!(Raw, areas) as u64 == AREAS_AT);
const _: () = assert!(core::mem::offset_of!(Raw, checksum) == CHECKSUM_AT);

/// Returns the checksum of a page as if its magic were complete.
fn checksum(page: &Page) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&COMPLETE);
    hasher.update(&page[COMPLETE.len()..CHECKSUM_AT]);
    hasher.update(&page[CHECKSUM_AT + 4..]);
    hasher.finalize()
}

impl Superblock {
    /// The format that this library writes.
    ///
    /// It stands for the layout of everything in a segment, not only of the superblock. The policy
    /// is in the [module's documentation](crate::segment#formats).
    pub const FORMAT: u32 = 7;
    /// The oldest format that this library reads.
    pub const OLDEST: u32 = 7;

    /// Returns the complete page with these contents.
    pub(super) fn encode(&self) -> Page {
        let mut raw = Raw::zeroed();
        raw.magic = COMPLETE;
        raw.byte_order = BYTE_ORDER;
        raw.format = Self::FORMAT;
        raw.area_count = self.areas.len() as u32;
        raw.uuid = *self.uuid.as_bytes();
        raw.size = self.size;
        raw.domain = match self.domain {
            PersistenceDomain::Flushed => 1,
            PersistenceDomain::WriteBack => 2,
        };
        raw.created = self.created;
        for (place, area) in raw.areas.iter_mut().zip(&self.areas) {
            *place = RawArea {
                kind: area.kind.code(),
                class: area.class.code(),
                offset: area.offset.byte(),
                size: area.size,
                name: area.name.to_bytes(),
            };
        }
        let mut page: Page = [0; SUPERBLOCK_BYTES as usize];
        page[..size_of::<Raw>()].copy_from_slice(bytemuck::bytes_of(&raw));
        let sum = checksum(&page);
        page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_ne_bytes());
        page
    }

    /// Reads the superblock in `bytes`, the beginning of a medium that has `capacity` bytes in all.
    ///
    /// Any bytes yield an error, or a superblock with valid numbers only: all areas lie inside
    /// `size`, which lies inside `capacity`, apart from one another, aligned, each kind once, the
    /// roots among them.
    ///
    /// # Errors
    /// Names the error and its place.
    pub fn decode(bytes: &[u8], capacity: u64) -> Result<Self, Refusal> {
        if capacity == 0 {
            return Err(Refusal::NeverCompleted(Unfinished::Empty));
        }
        // The magic comes first: foreign contents are reported as foreign even if they are short.
        let mut magic = [0; 8];
        let there = bytes.len().min(8);
        magic[..there].copy_from_slice(&bytes[..there]);
        match Magic::of(u64::from_ne_bytes(magic)) {
            Magic::Incomplete => return Err(Refusal::NeverCompleted(Unfinished::Marked)),
            Magic::Zero if bytes.iter().all(|&byte| byte == 0) => {
                return Err(Refusal::NeverCompleted(Unfinished::Zeroed));
            }
            Magic::Zero | Magic::Foreign => return Err(Refusal::Foreign(magic)),
            Magic::Complete => {}
        }
        let page: &Page = bytes
            .first_chunk()
            .filter(|_| capacity >= SUPERBLOCK_BYTES)
            .ok_or(Refusal::Truncated {
                expected: SUPERBLOCK_BYTES,
                found: capacity.min(bytes.len() as u64),
            })?;
        let raw: Raw = bytemuck::pod_read_unaligned(&page[..size_of::<Raw>()]);
        if raw.byte_order == BYTE_ORDER.swap_bytes() {
            return Err(Refusal::ForeignByteOrder(raw.byte_order));
        }
        let computed = checksum(page);
        if raw.checksum != computed {
            let stored = raw.checksum;
            return Err(Refusal::Corrupt { stored, computed });
        }
        if raw.byte_order != BYTE_ORDER {
            return Err(Refusal::ForeignByteOrder(raw.byte_order));
        }
        if raw.format > Self::FORMAT {
            let (found, newest) = (raw.format, Self::FORMAT);
            return Err(Refusal::Newer { found, newest });
        }
        if raw.format < Self::OLDEST {
            let (found, oldest) = (raw.format, Self::OLDEST);
            return Err(Refusal::Older { found, oldest });
        }
        raw.check(page, capacity)
    }
}

impl Raw {
    /// Checks the values: a page with wrong values can have a right checksum.
    fn check(&self, page: &Page, capacity: u64) -> Result<Superblock, Refusal> {
        let field = |field, at, value, why| Refusal::Field {
            field,
            at,
            value,
            why,
        };
        if self.size < SUPERBLOCK_BYTES || !self.size.is_multiple_of(Native::GRANULE) {
            return Err(field("size", 40, self.size, "is not a multiple of 4096"));
        }
        if self.size > Offset::SPAN {
            return Err(field("size", 40, self.size, "is more than 2^48"));
        }
        if self.size > capacity {
            return Err(Refusal::Truncated {
                expected: self.size,
                found: capacity,
            });
        }
        let domain = match self.domain {
            1 => PersistenceDomain::Flushed,
            2 => PersistenceDomain::WriteBack,
            other => {
                let why = "is not a persistence domain";
                return Err(field("domain", 48, other.into(), why));
            }
        };
        let count = self.area_count as usize;
        if count > MOST_AREAS {
            let why = "is more than 32";
            return Err(field("number of areas", 20, count as u64, why));
        }
        let used = AREAS_AT as usize + count * AREA_BYTES as usize;
        if let Some(at) = page[used..].iter().position(|&byte| byte != 0) {
            let (at, value) = ((used + at) as u64, page[used + at].into());
            return Err(field("reserved byte", at, value, "is not zero"));
        }
        if self.reserved != 0 {
            return Err(field(
                "reserved word",
                52,
                self.reserved.into(),
                "is not zero",
            ));
        }
        let mut areas: Vec<Area> = Vec::with_capacity(count);
        for (index, raw) in self.areas[..count].iter().enumerate() {
            let area = raw.check(AREAS_AT + index as u64 * AREA_BYTES, self.size)?;
            for (other, before) in areas.iter().enumerate() {
                if before.kind == area.kind {
                    return Err(Refusal::Twice {
                        first: other,
                        second: index,
                        kind: area.kind,
                    });
                }
                let at = before.offset.byte().max(area.offset.byte());
                if at < before.end().min(area.end()) {
                    return Err(Refusal::Overlap {
                        first: other,
                        second: index,
                        at,
                    });
                }
            }
            areas.push(area);
        }
        let roots = areas
            .iter()
            .position(|area| area.kind == AreaKind::Roots)
            .ok_or(Refusal::Missing(AreaKind::Roots))?;
        if areas[roots].size < Roots::<Native>::BYTES {
            let at = AREAS_AT + roots as u64 * AREA_BYTES + 16;
            let why = "is too small for the table of roots";
            return Err(field("area size", at, areas[roots].size, why));
        }
        Ok(Superblock {
            uuid: Uuid::from_bytes(self.uuid),
            size: self.size,
            domain,
            created: self.created,
            areas,
        })
    }
}

impl RawArea {
    fn check(&self, at: u64, size: u64) -> Result<Area, Refusal> {
        let field = |field, at, value, why| {
            Err(Refusal::Field {
                field,
                at,
                value,
                why,
            })
        };
        let Some(kind) = AreaKind::from_code(self.kind) else {
            return field("area kind", at, 0, "is not a kind");
        };
        let Some(class) = AreaClass::from_code(self.class) else {
            return field("area class", at + 4, self.class.into(), "is not a class");
        };
        if !self.offset.is_multiple_of(Native::GRANULE) {
            return field("area offset", at + 8, self.offset, "is not aligned to 4096");
        }
        if self.offset < SUPERBLOCK_BYTES || self.offset >= size {
            let why = "is outside the segment or in its superblock";
            return field("area offset", at + 8, self.offset, why);
        }
        if self.size == 0 || !self.size.is_multiple_of(Native::GRANULE) {
            return field("area size", at + 16, self.size, "is not a multiple of 4096");
        }
        if self.size > size - self.offset {
            let why = "reaches beyond the segment's end";
            return field("area size", at + 16, self.size, why);
        }
        let Some(name) = AreaName::from_bytes(self.name) else {
            let start = u64::from_ne_bytes(self.name[..8].try_into().expect("eight bytes"));
            return field("area name", at + 24, start, "is not a name");
        };
        Ok(Area {
            kind,
            name,
            class,
            offset: Offset::new(self.offset),
            size: self.size,
        })
    }
}

/// Returns the page with a matching checksum, for tests of the checks behind the checksum.
#[cfg(test)]
pub(super) fn sealed(mut page: Page) -> Page {
    let sum = checksum(&page);
    page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_ne_bytes());
    page
}

#[cfg(test)]
mod tests;
