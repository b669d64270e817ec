//! Prints files, as `cat` does, through a cache in shared memory: `cache FILE...`, in as many
//! terminals as you like. Only the first process reads a file.

use outlive::pod::{Pod, PodOptions};
use std::io::Write;

/// The most files that are kept.
const MOST: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pod = Pod::open_or_create("/dev/shm/cache", PodOptions::new())?;
    let session = pod.session()?;
    let files = session.map::<str, [u8]>("files")?;
    for path in std::env::args().skip(1) {
        let content = match files.read(&path) {
            Some(content) => content, // in place: not copied, and not freed while it is in use
            None => {
                files.get_or_insert(&path, &std::fs::read(&path)?)?;
                files.read(&path).ok_or("it was removed at once")?
            }
        };
        std::io::stdout().write_all(&content)?;
        if files.len() > MOST {
            files.remove(&path);
        }
    }
    Ok(())
}
