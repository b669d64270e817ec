//! The addresses that a worker caches: hints where keys are.

/// Hints where keys are. Each key has one line, which a later key may overwrite.
#[derive(Debug)]
pub(super) struct AddressCache {
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    key: u64,
    slot: u32,
    /// The number of the table, plus 1.
    table: u32,
}

impl AddressCache {
    pub fn new(lines: usize) -> Self {
        Self {
            lines: vec![Line::default(); lines.max(1).next_power_of_two()],
        }
    }

    fn index(&self, table: u8, key: u64) -> usize {
        let hash = (key ^ u64::from(table) << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.lines.len() - 1)
    }

    pub fn get(&self, table: u8, key: u64) -> Option<u32> {
        let line = self.lines[self.index(table, key)];
        (line.key == key && line.table == u32::from(table) + 1).then_some(line.slot)
    }

    pub fn put(&mut self, table: u8, key: u64, slot: u32) {
        let index = self.index(table, key);
        self.lines[index] = Line {
            key,
            slot,
            table: u32::from(table) + 1,
        };
    }
}
