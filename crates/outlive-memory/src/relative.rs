//! Self-relative pointers, for porting ordinary structures by changing the pointer type.
//!
//! A [`RelativePtr`] holds the distance from itself to its target (Chen et al., MICRO '17; LUPIN
//! §3.2), so a structure whose pointers and targets lie in one mapping works wherever that is
//! mapped, and code that took a `*mut T` takes a `RelativePtr<T>`. Algorithms of Outlive itself use
//! [`Offset`]s, which can be copied freely; a self-relative pointer is valid only at its own
//! address, so it can be set and read in place but neither copied nor moved while it is not null.
//!
//! [`Offset`]: crate::Offset

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// The distance 1 stands for null: no target is one byte from its pointer's start, since a pointer
/// has eight. (0 would be the pointer itself, a legal target: the empty ring of a list head.)
const NULL: u64 = 1;

fn distance<T>(from: *const (), target: Option<NonNull<T>>) -> u64 {
    target.map_or(NULL, |to| {
        (to.as_ptr() as usize as u64).wrapping_sub(from as usize as u64)
    })
}

fn target<T>(from: *const (), distance: u64) -> Option<NonNull<T>> {
    if distance == NULL {
        return None;
    }
    // The exposed-provenance cast is on purpose: pointer and target are places in one foreign
    // mapping.
    let address = (from as usize as u64).wrapping_add(distance) as usize;
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// A self-relative pointer for data that one thread at a time uses, for example under a lock.
///
/// ```
/// use outlive_memory::RelativePtr;
/// use core::ptr::NonNull;
///
/// #[repr(C)]
/// struct Pair { link: RelativePtr<u64>, value: u64 }
/// let mut pair = Box::new(Pair { link: RelativePtr::null(), value: 7 });
/// let value = NonNull::from(&mut pair.value);
/// value.as_ptr().expose_provenance();
/// pair.link.set(Some(value));
/// assert_eq!(pair.link.get(), Some(value));
/// ```
#[repr(transparent)]
pub struct RelativePtr<T> {
    distance: Cell<u64>,
    target: PhantomData<*mut T>,
}

impl<T> RelativePtr<T> {
    /// Returns the null pointer. Only a null pointer may be moved.
    pub const fn null() -> Self {
        Self {
            distance: Cell::new(NULL),
            target: PhantomData,
        }
    }

    /// Sets the target to `to`. The address must have had its provenance exposed, as that of a
    /// mapping has.
    pub fn set(&self, to: Option<NonNull<T>>) {
        self.distance.set(distance((&raw const *self).cast(), to));
    }

    /// Returns the target, as an address in this process.
    pub fn get(&self) -> Option<NonNull<T>> {
        target((&raw const *self).cast(), self.distance.get())
    }
}

impl<T> Default for RelativePtr<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T> fmt::Debug for RelativePtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelativePtr({:?})", self.get())
    }
}

/// A self-relative pointer that several threads or processes change concurrently.
#[repr(transparent)]
pub struct AtomicRelativePtr<T> {
    distance: AtomicU64,
    target: PhantomData<*mut T>,
}

// SAFETY: it only returns addresses; the use of the memory there is the caller's unsafe code.
unsafe impl<T> Send for AtomicRelativePtr<T> {}
// SAFETY: as for `Send`; the distance is atomic.
unsafe impl<T> Sync for AtomicRelativePtr<T> {}

impl<T> AtomicRelativePtr<T> {
    /// Returns the null pointer. Only a null pointer may be moved.
    pub const fn null() -> Self {
        Self {
            distance: AtomicU64::new(NULL),
            target: PhantomData,
        }
    }

    fn here(&self) -> *const () {
        (&raw const *self).cast()
    }

    /// Returns the target, as an address in this process.
    pub fn load(&self, order: Ordering) -> Option<NonNull<T>> {
        target(self.here(), self.distance.load(order))
    }

    /// Sets the target to `to`.
    pub fn store(&self, to: Option<NonNull<T>>, order: Ordering) {
        self.distance.store(distance(self.here(), to), order);
    }

    /// Sets the target to `new` if it is `current`, and returns the previous target.
    ///
    /// # Errors
    /// Returns the previous target if that was not `current`.
    pub fn compare_exchange(
        &self,
        current: Option<NonNull<T>>,
        new: Option<NonNull<T>>,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Option<NonNull<T>>, Option<NonNull<T>>> {
        let here = self.here();
        self.distance
            .compare_exchange(
                distance(here, current),
                distance(here, new),
                success,
                failure,
            )
            .map(|was| target(here, was))
            .map_err(|was| target(here, was))
    }
}

impl<T> Default for AtomicRelativePtr<T> {
    fn default() -> Self {
        Self::null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Node {
        next: RelativePtr<Node>,
        atomic: AtomicRelativePtr<Node>,
        value: u64,
    }

    /// A list built in one buffer is whole after the buffer's bytes moved elsewhere.
    #[test]
    fn a_structure_survives_being_mapped_elsewhere() {
        const COUNT: usize = 8;
        let build = || {
            (0..COUNT as u64)
                .map(|value| Node {
                    next: RelativePtr::null(),
                    atomic: AtomicRelativePtr::null(),
                    value,
                })
                .collect::<Vec<_>>()
                .into_boxed_slice()
        };
        let mut first = build();
        let base = first.as_mut_ptr();
        base.expose_provenance();
        for i in 0..COUNT - 1 {
            // SAFETY: inside the boxed slice.
            let (here, next) = unsafe { (&*base.add(i), NonNull::new(base.add(i + 1))) };
            here.next.set(next);
            let swapped =
                here.atomic
                    .compare_exchange(None, next, Ordering::AcqRel, Ordering::Acquire);
            assert_eq!(swapped, Ok(None));
        }
        let mut second = build();
        let copy = second.as_mut_ptr();
        copy.expose_provenance();
        // SAFETY: both are slices of COUNT nodes; as plain bytes they can be copied.
        unsafe { core::ptr::copy_nonoverlapping(base, copy, COUNT) };
        drop(first);
        let mut at = NonNull::new(copy);
        let mut values = Vec::new();
        while let Some(node) = at {
            // SAFETY: the copy's pointers lead into the copy.
            let node = unsafe { node.as_ref() };
            assert_eq!(node.next.get(), node.atomic.load(Ordering::Acquire));
            values.push(node.value);
            at = node.next.get();
        }
        assert_eq!(values, (0..COUNT as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_pointer_may_point_to_itself() {
        let ring: Box<RelativePtr<u8>> = Box::default();
        assert_eq!(ring.get(), None);
        let own: NonNull<u8> = NonNull::from(&*ring).cast();
        own.as_ptr().expose_provenance();
        ring.set(Some(own));
        assert_eq!(ring.get(), Some(own));
    }
}
