//! The format of a dump.
//!
//! A dump is one gzip member (level 9). Inside, all numbers are little-endian:
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
//! | 6 | word, less that of the last entry of this core |
//! | 4 | commit, less that of the last entry of this node |
//! | 4 | epoch, less that of the last entry of this core |
//! | 8 | value |
//!
//! Differences ("less") wrap round; before the first entry, the last value is 0. They cost a unit
//! two registers for each core, and a core that traverses an array gives the same differences again
//! and again, independently of the other cores. gzip's own checksum and length detect damage.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use crate::program::Word;
use crate::protocol::{Epoch, MAX_NODES, NodeId};

use super::entry::{Commit, LogEntry, Requester};
use super::error::FormError;

const MAGIC: &[u8; 8] = b"RXLOGDMP";
const VERSION: u16 = 1;
const HEADER: usize = 24;

/// The size of an entry before compression, in bytes.
pub const ENTRY_BYTES: usize = 24;

/// An unpacked dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unpacked {
    /// The number of the node that saved it.
    pub node: u16,
    /// The number of the round.
    pub round: u32,
    /// The entries, from older to newer.
    pub entries: Vec<LogEntry>,
}

/// The values of earlier entries that the next one is encoded against.
struct Before {
    /// Word and epoch of the last entry of each core.
    cores: Box<[(u64, u32)]>,
    /// Commit of the last entry of each node.
    commits: [u32; MAX_NODES],
}

impl Before {
    fn none() -> Self {
        Self {
            cores: vec![(0, 0); MAX_NODES * usize::from(LogEntry::CORES)].into(),
            commits: [0; MAX_NODES],
        }
    }

    /// Returns word and epoch of this core's last entry, and the commit of its node's last entry.
    fn of(&mut self, node: u8, core: u8) -> (&mut (u64, u32), &mut u32) {
        let (node, core) = (usize::from(node), usize::from(core));
        let core = node * usize::from(LogEntry::CORES) + core;
        (&mut self.cores[core], &mut self.commits[node])
    }
}

/// Packs a dump of these entries.
///
/// # Panics
/// If one has a word or core that is out of [range](LogEntry::WORDS); no unit logs such an entry.
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
    let mut before = Before::none();
    for entry in entries {
        let (node, core) = (entry.requester.node.index() as u8, entry.requester.core);
        assert!(core < LogEntry::CORES && entry.word.0 < LogEntry::WORDS);
        let ((word, epoch), commit) = before.of(node, core);
        plain.extend_from_slice(&[node, core]);
        plain.extend_from_slice(&entry.word.0.wrapping_sub(*word).to_le_bytes()[..6]);
        plain.extend_from_slice(&entry.commit.0.wrapping_sub(*commit).to_le_bytes());
        plain.extend_from_slice(&entry.epoch.0.wrapping_sub(*epoch).to_le_bytes());
        plain.extend_from_slice(&entry.value.to_le_bytes());
        (*word, *epoch, *commit) = (entry.word.0, entry.epoch.0, entry.commit.0);
    }
    let mut gzip = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::best());
    gzip.write_all(&plain).expect("memory suffices");
    gzip.finish().expect("memory suffices")
}

/// Reads a dump.
///
/// # Errors
/// If the bytes are not a dump, or are damaged, truncated, or followed by others.
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
    let mut before = Before::none();
    for at in 0..count {
        let [node, core] = take(&mut rest);
        if usize::from(node) >= MAX_NODES || core >= LogEntry::CORES {
            return Err(FormError::Entry(at));
        }
        let ((word, epoch), commit) = before.of(node, core);
        let [a, b, c, d, e, f] = take(&mut rest);
        let difference = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        *word = word.wrapping_add(difference) % LogEntry::WORDS;
        *commit = commit.wrapping_add(u32::from_le_bytes(take(&mut rest)));
        *epoch = epoch.wrapping_add(u32::from_le_bytes(take(&mut rest)));
        entries.push(LogEntry {
            requester: Requester {
                node: NodeId::new(usize::from(node)),
                core,
            },
            commit: Commit(*commit),
            epoch: Epoch(*epoch),
            word: Word(*word),
            value: u64::from_le_bytes(take(&mut rest)),
        });
    }
    Ok(Unpacked {
        node,
        round,
        entries,
    })
}

/// Takes the next bytes. The length has been checked.
fn take<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    let (bytes, rest) = from.split_first_chunk().expect("the length was checked");
    *from = rest;
    *bytes
}
