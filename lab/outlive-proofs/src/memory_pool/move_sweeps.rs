//! Moves of a slice to another server, killed after every instruction together with the recoverers;
//! and broken variants, which a sweep must find.

use super::small::{LOCK as NOTE, Once, SIZE, SmallPool, instance, new_frames, words as map_words};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::{MovePoint, MoveReason, NotMoved, Place, Run, Unfinished, Use};
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::Move,
        What::Read,
        What::Written,
        What::Full,
        What::Free,
        What::Complete,
        What::Cancel,
        What::Doomed,
    ] {
        suite.add(Moves(what));
    }
    suite.declare::<MovePoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::NamesNoFrame, "which does not name it"),
        (What::ForgetsMovers, "have entries"),
        (What::LosesMarks, "instead of"),
        (What::LearnsLate, "is lost with a server"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Moves(what)), message) })
    .into_iter()
    .collect()
}

/// The operation during which the sweep kills the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A member moves a slice.
    Move,
    /// The same, while a reader uses the old memory; the reader dies after the mover.
    Read,
    /// The same; a writer writes to the slice while it is copied.
    Written,
    /// A member moves a slice to a server without a free frame: the move is cancelled.
    Full,
    /// A member moves a slice and frees it.
    Free,
    /// A survivor recovers a mover that died after its slice was moved.
    Complete,
    /// A survivor recovers a mover that died while it copied.
    Cancel,
    /// A member moves a slice to a server that dies at the same instruction.
    Doomed,
    /// Broken: the same, and the survivor completes the move before it learns of the server's
    /// death.
    LearnsLate,
    /// Broken: the record does not name the new frame.
    NamesNoFrame,
    /// Broken: the record belongs to another instance, which is not recovered.
    ForgetsMovers,
    /// Broken: the writer does not mark what it has written.
    LosesMarks,
}

struct Moves(What);

type Weak = Weakened<Marked>;

/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);
/// The mover that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);
/// The process of the reader or writer, which dies after the victim.
const USER: Instance = Instance::new(7, 1);
/// The process of the second server, if that dies.
const HOST_OF_SECOND: Instance = Instance::new(6, 1);
/// The bit of a frozen map word.
const FROZEN: u64 = 1 << 23;
const FIRST: ServerId = ServerId(1);
const SECOND: ServerId = ServerId(2);
/// The data of the slice.
const WORDS: [u64; 2] = [0x1111, 0x2222];
/// What the writer writes over the first word.
const LATER: u64 = 0x3333;

/// The first allocation of a pool.
fn address() -> Address {
    Address::from_word(1 << Address::POSITION_BITS).expect("generation 1")
}

fn moved<M: Memory>(
    pool: &SmallPool<M>,
    (mover, to): (Instance, ServerId),
    act: impl FnMut(),
) -> Result<Option<Unfinished>, NotMoved> {
    let mut pace = Once(Some(act));
    { pool.coherent }.move_slice(
        mover,
        address(),
        (to, MoveReason::Requested),
        pool,
        &mut pace,
    )
}

fn finish<M: Memory>(pool: &SmallPool<M>, owner: Instance, mut unfinished: Unfinished) {
    assert!(pool.finish(owner, &mut unfinished), "a reader is left");
}

/// Moves the slice and finishes the move.
fn complete<M: Memory>(pool: &SmallPool<M>, mover: Instance, to: ServerId) {
    let unfinished = moved(pool, (mover, to), || {}).expect("a free frame");
    finish(pool, mover, unfinished.expect("another server"));
}

/// Writes the first word of the slice, which is copied already, as a writer with a guard does.
fn write<M: Memory>(pool: &SmallPool<M>, marks: bool) {
    let line = pool.line(USER);
    let place = { pool.coherent }.translate_to_write(line, 0, address(), pool);
    let place = place.expect("allocated").expect("not frozen");
    { place.memory }.store(place.at, LATER, Ordering::Relaxed);
    if marks {
        { pool.coherent }.mark_written(0, 1);
    }
    pool.coherent.withdraw(line, 0);
    pool.coherent.release_line(line, USER);
}

