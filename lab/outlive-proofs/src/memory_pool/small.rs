//! A small memory pool: the real tables and up to three servers in one memory.

use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_pool::internals::{Coherent, Home, Homes, Line, Pace, ServerFiles, Unfinished};
use outlive_pool::{Address, Census, PoolError, ServerEntry, ServerId, Sizes};

/// The number of bytes of the memory.
pub const SIZE: u64 = 28 << 10;

const SIZES: Sizes = Sizes {
    slice_bits: 12,
    slices: 6,
    servers: 3,
    readers: 2,
    counters: 1,
    moves: 2,
    object_quota: 0,
};
const TABLES: Offset = Offset::new(128);
const REGIONS: u64 = 2048;
const FRAMES: u64 = 3;
/// For each server a word that is 1 while its segment exists.
const SEGMENTS: Offset = Offset::new(1984);
/// The lock of a member, which two threads act as.
pub const LOCK: Offset = Offset::new(2008);
/// The map words, the owner words and the holders lie at the end of the tables.
const WORDS: u64 = SIZES.slices * 8;

/// Returns the instance of a process: 0 is the victim, 1 and above are its recoverers.
pub const fn instance(id: u32) -> Instance {
    Instance::new(id, 1)
}

/// Returns the place and length of the map words.
pub fn words() -> (Offset, u64) {
    (TABLES + (SIZES.bytes() - 3 * WORDS), WORDS)
}

/// Returns the place and length of the owner words.
pub fn owners() -> (Offset, u64) {
    (TABLES + (SIZES.bytes() - 2 * WORDS), WORDS)
}

/// Returns the place and length of the holders of a pool at `base`.
pub fn holders(base: u64) -> (Offset, u64) {
    (TABLES + (base + SIZES.bytes() - WORDS), WORDS)
}

/// Returns the place and length of the write lock of the first slice, if it has replicas and is an
/// allocation of one slice: the holder word of the second slice.
pub fn lock_word() -> (Offset, u64) {
    let (at, _) = holders(0);
    (at + 8, 8)
}

/// Returns the place and length of the owner word of the first reader.
pub fn reader() -> (Offset, u64) {
    (TABLES + 0x180, 8)
}

/// Returns the place and length of the words that name the new frames in the records of moves.
pub fn new_frames() -> (Offset, u64) {
    // Of the first record; the mover words follow the records, and then the map words.
    let records = WORDS + u64::from(SIZES.moves) * 64;
    let (words, _) = words();
    (Offset::new(words.raw() - records) + 24, 8)
}

/// Returns the place and length of the state word of the first server.
pub fn state() -> (Offset, u64) {
    (TABLES + (0x80 + 8), 8)
}

/// Returns the place and length of the first server's frames.
pub fn frames() -> (Offset, u64) {
    (Offset::new(REGIONS), FRAMES << SIZES.slice_bits)
}

/// A pool of servers with three frames each. A third server fits only if the slices are tiny.
#[derive(Clone, Copy, Debug)]
pub struct SmallPool<M: Memory> {
    memory: M,
    base: u64,
    bits: u32,
    /// The tables.
    pub coherent: Coherent<M>,
}

/// The logarithm of the bytes of a slice in a pool for copies: two words, which are two chunks.
const TINY: u32 = 4;

impl<M: Memory> SmallPool<M> {
    /// Creates the pool, without servers.
    pub fn create(memory: M) -> Self {
        Self::create_at(memory, 0)
    }

    /// Creates the pool in the [`SIZE`] bytes from `base` on.
    pub fn create_at(memory: M, base: u64) -> Self {
        assert!(TABLES.raw() + SIZES.bytes() <= SEGMENTS.raw());
        let coherent = Coherent::create(memory, TABLES + base, SIZES);
        Self {
            memory,
            base,
            bits: SIZES.slice_bits,
            coherent,
        }
    }

    /// Creates a pool with slices of 16 bytes, whose copies have few steps.
    pub fn create_tiny(memory: M) -> Self {
        Coherent::create(memory, TABLES, Self::tiny_sizes());
        Self::open_tiny(memory)
    }

    /// Opens a pool with slices of 16 bytes.
    pub fn open_tiny(memory: M) -> Self {
        Self {
            memory,
            base: 0,
            bits: TINY,
            coherent: Coherent::of(memory, TABLES, Self::tiny_sizes()),
        }
    }

    fn tiny_sizes() -> Sizes {
        Sizes {
            slice_bits: TINY,
            ..SIZES
        }
    }

    /// Opens it.
    pub fn open(memory: M) -> Self {
        Self::open_at(memory, 0)
    }

    /// Opens the pool in the bytes from `base` on.
    pub fn open_at(memory: M, base: u64) -> Self {
        let coherent = Coherent::open(memory, TABLES + base, SIZES.bytes()).expect("a pool");
        Self {
            memory,
            base,
            bits: SIZES.slice_bits,
            coherent,
        }
    }

