//! Typed roots: the structures of a segment by name and type.
//!
//! The table has 64 slots. A root is published once and stays. Slots are filled strictly in order,
//! so the published ones are a prefix, and a name is compared with all before it when its slot is
//! taken. Publishers in any number of processes may compete, any of them may die at any
//! instruction, and no step depends on which of them are alive.
//!
//! ```text
//! slot     0  state      version << 2 | status, one u64
//!        128  contents   40 words of 128 bits: the value in the low half, in the high half the version
//!                        under which it was written
//! ```
//!
//! # How a root is published
//!
//! 1. *Find the slot*: the first that is not published. A name found before it ends the search.
//! 2. *Claim it*: compare-and-swap the state from `(v, any)` to `(v + 1, writing)`. A claim of
//!    another publisher is overtaken in the same way, after a number of polls of a claim that does
//!    not change, whether its owner is dead or slow.
//! 3. *Fill it*: compare-and-swap every word of the contents from a word with an older version to
//!    the value with the claim's version. A word with a younger version shows that the claim was
//!    overtaken.
//! 4. *Publish it*: compare-and-swap the state from `(v + 1, writing)` to `(v + 1, published)`.
//!
//! Correctness: a slot is published only if its state did not change since the claim, so no other
//! publisher had claimed it later; all its words then have the version of the claim, and the values
//! that the claimer wrote. From then on no word can change: claims are not made on published slots,
//! and a publisher that was overtaken earlier finds words with a version younger than its own, so
//! its compare-and-swap fails, however late it comes (versions of a slot only grow, so no word
//! returns to an earlier value). Hence a root is seen whole or not at all. Names are unique,
//! because slot k is claimed only by publishers that saw 0 to k - 1 published and without the name,
//! and those do not change any more.
//!
//! A death before 4 leaves a slot that is claimed and half filled, which the next publisher
//! overtakes: nothing leaks and no process waits for a dead one. A death after 4 leaves a published
//! root. The dead publisher's successor cannot tell which, and need not: publishing the same root
//! again succeeds.
//!
//! Progress: `find` and `list` are wait-free. `publish` never waits for a particular member. Two
//! publishers that compete for one slot could overtake each other again and again, which doubling
//! their patience ends (obstruction-free; a claim is held for some hundred nanoseconds and made
//! once in the life of a structure).
//!
//! In the write-back domain a claim is persisted before contents are written, so that no version is
//! ever used twice; contents before the slot is published; and the state before any process acts on
//! it, readers included.

mod table;

use super::layout::Shared;
use outlive_memory::{Memory, Native, Offset, Ptr, crash_points};
use table::{Found, Slot, Taken};

crash_points! {
    /// Crash points of the publication of a root.
    pub enum PublishPoint for "roots.publish" {
        /// The slot is claimed. No process sees a root in it.
        Claimed,
        /// The slot holds the root, which no process sees yet.
        Filled,
        /// The root is visible to all processes.
        Published,
    }
}

/// A published root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The name of the root.
    pub name: String,
    /// The description of the type that the root's publisher gave: its size, alignment and fields.
    /// It is cut at 224 bytes.
    pub description: String,
    /// The fingerprint of that type.
    pub fingerprint: u64,
    /// The offset of the value.
    pub offset: Offset,
    /// The size of the type in bytes.
    pub size: u64,
    /// The alignment of the type in bytes.
    pub align: u64,
}