/// Makes a guard of [`USER`] on the slice.
fn read<M: Memory>(pool: &SmallPool<M>) {
    let line = pool.line(USER);
    { pool.coherent.translate(line, 0, address(), pool) }.expect("allocated");
}

/// Returns the words of the slice, which the sweep's memory has.
fn words<M: Memory>(pool: &SmallPool<M>) -> Result<[u64; 2], PoolError> {
    let place = { pool.coherent }.locate(address(), pool)?;
    Ok([0, 8].map(|byte| place.memory.load(place.at + byte, Ordering::Relaxed)))
}

fn free<M: Memory>(pool: &SmallPool<M>, owner: Instance) -> Run {
    { pool.coherent }
        .begin_free(owner, address())
        .expect("kept")
}

fn release<M: Memory>(pool: &SmallPool<M>, owner: Instance, run: Run) {
    let user = { pool.coherent }.release_unless_used(owner, run, pool);
    assert_eq!(user.expect("reachable servers"), None);
}

impl Moves {
    fn open(&self, memory: Marked) -> SmallPool<Weak> {
        let (at, len) = new_frames();
        SmallPool::open_tiny(match self.0 {
            What::NamesNoFrame => Weakened::new(memory, Weakness::Stores(at, len)),
            _ => Weakened::sound(memory),
        })
    }

    fn is_doomed(&self) -> bool {
        matches!(self.0, What::Doomed | What::LearnsLate)
    }

    /// Notes whether the mover died before it thawed the slice: then the slice cannot be lost.
    fn note_frozen(&self, memory: Marked) {
        let (at, _) = map_words();
        let word: u64 = memory.load(at, Ordering::Acquire);
        let is_safe = word & FROZEN != 0 || word >> 52 == FIRST.0.into();
        if memory.load::<u64>(NOTE, Ordering::Relaxed) == 0 {
            memory.store(NOTE, if is_safe { 1u64 } else { 2 }, Ordering::Relaxed);
        }
    }

    fn is_written(&self) -> bool {
        matches!(self.0, What::Written | What::LosesMarks)
    }
}

