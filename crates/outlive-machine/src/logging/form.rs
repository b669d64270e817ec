//! What a dump is made of.
//!
//! A dump is one gzip member (level 9). Inside, all numbers have the lowest byte first:
//!
//! | bytes | header |
//! | --- | --- |
//! | 8 | `RXLOGDMP` |
//! | 2 | version: 1 |
//! | 2 | the node whose unit saves |
//! | 4 | round |
//! | 8 | number of entries |
//!
//! | bytes | entry, from older to newer |
//! | --- | --- |
//! | 1 | node of the requester |
//! | 1 | core of the requester |
//! | 6 | word, less that of the entry before |
//! | 4 | commit, less that of the last entry of this node |
//! | 4 | epoch, less that of the entry before |
//! | 8 | value |
//!
//! What "less" is said of wraps round; before the first there is 0. Differences cost the unit a register each (one for each
//! node for the commits), and a program that goes through an array gives the same ones again and again. gzip's own checksum and length tell
//! damage.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use crate::program::Word;
use crate::protocol::{MAX_NODES, NodeId};

use super::entry::{Commit, Epoch, LogEntry, Requester};
use super::error::FormError;

const MAGIC: &[u8; 8] = b"RXLOGDMP";
const VERSION: u16 = 1;
const HEADER: usize = 24;

/// Bytes that an entry takes before it is compressed.
pub const ENTRY_BYTES: usize = 24;

/// A dump, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unpacked {
    /// The number of the node whose unit saved it.
    pub node: u16,
    /// In which round.
    pub round: u32,
    /// From older to newer.
    pub entries: Vec<LogEntry>,
}

/// What the entry before leaves for the next.
#[derive(Default)]
struct Before {
    word: u64,
    epoch: u32,
    commits: [u32; MAX_NODES],
}

/// The dump of these entries.
///
/// ```
/// use outlive_machine::logging::{Commit, Epoch, LogEntry, Requester, pack, unpack};
/// use outlive_machine::program::Word;
/// use outlive_machine::protocol::NodeId;
///
/// let requester = Requester { node: NodeId::new(2), core: 1 };
/// let entry = LogEntry { requester, commit: Commit(7), epoch: Epoch(3), word: Word(9), value: 1 };
/// let dump = pack(NodeId::new(5), 1, &[entry]);
/// assert_eq!(unpack(&dump)?.entries, [entry]);
/// assert!(unpack(&dump[..dump.len() - 1]).is_err());
/// # Ok::<(), outlive_machine::logging::FormError>(())
/// ```
pub fn pack(node: NodeId, round: u32, entries: &[LogEntry]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(HEADER + entries.len() * ENTRY_BYTES);
    plain.extend_from_slice(MAGIC);
    plain.extend_from_slice(&VERSION.to_le_bytes());
    plain.extend_from_slice(&(node.index() as u16).to_le_bytes());
    plain.extend_from_slice(&round.to_le_bytes());
    plain.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    let mut before = Before::default();
    for entry in entries {
        let node = entry.requester.node.index();
        plain.extend_from_slice(&[node as u8, entry.requester.core]);
        plain.extend_from_slice(&entry.word.0.wrapping_sub(before.word).to_le_bytes()[..6]);
        let commit = entry.commit.0.wrapping_sub(before.commits[node]);
        plain.extend_from_slice(&commit.to_le_bytes());
        plain.extend_from_slice(&entry.epoch.0.wrapping_sub(before.epoch).to_le_bytes());
        plain.extend_from_slice(&entry.value.to_le_bytes());
        before.word = entry.word.0;
        before.commits[node] = entry.commit.0;
        before.epoch = entry.epoch.0;
    }
    let mut gzip = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::best());
    gzip.write_all(&plain).expect("memory suffices");
    gzip.finish().expect("memory suffices")
}

/// Reads a dump.
///
/// # Errors
/// If the bytes are none, or damaged, or cut short, or followed by others.
pub fn unpack(dump: &[u8]) -> Result<Unpacked, FormError> {
    let mut gzip = GzDecoder::new(dump);
    let mut plain = Vec::new();
    gzip.read_to_end(&mut plain)
        .map_err(|error| FormError::Gzip(error.to_string()))?;
    let rest = gzip.into_inner().len();
    if rest > 0 {
        return Err(FormError::Trailing(rest));
    }
    let (header, mut rest) = plain.split_at_checked(HEADER).ok_or(FormError::Header)?;
    let (magic, mut fields) = header.split_at(MAGIC.len());
    let version = u16::from_le_bytes(take(&mut fields));
    if magic != MAGIC || version != VERSION {
        return Err(FormError::Header);
    }
    let node = u16::from_le_bytes(take(&mut fields));
    let round = u32::from_le_bytes(take(&mut fields));
    let count = u64::from_le_bytes(take(&mut fields));
    if count.checked_mul(ENTRY_BYTES as u64) != Some(rest.len() as u64) {
        return Err(FormError::Length {
            entries: count,
            bytes: rest.len(),
        });
    }
    let mut entries = Vec::with_capacity(rest.len() / ENTRY_BYTES);
    let mut before = Before::default();
    for at in 0..count {
        let [node, core] = take(&mut rest);
        if usize::from(node) >= MAX_NODES || core >= LogEntry::CORES {
            return Err(FormError::Entry(at));
        }
        let [a, b, c, d, e, f] = take(&mut rest);
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        before.word = before.word.wrapping_add(word) % LogEntry::WORDS;
        let commit = &mut before.commits[usize::from(node)];
        *commit = commit.wrapping_add(u32::from_le_bytes(take(&mut rest)));
        before.epoch = before
            .epoch
            .wrapping_add(u32::from_le_bytes(take(&mut rest)));
        entries.push(LogEntry {
            requester: Requester {
                node: NodeId::new(usize::from(node)),
                core,
            },
            commit: Commit(*commit),
            epoch: Epoch(before.epoch),
            word: Word(before.word),
            value: u64::from_le_bytes(take(&mut rest)),
        });
    }
    Ok(Unpacked {
        node,
        round,
        entries,
    })
}

/// The next bytes. The length has been checked.
fn take<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    let (bytes, rest) = from.split_first_chunk().expect("so long it is");
    *from = rest;
    *bytes
}
