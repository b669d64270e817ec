//! Named objects: shared values that are found by a name, counted by leases, and destroyed by the
//! last of their users; and clients, which know the outcome of their last request.
//!
//! ```text
//!  root word of the heap -> directory: the map from names to objects | for each id: its leases
//!  object:   header of reclamation | state | class, sizes, fingerprint, number | two names
//!            | contents | type
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
//!   live or name-locked, the lease holds. Otherwise it is given up, and the map is looked up
//!   again. Then the name that the version selects is compared with the name looked for. If they
//!   differ, the entry is *stale*: it is ignored.
//! * **Rename** and **unlink**: the caller leases the object and locks its name by a
//!   compare-and-swap of the state from *live* to *name-locked*. It first removes the stale entry
//!   of the other name, if a dead renamer left one.
//!   - Rename: the new name is written in the place of the other one, and an entry leads from it to
//!     the object; then the version is raised, which renames the object; then the entry of the old
//!     name is removed. A member that needs the name of a stale entry locks the name of the object
//!     that it leads to, which removes the entry.
//!   - Unlink: the entry is removed from the map, which is detectable; then the state becomes
//!     *unlinked*, for good.
//! * **Give up** a lease, under a pin: the slot gets a tag, by which it no longer counts as a use;
//!   a full fence. If the slot has the name lock, or the lease is unsure (in a recovery, and after
//!   a panic of the creator), the map is looked up, and an object that its name does not lead to
//!   becomes unlinked. If the state is unlinked and no slot without a tag leads to the object, then
//!   the slot *claims* the object, by compare-and-swap of the state. The claimant destroys the
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
//! *No entry leads to a freed block.* Only the entries of its two names can lead to an object. The
//! member that unlinks it removes both, the stale one first, before the state becomes unlinked. So
//! a recovery of leases removes no entry: an object that its name still leads to stays live, and
//! its stale entry stays until the name is locked again.
//!
//! *A compare-and-swap from live does not suffer from ABA.* The live state contains the version of
//! the name, and every rename raises it.
//!
//! # Recovery
//!
//! Before the operation of a dead member is settled, its slot that is tagged as retiring is
//! finished: the block is retired, unless it is the last that the member retired. After it, all
//! leases are given up in the dead member's name by the steps above. Each step may be repeated: the
//! tag, the claim and the cleared cells show what was done. The dead member may have removed the
//! entry without changing the state, or never have linked the object, so the map is looked up. If
//! the name does not lead there, it never will again: the creator inserts the first entry once, and
//! a renamer inserts another only after it has found the object under its name and locked that
//! name.
//!
//! # Progress
//!
//! Finding is lock-free, except when it needs a block of leases. Allocating and freeing wait as
//! [`LocalHeap`] says. Renaming and unlinking wait for a member that renames or unlinks the same
//! object. Creating under a name, and renaming to it, wait for a member that renames another object
//! from or to that name. A waiting member recovers a dead one itself. No operation waits for a
//! member that merely uses an object; a stalled user delays only the destruction of what it has
//! leased.
//!
//! Tests: `tests/objects*.rs`, `tests/pod_session.rs`; proofs: `lab/outlive-proofs/src/objects`.

mod array;
mod barrier;
mod cell;
mod client;
mod counter;
mod directory;
mod error;
mod lease;
mod name_lock;
mod named;
mod object;
mod observe;
mod record;
mod recover;
mod request;
mod value;
mod weak;

pub use array::Array;
pub use cell::{Blob, Cell};
pub use client::{Client, LastRequest, RequestPoint};
pub use counter::Counter;
pub use directory::{Directory, DirectoryPoint};
pub use error::ObjectError;
pub use lease::{LeasePoint, ReleasePoint};
pub use name_lock::{RenamePoint, UnlinkPoint};
pub use named::Named;
pub use object::{Class, Contents, Object};
pub use observe::Dump;
pub use recover::recoverers;
pub use request::Request;
pub use value::Value;
pub use weak::Weak;

use crate::heap::LocalHeap;
use crate::membership::{Instance, InstanceId};
use crate::structures::{InsertError, blocks_of};
use lease::Lease;
use name_lock::NameLock;
use object::MUTEX_OVER;
use outlive_memory::{Memory, Native, Offset, Ordering, crash_points};
use record::{Record, State};
use std::collections::BTreeSet;

