//! Any bytes are a superblock whose numbers can be relied on, or are refused.
//!
//! Each input is tried as it is, and again with the magic and a checksum that fits: a fuzzer would
//! not find what lies behind those by itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::segment::Superblock;

fn check(page: &[u8], capacity: u64) {
    let Ok(superblock) = Superblock::decode(page, capacity) else {
        return;
    };
    assert!(superblock.size <= capacity);
    for (index, area) in superblock.areas.iter().enumerate() {
        assert!(area.offset.byte() >= 4096 && area.end() <= superblock.size);
        for other in &superblock.areas[..index] {
            assert!(other.kind != area.kind);
            assert!(other.end() <= area.offset.byte() || area.end() <= other.offset.byte());
        }
    }
}

fuzz_target!(|input: (u64, &[u8])| {
    let (capacity, bytes) = input;
    check(bytes, capacity);
    let mut page = [0; 4096];
    let len = bytes.len().min(4096);
    page[..len].copy_from_slice(&bytes[..len]);
    page[..8].copy_from_slice(b"OUTLIVE\x01");
    page[8..12].copy_from_slice(&0x0A0B_0C0Du32.to_ne_bytes());
    page[12..16].copy_from_slice(&Superblock::FORMAT.to_ne_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&page[..16]);
    sum.update(&page[20..]);
    page[16..20].copy_from_slice(&sum.finalize().to_ne_bytes());
    check(&page, capacity);
});
