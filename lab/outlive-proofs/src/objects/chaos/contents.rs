//! The objects of the workers. Each of the five types stores an identity and counts additions.
//!
//! A counter stores the identity in its upper bits, a cell and a mutex in their first word. A map
//! and a list store it under the key 0: they are created empty, and filled afterwards.

use crate::killing::text;
use outlive::heap::buddy::AllocateError;
use outlive::objects::{Blob, Counter, Named, Object, ObjectError, Objects};
use outlive::structures::{InsertError, List, Map};
use outlive::sync::RecoverableMutex;

/// The number of lower bits of a counter that count the additions. The upper bits are its identity.
const COUNT_BITS: u32 = 22;

/// A type of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Blob,
    Mutex,
    Map,
    List,
}

impl Kind {
    /// All kinds. The first [`IDENTIFIED`](Self::IDENTIFIED) have an identity from their creation.
    pub const ALL: [Self; 5] = [
        Self::Counter,
        Self::Blob,
        Self::Mutex,
        Self::Map,
        Self::List,
    ];
    /// The number of kinds that have an identity from their creation.
    pub const IDENTIFIED: u64 = 3;
}

/// An object that a member uses.
#[derive(Debug)]
pub enum Used<'h> {
    Counter(Named<'h, Counter>),
    /// The identity, the number of additions, and bytes that follow from that number.
    Blob(Named<'h, Blob>),
    /// The identity, and two copies of the number of additions.
    Mutex(Named<'h, RecoverableMutex<[u64; 3]>>),
    /// The identity under the key 0, and numbers of additions under the other keys.
    Map(Named<'h, Map<u64, u64>>),
    /// The identity under the key 0, and an entry for each addition.
    List(Named<'h, List<u64, u64>>),
}

/// Opens an object of the type `T`. Returns `None` if the object is of another type.
fn open_as<'h, T: Object>(
    objects: Objects<'h>,
    name: &str,
) -> Result<Option<Named<'h, T>>, ObjectError> {
    match objects.open(name) {
        Err(ObjectError::Mismatch { .. }) => Ok(None),
        opened => opened.map(Some),
    }
}

impl<'h> Used<'h> {
    /// Creates an object. A map or a list is empty, and has no identity yet.
    pub fn create(
        objects: Objects<'h>,
        kind: Kind,
        name: &str,
        id: u64,
    ) -> Result<Self, ObjectError> {
        Ok(match kind {
            Kind::Counter => Self::Counter(objects.create(name, id << COUNT_BITS)?),
            Kind::Blob => Self::Blob(objects.create(name, blob(id, 0))?),
            Kind::Mutex => Self::Mutex(objects.create(name, [id, 0, 0])?),
            Kind::Map => Self::Map(objects.create(name, ())?),
            Kind::List => Self::List(objects.create(name, ())?),
        })
    }

    /// Stores the identity in a map or a list. Returns `false` if the heap is full.
    pub fn fill(&self, id: u64) -> Result<bool, String> {
        let inserted = match self {
            Self::Map(map) => map.insert(&0, &id),
            Self::List(list) => list.insert(&0, &id),
            _ => return Ok(true),
        };
        match inserted {
            Err(InsertError::Heap(error)) => without_memory(error),
            other => other.map(|()| true).map_err(text),
        }
    }

    /// Opens the object `name`, of any type. Returns `None` if it does not exist.
    pub fn open(objects: Objects<'h>, name: &str) -> Result<Option<Self>, String> {
        // Between two attempts another object may get the name.
        for kind in Kind::ALL.into_iter().cycle().take(100) {
            let opened = match kind {
                Kind::Counter => open_as(objects, name).map(|it| it.map(Self::Counter)),
                Kind::Blob => open_as(objects, name).map(|it| it.map(Self::Blob)),
                Kind::Mutex => open_as(objects, name).map(|it| it.map(Self::Mutex)),
                Kind::Map => open_as(objects, name).map(|it| it.map(Self::Map)),
                Kind::List => open_as(objects, name).map(|it| it.map(Self::List)),
            };
            match opened {
                Ok(None) => {}
                Err(ObjectError::NotFound { .. }) => return Ok(None),
                other => return other.map_err(text),
            }
        }
        Err(format!("the object `{name}` is of no known type"))
    }

    /// Returns the identity and the number of additions. The identity is 0 if the object is not
    /// filled. The number is exact if no member adds concurrently.
    ///
    /// # Errors
    /// If the contents are torn.
    pub fn read(&self) -> Result<(u64, u64), String> {
        Ok(match self {
            Self::Counter(counter) => {
                let word = counter.get();
                (word >> COUNT_BITS, word & ((1 << COUNT_BITS) - 1))
            }
            Self::Blob(cell) => read_blob(&cell.get())?,
            Self::Mutex(mutex) => match *mutex.lock().map_err(text)? {
                [id, count, mirror] if count == mirror => (id, count),
                half => return Err(format!("the value of a mutex is torn: {half:?}")),
            },
            Self::Map(map) => (
                map.get(&0).unwrap_or(0),
                (map.iter().filter(|(key, _)| *key != 0))
                    .map(|(_, count)| count)
                    .sum(),
            ),
            Self::List(list) => (
                list.get(&0).unwrap_or(0),
                list.iter().filter(|(key, _)| *key != 0).count() as u64,
            ),
        })
    }

    /// Adds one. `unique` is a number that no other addition has. Returns `false` if the heap is
    /// full.
    pub fn add(&self, unique: u64) -> Result<bool, String> {
        let added = match self {
            Self::Counter(counter) => {
                counter.add(1);
                Ok(())
            }
            Self::Blob(cell) => {
                let more = |old: Vec<u8>| match read_blob(&old) {
                    Ok((id, count)) => blob(id, count + 1),
                    // A later reader reports the damage.
                    Err(_) => old,
                };
                cell.update(more).map(drop)
            }
            Self::Mutex(mutex) => {
                let mut value = mutex.lock().map_err(text)?;
                value[1] += 1;
                value[2] += 1;
                Ok(())
            }
            Self::Map(map) => map.upsert(&(1 + unique % 8), &1, |count| count + 1),
            Self::List(list) => match list.insert(&unique, &1) {
                Err(InsertError::Heap(error)) => Err(error),
                other => return other.map(|()| true).map_err(text),
            },
        };
        added.map_or_else(without_memory, |()| Ok(true))
    }
}

/// Returns `false` for an operation that had no effect because the heap is full.
pub fn without_memory(error: AllocateError) -> Result<bool, String> {
    match error {
        AllocateError::Full { .. } | AllocateError::HeapFull { .. } => Ok(false),
        error => Err(error.to_string()),
    }
}

fn blob(id: u64, count: u64) -> Vec<u8> {
    let filler = vec![count as u8; (count % 64) as usize];
    [&id.to_ne_bytes(), &count.to_ne_bytes(), &*filler].concat()
}

fn read_blob(bytes: &[u8]) -> Result<(u64, u64), String> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (id, count) = (word(0).unwrap_or(0), word(8).unwrap_or(0));
    match blob(id, count) == bytes {
        true => Ok((id, count)),
        false => Err(format!("the value of a cell is torn: {bytes:?}")),
    }
}
