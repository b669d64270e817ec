//! The receipts of a run: the commits that were acknowledged to clients, even to those of compute
//! servers that were killed.
//!
//! They are in a file next to the store's, two words for each coordinator of each process id: the
//! number and the id of the last acknowledged commit in the coordinator's row of the
//! [ledger](outlive_store::workloads::Books). A compute server writes them when a commit is
//! acknowledged, before its next transaction. The file's pages survive the server's death.
//!
//! The row names its last four commits. The acknowledged one must be among them at its number, both
//! in the row that the next acknowledged commit has written and in that at the end. At most one
//! commit for each death follows it: one whose acknowledgement was not recorded any more. So a
//! commit that is lost is noticed although later commits of its row have taken its number, unless
//! deaths follow just after each of the next four, before these are acknowledged.

use crate::failure::Failure;
use outlive_store::workloads::Receipt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file that records the last acknowledged commit of each coordinator.
#[derive(Debug)]
pub struct Receipts(File);

impl Receipts {
    /// Returns the path of the file for the store at `store`.
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
        (u64::from(process) << 16 | u64::from(coordinator)) * 16
    }

    /// Records that the last commit of a coordinator's row was acknowledged. `row` is the row as
    /// this commit has written it.
    ///
    /// # Errors
    /// The commit of the row that was acknowledged before is lost, or the file cannot be read and
    /// written.
    pub fn acknowledge(&self, process: u16, coordinator: u16, row: Receipt) -> io::Result<()> {
        let before = self.acknowledged(process, coordinator)?;
        let number = before.number;
        if row.commits <= number || !before.is_in(&row) {
            return Err(io::Error::other(format!(
                "commit {number} of coordinator {coordinator}, process id {process}, was \
                 acknowledged and is lost: a later commit is number {} and does not follow it",
                row.commits
            )));
        }
        let mut words = [0; 16];
        words[..8].copy_from_slice(&row.commits.to_le_bytes());
        words[8..].copy_from_slice(&row.last().to_le_bytes());
        // A kill does not cut the copy: the words are in one page.
        let offset = Self::offset(process, coordinator);
        self.0.write_all_at(&words, offset)
    }

    /// Returns the last acknowledged commit of a coordinator's row.
    pub fn acknowledged(&self, process: u16, coordinator: u16) -> io::Result<Acknowledged> {
        let mut words = [0; 16];
        let offset = Self::offset(process, coordinator);
        // Beyond the end of the file, no commit was acknowledged.
        let read = self.0.read_at(&mut words, offset)?;
        let [number, id] = match read {
            16 => [0, 8].map(|at| u64::from_le_bytes(core::array::from_fn(|it| words[at + it]))),
            _ => [0; 2],
        };
        Ok(Acknowledged { number, id })
    }
}

/// An acknowledged commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its number in the row, from 1; 0 if no commit was acknowledged.
    pub number: u64,
    /// The word of its transaction's id.
    pub id: u64,
}

impl Acknowledged {
    /// Returns whether a later state of the row still has the commit.
    pub fn is_in(&self, row: &Receipt) -> bool {
        self.number == 0 || row.has(self.number, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_store::tables::TransactionId;

    #[test]
    fn receipts_are_found_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let receipts = Receipts::create(&store).unwrap();
        assert!(Receipts::create(&store).is_err());
        let id = |attempt| TransactionId::new(3, 7, attempt);
        let one = Receipt::default().then(id(1));
        let two = one.then(id(2));
        receipts.acknowledge(3, 7, one).unwrap();
        receipts.acknowledge(3, 7, two).unwrap();
        // The store has lost commit 2, and has the next one with its number, or one more after it.
        let other = one.then(id(3));
        for row in [other, other.then(id(4))] {
            let error = receipts.acknowledge(3, 7, row).unwrap_err().to_string();
            assert!(error.contains("commit 2"), "{error}");
        }
        let receipts = Receipts::open(&store).unwrap();
        let acknowledged = |process, number| receipts.acknowledged(process, number).unwrap();
        let last = acknowledged(3, 7);
        assert_eq!((last.number, last.id), (2, id(2).to_word()));
        assert!(last.is_in(&two.then(id(4))) && !last.is_in(&other));
        for (process, number) in [(3, 6), (2, 7), (u16::MAX, 0)] {
            assert_eq!(acknowledged(process, number), Acknowledged::default());
        }
    }
}
