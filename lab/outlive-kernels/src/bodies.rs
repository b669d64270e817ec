//! Bodies that attract one another: the arithmetic of [`Barnes`](super::Barnes), and a sequential
//! reference in plain memory.

use outlive_machine::engine::Random;

/// A position, or a difference of positions.
pub type Vector = [f64; 3];

/// The depth below which no cell is divided: only bodies at one position would need that.
pub const DEPTH: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Body {
    pub place: Vector,
    pub speed: Vector,
    pub mass: f64,
}

/// A body, or all bodies of a cell at their centre of mass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centre {
    pub place: Vector,
    pub mass: f64,
}

/// The acceleration and the potential of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pull {
    pub acceleration: Vector,
    pub potential: f64,
}

/// The cube that contains all bodies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cube {
    pub middle: Vector,
    pub side: f64,
}

impl Cube {
    /// Returns a cube around a box, with a small margin.
    pub fn around(low: Vector, high: Vector) -> Self {
        let wide = [0, 1, 2].map(|axis| high[axis] - low[axis]);
        Self {
            middle: [0, 1, 2].map(|axis| (low[axis] + high[axis]) / 2.0),
            side: wide.into_iter().fold(f64::MIN_POSITIVE, f64::max) * 1.001,
        }
    }

    /// Returns the number of the eighth of the cube that contains a position, and that eighth.
    pub fn part(&self, place: Vector) -> (usize, Self) {
        let upper = [0, 1, 2].map(|axis| place[axis] >= self.middle[axis]);
        let number = usize::from(upper[0]) * 4 + usize::from(upper[1]) * 2 + usize::from(upper[2]);
        let step = self.side / 4.0;
        let middle =
            [0, 1, 2].map(|axis| self.middle[axis] + if upper[axis] { step } else { -step });
        let side = self.side / 2.0;
        (number, Self { middle, side })
    }
}

/// Returns the difference of two positions and its square.
pub fn apart(from: Vector, to: Vector) -> (Vector, f64) {
    let apart = [0, 1, 2].map(|axis| to[axis] - from[axis]);
    (
        apart,
        apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2],
    )
}

impl Pull {
    /// Adds the pull of `mass` at this distance; `softening` keeps the pull of near bodies finite.
    pub fn add(&mut self, mass: f64, (apart, squared): (Vector, f64), softening: f64) {
        let squared = squared + softening * softening;
        let potential = mass / squared.sqrt();
        self.potential -= potential;
        let strength = potential / squared;
        for (acceleration, apart) in self.acceleration.iter_mut().zip(apart) {
            *acceleration += strength * apart;
        }
    }
}

/// Accumulates the centre of mass of several bodies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    mass: f64,
    moment: Vector,
}

impl Sum {
    pub fn add(&mut self, centre: Centre) {
        self.mass += centre.mass;
        for (moment, place) in self.moment.iter_mut().zip(centre.place) {
            *moment += centre.mass * place;
        }
    }

    pub fn centre(self) -> Centre {
        Centre {
            place: self.moment.map(|moment| moment / self.mass),
            mass: self.mass,
        }
    }
}

/// Returns the position and speed after a step in time.
pub fn advance(place: Vector, speed: Vector, acceleration: Vector, step: f64) -> (Vector, Vector) {
    let speed = [0, 1, 2].map(|axis| speed[axis] + acceleration[axis] * step);
    (
        [0, 1, 2].map(|axis| place[axis] + speed[axis] * step),
        speed,
    )
}