    /// Returns the region of a server.
    pub fn region(&self, server: ServerId) -> Home<M> {
        let bytes = Home::<M>::bytes_for(FRAMES, self.bits);
        let at = self.base + REGIONS + u64::from(server.0 - 1) * bytes;
        Home::new(self.memory, Offset::new(at), bytes, self.bits)
    }

    /// Claims the line of a reader of the process `owner`.
    pub fn line(&self, owner: Instance) -> Line {
        let line = { self.coherent }.claim_line(owner);
        line.expect("a free line")
    }

    /// Recovers `gone` as `survivor`. Nothing remains.
    pub fn recover(&self, survivor: Instance, gone: Instance) {
        let recovered = { self.coherent }.recover(survivor, gone, self, self);
        assert!(recovered.failed.is_none());
        assert!(recovered.remaining.is_empty() && recovered.moves.is_empty());
        assert!(recovered.lines.is_empty());
    }

    /// Finishes a move. Returns `false` if readers of the old frame are left.
    pub fn finish(&self, mover: Instance, unfinished: &mut Unfinished) -> bool {
        let finished = { self.coherent }.finish_move(mover, unfinished, self);
        finished.expect("reachable servers")
    }

    /// Reads the first word at `address` under a guard; again if it was moved, or if another
    /// replica is to be read.
    pub fn load(&self, line: Line, address: Address, confirms: bool) -> u64 {
        loop {
            let place = match address.is_replicated() {
                true => { self.coherent }.translate_replica(line, 0, address, self),
                false => { self.coherent }.translate(line, 0, address, self),
            };
            let place = place.expect("allocated memory that is alive");
            let word = { place.memory }.load(place.at, Ordering::Relaxed);
            let confirmed = match confirms {
                true => self.coherent.confirm(&place),
                false => Ok(()),
            };
            self.coherent.withdraw(line, 0);
            match confirmed {
                Ok(()) => return word,
                Err(PoolError::Moved { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the server whose region has this place.
    pub fn server_at(&self, at: Offset) -> ServerId {
        let bytes = Home::<M>::bytes_for(FRAMES, self.bits);
        ServerId(1 + ((at.raw() - self.base - REGIONS) / bytes) as u16)
    }

    /// Waits for another thread.
    pub fn pause(&self) {
        { self.memory }.spin_hint();
    }

    /// Returns whether a frame of a server has `slice`.
    pub fn has_frame(&self, server: ServerId, slice: u64) -> bool {
        self.region(server).uses().any(|(_, user)| user == slice)
    }

    /// Checks the pool.
    pub fn check(&self) -> Result<Census, Vec<String>> {
        { self.coherent }.check(self)
    }

    fn segment(&self, server: ServerId) -> Offset {
        SEGMENTS + self.base + u64::from(server.0 - 1) * 8
    }

    /// Returns whether the segment of a server exists.
    pub fn has_segment(&self, server: ServerId) -> bool {
        let at = self.segment(server);
        { self.memory }.load::<u64>(at, Ordering::Acquire) != 0
    }

    /// Adds a server of the process `owner`.
    pub fn serve(&self, owner: Instance) -> ServerEntry {
        let create = |server: ServerId, _| {
            let at = self.segment(server);
            { self.memory }.store(at, 1u64, Ordering::Release);
            self.region(server).initialise(FRAMES);
            Ok((Home::<M>::bytes_for(FRAMES, self.bits), 1))
        };
        let joined = { self.coherent }.join_server(owner, self, create);
        joined.expect("a free entry")
    }
}

impl<M: Memory> Homes<M> for SmallPool<M> {
    fn home(&self, segment: u16, generation: u64) -> Result<Option<Home<M>>, PoolError> {
        let server = ServerId(segment);
        let has_memory = self.coherent.has_memory(server, generation);
        Ok(has_memory.then(|| self.region(server)))
    }
}

impl<M: Memory> ServerFiles for SmallPool<M> {
    fn remove(&self, server: ServerId, _: u64) {
        let at = self.segment(server);
        { self.memory }.store(at, 0u64, Ordering::Release);
    }
}

/// Calls a function once, when the first chunk is copied.
#[derive(Debug)]
pub struct Once<F: FnMut()>(pub Option<F>);

impl<F: FnMut()> Pace for Once<F> {
    fn copied(&mut self, _: u64, _: bool) {
        if let Some(mut act) = self.0.take() {
            act();
        }
    }

    fn waits(&mut self) -> bool {
        false
    }
}

/// Waits for writers without end.
#[derive(Debug)]
pub struct Patient;

impl Pace for Patient {
    fn copied(&mut self, _: u64, _: bool) {}

    fn waits(&mut self) -> bool {
        true
    }
}
