//! Clusters of points: the arithmetic of [`Streamcluster`](super::Streamcluster), and a sequential
//! reference in plain memory. It takes sums in blocks of points, as the given number of threads
//! would.

use std::ops::Range;

use super::streamcluster::Streamcluster;
use outlive_machine::engine::Random;

/// Returns the square of the distance of two points.
pub fn squared(one: impl Iterator<Item = f64>, other: impl Iterator<Item = f64>) -> f64 {
    one.zip(other)
        .map(|(one, other)| (one - other) * (one - other))
        .sum()
}

/// Returns the points of a thread.
pub fn block(points: usize, threads: usize, thread: usize) -> Range<usize> {
    points * thread / threads..points * (thread + 1) / threads
}

/// Draws a number from 0 to 1.
pub fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the generator that decides which points are opened at first.
pub fn openings(seed: u64, stage: usize, attempt: u64) -> Random {
    Random::new(seed ^ (stage as u64 + 1) << 32 ^ (attempt + 1) << 48)
}

/// The price of a centre, between two bounds that close in on it.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    low: f64,
    high: f64,
    pub price: f64,
}

impl Price {
    pub fn below(high: f64) -> Self {
        let (low, price) = (0.0, high / 2.0);
        Self { low, high, price }
    }

    pub fn dearer(&mut self) {
        self.low = self.price;
        self.price = f64::midpoint(self.low, self.high);
    }

    pub fn cheaper(&mut self) {
        self.high = self.price;
        self.price = f64::midpoint(self.low, self.high);
    }

    pub fn settled(&self) -> bool {
        self.low >= 0.999 * self.high
    }
}

/// Draws points around as many middles as there may be clusters. Returns their coordinates, one
/// point after another.
pub fn points(parameters: &Streamcluster) -> Vec<f64> {
    let mut random = Random::new(parameters.seed);
    let dimensions = parameters.dimensions;
    let middles: Vec<f64> = (0..parameters.most * dimensions)
        .map(|_| unit(&mut random))
        .collect();
    let all = parameters.points * parameters.chunks;
    let mut points = Vec::with_capacity(all * dimensions);
    for _ in 0..all {
        let middle = random.below(parameters.most as u64) as usize * dimensions;
        for place in &middles[middle..middle + dimensions] {
            points.push(place + (unit(&mut random) - 0.5) * 0.3);
        }
    }
    points
}

/// The result of a search so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The centre of each point, and the point's cost there.
    pub with: Vec<usize>,
    pub cost: Vec<f64>,
    /// The centres, in the order in which they were opened.
    pub centres: Vec<usize>,
}

/// A set of points with weights, one after another.
#[derive(Clone, Debug, Default)]
pub struct Points {
    pub coordinates: Vec<f64>,
    pub weights: Vec<f64>,
}

/// Runs the whole program with one thread. Returns the centres of all chunks, the result of the
/// search of the last chunk, and the result of the search over the centres.
pub fn plain(parameters: &Streamcluster, threads: usize) -> (Points, Found, Found) {
    let all = points(parameters);
    let (mut kept, mut last) = (Points::default(), Found::default());
    let mut random = Random::new(parameters.seed);
    let words = parameters.points * parameters.dimensions;
    for (chunk, coordinates) in all.chunks(words).enumerate() {
        let weights = vec![1.0; parameters.points];
        let coordinates = coordinates.to_vec();
        let points = Points {
            coordinates,
            weights,
        };
        let mut search = Search::new(parameters, &points, threads);
        search.run(chunk, &mut random);
        for &centre in &search.found.centres {
            let with = search.found.with.iter().filter(|with| **with == centre);
            kept.weights.push(with.count() as f64);
            kept.coordinates.extend(search.point(centre));
        }
        last = search.found;
    }
    let mut search = Search::new(parameters, &kept, threads);
    search.run(parameters.chunks, &mut random);
    let found = search.found;
    (kept, last, found)
}

struct Search<'a> {
    parameters: &'a Streamcluster,
    points: &'a Points,
    count: usize,
    threads: usize,
    found: Found,
}

impl<'a> Search<'a> {
    fn new(parameters: &'a Streamcluster, points: &'a Points, threads: usize) -> Self {
        let count = points.weights.len();
        let found = Found {
            with: vec![0; count],
            cost: vec![0.0; count],
            centres: Vec::new(),
        };
        Self {
            parameters,
            points,
            count,
            threads,
            found,
        }
    }

