//! Decompression, while it is read, of text that gzip, xz, zstd or bzip2 compressed.
//!
//! The first bytes show the compression ([`Compression::of`]); the name of a file does not count.
//! Several compressed files, one after the other, are read as one, as the commands of these formats
//! do. Any other bytes after the last one are an error, except for zeros after gzip's data, with
//! which tapes fill their blocks. Checksums are compared, and a file that ends too early is an
//! error. The memory of a decoder is bounded: a file of zstd that demands more than 128 MiB (`zstd
//! --long=28` and above) and one of xz that demands more than 2 GiB are refused.

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fmt;
use std::io::{self, BufRead, Read};

/// A compression that can be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// The format of `xz`, with LZMA2.
    Xz,
    /// RFC 8878.
    Zstd,
    /// The format of `bzip2`.
    Bzip2,
}

/// The largest memory that a block of xz may demand, in KiB.
const XZ_MEMORY: u32 = 2 << 20;

impl Compression {
    /// The number of bytes by which a compression is recognised.
    pub const TOLD_BY: usize = 10;

    /// Returns the compression of a file with these `first` bytes.
    pub fn of(first: &[u8]) -> Option<Self> {
        Some(match first {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            // A block, or the end of a file without one.
            [b'B', b'Z', b'h', b'1'..=b'9', magic @ ..]
                if magic.starts_with(b"\x31\x41\x59\x26\x53\x59")
                    || magic.starts_with(b"\x17\x72\x45\x38\x50\x90") =>
            {
                Self::Bzip2
            }
            _ => return None,
        })
    }

    /// Returns a reader of the contents of `packed`, which begins with its first byte.
    pub fn reader(self, packed: impl BufRead + 'static) -> Box<dyn Read> {
        match self {
            Self::Gzip => Box::new(Gzip(Some(GzDecoder::new(packed)))),
            Self::Xz => Box::new(XzReader::new_mem_limit(packed, true, XZ_MEMORY)),
            Self::Zstd => Box::new(Zstd {
                packed,
                frames: FrameDecoder::new(),
                in_frame: false,
            }),
            Self::Bzip2 => Box::new(MultiBzDecoder::new(packed)),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// Returns the name of a compression that is recognised by its `first` bytes and cannot be unpacked
/// here.
pub fn unsupported(first: &[u8]) -> Option<&'static str> {
    Some(match first {
        [0x04, 0x22, 0x4D, 0x18, ..] | [0x02, 0x21, 0x4C, 0x18, ..] => "lz4",
        [0x1F, 0x9D, ..] => "compress (.Z)",
        [0x1F, 0xA0, ..] => "compress (LZH)",
        [0x1F, 0x1E, ..] => "pack (.z)",
        [b'7', b'z', 0xBC, 0xAF, 0x27, 0x1C, ..] => "7-Zip",
        [0x5D, 0, 0, _, _, ..] => "lzma (the format before xz)",
        [b'L', b'Z', b'I', b'P', 0 | 1, ..] => "lzip",
        [0x89, b'L', b'Z', b'O', 0, ..] => "lzop",
        [0xFF, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => "snappy",
        _ => return None,
    })
}

fn damaged(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads members of gzip, one after the other. `None` after the last one.
struct Gzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.0 = match member.get_mut().fill_buf()?.first() {
                None => None,
                Some(0) => {
                    only_zeros(member.get_mut())?;
                    None
                }
                Some(0x1F) => self
                    .0
                    .take()
                    .map(|member| GzDecoder::new(member.into_inner())),
                Some(_) => return Err(damaged("other bytes follow the compressed data")),
            };
        }
        Ok(0)
    }
}

/// Reads zeros up to the end of `packed`.
fn only_zeros(packed: &mut impl BufRead) -> io::Result<()> {
    loop {
        let rest = packed.fill_buf()?;
        if rest.is_empty() {
            return Ok(());
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Err(damaged(
                "zeros follow the compressed data, and other bytes follow the zeros",
            ));
        }
        let len = rest.len();
        packed.consume(len);
    }
}

/// Reads frames of zstd, one after the other, without those that are to be skipped.
struct Zstd<R> {
    packed: R,
    frames: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame with contents. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.frames.init(&mut self.packed) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = length.into();
                    let skipped = io::copy(&mut (&mut self.packed).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.in_frame || self.begin()? {
            while self.frames.can_collect() == 0 && !self.frames.is_finished() {
                let block = BlockDecodingStrategy::UptoBlocks(1);
                { self.frames.decode_blocks(&mut self.packed, block) }.map_err(damaged)?;
            }
            let read = self.frames.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.in_frame = false;
            let sum = self.frames.get_checksum_from_data();
            if sum.is_some() && sum != self.frames.get_calculated_checksum() {
                return Err(damaged("its checksum differs"));
            }
        }
        Ok(0)
    }
}

/// The output of the commands for a small edge list.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::Compression;

    /// The uncompressed bytes.
    pub const PLAIN: &str = "1 2\n2 3\n";

    pub struct Packed {
        pub once: &'static [u8],
        /// Two files, one after the other.
        pub twice: Vec<u8>,
    }

    impl Packed {
        pub fn of(by: Compression) -> Self {
            let once: &[u8] = match by {
                Compression::Gzip => GZIP,
                Compression::Xz => XZ,
                Compression::Zstd => ZSTD,
                Compression::Bzip2 => BZIP2,
            };
            Self {
                once,
                twice: [once, once].concat(),
            }
        }
    }

