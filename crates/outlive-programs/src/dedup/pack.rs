//! The operations on one chunk: digest, compression and decompression.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use sha2::{Digest as _, Sha256};

/// The size of a digest in bytes.
pub const DIGEST: usize = 32;
/// The SHA-256 of a chunk, by which chunks are compared.
pub type Digest = [u8; DIGEST];

/// Returns the digest of `chunk`.
pub fn digest(chunk: &[u8]) -> Digest {
    Sha256::digest(chunk).into()
}

/// Compresses chunks one after the other, each independently of the others.
#[derive(Debug)]
pub struct Packer(Compress);

impl Packer {
    /// Creates a packer with compression level `level`, 0 to 9; higher levels count as 9.
    pub fn new(level: u32) -> Self {
        Self(Compress::new(Compression::new(level.min(9)), false))
    }

    /// Sets `packed` to the stored form of `chunk`: raw deflate, or the chunk itself if that is not
    /// shorter. So a form as long as the chunk is the chunk.
    pub fn pack(&mut self, chunk: &[u8], packed: &mut Vec<u8>) {
        // Space for any result (the worst is nine bits for a byte), so that every stream comes to
        // its end: after an unfinished stream, `reset` leaves some state in the backend, and the
        // next chunk is packed wrongly.
        packed.clear();
        packed.resize(chunk.len() + chunk.len() / 4 + 64, 0);
        let done = self.0.compress(chunk, packed, FlushCompress::Finish);
        packed.truncate(self.0.total_out() as usize);
        if !matches!(done, Ok(Status::StreamEnd)) || packed.len() >= chunk.len() {
            packed.clear();
            packed.extend_from_slice(chunk);
        }
        self.0.reset();
    }
}

/// Packs one chunk by [`Packer::pack`], with a new packer.
pub fn pack(chunk: &[u8], level: u32, packed: &mut Vec<u8>) {
    Packer::new(level).pack(chunk, packed);
}

/// Restores in `chunk` the chunk of `len` bytes from its stored form `packed`. Returns whether that
/// succeeded.
#[must_use]
pub fn unpack(packed: &[u8], len: usize, chunk: &mut Vec<u8>) -> bool {
    chunk.clear();
    if packed.len() >= len {
        chunk.extend_from_slice(packed);
        return packed.len() == len;
    }
    // One byte more, to detect output that is too long.
    chunk.resize(len + 1, 0);
    let mut state = Decompress::new(false);
    let done = state.decompress(packed, chunk, FlushDecompress::Finish);
    chunk.truncate(len);
    matches!(done, Ok(Status::StreamEnd))
        && (state.total_in(), state.total_out()) == (packed.len() as u64, len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_restored(
            chunks in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..40), 1usize..400), 1..6),
            level in 0u32..11,
        ) {
            let mut packer = Packer::new(level);
            let (mut packed, mut alone, mut restored) = (Vec::new(), Vec::new(), Vec::new());
            for (piece, times) in chunks {
                let chunk = piece.repeat(times);
                packer.pack(&chunk, &mut packed);
                prop_assert!(packed.len() <= chunk.len());
                // Independent of the packer's history.
                pack(&chunk, level, &mut alone);
                prop_assert_eq!(&packed, &alone);
                prop_assert!(unpack(&packed, chunk.len(), &mut restored));
                prop_assert_eq!(&restored, &chunk);
            }
        }

        #[test]
        fn any_bytes_are_a_chunk_or_are_refused(
            packed in prop::collection::vec(any::<u8>(), 0..60), len in 0usize..5000,
        ) {
            let mut chunk = Vec::new();
            if unpack(&packed, len, &mut chunk) {
                prop_assert_eq!(chunk.len(), len);
            }
        }
    }

    /// Bytes that no compression makes shorter.
    fn noise(len: usize) -> Vec<u8> {
        let digests = (0u64..).flat_map(|number| digest(&number.to_le_bytes()));
        digests.take(len).collect()
    }

    #[test]
    fn what_cannot_be_made_shorter_leaves_nothing_behind() {
        let (mut packed, mut alone, mut restored) = (Vec::new(), Vec::new(), Vec::new());
        for level in 0..10 {
            let mut packer = Packer::new(level);
            for len in [1, 3_000, 62_000, 100_000, 200_000] {
                let text = || b"something else ".repeat(len / 10 + 10);
                for chunk in [text(), noise(len), noise(len + 1), text()] {
                    packer.pack(&chunk, &mut packed);
                    pack(&chunk, level, &mut alone);
                    assert!(packed == alone, "{len} bytes at level {level}");
                    assert!(unpack(&packed, chunk.len(), &mut restored) && restored == chunk);
                }
            }
        }
    }

    #[test]
    fn what_has_another_length_is_refused() {
        let (mut packed, mut chunk) = (Vec::new(), Vec::new());
        pack(&[7; 1000], 6, &mut packed);
        assert!(packed.len() < 30);
        assert!(unpack(&packed, 1000, &mut chunk) && chunk == [7; 1000]);
        assert!(!unpack(&packed, 999, &mut chunk) && !unpack(&packed, 1001, &mut chunk));
        packed.push(0);
        assert!(!unpack(&packed, 1000, &mut chunk), "other bytes follow");
    }
}
