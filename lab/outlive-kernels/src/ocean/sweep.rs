//! The work of ocean's threads.

use super::super::combining::Combining;
use super::grid::{Grid, Part, Shape};
use super::{Ocean, Partitions};
use outlive_machine::program::{Array, Cpu, LockId, Pending, Word};

/// More sweeps than any layer needs: each leaves at most four fifths of the previous one's change.
const MOST_SWEEPS: u64 = 100;

/// Cells with loads in progress together.
const TOGETHER: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub psi: Grid,
    pub drive: Grid,
    pub wind: Grid,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub ocean: Ocean,
    pub shape: Shape,
    pub layers: Vec<Layer>,
    pub barrier: Combining,
    pub lock: LockId,
    /// The greatest changes in this sweep, the next and the last.
    pub change: Array<f64>,
    pub sweeps: Array<u64>,
}

impl Program {
    pub fn run(&self, cpu: &mut Cpu<'_>) {
        let mut sweeps = 0;
        for _ in 0..self.ocean.steps {
            self.drive(cpu);
            self.barrier.meet(cpu);
            for layer in &self.layers {
                sweeps += self.solve(cpu, layer, sweeps);
            }
        }
        if cpu.thread() == 0 {
            self.sweeps.set(cpu, 0, sweeps);
        }
    }

    /// Sweeps over a layer, after `before` other sweeps, until it settles. Returns how often.
    fn solve(&self, cpu: &mut Cpu<'_>, layer: &Layer, before: u64) -> u64 {
        for sweep in 0..MOST_SWEEPS {
            let change = self.sweep(cpu, layer);
            if self.greatest(cpu, before + sweep, change) <= self.ocean.tolerance {
                return sweep + 1;
            }
        }
        // The thread that was to clear older changes has died.
        panic!("a layer did not converge: it has changed in each of {MOST_SWEEPS} sweeps");
    }

    /// Computes the drive of each layer in the thread's partition.
    fn drive(&self, cpu: &mut Cpu<'_>) {
        let me = cpu.thread();
        for (number, layer) in self.layers.iter().enumerate() {
            let above = number
                .checked_sub(1)
                .map(|above| self.layers[above].psi.of(me));
            let below = self.layers.get(number + 1).map(|below| below.psi.of(me));
            let (psi, wind, drive) = (layer.psi.of(me), layer.wind.of(me), layer.drive.of(me));
            for row in self.shape.rows(me) {
                let columns: Vec<usize> = self.shape.columns(me).collect();
                for columns in columns.chunks(TOGETHER) {
                    let mut open = [None; TOGETHER];
                    for (open, &column) in open.iter_mut().zip(columns) {
                        let mut ask = |part: &Part| cpu.load_later_f64(part.word(row, column));
                        *open = Some((ask(psi), ask(wind), above.map(&mut ask), below.map(ask)));
                        cpu.compute(8);
                    }
                    for ((psi, wind, above, below), &column) in
                        open.into_iter().flatten().zip(columns)
                    {
                        let (psi, wind) = (cpu.value(psi), cpu.value(wind));
                        let above = above.map(|above| cpu.value(above));
                        let below = below.map(|below| cpu.value(below));
                        let value = Ocean::drive(psi, wind, above, below);
                        cpu.store_f64(drive.word(row, column), value);
                    }
                }
            }
        }
    }

