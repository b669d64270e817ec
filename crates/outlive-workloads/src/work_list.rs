//! The work list: who does which unit, and which are done.
//!
//! A program asks for units and commits them; it sees no more of the list than [`WorkList`]. Behind that stands
//! the dynamic global list of the paper (LUPIN §3.5, §4): in shared memory, a cursor, and for each unit
//! who claimed it and what came of it.
//!
//! ```text
//!  cursor             the next unit that nobody has been given
//!  for each unit:     claim, the instance that works on it | result, 0 until it is committed
//! ```
//!
//! # Why every unit counts exactly once
//!
//! A result moves once, from 0, by compare-and-swap; whatever the unit did counts by that and by nothing
//! else. A claim moves from nobody to an instance, and from an instance that is gone to another one. So at
//! any time at most one instance that can still write works on a unit: it can work with plain stores.
//!
//! | death | what is left | who goes on |
//! | --- | --- | --- |
//! | after the cursor was raised | a unit that nobody claims | whoever finds the cursor at the end |
//! | after the claim, before the result | a unit claimed by the dead | the same, once the death is proven and the dead one's log is settled |
//! | after the result | a unit that is done | |
//!
//! Who takes a unit over has settled the dead one's log *before*: no recoverer is still carrying out what
//! the dead had committed when others go on from it. That the dead one's id lives again does not mean that: an id is
//! joined first, and then its last incarnation is recovered. He has also looked at the result once more, after the
//! death was proven: the dead one may have committed since he looked first. (An exploration found that.)
//!
//! The cursor is relaxed: it only makes it likely that nobody else wants the same unit. Claims acquire what
//! the one before released (a death is seen through its raised generation). Results are released with all that was done for
//! them and acquired by whoever sees the list at its end, where [`next`](WorkList::next) has looked at all of them.

use core::time::Duration;
use outlive::membership::{Instance, Member};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::recovery::{RecoverError, Recovered, Recoverers};

/// Units of work, given to whoever asks.
///
/// Units are numbers from 0. A unit that is given to somebody who dies is given to somebody else.
pub trait WorkList {
    /// A unit to work on; `None` when all are committed (or the work was called off). Waits while
    /// others work on the last ones, never for the dead.
    ///
    /// A unit that was given and not committed before asking again is given up.
    ///
    /// # Errors
    /// If what a dead one left could not be recovered.
    fn next(&mut self) -> Result<Option<u64>, RecoverError>;

    /// Says that `unit` is done, with a `result` that is not 0. What the caller wrote before is seen by all who
    /// have seen the end of the list. Returns whether this was the commit that counts.
    fn commit(&mut self, unit: u64, result: u64) -> bool;
}

outlive::memory::crash_points! {
    /// Where the taking of a unit may be cut short.
    pub enum NextPoint for "work.next" {
        /// The cursor is behind a unit that nobody claims.
        Drawn,
        /// The unit is claimed.
        Claimed,
        /// A dead one's unit is claimed.
        TakenOver,
    }
}

outlive::memory::crash_points! {
    /// Where a commit may be cut short.
    pub enum CommitPoint for "work.commit" {
        /// All is written, nothing counts.
        Ready,
        /// It counts.
        Committed,
    }
}

/// The words of a work list, to look at.
#[derive(Clone, Copy, Debug)]
pub struct Units<M: Memory = Native> {
    memory: M,
    at: Offset,
    count: u64,
}

const CURSOR: u64 = 0;
/// Where the cursor's neighbours begin: it is written by all.
const FIRST: u64 = 128;
const UNIT: u64 = 16;

impl<M: Memory> Units<M> {
    /// The list of `count` units at `at`, aligned to 128 bytes: zeroed memory at first, all units
    /// open.
    pub fn new(memory: M, at: Offset, count: u64) -> Self {
        Self { memory, at, count }
    }

    /// How many bytes `count` units take.
    pub const fn bytes(count: u64) -> u64 {
        FIRST + count * UNIT
    }

    /// How many units there are.
    pub fn count(self) -> u64 {
        self.count
    }

    /// How many units have been given out, about.
    pub fn drawn(self) -> u64 {
        let cursor: u64 = self.memory.load(self.at + CURSOR, Ordering::Relaxed);
        cursor.min(self.count)
    }

    fn claim_at(self, unit: u64) -> Offset {
        debug_assert!(unit < self.count);
        self.at + (FIRST + unit * UNIT)
    }

    /// Who works on `unit`, or did.
    pub fn claimant(self, unit: u64) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.claim_at(unit), Ordering::Acquire))
    }

    /// The result of `unit`; 0 while it is not done.
    #[inline]
    pub fn result(self, unit: u64) -> u64 {
        if unit >= self.count {
            return 0;
        }
        self.memory.load(self.claim_at(unit) + 8, Ordering::Acquire)
    }

    /// How many units are done.
    pub fn done(self) -> u64 {
        (0..self.count)
            .filter(|unit| self.result(*unit) != 0)
            .count() as u64
    }
}

