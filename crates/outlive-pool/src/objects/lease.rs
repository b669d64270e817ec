//! Leases of objects: those of creators, which write, and those of users, which read.

use super::store::{ObjectStore, now};
use crate::catalogue::manifest::Manifest;
use crate::coherent::Translated;
use crate::error::PoolError;
use crate::layout::Address;
use crate::pool::View;
use core::ops::Range;
use outlive::objects::Named;

/// A lease of an object by a thread.
#[derive(Debug)]
pub(super) struct Leased<'s> {
    store: &'s ObjectStore,
    /// `None` only while this value is consumed or dropped.
    named: Option<Named<'s, Manifest>>,
    address: Address,
    bytes: u64,
    manifest: Manifest,
    _view: View<'s>,
}

impl<'s> Leased<'s> {
    pub fn new(store: &'s ObjectStore, named: Named<'s, Manifest>) -> Result<Self, PoolError> {
        let manifest = *named.low_level();
        Ok(Self {
            store,
            address: manifest.address()?,
            bytes: manifest.bytes(),
            manifest,
            named: Some(named),
            _view: View::new(store.pool()),
        })
    }

    pub fn manifest(&self) -> Manifest {
        self.manifest
    }

    pub fn touch(&self) {
        self.manifest.touch(now());
    }

    pub fn is_lost(&self) -> bool {
        self.demand_memory().is_err()
    }

    pub fn demand_memory(&self) -> Result<(), PoolError> {
        self.store.demand_memory(self.address, self.bytes)
    }

    /// Returns whether other leases exist, also those of this thread.
    pub fn has_other_users(&self) -> bool {
        { self.named.as_ref() }.is_some_and(|it| !it.other_users().is_empty())
    }

    /// Removes the name, and ends the lease. Returns false if the object had no name any more.
    pub fn unlink(mut self) -> Result<bool, PoolError> {
        match self.named.take() {
            Some(named) => Ok(named.unlink()?),
            None => Ok(false),
        }
    }

    fn chunk_bytes(&self) -> u64 {
        self.store.pool().coherent().sizes().slice_bytes()
    }

    /// Returns the number of slices.
    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes())
    }

    /// Returns the bytes of the object that are in slice `index`, and the place of the slice.
    fn locate(&self, index: u64) -> Result<(usize, Translated), PoolError> {
        let (pool, start) = (self.store.pool(), index * self.chunk_bytes());
        let len = (self.bytes - start).min(self.chunk_bytes());
        let place = { pool.coherent() }.locate(self.address.plus(start), pool)?;
        Ok((len as usize, place))
    }

    fn demand_inside(&self, byte: u64, len: u64) -> Result<(), PoolError> {
        match byte.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(PoolError::OutsideObject {
                byte,
                len,
                bytes: self.bytes,
            }),
        }
    }

    /// Returns, for each slice that has some of the `len` bytes from `byte` on, the index of the
    /// slice, the range of these bytes in it, and their range among the `len` bytes.
    fn parts(
        &self,
        byte: u64,
        len: u64,
    ) -> Result<impl Iterator<Item = (u64, Range<usize>, Range<usize>)>, PoolError> {
        self.demand_inside(byte, len)?;
        let (chunk, end) = (self.chunk_bytes(), byte + len);
        let indices = byte / chunk..end.div_ceil(chunk);
        Ok(indices.filter(move |_| len > 0).map(move |index| {
            let start = index * chunk;
            let (from, to) = (byte.max(start), end.min(start + chunk));
            let within = (from - start) as usize..(to - start) as usize;
            (index, within, (from - byte) as usize..(to - byte) as usize)
        }))
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        drop(self.named.take());
        let holder = self.manifest.at();
        self.store.free_if_destroyed(holder, self.address);
    }
}

/// An object that this thread is creating. Dropping it without [sealing](Self::seal) gives it up.
///
/// # Crash
/// A survivor frees the memory; the name can be used again.
#[derive(Debug)]
pub struct UnsealedObject<'s> {
    /// Has no named object any more after the seal.
    leased: Leased<'s>,
}

impl<'s> UnsealedObject<'s> {
    pub(super) fn new(leased: Leased<'s>) -> Self {
        Self { leased }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.leased.bytes
    }

    /// Returns whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of chunks: all but the last have the size of a slice.
    pub fn chunks(&self) -> u64 {
        self.leased.chunks()
    }

