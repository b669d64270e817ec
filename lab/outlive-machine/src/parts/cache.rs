//! A set-associative array of cache lines.

use crate::description::Cache;
use crate::engine::prefetch;
use crate::line::{Line, LineAddress};

/// A set-associative array of lines: addresses, real values, and for each line a state `S` of the
/// protocol that uses it. Where another array keeps the values, `L` is `()`, and this one is tags.
///
/// When a set is full, the line that was [touched](Self::touch) longest ago is evicted (true LRU).
/// Not tree-PLRU: the paper's first level has 12 ways, and a tree needs a power of two; and a touch
/// is one store of a counter here, while a victim is searched for only on a miss.
///
/// All storage is allocated at the beginning. A lookup changes nothing, so snoops leave no trace.
///
/// ```
/// use outlive_machine::line::LineAddress;
/// use outlive_machine::parts::{CacheArray, Victim};
///
/// let mut cache: CacheArray<char> = CacheArray::new(1, 2);
/// for address in [LineAddress(10), LineAddress(11)] {
///     let Victim::Free(slot) = cache.victim(address) else { panic!("it is empty") };
///     cache.fill(slot, address, 'S', [address.0; 8]);
/// }
/// let ten = cache.find(LineAddress(10)).unwrap();
/// cache.touch(ten);
/// cache.line_mut(ten)[3] = 77;
/// let Victim::Taken(slot) = cache.victim(LineAddress(12)) else { panic!("it is full") };
/// assert_eq!(cache.remove(slot), (LineAddress(11), 'S', [11; 8]));
/// assert_eq!(cache.line(ten)[3], 77);
/// ```
#[derive(Clone, Debug)]
pub struct CacheArray<S, L = Line> {
    ways: usize,
    set_mask: u64,
    /// Addresses, set by set; `FREE` where there is no line. Separate from the rest, since they are
    /// all that a search reads.
    tags: Box<[u64]>,
    /// The time of a line's last touch, counted in touches.
    touched: Box<[u64]>,
    touches: u64,
    /// The way of each set that was touched last.
    recent: Box<[u8]>,
    states: Box<[S]>,
    lines: Box<[L]>,
    held: usize,
}

/// No line has this address: its bytes would lie past the end of 64 bits.
const FREE: u64 = u64::MAX;

/// A place in a [`CacheArray`]: a set and a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// A place to which a line can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// This place is free.
    Free(Slot),
    /// The line in this place must be removed first.
    Taken(Slot),
}

impl<S: Copy + Default, L: Copy + Default> CacheArray<S, L> {
    /// Creates an empty array.
    ///
    /// # Panics
    ///
    /// Without ways or with more than 256, if the number of sets is not a power of two, or with 2³²
    /// lines or more.
    pub fn new(sets: usize, ways: usize) -> Self {
        assert!((1..=256).contains(&ways), "a cache has from 1 to 256 ways");
        assert!(sets.is_power_of_two(), "{sets} sets are not a power of two");
        let count = sets
            .checked_mul(ways)
            .filter(|count| u32::try_from(*count).is_ok())
            .expect("a cache has less than 2^32 lines");
        Self {
            ways,
            set_mask: sets as u64 - 1,
            tags: vec![FREE; count].into(),
            touched: vec![0; count].into(),
            touches: 0,
            recent: vec![0; sets].into(),
            states: vec![S::default(); count].into(),
            lines: vec![L::default(); count].into(),
            held: 0,
        }
    }

    /// Creates an empty array of this shape, which has been checked.
    pub fn described(cache: &Cache) -> Self {
        Self::new(cache.sets() as usize, cache.ways as usize)
    }

    /// Drops all lines.
    pub fn clear(&mut self) {
        self.tags.fill(FREE);
        self.held = 0;
    }

    /// Returns the place of the line at `address`, if it is here.
    #[inline]
    pub fn find(&self, address: LineAddress) -> Option<Slot> {
        let first = self.first(address);
        let way = self.tags[first..first + self.ways]
            .iter()
            .position(|tag| *tag == address.0)?;
        // An array has fewer than 2³² lines.
        Some(Slot((first + way) as u32))
    }

    /// Returns the place of the line at `address`, if it is here, and [touches](Self::touch) it.
    /// This is faster than the two calls, above all if the line was the last touched of its set:
    /// then nothing changes.
    #[inline]
    pub fn find_to_use(&mut self, address: LineAddress) -> Option<Slot> {
        let set = (address.0 & self.set_mask) as usize;
        let recent = set * self.ways + usize::from(self.recent[set]);
        if self.tags[recent] == address.0 {
            return Some(Slot(recent as u32));
        }
        let slot = self.find(address)?;
        self.touch_in(set, slot);
        Some(slot)
    }

