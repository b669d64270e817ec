//! Ocean: layers of water that the wind drives and that rub against one another, by a red-black solver on square grids.
//!
//! As its model, it has square partitions of the grids, one a thread, sweeps over red and black cells with barriers between
//! them, a maximum of changes that is taken under a lock, and two ways to lay out grids: *contiguous*, each partition by
//! itself with copies of its neighbours' borders around it, and *non-contiguous*, one array for the whole grid, whose lines
//! partitions share. It leaves out the multigrid (there is one level) and most of the model's twenty-five grids (there are
//! three a layer), so it sweeps over fewer data.
//!
//! A step in time: what drives a layer (its stream function, the wind, and friction with the layers above and below), then
//! sweeps over each layer until no cell changes by more than the tolerance:
//! `(1 + 4a) psi - a (its four neighbours) = what drives it`. What a cell becomes does not depend on who computes it, so the
//! result is that of one thread to the last bit; and it solves the equation up to `4a` times the tolerance.
//!
//! Instructions, beyond accesses: 10 for a cell in a sweep (3 sums of neighbours, 2 products, 2 for its change, 3 for index and
//! loop), 8 for a cell of what drives a layer, 2 for a word of a border. All else is in registers: there are no private accesses.

use std::iter;
use std::ops::Range;

use super::super::{
    Allocator, Array, BarrierId, Cpu, LockId, Origin, Pending, Scale, Word, Workload,
};

/// How grids lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partitions {
    /// Each partition by itself, with copies of its neighbours' borders.
    Contiguous,
    /// The whole grid by rows.
    NonContiguous,
}

/// Ocean's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ocean {
    /// How grids lie in memory.
    pub partitions: Partitions,
    /// Cells of a side, without the coast around them.
    pub side: usize,
    /// Layers of water.
    pub layers: usize,
    /// Steps in time.
    pub steps: usize,
    /// How much a cell mixes with its neighbours in a step: the `a` of the equation.
    pub mixing: f64,
    /// Sweeps end when no cell changes more.
    pub tolerance: f64,
}

/// How much layers rub against one another.
const FRICTION: f64 = 0.1;

/// Cells whose loads are under way together.
const TOGETHER: usize = 32;

impl Ocean {
    /// The parameters at a scale. At full scale it is the grid of the original's medium input, for so many steps as make some
    /// 6.4 thousand million instructions.
    pub fn at(partitions: Partitions, scale: Scale) -> Self {
        let (side, layers, steps) = match scale {
            Scale::Test => (64, 2, 1),
            Scale::Study => (512, 2, 1),
            Scale::Tenfold => (512, 2, 10),
            Scale::Full => (1024, 4, 10),
        };
        Self {
            partitions,
            side,
            layers,
            steps,
            mixing: 1.0,
            tolerance: 1e-2,
        }
    }

    /// The workload.
    ///
    /// # Panics
    ///
    /// If the grid has fewer rows or columns than partitions.
    pub fn workload(self, threads: usize) -> Workload {
        let shape = Shape::new(self.side, threads);
        let mut memory = Allocator::new();
        let grid = |memory: &mut Allocator, start: &dyn Fn(usize, usize) -> f64| {
            Grid::new(memory, self.partitions, &shape, start)
        };
        let mut layers = Vec::new();
        for layer in 0..self.layers {
            layers.push(Layer {
                psi: grid(&mut memory, &|_, _| 0.0),
                drive: grid(&mut memory, &|_, _| 0.0),
                wind: grid(&mut memory, &|row, column| self.wind(layer, row, column)),
            });
        }
        let program = Program {
            barrier: memory.barrier(threads),
            lock: memory.lock(),
            change: memory.spread(3),
            sweeps: memory.array(1),
            ocean: self,
            shape,
            layers,
        };
        let (name, stores, shared_stores) = match self.partitions {
            Partitions::Contiguous => ("ocean-cp", 0.17, 0.23),
            Partitions::NonContiguous => ("ocean-ncp", 0.16, 0.21),
        };
        let origin = Origin {
            program: "SPLASH-2 ocean",
            stores: Some(stores),
            shared_stores: Some(shared_stores),
            source: "recorded: small input, 4 threads",
        };
        let checked = program.clone();
        Workload::new(name, threads, memory, origin, move |cpu| program.run(cpu))
            .with_check(move |memory| checked.check(memory))
    }

