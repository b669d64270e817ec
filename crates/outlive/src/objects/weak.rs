//! References that do not keep their objects.

use super::record::Record;
use super::{Named, Object, ObjectError, Objects};
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset};

/// A reference that does not keep its object alive: the object may lose its name and be destroyed.
/// It is stored in the process only, and is valid for the directory that it came from.
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::objects::{Counter, Directory, Objects};
///
/// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
/// let hits = objects.create::<Counter>("hits", 3)?;
/// let weak = hits.downgrade();
/// drop(hits);
/// objects.rename("hits", "misses")?;
/// assert_eq!(objects.upgrade(weak)?.unwrap().get(), 3);
/// objects.remove("misses")?;
/// assert!(objects.upgrade(weak)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Weak<T, M: Memory = Native> {
    at: Offset,
    number: u64,
    types: PhantomData<fn(T, M)>,
}

impl<T, M: Memory> Clone for Weak<T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M: Memory> Copy for Weak<T, M> {}

impl<T, M: Memory> Named<'_, T, M> {
    /// Returns a reference by which the object can be found again while it has a name.
    pub fn downgrade(&self) -> Weak<T, M> {
        let record = self.lease().record();
        Weak {
            at: record.at(),
            number: record.number(),
            types: PhantomData,
        }
    }
}

impl<'h, M: Memory> Objects<'h, M> {
    /// Opens the object again that `weak` refers to; `None` if it has no name any more, even if
    /// other members still use it.
    ///
    /// # Errors
    /// If the object's type or contents are damaged, or there is no memory for a lease. An object
    /// whose header or name is damaged is not found.
    ///
    /// # Crash
    /// The recovery gives up the lease of a dead caller.
    pub fn upgrade<T: Object<M>>(
        self,
        weak: Weak<T, M>,
    ) -> Result<Option<Named<'h, T, M>>, ObjectError> {
        let _pin = self.heap.pin();
        // The block may have been reused. It still holds this object if the map leads there and the
        // number is the same.
        let is_it = |record: Record<M>| record.number() == weak.number;
        let Ok(record) = Record::checked(self.heap.memory(), weak.at.raw()) else {
            return Ok(None);
        };
        let mut before = None;
        while let Ok((name, version)) = record.name()
            && is_it(record)
        {
            if self.directory.leads_to(self.heap, &name, weak.at) {
                let lease = self.lease_at(record)?;
                let lease = lease.filter(|lease| is_it(lease.record()));
                return lease.map(|lease| self.open_leased(lease)).transpose();
            }
            if before.replace(version) == Some(version) {
                break;
            }
            // It has been renamed meanwhile.
        }
        Ok(None)
    }
}
