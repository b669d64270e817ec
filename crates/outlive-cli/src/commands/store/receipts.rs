//! The receipts of a run: the commits that were acknowledged to clients, also to those of compute
//! servers that were killed.
//!
//! They are in a file next to the store's, one word for each coordinator of each process id: the
//! number of commits in the coordinator's row of the [ledger](outlive_store::workloads::Books), as
//! it was after the last acknowledged commit. A compute server writes the word when a commit is
//! acknowledged, before its next transaction. The file's pages survive the server's death, so the
//! row must have at least this number afterwards, and at most one more for each death: that of a
//! commit whose acknowledgement was not recorded any more. Each later commit of the row must have a
//! greater number, otherwise the store has lost the commit before it.
//!
//! A commit that is lost is not noticed if the next commit of its row is not acknowledged any more.

use crate::failure::Failure;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file.
#[derive(Debug)]
pub struct Receipts(File);

impl Receipts {
    /// The path of the file for the store at `store`.
    pub fn path(store: &Path) -> PathBuf {
        store.with_extension("receipts")
    }

    fn of(path: &Path, file: io::Result<File>) -> Result<Self, Failure> {
        file.map(Self).map_err(|error| {
            Failure::new(format_args!(
                "the receipts in {} cannot be opened: {error}",
                path.display()
            ))
        })
    }

    /// Creates the file for the store at `store`.
    pub fn create(store: &Path) -> Result<Self, Failure> {
        let path = Self::path(store);
        let options = File::options();
        let file = { options }
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        Self::of(&path, file)
    }

    /// Opens the file for the store at `store`.
    pub fn open(store: &Path) -> Result<Self, Failure> {
        let path = Self::path(store);
        Self::of(&path, File::options().read(true).write(true).open(&path))
    }

    fn offset(process: u16, coordinator: u16) -> u64 {
        (u64::from(process) << 16 | u64::from(coordinator)) * 8
    }

    /// Records that a commit was acknowledged, the `count`-th of the coordinator's row.
    ///
    /// # Errors
    /// An acknowledged commit of the row is lost, or the file cannot be read and written.
    pub fn acknowledge(&self, process: u16, coordinator: u16, count: u64) -> io::Result<()> {
        let before = self.acknowledged(process, coordinator)?;
        if count <= before {
            return Err(io::Error::other(format!(
                "commit {before} of coordinator {coordinator}, process id {process}, was \
                 acknowledged and is lost: a later commit is number {count}"
            )));
        }
        let offset = Self::offset(process, coordinator);
        self.0.write_all_at(&count.to_le_bytes(), offset)
    }

    /// The number of the last acknowledged commit of a coordinator's row; 0 if there is none.
    pub fn acknowledged(&self, process: u16, coordinator: u16) -> io::Result<u64> {
        let mut word = [0; 8];
        let read = self
            .0
            .read_at(&mut word, Self::offset(process, coordinator))?;
        // Beyond the end of the file, no commit was acknowledged.
        match read {
            8 => Ok(u64::from_le_bytes(word)),
            _ => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_found_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let receipts = Receipts::create(&store).unwrap();
        assert!(Receipts::create(&store).is_err());
        receipts.acknowledge(3, 7, 41).unwrap();
        receipts.acknowledge(3, 7, 42).unwrap();
        // The store has lost commit 42.
        let error = receipts.acknowledge(3, 7, 42).unwrap_err().to_string();
        assert!(error.contains("commit 42"), "{error}");
        let receipts = Receipts::open(&store).unwrap();
        let acknowledged = |process, number| receipts.acknowledged(process, number).unwrap();
        assert_eq!((acknowledged(3, 7), acknowledged(3, 6)), (42, 0));
        assert_eq!((acknowledged(2, 7), acknowledged(u16::MAX, 0)), (0, 0));
    }
}
