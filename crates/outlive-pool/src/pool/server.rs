//! The process of a server.

use super::{Client, MoveBudget, Pool};
use crate::coherent::{Home, ServerEntry, ServerId};
use crate::error::PoolError;
use crate::layout::MapWord;
use core::time::Duration;
use outlive::membership::{GroupEvents, Instance};
use outlive::memory::{Native, Offset};
use outlive::segment::{AreaKind, Segment};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// The number of bytes of a segment that are reserved for the data outside its region.
const BESIDE_REGION: u64 = 64 << 10;

/// The maximum number of drains before a resize or a leave fails. One drain may not be enough: a
/// client may allocate on the server at the same time, and a reader may keep an old frame.
const MAX_DRAINS: u32 = 8;

/// The longest time for which a server that resizes or leaves waits for moves of other members.
const FOREIGN_MOVES: Duration = Duration::from_secs(10);

/// Moves the slices in the frames of a server from `first` on to other servers, until `act`
/// succeeds, at most [`MAX_DRAINS`] times. Waits each time up to the time-out of `budget` until
/// `is_vacated`: readers may use old frames, and other members may have to release them. As long as
/// another member moves a slice, a drain does not count, up to [`FOREIGN_MOVES`].
///
/// # Errors
/// The last error of `act`, or that of a drain.
fn vacate(
    client: &Client,
    (server, first): (ServerId, u64),
    budget: MoveBudget,
    is_vacated: impl Fn() -> bool,
    mut act: impl FnMut() -> Result<(), PoolError>,
) -> Result<(), PoolError> {
    let (begin, mut drains) = (Instant::now(), 0);
    loop {
        let drained = client.drain_from(server, first, budget)?;
        let waited = Instant::now();
        client.collect();
        while !is_vacated() && waited.elapsed() < budget.writer_timeout {
            std::thread::sleep(Duration::from_millis(1));
            client.collect();
        }
        let done = act();
        let is_foreign = |why: &PoolError| matches!(why, PoolError::BeingMoved { .. });
        let waits = drained.remaining.iter().any(|(_, why)| is_foreign(why));
        drains += u32::from(!waits || begin.elapsed() > FOREIGN_MOVES);
        if done.is_ok() || drains >= MAX_DRAINS {
            return done;
        }
    }
}

/// A server, which lends memory to a pool. When it is dropped without
/// [`leave`](Self::leave), its memory is lost. A process that only serves calls
/// [`Client::collect`] now and then: it recovers dead clients like any other member.
///
/// Other processes access the memory without processor time of the server, so a server that is
/// stopped delays no reader.
#[derive(Debug)]
pub struct Server {
    client: Client,
    entry: ServerEntry,
    home: Home,
    segment: Segment,
    has_left: bool,
}

impl Server {
    pub(super) fn join(pool: &Pool, shared: u64, private: u64) -> Result<Self, PoolError> {
        let sizes = pool.coherent().sizes();
        let frames = |bytes: u64| bytes.div_ceil(sizes.slice_bytes());
        let (shared, private) = (frames(shared).max(1), frames(private));
        let all = shared.saturating_add(private);
        if all > MapWord::FRAMES {
            return Err(PoolError::Impossible {
                what: "slices of memory in a server",
                asked: all,
                least: 1,
                most: MapWord::FRAMES,
            });
        }
        let client = Client::new(pool.join_process("pool server")?);
        let mut made = None;
        let create = |id, generation| -> Result<(u64, u64), PoolError> {
            let metadata = { pool.pod().segment().file() }.metadata();
            // The mode of the pool's file, or 0600 if that cannot be read.
            let mode = metadata.map_or(0o600, |it| it.permissions().mode() & 0o777);
            let bytes = Home::<Native>::bytes_for(all, sizes.slice_bits);
            let segment = Segment::builder()
                .size(bytes.saturating_add(BESIDE_REGION).next_multiple_of(4096))
                .mode(mode)
                .area(AreaKind::Payload, bytes)
                .create(pool.inner.files.path(id, generation))?;
            let area = { segment.area(AreaKind::Payload) }.expect("the area was requested");
            let home = Home::new(segment.memory(), area.offset, bytes, sizes.slice_bits);
            home.initialise(shared);
            made = Some((segment, home));
            Ok((bytes, segment.uuid().as_u128() as u64))
        };
        let files = &pool.inner.files;
        let entry = { pool.coherent() }.join_server(client.instance(), files, create)?;
        let (segment, home) = made.expect("the entry was created");
        Ok(Self {
            client: client.on(entry.id),
            entry,
            home,
            segment,
            has_left: false,
        })
    }

    /// Returns the number of the server.
    pub fn id(&self) -> ServerId {
        self.entry.id
    }

    /// Returns the instance of the server's process.
    pub fn instance(&self) -> Instance {
        self.client.instance()
    }

    /// Returns the number of bytes that the server lends to the pool.
    pub fn shared_bytes(&self) -> u64 {
        self.home.shared() << self.client.pool().coherent().sizes().slice_bits
    }

