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

use std::ops::Range;

use super::super::{
    Allocator, Array, BarrierId, Cpu, LockId, Origin, Pending, Scale, Word, Workload,
};
use super::bodies::{
    Body, Centre, Cube, DEPTH, Pull, Sum, Tree, Vector, advance, apart, bounds, galaxy,
};

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
            barrier: memory.barrier(threads),
        };
        let origin = Origin {
            program: "SPLASH-2 barnes",
            stores: Some(0.34),
            shared_stores: Some(0.02),
            source: "recorded: small input, 4 threads",
        };
        Workload::new("barnes", threads, memory, origin, move |cpu| {
            program.run(cpu)
        })
        .with_check(move |memory| program.check(&start, memory))
    }

    /// The same by one thread on plain memory: what the bodies felt last.
    fn plain(&self, bodies: &mut [Body]) -> Vec<Pull> {
        let mut pulls = vec![Pull::default(); bodies.len()];
        for _ in 0..self.steps {
            let (low, high) = bounds(bodies.iter().map(|body| body.place));
            let cube = Cube::around(low, high);
            let tree = Tree::of(bodies, cube);
            let pull = |body: usize| {
                let mut pull = Pull::default();
                tree.pull(
                    bodies,
                    body,
                    cube.side,
                    (self.openness, self.softening),
                    &mut pull,
                );
                pull
            };
            pulls = (0..bodies.len()).map(pull).collect();
            for (body, pull) in bodies.iter_mut().zip(&pulls) {
                (body.place, body.speed) =
                    advance(body.place, body.speed, pull.acceleration, self.step);
            }
        }
        pulls
    }
}

/// Words of a body, and of a cell.
///
/// A body: place (3), mass, speed (3), potential, acceleration (3). A cell: its parts (8), the centre's place (3), mass.
const NODE: u64 = 16;

/// Where the centre stands in a cell.
const CENTRE: u64 = 8;

/// What a part of a cell is: a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nothing,
    Body(u64),
    Cell(u64),
}

