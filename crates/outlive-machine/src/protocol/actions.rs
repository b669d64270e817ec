//! What a controller wants done: a short list without allocation.

use super::ProtocolError;

/// A step of a controller asks for at most so much.
const MOST: usize = 8;

/// Actions in the order in which they are to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actions<A> {
    items: [Option<A>; MOST],
    len: u8,
}

impl<A: Copy> Actions<A> {
    pub(super) fn new() -> Actions<A> {
        Actions {
            items: [None; MOST],
            len: 0,
        }
    }

    pub(super) fn push(&mut self, action: A) -> Result<(), ProtocolError> {
        *self
            .items
            .get_mut(self.len as usize)
            .ok_or(ProtocolError::TooManyActions)? = Some(action);
        self.len += 1;
        Ok(())
    }

    /// The actions.
    pub fn iter(&self) -> impl Iterator<Item = &A> {
        self.items[..self.len as usize].iter().flatten()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<A: Copy> IntoIterator for Actions<A> {
    type Item = A;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<A>, MOST>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter().flatten()
    }
}
