//! Whatever a file holds, it is opened as a segment or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::segment::Segment;
use std::path::PathBuf;
use std::sync::OnceLock;

fuzz_target!(|input: (u16, Vec<(u32, u8)>)| {
    static SOUND: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    let (path, sound) = SOUND.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("outlive-fuzz-{}", std::process::id()));
        let segment = Segment::builder().size(64 << 10).create(&path).unwrap();
        let place = outlive::memory::Offset::new(60 << 10);
        segment.roots().publish::<u64>("root", place).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // SAFETY: not used again.
        unsafe { segment.unmap() };
        Segment::destroy(&path).unwrap();
        (path, bytes)
    });
    let (cut, changes) = input;
    let mut bytes = sound.clone();
    for (at, byte) in changes {
        let at = at as usize % bytes.len();
        bytes[at] = byte;
    }
    if cut != 0 {
        bytes.truncate(usize::from(cut));
    }
    std::fs::write(path, bytes).unwrap();
    if let Ok(segment) = Segment::open(path) {
        let _ = segment.roots().check();
        let _ = segment.roots().list();
        let _ = segment.roots().find::<u64>("root");
        // SAFETY: not used again.
        unsafe { segment.unmap() };
    }
    std::fs::remove_file(path).unwrap();
});