    /// Returns the private part of the server's segment: the memory, the first byte, and the number
    /// of bytes. The pool does not use it, and it is lost with the server.
    pub fn private(&self) -> (Native, Offset, u64) {
        self.home.private()
    }

    /// Moves the boundary between the shared and the private part: the server lends `shared` bytes,
    /// rounded up to whole slices, from now on. Clients and readers continue. The caller stops
    /// using [private](Self::private) memory before it lends that memory, and may use memory that
    /// is no longer lent.
    ///
    /// # Errors
    /// If the segment is smaller, or slices are in the part that would become private
    /// ([`StillHeld`](PoolError::StillHeld)). Nothing is changed then.
    ///
    /// # Crash
    /// The memory is lost with the server.
    pub fn resize(&mut self, shared: u64) -> Result<(), PoolError> {
        let coherent = self.client.pool().coherent();
        let frames = shared.div_ceil(coherent.sizes().slice_bytes());
        let most = self.home.frames();
        if frames > most {
            return Err(PoolError::Impossible {
                what: "shared slices in this server",
                asked: frames,
                least: 0,
                most,
            });
        }
        coherent.move_boundary(&self.entry, self.home, frames)
    }

    /// As [`resize`](Self::resize), and first moves the slices in the part that becomes private to
    /// other servers. Readers and writers continue.
    ///
    /// # Errors
    /// As `resize`: slices that could not be moved remain, and nothing is changed.
    ///
    /// # Crash
    /// The memory is lost with the server.
    pub fn resize_and_move(&mut self, shared: u64, budget: MoveBudget) -> Result<(), PoolError> {
        let slice_bytes = self.client.pool().coherent().sizes().slice_bytes();
        let first = shared.div_ceil(slice_bytes);
        match self.resize(shared) {
            Err(PoolError::StillHeld { .. }) => {}
            resized => return resized,
        }
        let (home, frames) = (self.home, self.home.frames());
        let client = self.client.clone();
        let is_vacated = || home.used_in(first..frames) == 0;
        vacate(&client, (self.id(), first), budget, is_vacated, || {
            self.resize(shared)
        })
    }

    /// Takes the last [request](Pool::request_resize) of another process to resize this server: the
    /// number of bytes. The server decides when it [follows](Self::resize) it.
    pub fn requested(&self) -> Option<u64> {
        let coherent = self.client.pool().coherent();
        let frames = coherent.take_request(&self.entry)?;
        Some(frames.saturating_mul(coherent.sizes().slice_bytes()))
    }

    /// Returns a client in this process, for which [`Placement::Here`](super::Placement::Here) is
    /// this server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the events of the pool's members from now on.
    pub fn events(&self) -> GroupEvents {
        self.client.events()
    }

    /// Moves the slices of this server to other servers, and leaves the pool. Readers and writers
    /// continue, and the server gets no new slices. Waits for readers that have guards on old
    /// frames, up to eight times the time-out of `budget`, and up to ten seconds for moves of other
    /// members.
    ///
    /// # Errors
    /// As [`leave`](Self::leave): slices that could not be moved remain, or readers use old
    /// frames.
    ///
    /// # Crash
    /// A survivor declares the server dead.
    pub fn move_and_leave(mut self, budget: MoveBudget) -> Result<(), (Box<Self>, PoolError)> {
        let (pool, owner) = (self.client.pool().clone(), self.instance());
        let (coherent, files) = (pool.coherent(), &pool.inner.files);
        coherent.begin_to_leave(&self.entry);
        let (entry, home) = (self.entry, self.home);
        let (is_vacated, leave) = (
            || home.used() == 0,
            || coherent.try_to_leave(&entry, owner, home, files),
        );
        match vacate(&self.client, (entry.id, 0), budget, is_vacated, leave) {
            Ok(()) => {
                self.has_left = true;
                Ok(())
            }
            Err(error) => {
                coherent.stay(&entry);
                Err((Box::new(self), error))
            }
        }
    }

    /// Leaves the pool.
    ///
    /// # Errors
    /// If the server still has slices, with the server, which stays live.
    ///
    /// # Crash
    /// A survivor declares the server dead.
    pub fn leave(mut self) -> Result<(), (Box<Self>, PoolError)> {
        let (pool, owner) = (self.client.pool().clone(), self.instance());
        let files = &pool.inner.files;
        let left = { pool.coherent() }.leave_server(&self.entry, owner, self.home, files);
        match left {
            Ok(()) => {
                self.has_left = true;
                Ok(())
            }
            Err(error) => Err((Box::new(self), error)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pool = self.client.pool();
        if !self.has_left {
            let files = &pool.inner.files;
            { pool.coherent() }.lose_server(&self.entry, self.instance(), files);
        }
        // Clients of this process have a mapping of their own.
        if let Err(error) = self.segment.close() {
            tracing::warn!(%error, "the segment of a server was not closed");
        }
    }
}