impl Part {
    const fn to_word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Body(number) => number << 2 | 1,
            Self::Cell(number) => number << 2 | 2,
        }
    }

    const fn from_word(word: u64) -> Self {
        match word & 3 {
            1 => Self::Body(word >> 2),
            2 => Self::Cell(word >> 2),
            _ => Self::Nothing,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Program {
    barnes: Barnes,
    threads: usize,
    bodies: Array<f64>,
    cells: Array<u64>,
    /// Cells that each thread can make in a step; the root is the first of the first.
    pool: u64,
    /// The box of all bodies: its lowest and its highest corner.
    bounds: Array<f64>,
    bounds_lock: LockId,
    first_lock: LockId,
    barrier: BarrierId,
}

const ROOT: u64 = 0;

/// Cells on this level and their subtrees are dealt out to threads to find their centres.
const DEALT: u32 = 3;

/// Where a thread's structure, and its stack, are in its own memory.
const LOCAL: u64 = 0;
const STACK: u64 = 1 << 20;

/// What is under way of a node that attracts.
type Asked = [Pending<f64>; 4];

impl Program {
    fn own(&self, thread: usize) -> Range<u64> {
        let part = |thread: usize| (self.barnes.bodies * thread / self.threads) as u64;
        part(thread)..part(thread + 1)
    }

    fn run(&self, cpu: &mut Cpu<'_>) {
        let own = self.own(cpu.thread());
        for _ in 0..self.barnes.steps {
            self.find_bounds(cpu, own.clone());
            let cube = self.cube(cpu);
            if cpu.thread() == 0 {
                self.clear(cpu, ROOT);
            }
            cpu.barrier(self.barrier);
            // The root is the first thread's first cell.
            let mut next = cpu.thread() as u64 * self.pool + u64::from(cpu.thread() == 0);
            for body in own.clone() {
                self.insert(cpu, body, cube, &mut next);
            }
            cpu.barrier(self.barrier);
            self.find_centres(cpu);
            for body in own.clone() {
                let place = self
                    .ask_centre(cpu, Part::Body(body))
                    .map(|value| cpu.value(value));
                let mut pull = Pull::default();
                self.walk(
                    cpu,
                    ROOT,
                    (body, [place[0], place[1], place[2]]),
                    cube.side,
                    0,
                    &mut pull,
                );
                for (word, value) in (8..).zip(pull.acceleration) {
                    self.bodies.set(cpu, body * NODE + word, value);
                }
                self.bodies.set(cpu, body * NODE + 7, pull.potential);
            }
            cpu.barrier(self.barrier);
            for body in own.clone() {
                self.advance(cpu, body);
            }
        }
    }

    /// Takes the thread's bodies into the box of all, and waits for the others.
    fn find_bounds(&self, cpu: &mut Cpu<'_>, own: Range<u64>) {
        if cpu.thread() == 0 {
            // The others have read the box of the last step: they have built a tree since.
            for word in 0..6 {
                let none = if word < 3 {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                };
                self.bounds.set(cpu, word, none);
            }
        }
        cpu.barrier(self.barrier);
        let places = own.map(|body| {
            let place = [0, 1, 2].map(|axis| self.bodies.ask(cpu, body * NODE + axis));
            cpu.compute(8);
            place.map(|axis| cpu.value(axis))
        });
        let (low, high) = bounds(places);
        cpu.lock(self.bounds_lock);
        for (axis, (low, high)) in (0..).zip(low.into_iter().zip(high)) {
            if self.bounds.get(cpu, axis) > low {
                self.bounds.set(cpu, axis, low);
            }
            if self.bounds.get(cpu, axis + 3) < high {
                self.bounds.set(cpu, axis + 3, high);
            }
        }
        cpu.unlock(self.bounds_lock);
        cpu.barrier(self.barrier);
    }

    fn cube(&self, cpu: &mut Cpu<'_>) -> Cube {
        let words = [0, 1, 2, 3, 4, 5].map(|word| self.bounds.ask(cpu, word));
        let [a, b, c, d, e, f] = words.map(|word| cpu.value(word));
        cpu.compute(12);
        Cube::around([a, b, c], [d, e, f])
    }

    fn part(&self, cell: u64, part: usize) -> Word {
        self.cells.word(cell * NODE + part as u64)
    }

    fn clear(&self, cpu: &mut Cpu<'_>, cell: u64) {
        for part in 0..8 {
            cpu.store(self.part(cell, part), Part::Nothing.to_word());
        }
    }

    fn lock(&self, cell: u64) -> LockId {
        LockId(self.first_lock.0 + (cell % u64::from(self.barnes.locks)) as u32)
    }

    fn place(&self, cpu: &mut Cpu<'_>, body: u64) -> Vector {
        [0, 1, 2]
            .map(|axis| self.bodies.ask(cpu, body * NODE + axis))
            .map(|axis| cpu.value(axis))
    }

    /// Puts a body into the tree. `next` is the next cell that the thread can make.
    fn insert(&self, cpu: &mut Cpu<'_>, body: u64, mut cube: Cube, next: &mut u64) {
        let place = self.place(cpu, body);
        let mut cell = ROOT;
        for _ in 0..DEPTH {
            let (part, inner) = cube.part(place);
            let word = self.part(cell, part);
            cpu.compute(12);
            // Who finds a cell finds it complete, also without the lock: it was filled before it was put there, and stores
            // are not reordered.
            let mut found = Part::from_word(cpu.load(word));
            if !matches!(found, Part::Cell(_)) {
                cpu.lock(self.lock(cell));
                found = Part::from_word(cpu.load(word));
                match found {
                    Part::Nothing => cpu.store(word, Part::Body(body).to_word()),
                    Part::Body(other) => {
                        let made = *next;
                        *next += 1;
                        assert!(
                            *next <= (cpu.thread() as u64 + 1) * self.pool,
                            "no more than {} cells",
                            self.pool
                        );
                        self.clear(cpu, made);
                        let (part_of_other, _) = inner.part(self.place(cpu, other));
                        cpu.store(self.part(made, part_of_other), Part::Body(other).to_word());
                        cpu.store(word, Part::Cell(made).to_word());
                        found = Part::Cell(made);
                    }
                    Part::Cell(_) => {}
                }
                cpu.unlock(self.lock(cell));
            }
            let Part::Cell(below) = found else { return };
            (cell, cube) = (below, inner);
        }
        panic!("body {body} is at the place of another");
    }

    /// All parts of a cell that are something.
    fn parts(&self, cpu: &mut Cpu<'_>, cell: u64) -> impl Iterator<Item = Part> + use<> {
        let words: [u64; 8] = std::array::from_fn(|part| self.part(cell, part).0);
        let parts = cpu.load_all(words.map(Word)).map(Part::from_word);
        parts.into_iter().filter(|part| *part != Part::Nothing)
    }

    fn find_centres(&self, cpu: &mut Cpu<'_>) {
        let mut dealt = 0;
        self.deal(cpu, ROOT, 0, &mut dealt);
        cpu.barrier(self.barrier);
        if cpu.thread() == 0 {
            self.find_centre(cpu, ROOT, Some(DEALT));
        }
        cpu.barrier(self.barrier);
    }

    /// Finds the centres of those subtrees that are the thread's turn.
    fn deal(&self, cpu: &mut Cpu<'_>, cell: u64, depth: u32, dealt: &mut usize) {
        if depth == DEALT {
            if *dealt % self.threads == cpu.thread() {
                self.find_centre(cpu, cell, None);
            }
            *dealt += 1;
            return;
        }
        for part in self.parts(cpu, cell) {
            if let Part::Cell(below) = part {
                self.deal(cpu, below, depth + 1, dealt);
            }
        }
    }

    /// Finds the centre of a cell, after those below it; so many levels down they are known already.
    fn find_centre(&self, cpu: &mut Cpu<'_>, cell: u64, known: Option<u32>) {
        if known == Some(0) {
            return;
        }
        let mut sum = Sum::default();
        for part in self.parts(cpu, cell) {
            if let Part::Cell(below) = part {
                self.find_centre(cpu, below, known.map(|levels| levels - 1));
            }
            let [x, y, z, mass] = self.ask_centre(cpu, part).map(|value| cpu.value(value));
            cpu.compute(8);
            let place = [x, y, z];
            sum.add(Centre { place, mass });
        }
        let Centre { place, mass } = sum.centre();
        for (word, value) in (CENTRE..).zip(place.into_iter().chain([mass])) {
            cpu.store_f64(self.cells.word(cell * NODE + word), value);
        }
        cpu.compute(6);
    }

    /// Asks for a node's place and mass.
    fn ask_centre(&self, cpu: &mut Cpu<'_>, part: Part) -> Asked {
        let first = match part {
            Part::Body(body) => self.bodies.word(body * NODE),
            Part::Cell(cell) => self.cells.word(cell * NODE + CENTRE),
            Part::Nothing => unreachable!("nothing has no centre"),
        };
        [0, 1, 2, 3].map(|word| cpu.load_later_f64(first.offset(word)))
    }

    /// Adds to what a body feels of all that is in a cell.
    fn walk(
        &self,
        cpu: &mut Cpu<'_>,
        cell: u64,
        (body, place): (u64, Vector),
        side: f64,
        depth: u64,
        pull: &mut Pull,
    ) {
        let frame = STACK + depth * 64;
        for word in 0..6 {
            cpu.private_store(frame + word * 8);
        }
        cpu.compute(12);
        let mut asked = [None; 8];
        for (asked, part) in asked.iter_mut().zip(self.parts(cpu, cell)) {
            *asked = Some((part, self.ask_centre(cpu, part)));
        }
        // Asked for together; a processor looks that far ahead. Those below may ask for many more.
        let all =
            asked.map(|node| node.map(|(part, asked)| (part, asked.map(|value| cpu.value(value)))));
        for (part, [x, y, z, mass]) in all.into_iter().flatten() {
            let far = apart(place, [x, y, z]);
            private(cpu, 3, 4);
            cpu.compute(10);
            let openness = self.barnes.openness;
            match part {
                Part::Body(other) if other == body => {}
                Part::Cell(below) if side * side / 4.0 >= openness * openness * far.1 => {
                    self.walk(cpu, below, (body, place), side / 2.0, depth + 1, pull);
                }
                _ => {
                    pull.add(mass, far, self.barnes.softening);
                    private(cpu, 8, 4);
                    cpu.compute(14);
                }
            }
        }
        for word in 0..6 {
            cpu.private_load(frame + word * 8);
        }
    }

    fn advance(&self, cpu: &mut Cpu<'_>, body: u64) {
        let ask = |cpu: &mut Cpu<'_>, first: u64| {
            [0, 1, 2].map(|axis| self.bodies.ask(cpu, body * NODE + first + axis))
        };
        let asked = [0, 4, 8].map(|first| ask(cpu, first));
        let [place, speed, acceleration] = asked.map(|three| three.map(|one| cpu.value(one)));
        let (place, speed) = advance(place, speed, acceleration, self.barnes.step);
        cpu.compute(20);
        for axis in 0..3 {
            self.bodies
                .set(cpu, body * NODE + axis, place[axis as usize]);
            self.bodies
                .set(cpu, body * NODE + 4 + axis, speed[axis as usize]);
        }
    }

    fn check(&self, start: &[Body], memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
        let mut right = start.to_vec();
        let pulls = self.barnes.plain(&mut right);
        for (number, right) in right.iter().zip(&pulls).enumerate() {
            let at = |word: u64| self.bodies.at(memory, number as u64 * NODE + word);
            let body = Body {
                place: [at(0), at(1), at(2)],
                speed: [at(4), at(5), at(6)],
                mass: at(3),
            };
            let pull = Pull {
                acceleration: [at(8), at(9), at(10)],
                potential: at(7),
            };
            if (&body, &pull) != right {
                return Err(format!(
                    "body {number} is {:?} instead of {right:?}",
                    (body, pull)
                ));
            }
        }
        Ok(())
    }
}

/// Reads and writes so many words of the thread's structure.
fn private(cpu: &mut Cpu<'_>, loads: u64, stores: u64) {
    for word in 0..loads {
        cpu.private_load(LOCAL + word * 8);
    }
    for word in 0..stores {
        cpu.private_store(LOCAL + word * 8);
    }
}
