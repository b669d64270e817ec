//! The leased objects of a pool, for one thread.

use super::lease::{Leased, SealedObject, UnsealedObject};
use super::open_stores::OpenStore;
use crate::catalogue::find::{self, Found};
use crate::catalogue::manifest::{self, Birth, Manifest, Pin};
use crate::error::PoolError;
use crate::layout::{Address, Use};
use crate::pool::{Client, Placement, Pool};
use core::time::Duration;
use outlive::membership::{Instance, InstanceId};
use outlive::memory::{Native, Offset};
use outlive::objects::{Directory, Object, ObjectError, Objects};
use outlive::pod::Session;
use std::time::{Instant, SystemTime};

/// The leased objects of a pool, as one thread uses them: bytes by name, from a few to many
/// gigabytes, immutable once sealed.
///
/// An object is created with its size, written by its creator, and *sealed*. From then on every
/// process reads it in place, without a copy. A [`SealedObject`] is a *lease*: as long as it lives,
/// the object's memory is neither freed nor overwritten. Objects without leases that are not
/// pinned are evicted when memory is needed, the least recently used ones first.
///
/// No process serves the objects. Survivors give back the leases and unsealed objects of a process
/// that dies. The bytes have no redundancy: those on a server that dies are
/// [lost](PoolError::Lost).
///
/// A store belongs to one thread. A thread that ends with a leaked store aborts the process:
/// otherwise a survivor would give back the leases of the thread, while another thread may still
/// have references to the bytes.
///
/// ```
/// use outlive_pool::{Placement, Pool, PoolOptions};
///
/// # let path = format!("/dev/shm/outlive-doc-objects-{}", std::process::id());
/// # {
/// # let pool = Pool::create(&path, PoolOptions::new().slice_bytes(64 << 10))?;
/// # let server = pool.serve(1 << 20, 0)?;
/// let client = pool.join()?;
/// let objects = client.objects()?;
/// objects.put("model/weights", &[7; 100_000], Placement::Any)?;
///
/// let weights = objects.get("model/weights")?; // in another process, say
/// let sum: u64 = weights.chunks().try_fold(0, |sum, chunk| {
///     Ok::<_, outlive_pool::PoolError>(sum + chunk?.iter().map(|it| u64::from(*it)).sum::<u64>())
/// })?;
/// assert_eq!(sum, 700_000);
/// objects.delete("model/weights")?; // the memory is freed when `weights` is dropped
/// # drop(weights);
/// # drop(objects);
/// # drop((client, server));
/// # }
/// # Pool::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ObjectStore {
    // The first field: the session is closed before the process leaves.
    session: Session,
    directory: Directory,
    client: Client,
    _open: OpenStore,
}

/// The state of a leased object at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Its creator, which lives, has not sealed it yet.
    Unsealed,
    /// Every process can read it.
    Sealed,
    /// It can never be read in whole: its creator died before sealing it, or a server with a part
    /// of its bytes died.
    Lost,
}

/// A leased object at one time.
#[derive(Clone, Debug)]
pub struct ObjectStatus {
    /// The name.
    pub name: String,
    /// The number of bytes.
    pub bytes: u64,
    /// The state.
    pub state: ObjectState,
    /// Whether it is pinned: a pinned object is not evicted.
    pub is_pinned: bool,
    /// The ids of the threads that have leases, once for each lease.
    pub users: Vec<InstanceId>,
    /// The time of the last use, in milliseconds since 1970.
    pub last_use: u64,
}

/// The maximum number of objects that are evicted for the name of one.
const MOST_EVICTED: u32 = 16;

