//! Ocean: layers of water that the wind drives and that rub against one another, computed by a
//! red-black solver on square grids.
//!
//! As its model, it has square partitions of the grids, one per thread, sweeps over red and black
//! cells with barriers between them, a maximum of changes that is updated under a lock, and two
//! layouts of grids: *contiguous*, each partition by itself with copies of its neighbours' borders
//! around it, and *non-contiguous*, one array for the whole grid, so that partitions share lines.
//! It leaves out the multigrid (there is one level) and most of the model's twenty-five grids
//! (there are three per layer), so it sweeps over fewer data.
//!
//! A step in time first computes the drive of each layer (its stream function, the wind, and
//! friction with the layers above and below). Then it sweeps over each layer until no cell changes
//! by more than the tolerance: `(1 + 4a) psi - a (its four neighbours) = drive`. A cell's new value
//! does not depend on the thread that computes it, so the result is that of one thread to the last
//! bit. It solves the equation up to `4a` times the tolerance.
//!
//! Instructions, beyond accesses: 10 for a cell in a sweep (3 sums of neighbours, 2 products, 2 for
//! its change, 3 for index and loop), 8 for a cell of the drive, 2 for a word of a border. All else
//! is in registers: there are no private accesses.

mod grid;
mod plain;
mod sweep;

use super::combining::Combining;
use grid::{Grid, Shape};
use outlive_machine::program::{Allocator, Origin, Scale, Workload};
use sweep::{Layer, Program};

/// The layout of grids in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partitions {
    /// Each partition is stored by itself, with copies of its neighbours' borders.
    Contiguous,
    /// The whole grid is stored by rows.
    NonContiguous,
}

/// Ocean's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ocean {
    /// The layout of grids in memory.
    pub partitions: Partitions,
    /// Cells along a side, without the coast around them.
    pub side: usize,
    /// Layers of water.
    pub layers: usize,
    /// Steps in time.
    pub steps: usize,
    /// The mixing of a cell with its neighbours in a step: the `a` of the equation.
    pub mixing: f64,
    /// Sweeps end when no cell changes by more than this.
    pub tolerance: f64,
}

/// The friction between two layers.
const FRICTION: f64 = 0.1;

/// The reason why the share of shared stores differs where partitions are not contiguous.
const SHARED_BORDERS: &str = "the share of shared stores in ours is 13.9%: only the borders of \
                              partitions are shared, and their share falls as the grid grows, and \
                              rises with the number of threads; with 4 threads and the input of \
                              tests it is 21.7%";

impl Ocean {
    /// Returns the parameters at a scale. At full scale, the grid is that of the original's medium
    /// input, and the number of steps makes about 6.4 thousand million instructions.
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

    /// Returns the workload.
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
            barrier: Combining::new(&mut memory, threads),
            lock: memory.lock(),
            change: memory.spread(3),
            sweeps: memory.array(1),
            ocean: self,
            shape,
            layers,
        };
        let (name, stores, shared_stores, differs) = match self.partitions {
            Partitions::Contiguous => ("ocean-cp", 0.17, 0.23, None),
            Partitions::NonContiguous => ("ocean-ncp", 0.16, 0.21, Some(SHARED_BORDERS)),
        };
        let origin = Origin {
            program: "SPLASH-2 ocean",
            stores: Some(stores),
            shared_stores: Some(shared_stores),
            source: "recorded: small input, 4 threads",
            differs,
        };
        let checked = program.clone();
        Workload::new(name, threads, memory, origin, move |cpu| program.run(cpu))
            .with_check(move |memory| checked.check(memory))
    }

    /// Returns the wind over a layer: two gyres on the top layer, nothing below.
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

    /// Returns the drive of a cell.
    fn drive(psi: f64, wind: f64, above: Option<f64>, below: Option<f64>) -> f64 {
        let rub = |other: Option<f64>| other.map_or(0.0, |other| FRICTION * (other - psi));
        psi + wind + rub(above) + rub(below)
    }

    /// Returns the new value of a cell in a sweep.
    fn relax(&self, drive: f64, [north, south, west, east]: [f64; 4]) -> f64 {
        (drive + self.mixing * ((north + south) + (west + east))) / (1.0 + 4.0 * self.mixing)
    }
}
