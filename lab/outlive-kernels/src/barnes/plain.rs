//! Sequential Barnes-Hut in plain memory, and the check of the threads' result against it.

use super::super::bodies::{Body, Cube, Pull, Tree, advance, bounds};
use super::Barnes;
use super::program::{NODE, Program};
use outlive_machine::program::Word;

impl Barnes {
    /// Runs all steps with one thread in plain memory. Returns the pulls of the last step.
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

impl Program {
    /// Checks that the bodies are where one thread would have moved them, to the last bit.
    pub fn check(&self, start: &[Body], memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
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
