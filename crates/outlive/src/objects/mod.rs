//! Named objects: shared values that are found by a name, counted by leases, and destroyed by the
//! last of their users.
//!
//! ```text
//!  root word of the heap -> directory: the map from names to objects | for each id: its leases
//!  object:   header of reclamation | state | class, sizes, fingerprint | contents | name | type
//!  leases:   next block | 31 slots: the object, with a tag while the lease is given up
//! ```
//!
//! An object is *linked* while the map leads to it under its name. A *lease* is a slot of a member
//! that leads to an object; every handle has one. An object is destroyed when it is neither linked
//! nor leased.
//!
//! # The steps
//!
//! * **Create**: the block is allocated into a pending-allocation cell, described as not linked,
//!   and leased; then the cell is cleared. The contents are made, the state becomes *live*, and the
//!   insertion into the map, which is detectable, links it.
//! * **Find**: under a pin, the map gives the object; it is leased; a full fence; if the state is
//!   live, the lease holds. Otherwise it is given up, and the map is asked again.
//! * **Unlink**, with a lease: the entry is removed from the map, which is detectable; then the
//!   state goes from live to *unlinked*, for good.
//! * **Give up** a lease, under a pin: the slot gets a tag, by which it no longer counts as a use;
//!   a full fence. If the state is live and the lease is unsure (in a recovery, and after a panic
//!   of the creator), the map is asked, and an object that its name does not lead to becomes
//!   unlinked. If the state is unlinked and no slot without a tag leads to the object, then the
//!   slot *claims* the object, by compare-and-swap of the state. The claimant destroys the
//!   contents, tags the slot as retiring, and retires the block. Then the slot is cleared.
//!
//! # Why it is right
//!
//! *No object is destroyed in use.* A user stores its lease, then reads the state (with a full
//! fence in between). A claimant reads the state as unlinked, which nothing changes back, then
//! (with a full fence in between) all slots. So the user finds the state changed, or the claimant
//! finds the lease.
//!
//! *Each object that is unlinked is destroyed, once.* Of all slots that were given up, the last in
//! the order of the full fences finds the state unlinked (the member that unlinks has a lease until
//! then) and no lease, and tries to claim. The compare-and-swap lets one claim succeed.
//!
//! *No word of a freed block is read.* A member that finds an object or gives up a lease is
//! pinned from before the last moment at which the object was linked or the lease counted, and the
//! block is retired, not freed. The reservation of a dead member stands until the end of its
//! recovery.
//!
//! # Recovery
//!
//! Before the operation of a dead member is settled, its slot that is tagged as retiring is
//! finished: the block is retired, unless it is the last that the member retired. After it, all
//! leases are given up in the dead member's name by the steps above. Each step may be repeated: the
//! tag, the claim and the cleared cells show what was done. The dead member may have removed the
//! entry without changing the state, or never have linked the object, so the map is asked. If the
//! name does not lead there, it never will again: only the creator links an object, once.
//!
//! # Progress
//!
//! Finding is lock-free, except when it needs a block of leases. Allocating and freeing wait as
//! [`LocalHeap`] says. Nothing waits for other users, live or dead; a user that stands still
//! delays only the destruction of what it has leased.
//!
//! Tests: `tests/objects.rs`, `tests/pod_session.rs`; proofs: `lab/outlive-proofs/src/objects`.

mod counter;
mod directory;
mod error;
mod lease;
mod named;
mod object;
mod record;
mod recover;

pub use counter::Counter;
pub use directory::{Directory, DirectoryPoint};
pub use error::ObjectError;
pub use lease::{LeasePoint, ReleasePoint};
pub use named::Named;
pub use object::{Class, Object};
pub use recover::recoverers;

use crate::heap::LocalHeap;
use crate::membership::InstanceId;
use crate::structures::{InsertError, blocks_of};
use lease::Lease;
use outlive_memory::{Memory, Native, Offset, Ordering, crash_points};
use record::{LIVE, Record, UNLINKED};
use std::collections::BTreeSet;

crash_points! {
    /// The places where the creation of an object may be cut short.
    pub enum ObjectPoint for "objects.create" {
        /// The block is described; the pending-allocation cell leads to it.
        Described,
        /// A lease leads to it too.
        Leased,
        /// The pending-allocation cell is cleared.
        Released,
        /// The contents are made, and the state is live.
        Made,
        /// It is linked.
        Linked,
    }
}

crash_points! {
    /// The places where the unlinking of an object may be cut short.
    pub enum UnlinkPoint for "objects.unlink" {
        /// Its entry is removed.
        Removed,
        /// Its state is unlinked.
        Unlinked,
    }
}

/// The description of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its type, in words.
    pub of: String,
    /// The ids of the members that use it; an id comes once for each handle.
    pub users: Vec<InstanceId>,
}