    fn point(&self, point: usize) -> impl Iterator<Item = f64> + use<'a> {
        let dimensions = self.parameters.dimensions;
        self.points.coordinates[point * dimensions..][..dimensions]
            .iter()
            .copied()
    }

    fn cost(&self, point: usize, centre: usize) -> f64 {
        squared(self.point(point), self.point(centre)) * self.points.weights[point]
    }

    /// Returns the sum over all points, taken in blocks.
    fn sum(&self, of: impl Fn(usize) -> f64) -> f64 {
        let blocks = (0..self.threads).map(|thread| block(self.count, self.threads, thread));
        blocks.map(|block| block.map(&of).sum::<f64>()).sum()
    }

    fn run(&mut self, stage: usize, random: &mut Random) {
        let mut price = Price::below(self.sum(|point| self.cost(point, 0)));
        self.open(stage, 0, price.price);
        for attempt in 1..Streamcluster::ATTEMPTS {
            if self.found.centres.len() >= self.parameters.least {
                break;
            }
            price.cheaper();
            self.open(stage, attempt, price.price);
        }
        for _ in 0..self.parameters.rounds {
            for _ in 0..self.parameters.tries {
                let candidate = random.below(self.count as u64) as usize;
                self.try_centre(candidate, price.price);
            }
            let centres = self.found.centres.len();
            let enough = (self.parameters.least..=self.parameters.most).contains(&centres);
            if enough || price.settled() {
                break;
            }
            if centres > self.parameters.most {
                price.dearer()
            } else {
                price.cheaper()
            }
        }
    }

    fn open(&mut self, stage: usize, attempt: u64, price: f64) {
        self.found.centres = vec![0];
        self.found.with.fill(0);
        self.found.cost = (0..self.count).map(|point| self.cost(point, 0)).collect();
        let mut random = openings(self.parameters.seed, stage, attempt);
        for candidate in 1..self.count {
            if unit(&mut random) * price >= self.found.cost[candidate] {
                continue;
            }
            self.found.centres.push(candidate);
            for point in 0..self.count {
                let cost = self.cost(point, candidate);
                if cost < self.found.cost[point] {
                    self.found.cost[point] = cost;
                    self.found.with[point] = candidate;
                }
            }
        }
    }

    fn try_centre(&mut self, candidate: usize, price: f64) {
        if self.found.with[candidate] == candidate {
            return;
        }
        let centres = self.found.centres.len();
        let slot = |centre: usize| self.found.centres.iter().position(|one| *one == centre);
        let mut nearer = vec![false; self.count];
        let mut saved = vec![vec![0.0; centres]; self.threads];
        let mut opened = 0.0;
        for (thread, saved) in saved.iter_mut().enumerate() {
            let mut own = 0.0;
            for point in block(self.count, self.threads, thread) {
                let (old, new) = (self.found.cost[point], self.cost(point, candidate));
                if new < old {
                    nearer[point] = true;
                    own += new - old;
                } else if let Some(slot) = slot(self.found.with[point]) {
                    saved[slot] += old - new;
                }
            }
            opened += own;
        }
        // The gain of closing a centre.
        let gain = |slot: usize| price + saved.iter().map(|saved| saved[slot]).sum::<f64>();
        let gains: Vec<f64> = (0..centres).map(gain).collect();
        let of = |thread: usize| (thread..centres).step_by(self.threads);
        let gained = |thread| {
            of(thread)
                .map(|slot| gains[slot])
                .filter(|gain| *gain > 0.0)
                .sum::<f64>()
        };
        let closed: f64 = (0..self.threads).map(gained).sum();
        if price + opened - closed >= 0.0 {
            return;
        }
        for (point, nearer) in nearer.into_iter().enumerate() {
            let closes = slot(self.found.with[point]).is_some_and(|slot| gains[slot] > 0.0);
            if nearer || closes {
                self.found.cost[point] = self.cost(point, candidate);
                self.found.with[point] = candidate;
            }
        }
        let mut gains = gains.into_iter();
        self.found
            .centres
            .retain(|_| gains.next().is_some_and(|gain| gain <= 0.0));
        self.found.centres.push(candidate);
    }
}
