//! The contents of the named object behind a leased object: the place of its bytes.
//!
//! ```text
//!  0  creator (an instance)
//!  8  address of the bytes
//! 16  number of bytes
//! 24  time of the last use, in milliseconds since 1970
//! 32  0, or 1 while the object is pinned, or the thread (an instance) that evicts it
//! ```
//!
//! The first three words do not change. The owner word of the memory says whether the object is
//! sealed: see [`Coherent::seal`].

use crate::coherent::Coherent;
use crate::error::PoolError;
use crate::layout::Address;
use outlive::heap::LocalHeap;
use outlive::membership::Instance;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::objects::{Class, Contents, Directory, Object, ObjectError};

const CREATOR: u64 = 0;
const ADDRESS: u64 = 8;
const BYTES: u64 = 16;
const LAST_USE: u64 = 24;
const PINNED: u64 = 32;
const SIZE: u64 = 40;

/// The contents of a leased object.
#[derive(Clone, Copy, Debug)]
pub struct Manifest<M: Memory = Native> {
    memory: M,
    at: Offset,
}

/// The mark of a pinned object. No instance has this word.
const PIN: u64 = 1;

/// The result of an attempt to pin an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The object is as requested.
    Done,
    /// The object is pinned now. An evictor may have removed its name before.
    Changed,
    /// The object is not pinned: a live thread is evicting it.
    Evicted,
}

/// The parameters of the creation of a leased object.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// The process that creates it.
    pub creator: Instance,
    /// The address of its memory, which belongs to the creator.
    pub address: Address,
    /// The number of its bytes.
    pub bytes: u64,
    /// The time of the creation, in milliseconds since 1970.
    pub now: u64,
}

impl<M: Memory> Object<M> for Manifest<M> {
    type Init = Birth;
    const CLASS: Class = Class::Plain;

    fn describe() -> String {
        "leased object".into()
    }

    fn fingerprint() -> u64 {
        u64::from_le_bytes(*b"manifest")
    }

    fn bytes(_: &Birth) -> u64 {
        SIZE
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, birth: Birth) -> Result<(), ObjectError> {
        let memory = heap.memory();
        let words = [
            (CREATOR, birth.creator.to_word()),
            (ADDRESS, birth.address.to_word()),
            (BYTES, birth.bytes),
            (LAST_USE, birth.now),
        ];
        for (place, word) in words {
            // Relaxed: published with the state of the object.
            memory.store(at + place, word, Ordering::Relaxed);
        }
        memory.persist(at, SIZE);
        Ok(())
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        let (memory, at) = (contents.memory, contents.of_size(SIZE)?);
        let manifest = Self { memory, at };
        match Address::from_word(manifest.word(ADDRESS)) {
            Some(_) => Ok(manifest),
            None => Err(ObjectError::Damaged {
                at,
                what: "a leased object has no address",
            }),
        }
    }
}

impl<M: Memory> Manifest<M> {
    fn word(&self, place: u64) -> u64 {
        // Relaxed: published with the state of the object, or a hint.
        self.memory.load(self.at + place, Ordering::Relaxed)
    }

    /// Returns the place of these contents.
    pub fn at(&self) -> Offset {
        self.at
    }

    /// Returns the process that creates the object.
    pub fn creator(&self) -> Option<Instance> {
        Instance::from_word(self.word(CREATOR))
    }

    /// Returns the address of the bytes.
    ///
    /// # Errors
    /// If it was overwritten since the object was opened.
    pub fn address(&self) -> Result<Address, PoolError> {
        let damaged = ObjectError::Damaged {
            at: self.at,
            what: "a leased object has no address",
        };
        Address::from_word(self.word(ADDRESS)).ok_or(PoolError::Objects(damaged))
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.word(BYTES)
    }

    /// Returns the time of the last use, in milliseconds since 1970.
    pub fn last_use(&self) -> u64 {
        self.word(LAST_USE)
    }

    /// Records a use at the time `now`.
    pub fn touch(&self, now: u64) {
        // Read first: concurrent users of one object do not take its line from one another.
        if self.word(LAST_USE) < now {
            self.memory
                .store(self.at + LAST_USE, now, Ordering::Relaxed);
        }
    }

    /// Returns whether the object is pinned.
    pub fn is_pinned(&self) -> bool {
        self.word(PINNED) == PIN
    }

    fn change_pin(&self, from: u64, to: u64) -> bool {
        // AcqRel: an eviction and a pin exclude each other.
        let (at, order) = (self.at + PINNED, (Ordering::AcqRel, Ordering::Acquire));
        let changed = { self.memory }.compare_exchange(at, from, to, order.0, order.1);
        self.memory.persist(at, 8);
        changed.is_ok()
    }

    /// Pins the object, or removes its pin, which does not end an eviction.
    pub fn pin(&self, is_pinned: bool, is_gone: impl Fn(Instance) -> bool) -> Pin {
        loop {
            let word = self.word(PINNED);
            match (is_pinned, word, Instance::from_word(word)) {
                (true, PIN, _) => return Pin::Done,
                (false, _, Some(_)) | (false, 0, _) => return Pin::Done,
                (true, _, Some(evictor)) if !is_gone(evictor) => return Pin::Evicted,
                (true, ..) if self.change_pin(word, PIN) => return Pin::Changed,
                (false, ..) if self.change_pin(word, 0) => return Pin::Done,
                // Another member has changed the word.
                _ => self.memory.spin_hint(),
            }
        }
    }

    /// Marks the object for its eviction by the thread `evictor`, unless it is pinned, or another
    /// live thread is evicting it. Returns whether it was marked.
    pub fn begin_eviction(&self, evictor: Instance, is_gone: impl Fn(Instance) -> bool) -> bool {
        let word = self.word(PINNED);
        let is_free = word == 0 || Instance::from_word(word).is_some_and(is_gone);
        is_free && self.change_pin(word, evictor.to_word())
    }

    /// Removes the mark of the thread `evictor`: the object keeps its name.
    pub fn end_eviction(&self, evictor: Instance) {
        self.change_pin(evictor.to_word(), 0);
    }
}

/// Returns whether an object exists whose contents are at `holder`, and whose bytes are at
/// `address`. No other object has this address: its generation is that of one allocation.
pub fn holds<M: Memory>(directory: &Directory<M>, holder: Offset, address: Address) -> bool {
    let contents = directory.contents_at::<Manifest<M>>(holder);
    let manifest = contents.and_then(|contents| Manifest::open(contents).ok());
    manifest.is_some_and(|it| it.word(ADDRESS) == address.to_word())
}

/// Returns whether the memory at `address`, which the object with its contents at `holder` had,
/// must be freed: the object was destroyed, and no member is freeing the memory.
pub fn is_left<M: Memory>(
    coherent: Coherent<M>,
    directory: &Directory<M>,
    holder: Offset,
    address: Address,
) -> bool {
    coherent.is_sealed(address) && !holds(directory, holder, address)
}

/// Returns the addresses of the memory of sealed objects that do not exist any more. A sealed
/// object exists until its last lease ends, and its memory is not sealed again. So this memory has
/// no user, and gets none.
pub fn unheld<M: Memory>(coherent: Coherent<M>, directory: &Directory<M>) -> Vec<Address> {
    { coherent.sealed() }
        .filter(|(address, holder)| !holds(directory, *holder, *address))
        .map(|(address, _)| address)
        .collect()
}
