//! The lookup of leased objects by name, and the removal of those whose creators died.

use super::manifest::Manifest;
use crate::coherent::Coherent;
use crate::error::PoolError;
use outlive::membership::Instance;
use outlive::memory::{Memory, Native};
use outlive::objects::{Named, ObjectError, Objects};

/// The result of the lookup of a name.
#[derive(Debug)]
pub enum Found<'h, M: Memory = Native> {
    /// A sealed object, leased.
    Sealed(Named<'h, Manifest<M>, M>),
    /// An object that its creator, the live process of this instance, has not sealed.
    Unsealed(Instance),
    /// No object.
    Nothing {
        /// Whether the lookup removed an object whose creator had died before sealing it.
        was_removed: bool,
    },
}

/// Leases the named object `name`, sealed or not; `None` if it does not exist.
pub fn open<'h, M: Memory>(
    objects: Objects<'h, M>,
    name: &str,
) -> Result<Option<Named<'h, Manifest<M>, M>>, PoolError> {
    match objects.open::<Manifest<M>>(name) {
        Ok(named) => Ok(Some(named)),
        Err(ObjectError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds the object `name`, and unlinks it if its creator died before sealing it.
///
/// # Errors
/// If the object is damaged, or there is no memory for a lease.
///
/// # Crash
/// A survivor gives up the lease.
pub fn find<'h, M: Memory>(
    objects: Objects<'h, M>,
    coherent: Coherent<M>,
    name: &str,
    is_gone: impl Fn(Instance) -> bool,
) -> Result<Found<'h, M>, PoolError> {
    let mut was_removed = false;
    loop {
        let Some(named) = open(objects, name)? else {
            return Ok(Found::Nothing { was_removed });
        };
        let manifest = *named.low_level();
        // The creator is checked before the seal: it may seal the object, and then die.
        let creator = manifest.creator().filter(|it| !is_gone(*it));
        if coherent.is_sealed(manifest.address()?) {
            return Ok(Found::Sealed(named));
        }
        match creator {
            Some(creator) => return Ok(Found::Unsealed(creator)),
            // Its memory belongs to the creator, and is freed by the creator's recovery.
            None => was_removed |= named.unlink()?,
        }
    }
}
