//! The numbers and sizes that a pool is created with.

use super::Address;

/// The header: magic, format, sizes; then the line of the hint for the next slice.
pub(crate) const FORMAT_WORDS: u64 = 0x80;
/// The size of a server's entry.
pub(crate) const ENTRY_BYTES: u64 = 64;
/// The size of a reader's line: two cache lines, which processors fetch together.
pub(crate) const LINE_BYTES: u64 = 128;
/// The number of samples in the ring of a reader.
pub(crate) const RING_SLOTS: u64 = 32;
/// The size of the ring of a reader.
pub(crate) const RING_BYTES: u64 = RING_SLOTS * 8;
/// The size of the record of a move.
pub(crate) const MOVE_BYTES: u64 = 64;
/// The number of guards that a reader may have at one time.
pub(crate) const LINE_SLOTS: u64 = LINE_BYTES / 8 - 1;

/// The numbers and sizes that a pool is created with.
///
/// The tables in the coherent region have 32 bytes for each slice:
///
/// | pool   | slice  | tables  |
/// | ------ | ------ | ------- |
/// | 10 TB  | 2 MiB  | 153 MB  |
/// | 100 TB | 2 MiB  | 1.5 GB  |
/// | 100 TB | 64 MiB | 48 MB   |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The logarithm of the number of bytes in a slice.
    pub slice_bits: u32,
    /// The number of slices.
    pub slices: u64,
    /// The largest number of servers at one time.
    pub servers: u16,
    /// The largest number of readers at one time.
    pub readers: u16,
    /// The number of counters.
    pub counters: u16,
    /// The largest number of slices that are moved at one time.
    pub moves: u16,
    /// The number of bytes that leased objects, sealed or not, may have together; 0 is no limit.
    pub object_quota: u64,
}

impl Sizes {
    /// Returns the number of bytes in a slice.
    pub const fn slice_bytes(&self) -> u64 {
        1 << self.slice_bits
    }

    /// Returns the first size that is out of its range: its name, its value, and the range.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, u64, u64, u64)> {
        // The last position belongs to no slice: see `Address::plus`.
        let most = ((1u64 << Address::POSITION_BITS) - 1) >> self.slice_bits.min(26);
        let all = [
            ("bits of a slice's size", self.slice_bits.into(), 12, 26),
            ("slices", self.slices, 1, most.min(1 << 30)),
            ("servers", self.servers.into(), 1, 4095),
            ("readers", self.readers.into(), 1, 65_535),
            ("counters", self.counters.into(), 1, 65_535),
            // A rebuild has two records.
            ("moves", self.moves.into(), 2, 65_535),
        ];
        { all.into_iter() }.find(|(_, size, least, most)| !(least..=most).contains(&size))
    }

    /// Returns the first byte of the entries of servers.
    pub(crate) fn servers_at(&self) -> u64 {
        FORMAT_WORDS
    }

    pub(crate) fn lines_at(&self) -> u64 {
        (self.servers_at() + u64::from(self.servers) * ENTRY_BYTES).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn counters_at(&self) -> u64 {
        self.lines_at() + u64::from(self.readers) * LINE_BYTES
    }

    /// Returns the first byte of the rings of samples.
    pub(crate) fn rings_at(&self) -> u64 {
        (self.counters_at() + u64::from(self.counters) * 64).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn moves_at(&self) -> u64 {
        self.rings_at() + u64::from(self.readers) * RING_BYTES
    }

    /// Returns the first byte of the mover words.
    pub(crate) fn movers_at(&self) -> u64 {
        self.moves_at() + u64::from(self.moves) * MOVE_BYTES
    }

    pub(crate) fn map_at(&self) -> u64 {
        self.movers_at() + self.slices * 8
    }

    pub(crate) fn owners_at(&self) -> u64 {
        self.map_at() + self.slices * 8
    }

    pub(crate) fn holders_at(&self) -> u64 {
        self.owners_at() + self.slices * 8
    }

    /// Returns the number of bytes of the tables.
    pub fn bytes(&self) -> u64 {
        self.holders_at() + self.slices * 8
    }
}