/// The reason why a root was not published or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// A name is empty, longer than 64 bytes, or holds a zero byte.
    #[error(
        "{0:?} cannot be the name of a root; a name has 1 to {most} bytes, none of them zero",
        most = Roots::<Native>::NAME_BYTES
    )]
    Name(String),
    /// The value would be outside the segment or not aligned.
    #[error(
        "a root `{name}` at {offset} with {size} bytes, align {align}, is outside the segment or not aligned"
    )]
    Place {
        /// The root's name.
        name: String,
        /// The requested place.
        offset: Offset,
        /// The size of its type.
        size: u64,
        /// The alignment of its type.
        align: u64,
    },
    /// The root is of another type.
    #[error(
        "the root `{name}` holds {found} (fingerprint {found_fingerprint:016x}), not {wanted} \
         (fingerprint {wanted_fingerprint:016x}); use the type of its publication"
    )]
    Mismatch {
        /// The root's name.
        name: String,
        /// The description of its type.
        found: String,
        /// The fingerprint of its type.
        found_fingerprint: u64,
        /// The description of the requested type.
        wanted: String,
        /// The fingerprint of the requested type.
        wanted_fingerprint: u64,
    },
    /// A root of that name and type is published at another place.
    #[error("the root `{name}` is published already, at {at}; find it, or use another name")]
    Exists {
        /// The root's name.
        name: String,
        /// The place of the published value.
        at: Offset,
    },
    /// All slots are taken.
    #[error(
        "the root `{name}` cannot be published: all {} slots are taken; publish one value that \
         leads to several",
        Roots::<Native>::SLOTS
    )]
    Full {
        /// The root's name.
        name: String,
    },
    /// The table holds values that no publisher writes.
    #[error(
        "the table of roots is corrupt in slot {slot} at {at}: {what}; run `outlive pod check`"
    )]
    Corrupt {
        /// The slot.
        slot: usize,
        /// The offset.
        at: Offset,
        /// The error.
        what: &'static str,
    },
}

/// The table of typed roots.
///
/// ```
/// use outlive::segment::{AreaKind, AreaSize, RootError, Segment};
///
/// outlive::shared! { struct Counter { value: u64 } }
/// outlive::shared! { struct Other { value: i64 } }
///
/// let segment = Segment::builder()
///     .size(1 << 20)
///     .area(AreaKind::Payload, AreaSize::Rest)
///     .create("memfd:roots")?;
/// let place = segment.area(AreaKind::Payload).unwrap().offset;
/// segment.roots().publish::<Counter>("hits", place)?;
///
/// let elsewhere = Segment::open(segment.path())?;
/// assert_eq!(elsewhere.roots().find::<Counter>("hits")?.unwrap().offset(), place);
/// let error = elsewhere.roots().find::<Other>("hits").unwrap_err();
/// assert!(error.to_string().contains("value u64 @0"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Roots<M: Memory = Native> {
    memory: M,
    table: Offset,
}

impl<M: Memory> Roots<M> {
    /// The maximum number of roots.
    pub const SLOTS: usize = 64;
    /// The maximum length of a name in bytes.
    pub const NAME_BYTES: usize = table::NAME_BYTES;
    /// The size of the table in bytes.
    pub const BYTES: u64 = Self::SLOTS as u64 * table::SLOT_BYTES;

    /// Returns the table at `table` (aligned to 128). A new table is zeroed memory.
    pub fn new(memory: M, table: Offset) -> Self {
        Self { memory, table }
    }

    fn slot(self, index: usize) -> Slot<M> {
        Slot::new(self.memory, self.table, index)
    }

    /// Publishes the value at `offset` under `name`. The caller first writes the value (and
    /// persists it in the write-back domain); a process that finds the root sees it.
    ///
    /// Publishing the same name, type and offset again succeeds, so a successor repeats the call if
    /// it cannot tell whether a dead process completed it. Obstruction-free: publishers of one name
    /// may delay each other. After a death at any instruction the root is published or not.
    ///
    /// # Errors
    /// If the name is invalid, or taken by another type or offset; if the offset is not one of a
    /// `T` in the memory; if the table is full or corrupt. Nothing is published then.
    pub fn publish<T: Shared>(self, name: &str, offset: Offset) -> Result<Ptr<T>, RootError> {
        let wanted = Self::describe::<T>(name, offset)?;
        let inside = Offset::checked(offset.raw(), wanted.size, wanted.align, self.memory.size());
        if inside.is_err() || offset.is_null() {
            return Err(RootError::Place {
                name: name.into(),
                offset,
                size: wanted.size,
                align: wanted.align,
            });
        }
        let mut patience = FIRST_PATIENCE;
        let mut index = 0;
        while index < Self::SLOTS {
            match self.slot(index).look()? {
                Found::Root(root) if root.name == name => {
                    let found = matching::<T>(root)?;
                    if found == offset {
                        return Ok(Ptr::new(offset));
                    }
                    return Err(RootError::Exists {
                        name: name.into(),
                        at: found,
                    });
                }
                Found::Root(_) => index += 1,
                Found::Open(state) => match self.slot(index).take(state, &wanted, patience)? {
                    Taken::Published => return Ok(Ptr::new(offset)),
                    // Another publisher was faster; the same slot is read again.
                    Taken::Overtaken => patience = (patience * 2).min(MOST_PATIENCE),
                    Taken::Changed => {}
                },
            }
        }
        Err(RootError::Full { name: name.into() })
    }