    /// Returns the bytes of chunk `index`, which are zero at first, to be written in place.
    ///
    /// # Errors
    /// If the server with the chunk has died.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk_mut(&mut self, index: u64) -> Result<&mut [u8], PoolError> {
        assert!(index < self.chunks(), "the object has no chunk {index}");
        let (len, place) = self.leased.locate(index)?;
        let start = place.memory.address(place.at, len as u64);
        // The frame belongs to a slice of this allocation until `self` is dropped. Only this value
        // gives access to its bytes, because the object is not sealed. A `Reader` refuses the
        // address.
        // SAFETY: `self` is borrowed exclusively, so no other reference to these bytes exists. The
        // `View` keeps the mapping open for as long.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Copies `from` to the bytes from `byte` on.
    ///
    /// # Errors
    /// If the bytes are not inside the object, or a server with some of them has died. Some of the
    /// bytes may be written then.
    pub fn write(&mut self, byte: u64, from: &[u8]) -> Result<(), PoolError> {
        let parts: Vec<_> = self.leased.parts(byte, from.len() as u64)?.collect();
        for (index, within, of_all) in parts {
            self.chunk_mut(index)?[within].copy_from_slice(&from[of_all]);
        }
        Ok(())
    }

    /// Pins the object before it is sealed: see [`ObjectStore::pin`].
    pub fn pin(&self) {
        // No thread evicts an object that is not sealed.
        self.leased.manifest.pin(true, |_| true);
    }

    /// Seals the object: its bytes never change again, and every process can lease it. One
    /// compare-and-swap in shared memory.
    ///
    /// # Errors
    /// If a server with some of its bytes has died. The object is given up then.
    ///
    /// # Crash
    /// The object exists with all of its bytes, or is given up.
    pub fn seal(mut self) -> Result<SealedObject<'s>, PoolError> {
        self.leased.demand_memory()?;
        let leased = &self.leased;
        { leased.store.client() }.seal(leased.address, leased.manifest.at())?;
        let store = leased.store;
        let named = self.leased.named.take();
        let named = named.expect("the lease lives until it is dropped");
        Ok(SealedObject::new(Leased::new(store, named)?))
    }
}

impl Drop for UnsealedObject<'_> {
    fn drop(&mut self) {
        let Some(named) = self.leased.named.take() else {
            return;
        };
        if let Err(error) = named.unlink() {
            tracing::warn!(%error, "an object that was given up keeps its name");
        }
        let address = self.leased.address;
        if let Err(error) = self.leased.store.client().free_of_object(address) {
            tracing::warn!(%error, "the memory of an object that was given up is freed later");
        }
    }
}

/// A lease of a sealed object. As long as it lives, the bytes are neither freed nor changed.
///
/// # Crash
/// A survivor gives up the lease.
#[derive(Debug)]
pub struct SealedObject<'s> {
    leased: Leased<'s>,
}

impl<'s> SealedObject<'s> {
    pub(super) fn new(leased: Leased<'s>) -> Self {
        Self { leased }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.leased.bytes
    }

    /// Returns whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes in place, one chunk after the other: all but the last have the size of a
    /// slice. A chunk is an error if its server has died; bytes that were returned before stay
    /// valid.
    pub fn chunks(&self) -> impl Iterator<Item = Result<&[u8], PoolError>> {
        (0..self.leased.chunks()).map(|index| self.chunk(index))
    }

    /// Returns the bytes of chunk `index` in place.
    ///
    /// # Errors
    /// If the server with the chunk has died.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, index: u64) -> Result<&[u8], PoolError> {
        assert!(
            index < self.leased.chunks(),
            "the object has no chunk {index}"
        );
        let (len, place) = self.leased.locate(index)?;
        let start = place.memory.address(place.at, len as u64);
        // The frame belongs to a slice of the sealed object, which is freed only when the object is
        // destroyed. Its creator lost its access by the seal, which this thread has seen by
        // Acquire. A `Reader` refuses the address.
        // SAFETY: the bytes are not written while the lease lives. The `View` keeps the mapping
        // open until then, also if the server dies.
        Ok(unsafe { core::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// Returns all bytes in place, if they are in one chunk.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub fn as_slice(&self) -> Result<Option<&[u8]>, PoolError> {
        match self.leased.chunks() {
            0 => Ok(Some(&[])),
            1 => self.chunk(0).map(Some),
            _ => Ok(None),
        }
    }

    /// Copies the bytes from `byte` on into `into`.
    ///
    /// # Errors
    /// If the bytes are not inside the object, or a server with some of them has died.
    pub fn read(&self, byte: u64, into: &mut [u8]) -> Result<(), PoolError> {
        for (index, within, of_all) in self.leased.parts(byte, into.len() as u64)? {
            into[of_all].copy_from_slice(&self.chunk(index)?[within]);
        }
        Ok(())
    }
}