/// Generates bodies that are denser towards the middle, ordered so that neighbours are near.
pub fn galaxy(bodies: usize, seed: u64) -> Vec<Body> {
    let mut random = Random::new(seed);
    let mut unit = || (random.bits() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
    let mut body = || loop {
        let direction = [unit(), unit(), unit()];
        let (_, squared) = apart([0.0; 3], direction);
        // Within a ball; squaring the distance moves bodies towards the middle.
        if squared <= 1.0 {
            return Body {
                place: direction.map(|axis| axis * squared),
                speed: [unit(), unit(), unit()].map(|axis| axis * 0.1),
                mass: 1.0 / bodies as f64,
            };
        }
    };
    let mut all: Vec<Body> = (0..bodies).map(|_| body()).collect();
    all.sort_by_key(|body| {
        let mut cube = Cube {
            middle: [0.0; 3],
            side: 2.0,
        };
        (0..20).fold(0u64, |key, _| {
            let (part, inner) = cube.part(body.place);
            cube = inner;
            key << 3 | part as u64
        })
    });
    all
}

/// A tree that one thread builds in plain memory.
pub enum Tree {
    Nothing,
    Body(usize),
    Cell(Box<([Tree; 8], Centre)>),
}

impl Tree {
    /// Builds the tree of these bodies.
    pub fn of(bodies: &[Body], cube: Cube) -> Self {
        let numbers: Vec<usize> = (0..bodies.len()).collect();
        Self::cell(bodies, &numbers, cube, 0)
    }

    fn cell(bodies: &[Body], numbers: &[usize], cube: Cube, depth: u32) -> Self {
        assert!(depth < DEPTH, "bodies {numbers:?} are at the same position");
        let mut sum = Sum::default();
        let parts = std::array::from_fn(|part| {
            let inside = |number: &&usize| cube.part(bodies[**number].place).0 == part;
            let numbers: Vec<usize> = numbers.iter().filter(inside).copied().collect();
            let tree = match numbers[..] {
                [] => Self::Nothing,
                [number] => Self::Body(number),
                _ => {
                    let (_, inner) = cube.part(bodies[numbers[0]].place);
                    Self::cell(bodies, &numbers, inner, depth + 1)
                }
            };
            if let Some(centre) = tree.centre(bodies) {
                sum.add(centre);
            }
            tree
        });
        Self::Cell(Box::new((parts, sum.centre())))
    }

    fn centre(&self, bodies: &[Body]) -> Option<Centre> {
        match self {
            Self::Nothing => None,
            Self::Body(number) => Some(Centre {
                place: bodies[*number].place,
                mass: bodies[*number].mass,
            }),
            Self::Cell(cell) => Some(cell.1),
        }
    }

    /// Adds the pull of the whole tree on a body. Cells that look smaller than `openness` are not
    /// opened.
    pub fn pull(
        &self,
        bodies: &[Body],
        body: usize,
        side: f64,
        (openness, softening): (f64, f64),
        pull: &mut Pull,
    ) {
        let Self::Cell(cell) = self else { return };
        for part in &cell.0 {
            let Some(centre) = part.centre(bodies) else {
                continue;
            };
            let far = apart(bodies[body].place, centre.place);
            match part {
                Self::Body(number) if *number == body => {}
                Self::Cell(_) if side * side / 4.0 >= openness * openness * far.1 => {
                    part.pull(bodies, body, side / 2.0, (openness, softening), pull);
                }
                _ => pull.add(centre.mass, far, softening),
            }
        }
    }
}

/// Returns the box around all positions.
pub fn bounds(places: impl Iterator<Item = Vector>) -> (Vector, Vector) {
    let none = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    places.fold(none, |(low, high), place| {
        (
            [0, 1, 2].map(|axis| low[axis].min(place[axis])),
            [0, 1, 2].map(|axis| high[axis].max(place[axis])),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree's pull equals that of all bodies one by one, except for the part that it neglects;
    /// if all cells are opened, except for the order of the sum only.
    #[test]
    fn the_tree_pulls_as_the_bodies_do() {
        let bodies = galaxy(400, 3);
        let (low, high) = bounds(bodies.iter().map(|body| body.place));
        let cube = Cube::around(low, high);
        let tree = Tree::of(&bodies, cube);
        for (openness, at_most) in [(0.0, 1e-12), (0.5, 0.01), (1.0, 0.08)] {
            let (mut wrong, mut all) = (0.0, 0.0);
            for body in 0..bodies.len() {
                let mut pull = Pull::default();
                tree.pull(&bodies, body, cube.side, (openness, 0.05), &mut pull);
                let mut direct = Pull::default();
                for (other, attracts) in bodies.iter().enumerate() {
                    if other != body {
                        let far = apart(bodies[body].place, attracts.place);
                        direct.add(attracts.mass, far, 0.05);
                    }
                }
                wrong += apart(pull.acceleration, direct.acceleration).1;
                all += apart([0.0; 3], direct.acceleration).1;
            }
            let relative = (wrong / all).sqrt();
            assert!(relative <= at_most, "with openness {openness}: {relative}");
        }
    }
}
