//! A uniform grid over the scene, and the walk of a ray through its cells.

use super::super::vector::Vector;
use super::shape::{Primitive, Ray};

/// The location and size of a grid's cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) low: Vector,
    /// The edges of a cell.
    pub(super) edges: Vector,
    /// Cells along each axis.
    pub(super) cells: [u64; 3],
}

impl Frame {
    /// Words in shared memory.
    pub(super) const WORDS: u64 = 9;
    /// The offset of the numbers of cells among them.
    pub(super) const CELLS: u64 = 6;

    pub(super) fn to_words(self) -> [u64; Self::WORDS as usize] {
        let [[a, b, c], [d, e, f]] = [self.low, self.edges].map(|v| v.map(f64::to_bits));
        let [x, y, z] = self.cells;
        [a, b, c, d, e, f, x, y, z]
    }

    pub(super) fn from_words(w: [u64; Self::WORDS as usize]) -> Self {
        Self {
            low: [w[0], w[1], w[2]].map(f64::from_bits),
            edges: [w[3], w[4], w[5]].map(f64::from_bits),
            cells: [w[6], w[7], w[8]],
        }
    }

    fn place(&self, axis: usize, at: f64) -> u64 {
        let cell = ((at - self.low[axis]) / self.edges[axis]).max(0.0) as u64;
        cell.min(self.cells[axis] - 1)
    }

    pub(super) fn index(&self, cell: [u64; 3]) -> u64 {
        (cell[2] * self.cells[1] + cell[1]) * self.cells[0] + cell[0]
    }
}

/// A grid: for each cell, the primitives that reach into it.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) frame: Frame,
    /// The first entry of each cell, and the number of its entries.
    pub(super) cells: Vec<(u32, u32)>,
    pub(super) entries: Vec<u32>,
}

impl Grid {
    /// Builds a grid of `side`³ cells around `primitives`.
    pub(super) fn around(primitives: &[Primitive], side: u64) -> Self {
        let mut low = [f64::INFINITY; 3];
        let mut high = [f64::NEG_INFINITY; 3];
        for [from, to] in primitives.iter().map(|one| one.form.bounds()) {
            for axis in 0..3 {
                low[axis] = low[axis].min(from[axis]);
                high[axis] = high[axis].max(to[axis]);
            }
        }
        // A small margin on all sides: a flat primitive gets some height, and one that touches the
        // hull is inside.
        let margin = 1e-3
            * (0..3)
                .map(|axis| high[axis] - low[axis])
                .fold(0.0, f64::max);
        let low = low.map(|at| at - margin);
        let edges = std::array::from_fn(|axis| (high[axis] + margin - low[axis]) / side as f64);
        let frame = Frame {
            low,
            edges,
            cells: [side; 3],
        };
        let mut lists = vec![Vec::new(); (side * side * side) as usize];
        for (number, primitive) in primitives.iter().enumerate() {
            let [from, to] = primitive.form.bounds();
            // Wider by far more than a walk's rounding, so that no ray slips between two cells.
            let first: [u64; 3] =
                std::array::from_fn(|axis| frame.place(axis, from[axis] - margin * 1e-3));
            let last: [u64; 3] =
                std::array::from_fn(|axis| frame.place(axis, to[axis] + margin * 1e-3));
            for z in first[2]..=last[2] {
                for y in first[1]..=last[1] {
                    for x in first[0]..=last[0] {
                        lists[frame.index([x, y, z]) as usize].push(number as u32);
                    }
                }
            }
        }
        let mut cells = Vec::with_capacity(lists.len());
        let mut entries = Vec::new();
        for list in lists {
            cells.push((entries.len() as u32, list.len() as u32));
            entries.extend(list);
        }
        Self {
            frame,
            cells,
            entries,
        }
    }
}

/// The position of a ray on its way through a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    frame: Frame,
    cell: [u64; 3],
    /// The distance along the ray at which it leaves the cell through each axis.
    exits: Vector,
    /// The additional distance to the exit of the next cell of each axis.
    strides: Vector,
    forward: [bool; 3],
}

impl Walk {
    /// Instructions of [`begin`](Self::begin), counted as those of a primitive's test.
    pub(super) const BEGIN: u32 = 60;
    /// Instructions of [`step`](Self::step), and of [`cell`](Self::cell) and [`exit`](Self::exit)
    /// with it.
    pub(super) const STEP: u32 = 12;

    /// Begins the walk of `ray`, unless it misses the grid.
    pub(super) fn begin(frame: Frame, ray: &Ray) -> Option<Self> {
        let mut enter = 0.0f64;
        let mut leave = f64::INFINITY;
        for axis in 0..3 {
            let high = frame.low[axis] + frame.edges[axis] * frame.cells[axis] as f64;
            if ray.toward[axis] == 0.0 {
                if ray.from[axis] < frame.low[axis] || ray.from[axis] > high {
                    return None;
                }
                continue;
            }
            let one = (frame.low[axis] - ray.from[axis]) / ray.toward[axis];
            let other = (high - ray.from[axis]) / ray.toward[axis];
            enter = enter.max(one.min(other));
            leave = leave.min(one.max(other));
        }
        if enter > leave {
            return None;
        }
        let start = ray.at(enter);
        let cell: [u64; 3] = std::array::from_fn(|axis| frame.place(axis, start[axis]));
        let forward = ray.toward.map(|part| part >= 0.0);
        let exits = std::array::from_fn(|axis| {
            if ray.toward[axis] == 0.0 {
                return f64::INFINITY;
            }
            let border = cell[axis] + u64::from(forward[axis]);
            (frame.low[axis] + frame.edges[axis] * border as f64 - ray.from[axis])
                / ray.toward[axis]
        });
        let strides = std::array::from_fn(|axis| frame.edges[axis] / ray.toward[axis].abs());
        Some(Self {
            frame,
            cell,
            exits,
            strides,
            forward,
        })
    }

    /// Returns the number of the cell that the ray is in.
    pub(super) fn cell(&self) -> u64 {
        self.frame.index(self.cell)
    }

    /// Returns the distance along the ray at which it leaves the cell.
    pub(super) fn exit(&self) -> f64 {
        self.exits[0].min(self.exits[1]).min(self.exits[2])
    }

    /// Goes to the next cell; returns false if it is outside a grid of `across` cells a side.
    pub(super) fn step(&mut self, across: u64) -> bool {
        let exit = self.exit();
        let axis = if self.exits[0] == exit {
            0
        } else if self.exits[1] == exit {
            1
        } else {
            2
        };
        self.exits[axis] += self.strides[axis];
        if self.forward[axis] {
            self.cell[axis] += 1;
            self.cell[axis] < across
        } else if self.cell[axis] == 0 {
            false
        } else {
            self.cell[axis] -= 1;
            true
        }
    }
}
