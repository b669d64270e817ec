//! Ocean's grids and their partitions.

use std::iter;
use std::ops::Range;

use super::Partitions;
use outlive_machine::program::{Allocator, Array, Word};

/// The partitions of a grid.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub side: usize,
    /// The number of partitions from north to south, and from west to east.
    high: usize,
    wide: usize,
}

impl Shape {
    pub fn new(side: usize, threads: usize) -> Self {
        let divides = |root: &usize| threads.is_multiple_of(*root);
        let high = (1..=threads)
            .take_while(|root| root * root <= threads)
            .filter(divides)
            .max();
        let high = high.unwrap_or(1);
        let wide = threads / high;
        assert!(
            threads > 0 && wide <= side,
            "a grid of {side} by {side} cells cannot be cut into {high} by {wide} partitions"
        );
        Self { side, high, wide }
    }

    pub fn threads(&self) -> usize {
        self.high * self.wide
    }

    /// Returns the rows of a thread's partition; the first row of the grid is 1.
    pub fn rows(&self, thread: usize) -> Range<usize> {
        Self::part(self.side, self.high, thread / self.wide)
    }

    pub fn columns(&self, thread: usize) -> Range<usize> {
        Self::part(self.side, self.wide, thread % self.wide)
    }

    fn part(side: usize, parts: usize, part: usize) -> Range<usize> {
        side * part / parts + 1..side * (part + 1) / parts + 1
    }

    /// Returns the owner of the partition that contains a cell.
    pub fn owner(&self, row: usize, column: usize) -> usize {
        let find = |parts: usize, at: usize| {
            let part = (at - 1) * parts / self.side;
            // Rounded down: it may be the next.
            part + usize::from(at > self.side * (part + 1) / parts)
        };
        find(self.high, row) * self.wide + find(self.wide, column)
    }
}

/// A grid in shared memory, with a coast of zeros around it.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// One part for each partition, or one for the whole grid. Its first row and column are borders
    /// or coast.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
pub(super) struct Part {
    words: Array<f64>,
    first_row: usize,
    first_column: usize,
    stride: usize,
}

impl Part {
    /// In a part of a single partition, the western border has a line to itself, so the partition's
    /// own cells begin with a line.
    const WEST: usize = Word::PER_LINE as usize - 1;

    pub fn word(&self, row: usize, column: usize) -> Word {
        let (row, column) = (row - self.first_row, column - self.first_column);
        self.words.word((row * self.stride + column) as u64)
    }
}

impl Grid {
    pub fn new(
        memory: &mut Allocator,
        partitions: Partitions,
        shape: &Shape,
        start: &dyn Fn(usize, usize) -> f64,
    ) -> Self {
        let coast = shape.side + 1;
        let value = |row: usize, column: usize| {
            let sea = (1..coast).contains(&row) && (1..coast).contains(&column);
            if sea { start(row, column) } else { 0.0 }
        };
        let mut part = |rows: Range<usize>, columns: Range<usize>, west: usize, stride: usize| {
            let row = |row: usize| {
                let cells = columns.clone().map(move |column| value(row, column));
                let before = iter::repeat_n(0.0, west);
                before.chain(cells).chain(iter::repeat(0.0)).take(stride)
            };
            let values: Vec<f64> = rows.clone().flat_map(row).collect();
            let zero = values.iter().all(|value| *value == 0.0);
            let all = values.len() as u64;
            let words = if zero {
                memory.array(all)
            } else {
                memory.array_of(&values)
            };
            Part {
                words: words.slice(west as u64..all),
                first_row: rows.start,
                first_column: columns.start,
                stride,
            }
        };
        let parts = match partitions {
            Partitions::NonContiguous => vec![part(0..coast + 1, 0..coast + 1, 0, coast + 1)],
            Partitions::Contiguous => (0..shape.threads())
                .map(|thread| {
                    let (rows, columns) = (shape.rows(thread), shape.columns(thread));
                    let stride = columns.len().next_multiple_of(Word::PER_LINE as usize) + 16;
                    part(
                        rows.start - 1..rows.end + 1,
                        columns.start - 1..columns.end + 1,
                        Part::WEST,
                        stride,
                    )
                })
                .collect(),
        };
        Self { parts }
    }

    /// Returns the part in which a thread works.
    pub fn of(&self, thread: usize) -> &Part {
        self.parts.get(thread).unwrap_or(&self.parts[0])
    }
}
