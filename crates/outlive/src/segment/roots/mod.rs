//! Typed roots: the structures of a segment by name and type.
//!
//! The table has 64 slots. A root is published once and stays; slots are filled strictly in order, so the
//! published ones are a prefix, and a name is compared with all before it when its slot is taken. Publishers
//! in any number of processes may compete, any of them may die at any instruction, and nothing here knows
//! who is alive.
//!
//! ```text
//! slot     0  state      version << 2 | status, one u64
//!        128  contents   40 words of 128 bits: the value in the low half, in the high half the version
//!                        under which it was written
//! ```
//!
//! # How a root is published
//!
//! 1. *Find the slot*: the first that is not published. A name found before it ends the matter.
//! 2. *Claim it*: compare-and-swap the state from `(v, any)` to `(v + 1, writing)`. A claim by somebody else
//!    is overtaken in the same way, after a number of looks at a claim that does not change, whether its owner
//!    is dead or slow.
//! 3. *Fill it*: every word of the contents by compare-and-swap from a word with an older version to the
//!    value with the claim's version. A word with a younger version says that the claim was overtaken.
//! 4. *Publish it*: compare-and-swap the state from `(v + 1, writing)` to `(v + 1, published)`.
//!
//! Why that holds. A slot is published only if its state was not changed since the claim, so nobody had claimed
//! it later; all its words then have the version of the claim, and hold what the claimer wrote. From then on no
//! word can change: claims are not made on published slots, and whoever was overtaken earlier finds words with a
//! version younger than its own, so its compare-and-swap fails, however late it comes (versions of a slot only
//! grow, so no word comes back to an earlier value). Hence a root is seen whole or not at all. Names are
//! unique, because slot k is claimed by those only who saw 0 to k - 1 published and without the name, and those do
//! not change any more.
//!
//! A death before 4 leaves a slot that is claimed and half filled, which the next publisher overtakes:
//! nothing leaks and nobody waits for the dead. A death after 4 leaves a published root. The dead publisher's
//! successor cannot tell, and need not: to publish the same again is answered as success.
//!
//! Progress: `find` and `list` are wait-free. `publish` never waits for a particular member; two that compete
//! for one slot could overtake one another again and again, which doubling their patience ends
//! (obstruction-free; a claim is held for some hundred nanoseconds and made once in the life of a structure).
//!
//! In the write-back domain a claim is persisted before contents are written, so that no version is ever used
//! twice; contents before the slot is published; and the state before anybody acts on it, by readers too.

mod table;

use super::layout::Shared;
use outlive_memory::{Memory, Native, Offset, Ptr, crash_points};
use table::{Found, Slot, Taken};

crash_points! {
    /// Where the publication of a root may be cut short.
    pub enum PublishPoint for "roots.publish" {
        /// The slot is claimed. Nobody sees a root in it.
        Claimed,
        /// The slot holds the root, and still nobody sees it.
        Filled,
        /// The root is there for all.
        Published,
    }
}

/// A root as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// The type that its publisher gave, with size, alignment and fields; cut at 224 bytes.
    pub description: String,
    /// The fingerprint of that type.
    pub fingerprint: u64,
    /// Where the value is.
    pub offset: Offset,
    /// The size of the type in bytes.
    pub size: u64,
    /// The alignment of the type in bytes.
    pub align: u64,
}

/// Why a root was not published or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// A name is empty, longer than 64 bytes, or holds a zero byte.
    #[error(
        "{0:?} is not a name for a root: 1 to {most} bytes without a zero byte",
        most = Roots::<Native>::NAME_BYTES
    )]
    Name(String),
    /// The value would not lie in the segment, or not be aligned.
    #[error(
        "a root `{name}` at {offset} with {size} bytes, align {align}, is outside the segment or not aligned"
    )]
    Place {
        /// The root's name.
        name: String,
        /// Where it was to be.
        offset: Offset,
        /// The size of its type.
        size: u64,
        /// The alignment of its type.
        align: u64,
    },
    /// The root has another type.
    #[error(
        "the root `{name}` holds {found} (fingerprint {found_fingerprint:016x}), not {wanted} (fingerprint {wanted_fingerprint:016x})"
    )]
    Mismatch {
        /// The root's name.
        name: String,
        /// What it holds.
        found: String,
        /// The fingerprint of that.
        found_fingerprint: u64,
        /// What was asked for.
        wanted: String,
        /// The fingerprint of that.
        wanted_fingerprint: u64,
    },
    /// A root of that name and type is somewhere else.
    #[error("the root `{name}` is published already, at {at}")]
    Exists {
        /// The root's name.
        name: String,
        /// Where the published value is.
        at: Offset,
    },
    /// All slots are taken.
    #[error("the root `{name}` finds no slot: all {} are taken", Roots::<Native>::SLOTS)]
    Full {
        /// The root's name.
        name: String,
    },
    /// The table holds what no publisher writes.
    #[error("the table of roots is corrupt in slot {slot} at {at}: {what}")]
    Corrupt {
        /// The slot.
        slot: usize,
        /// Where.
        at: Offset,
        /// What is wrong.
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
    /// How many roots there can be.
    pub const SLOTS: usize = 64;
    /// How long a name can be, in bytes.
    pub const NAME_BYTES: usize = table::NAME_BYTES;
    /// The size of the table in bytes.
    pub const BYTES: u64 = Self::SLOTS as u64 * table::SLOT_BYTES;

    /// The table at `table` (aligned to 128), which is zeroed memory at first.
    pub fn new(memory: M, table: Offset) -> Self {
        Self { memory, table }
    }

    fn slot(self, index: usize) -> Slot<M> {
        Slot::new(self.memory, self.table, index)
    }

    /// Publishes the value at `offset` as `name`. What stands there is written (and in the write-back
    /// domain persisted) before; whoever finds the root sees it.
    ///
    /// To publish the same name, type and place again is success: so one who died and does not know
    /// whether it had published does it again. Lock-free but for the duel described above; safe at a death at any
    /// instruction.
    ///
    /// # Errors
    /// If the name is taken, by another type or for another place, or the table is full. Then nothing
    /// was published.
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
                    // Somebody was faster; look again at the same slot.
                    Taken::Overtaken => patience = (patience * 2).min(MOST_PATIENCE),
                    Taken::Changed => {}
                },
            }
        }
        Err(RootError::Full { name: name.into() })
    }

    /// The value that was published as `name`, or `None` if nothing was. Wait-free.
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

    /// All published roots, in the order in which they were published. Wait-free.
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

    /// Every violated invariant of the table, by slot: each slot is sound, the published ones are a prefix,
    /// no name is there twice. While publishers are at work nothing is reported falsely.
    pub fn check(self) -> Vec<RootError> {
        let mut violations = Vec::new();
        let mut names: Vec<String> = Vec::new();
        // Backwards: a slot is published after those before it, so one that is seen published
        // guarantees them, whatever is published meanwhile.
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

/// So many looks at a claim before it is overtaken, at first and at most.
const FIRST_PATIENCE: u32 = 64;
const MOST_PATIENCE: u32 = 1 << 16;

/// Where the root is, if it is a `T`.
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
