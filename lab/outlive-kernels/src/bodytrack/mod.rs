//! Tracking a body with an annealed particle filter, as PARSEC's `bodytrack`.
//!
//! Cameras around a walking body take pictures (drawn beforehand: brightness, and the foreground
//! pixels). For each frame, the edges of the pictures are found and blurred. Then, in layers,
//! particles (poses of the body) are drawn according to the weights of the last ones, disturbed,
//! and weighed: the limbs of a pose are projected into each picture, and points along their edges
//! and inside are compared with it. Each layer disturbs less and weighs more sharply. The weighted
//! mean is the estimate of the frame.
//!
//! Thread 0 leads. Its commands go to the other threads by a condition variable. All threads take
//! tickets for rows of pictures or for particles from one counter under a lock, and meet at a
//! barrier when there are no more. Between commands, thread 0 alone computes weights from distances
//! and sums them up. All that is as in the original (whose leading thread does not take tickets).
//!
//! Different from the original: the body's limbs have 24 angles and positions (31); pictures are
//! processed word by word, eight pixels at a time, as with vector instructions; a particle that
//! leaves the range of joints is kept, within that range.
//!
//! Private are the pose of a particle (24 words), the limbs (18 words each), their outlines (8
//! words each) and the count of points, which the original adds to through a reference while it
//! reads bytes of a picture, so that its compiler has to keep it in memory. For each point, the
//! picture's width and place are also read again, for the same reason. Instructions that access no
//! memory are counted from the formulas; for a point 12: 4 for its position, 4 to round it, 2 to
//! check that it is in the picture, 2 for the penalty; for a word of pixels 8 for each pixel of an
//! edge, and 40 for a blur by vector instructions.
//!
//! Checked: the estimates, the particles of the last two layers, their weights and all data that
//! lead to them, and the edges of the last pictures equal those of a plain program to the last bit.

mod body;
mod filter;
mod leader;
mod picture;
mod plain;
mod pool;
mod work;

use std::fmt::Display;

use self::body::{Camera, POSE};
use self::picture::{PER_WORD, Size, take, walk};
use self::pool::Pool;
use self::work::{Layout, Worker};
use outlive_machine::engine::Random;
use outlive_machine::program::{Allocator, Array, Cpu, Origin, Scale, Value, Word, Workload};

/// bodytrack's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodytrack {
    /// The number of cameras.
    pub cameras: u64,
    /// Pixels of a picture along its rows: a multiple of 8.
    pub width: u64,
    /// Rows of a picture.
    pub height: u64,
    /// The number of frames.
    pub frames: u32,
    /// The number of particles.
    pub particles: u64,
    /// Layers of annealing in each frame.
    pub layers: u32,
    /// The seed of the noise in the pictures and of the particles.
    pub seed: u64,
}

impl Bodytrack {
    /// Returns the parameters at a scale. `simmedium` has 4 cameras, 2 frames, 2,000 particles and
    /// 5 layers.
    pub fn at(scale: Scale) -> Self {
        let (cameras, [width, height], frames, particles, layers) = match scale {
            Scale::Test => (2, [48, 32], 2, 10, 2),
            Scale::Study => (4, [240, 160], 1, 192, 4),
            Scale::Tenfold => (4, [320, 240], 2, 960, 4),
            Scale::Full => (4, [640, 480], 8, 4000, 5),
        };
        Self {
            cameras,
            width,
            height,
            frames,
            particles,
            layers,
            seed: 1,
        }
    }

    /// Returns the workload.
    ///
    /// # Panics
    ///
    /// If the width is not a multiple of 8, or there are no pixels, particles or layers.
    pub fn workload(self, threads: usize) -> Workload {
        self.build(threads, true)
    }

