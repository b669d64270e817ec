//! The shared memory of all memory nodes: its contents and directory state.

use crate::engine::prefetch;
use crate::line::{Line, LineAddress};
use crate::program::{Image, Word};
use crate::protocol::{Directory, Record};

/// The directory state of a line.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Nothing is under way.
    Quiet(Record),
    /// The index of its directory in `busy`.
    Busy(u32),
}

// Millions of lines have one.
const _: () = assert!(size_of::<Entry>() == 12);

/// Contents and directory records, by line number. A line's memory node affects time only.
#[derive(Clone, Debug)]
pub(super) struct SharedMemory {
    lines: Vec<Line>,
    entries: Vec<Entry>,
    busy: Vec<Directory>,
    free: Vec<u32>,
}

impl SharedMemory {
    pub fn new(image: &Image) -> SharedMemory {
        let count = image.words.div_ceil(Word::PER_LINE) as usize;
        let mut lines = vec![[0; 8]; count];
        for (first, values) in &image.runs {
            for (offset, value) in values.iter().enumerate() {
                let word = first.offset(offset as u64);
                lines[word.line().0 as usize][word.place()] = *value;
            }
        }
        SharedMemory {
            lines,
            entries: vec![Entry::Quiet(Record::default()); count],
            busy: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the number of lines.
    pub fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Prefetches on the host a line's contents and directory.
    pub fn look_ahead(&self, line: LineAddress) {
        prefetch(&self.entries[line.0 as usize]);
        prefetch(&self.lines[line.0 as usize]);
    }

    pub fn line(&self, line: LineAddress) -> &Line {
        &self.lines[line.0 as usize]
    }

    pub fn line_mut(&mut self, line: LineAddress) -> &mut Line {
        &mut self.lines[line.0 as usize]
    }

    pub fn directory(&self, line: LineAddress) -> Directory {
        match self.entries[line.0 as usize] {
            Entry::Quiet(record) => Directory::from(record),
            Entry::Busy(place) => self.busy[place as usize],
        }
    }

    pub fn set_directory(&mut self, line: LineAddress, directory: Directory) {
        let entry = &mut self.entries[line.0 as usize];
        match (*entry, directory.record()) {
            (Entry::Quiet(_), Some(record)) => *entry = Entry::Quiet(record),
            (Entry::Quiet(_), None) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.busy.push(directory);
                    (self.busy.len() - 1) as u32
                });
                self.busy[place as usize] = directory;
                *entry = Entry::Busy(place);
            }
            (Entry::Busy(place), Some(record)) => {
                self.free.push(place);
                *entry = Entry::Quiet(record);
            }
            (Entry::Busy(place), None) => self.busy[place as usize] = directory,
        }
    }

    /// Returns the number of lines that have something under way.
    pub fn busy(&self) -> usize {
        self.busy.len() - self.free.len()
    }
}