    #[inline]
    fn touch_in(&mut self, set: usize, slot: Slot) {
        self.touches += 1;
        self.touched[slot.0 as usize] = self.touches;
        // A cache has 256 ways at most.
        self.recent[set] = (slot.0 as usize - set * self.ways) as u8;
    }

    /// Prefetches the set of `address`, which will be searched soon.
    #[inline]
    pub(crate) fn look_ahead(&self, address: LineAddress) {
        let first = self.first(address);
        // A cache line of the host holds eight of either.
        for at in (first..first + self.ways).step_by(8) {
            prefetch(&self.tags[at]);
            prefetch(&self.touched[at]);
        }
    }

    /// Returns a place for the line at `address`: a free one, or that of the least recently used
    /// line.
    #[inline]
    pub fn victim(&self, address: LineAddress) -> Victim {
        self.victim_among(address, |_, _| true)
            .expect("every line may be evicted")
    }

    /// As [`victim`](Self::victim), among the lines that `may_go`: `None` if no line of the set
    /// may. A line that waits for a message has to stay.
    pub fn victim_among(
        &self,
        address: LineAddress,
        may_go: impl Fn(LineAddress, &S) -> bool,
    ) -> Option<Victim> {
        let first = self.first(address);
        let mut oldest = None;
        for at in first..first + self.ways {
            if self.tags[at] == FREE {
                return Some(Victim::Free(Slot(at as u32)));
            }
            let older = oldest.is_none_or(|oldest: usize| self.touched[at] < self.touched[oldest]);
            if older && may_go(LineAddress(self.tags[at]), &self.states[at]) {
                oldest = Some(at);
            }
        }
        oldest.map(|at| Victim::Taken(Slot(at as u32)))
    }

    /// Puts a line into a free place of its set, and touches it.
    ///
    /// # Panics
    ///
    /// If the place is taken or of another set. Only debug builds check whether the line is here.
    pub fn fill(&mut self, slot: Slot, address: LineAddress, state: S, line: L) {
        let at = slot.0 as usize;
        let first = self.first(address);
        assert!(
            (first..first + self.ways).contains(&at) && self.tags[at] == FREE,
            "{address} cannot go to {slot:?}"
        );
        assert_ne!(address.0, FREE, "no line has this address");
        debug_assert!(self.find(address).is_none(), "{address} is here already");
        self.tags[at] = address.0;
        self.states[at] = state;
        self.lines[at] = line;
        self.held += 1;
        self.touch_in((address.0 & self.set_mask) as usize, slot);
    }

    /// Removes a line. Returns its address, its state, and its values.
    ///
    /// # Panics
    ///
    /// If the place is free.
    pub fn remove(&mut self, slot: Slot) -> (LineAddress, S, L) {
        let at = slot.0 as usize;
        let address = self.address(slot);
        self.tags[at] = FREE;
        self.held -= 1;
        (address, self.states[at], self.lines[at])
    }

    /// Notes that a line was used now.
    #[inline]
    pub fn touch(&mut self, slot: Slot) {
        let set = slot.0 as usize / self.ways;
        self.touch_in(set, slot);
    }

    /// Returns the address of the line in a place.
    ///
    /// # Panics
    ///
    /// If the place is free.
    #[inline]
    pub fn address(&self, slot: Slot) -> LineAddress {
        let tag = self.tags[slot.0 as usize];
        assert_ne!(tag, FREE, "{slot:?} holds no line");
        LineAddress(tag)
    }

    /// Returns the state of the line in a place; of a free place, that of its last line.
    #[inline]
    pub fn state(&self, slot: Slot) -> S {
        self.states[slot.0 as usize]
    }

    /// Returns the state of the line in a place, to change it.
    #[inline]
    pub fn state_mut(&mut self, slot: Slot) -> &mut S {
        &mut self.states[slot.0 as usize]
    }

    /// Returns the values of the line in a place; of a free place, those of its last line.
    #[inline]
    pub fn line(&self, slot: Slot) -> &L {
        &self.lines[slot.0 as usize]
    }

    /// Returns the values of the line in a place, to change them.
    #[inline]
    pub fn line_mut(&mut self, slot: Slot) -> &mut L {
        &mut self.lines[slot.0 as usize]
    }

    /// Returns all lines, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (LineAddress, S, &L)> {
        let places = self.tags.iter().zip(&self.states).zip(&self.lines);
        places
            .filter(|((tag, _), _)| **tag != FREE)
            .map(|((tag, state), line)| (LineAddress(*tag), *state, line))
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Returns the capacity, in lines.
    pub fn capacity(&self) -> usize {
        self.tags.len()
    }

    /// Returns the first place of the set of an address, whose low bits are the number of the set.
    #[inline]
    fn first(&self, address: LineAddress) -> usize {
        (address.0 & self.set_mask) as usize * self.ways
    }
}
