//! Prints files, as `cat` does, through a cache that all processes share: `cache POD FILE...`, in
//! several terminals. A cached file is not read from disk again.

use outlive::pod::{Pod, PodOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

/// The number of slots. A slot holds one file, so the cache needs no count of its files: `len()` is
/// approximate after deaths.
const SLOTS: u64 = 1000;

fn slot_of(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish() % SLOTS
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: cache POD FILE...")?;
    let pod = Pod::open_or_create(path, PodOptions::new())?;
    let session = pod.session()?;
    let files = session.map::<u64, [u8]>("files")?; // slot: path, zero byte, contents
    for path in arguments {
        let (slot, head) = (slot_of(&path), format!("{path}\0"));
        match files.read(&slot) {
            // In place: not copied, and not freed while it is in use.
            Some(cached) if cached.starts_with(head.as_bytes()) => {
                std::io::stdout().write_all(&cached[head.len()..])?;
            }
            other => {
                drop(other);
                let content = std::fs::read(&path)?;
                let entry = [head.as_bytes(), &content].concat();
                files.upsert(&slot, &entry, |_| entry.clone())?; // replaces the slot's other file
                std::io::stdout().write_all(&content)?;
            }
        }
    }
    Ok(())
}
