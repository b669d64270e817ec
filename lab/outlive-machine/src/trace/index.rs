//! The end of a trace: the index of its blocks, and the footer.

use super::block::{HEADER, Header, Kind};
use super::{Flaw, MAGIC, TraceError, VERSION};

/// Bytes before the first block.
pub(super) const START: u64 = 16;
const FOOTER: u64 = 32;
const ENTRY: usize = 16;
/// The bytes of an index that are read at once.
const PIECE: u64 = 1 << 20;
const END: [u8; 8] = *b"ecarTtuO";

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub offset: u64,
    /// In bytes, with the header.
    pub length: u64,
    pub kind: Kind,
    pub thread: u32,
}

/// Returns the first bytes of a trace.
pub(super) fn start() -> [u8; START as usize] {
    let mut bytes = [0; START as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Returns the index and footer of a trace whose blocks end at byte `end`.
pub(super) fn encode(places: &[Place], end: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.len() * ENTRY + FOOTER as usize);
    for place in places {
        out.extend_from_slice(&place.offset.to_le_bytes());
        out.extend_from_slice(&place.thread.to_le_bytes());
        out.extend_from_slice(&[place.kind as u8, 0, 0, 0]);
    }
    out.extend_from_slice(&end.to_le_bytes());
    out.extend_from_slice(&(places.len() as u64).to_le_bytes());
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&END);
    out
}

/// Returns the reason why a file does not end with a footer. Each block's header has its length,
/// and the number of blocks gives the length of the rest.
fn without_end(
    length: u64,
    mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, TraceError>,
) -> Result<TraceError, TraceError> {
    let truncated = TraceError::Truncated { length };
    let (mut at, mut blocks) = (START, 0);
    while at + HEADER as u64 <= length {
        let header = read(at, HEADER)?.try_into();
        let Ok(header) = Header::parse(&header.expect("as long as requested")) else {
            break;
        };
        at += (HEADER + header.stored) as u64;
        blocks += 1;
    }
    let end = at + blocks * ENTRY as u64 + FOOTER;
    if end > length {
        return Ok(truncated);
    }
    let last = end - END.len() as u64;
    let ends = read(last, END.len())? == END;
    Ok(match length - end {
        bytes @ 1.. if ends => TraceError::damaged(end, Flaw::Follows { bytes }),
        0 => TraceError::damaged(last, Flaw::End),
        // Neither a block nor the end is there.
        _ => TraceError::damaged(at, Flaw::NoBlock),
    })
}

/// Returns the locations of all blocks of a trace of `length` bytes, in the order of the file, with
/// no gaps between them.
pub(super) fn read(
    length: u64,
    mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, TraceError>,
) -> Result<Vec<Place>, TraceError> {
    let truncated = TraceError::Truncated { length };
    let start = read(0, START.min(length) as usize)?;
    let magic = start.len().min(MAGIC.len());
    if start[..magic] != MAGIC[..magic] {
        return Err(TraceError::Foreign);
    }
    if length < START {
        return Err(truncated);
    }
    let found = u32::from_le_bytes(start[8..12].try_into().expect("four bytes"));
    if found != VERSION {
        return Err(TraceError::Version {
            found,
            known: VERSION,
        });
    }
    if start[12..] != [0; 4] {
        return Err(TraceError::damaged(12, Flaw::Reserved));
    }
    let Some(footer_at) = length.checked_sub(FOOTER).filter(|at| *at >= START) else {
        return Err(truncated);
    };
    let footer = read(footer_at, FOOTER as usize)?;
    if footer[24..] != END {
        return Err(without_end(length, read)?);
    }
    let number =
        |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().expect("eight bytes"));
    let (end, count) = (number(0), number(8));
    let fits = count
        .checked_mul(ENTRY as u64)
        .and_then(|bytes| end.checked_add(bytes))
        == Some(footer_at);
    if !fits || end < START || footer[20..24] != [0; 4] {
        return Err(TraceError::damaged(
            footer_at,
            Flaw::Field("place of the index"),
        ));
    }
    let mut places: Vec<Place> = Vec::new();
    let mut sum = crc32fast::Hasher::new();
    let mut entry_at = end;
    // In pieces, so that a forged number of entries does not take more memory than the file has.
    while entry_at < footer_at {
        let piece = read(entry_at, (footer_at - entry_at).min(PIECE) as usize)?;
        sum.update(&piece);
        for entry in piece.chunks_exact(ENTRY) {
            let damaged = |flaw| TraceError::damaged(entry_at, flaw);
            let offset = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
            let kind = Kind::of(entry[12]).ok_or(damaged(Flaw::Field("kind of a block")))?;
            if entry[13..] != [0; 3] {
                return Err(damaged(Flaw::Reserved));
            }
            if !follows(places.last_mut(), offset) {
                return Err(damaged(Flaw::Field("place of a block")));
            }
            places.push(Place {
                offset,
                length: 0,
                kind,
                thread: u32::from_le_bytes(entry[8..12].try_into().expect("four bytes")),
            });
            entry_at += ENTRY as u64;
        }
    }
    sum.update(&footer[..16]);
    if sum.finalize().to_le_bytes() != footer[16..20] {
        return Err(TraceError::damaged(end, Flaw::Checksum));
    }
    if !follows(places.last_mut(), end) {
        return Err(TraceError::damaged(end, Flaw::Field("place of the index")));
    }
    Ok(places)
}

/// Returns whether `offset` is a possible end of the block `last`, or the beginning of the file's
/// blocks if there is none. Sets the block's length accordingly.
fn follows(last: Option<&mut Place>, offset: u64) -> bool {
    let Some(last) = last else {
        return offset == START;
    };
    last.length = offset.saturating_sub(last.offset);
    last.length >= HEADER as u64
}