    /// The wind over a layer: two gyres on the top, nothing below.
    fn wind(&self, layer: usize, row: usize, column: usize) -> f64 {
        if layer > 0 {
            return 0.0;
        }
        let across = row as f64 / (self.side + 1) as f64;
        let along = column as f64 / (self.side + 1) as f64;
        // Polynomials, not sines: those differ between libraries.
        let gyres = across * (1.0 - across) * (0.5 - across) * 20.0;
        gyres * (1.0 - along) + 0.1
    }

    /// What drives a cell.
    fn drive(psi: f64, wind: f64, above: Option<f64>, below: Option<f64>) -> f64 {
        let rub = |other: Option<f64>| other.map_or(0.0, |other| FRICTION * (other - psi));
        psi + wind + rub(above) + rub(below)
    }

    /// What a cell becomes in a sweep.
    fn relax(&self, drive: f64, [north, south, west, east]: [f64; 4]) -> f64 {
        (drive + self.mixing * ((north + south) + (west + east))) / (1.0 + 4.0 * self.mixing)
    }

    /// The same by one thread, on plain memory: the stream functions and how many sweeps there were.
    fn plain(&self) -> (Vec<Vec<f64>>, u64) {
        let (side, row) = (self.side, self.side + 2);
        let inner = || (1..=side).flat_map(move |i| (1..=side).map(move |j| (i, j)));
        let mut psi = vec![vec![0.0; row * row]; self.layers];
        let mut sweeps = 0;
        for _ in 0..self.steps {
            let old = psi.clone();
            for layer in 0..self.layers {
                let mut drive = vec![0.0; row * row];
                for (i, j) in inner() {
                    let at = |layer: usize| old.get(layer).map(|psi| psi[i * row + j]);
                    let above = layer.checked_sub(1).and_then(at);
                    let wind = self.wind(layer, i, j);
                    drive[i * row + j] =
                        Self::drive(old[layer][i * row + j], wind, above, at(layer + 1));
                }
                let psi = &mut psi[layer];
                loop {
                    let mut change = 0.0f64;
                    for colour in 0..2 {
                        for (i, j) in inner().filter(|(i, j)| (i + j) % 2 == colour) {
                            let at = i * row + j;
                            let around = [psi[at - row], psi[at + row], psi[at - 1], psi[at + 1]];
                            let new = self.relax(drive[at], around);
                            change = change.max((new - psi[at]).abs());
                            psi[at] = new;
                        }
                    }
                    sweeps += 1;
                    if change <= self.tolerance {
                        break;
                    }
                }
            }
        }
        (psi, sweeps)
    }
}

/// How a grid is cut into partitions.
#[derive(Clone, Debug)]
struct Shape {
    side: usize,
    /// Partitions from north to south, and from west to east.
    high: usize,
    wide: usize,
}

impl Shape {
    fn new(side: usize, threads: usize) -> Self {
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

    fn threads(&self) -> usize {
        self.high * self.wide
    }

    /// The rows of a thread's partition; the first of the grid is 1.
    fn rows(&self, thread: usize) -> Range<usize> {
        Self::part(self.side, self.high, thread / self.wide)
    }

    fn columns(&self, thread: usize) -> Range<usize> {
        Self::part(self.side, self.wide, thread % self.wide)
    }

    fn part(side: usize, parts: usize, part: usize) -> Range<usize> {
        side * part / parts + 1..side * (part + 1) / parts + 1
    }

    /// Whose partition a cell is in.
    fn owner(&self, row: usize, column: usize) -> usize {
        let find = |parts: usize, at: usize| {
            let part = (at - 1) * parts / self.side;
            // Rounded down: it may be the next.
            part + usize::from(at > self.side * (part + 1) / parts)
        };
        find(self.high, row) * self.wide + find(self.wide, column)
    }
}

/// A grid in shared memory, with a coast of zeros.
#[derive(Clone, Debug)]
struct Grid {
    /// Of each partition, or of the whole: where it begins, its first row and column (borders or coast), and words a row.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    words: Array<f64>,
    first_row: usize,
    first_column: usize,
    stride: usize,
}

impl Part {
    /// In a part by itself the border on the west has a line to itself, and so its own cells begin with a line.
    const WEST: usize = Word::PER_LINE as usize - 1;