/// The named objects of a pod, as a member uses them.
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::objects::{Counter, Directory, Objects};
/// use outlive::structures::Map;
///
/// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
/// let words = objects.open_or_create::<Map<str, u64>>("words", ())?;
/// words.upsert("ash", &1, |n| n + 1)?;
/// // Elsewhere:
/// let same = objects.open::<Map<str, u64>>("words")?;
/// assert_eq!(same.get("ash"), Some(1));
/// // Another type is refused, in words.
/// let error = objects.open::<Counter>("words").unwrap_err();
/// assert!(error.to_string().contains("map of str to u64"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Objects<'h, M: Memory = Native> {
    heap: &'h LocalHeap<'h, M>,
    directory: Directory<M>,
}

impl<'h, M: Memory> Objects<'h, M> {
    /// Returns the objects of `directory`, for the member with this heap handle.
    ///
    /// # Panics
    /// If the directory is of another heap.
    pub fn of(heap: &'h LocalHeap<'h, M>, directory: Directory<M>) -> Self {
        assert!(
            directory.is_of(heap.heap()),
            "the directory is of another heap"
        );
        Self { heap, directory }
    }

    /// Opens the object `name`, or creates it with `init` if there is none. One of several
    /// concurrent callers creates it.
    ///
    /// # Errors
    /// If the object is of another type, the name is not valid, or there is no memory.
    ///
    /// # Crash
    /// The object exists whole under its name, or not at all, and nothing leaks. The recovery
    /// gives up the lease of a dead caller.
    pub fn open_or_create<T: Object<M>>(
        self,
        name: &str,
        init: T::Init,
    ) -> Result<Named<'h, T, M>, ObjectError> {
        loop {
            match self.open(name) {
                Err(ObjectError::NotFound { .. }) => {}
                found => return found,
            }
            match self.create(name, init.clone()) {
                // Another member was quicker; by now its object may be gone again.
                Err(ObjectError::Exists { .. }) => self.heap.memory().spin_hint(),
                made => return made,
            }
        }
    }

    /// Opens the object `name`.
    ///
    /// # Errors
    /// If there is none, it is of another type or damaged, or there is no memory for a lease.
    ///
    /// # Crash
    /// The recovery gives up the lease of a dead caller.
    pub fn open<T: Object<M>>(self, name: &str) -> Result<Named<'h, T, M>, ObjectError> {
        let lease = self.find(name)?;
        let record = lease.record();
        let wanted = T::describe();
        let found = record.kind()?;
        if found != wanted || !record.has_form_of::<T>() {
            let name = name.into();
            return Err(ObjectError::Mismatch {
                name,
                found,
                wanted,
            });
        }
        let object = T::open(self.heap.memory(), record.contents())?;
        Ok(Named::new(lease, object))
    }

    /// Creates the object `name` with `init`.
    ///
    /// # Errors
    /// If the name is taken or not valid, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// As [`open_or_create`](Self::open_or_create).
    pub fn create<T: Object<M>>(
        self,
        name: &str,
        init: T::Init,
    ) -> Result<Named<'h, T, M>, ObjectError> {
        error::demand_name(name)?;
        let (heap, memory) = (self.heap, self.heap.memory());
        // First: a block of slots would need the same pending-allocation cell.
        let slot = self.directory.free_slot(heap)?;
        let record = Record::describe::<T>(heap, name)?;
        memory.crash_point(ObjectPoint::Described);
        let mut lease = Lease::new(heap, self.directory, slot, record.at());
        memory.crash_point(ObjectPoint::Leased);
        record::clear_hand(heap);
        memory.crash_point(ObjectPoint::Released);
        // From here on, a dropped lease destroys the object.
        T::create(heap, record.contents(), init)?;
        // If this thread panics before it is linked, the map is asked.
        lease.is_unsure = true;
        record.set_state(LIVE);
        memory.crash_point(ObjectPoint::Made);
        match (self.directory.names()).insert(heap, name, &record.at().raw()) {
            Ok(()) => {
                memory.crash_point(ObjectPoint::Linked);
                lease.is_unsure = false;
                let object = T::open(memory, record.contents())?;
                Ok(Named::new(lease, object))
            }
            Err(error) => {
                record.set_state(UNLINKED);
                Err(match error {
                    InsertError::Exists(_) => ObjectError::Exists { name: name.into() },
                    InsertError::Heap(error) => error.into(),
                })
            }
        }
    }

    /// Takes away the name of an object, at once. The object is destroyed, and its memory freed, by
    /// the last of its users, or by the member that recovers the last of them.
    ///
    /// # Errors
    /// If there is no object of that name, it is damaged, or there is no memory for a lease.
    ///
    /// # Crash
    /// The object has its name, or not; then it is destroyed as above.
    pub fn unlink(self, name: &str) -> Result<(), ObjectError> {
        self.unlink_leased(self.find(name)?, name)
    }

    /// [Unlinks](Self::unlink) an object that no other handle uses at this moment. (A member that
    /// opens it during the call may still use it afterwards.)
    ///
    /// # Errors
    /// If there is no object of that name, it is in use or damaged, or there is no memory for a
    /// lease.
    ///
    /// # Crash
    /// As [`unlink`](Self::unlink).
    pub fn remove(self, name: &str) -> Result<(), ObjectError> {
        let lease = self.find(name)?;
        let users: Vec<_> = self.directory.users(lease.at(), lease.slot()).collect();
        if !users.is_empty() {
            let name = name.into();
            return Err(ObjectError::InUse { name, users });
        }
        self.unlink_leased(lease, name)
    }

    fn unlink_leased(self, lease: Lease<'h, M>, name: &str) -> Result<(), ObjectError> {
        let (names, at) = (self.directory.names(), lease.at());
        let memory = self.heap.memory();
        if names
            .remove_if(self.heap, name, |leads_to| leads_to == at.raw())
            .is_none()
        {
            return Err(ObjectError::NotFound { name: name.into() });
        }
        memory.crash_point(UnlinkPoint::Removed);
        lease.record().unlink();
        memory.crash_point(UnlinkPoint::Unlinked);
        Ok(())
    }

    /// Returns the descriptions of all objects, by name.
    ///
    /// # Errors
    /// If an object is damaged, or there is no memory for a lease.
    ///
    /// # Crash
    /// The recovery gives up the lease of a dead caller.
    pub fn list(self) -> Result<Vec<Description>, ObjectError> {
        let entries: Vec<_> = self.directory.names().iter(self.heap).collect();
        let mut all = Vec::new();
        for (name, _) in entries {
            let lease = match self.find(&name) {
                Err(ObjectError::NotFound { .. }) => continue,
                found => found?,
            };
            let users = self.directory.users(lease.at(), lease.slot()).collect();
            let of = lease.record().kind()?;
            all.push(Description { name, of, users });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns every block of the heap that the directory and the objects consist of, for the check
    /// of the heap. No member may change an object meanwhile.
    ///
    /// # Errors
    /// If an object is damaged.
    pub fn blocks(self) -> Result<BTreeSet<Offset>, ObjectError> {
        let memory = self.heap.memory();
        let mut blocks = self.directory.own_blocks();
        let named = { self.directory.names() }.iter(self.heap).map(|(_, at)| at);
        let named: Vec<u64> = named.chain(self.directory.leased()).collect();
        for at in named {
            let record = Record::checked(memory, at)?;
            let first: u64 = memory.load(record.contents(), Ordering::Acquire);
            let is_new = blocks.insert(record.at());
            if is_new && record.class() == Some(Class::Structure) && first != 0 {
                blocks.extend(blocks_of(memory, Offset::from_raw(first))?);
            }
        }
        Ok(blocks)
    }

    /// Gives up all leases of this member, also those of handles that were forgotten. The caller
    /// neither uses nor drops a handle that existed before this call.
    ///
    /// # Crash
    /// The recovery gives up the rest.
    #[doc(hidden)]
    pub fn give_up_all(self) {
        let id = self.heap.instance().id;
        for slot in self.directory.slots(id) {
            if self.heap.memory().load::<u64>(slot, Ordering::Relaxed) != 0 {
                lease::give_up(self.heap, &self.directory, slot, true);
            }
        }
    }

    /// Leases the object `name`.
    fn find(self, name: &str) -> Result<Lease<'h, M>, ObjectError> {
        let memory = self.heap.memory();
        let _pin = self.heap.pin();
        let mut before = None;
        loop {
            let Some(at) = self.directory.names().get(self.heap, name) else {
                return Err(ObjectError::NotFound { name: name.into() });
            };
            let record = Record::checked(memory, at)?;
            if before.replace(at) == Some(at) {
                // Its entry is removed before its state changes, and its block stays under this
                // pin.
                return Err(ObjectError::Damaged {
                    at: record.at(),
                    what: "its name leads to it, and it is not live",
                });
            }
            let slot = self.directory.free_slot(self.heap)?;
            let lease = Lease::new(self.heap, self.directory, slot, record.at());
            memory.crash_point(LeasePoint::Leased);
            // Either a claimant sees the lease, or this thread sees the state that it acts on.
            memory.fence(Ordering::SeqCst);
            if record.state() == LIVE {
                return Ok(lease);
            }
            // It was unlinked after the map was asked; its entry is gone.
            memory.spin_hint();
        }
    }
}