    /// Returns the workload; without `care`, it does not wait until a command is done.
    pub(super) fn build(self, threads: usize, care: bool) -> Workload {
        assert!(
            self.width.is_multiple_of(PER_WORD),
            "the row length of {} pixels is not a multiple of {PER_WORD}",
            self.width
        );
        assert!(self.size().words() > 0, "pictures without pixels");
        assert!(
            self.particles > 0 && self.layers > 0,
            "no particles, or no layers"
        );
        let film = Film::new(&self);
        let mut memory = Allocator::new();
        let layout = self.lay_out(&mut memory, &film, threads, care);
        Workload::new(
            "bodytrack",
            threads,
            memory,
            origin(),
            move |cpu: &mut Cpu<'_>| {
                Worker::new(layout, self).run(cpu);
            },
        )
        .with_check(move |memory| {
            let right = plain::track(&self, &film);
            let last = (self.frames * self.layers) as usize;
            let [after, before] = right.particles.each_ref().map(|poses| poses.as_flattened());
            same(
                "estimates",
                layout.estimates,
                right.estimates.as_flattened(),
                memory,
            )?;
            same("particles", layout.particles[last % 2], after, memory)?;
            same(
                "particles before them",
                layout.particles[(last + 1) % 2],
                before,
                memory,
            )?;
            same("generators", layout.states, &right.states, memory)?;
            same("distances", layout.distances, &right.distances, memory)?;
            same("weights", layout.weights, &right.weights, memory)?;
            same("sums of weights", layout.sums, &right.sums, memory)?;
            for (stage, right) in layout.edges.into_iter().zip(&right.edges) {
                let words = right
                    .chunks_exact(8)
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
                same("edges", stage, &words.collect::<Vec<_>>(), memory)?;
            }
            Ok(())
        })
    }

    fn size(self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    fn lay_out(self, memory: &mut Allocator, film: &Film, threads: usize, care: bool) -> Layout {
        let (particles, states) = filter::begin(self.particles, self.seed);
        let sums: Vec<f64> = (1..=self.particles).map(|sum| sum as f64).collect();
        let pictures = film.frames.iter().flatten();
        let [grey, body] = [0, 1].map(|kind| {
            pictures
                .clone()
                .flat_map(|taken| taken[kind].iter().copied())
                .collect::<Vec<u64>>()
        });
        let cameras: Vec<u64> = film
            .cameras
            .iter()
            .flat_map(|camera| camera.to_words())
            .collect();
        let picture_words = self.cameras * self.size().words();
        Layout {
            pool: Pool::new(memory, threads, care),
            cameras: memory.array_of(&cameras),
            header: memory.array_of(&[self.width, self.height]),
            grey: memory.array_of(&grey),
            body: memory.array_of(&body),
            edges: [0; 3].map(|_| memory.array(picture_words)),
            particles: [
                memory.array_of(particles.as_flattened()),
                memory.array(self.particles * POSE as u64),
            ],
            states: memory.array_of(&states),
            distances: memory.array(self.particles),
            weights: memory.array(self.particles),
            sums: memory.array_of(&sums),
            offset: memory.array(1),
            estimates: memory.array(u64::from(self.frames) * POSE as u64),
        }
    }
}

/// The pictures that the cameras took.
struct Film {
    cameras: Vec<Camera>,
    /// The brightness and foreground of each camera, for each frame.
    frames: Vec<Vec<[Vec<u64>; 2]>>,
}

impl Film {
    fn new(parameters: &Bodytrack) -> Self {
        let mut random = Random::new(parameters.seed);
        let size = parameters.size();
        let cameras: Vec<Camera> = (0..parameters.cameras)
            .map(|number| Camera::new(number, parameters.cameras, size.width, size.height))
            .collect();
        let frames = (0..parameters.frames)
            .map(|frame| {
                let pose = walk(frame);
                cameras
                    .iter()
                    .map(|camera| take(camera, size, &pose, &mut random))
                    .collect()
            })
            .collect();
        Self { cameras, frames }
    }
}

/// Checks that an array holds these values, to the last bit.
fn same<T: Value + Display>(
    what: &str,
    array: Array<T>,
    right: &[T],
    memory: &dyn Fn(Word) -> u64,
) -> Result<(), String> {
    for (place, right) in (0..).zip(right) {
        let found = array.at(memory, place);
        if found.to_word() != right.to_word() {
            return Err(format!(
                "number {place} of the {what} is {found}, but should be {right}"
            ));
        }
    }
    Ok(())
}

fn origin() -> Origin {
    Origin {
        program: "PARSEC bodytrack",
        stores: Some(0.95 / (3.63 + 0.95)),
        shared_stores: None,
        source: "PARSEC, TR-811-08, table 1",
        differs: None,
    }
}
