//! A small memory pool beside a heap with named objects, in one memory: leased objects.

use super::small::{SIZE, SmallPool};
use crate::objects::fixture::{self, World};
use outlive::heap::LocalHeap;
use outlive::membership::{Instance, Member};
use outlive::objects::{Directory, Named, Objects};
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_pool::Address;
use outlive_pool::internals::{Birth, Found, Manifest, Place, Use, find, manifest};

/// The object that exists.
pub const KEPT: &str = "kept";
/// The object that is created.
pub const MADE: &str = "made";
/// The member that prepares and checks.
pub const OBSERVER: u32 = 3;
/// The process of the servers.
const HOST: Instance = Instance::new(8, 1);
/// The numbers of slices of the two objects.
pub const SLICES: [(&str, u64); 2] = [(KEPT, 2), (MADE, 3)];

/// Returns the place of the pool: behind the heap.
pub fn base<M: Memory>() -> u64 {
    fixture::bytes::<M>()
}

/// Returns the size of the memory in bytes.
pub fn bytes<M: Memory>() -> u64 {
    base::<M>() + SIZE
}

/// The pod with its heap, and the pool in it.
pub struct Leasing<M: Memory> {
    /// The pod.
    pub world: World<M>,
    /// The pool.
    pub pool: SmallPool<M>,
}

/// Recovers a dead member in the pool, with its log.
struct OfPool<M: Memory>(SmallPool<M>);

impl<M: Memory> RecoverRoom<M> for OfPool<M> {
    fn settle(&self, _: &Recovering<'_, M>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let survivor = dead.member().instance();
        let recovered = { self.0.coherent }.recover(survivor, dead.owner(), &self.0, &self.0);
        assert!(recovered.remaining.is_empty() && recovered.failed.is_none());
        Ok(())
    }
}

impl<M: Memory> Leasing<M> {
    /// Creates everything: all members, two servers, and the object [`KEPT`].
    pub fn create(memory: M) {
        fixture::create(memory).join_all();
        let pool = SmallPool::create_at(memory, base::<M>());
        for _ in 0..2 {
            pool.serve(HOST);
        }
        let this = Self::open(memory);
        let member = this.world.act_as(OBSERVER);
        let heap = this.world.local(&member);
        this.put(&heap, KEPT);
    }

    /// Opens the pod and its pool.
    pub fn open(memory: M) -> Self {
        let pool = SmallPool::open_at(memory, base::<M>());
        let world = fixture::pod(memory).with(|others, _| others.room(OfPool(pool)));
        Self { world, pool }
    }

    /// Allocates the memory of an object for `member`, and fills it.
    pub fn allocate(&self, member: &Member<M>, name: &str) -> Address {
        let (_, slices) = SLICES.into_iter().find(|it| it.0 == name).expect("a name");
        let owner = member.instance();
        let coherent = self.pool.coherent;
        let allocated = coherent.allocate(owner, slices, Place::Any, Use::Object, &self.pool);
        let address = allocated.expect("free memory");
        for at in words(address, slices) {
            let frame = self.pool.coherent.locate(at, &self.pool).expect("its own");
            let at = frame.at + (at.position() & 0xFFF);
            frame.memory.store(at, word_of(name), Ordering::Relaxed);
        }
        address
    }

    /// Creates the named object of an object, which is not sealed.
    pub fn make<'h>(
        &self,
        heap: &'h LocalHeap<'h, M>,
        name: &str,
        address: Address,
    ) -> Named<'h, Manifest<M>, M> {
        let birth = Birth {
            creator: heap.instance(),
            address,
            bytes: SLICES[usize::from(name == MADE)].1 << 12,
            now: 1,
        };
        let made = fixture::objects(heap).create(name, birth);
        made.expect("a free name")
    }

    /// Creates an object, and seals it.
    pub fn put<'h>(&self, heap: &'h LocalHeap<'h, M>, name: &str) {
        let address = self.allocate(heap.member(), name);
        let named = self.make(heap, name, address);
        self.seal(&named, heap.instance());
    }

    /// Seals an object.
    pub fn seal(&self, named: &Named<'_, Manifest<M>, M>, owner: Instance) {
        let manifest = named.low_level();
        let address = manifest.address().expect("an address");
        let sealed = { self.pool.coherent }.seal(owner, address, manifest.at());
        sealed.expect("its own");
    }

    /// Finds an object, and removes it if its creator died before sealing it.
    pub fn find<'h>(&self, all: Objects<'h, M>, name: &str) -> Found<'h, M> {
        let is_gone = |creator| self.world.generations.is_gone(creator);
        find::find(all, self.pool.coherent, name, is_gone).expect("a sound object")
    }

    /// Removes a sealed object, if it exists, and frees its memory if it is destroyed.
    pub fn delete(&self, heap: &LocalHeap<'_, M>, name: &str) {
        let Found::Sealed(named) = self.find(fixture::objects(heap), name) else {
            return;
        };
        let manifest = *named.low_level();
        let address = manifest.address().expect("an address");
        named.unlink().expect("a sound object");
        self.free_if_destroyed(heap, manifest.at(), address);
    }

    /// Frees the memory of an object if it is destroyed.
    pub fn free_if_destroyed(&self, heap: &LocalHeap<'_, M>, holder: Offset, address: Address) {
        let directory = Directory::open_or_create(heap).expect("a directory");
        if manifest::is_left(self.pool.coherent, &directory, holder, address) {
            self.free(heap.instance(), address);
        }
    }

    /// Frees the memory of an object, unless another member does.
    pub fn free(&self, owner: Instance, address: Address) {
        if let Ok(run) = { self.pool.coherent }.begin_free_object(owner, address) {
            let user = { self.pool.coherent }.release_unless_used(owner, run, &self.pool);
            assert!(user.expect("a reachable server").is_none());
        }
    }

    /// Frees the memory of destroyed objects, and removes those whose creators died.
    pub fn collect(&self, heap: &LocalHeap<'_, M>) {
        let directory = Directory::open_or_create(heap).expect("a directory");
        for address in manifest::unheld(self.pool.coherent, &directory) {
            self.free(heap.instance(), address);
        }
        for (name, _) in SLICES {
            drop(self.find(fixture::objects(heap), name));
        }
    }

    /// Demands that the bytes of an object are those that its creator has written.
    pub fn demand_bytes(&self, name: &str, address: Address) -> Result<(), String> {
        let slices = SLICES[usize::from(name == MADE)].1;
        for at in words(address, slices) {
            let frame = self.pool.coherent.locate(at, &self.pool);
            let frame = frame.map_err(|error| format!("a lease of {name:?}: {error}"))?;
            let at = frame.at + (at.position() & 0xFFF);
            let word: u64 = frame.memory.load(at, Ordering::Relaxed);
            if word != word_of(name) {
                return Err(format!("{name:?} has {word} in place of its bytes"));
            }
        }
        Ok(())
    }
}

/// Returns the addresses of the first and last word in each slice.
fn words(address: Address, slices: u64) -> impl Iterator<Item = Address> {
    (0..slices).flat_map(move |slice| [0, 4088].map(|byte| address.plus((slice << 12) + byte)))
}

fn word_of(name: &str) -> u64 {
    if name == KEPT { 7 } else { 9 }
}
