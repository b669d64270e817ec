//! Finds a slab when a thread's slabs of a class are full: it searches the thread's own, adopts an
//! orphan, or cuts a new one. Also returns slabs to the buddy allocator.

use super::LocalHeap;
use super::allocation_cache::NONE;
use super::buddy::{AllocateError, Locked};
use super::scratch;
use super::slab::step::owner_of;
use super::slab::{CLASSES, Class, SLAB, Slab, Steps, WORDS};
use crate::recovery::Recoverers;
use outlive_memory::{Memory, Ordering};

outlive_memory::crash_points! {
    /// The crash points of the search for a slab.
    pub enum HeapRefillPoint for "heap.refill" {
        /// The buddy allocator's lock is held.
        Locked,
        /// The blocks freed in an orphan are collected; the slab is still its old owner's.
        Prepared,
        /// An orphan is the caller's.
        Adopted,
        /// A new slab is in the transaction.
        Logged,
        /// The new slab is the caller's.
        Cut,
    }
}

outlive_memory::crash_points! {
    /// The crash points of the collection of blocks that other members have freed.
    pub enum HeapCollectPoint for "heap.collect" {
        /// The blocks of a word are free; their remote bits are set.
        LocalCleared,
        /// Their remote bits are clear.
        RemoteCleared,
    }
}

outlive_memory::crash_points! {
    /// The crash points of the return of a slab.
    pub enum HeapGiveBackPoint for "heap.give_back" {
        /// The transaction is complete but not committed.
        Logged,
        /// The slab has been returned to the buddy allocator.
        Done,
    }
}

/// The number of its own slabs of a class that a thread checks before it looks elsewhere.
const OWN: u64 = 16;
/// The number of table entries that it checks for orphans, when there may be some and when not.
const ORPHANS: u64 = 64;
const ORPHANS_UNHINTED: u64 = 4;