    /// Sweeps over the thread's partition, as the other threads do. Returns the greatest change.
    fn sweep(&self, cpu: &mut Cpu<'_>, layer: &Layer) -> f64 {
        let mut change = 0.0f64;
        for colour in 0..2 {
            let me = cpu.thread();
            let (psi, drive) = (layer.psi.of(me), layer.drive.of(me));
            for row in self.shape.rows(me) {
                let columns = self.shape.columns(me);
                let first = columns.start + (row + columns.start + colour) % 2;
                let mut columns = (first..columns.end).step_by(2);
                loop {
                    let mut open: [Option<Cell>; TOGETHER] = [const { None }; TOGETHER];
                    for (open, column) in open.iter_mut().zip(&mut columns) {
                        *open = Some(Cell::ask(cpu, psi, drive, row, column));
                    }
                    if open[0].is_none() {
                        break;
                    }
                    for cell in open.into_iter().flatten() {
                        change = change.max(cell.finish(cpu, &self.ocean));
                    }
                }
            }
            self.barrier.meet(cpu);
            if self.ocean.partitions == Partitions::Contiguous {
                self.copy_borders(cpu, &layer.psi, colour);
            }
        }
        change
    }

    /// Copies the neighbours' cells of a colour that lie next to the thread's partition.
    fn copy_borders(&self, cpu: &mut Cpu<'_>, grid: &Grid, colour: usize) {
        let me = cpu.thread();
        let (rows, columns) = (self.shape.rows(me), self.shape.columns(me));
        let (north, south) = (rows.start - 1, rows.end);
        let (west, east) = (columns.start - 1, columns.end);
        let lying = |row: usize| columns.clone().map(move |column| (row, column));
        let standing = |column: usize| rows.clone().map(move |row| (row, column));
        let all = lying(north)
            .chain(lying(south))
            .chain(standing(west))
            .chain(standing(east));
        let sea = 1..=self.shape.side;
        let mut cells = all.filter(|(row, column)| {
            sea.contains(row) && sea.contains(column) && (row + column) % 2 == colour
        });
        loop {
            let mut open = [None; TOGETHER];
            for (open, (row, column)) in open.iter_mut().zip(&mut cells) {
                let theirs = grid.of(self.shape.owner(row, column)).word(row, column);
                *open = Some((grid.of(me).word(row, column), cpu.load_later(theirs)));
                cpu.compute(2);
            }
            if open[0].is_none() {
                break;
            }
            for (own, pending) in open.into_iter().flatten() {
                let value = cpu.value(pending);
                cpu.store(own, value);
            }
        }
    }

    /// Returns the greatest of all threads' changes.
    fn greatest(&self, cpu: &mut Cpu<'_>, sweep: u64, own: f64) -> f64 {
        let [this, next] = [sweep % 3, (sweep + 1) % 3];
        cpu.lock(self.lock);
        if self.change.get(cpu, this) < own {
            self.change.set(cpu, this, own);
        }
        cpu.unlock(self.lock);
        if cpu.thread() == 0 {
            // All threads read it before the last barrier, two sweeps ago.
            self.change.set(cpu, next, 0.0);
        }
        self.barrier.meet(cpu);
        self.change.get(cpu, this)
    }
}

/// A cell with loads in progress.
struct Cell {
    word: Word,
    old: Pending<f64>,
    drive: Pending<f64>,
    around: [Pending<f64>; 4],
}

impl Cell {
    #[inline]
    fn ask(cpu: &mut Cpu<'_>, psi: &Part, drive: &Part, row: usize, column: usize) -> Self {
        let around = [
            (row - 1, column),
            (row + 1, column),
            (row, column - 1),
            (row, column + 1),
        ];
        let around = around.map(|(row, column)| cpu.load_later_f64(psi.word(row, column)));
        let word = psi.word(row, column);
        let cell = Self {
            word,
            old: cpu.load_later_f64(word),
            drive: cpu.load_later_f64(drive.word(row, column)),
            around,
        };
        cpu.compute(10);
        cell
    }

    /// Writes the cell's new value. Returns the size of the change.
    #[inline]
    fn finish(self, cpu: &mut Cpu<'_>, ocean: &Ocean) -> f64 {
        let around = self.around.map(|pending| cpu.value(pending));
        let new = ocean.relax(cpu.value(self.drive), around);
        cpu.store_f64(self.word, new);
        (new - cpu.value(self.old)).abs()
    }
}
