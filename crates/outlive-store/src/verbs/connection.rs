//! The interface of a connection from a compute server to a memory server.

use super::batch::WORD;
use super::{Batch, RemoteOffset, Verb};
use core::fmt;

/// The number of a memory server in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory server {}", self.0)
    }
}

/// The memory that a server has registered for remote access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The remote key: identifies this registration, and no later one of the same server.
    pub key: u64,
    /// The size in bytes, a multiple of 8.
    pub bytes: u64,
}

impl Region {
    /// Returns an error if `verb` is not inside the region and aligned.
    ///
    /// # Errors
    /// [`VerbError::OutOfRegion`].
    pub fn check(&self, server: ServerId, verb: &Verb) -> Result<(), VerbError> {
        let bytes = verb.words() * WORD;
        let at = verb.at.get();
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        match is_inside && at.is_multiple_of(WORD) {
            true => Ok(()),
            false => Err(VerbError::OutOfRegion {
                server,
                at: verb.at,
                bytes,
                region: self.bytes,
            }),
        }
    }
}

/// The error with which a batch completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbError {
    /// A verb is outside the region or not aligned. No verb of the batch was executed.
    #[error(
        "{bytes} bytes at {at} are not 8-byte words inside the region of {server}, which has \
         {region} bytes"
    )]
    OutOfRegion {
        /// The server.
        server: ServerId,
        /// The start of the verb.
        at: RemoteOffset,
        /// The length of the verb in bytes.
        bytes: u64,
        /// The size of the region in bytes.
        region: u64,
    },
    /// The server died or left, and its memory is lost. No word that the batch read is valid.
    #[error("{server} died or left, and its memory is lost; use another replica")]
    ServerDied {
        /// The server.
        server: ServerId,
    },
    /// The server is live, but this process cannot open its memory. The log has the reason.
    #[error(
        "{server} is live, but this process cannot open its memory; see the log of the process"
    )]
    Unreachable {
        /// The server.
        server: ServerId,
    },
    /// The connection broke. Each verb of the batch was executed once or not at all, and a WRITE
    /// may have written only some of its words. The [module](super) says how the poster determines
    /// the outcome over a new connection.
    #[error("the connection to {server} broke; connect again and find out which verbs took effect")]
    Broken {
        /// The server.
        server: ServerId,
    },
    /// The memory server has revoked the rights of this compute server, which was declared dead.
    /// Each verb of the batch was executed before that or not at all, and a WRITE may have written
    /// only some of its words.
    #[error(
        "{server} has revoked the rights of this compute server, which was declared dead; join the \
         store again"
    )]
    Revoked {
        /// The server.
        server: ServerId,
    },
}

/// A batch that has completed, and its result.
#[derive(Debug)]
#[must_use = "the result says whether the verbs took effect"]
pub struct Completed {
    /// The batch. The words that it received are valid only if `result` is `Ok`.
    pub batch: Batch,
    /// `Ok` if all verbs took effect.
    pub result: Result<(), VerbError>,
}

impl Completed {
    /// Returns the batch if all its verbs took effect.
    ///
    /// # Errors
    /// The batch's error.
    pub fn finished(self) -> Result<Batch, VerbError> {
        self.result.map(|()| self.batch)
    }
}

/// A connection from a thread of a compute server to a memory server.
///
/// See the [module](super) for the order of verbs and for the state after an error. When its last
/// handle is dropped, each posted verb has taken effect or never does.
pub trait Connection: fmt::Debug {
    /// The completion of a batch. A dropped completion does not cancel the batch.
    type Completion: Future<Output = Completed> + Unpin + fmt::Debug;

    /// Whether a connection to a live server can break.
    const CAN_BREAK: bool = false;

    /// Returns the server.
    fn server(&self) -> ServerId;

    /// Returns whether the connection has broken. Then each batch completes with
    /// [`VerbError::Broken`], and only a new connection reaches the server.
    fn is_broken(&self) -> bool {
        false
    }

    /// Returns the region that offsets refer to.
    fn region(&self) -> Region;

    /// Posts `batch`: its verbs are under way when the call returns. Makes no system call.
    ///
    /// # Crash
    /// Each verb of a batch that has not completed takes effect once or not at all, in the order of
    /// the [rules](super), and not after the rights of the dead compute server are revoked. A WRITE
    /// may write only some of its words.
    fn post(&self, batch: Batch) -> Self::Completion;
}
