//! Barnes-Hut: bodies that attract one another, computed with a tree of cells.
//!
//! As in its model, in each step in time all threads insert their bodies into one tree, in which
//! each cell is guarded by one of many locks. They compute the centres of its cells, walk it for
//! each body, taking far cells as one, and move their bodies. A leaf has one body. Bodies are dealt
//! out in equal runs of an order in which neighbours are near (the model weighs them by their
//! work). There are no quadrupoles. Where the model waits for centres by spinning, subtrees are
//! dealt out to threads and a barrier follows.
//!
//! The tree does not depend on the order of insertions, and centres and pulls are summed in the
//! order of the parts of a cell. So the result is that of one thread to the last bit.
//!
//! Private accesses are those of the model, which keeps its working data in a structure of each
//! thread that its compiler cannot keep in registers. Visiting a cell or body: its position is read
//! (3), difference and square written (4). A node that pulls: difference, square, potential and
//! acceleration read (8), the last two written (4). A level of the walk: 6 words of a stack frame
//! written and read. Instructions beyond accesses: 10 for a visit, 14 for a pull (a root and a
//! division count as one each), 12 for a level of a walk or of an insertion, 20 to move a body.

mod plain;
mod program;
mod tree;
mod walk;

use super::bodies::galaxy;
use super::combining::Combining;
use outlive_machine::program::{Allocator, Origin, Scale, Workload};
use program::{NODE, Program};

/// Barnes-Hut's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Barnes {
    /// The number of bodies.
    pub bodies: usize,
    /// Steps in time.
    pub steps: usize,
    /// The length of a step.
    pub step: f64,
    /// A cell is taken as one if its side is less than this multiple of its distance.
    pub openness: f64,
    /// A length that is added to distances.
    pub softening: f64,
    /// The number of locks; each guards some of the cells.
    pub locks: u32,
    /// The seed of the bodies' positions.
    pub seed: u64,
}

impl Barnes {
    /// Returns the parameters at a scale.
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

    /// Returns the workload.
    ///
    /// # Panics
    ///
    /// If there are fewer than two bodies.
    pub fn workload(self, threads: usize) -> Workload {
        assert!(
            self.bodies >= 2,
            "a tree needs at least 2 bodies, not {}",
            self.bodies
        );
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
                "the share of shared stores in ours is 1.1%: it falls as the input grows; with 4 \
                 threads and the input of tests it is 2.1%",
            ),
        };
        Workload::new("barnes", threads, memory, origin, move |cpu| {
            program.run(cpu)
        })
        .with_check(move |memory| program.check(&start, memory))
    }
}