impl<'m, M: Memory> LocalHeap<'m, M> {
    pub(super) fn living(&self) -> &'m Recoverers<M> {
        self.recoverers
            .expect("a recoverer does not allocate in a dead instance's name")
    }

    pub(super) fn steps(&self) -> Steps<M> {
        Steps {
            logs: self.living().logs(),
            generations: self.member().generations(),
        }
    }

    /// Ensures that the current slab of class `number` has a free block. `asked` is the request.
    #[cold]
    pub(super) fn refill(&self, number: usize, asked: u64) -> Result<(), AllocateError> {
        let recoverers = self.living();
        self.resume();
        if self.search_ring(number, OWN) {
            return Ok(());
        }
        let memory = self.memory();
        let locked = self.heap.buddy.lock(self.member(), recoverers)?;
        memory.crash_point(HeapRefillPoint::Locked);
        self.pay(&locked);
        let hinted = memory.load::<u64>(self.heap.orphans(), Ordering::Relaxed)
            != memory.load(self.heap.no_orphans(), Ordering::Relaxed);
        let looks = if hinted { ORPHANS } else { ORPHANS_UNHINTED };
        if self.adopt(&locked, number, looks) {
            return Ok(());
        }
        match self.cut(&locked, number) {
            Ok(()) => Ok(()),
            Err(AllocateError::Full { .. }) => {
                let all = u64::from(self.heap.table.count());
                let found = self.pay_all(&locked) && self.cut(&locked, number).is_ok()
                    || self.adopt(&locked, number, all)
                    || self.recut(number)
                    || self.search_ring(number, all);
                found.then_some(()).ok_or_else(|| self.full(asked))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the error of an allocation of `asked` bytes that found no space. Blocks that this
    /// thread has retired are checked before its next outermost pin: here there may be a pin.
    pub(super) fn full(&self, asked: u64) -> AllocateError {
        if !self.is_for_the_dead() {
            self.reclaimer.check_soon();
        }
        let retired = self.retired_bytes();
        let (buddy, heap) = (&self.heap.buddy, self.heap.buddy.bytes());
        AllocateError::HeapFull {
            asked,
            largest_free: buddy.largest_free(),
            heap,
            free: buddy.free_bytes(),
            retired,
        }
    }

    /// Puts the slabs that this member already owned into the rings, once.
    fn resume(&self) {
        let (memory, table) = (self.memory(), &self.heap.table);
        if self.aids.resumed.replace(true) {
            return;
        }
        let tenant: u64 = memory.load(scratch::tenant(self.log()), Ordering::Relaxed);
        if tenant != self.instance().to_word() {
            return;
        }
        for slab in table.all() {
            if owner_of(table, slab) == Some(self.instance()) {
                // Relaxed: the owner's own word.
                let number: u64 = memory.load(table.class(slab), Ordering::Relaxed);
                if let Some(number) = usize::try_from(number).ok().filter(|it| *it < CLASSES) {
                    self.enlist(number, slab);
                }
            }
        }
    }

    /// Records that this member is about to own slabs.
    fn become_tenant(&self) {
        let (memory, at) = (self.memory(), scratch::tenant(self.log()));
        let own = self.instance().to_word();
        // Relaxed: this member's own word.
        if memory.load::<u64>(at, Ordering::Relaxed) != own {
            memory.store(at, own, Ordering::Relaxed);
            memory.persist(at, 8);
        }
    }

    /// Inserts `slab` into the ring of its class, as the current one.
    fn enlist(&self, number: usize, slab: Slab) {
        let table = &self.heap.table;
        let current = &self.aids.current[number];
        match table.slab(current.slab.get()) {
            None => table.join(slab, slab),
            Some(before) => {
                let after = table.next(before).unwrap_or(before);
                table.join(before, slab);
                table.join(slab, after);
            }
        }
        self.enter(number, slab, 0);
    }

    /// Makes `slab` the one that blocks are taken from.
    fn enter(&self, number: usize, slab: Slab, word: u64) {
        self.aids.current[number].set(&self.heap.table, slab, number, word);
    }

    /// Removes `slab` from its ring.
    fn delist(&self, number: usize, slab: Slab) {
        let table = &self.heap.table;
        let current = &self.aids.current[number];
        match (table.before(slab), table.next(slab)) {
            (Some(before), Some(after)) if after != slab => {
                table.join(before, after);
                if current.slab.get() == u64::from(slab.index()) {
                    self.enter(number, after, 0);
                }
            }
            _ => current.clear(),
        }
        if self.aids.spare[number].get() == u64::from(slab.index()) {
            self.aids.spare[number].set(NONE);
        }
    }

    /// Searches up to `looks` slabs of the ring, from the current one on, for a free block.
    fn search_ring(&self, number: usize, looks: u64) -> bool {
        let (table, class) = (&self.heap.table, Class::get(number));
        let current = &self.aids.current[number];
        let Some(first) = table.slab(current.slab.get()) else {
            return false;
        };
        let mut slab = first;
        for _ in 0..looks {
            if let Some(word) = self.room_in(slab, class) {
                self.enter(number, slab, word);
                return true;
            }
            let next = table.next(slab);
            // A neighbour that is not the caller's is due to damage: the ring ends here.
            let own = |slab: &Slab| owner_of(table, *slab) == Some(self.instance());
            match next.filter(own) {
                Some(next) if next != first => slab = next,
                _ => break,
            }
        }
        // The next search starts here.
        self.enter(number, slab, 0);
        false
    }

    /// Returns a word of the slab's bits with a free block, after a collection if necessary.
    fn room_in(&self, slab: Slab, class: Class) -> Option<u64> {
        let table = &self.heap.table;
        if let Some(word) = table.word_with_room(slab, class) {
            return Some(word);
        }
        self.collect(slab, class);
        table.word_with_room(slab, class)
    }

    /// Collects the blocks that others have freed, except those that steps name. The caller owns
    /// the slab or is adopting it.
    fn collect(&self, slab: Slab, class: Class) {
        let (memory, table) = (self.memory(), &self.heap.table);
        let mut remote = [0u64; WORDS as usize];
        let mut any = 0;
        for (word, bits) in (0..class.words()).zip(&mut remote) {
            // Acquire: the freeing instance's record, made before, and its last use of the block.
            *bits = memory.load(table.remote(slab, word), Ordering::Acquire);
            any |= *bits;
        }
        if any == 0 {
            return;
        }
        let named = self.steps().bits_of(table, slab);
        for (word, (bits, named)) in (0..).zip(remote.into_iter().zip(named)) {
            let freed = bits & !named;
            if freed == 0 {
                continue;
            }
            let at = table.local(slab, word);
            // Relaxed: the caller's own word.
            let local: u64 = memory.load(at, Ordering::Relaxed);
            // Release: a thread that finishes this collection must find the local bits clear once
            // the remote ones are.
            memory.store(at, local & !freed, Ordering::Release);
            memory.persist(at, 8);
            memory.crash_point(HeapCollectPoint::LocalCleared);
            // Release: after the local bits.
            memory.fetch_and(table.remote(slab, word), !freed, Ordering::Release);
            memory.persist(table.remote(slab, word), 8);
            memory.crash_point(HeapCollectPoint::RemoteCleared);
        }
    }

    /// Searches `looks` entries of the table for an orphan with a free block, and adopts it. The
    /// caller holds the lock.
    fn adopt(&self, _: &Locked<'_, M>, number: usize, looks: u64) -> bool {
        let (memory, table) = (self.memory(), &self.heap.table);
        let (aids, count) = (&self.aids, u64::from(table.count()));
        let hint: u64 = memory.load(self.heap.orphans(), Ordering::Acquire);
        if aids.round.get().0 != hint {
            aids.round.set((hint, count));
        }
        for _ in 0..looks.min(count) {
            let at = aids.cursor.get();
            aids.cursor.set((at + 1) % count);
            let Some(slab) = table.slab(at) else { break };
            let orphan = owner_of(table, slab)
                .is_some_and(|owner| self.member().generations().is_gone(owner));
            let (_, left) = aids.round.get();
            if orphan {
                aids.round.set((hint, count));
                if self.take_over(slab, number) {
                    return true;
                }
            } else if left > 0 {
                aids.round.set((hint, left - 1));
                if left == 1 {
                    // Relaxed: a hint. If there are more by now, the other word says so: it only
                    // ever grows.
                    memory.store(self.heap.no_orphans(), hint, Ordering::Relaxed);
                }
            }
        }
        false
    }

    /// Adopts an orphan if it has a free block of class `number`, or no allocated block at all.
    fn take_over(&self, slab: Slab, number: usize) -> bool {
        let (memory, table) = (self.memory(), &self.heap.table);
        let Some(old) = table.class_of(slab) else {
            return false;
        };
        let fits = memory.load::<u64>(table.class(slab), Ordering::Relaxed) == number as u64;
        let (mut room, mut empty) = (false, true);
        for word in 0..old.words() {
            // Relaxed: checked again below, in the order that matters.
            let local: u64 = memory.load(table.local(slab, word), Ordering::Relaxed);
            let remote: u64 = memory.load(table.remote(slab, word), Ordering::Relaxed);
            room |= (!local | remote) & old.mask(word) != 0;
            empty &= local & !remote == 0;
        }
        // The owner has departed (acquired), so its own last step is seen here unless it has been
        // settled.
        if !(fits && room || empty) || self.steps().name_any_of(table, slab) {
            return false;
        }
        self.collect(slab, old);
        if !fits {
            if !table.is_empty(slab, old) {
                return false;
            }
            // A slab without allocated blocks can be of any class. Release: before the owner.
            memory.store(table.class(slab), number as u64, Ordering::Release);
            memory.persist(table.class(slab), 8);
        }
        let Some(word) = table.word_with_room(slab, Class::get(number)) else {
            return false;
        };
        self.become_tenant();
        memory.crash_point(HeapRefillPoint::Prepared);
        // Release: after the collection.
        memory.store(
            table.owner(slab),
            self.instance().to_word(),
            Ordering::Release,
        );
        memory.persist(table.owner(slab), 8);
        memory.crash_point(HeapRefillPoint::Adopted);
        self.enlist(number, slab);
        self.enter(number, slab, word);
        true
    }

    /// Takes a new slab from the buddy allocator.
    fn cut(&self, locked: &Locked<'_, M>, number: usize) -> Result<(), AllocateError> {
        let (memory, table) = (self.memory(), &self.heap.table);
        self.become_tenant();
        let mut redo = locked.redo()?;
        let block = locked.allocate(&mut redo, SLAB)?;
        let slab = table.slab_of(block.raw() - self.heap.buddy.region().raw());
        redo.store(table.class(slab), number as u64)?;
        redo.store(table.owner(slab), self.instance().to_word())?;
        memory.crash_point(HeapRefillPoint::Logged);
        redo.commit();
        memory.crash_point(HeapRefillPoint::Cut);
        self.enlist(number, slab);
        Ok(())
    }

    /// Cuts one of the caller's empty slabs of another class into blocks of class `number`.
    fn recut(&self, number: usize) -> bool {
        let (memory, table) = (self.memory(), &self.heap.table);
        for other in (0..CLASSES).filter(|other| *other != number) {
            let class = Class::get(other);
            let ring =
                core::iter::successors(table.slab(self.aids.current[other].slab.get()), |slab| {
                    table.next(*slab)
                });
            for slab in ring.take(OWN as usize) {
                if owner_of(table, slab) != Some(self.instance()) {
                    break;
                }
                self.collect(slab, class);
                if table.is_empty(slab, class) && !self.steps().name_any_of(table, slab) {
                    self.delist(other, slab);
                    // Release: no store of the old class follows it.
                    memory.store(table.class(slab), number as u64, Ordering::Release);
                    memory.persist(table.class(slab), 8);
                    self.enlist(number, slab);
                    return true;
                }
            }
        }
        false
    }

    /// Keeps one empty slab of a class and returns others, unless the lock is not available at
    /// once.
    #[cold]
    pub(super) fn check_empty(&self, number: usize, slab: Slab) {
        let (table, class) = (&self.heap.table, Class::get(number));
        if !table.is_empty(slab, class) {
            return;
        }
        self.resume();
        let spare = &self.aids.spare[number];
        match table.slab(spare.get()) {
            Some(kept) if kept != slab && table.is_empty(kept, class) => {}
            _ => return spare.set(slab.index().into()),
        }
        let recoverers = self.living();
        let member = self.member();
        // In case of any failure the slab stays, and is used or returned another time.
        if let Ok(Some(locked)) = self.heap.buddy.try_lock(member, recoverers)
            && self.give_back(&locked, slab, class)
        {
            self.delist(number, slab);
        }
    }

    /// Returns an empty slab, the caller's own or an orphan, to the buddy allocator.
    fn give_back(&self, locked: &Locked<'_, M>, slab: Slab, class: Class) -> bool {
        let (memory, table) = (self.memory(), &self.heap.table);
        // Acquire: as in a collection.
        let remote = (0..class.words())
            .any(|word| memory.load::<u64>(table.remote(slab, word), Ordering::Acquire) != 0);
        if remote || !table.is_empty(slab, class) || self.steps().name_any_of(table, slab) {
            return false;
        }
        let Ok(mut redo) = locked.redo() else {
            return false;
        };
        let logged = locked.free(&mut redo, table.start(slab)).is_ok()
            && redo.store(table.owner(slab), 0u64).is_ok()
            && redo.store(table.class(slab), 0u64).is_ok();
        if !logged {
            return false;
        }
        memory.crash_point(HeapGiveBackPoint::Logged);
        redo.commit();
        memory.crash_point(HeapGiveBackPoint::Done);
        true
    }

    /// Returns all empty slabs of departed members and of the caller to the buddy allocator, when
    /// it is full.
    pub(super) fn give_back_all(&self, locked: &Locked<'_, M>) -> bool {
        let (memory, table) = (self.memory(), &self.heap.table);
        self.resume();
        let mut any = false;
        for slab in table.all() {
            let (Some(owner), Some(class)) = (owner_of(table, slab), table.class_of(slab)) else {
                continue;
            };
            let own = owner == self.instance();
            if !own && !self.member().generations().is_gone(owner) {
                continue;
            }
            if !own && self.steps().name_any_of(table, slab) {
                continue;
            }
            self.collect(slab, class);
            // Relaxed: the caller's own word, or an orphan's.
            let number: u64 = memory.load(table.class(slab), Ordering::Relaxed);
            if self.give_back(locked, slab, class) {
                any = true;
                if own {
                    self.delist(number as usize, slab);
                }
            }
        }
        any
    }
}
