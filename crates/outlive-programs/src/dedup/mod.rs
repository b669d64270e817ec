//! Dedup: archives files and stores repeated content once (PARSEC's program, which LUPIN runs).
//!
//! A file is cut into chunks at places that its content determines, so an insertion moves only the
//! cuts around it. Chunks are compared by their SHA-256; each different chunk is compressed and
//! stored at its first occurrence. The archive lists the chunks of each file;
//! [`unpack`](unpack::unpack) restores files, directories and links to the identical bytes. All
//! mode bits, modification times, hard links and holes are kept as well; owners and extended
//! attributes are optional. (Two chunks with equal SHA-256 would be taken for equal.)
//!
//! **The archive does not depend on the workers.** The end of a chunk depends on the bytes of its
//! file alone, not on how the work was cut ([`chunk`] has the argument); a chunk's compressed bytes
//! depend on the chunk alone; and chunks are numbered and stored in the order in which they occur.
//! So an archive is the same to the last byte for any number of workers, any order, and any
//! re-execution.
//!
//! * [`Tree`] is the set of entries to archive.
//! * [`chunk::marks`], [`pack::digest`] and [`pack::pack`] are the work of tasks; [`chunk::ends`]
//!   and [`Catalog`] combine their results.
//! * [`archive::Writer`] and [`archive::Archive`] write and read the format that [`archive`]
//!   describes.
//! * [`Archiving`] is the program of tasks, and [`Text`] the files as it divides them.
//! * [`pack_alone`] is the plain program, with one thread; [`verify`](verify::verify) reads an
//!   archive and compares it with the files.
//!
//! ```
//! use outlive_programs::dedup::{self, archive::Archive, tree::Tree, unpack, verify};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let (book, copy) = (place.path().join("book"), place.path().join("copy"));
//! std::fs::write(&book, "In the beginning ".repeat(1000))?;
//! let tree = Tree::find(&[&book])?;
//! let mut file = Vec::new();
//! let summary = dedup::pack_alone(&tree, 6, &mut file)?;
//! assert!(summary.archive_bytes < summary.bytes / 10);
//!
//! let archive = Archive::open(file.as_slice())?;
//! verify::verify(&archive, &tree)?;
//! unpack::unpack(&archive, &copy)?;
//! assert_eq!(std::fs::read(copy.join("book"))?, std::fs::read(&book)?);
//! # Ok(())
//! # }
//! ```

pub mod archive;
pub mod attributes;
mod bits;
pub mod chunk;
mod entries;
pub mod exclude;
pub mod extents;
mod format;
mod numbers;
mod on_tasks;
mod outbox;
pub mod pack;
mod plan;
pub mod restore;
mod tasks;
mod text;
pub mod tree;
pub mod unpack;
pub mod verify;
mod writing;

pub use on_tasks::{Archived, Archiving, Options};
pub use tasks::{cut, number, stretches, window};
pub use text::Text;

use archive::{Catalog, Writer};
use extents::Span;
use outlive_run::input::open_regular;
use pack::Packer;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tree::Tree;

/// The size of an archive and of the archived files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of files.
    pub files: u64,
    /// The number of the files' bytes, without holes.
    pub bytes: u64,
    /// The number of additional names of these files.
    pub hard_links: u64,
    /// The number of bytes of the files' holes.
    pub hole_bytes: u64,
    /// The number of the files' chunks.
    pub chunks: u64,
    /// The number of different chunks.
    pub distinct: u64,
    /// The size of the archive in bytes.
    pub archive_bytes: u64,
}

/// The reason why files could not be archived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The archive cannot be written.
    #[error("the archive cannot be written: {0}")]
    Unwritable(#[from] io::Error),
    /// There are more chunks than an archive can number.
    #[error("there are more than 2^32 different chunks; make several archives")]
    TooMany,
}

/// Archives `tree` with one thread, file after file, at compression level `level`, 0 to 9: the
/// plain program, with which runs on tasks are compared.
///
/// # Errors
/// If a file cannot be read, or `out` cannot be written. The output is not an archive then.
pub fn pack_alone(tree: &Tree, level: u32, out: impl Write) -> Result<Summary, PackError> {
    let mut writer = Writer::new(out)?;
    let mut catalog = Catalog::default();
    let mut packer = Packer::new(level);
    let mut packed = Vec::new();
    for entry in tree.entries() {
        let mut chunks = Vec::new();
        for extent in entry.extents() {
            let bytes = read(&entry.path, *extent).map_err(|source| PackError::Unreadable {
                path: entry.path.clone(),
                source,
            })?;
            let mut from = 0;
            while from < bytes.len() {
                let chunk = &bytes[from..from + chunk::first(&bytes[from..])];
                let (number, is_new) = catalog
                    .enter(pack::digest(chunk), chunk.len())
                    .ok_or(PackError::TooMany)?;
                if is_new {
                    packer.pack(chunk, &mut packed);
                    writer.chunk(&packed)?;
                }
                chunks.push(number);
                from += chunk.len();
            }
        }
        catalog.add(entry, chunks);
    }
    Ok(writer.finish(&catalog)?)
}

/// Reads a range of the file at `path`.
fn read(path: &Path, extent: Span) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; extent.len as usize];
    open_regular(path)?.read_exact_at(&mut bytes, extent.start)?;
    Ok(bytes)
}
