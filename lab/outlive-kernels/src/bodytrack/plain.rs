//! A reference for tracking without threads or simulated memory.

use super::body::{Camera, POSE, Pose, place};
use super::filter::{begin, follow, fraction, place_in_sum, weight};
use super::picture::{Size, blur, distance, edge, edge_penalty, inside_penalty};
use super::{Bodytrack, Film};
use outlive_machine::engine::Random;

/// The results of tracking.
pub(super) struct Tracked {
    /// The mean pose after each frame.
    pub(super) estimates: Vec<Pose>,
    /// The final particles, and the particles that they were drawn from.
    pub(super) particles: [Vec<Pose>; 2],
    /// Their generators, distances, weights and sums of weights.
    pub(super) states: Vec<u64>,
    pub(super) distances: Vec<f64>,
    pub(super) weights: Vec<f64>,
    pub(super) sums: Vec<f64>,
    /// The edges of the last frame's pictures, one after the other: as found, blurred along rows,
    /// blurred along columns too.
    pub(super) edges: [Vec<u8>; 3],
}

struct Picture {
    size: Size,
    pixels: Vec<u8>,
}

impl Picture {
    fn new(size: Size, words: &[u64]) -> Self {
        Self {
            size,
            pixels: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }

    /// Returns a pixel; beyond the border, the nearest one at the border.
    fn at(&self, x: i64, y: i64) -> u8 {
        let x = x.clamp(0, self.size.width as i64 - 1) as u64;
        let y = y.clamp(0, self.size.height as i64 - 1) as u64;
        self.pixels[(y * self.size.width + x) as usize]
    }

    fn map(&self, pixel: impl Fn(&Self, i64, i64) -> u8) -> Self {
        let (width, height) = (self.size.width as i64, self.size.height as i64);
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self {
            size: self.size,
            pixels: places.map(|(x, y)| pixel(self, x, y)).collect(),
        }
    }

    fn edges(&self) -> [Self; 3] {
        let edges = self.map(|p, x, y| {
            edge(
                p.at(x - 1, y),
                p.at(x + 1, y),
                p.at(x, y - 1),
                p.at(x, y + 1),
            )
        });
        let rows = edges.map(|p, x, y| blur([-2, -1, 0, 1, 2].map(|step| p.at(x + step, y))));
        let columns = rows.map(|p, x, y| blur([-2, -1, 0, 1, 2].map(|step| p.at(x, y + step))));
        [edges, rows, columns]
    }

    fn seen(&self, point: [f64; 2]) -> Option<u8> {
        self.size
            .pixel(point)
            .map(|(x, y)| self.at(x as i64, y as i64))
    }
}

/// Tracks the body through the film.
pub(super) fn track(parameters: &Bodytrack, film: &Film) -> Tracked {
    let size = parameters.size();
    let (particles, states) = begin(parameters.particles, parameters.seed);
    let mut offsets = Random::new(parameters.seed + 1);
    let mut tracked = Tracked {
        estimates: Vec::new(),
        particles: [particles.clone(), particles],
        states,
        distances: Vec::new(),
        weights: Vec::new(),
        sums: (1..=parameters.particles).map(|sum| sum as f64).collect(),
        edges: [const { Vec::new() }; 3],
    };
    for taken in &film.frames {
        let stages: Vec<[Picture; 3]> = taken
            .iter()
            .map(|[grey, _]| Picture::new(size, grey).edges())
            .collect();
        let body: Vec<Picture> = taken
            .iter()
            .map(|[_, body]| Picture::new(size, body))
            .collect();
        for layer in 0..parameters.layers {
            tracked.draw(parameters.particles, fraction(offsets.bits()), layer);
            let far = tracked.particles[0]
                .iter()
                .map(|pose| look(&film.cameras, pose, &stages, &body));
            tracked.distances = far.collect();
            tracked.weigh(layer);
        }
        tracked
            .estimates
            .push(mean(&tracked.particles[0], &tracked.weights));
        tracked.edges = [0, 1, 2].map(|stage| {
            stages
                .iter()
                .flat_map(|all| all[stage].pixels.iter().copied())
                .collect()
        });
    }
    tracked
}

impl Tracked {
    fn draw(&mut self, particles: u64, offset: f64, layer: u32) {
        self.particles.swap(0, 1);
        let [after, before] = &mut self.particles;
        let total = self.sums.last().copied().unwrap_or(0.0);
        for ((particle, pose), state) in (0..).zip(after).zip(&mut self.states) {
            let place = place_in_sum(particle, particles, offset, total);
            let parent = self.sums.partition_point(|sum| *sum <= place);
            (*pose, *state) = follow(before[parent.min(before.len() - 1)], *state, layer);
        }
    }

    fn weigh(&mut self, layer: u32) {
        let best = self.distances.iter().copied().fold(f64::INFINITY, f64::min);
        self.weights = self
            .distances
            .iter()
            .map(|&far| weight(far, best, layer))
            .collect();
        let mut sum = 0.0;
        for (total, weight) in self.sums.iter_mut().zip(&self.weights) {
            sum += weight;
            *total = sum;
        }
    }
}

fn mean(particles: &[Pose], weights: &[f64]) -> Pose {
    let mut sum = [0.0; POSE];
    let mut total = 0.0;
    for (pose, weight) in particles.iter().zip(weights) {
        total += weight;
        for (sum, number) in sum.iter_mut().zip(pose) {
            *sum += number * weight;
        }
    }
    sum.map(|sum| sum / total)
}

/// Returns the distance of a pose from the pictures.
fn look(cameras: &[Camera], pose: &Pose, edges: &[[Picture; 3]], body: &[Picture]) -> f64 {
    let limbs = place(pose);
    let (mut at_edges, mut inside) = ((0, 0), (0, 0));
    for ((camera, [_, _, edges]), body) in cameras.iter().zip(edges).zip(body) {
        for limb in &limbs {
            let outline = camera.project(limb);
            for shown in outline
                .edge(0)
                .chain(outline.edge(1))
                .filter_map(|point| edges.seen(point))
            {
                at_edges.0 += edge_penalty(shown);
                at_edges.1 += 1;
            }
            for shown in outline.inside().filter_map(|point| body.seen(point)) {
                inside.0 += inside_penalty(shown);
                inside.1 += 1;
            }
        }
    }
    distance(at_edges, inside)
}

#[cfg(test)]
mod tests {
    use super::super::filter::expected;
    use super::super::picture::walk;
    use super::*;

    /// The filter's result is nearer to the body than its initial guess.
    #[test]
    fn it_tracks_the_body() {
        let parameters = Bodytrack {
            cameras: 4,
            width: 160,
            height: 120,
            frames: 3,
            particles: 150,
            layers: 4,
            seed: 1,
        };
        let film = Film::new(&parameters);
        let tracked = track(&parameters, &film);
        let last = parameters.frames - 1;
        let taken = &film.frames[last as usize];
        let edges: Vec<_> = taken
            .iter()
            .map(|[grey, _]| Picture::new(parameters.size(), grey).edges())
            .collect();
        let body: Vec<Picture> = taken
            .iter()
            .map(|[_, body]| Picture::new(parameters.size(), body))
            .collect();
        let far = |pose: &Pose| look(&film.cameras, pose, &edges, &body);
        let [right, begun] = [walk(last), expected()].map(|pose| far(&pose));
        let found = far(&tracked.estimates[last as usize]);
        assert!(
            right < begun,
            "the true pose {right} fits better than the first guess {begun}"
        );
        assert!(
            found < right + 0.5 * (begun - right),
            "{found} is nearer to {right} than to {begun}"
        );
    }
}
