//! Labels of vertices: numbers that follow from the vertex number, or names that are stored.

use super::{GraphError, Vertex};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};

/// The labels of the vertices of a graph in its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// Consecutive numbers.
    Range {
        /// The label of the first vertex.
        first: u64,
    },
    /// Numbers with gaps between them, rising.
    Numbers(Vec<u32>),
    /// Names, in the order in which they first occurred.
    Names(Names),
}

/// The label of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// A number.
    Number(u64),
    /// A name, in UTF-8 without control characters.
    Name(&'a [u8]),
}

impl Labels {
    /// Returns the label of `vertex`.
    ///
    /// # Panics
    /// If the vertex does not exist.
    pub fn of(&self, vertex: Vertex) -> Label<'_> {
        match self {
            Self::Range { first } => Label::Number(first + u64::from(vertex)),
            Self::Numbers(numbers) => Label::Number(numbers[vertex as usize].into()),
            Self::Names(names) => Label::Name(names.get(vertex)),
        }
    }
}

impl Label<'_> {
    /// Writes the label as it was in the input.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write_to(self, mut out: impl Write) -> io::Result<()> {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Name(name) => out.write_all(name),
        }
    }
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => String::from_utf8_lossy(name).fmt(f),
        }
    }
}

/// Names, one after the other in one block of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Names {
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn get(&self, index: u32) -> &[u8] {
        let at = index as usize;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin as usize..self.ends[at] as usize]
    }

    fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len() as u64);
    }
}

/// Assigns numbers to names, equal names getting equal numbers. A table of numbers with open
/// addressing; only [`Names`] has the names.
pub(super) struct Numbering {
    names: Names,
    /// Number + 1, or 0 if free; a power of two of slots, less than half of them taken.
    slots: Vec<u32>,
    hasher: RandomState,
}

impl Numbering {
    pub fn new() -> Self {
        Self {
            names: Names::default(),
            slots: vec![0; 64],
            hasher: RandomState::new(),
        }
    }

    /// Returns the number of `name`, and assigns a new one if it has none.
    pub fn number(&mut self, name: &[u8]) -> Result<Vertex, GraphError> {
        let slot = self.slot_of(name);
        if let Some(number) = self.slots[slot].checked_sub(1) {
            return Ok(number);
        }
        let number = u32::try_from(self.names.len())
            .ok()
            .filter(|number| *number < u32::MAX)
            .ok_or(GraphError::TooManyVertices)?;
        self.names.push(name);
        self.slots[slot] = number + 1;
        if self.names.len() * 2 > self.slots.len() {
            self.grow();
        }
        Ok(number)
    }

    /// Returns the number of names.
    pub fn len(&self) -> u32 {
        self.names.len() as u32
    }

    pub fn into_names(self) -> Names {
        self.names
    }

    /// Returns the slot that has `name`, or is free for it.
    fn slot_of(&self, name: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(name) as usize & mask;
        while let Some(number) = self.slots[slot].checked_sub(1)
            && self.names.get(number) != name
        {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        let mask = self.slots.len() - 1;
        for number in 0..self.names.len() as u32 {
            let mut slot = self.hasher.hash_one(self.names.get(number)) as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_number_each() {
        let mut numbering = Numbering::new();
        for round in 0..2 {
            for number in 0..5000u32 {
                let name = format!("vertex {number}");
                assert_eq!(
                    numbering.number(name.as_bytes()).unwrap(),
                    number,
                    "{round}"
                );
            }
        }
        let names = numbering.into_names();
        assert_eq!((names.len(), names.get(0)), (5000, &b"vertex 0"[..]));
        assert_eq!(Labels::Names(names).of(4999).to_string(), "vertex 4999");
    }
}