    /// Returns the value that was published as `name`; `None` if there is none. Wait-free.
    ///
    /// # Errors
    /// If it is of another type, or the table is corrupt.
    pub fn find<T: Shared>(self, name: &str) -> Result<Option<Ptr<T>>, RootError> {
        for index in 0..Self::SLOTS {
            match self.slot(index).look()? {
                Found::Root(root) if root.name == name => {
                    return matching::<T>(root).map(|offset| Some(Ptr::new(offset)));
                }
                Found::Root(_) => {}
                Found::Open(_) => break,
            }
        }
        Ok(None)
    }

    /// Returns all published roots, in the order in which they were published. Wait-free.
    ///
    /// # Errors
    /// If the table is corrupt.
    pub fn list(self) -> Result<Vec<Root>, RootError> {
        let mut roots = Vec::new();
        for index in 0..Self::SLOTS {
            match self.slot(index).look()? {
                Found::Root(root) => roots.push(root),
                Found::Open(_) => break,
            }
        }
        Ok(roots)
    }

    /// Returns every violated invariant of the table, by slot: each slot is sound, the published
    /// ones are a prefix, no name occurs twice. Concurrent publishers cause no false reports.
    pub fn check(self) -> Vec<RootError> {
        let mut violations = Vec::new();
        let mut names: Vec<String> = Vec::new();
        // Backwards: a slot is published after those before it, so one that is seen published
        // guarantees them, even while others are being published.
        let mut later = false;
        for index in (0..Self::SLOTS).rev() {
            let corrupt = |what| RootError::Corrupt {
                slot: index,
                at: self.slot(index).at(),
                what,
            };
            match self.slot(index).look() {
                Ok(Found::Root(root)) => {
                    later = true;
                    if names.contains(&root.name) {
                        violations.push(corrupt("a later slot has the same name"));
                    }
                    names.push(root.name);
                }
                Ok(Found::Open(_)) if later => {
                    violations.push(corrupt("a later slot is published and this one is not"));
                }
                Ok(Found::Open(_)) => {}
                Err(error) => {
                    later = true;
                    violations.push(error);
                }
            }
        }
        violations.reverse();
        violations
    }

    fn describe<T: Shared>(name: &str, offset: Offset) -> Result<Root, RootError> {
        let sound = !name.is_empty() && name.len() <= Self::NAME_BYTES && !name.contains('\0');
        if !sound {
            return Err(RootError::Name(name.into()));
        }
        Ok(Root {
            name: name.into(),
            description: table::cut(T::LAYOUT.to_string()),
            fingerprint: T::FINGERPRINT,
            offset,
            size: size_of::<T>() as u64,
            align: align_of::<T>() as u64,
        })
    }
}

/// The number of polls of a claim before it is overtaken, at first and at most.
const FIRST_PATIENCE: u32 = 64;
const MOST_PATIENCE: u32 = 1 << 16;

/// Returns the place of the root, if it is a `T`.
fn matching<T: Shared>(root: Root) -> Result<Offset, RootError> {
    let same = root.fingerprint == T::FINGERPRINT
        && root.size == size_of::<T>() as u64
        && root.align == align_of::<T>() as u64;
    if same {
        return Ok(root.offset);
    }
    Err(RootError::Mismatch {
        name: root.name,
        found: root.description,
        found_fingerprint: root.fingerprint,
        wanted: T::LAYOUT.to_string(),
        wanted_fingerprint: T::FINGERPRINT,
    })
}

#[cfg(test)]
mod tests;
