//! Contents of lines that are under way.

use crate::line::Line;

/// Where the contents of a message stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload(u32);

impl Payload {
    /// A message without contents.
    pub const NONE: Payload = Payload(u32::MAX);
}

/// The contents of all messages under way. Places are used again, so that in the long run nothing is allocated.
#[derive(Clone, Debug, Default)]
pub(super) struct Payloads {
    lines: Vec<Line>,
    free: Vec<u32>,
}

impl Payloads {
    pub fn put(&mut self, line: Line) -> Payload {
        match self.free.pop() {
            Some(place) => {
                self.lines[place as usize] = line;
                Payload(place)
            }
            None => {
                self.lines.push(line);
                Payload((self.lines.len() - 1) as u32)
            }
        }
    }

    /// The contents of a message that is taken in; its place is free again.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn take(&mut self, payload: Payload) -> Line {
        assert_ne!(payload, Payload::NONE, "a message without contents");
        self.free.push(payload.0);
        self.lines[payload.0 as usize]
    }

    /// How many messages with contents are under way.
    pub fn under_way(&self) -> usize {
        self.lines.len() - self.free.len()
    }
}
