//! Blocks: the pieces of a trace, each with its own checksum.

use super::{Flaw, TraceError};
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use std::io::Read;

/// How the contents of blocks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Uncompressed.
    Plain,
    /// Compressed, where that makes them shorter (RFC 1951).
    #[default]
    Deflate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    About = 1,
    Image = 2,
    Events = 3,
}

impl Kind {
    pub fn of(number: u8) -> Option<Self> {
        [Self::About, Self::Image, Self::Events]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

const MAGIC: [u8; 4] = *b"TBLK";
pub(super) const HEADER: usize = 32;
/// The most bytes in the contents of a block. It bounds the memory for one, whatever a file says.
pub(super) const MOST: usize = 1 << 20;

/// The contents of a block, with the fields of its header.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub kind: Kind,
    pub thread: u32,
    pub items: u32,
    pub plain: Vec<u8>,
}

/// The header of a block, checked as far as is possible without the contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    kind: Kind,
    deflated: bool,
    thread: u32,
    pub stored: usize,
    plain: usize,
    items: u32,
}

impl Header {
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, Flaw> {
        if bytes[..4] != MAGIC {
            return Err(Flaw::NoBlock);
        }
        let field =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let length = |at, name| match field(at) as usize {
            length @ 0..=MOST => Ok(length),
            _ => Err(Flaw::Field(name)),
        };
        if bytes[6..8] != [0; 2] || field(24) != 0 {
            return Err(Flaw::Reserved);
        }
        let header = Self {
            kind: Kind::of(bytes[4]).ok_or(Flaw::Field("kind"))?,
            deflated: match bytes[5] {
                0 => false,
                1 => true,
                _ => return Err(Flaw::Field("encoding")),
            },
            thread: field(8),
            stored: length(12, "stored bytes")?,
            plain: length(16, "plain bytes")?,
            items: field(20),
        };
        if !header.deflated && header.stored != header.plain {
            return Err(Flaw::Field("stored bytes"));
        }
        if header.kind != Kind::Events && header.thread != 0 {
            return Err(Flaw::Field("thread"));
        }
        if header.kind == Kind::About && header.items != 1 {
            return Err(Flaw::Field("items"));
        }
        Ok(header)
    }

    /// Returns the block, if `stored` matches the header's checksum.
    pub fn open(&self, bytes: &[u8; HEADER], stored: Vec<u8>) -> Result<Block, Flaw> {
        if checksum(bytes, &stored).to_le_bytes() != bytes[28..] {
            return Err(Flaw::Checksum);
        }
        let plain = if self.deflated {
            let mut plain = Vec::with_capacity(self.plain);
            // One byte more than the header says, to detect surplus contents.
            DeflateDecoder::new(&stored[..])
                .take(self.plain as u64 + 1)
                .read_to_end(&mut plain)
                .map_err(|_| Flaw::Deflate)?;
            if plain.len() != self.plain {
                return Err(Flaw::Deflate);
            }
            plain
        } else {
            stored
        };
        Ok(Block {
            kind: self.kind,
            thread: self.thread,
            items: self.items,
            plain,
        })
    }
}

impl Block {
    /// Returns header and contents as they are stored in the file.
    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, TraceError> {
        assert!(
            self.plain.len() <= MOST,
            "a block is written before it is full"
        );
        let mut out = vec![0; HEADER];
        if encoding == Encoding::Deflate {
            DeflateEncoder::new(&self.plain[..], Compression::default())
                .read_to_end(&mut out)
                .map_err(TraceError::reading(0))?;
        }
        let deflated = encoding == Encoding::Deflate && out.len() - HEADER < self.plain.len();
        if !deflated {
            out.truncate(HEADER);
            out.extend_from_slice(&self.plain);
        }
        let stored = (out.len() - HEADER) as u32;
        let (header, contents) = out.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC);
        header[4] = self.kind as u8;
        header[5] = u8::from(deflated);
        header[8..12].copy_from_slice(&self.thread.to_le_bytes());
        header[12..16].copy_from_slice(&stored.to_le_bytes());
        header[16..20].copy_from_slice(&(self.plain.len() as u32).to_le_bytes());
        header[20..24].copy_from_slice(&self.items.to_le_bytes());
        let sum = checksum(header, contents);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }
}

fn checksum(header: &[u8], stored: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[..28]);
    sum.update(stored);
    sum.finalize()
}
