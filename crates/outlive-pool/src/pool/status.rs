//! The state of a pool at one time.

use super::Pool;
use crate::coherent::{Census, Homes, Phase, ServerEntry, ServerId};
use crate::error::PoolError;
use crate::layout::{Owner, Sizes};

/// A server of a pool at one time.
#[derive(Clone, Copy, Debug)]
pub struct ServerStatus {
    /// The entry of the server.
    pub entry: ServerEntry,
    /// The number of slices that the map places on this generation of the server.
    pub slices: u64,
    /// The number of slices for which the server has memory; `None` if its segment cannot be read.
    pub frames: Option<u64>,
}

/// The state of a pool at one time.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The numbers and sizes that the pool was created with.
    pub sizes: Sizes,
    /// The servers that exist or have died.
    pub servers: Vec<ServerStatus>,
    /// The number of allocations that belong to a client.
    pub owned: u64,
    /// The number of allocations that were kept.
    pub kept: u64,
    /// The number of allocations that sealed objects have.
    pub objects: u64,
    /// The number of slices that are allocated.
    pub slices: u64,
    /// The number of those whose server has died and that have no live replica.
    pub lost: u64,
    /// The number of replicas that are lost and can be [rebuilt](crate::Client::rebuild).
    pub degraded: u64,
}

impl Pool {
    /// Checks the tables, and the fine maps of live servers. While clients allocate and free, it
    /// reports contradictions that do not exist.
    ///
    /// # Errors
    /// Returns all contradictions.
    pub fn check(&self) -> Result<Census, Vec<String>> {
        let _held = self.inner.here.hold();
        self.coherent().check(self)
    }

    /// Requests that `server` lends `shared` bytes, rounded up to whole slices. The process of the
    /// server takes the [request](crate::Server::requested).
    ///
    /// # Errors
    /// If the server is not live.
    pub fn request_resize(&self, server: ServerId, shared: u64) -> Result<(), PoolError> {
        let coherent = self.coherent();
        let frames = shared.div_ceil(coherent.sizes().slice_bytes());
        coherent.request_frames(&self.live(server)?, frames);
        Ok(())
    }

    /// Returns whether `server` has not taken the last request yet.
    ///
    /// # Errors
    /// If the server is not live.
    pub fn has_request(&self, server: ServerId) -> Result<bool, PoolError> {
        Ok({ self.coherent() }.has_request(&self.live(server)?))
    }

    pub(super) fn live(&self, server: ServerId) -> Result<ServerEntry, PoolError> {
        let entry = { self.coherent() }.server(server);
        let phase = entry.map_or(Phase::Free, |it| it.phase);
        { entry.filter(|_| phase == Phase::Live) }.ok_or(PoolError::NotLive { server, phase })
    }

    /// Returns the state as it is now. It may be inconsistent while clients allocate and free.
    pub fn status(&self) -> PoolStatus {
        let coherent = self.coherent();
        let sizes = coherent.sizes();
        let is_writable = !self.pod().segment().is_read_only();
        let mut status = PoolStatus {
            sizes,
            servers: Vec::new(),
            owned: 0,
            kept: 0,
            objects: 0,
            slices: 0,
            lost: 0,
            degraded: 0,
        };
        let _held = self.inner.here.hold();
        for entry in coherent.servers() {
            // An observer does not map the segments of servers.
            let is_readable = is_writable && entry.phase == Phase::Live;
            let home = is_readable.then(|| self.home(entry.id.0, entry.generation));
            let home = home.and_then(|home| home.ok().flatten());
            status.servers.push(ServerStatus {
                entry,
                slices: 0,
                frames: home.map(|home| home.shared()),
            });
        }
        for slice in 0..sizes.slices {
            match coherent.owner(slice) {
                Owner::Free => continue,
                Owner::Instance(_) => status.owned += 1,
                Owner::Kept(_) => status.kept += 1,
                Owner::Object(_) => status.objects += 1,
                Owner::PartOf(_) => {}
            }
            status.slices += 1;
            let word = coherent.map_word(slice);
            let server = status.servers.iter_mut().find(|it| {
                it.entry.id.0 == word.segment() && it.entry.generation == word.server_generation()
            });
            if let Some(server) = server {
                server.slices += 1;
                let is_dead = server.entry.phase == Phase::Dead;
                let is_degraded = is_dead && coherent.rebuildable(slice).is_some();
                status.lost += u64::from(is_dead && !is_degraded);
                status.degraded += u64::from(is_degraded);
            }
        }
        status
    }
}