crash_points! {
    /// The crash points of the creation of an object.
    pub enum ObjectPoint for "objects.create" {
        /// The block is described; the pending-allocation cell leads to it.
        Described,
        /// A lease leads to the block too.
        Leased,
        /// The pending-allocation cell is cleared.
        Released,
        /// The contents are made, and the state is live.
        Made,
        /// The object is linked.
        Linked,
    }
}

/// The description of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name of the object.
    pub name: String,
    /// The description of the object's type, as text.
    pub of: String,
    /// The approximate number of the object's entries, if it is a map, a list or a cell.
    pub entries: Option<u64>,
    /// The member that holds the object, if it is a mutex. A dead holder is shown until another
    /// member has taken the mutex from it.
    pub holder: Option<Instance>,
    /// The offset of the object's contents.
    pub contents: Offset,
    /// The size of the object's contents in bytes, without the blocks of a structure.
    pub bytes: u64,
    /// The ids of the members that use the object. An id occurs once for each handle.
    pub users: Vec<InstanceId>,
}

impl Description {
    fn of<M: Memory>(
        name: String,
        record: Record<M>,
        users: Vec<InstanceId>,
    ) -> Result<Self, ObjectError> {
        let of = record.kind()?;
        let lock = of.starts_with(MUTEX_OVER).then(|| record.first_word());
        Ok(Self {
            name,
            of,
            entries: record.entries()?,
            holder: lock.and_then(Instance::from_word),
            contents: record.contents(),
            bytes: record.content_bytes(),
            users,
        })
    }
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
        self.open_leased(self.find(name)?)
    }

    fn open_leased<T: Object<M>>(
        self,
        lease: Lease<'h, M>,
    ) -> Result<Named<'h, T, M>, ObjectError> {
        let record = lease.record();
        let (found, wanted) = (record.kind()?, T::describe());
        if found != wanted || record.fingerprint() != T::fingerprint() {
            let (name, _) = record.name()?;
            return Err(ObjectError::Mismatch {
                name,
                found,
                wanted,
            });
        }
        let object = T::open(self.contents(record))?;
        Ok(Named::new(lease, object))
    }

    fn contents(self, record: Record<M>) -> Contents<M> {
        Contents {
            memory: self.heap.memory(),
            at: record.contents(),
            bytes: record.content_bytes(),
        }
    }

    /// Creates the object `name` with `init`.
    ///
    /// # Errors
    /// If the name is taken or not valid, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`open_or_create`](Self::open_or_create).
    pub fn create<T: Object<M>>(
        self,
        name: &str,
        init: T::Init,
    ) -> Result<Named<'h, T, M>, ObjectError> {
        error::demand_name(name)?;
        let (heap, memory) = (self.heap, self.heap.memory());
        // First: a block of slots would need the same pending-allocation cell.
        let slot = self.directory.free_slot(heap)?;
        let number = self.directory.next_number();
        let record = Record::describe::<T>(heap, name, number, T::bytes(&init))?;
        memory.crash_point(ObjectPoint::Described);
        let mut lease = Lease::new(heap, self.directory, slot, record.at());
        memory.crash_point(ObjectPoint::Leased);
        record::clear_pending(heap);
        memory.crash_point(ObjectPoint::Released);
        // From here on, a dropped lease destroys the object.
        T::create(heap, record.contents(), init)?;
        // If this thread panics before it is linked, the map is looked up.
        lease.is_unsure = true;
        record.set_state(State::Live(0));
        memory.crash_point(ObjectPoint::Made);
        let inserted = self.insert(name, record);
        lease.is_unsure = false;
        if inserted.is_err() {
            record.set_state(State::Unlinked);
        }
        inserted?;
        memory.crash_point(ObjectPoint::Linked);
        let object = T::open(self.contents(record))?;
        Ok(Named::new(lease, object))
    }

    /// Inserts an entry that leads from `name` to the object.
    fn insert(self, name: &str, record: Record<M>) -> Result<(), ObjectError> {
        let names = self.directory.names();
        loop {
            match names.insert(self.heap, name, &record.at().raw()) {
                Ok(()) => return Ok(()),
                Err(InsertError::Heap(error)) => return Err(error.into()),
                Err(InsertError::Exists(_)) if self.clear_stale(name)? => {}
                Err(InsertError::Exists(_)) => {
                    return Err(ObjectError::Exists { name: name.into() });
                }
            }
        }
    }

    /// Removes the entry of `name` if it is stale. Returns false if it is not. Waits for a member
    /// that renames the object.
    fn clear_stale(self, name: &str) -> Result<bool, ObjectError> {
        let Some(lease) = self.lease(name)? else {
            return Ok(true);
        };
        let record = lease.record();
        if record.is_named(name)? {
            return Ok(false);
        }
        let Some(lock) = NameLock::acquire(&lease)? else {
            return Ok(true);
        };
        // The lock was acquired after the stale entry was removed.
        let is_left = self.directory.leads_to(self.heap, name, record.at());
        drop(lock);
        match is_left && !record.is_named(name)? {
            true => Err(record.damaged("an entry leads to it from neither of its names")),
            false => Ok(true),
        }
    }

    /// Renames the object `from` to `to`, in one atomic step; its handles stay valid. Waits for a
    /// member that renames or unlinks this object, or that renames another one from or to `to`.
    ///
    /// # Errors
    /// If `from` does not exist, `to` exists or is not a valid name, an object is damaged, a dead
    /// member cannot be recovered, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The object has the one name or the other.
    pub fn rename(self, from: &str, to: &str) -> Result<(), ObjectError> {
        error::demand_name(to)?;
        loop {
            let lease = self.find(from)?;
            if from == to || self.rename_leased(&lease, from, to)? {
                return Ok(());
            }
            drop(lease);
            // A member holds at most one name lock, so no cycle of waiting members arises.
            if !self.clear_stale(to)? {
                return Err(ObjectError::Exists { name: to.into() });
            }
        }
    }

    /// Renames a leased object. Returns false if `to` has an entry.
    fn rename_leased(
        self,
        lease: &Lease<'h, M>,
        from: &str,
        to: &str,
    ) -> Result<bool, ObjectError> {
        let (memory, record) = (self.heap.memory(), lease.record());
        let not_found = || ObjectError::NotFound { name: from.into() };
        let lock = NameLock::acquire(lease)?.ok_or_else(not_found)?;
        memory.crash_point(RenamePoint::Locked);
        if !record.is_named(from)? {
            return Err(not_found());
        }
        let version = record.version() + 1;
        record.write_name(version, to);
        memory.crash_point(RenamePoint::Written);
        match (self.directory.names()).insert(self.heap, to, &record.at().raw()) {
            Ok(()) => {}
            Err(InsertError::Heap(error)) => return Err(error.into()),
            Err(InsertError::Exists(_)) => return Ok(false),
        }
        memory.crash_point(RenamePoint::Inserted);
        record.set_version(version);
        memory.crash_point(RenamePoint::Renamed);
        lock.remove(from);
        memory.crash_point(RenamePoint::Removed);
        drop(lock);
        memory.crash_point(RenamePoint::Unlocked);
        Ok(true)
    }

    /// Removes the name of an object immediately. The object is destroyed, and its memory freed, by
    /// the last of its users, or by the member that recovers the last of them.
    ///
    /// # Errors
    /// If there is no object of that name, it is damaged, it is a [`Client`] in use, or there is no
    /// memory for a lease.
    ///
    /// # Crash
    /// The object has its name, or not; then it is destroyed as above.
    pub fn unlink(self, name: &str) -> Result<(), ObjectError> {
        self.unlink_of(self.find(name)?, name)
    }

    /// [Unlinks](Self::unlink) an object that no other handle uses at this moment. (A member that
    /// opens it during the call may still use it afterwards.)
    ///
    /// # Errors
    /// If there is no object of that name, it is in use or damaged, or there is no memory for a
    /// lease.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`unlink`](Self::unlink).
    pub fn remove(self, name: &str) -> Result<(), ObjectError> {
        let lease = self.find(name)?;
        let users: Vec<_> = self.directory.users(lease.at(), lease.slot()).collect();
        if !users.is_empty() {
            let name = name.into();
            return Err(ObjectError::InUse { name, users });
        }
        self.unlink_of(lease, name)
    }

    /// Unlinks the leased object if `name` is its name.
    fn unlink_of(self, lease: Lease<'h, M>, name: &str) -> Result<(), ObjectError> {
        match self.unlink_leased(&lease, Some(name))? {
            true => Ok(()),
            false => Err(ObjectError::NotFound { name: name.into() }),
        }
    }

    /// Unlinks the leased object. Returns false if it has no name, or another one than `of`.
    fn unlink_leased(self, lease: &Lease<'h, M>, of: Option<&str>) -> Result<bool, ObjectError> {
        let memory = self.heap.memory();
        let Some(lock) = NameLock::acquire(lease)? else {
            return Ok(false);
        };
        memory.crash_point(UnlinkPoint::Locked);
        let (name, _) = lock.record().name()?;
        let user = client::user_of(memory, lock.record());
        if user != 0 {
            return Err(self.client_in_use(&name, lease, user));
        }
        if of.is_some_and(|of| of != name) || !lock.remove(&name) {
            return Ok(false);
        }
        memory.crash_point(UnlinkPoint::Removed);
        lock.unlink();
        Ok(true)
    }

    /// Returns the descriptions of all objects, sorted by name. An object that is renamed during
    /// the call may be missing, or listed under both names.
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
            let users = self.directory.users(lease.at(), lease.slot());
            all.push(Description::of(name, lease.record(), users.collect())?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns every block of the heap that the directory and the objects consist of, for the check
    /// of the heap. No member may change an object during the call.
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
            let is_new = blocks.insert(record.at());
            if is_new && record.class() == Some(Class::Structure) {
                let first = record.first_word();
                if first != 0 {
                    blocks.extend(blocks_of(memory, Offset::from_raw(first))?);
                }
            }
        }
        Ok(blocks)
    }

    /// Returns the ids of the members that have leases, for a check.
    #[doc(hidden)]
    pub fn lessees(self) -> Vec<InstanceId> {
        let ids = 0..self.heap.logs().capacity();
        ids.filter(|id| self.directory.has_leases(*id)).collect()
    }

    /// Gives up all leases of this member, also those of handles that were forgotten. The caller
    /// neither uses nor drops a handle that existed before this call.
    ///
    /// # Crash
    /// The recovery gives up the rest.
    #[doc(hidden)]
    pub fn give_up_all(self) {
        let id = self.heap.instance().id;
        if !self.heap.is_idle() {
            // A panic has left an operation running: the recovery ends its leases.
            return;
        }
        for slot in self.directory.slots(id) {
            if self.heap.memory().load::<u64>(slot, Ordering::Relaxed) != 0 {
                lease::give_up(self.heap, &self.directory, slot, true);
            }
        }
    }

    /// Leases the object `name`.
    fn find(self, name: &str) -> Result<Lease<'h, M>, ObjectError> {
        let lease = self.lease(name)?;
        let is_named = |lease: &Lease<'h, M>| lease.record().is_named(name);
        match lease {
            Some(lease) if is_named(&lease)? => Ok(lease),
            _ => Err(ObjectError::NotFound { name: name.into() }),
        }
    }

    /// Leases the object that the entry of `name` leads to, even if the object has another name.
    /// Returns `None` if the entry does not exist.
    fn lease(self, name: &str) -> Result<Option<Lease<'h, M>>, ObjectError> {
        let memory = self.heap.memory();
        let _pin = self.heap.pin();
        let mut before = None;
        loop {
            let Some(at) = self.directory.names().get(self.heap, name) else {
                return Ok(None);
            };
            let record = Record::checked(memory, at)?;
            if before.replace(at) == Some(at) {
                // An object's entries are removed before its state becomes unlinked, and this pin
                // keeps its block.
                return Err(record.damaged("an entry leads to it, but it is not live"));
            }
            if let Some(lease) = self.lease_at(record)? {
                return Ok(Some(lease));
            }
            // It was unlinked after the map was asked; its entry is gone.
            memory.spin_hint();
        }
    }

    /// Leases an object that was linked under the caller's pin; `None` if it was unlinked since.
    fn lease_at(self, record: Record<M>) -> Result<Option<Lease<'h, M>>, ObjectError> {
        let memory = self.heap.memory();
        let slot = self.directory.free_slot(self.heap)?;
        let lease = Lease::new(self.heap, self.directory, slot, record.at());
        memory.crash_point(LeasePoint::Leased);
        // Either a claimant sees the lease, or this thread sees the state that it acts on.
        memory.fence(Ordering::SeqCst);
        let holds = record.state().is_some_and(State::can_be_leased);
        Ok(holds.then_some(lease))
    }
}
