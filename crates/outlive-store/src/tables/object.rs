//! Objects: their addresses, latch words and versions.

use core::fmt;

/// The offset in bytes of an object's latch word.
pub const LATCH: u64 = 0;
/// The offset in bytes of an object's version.
pub const VERSION: u64 = 8;
/// The offset in bytes of an object's value.
pub const VALUE: u64 = 16;

/// The address of an object, which is equal in all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    /// Returns the address of the object at `offset` bytes in a partition.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 16, or 2^52 or more.
    pub const fn new(table: u8, partition: u8, offset: u64) -> Self {
        assert!(offset.is_multiple_of(16) && offset >> 52 == 0);
        Self((table as u64) << 56 | (partition as u64) << 48 | (offset / 16))
    }

    /// Returns the number of the table.
    pub const fn table(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// Returns the number of the partition in the table.
    pub const fn partition(self) -> u8 {
        (self.0 >> 48) as u8
    }

    /// Returns the offset in bytes in the partition.
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << 48) - 1)) * 16
    }

    /// Returns the address as a word that logs store.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the address that [`to_word`](Self::to_word) returned.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// The version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

impl Version {
    /// Returns whether the object exists.
    pub const fn exists(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the next version. The object exists in that version if `exists` is true.
    pub const fn next(self, exists: bool) -> Self {
        Self(((self.0 >> 1) + 1) << 1 | exists as u64)
    }
}

/// The identity of one attempt of a transaction, which is also the word of the latches that it
/// holds: the process id of the compute server, the coordinator in it, and a counter of attempts.
///
/// Attempts of one log slot are counted from a number that differs between the owners of a process
/// id, and wrap around. All latches of an attempt are released before another one can have its
/// identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId(u64);

impl TransactionId {
    /// Returns the identity of an attempt. A process id is at least 1, so the word is not 0.
    pub const fn new(process: u16, coordinator: u16, attempt: u32) -> Self {
        Self((process as u64) << 48 | (coordinator as u64) << 32 | attempt as u64)
    }

    /// Returns the holder of a latch with this word; `None` if the latch is free.
    pub const fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => None,
            word => Some(Self(word)),
        }
    }

    /// Returns the latch word.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the process id of the compute server.
    pub const fn process(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Returns the number of the coordinator in the compute server.
    pub const fn coordinator(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Returns the number of the attempt. It wraps around.
    pub const fn attempt(self) -> u32 {
        self.0 as u32
    }

    /// Returns whether this attempt is a later one of the same coordinator than `other`.
    pub const fn follows(self, other: Self) -> bool {
        let ahead = self.attempt().wrapping_sub(other.attempt()) as i32;
        self.0 >> 32 == other.0 >> 32 && ahead > 0
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, coordinator) = (self.process(), self.coordinator());
        write!(f, "{process}.{coordinator}.{}", self.attempt())
    }
}

impl fmt::Debug for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_parts() {
        let object = ObjectId::new(255, 254, (1 << 52) - 16);
        let same = ObjectId::from_word(object.to_word());
        assert_eq!((same.table(), same.partition()), (255, 254));
        assert_eq!(same.offset(), (1 << 52) - 16);
        let id = TransactionId::new(3, 4, u32::MAX);
        assert_eq!(
            (id.process(), id.coordinator(), id.attempt()),
            (3, 4, u32::MAX)
        );
        assert_eq!(TransactionId::from_word(0), None);
    }

    #[test]
    fn versions_rise() {
        let version = Version::default();
        assert!(!version.exists());
        let inserted = version.next(true);
        let deleted = inserted.next(false);
        assert!(inserted.exists() && !deleted.exists());
        assert!(version < inserted && inserted < deleted);
    }
}