    const GZIP: &[u8] = b"\
        \x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03\x33\x54\x30\xE2\x32\x52\x30\xE6\x02\x00\xF5\xF1\x2B\x96\
        \x08\x00\x00\x00\
        ";
    const XZ: &[u8] = b"\
        \xFD\x37\x7A\x58\x5A\x00\x00\x04\xE6\xD6\xB4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2F\xE5\xA3\
        \x01\x00\x07\x31\x20\x32\x0A\x32\x20\x33\x0A\x00\xC4\xA4\x91\x6D\xDE\x89\x43\x3E\x00\x01\x20\x08\
        \xBB\x19\xD9\xBB\x1F\xB6\xF3\x7D\x01\x00\x00\x00\x00\x04\x59\x5A\
        ";
    const ZSTD: &[u8] = b"\
        \x28\xB5\x2F\xFD\x04\x58\x41\x00\x00\x31\x20\x32\x0A\x32\x20\x33\x0A\x8E\x3F\xC2\xF6\
        ";
    const BZIP2: &[u8] = b"\
        \x42\x5A\x68\x39\x31\x41\x59\x26\x53\x59\x3B\x17\xF9\xF0\x00\x00\x02\x58\x00\x00\x10\x40\x00\x38\
        \x00\x20\x00\x22\x1E\x8D\x06\x68\x15\x2A\x18\x5D\xC9\x14\xE1\x42\x40\xEC\x5F\xE7\xC0\
        ";
}

#[cfg(test)]
mod tests {
    use super::fixtures::{PLAIN, Packed};
    use super::*;

    const ALL: [Compression; 4] = [
        Compression::Gzip,
        Compression::Xz,
        Compression::Zstd,
        Compression::Bzip2,
    ];

    fn unpack(by: Compression, packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut unpacked = Vec::new();
        let packed = io::BufReader::with_capacity(7, io::Cursor::new(packed.to_vec()));
        by.reader(packed).read_to_end(&mut unpacked)?;
        Ok(unpacked)
    }

    #[test]
    fn what_the_commands_pack_is_unpacked() {
        for by in ALL {
            let packed = Packed::of(by);
            assert_eq!(Compression::of(packed.once), Some(by));
            assert_eq!(
                Compression::of(&packed.once[..Compression::TOLD_BY]),
                Some(by)
            );
            assert_eq!(unpack(by, packed.once).unwrap(), PLAIN.as_bytes(), "{by}");
            assert_eq!(
                unpack(by, &packed.twice).unwrap(),
                PLAIN.repeat(2).as_bytes(),
                "{by}"
            );
        }
        let zstd = Packed::of(Compression::Zstd);
        let skipped = b"\x50\x2A\x4D\x18\x03\0\0\0abc";
        let all = [skipped, zstd.once, skipped, zstd.once, skipped].concat();
        assert_eq!(Compression::of(&all), Some(Compression::Zstd));
        assert_eq!(
            unpack(Compression::Zstd, &all).unwrap(),
            PLAIN.repeat(2).as_bytes()
        );
        assert!(unpack(Compression::Zstd, &all[..all.len() - 1]).is_err());
        // A frame that demands a window of 2 TiB.
        assert!(unpack(Compression::Zstd, b"\x28\xB5\x2F\xFD\0\xF8\x01\0\0").is_err());
    }

    #[test]
    fn zeros_may_follow_what_gzip_packed_and_nothing_else() {
        for by in ALL {
            let packed = Packed::of(by).twice;
            for zeros in [1, 100, 10_000] {
                let padded = [&packed[..], &vec![0; zeros]].concat();
                // Streams of xz are padded by multiples of four.
                let expected = by == Compression::Gzip || (by == Compression::Xz && zeros % 4 == 0);
                assert_eq!(unpack(by, &padded).is_ok(), expected, "{by}, {zeros}");
                let rubbish = [&padded[..], b"x"].concat();
                assert!(unpack(by, &rubbish).is_err(), "{by}, {zeros}");
            }
            for rubbish in [&b"x"[..], b"1 2\n", b"\x1F", b"\x1F\x8B", &packed[..9]] {
                let whole = [&packed[..], rubbish].concat();
                assert!(unpack(by, &whole).is_err(), "{by}, {rubbish:?}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_changed_is_an_error() {
        for by in ALL {
            let packed = Packed::of(by).once;
            for len in 1..packed.len() {
                assert!(unpack(by, &packed[..len]).is_err(), "{by}, {len} bytes");
            }
            for bit in 0..packed.len() * 8 {
                let mut changed = packed.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                // A header has bits that do not count.
                if let Ok(unpacked) = unpack(by, &changed) {
                    assert_eq!(unpacked, PLAIN.as_bytes(), "{by}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_unpacked_is_told() {
        for (first, name) in [
            (&b"\x04\x22\x4D\x18\x64"[..], "lz4"),
            (b"\x1F\x9D\x90", "compress (.Z)"),
            (b"7z\xBC\xAF\x27\x1C\0\x04", "7-Zip"),
        ] {
            assert_eq!(unsupported(first), Some(name));
            assert_eq!(Compression::of(first), None);
        }
        for text in ["", "1 2\n", "BZh9 x\n", "7z x\n", "LZIP x\n", "]\n"] {
            let text = text.as_bytes();
            assert_eq!((Compression::of(text), unsupported(text)), (None, None));
        }
    }
}
