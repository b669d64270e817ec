//! The contents of messages while they are under way.

use crate::engine::prefetch;

/// The place of a message's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload(u32);

impl Payload {
    /// A message without contents.
    pub const NONE: Payload = Payload(u32::MAX);
}

/// The contents of all messages of a sort. Places are reused, so that in the long run nothing is
/// allocated.
#[derive(Clone, Debug)]
pub(super) struct UnderWay<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for UnderWay<T> {
    fn default() -> UnderWay<T> {
        UnderWay {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Clone> UnderWay<T> {
    pub fn put(&mut self, item: T) -> Payload {
        match self.free.pop() {
            Some(place) => {
                self.items[place as usize] = item;
                Payload(place)
            }
            None => {
                self.items.push(item);
                Payload((self.items.len() - 1) as u32)
            }
        }
    }

    /// Removes and returns the contents of a received message, and frees their place.
    ///
    /// # Panics
    ///
    /// If it has no contents.
    pub fn take(&mut self, payload: Payload) -> T {
        assert_ne!(payload, Payload::NONE, "the message carries no contents");
        self.free.push(payload.0);
        self.items[payload.0 as usize].clone()
    }

    /// Prefetches on the host the contents of a message.
    pub fn look_ahead(&self, payload: Payload) {
        if let Some(item) = self.items.get(payload.0 as usize) {
            prefetch(item);
        }
    }

    /// Returns the number of messages with contents that are under way.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}
