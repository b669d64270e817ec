//! Any bytes are an archive of dedup's, or are refused, and it takes no more memory than its index
//! lets it.
//!
//! Each input is tried as it is, and again as an index with a beginning, an end and a checksum that
//! fit: a fuzzer would not find what lies behind those by itself. The first byte says how many
//! bytes of chunks come before it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive_programs::dedup::archive::{Archive, Content};
use sha2::{Digest, Sha256};

fn check(bytes: &[u8]) {
    let Ok(archive) = Archive::open(bytes) else {
        return;
    };
    let (mut total, mut hard_links) = (0, 0);
    for entry in archive.entries() {
        let leads_away = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
        assert!(!entry.name.split(|byte| *byte == b'/').any(leads_away));
        match &entry.content {
            Content::File { chunks, holes } => {
                assert!(chunks.iter().all(|number| *number < archive.chunks()));
                assert!(holes.iter().all(|hole| hole.end() <= i64::MAX as u64));
                total += chunks.len() as u64;
            }
            Content::HardLink(first) => {
                let first = &archive.entries()[*first].content;
                assert!(matches!(first, Content::File { .. }));
                hard_links += 1;
            }
            _ => {}
        }
    }
    // Each chunk has a byte, and at most 64 KiB.
    assert!((total..=total << 16).contains(&archive.bytes()));
    assert!(archive.bytes_in_blocks(4096) >= 4096 * (archive.entries().len() as u64 - hard_links));
    let _ = archive.check();
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let Some((chunks, index)) = bytes.split_first() else {
        return;
    };
    let kept = index.len().min(usize::from(*chunks));
    let index_at = 16 + kept as u64;
    let place = [index_at, (index.len() - kept) as u64].map(u64::to_le_bytes);
    let place = place.concat();
    let sum = Sha256::new()
        .chain_update(&index[kept..])
        .chain_update(&place)
        .finalize();
    for version in [2, 3] {
        let mut header = *b"OutDedup\0\0\0\0\0\0\0\0";
        header[8] = version;
        check(&[&header, index, &place, &sum, b"pudeDtuO"].concat());
    }
});
