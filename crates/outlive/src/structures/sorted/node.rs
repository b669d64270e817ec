//! Nodes and value blocks, word by word.
//!
//! ```text
//! node     0  birth era, two words for the reclaimer           value block   0  the same three
//!         24  next   link; MARK: the node is removed                         24  seen
//!         32  sort   where in the list                                       32  (length) value
//!         40  value  link, INLINE, or SEALED with a stamp
//!         48  (lengths) key, value
//! ```
//!
//! With a key and a value of eight bytes a node is one cache line. Lengths exist only if keys or
//! values are of any length.
//!
//! Buckets (and the two ends of every list) are two words, `next` and `sort`, elsewhere. Links lead
//! [`NEXT`] bytes before them, so that they look like nodes to a walk.

use super::datum::Datum;
use crate::heap::RETIRED_HEADER;
use core::marker::PhantomData;
use outlive_memory::{Memory, Offset, Ordering};

pub(super) const NEXT: u64 = RETIRED_HEADER;
pub(super) const SORT: u64 = 32;
pub(super) const VALUE: u64 = 40;
const NODE_BODY: u64 = 48;
/// In a value block: whether a member replaced it, or was about to.
pub(super) const SEEN: u64 = RETIRED_HEADER;
const BLOCK_BODY: u64 = 32;

/// In `next`: the node is removed, and the link does not change any more.
pub(super) const MARK: u64 = 1 << 60;
/// In a bucket's `next`: it is being opened; the directory's link to it must not be followed.
pub(super) const OPENING: u64 = 1 << 61;
/// In a bucket's `next`: the rest is the stamp of the operation that is about to open the bucket.
pub(super) const CLAIMED: u64 = 1 << 62;
/// In `value`: the value is in the node.
pub(super) const INLINE: u64 = 1 << 62;
/// In `value`: the node is removed, and the rest is the stamp of the operation that removed it.
pub(super) const SEALED: u64 = 1 << 63;

/// Returns the node or block that a link leads to.
#[inline(always)]
pub(super) fn target(link: u64) -> Offset {
    Offset::from_raw(link)
}

/// Returns the entry (a bucket, an end) at `at`, as links name it.
#[inline(always)]
pub(super) fn entry_as_node(at: Offset) -> Offset {
    at - NEXT
}

/// Returns an operation's stamp of 60 bits: the id and the operation's number, which no other
/// operation of the id has had within the last 2^40.
#[inline(always)]
pub(super) fn stamp(id: u32, sequence: u64) -> u64 {
    (u64::from(id) & 0xF_FFFF) << 40 | sequence & ((1 << 40) - 1)
}

/// The lengths of keys and values, which determine their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub key: Option<u64>,
    pub value: Option<u64>,
}

const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}

impl Form {
    const fn has_lengths(self) -> bool {
        self.key.is_none() || self.value.is_none()
    }

    #[inline(always)]
    pub const fn key_at(self, node: Offset) -> Offset {
        Offset::from_raw(node.raw() + NODE_BODY + if self.has_lengths() { 8 } else { 0 })
    }

    /// Returns the offset of the inline value of `node`, whose key has `key` bytes.
    #[inline(always)]
    pub const fn inline_at(self, node: Offset, key: u64) -> Offset {
        Offset::from_raw(self.key_at(node).raw() + padded(key))
    }

    #[inline(always)]
    pub const fn node_bytes(self, key: u64, value: u64) -> u64 {
        self.key_at(Offset::from_raw(0)).raw() + padded(key) + padded(value)
    }

    #[inline(always)]
    pub const fn block_bytes(self, value: u64) -> u64 {
        BLOCK_BODY + if self.value.is_none() { 8 } else { 0 } + padded(value)
    }

    /// Returns the lengths of key and inline value of `node`.
    #[inline(always)]
    pub fn lengths<M: Memory>(self, memory: M, node: Offset) -> (u64, u64) {
        match (self.key, self.value) {
            (Some(key), Some(value)) => (key, value),
            (key, value) => {
                // Relaxed: written before the node was linked.
                let both: u64 = memory.load(node + NODE_BODY, Ordering::Relaxed);
                (
                    key.unwrap_or(both & 0xFFFF_FFFF),
                    value.unwrap_or(both >> 32),
                )
            }
        }
    }

