//! The segments of servers that are mapped into this process.
//!
//! The mapping of a lost server is closed when no thread of this process can use it: the segment is
//! detached first, then a full fence, then a scan of the announcements of this process's readers. A
//! reader announces a slice, executes a full fence, and then looks the segment up; so either the
//! scan finds the announcement, or the reader finds that the segment is detached. Allocations and
//! recoveries use segments without announcements, and hold the lock `in_use` as readers. A thread
//! that views a leased object counts the view, executes a full fence, and then looks segments up;
//! the count takes the place of the announcement.
//!
//! All clients and servers of one opened pool share its mappings, so the scan covers the readers of
//! all of them. An instance that joins after the list was read finds the segment detached: it is
//! added to the list under the same lock, before it has a reader.

use super::Pool;
use crate::coherent::{Home, Homes, Phase, ServerEntry, ServerId};
use crate::error::PoolError;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use outlive::membership::Instance;
use outlive::memory::{Attached, Native, SegmentError, SegmentNumber, Segments};
use outlive::segment::{AreaKind, Segment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

#[derive(Debug)]
pub(super) struct Here {
    segments: Segments,
    mapped: Mutex<Mapped>,
    in_use: RwLock<()>,
    /// The instances of this process that may have readers.
    members: Mutex<Vec<Instance>>,
    /// The number of views of leased objects.
    views: AtomicUsize,
}

#[derive(Debug, Default)]
struct Mapped {
    /// The generations and mappings of attached segments, by number.
    attached: HashMap<u16, (u64, Segment)>,
    /// The mappings of segments that are detached, and that a reader may still use.
    detached: Vec<Segment>,
}

impl Here {
    pub fn new(first: Native) -> Self {
        Self {
            segments: Segments::new(first),
            mapped: Mutex::default(),
            in_use: RwLock::default(),
            members: Mutex::default(),
            views: AtomicUsize::new(0),
        }
    }

    /// Keeps all mappings for as long as the result lives.
    pub fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an instance of this process, before it has a reader.
    pub fn add(&self, member: Instance) {
        self.members().push(member);
    }

    /// Removes an instance of this process, which has no reader any more.
    pub fn remove(&self, member: Instance) {
        self.members().retain(|it| *it != member);
    }
}

fn number(segment: u16) -> Option<SegmentNumber> {
    SegmentNumber::new(segment).filter(|it| *it != SegmentNumber::FIRST)
}

/// Returns the region in a server's segment.
fn region(attached: &Attached, slice_bits: u32) -> Option<Home> {
    let at = attached.place(0, attached.bytes()).ok()?;
    let home = Home::new(attached.memory(), at, attached.bytes(), slice_bits);
    Some(home)
}

impl Homes<Native> for Pool {
    #[inline]
    fn home(&self, segment: u16, generation: u64) -> Result<Option<Home>, PoolError> {
        let Some(number) = number(segment) else {
            return Ok(None);
        };
        let bits = self.coherent().sizes().slice_bits;
        match self.inner.here.segments.get(number, generation) {
            Ok(attached) => Ok(region(attached, bits)),
            Err(SegmentError::Absent { .. }) => self.attach(number, generation),
            Err(_) => Ok(None),
        }
    }
}

impl Pool {
    /// Maps the segment of a live server.
    #[cold]
    fn attach(&self, number: SegmentNumber, generation: u64) -> Result<Option<Home>, PoolError> {
        let here = &self.inner.here;
        let (server, bits) = (ServerId(number.get()), self.coherent().sizes().slice_bits);
        let mut mapped = here.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have attached it.
        if let Ok(attached) = here.segments.get(number, generation) {
            return Ok(region(attached, bits));
        }
        let live = |entry: &ServerEntry| {
            entry.generation == generation && matches!(entry.phase, Phase::Live | Phase::Leaving)
        };
        let Some(entry) = self.coherent().server(server).filter(live) else {
            return Ok(None);
        };
        let opened = Segment::open(self.inner.files.path(server, generation));
        if !self.coherent().server(server).as_ref().is_some_and(live) {
            if let Ok(segment) = opened {
                close(segment);
            }
            return Ok(None);
        }
        let segment = opened.map_err(|source| PoolError::OpenSegment { server, source })?;
        let area = segment.area(AreaKind::Payload);
        let is_registered = segment.uuid().as_u128() as u64 == entry.key;
        let is_region = Home::<Native>::is_region(entry.bytes);
        let area = area.filter(|area| is_registered && is_region && area.size >= entry.bytes);
        let Some(area) = area else {
            let path = segment.path().into();
            close(segment);
            return Err(PoolError::ForeignSegment { server, path });
        };
        // An earlier generation is lost: this one is live.
        if let Some((earlier, segment)) = mapped.attached.remove(&number.get()) {
            here.segments.lose(number, earlier);
            mapped.detached.push(segment);
        }
        let memory = segment.memory();
        let attached =
            { &here.segments }.attach_part(number, generation, memory, area.offset, entry.bytes);
        if let Err(error) = attached {
            tracing::error!(%server, %error, "the segment of a live server is not attached");
            close(segment);
            return Ok(None);
        }
        let of_number = (generation, segment);
        mapped.attached.insert(number.get(), of_number);
        let attached = here.segments.get(number, generation);
        Ok(attached.ok().and_then(|it| region(it, bits)))
    }

    /// Detaches the segments of servers that are not live any more, and closes detached mappings if
    /// no reader of this process uses a slice.
    pub(super) fn close_lost(&self) {
        let here = &self.inner.here;
        let Ok(_unused) = here.in_use.try_write() else {
            return;
        };
        let mut mapped = here.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let Mapped { attached, detached } = &mut *mapped;
        // Servers that have died, and those that have left.
        attached.retain(|id, (generation, segment)| {
            let has_memory = self.coherent().has_memory(ServerId(*id), *generation);
            if !has_memory && let Some(number) = number(*id) {
                here.segments.lose(number, *generation);
                detached.push(*segment);
            }
            has_memory
        });
        if mapped.detached.is_empty() {
            return;
        }
        // SeqCst: see the head of the module.
        fence(Ordering::SeqCst);
        let members = here.members().clone();
        let has_guards = { members.into_iter() }.any(|member| self.coherent().has_guards(member));
        // Acquire: the reads of a view that has ended come before the closing.
        if !has_guards && here.views.load(Ordering::Acquire) == 0 {
            mapped.detached.drain(..).for_each(close);
        }
    }
}

/// A view of a leased object in this process. No mapping is closed as long as it lives.
#[derive(Debug)]
pub(crate) struct View<'p>(&'p Pool);

impl<'p> View<'p> {
    pub fn new(pool: &'p Pool) -> Self {
        pool.inner.here.views.fetch_add(1, Ordering::Relaxed);
        // SeqCst: see the head of the module.
        fence(Ordering::SeqCst);
        Self(pool)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // Release: the reads of the view come before it.
        self.0.inner.here.views.fetch_sub(1, Ordering::Release);
    }
}

fn close(segment: Segment) {
    if let Err(error) = segment.close() {
        tracing::warn!(%error, "a segment that is not used was not closed");
    }
}