impl Sweep for Moves {
    fn name(&self) -> String {
        format!("memory pool slice {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let pool = SmallPool::create_tiny(memory);
        pool.serve(HOST);
        pool.serve(if self.is_doomed() {
            HOST_OF_SECOND
        } else {
            HOST
        });
        let allocate = |server, slices| {
            let place = Place::At(server);
            let allocated = { pool.coherent }.allocate(HOST, slices, place, Use::Plain, &pool);
            allocated.expect("free memory")
        };
        assert_eq!(allocate(FIRST, 1), address());
        { pool.coherent }.keep(HOST, address()).expect("its own");
        let place = { pool.coherent }.locate(address(), &pool);
        let place = place.expect("allocated");
        for (word, byte) in WORDS.into_iter().zip([0, 8]) {
            { place.memory }.store(place.at + byte, word, Ordering::Relaxed);
        }
        match self.0 {
            What::Read | What::Complete => read(&pool),
            What::Full => drop(allocate(SECOND, 3)),
            _ => {}
        }
        match self.0 {
            // The corpse dies before it finishes the move.
            What::Complete => drop(moved(&pool, (CORPSE, SECOND), || {}).expect("a free frame")),
            What::Cancel => {
                let dies = || std::panic::resume_unwind(Box::new("death"));
                let died = catch_unwind(AssertUnwindSafe(|| moved(&pool, (CORPSE, SECOND), dies)));
                assert!(died.is_err());
            }
            _ => {}
        }
    }

    fn operate(&self, memory: Marked) {
        let pool = self.open(memory);
        let own = instance(0);
        match self.0 {
            What::Move | What::NamesNoFrame | What::Doomed | What::LearnsLate => {
                complete(&pool, own, SECOND);
            }
            What::ForgetsMovers => complete(&pool, Instance::new(5, 1), SECOND),
            What::Read => {
                let unfinished = moved(&pool, (own, SECOND), || {}).expect("a free frame");
                let mut unfinished = unfinished.expect("another server");
                assert!(!pool.finish(own, &mut unfinished), "under a guard");
                pool.recover(own, USER);
                finish(&pool, own, unfinished);
            }
            What::Written | What::LosesMarks => {
                let marks = self.0 == What::Written;
                let unfinished = moved(&pool, (own, SECOND), || write(&pool, marks));
                let unfinished = unfinished.expect("a free frame");
                finish(&pool, own, unfinished.expect("another server"));
            }
            What::Full => {
                let refused = moved(&pool, (own, SECOND), || {}).expect_err("no free frame");
                assert!(matches!(*refused.error, PoolError::OutOfMemory { .. }));
                assert!(refused.unfinished.is_none());
            }
            What::Free => {
                let unfinished = moved(&pool, (own, SECOND), || {}).expect("a free frame");
                let run = free(&pool, own);
                let used = { pool.coherent }.release_unless_used(own, run, &pool);
                assert_eq!(used.expect("reachable servers"), Some(own), "it is moved");
                finish(&pool, own, unfinished.expect("another server"));
                release(&pool, own, run);
            }
            What::Complete | What::Cancel => {
                pool.recover(own, USER);
                pool.recover(own, CORPSE);
            }
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pool = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        pool.recover(survivor, USER);
        if self.is_doomed() {
            self.note_frozen(memory);
        }
        if self.0 == What::Doomed {
            pool.recover(survivor, HOST_OF_SECOND);
        }
        for gone in (0..=crash.recoverers_lost).map(instance).chain([CORPSE]) {
            pool.recover(survivor, gone);
        }
        if self.0 == What::LearnsLate {
            pool.recover(survivor, HOST_OF_SECOND);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pool = self.open(memory);
        let census = { pool.check() }.map_err(|wrong| wrong.join("; "))?;
        if self.is_doomed() {
            return match words(&pool) {
                Ok(WORDS) => Ok(()),
                Ok(found) => Err(format!("{found:x?} instead of {WORDS:x?}")),
                // It was lost after the move, as on any server.
                Err(_) if memory.load::<u64>(NOTE, Ordering::Relaxed) == 2 => Ok(()),
                Err(_) => Err("a slice that could be kept is lost with a server".into()),
            };
        }
        if census.frames != census.slices || census.hidden > 0 {
            return Err(format!("the pool has {census:?}"));
        }
        let mut departed = pool.coherent.owners();
        departed.retain(|owner| *owner != HOST);
        if !departed.is_empty() {
            return Err(format!("{departed:?} have entries"));
        }
        if self.0 == What::Free {
            let is_possible = census.kept == 0 || census.kept == 1 && !crash.returned;
            return match is_possible {
                true => Ok(()),
                false => Err(format!("the pool has {census:?}")),
            };
        }
        let has_moved = pool.has_frame(SECOND, 0);
        let expected = match self.0 {
            What::Full | What::Cancel => Some(false),
            What::Complete => Some(true),
            _ if crash.returned => Some(true),
            _ => None,
        };
        if expected.is_some_and(|expected| expected != has_moved) {
            return Err(format!("the slice has moved: {has_moved}"));
        }
        // The words are where the address leads, also after it is moved away and back.
        let pool = SmallPool::open_tiny(Weakened::sound(memory));
        let (here, there) = match has_moved {
            true => (SECOND, FIRST),
            false => (FIRST, SECOND),
        };
        for to in [there, here] {
            let found = words(&pool).map_err(|error| error.to_string())?;
            let is_later = self.is_written() && (crash.returned || found[0] == LATER);
            let expected = if is_later { [LATER, WORDS[1]] } else { WORDS };
            if found != expected {
                return Err(format!("{found:x?} instead of {expected:x?}"));
            }
            if self.0 != What::Full {
                complete(&pool, HOST, to);
            }
        }
        Ok(())
    }
}