    /// Returns the offset and the length of the value of `node`, whose value word is `word`.
    #[inline(always)]
    pub fn value<M: Memory>(self, memory: M, node: Offset, word: u64) -> (Offset, u64) {
        if word & INLINE != 0 {
            let (key, value) = self.lengths(memory, node);
            return (self.inline_at(node, key), value);
        }
        let block = target(word);
        match self.value {
            Some(len) => (block + BLOCK_BODY, len),
            None => (
                block + BLOCK_BODY + 8,
                memory.load(block + BLOCK_BODY, Ordering::Relaxed),
            ),
        }
    }
}

/// Returns whether the memory at `at` holds `bytes`.
#[inline(always)]
pub(super) fn equal<M: Memory>(memory: M, at: Offset, bytes: &[u8]) -> bool {
    let mut at = at;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes(chunk.try_into().expect("eight bytes"));
        if memory.load::<u64>(at, Ordering::Relaxed) != word {
            return false;
        }
        at = at + 8;
    }
    let rest = chunks.remainder();
    if rest.is_empty() {
        return true;
    }
    // As `copy_in` fills up the last word.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    memory.load::<u64>(at, Ordering::Relaxed) == u64::from_ne_bytes(last)
}

/// The encoding of keys `K` and values `V`.
pub(super) struct Typed<K: ?Sized, V: ?Sized>(PhantomData<fn(&K, &V)>);

impl<K: Datum + ?Sized, V: Datum + ?Sized> Typed<K, V> {
    pub const FORM: Form = Form {
        key: K::BYTES,
        value: V::BYTES,
    };

    pub fn node_bytes(key: &K, value: &V) -> u64 {
        Self::FORM.node_bytes(key.bytes().len() as u64, value.bytes().len() as u64)
    }

    pub fn block_bytes(value: &V) -> u64 {
        Self::FORM.block_bytes(value.bytes().len() as u64)
    }

    /// Writes all words of a node except its link.
    #[inline(always)]
    pub fn fill_node<M: Memory>(
        memory: M,
        node: Offset,
        era: u64,
        sort: u64,
        (key, value): (&K, &V),
    ) {
        let (key, value) = (key.bytes(), value.bytes());
        memory.store(node, era, Ordering::Relaxed);
        memory.store(node + SORT, sort, Ordering::Relaxed);
        memory.store(node + VALUE, INLINE, Ordering::Relaxed);
        if Self::FORM.has_lengths() {
            let both = key.len() as u64 | (value.len() as u64) << 32;
            memory.store(node + NODE_BODY, both, Ordering::Relaxed);
        }
        let at = Self::FORM.key_at(node);
        memory.copy_in(at, key);
        memory.copy_in(at + padded(key.len() as u64), value);
    }

    /// Writes a value block.
    #[inline(always)]
    pub fn fill_block<M: Memory>(memory: M, block: Offset, era: u64, value: &V) {
        let value = value.bytes();
        memory.store(block, era, Ordering::Relaxed);
        memory.store(block + SEEN, 0u64, Ordering::Relaxed);
        let mut at = block + BLOCK_BODY;
        if V::BYTES.is_none() {
            memory.store(at, value.len() as u64, Ordering::Relaxed);
            at = at + 8;
        }
        memory.copy_in(at, value);
    }

    /// Returns whether `node` has this key.
    #[inline(always)]
    pub fn has_key<M: Memory>(memory: M, node: Offset, key: &K) -> bool {
        let bytes = key.bytes();
        (K::BYTES.is_some() || Self::FORM.lengths(memory, node).0 == bytes.len() as u64)
            && equal(memory, Self::FORM.key_at(node), bytes)
    }

    /// Reads the key of `node`.
    #[inline(always)]
    pub fn key<M: Memory>(memory: M, node: Offset) -> K::Owned {
        let (len, _) = Self::FORM.lengths(memory, node);
        K::read(memory, Self::FORM.key_at(node), len)
    }

    /// Reads the value of `node` that `word` stands for.
    #[inline(always)]
    pub fn value<M: Memory>(memory: M, node: Offset, word: u64) -> V::Owned {
        let (at, len) = Self::FORM.value(memory, node, word);
        V::read(memory, at, len)
    }

    /// Returns whether the value that `word` stands for is in its node.
    pub const fn is_inline(word: u64) -> bool {
        word & INLINE != 0
    }

    /// Returns whether the value that `word` stands for is `expected`.
    pub fn has_value<M: Memory>(memory: M, node: Offset, word: u64, expected: &V) -> bool {
        let (at, len) = Self::FORM.value(memory, node, word);
        let bytes = expected.bytes();
        len == bytes.len() as u64 && equal(memory, at, bytes)
    }
}
