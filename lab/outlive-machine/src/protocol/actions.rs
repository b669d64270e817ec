//! The actions of a step: a short list without allocation.

use super::ProtocolError;

/// The maximum number of actions of a step.
const MOST: usize = 8;

/// Actions in the order in which they are to be performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Actions<A> {
    items: [Option<A>; MOST],
    len: u8,
}

impl<A: Copy> Actions<A> {
    pub fn new() -> Actions<A> {
        Actions {
            items: [None; MOST],
            len: 0,
        }
    }

    pub fn push(&mut self, action: A) -> Result<(), ProtocolError> {
        *self
            .items
            .get_mut(self.len as usize)
            .ok_or(ProtocolError::TooManyActions)? = Some(action);
        self.len += 1;
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &A> {
        self.items[..self.len as usize].iter().flatten()
    }
}