/// Returns the time in milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl ObjectStore {
    pub(crate) fn open(client: Client) -> Result<Self, PoolError> {
        let session = client.pool().pod().session_of(client.process())?;
        let directory = Directory::open_or_create(session.heap())?;
        let store = Self {
            session,
            directory,
            client,
            _open: OpenStore::new(),
        };
        if let Err(error) = store.collect() {
            // The other objects can be used.
            tracing::warn!(%error, "objects and memory of dead processes remain");
        }
        Ok(store)
    }

    /// Returns the client by which the objects were opened.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn pool(&self) -> &Pool {
        self.client.pool()
    }

    /// Creates the object `name` of `bytes` bytes of zeros, which the caller writes and seals. If
    /// too little memory is free, or the quota is reached, evicts objects that are not used.
    /// Replaces a [lost](ObjectState::Lost) object of that name, also a pinned one.
    ///
    /// # Errors
    /// If the object exists ([`ObjectExists`](PoolError::ObjectExists)) or is being created
    /// ([`BeingCreated`](PoolError::BeingCreated)), the name is not valid, the server of the
    /// placement is not live, the evictions do not free enough memory, or the quota is too small
    /// ([`OverQuota`](PoolError::OverQuota)).
    ///
    /// # Crash
    /// A survivor frees the memory. The name can be used again.
    pub fn create(
        &self,
        name: &str,
        bytes: u64,
        placement: Placement,
    ) -> Result<UnsealedObject<'_>, PoolError> {
        self.create_in(name, (Use::Object, bytes), placement)
    }

    /// Creates the object `name` of `bytes` bytes in memory for `kind`.
    fn create_in(
        &self,
        name: &str,
        (kind, bytes): (Use, u64),
        placement: Placement,
    ) -> Result<UnsealedObject<'_>, PoolError> {
        demand_name(name)?;
        let mut evicted = 0;
        loop {
            match self.find(name)? {
                Found::Nothing { .. } => {}
                Found::Sealed(named) => match Leased::new(self, named)? {
                    leased if leased.is_lost() => drop(leased.unlink()?),
                    _ => return Err(PoolError::ObjectExists { name: name.into() }),
                },
                Found::Unsealed(by) => return Err(being_created(name, by)),
            }
            let address = self.allocate((kind, bytes), placement)?;
            let birth = Birth {
                creator: self.client.instance(),
                address,
                bytes,
                now: now(),
            };
            match self.objects().create::<Manifest>(name, birth) {
                Ok(named) => return Ok(UnsealedObject::new(Leased::new(self, named)?)),
                Err(error) => {
                    self.client.free_of_object(address)?;
                    match error {
                        // Another thread has created the object first.
                        ObjectError::Exists { .. } => {}
                        // The heap has too little memory for names and leases. A stalled reader
                        // may hold back the memory of evicted objects.
                        ObjectError::Heap(_) if evicted < MOST_EVICTED && self.evict_name()? => {
                            evicted += 1;
                        }
                        error => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Creates the object `name` with the contents `bytes`, and seals it.
    ///
    /// # Errors
    /// As [`create`](Self::create), or if a server with some of the bytes dies during the call.
    ///
    /// # Crash
    /// The object exists with all of its bytes, or not at all.
    pub fn put(&self, name: &str, bytes: &[u8], placement: Placement) -> Result<(), PoolError> {
        let memory = (Use::Overwritten, bytes.len() as u64);
        let mut object = self.create_in(name, memory, placement)?;
        object.write(0, bytes)?;
        object.seal().map(drop)
    }

    /// Leases the object `name`.
    ///
    /// # Errors
    /// If it does not exist ([`NoObject`](PoolError::NoObject)), is being created
    /// ([`BeingCreated`](PoolError::BeingCreated)), or a part of its bytes was lost with a server
    /// ([`Lost`](PoolError::Lost)).
    ///
    /// # Crash
    /// A survivor gives up the lease.
    pub fn get(&self, name: &str) -> Result<SealedObject<'_>, PoolError> {
        let leased = self.leased(name, self.find(name)?)?;
        leased.demand_memory()?;
        leased.touch();
        Ok(SealedObject::new(leased))
    }

    /// Waits at most `patience` for the object `name` to be created and sealed, and leases it;
    /// `None` if that does not happen.
    ///
    /// # Errors
    /// If its creator dies or gives the object up during the call
    /// ([`Abandoned`](PoolError::Abandoned)), or bytes of the object are [lost](PoolError::Lost).
    /// The call polls, so it also returns `Abandoned` if it finds the object unsealed, and the
    /// object is sealed and removed before the next poll.
    ///
    /// # Crash
    /// As for [`get`](Self::get).
    pub fn wait(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<SealedObject<'_>>, PoolError> {
        let begin = Instant::now();
        let (mut creator, mut pause) = (None, Duration::from_micros(50));
        loop {
            match self.get(name) {
                Err(PoolError::NoObject { .. }) if creator.is_none() => {}
                Err(PoolError::BeingCreated { by, .. }) if creator.is_none_or(|it| it == by) => {
                    creator = Some(by);
                }
                Err(PoolError::NoObject { name } | PoolError::BeingCreated { name, .. }) => {
                    return Err(PoolError::Abandoned { name });
                }
                got => return got.map(Some),
            }
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(Duration::from_millis(2));
        }
    }

    /// Removes the object `name` immediately, also a pinned one. Its memory is freed when its last
    /// lease ends.
    ///
    /// # Errors
    /// If the object does not exist, or is being created.
    ///
    /// # Crash
    /// The object has its name, or not. In the latter case a survivor frees the memory.
    pub fn delete(&self, name: &str) -> Result<(), PoolError> {
        match self.find(name)? {
            // The creator had died before it sealed the object.
            Found::Nothing { was_removed: true } => Ok(()),
            found => self.leased(name, found)?.unlink().map(drop),
        }
    }

    /// Pins the object `name`, or removes its pin. A pinned object is not evicted, but can be
    /// deleted, and replaced if it is lost. The pin belongs to the pod, not to this process: it
    /// stays when the process ends, and any process may remove it.
    ///
    /// # Errors
    /// If the object does not exist, or is being created.
    pub fn pin(&self, name: &str, is_pinned: bool) -> Result<(), PoolError> {
        loop {
            let leased = self.leased(name, self.find(name)?)?;
            let is_gone = |evictor| self.client.is_gone(evictor);
            match leased.manifest().pin(is_pinned, is_gone) {
                Pin::Done => return Ok(()),
                // An evictor may have removed the name before: look the name up again.
                Pin::Changed => {}
                // The evictor soon removes the name, or ends the eviction.
                Pin::Evicted => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Returns all leased objects, sorted by name.
    ///
    /// # Errors
    /// If an object is damaged, or there is no memory for a lease.
    pub fn list(&self) -> Result<Vec<ObjectStatus>, PoolError> {
        Ok(self.statuses()?.into_iter().map(|(it, _)| it).collect())
    }

    /// Returns all leased objects with their addresses.
    pub(super) fn statuses(&self) -> Result<Vec<(ObjectStatus, Address)>, PoolError> {
        let mut all = Vec::new();
        for name in self.names()? {
            let Some(named) = find::open(self.objects(), &name)? else {
                continue;
            };
            let manifest = named.low_level();
            let address = manifest.address()?;
            let state = match manifest.creator() {
                _ if self.pool().coherent().is_sealed(address) => {
                    match self.is_lost(address, manifest.bytes()) {
                        true => ObjectState::Lost,
                        false => ObjectState::Sealed,
                    }
                }
                Some(creator) if !self.client.is_gone(creator) => ObjectState::Unsealed,
                _ => ObjectState::Lost,
            };
            let status = ObjectStatus {
                bytes: manifest.bytes(),
                state,
                is_pinned: manifest.is_pinned(),
                users: named.other_users(),
                last_use: manifest.last_use(),
                name,
            };
            all.push((status, address));
        }
        Ok(all)
    }

    /// Removes the objects whose creators died before they sealed them, then calls
    /// [`Client::collect`], which frees the memory of destroyed objects. Returns the number of
    /// objects that were removed during the call, also by other threads. Reads all names, and the
    /// owner of every slice. Opening the store does the same.
    ///
    /// # Errors
    /// If an object is damaged, or there is no memory for a lease.
    pub fn collect(&self) -> Result<usize, PoolError> {
        let mut removed = 0;
        for name in self.names()? {
            // `names` has listed the name, so the object was removed since.
            removed += usize::from(matches!(self.find(&name)?, Found::Nothing { .. }));
        }
        self.client.collect();
        Ok(removed)
    }

    pub(super) fn names(&self) -> Result<Vec<String>, PoolError> {
        let own = <Manifest as Object<Native>>::describe();
        let all = self.objects().list()?.into_iter();
        let own = all.filter(|it| it.of == own);
        Ok(own.map(|it| it.name).collect())
    }

    /// Returns the instance of this thread.
    pub(super) fn thread(&self) -> Instance {
        self.session.member().instance()
    }

    pub(super) fn objects(&self) -> Objects<'_> {
        self.session.objects()
    }

    /// Finds the object `name`, and removes it if its creator died before sealing it.
    fn find(&self, name: &str) -> Result<Found<'_>, PoolError> {
        let is_gone = |creator| self.client.is_gone(creator);
        find::find(self.objects(), self.pool().coherent(), name, is_gone)
    }

    /// Returns the lease of the object `name`, if a sealed one was found.
    fn leased<'s>(&'s self, name: &str, found: Found<'s>) -> Result<Leased<'s>, PoolError> {
        match found {
            Found::Sealed(named) => Leased::new(self, named),
            Found::Unsealed(by) => Err(being_created(name, by)),
            Found::Nothing { .. } => Err(PoolError::NoObject { name: name.into() }),
        }
    }

    pub(super) fn is_lost(&self, address: Address, bytes: u64) -> bool {
        self.demand_memory(address, bytes).is_err()
    }

    /// Returns an error if a part of the bytes at `address` was lost with a server.
    pub(super) fn demand_memory(&self, address: Address, bytes: u64) -> Result<(), PoolError> {
        let coherent = self.pool().coherent();
        let slice_bytes = coherent.sizes().slice_bytes();
        for slice in 0..bytes.div_ceil(slice_bytes).max(1) {
            coherent.demand_server(address.plus(slice * slice_bytes))?;
        }
        Ok(())
    }

    /// Frees the memory at `address` if the object that had it, with its contents at `holder`, was
    /// destroyed. The caller has ended a lease of the object.
    pub(super) fn free_if_destroyed(&self, holder: Offset, address: Address) {
        let coherent = self.pool().coherent();
        let is_left = manifest::is_left(coherent, &self.directory, holder, address);
        if is_left && let Err(error) = self.client.free_of_object(address) {
            // Another member has freed the memory, or a later `collect` frees it.
            tracing::debug!(%address, %error, "the memory of an object is not freed here");
        }
    }
}

/// Returns an error for a name that is not valid, before memory is allocated for the object.
fn demand_name(name: &str) -> Result<(), PoolError> {
    match name.len() {
        1..=255 => Ok(()),
        _ => Err(PoolError::Objects(ObjectError::Name { name: name.into() })),
    }
}

fn being_created(name: &str, by: Instance) -> PoolError {
    let name = name.into();
    PoolError::BeingCreated { name, by }
}
