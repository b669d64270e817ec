//! The errors of named objects.

use crate::heap::buddy::{AllocateError, FreeError};
use crate::membership::InstanceId;
use crate::recovery::RecoverError;
use crate::structures::{CreateError, OpenError};
use crate::sync::BarrierError;
use outlive_memory::Offset;

/// The largest size of a name in bytes.
pub(super) const MOST_NAME: usize = 255;

/// The reason why a named object could not be opened, created, renamed or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The name is empty, or longer than 255 bytes.
    #[error("{name:?} cannot be the name of an object; a name has 1 to {MOST_NAME} bytes")]
    Name {
        /// The name.
        name: String,
    },
    /// No object has that name.
    #[error("the object `{name}` does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// There is an object of that name.
    #[error("the object `{name}` already exists; open it, or remove it first")]
    Exists {
        /// The name.
        name: String,
    },
    /// The object is of another type.
    #[error(
        "the object `{name}` is of the type \"{found}\", not \"{wanted}\"; open it as that, or use \
         another name"
    )]
    Mismatch {
        /// The name.
        name: String,
        /// Its type.
        found: String,
        /// The type that was wanted.
        wanted: String,
    },
    /// The object is in use.
    #[error(
        "the object `{name}` is in use by the members {users:?}; drop your own handles and wait for \
         the others, or unlink it: the last user then destroys it"
    )]
    InUse {
        /// The name.
        name: String,
        /// The ids of the members that use it.
        users: Vec<InstanceId>,
    },
    /// Another handle uses the client.
    #[error(
        "the client `{name}` is in use by {by}; it has one user at a time: drop that handle, end \
         that process, or use a client of another name"
    )]
    ClientInUse {
        /// The name.
        name: String,
        /// The description of the user.
        by: String,
        /// The ids of the members that have it open.
        users: Vec<InstanceId>,
    },
    /// The directory, a lease or an object is damaged.
    #[error("the named objects are damaged at {at}: {what}; copy what you need into a new pod")]
    Damaged {
        /// The place.
        at: Offset,
        /// The damage.
        what: &'static str,
    },
    /// The contents could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The contents could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The barrier could not be created or opened.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// A dead member could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// There is no memory.
    #[error(transparent)]
    Heap(#[from] AllocateError),
    /// A block could not be freed.
    #[error(transparent)]
    Free(#[from] FreeError),
}

/// Returns an error if `name` cannot be the name of an object.
pub(super) fn demand_name(name: &str) -> Result<(), ObjectError> {
    match name.len() {
        1..=MOST_NAME => Ok(()),
        _ => Err(ObjectError::Name { name: name.into() }),
    }
}
