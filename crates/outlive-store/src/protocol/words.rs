//! Accesses to tables whose values have no type at compile time: a value is a number of words.

use super::Abort;
use super::transaction::Transaction;
use super::view::Member;

impl<V: Member> Transaction<V> {
    /// Reads the words of the value of `key`; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    ///
    /// # Panics
    /// If there is no table with this number.
    pub async fn read_words(&mut self, table: u8, key: u64) -> Result<Option<&[u64]>, Abort> {
        let home = self.home_of(table, key);
        let found = self.access(async |tx| tx.find(home, key).await).await?;
        Ok(found.map(|(_, value)| &self.sets.words[value.start + 1..value.end]))
    }

    /// Writes the words of the value of `key`, whether or not the key exists. Returns whether it
    /// existed.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    ///
    /// # Panics
    /// If there is no table with this number, or its values have another number of words.
    pub async fn put_words(&mut self, table: u8, key: u64, value: &[u64]) -> Result<bool, Abort> {
        let home = self.home_of(table, key);
        home.assert_words(value.len());
        let written = self.access(async |tx| {
            if let Some((slot, _)) = tx.latch_key(home, key).await? {
                return Ok((slot, true));
            }
            // The absence of the key is in the read set.
            let inserted = tx.insert_key(home, key).await?;
            Ok((inserted.ok_or_else(|| tx.changed())?, false))
        });
        let (slot, existed) = written.await?;
        self.rewrite(slot, true)[1..].copy_from_slice(value);
        Ok(existed)
    }

    /// Deletes `key`. Returns whether it existed.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    ///
    /// # Panics
    /// If there is no table with this number.
    pub async fn delete_words(&mut self, table: u8, key: u64) -> Result<bool, Abort> {
        let home = self.home_of(table, key);
        let deleted = self.access(async |tx| tx.delete_key(home, key).await);
        Ok(deleted.await?.is_some())
    }
}
