//! Prints files, as `cat` does, through a cache that all processes share: `cache POD FILE...`, in
//! several terminals. A cached file is not read from disk again.

use outlive::pod::{Pod, PodOptions};
use std::io::Write;

/// The number of files above which a file is evicted after its use.
const MAX_FILES: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: cache POD FILE...")?;
    let pod = Pod::open_or_create(path, PodOptions::new())?;
    let session = pod.session()?;
    let files = session.map::<str, [u8]>("files")?;
    for path in arguments {
        let content = match files.read(&path) {
            Some(content) => content, // in place: not copied, and not freed while it is in use
            None => {
                files.get_or_insert(&path, &std::fs::read(&path)?)?;
                files
                    .read(&path)
                    .ok_or("another process evicted it before it could be read; try again")?
            }
        };
        std::io::stdout().write_all(&content)?;
        if files.len() > MAX_FILES {
            files.remove(&path);
        }
    }
    Ok(())
}