    fn word(&self, row: usize, column: usize) -> Word {
        let (row, column) = (row - self.first_row, column - self.first_column);
        self.words.word((row * self.stride + column) as u64)
    }
}

impl Grid {
    fn new(
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

    /// The part in which a thread works.
    fn of(&self, thread: usize) -> &Part {
        self.parts.get(thread).unwrap_or(&self.parts[0])
    }
}

#[derive(Clone, Debug)]
struct Layer {
    psi: Grid,
    drive: Grid,
    wind: Grid,
}

#[derive(Clone, Debug)]
struct Program {
    ocean: Ocean,
    shape: Shape,
    layers: Vec<Layer>,
    barrier: BarrierId,
    lock: LockId,
    /// The greatest change in a sweep, of this sweep, the next and the last.
    change: Array<f64>,
    sweeps: Array<u64>,
}

impl Program {
    fn run(&self, cpu: &mut Cpu<'_>) {
        let mut sweeps = 0;
        for _ in 0..self.ocean.steps {
            self.drive(cpu);
            cpu.barrier(self.barrier);
            for layer in &self.layers {
                while {
                    let change = self.sweep(cpu, layer);
                    self.greatest(cpu, sweeps, change) > self.ocean.tolerance
                } {
                    sweeps += 1;
                }
                sweeps += 1;
            }
        }
        if cpu.thread() == 0 {
            self.sweeps.set(cpu, 0, sweeps);
        }
    }

    /// What drives each layer, in the thread's partition.
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

    /// A sweep over the thread's partition, with all others: the greatest change in it.
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
            cpu.barrier(self.barrier);
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

    /// The greatest of all threads' changes.
    fn greatest(&self, cpu: &mut Cpu<'_>, sweep: u64, own: f64) -> f64 {
        let [this, next] = [sweep % 3, (sweep + 1) % 3];
        cpu.lock(self.lock);
        if self.change.get(cpu, this) < own {
            self.change.set(cpu, this, own);
        }
        cpu.unlock(self.lock);
        if cpu.thread() == 0 {
            // All read it before the last barrier, two sweeps ago.
            self.change.set(cpu, next, 0.0);
        }
        cpu.barrier(self.barrier);
        self.change.get(cpu, this)
    }

    fn check(&self, memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
        let (plain, sweeps) = self.ocean.plain();
        let found = self.sweeps.at(memory, 0);
        if found != sweeps {
            return Err(format!("{found} sweeps instead of {sweeps}"));
        }
        let row_of_plain = self.ocean.side + 2;
        for (number, (layer, plain)) in self.layers.iter().zip(&plain).enumerate() {
            let psi = |row: usize, column: usize| {
                let owner = self.shape.owner(
                    row.clamp(1, self.ocean.side),
                    column.clamp(1, self.ocean.side),
                );
                f64::from_bits(memory(layer.psi.of(owner).word(row, column)))
            };
            for row in 1..=self.ocean.side {
                for column in 1..=self.ocean.side {
                    let found = psi(row, column);
                    let right = plain[row * row_of_plain + column];
                    if found.to_bits() != right.to_bits() {
                        return Err(format!(
                            "layer {number}, row {row}, column {column}: {found} instead of {right}"
                        ));
                    }
                    let part = layer.drive.of(self.shape.owner(row, column));
                    let drive = f64::from_bits(memory(part.word(row, column)));
                    let around = [
                        plain[(row - 1) * row_of_plain + column],
                        plain[(row + 1) * row_of_plain + column],
                        plain[row * row_of_plain + column - 1],
                        plain[row * row_of_plain + column + 1],
                    ];
                    let off = (self.ocean.relax(drive, around) - found).abs();
                    if off.is_nan() || off > 4.0 * self.ocean.mixing * self.ocean.tolerance {
                        return Err(format!(
                            "layer {number}, row {row}, column {column} is {off} off the equation's solution"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A cell whose loads are under way.
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

    /// Writes what it becomes: how much that is a change.
    #[inline]
    fn finish(self, cpu: &mut Cpu<'_>, ocean: &Ocean) -> f64 {
        let around = self.around.map(|pending| cpu.value(pending));
        let new = ocean.relax(cpu.value(self.drive), around);
        cpu.store_f64(self.word, new);
        (new - cpu.value(self.old)).abs()
    }
}