/// A member's hand on a [list](Units).
#[derive(Debug)]
pub struct SharedList<'m, M: Memory = Native> {
    units: Units<M>,
    member: &'m Member<M>,
    recoverers: &'m Recoverers<M>,
    /// A word that is not 0 once the work is called off.
    called_off: Offset,
    /// All units before this one are done.
    done_up_to: u64,
}

/// How often one looks again before one sleeps between two looks.
const LOOKS: u32 = 200;
/// How long one sleeps between two looks at the units of others.
const NAP: Duration = Duration::from_micros(200);

impl<'m, M: Memory> SharedList<'m, M> {
    /// `member`'s hand on `units`. The word at `called_off` is not 0 once nobody is to go on.
    pub fn new(
        units: Units<M>,
        member: &'m Member<M>,
        recoverers: &'m Recoverers<M>,
        called_off: Offset,
    ) -> Self {
        Self {
            units,
            member,
            recoverers,
            called_off,
            done_up_to: 0,
        }
    }

    fn claim(&self, unit: u64, from: u64) -> bool {
        let memory = self.units.memory;
        let me = self.member.instance().to_word();
        // Acquire: what was done by whoever gave the unit up. Release: nothing, but who takes it over from me
        // sees my generation through it.
        memory
            .compare_exchange(
                self.units.claim_at(unit),
                from,
                me,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Sees to it that nothing of a dead incarnation of `id` is still to be carried out, or being carried out. Waits
    /// while a living one recovers it; `false` if the work was called off meanwhile.
    ///
    /// The log says that, and not the state of the id: a next incarnation is there, and lives, before it has
    /// recovered its predecessor.
    fn settle(&self, id: u32) -> Result<bool, RecoverError> {
        let mut looks = 0;
        while let Recovered::ByAnother(_) = self.recoverers.recover(self.member, id)? {
            if self.is_called_off() {
                return Ok(false);
            }
            self.wait(&mut looks);
        }
        Ok(true)
    }

    /// Waits a little between two looks at what others do.
    fn wait(&self, looks: &mut u32) {
        self.units.memory.spin_hint();
        *looks += 1;
        if *looks > LOOKS {
            std::thread::sleep(NAP);
        }
    }

    fn is_called_off(&self) -> bool {
        // Relaxed: a request; whoever made it has written why before, and is asked again.
        let word: u64 = self.units.memory.load(self.called_off, Ordering::Relaxed);
        word != 0
    }

    /// An open unit whose claimant is gone, or that nobody claims; whether there are open ones at all.
    fn orphan(&mut self) -> Result<(Option<u64>, bool), RecoverError> {
        let mut open = false;
        for unit in self.done_up_to..self.units.count {
            if self.units.result(unit) != 0 {
                if unit == self.done_up_to {
                    self.done_up_to += 1;
                }
                continue;
            }
            open = true;
            match self.units.claimant(unit) {
                None => {
                    if self.claim(unit, Instance::NOBODY) {
                        self.units.memory.crash_point(NextPoint::Claimed);
                        return Ok((Some(unit), true));
                    }
                }
                Some(me) if me == self.member.instance() => return Ok((Some(unit), true)),
                Some(other) if self.member.generations().is_gone(other) => {
                    // Its result again: it may have committed after we looked, and died since. What it did is seen
                    // through its raised generation.
                    if self.settle(other.id)?
                        && self.units.result(unit) == 0
                        && self.claim(unit, other.to_word())
                    {
                        self.units.memory.crash_point(NextPoint::TakenOver);
                        return Ok((Some(unit), true));
                    }
                }
                Some(_) => {}
            }
        }
        Ok((None, open))
    }
}

impl<M: Memory> WorkList for SharedList<'_, M> {
    fn next(&mut self) -> Result<Option<u64>, RecoverError> {
        let (units, memory) = (self.units, self.units.memory);
        while units.drawn() < units.count && !self.is_called_off() {
            let unit: u64 = memory.fetch_add(units.at + CURSOR, 1u64, Ordering::Relaxed);
            if unit >= units.count {
                break;
            }
            memory.crash_point(NextPoint::Drawn);
            // It may be gone: somebody saw the end of the list while we slept here.
            if self.claim(unit, Instance::NOBODY) {
                memory.crash_point(NextPoint::Claimed);
                return Ok(Some(unit));
            }
        }
        let mut looks = 0u32;
        while !self.is_called_off() {
            let (orphan, open) = self.orphan()?;
            if orphan.is_some() || !open {
                return Ok(orphan);
            }
            self.wait(&mut looks);
        }
        Ok(None)
    }

    fn commit(&mut self, unit: u64, result: u64) -> bool {
        assert!(result != 0 && unit < self.units.count);
        let (units, memory) = (self.units, self.units.memory);
        memory.crash_point(CommitPoint::Ready);
        // Release: all that was done for the unit comes before. Acquire on failure is not needed: nothing is
        // done with another's result here.
        let done = memory.compare_exchange(
            units.claim_at(unit) + 8,
            0,
            result,
            Ordering::Release,
            Ordering::Relaxed,
        );
        memory.crash_point(CommitPoint::Committed);
        done.is_ok()
    }
}
