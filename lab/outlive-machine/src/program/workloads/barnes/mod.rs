//! Barnes-Hut: bodies that attract one another, by a tree of cells.
//!
//! As its model: in each step in time all threads put their bodies into one tree, each cell guarded by one of many locks;
//! find the centres of its cells; walk it for each body, taking far cells as one; and move their bodies. Bodies stand one in a
//! leaf and are dealt out in equal runs of an order in which neighbours are near (the model weighs them by their work); no
//! quadrupoles. Where the model waits for centres by spinning, subtrees are dealt out to threads and a barrier follows.
//!
//! The tree does not depend on who came first, and centres and pulls are summed in the order of the parts of a cell: so the
//! result is that of one thread to the last bit.
//!
//! Private accesses are those of the model, which keeps what it works on in a structure of each thread that its compiler
//! cannot keep in registers: a cell or body looked at: the body's place read (3), difference and square written (4); one that
//! pulls: difference, square, potential and acceleration read (8), the last two written (4); a level of the walk: 6 words of a
//! stack frame written and read. Instructions beyond accesses: 10 to look, 14 to pull (a root and a division count as one
//! each), 12 for a level of a walk or of an insertion, 20 to move a body.

mod plain;
mod program;
mod tree;
mod walk;

use super::super::{Allocator, Origin, Scale, Workload};
use super::bodies::galaxy;
use super::combining::Combining;
use program::{NODE, Program};

/// Barnes-Hut's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Barnes {
    /// How many bodies.
    pub bodies: usize,
    /// Steps in time.
    pub steps: usize,
    /// How long a step is.
    pub step: f64,
    /// A cell whose side is less than this part of its distance is taken as one.
    pub openness: f64,
    /// Added to distances.
    pub softening: f64,
    /// Locks, each for some of the cells.
    pub locks: u32,
    /// Of the bodies' places.
    pub seed: u64,
}

impl Barnes {
    /// The parameters at a scale.
    pub fn at(scale: Scale) -> Self {
        let (bodies, steps) = match scale {
            Scale::Test => (256, 2),
            Scale::Study => (4096, 1),
            Scale::Tenfold => (4096, 10),
            Scale::Full => (16_384, 40),
        };
        Self {
            bodies,
            steps,
            step: 0.025,
            openness: 1.0,
            softening: 0.05,
            locks: 2048,
            seed: 1,
        }
    }

    /// The workload.
    ///
    /// # Panics
    ///
    /// If there are fewer than two bodies.
    pub fn workload(self, threads: usize) -> Workload {
        assert!(self.bodies >= 2, "{} bodies make no tree", self.bodies);
        let start = galaxy(self.bodies, self.seed);
        let mut memory = Allocator::new();
        let mut words = Vec::with_capacity(self.bodies * NODE as usize);
        for body in &start {
            words.extend(body.place);
            words.push(body.mass);
            words.extend(body.speed);
            words.extend([0.0; 9]);
        }
        // Insertions into one part of space may come from few threads.
        let pool = 3 * (self.bodies / threads + 1) as u64 + 256;
        let program = Program {
            barnes: self,
            threads,
            bodies: memory.array_of(&words),
            cells: memory.array(pool * threads as u64 * NODE),
            pool,
            bounds: memory.array(6),
            bounds_lock: memory.lock(),
            first_lock: memory.locks(self.locks),
            barrier: Combining::new(&mut memory, threads),
        };
        let origin = Origin {
            program: "SPLASH-2 barnes",
            stores: Some(0.34),
            shared_stores: Some(0.02),
            source: "recorded: small input, 4 threads",
            differs: Some(
                "the share that is shared in ours is 1.1%: it falls as the input grows; with 4 threads and the input of tests it \
                 is 2.1%",
            ),
        };
        Workload::new("barnes", threads, memory, origin, move |cpu| {
            program.run(cpu)
        })
        .with_check(move |memory| program.check(&start, memory))
    }
}
