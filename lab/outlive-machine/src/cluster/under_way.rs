//! What messages carry while they are under way.

use crate::engine::prefetch;

/// Where that of a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload(u32);

impl Payload {
    /// A message that carries nothing.
    pub const NONE: Payload = Payload(u32::MAX);
}

/// What all messages of a sort carry. Places are used again, so that in the long run nothing is allocated.
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

    /// What a message carried that is taken in; its place is free again.
    ///
    /// # Panics
    ///
    /// If it carries nothing.
    pub fn take(&mut self, payload: Payload) -> T {
        assert_ne!(payload, Payload::NONE, "a message that carries nothing");
        self.free.push(payload.0);
        self.items[payload.0 as usize].clone()
    }

    /// What a message carried will be taken soon.
    pub fn look_ahead(&self, payload: Payload) {
        if let Some(item) = self.items.get(payload.0 as usize) {
            prefetch(item);
        }
    }

    /// How many messages that carry something are under way.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}
