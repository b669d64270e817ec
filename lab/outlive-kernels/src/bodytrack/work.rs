//! The work of all threads: pieces of the leader's commands.

use super::super::private::Private;
use super::Bodytrack;
use super::body::{BODY, Camera, LIMBS, Limb, POSE, Placed, Pose};
use super::filter::{FOLLOW, follow, place_in_sum};
use super::picture::{PER_WORD, blur, distance, edge, edge_penalty, inside_penalty};
use super::pool::{Command, Pool};
use outlive_machine::program::{Array, Cpu};

/// The layout of shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) pool: Pool,
    pub(super) cameras: Array<u64>,
    /// Width and height of pictures.
    pub(super) header: Array<u64>,
    /// Brightness and foreground: pictures of all frames.
    pub(super) grey: Array<u64>,
    pub(super) body: Array<u64>,
    /// Edges of the frame's pictures: as found, blurred along rows, blurred along columns too.
    pub(super) edges: [Array<u64>; 3],
    /// The particles of the current layer and of the one before, alternately.
    pub(super) particles: [Array<f64>; 2],
    /// The state of each particle's generator.
    pub(super) states: Array<u64>,
    pub(super) distances: Array<f64>,
    pub(super) weights: Array<f64>,
    /// Sums of the weights up to each particle.
    pub(super) sums: Array<f64>,
    pub(super) offset: Array<f64>,
    pub(super) estimates: Array<f64>,
}

const OWN_POSE: Private = Private(0);
const OWN_LIMBS: Private = Private(1 << 10);
const OUTLINE: Private = Private(4 << 10);
const POINTS: Private = Private(5 << 10);
/// Words of a limb, and of an outline.
const LIMB: u64 = 18;
const OUTLINE_WORDS: u64 = 8;

/// Rows of pictures in a piece of work.
const ROWS: u64 = 4;
/// Points whose loads are begun together.
const AHEAD: usize = 16;

pub(super) struct Worker {
    pub(super) layout: Layout,
    pub(super) parameters: Bodytrack,
}

impl Worker {
    pub(super) fn new(layout: Layout, parameters: Bodytrack) -> Self {
        Self { layout, parameters }
    }

    pub(super) fn run(&self, cpu: &mut Cpu<'_>) {
        if cpu.thread() == 0 {
            self.lead(cpu);
            return;
        }
        let mut heard = 0;
        loop {
            match self.layout.pool.hear(cpu, &mut heard) {
                Command::End => return,
                command => self.obey(cpu, command),
            }
        }
    }

    /// Takes pieces of a command until none are left, and waits for the other threads.
    pub(super) fn obey(&self, cpu: &mut Cpu<'_>, command: Command) {
        let pieces = match command {
            Command::Edges(_) | Command::BlurRows | Command::BlurColumns => {
                self.rows().div_ceil(ROWS)
            }
            Command::Draw(_) | Command::Weigh(..) => self.parameters.particles,
            Command::End => 0,
        };
        while let Some(piece) = self.layout.pool.take(cpu, pieces) {
            match command {
                Command::Edges(frame) => {
                    self.for_rows(piece, |row| self.find_edges(cpu, frame, row))
                }
                Command::BlurRows => self.for_rows(piece, |row| self.blur_row(cpu, row)),
                Command::BlurColumns => self.for_rows(piece, |row| self.blur_columns(cpu, row)),
                Command::Draw(layer) => self.draw(cpu, layer, piece),
                Command::Weigh(frame, layer) => self.weigh(cpu, frame, layer, piece),
                Command::End => {}
            }
        }
        self.layout.pool.finish(cpu);
    }

    /// Returns the rows of all pictures of a frame.
    fn rows(&self) -> u64 {
        self.parameters.cameras * self.parameters.height
    }

    fn for_rows(&self, piece: u64, row: impl FnMut(u64)) {
        (piece * ROWS..((piece + 1) * ROWS).min(self.rows())).for_each(row);
    }

    /// Returns the row that is `down` rows further down in the picture, or the last one in it.
    fn near(&self, row: u64, down: i64) -> u64 {
        let height = self.parameters.height;
        let first = row - row % height;
        first + (row % height).saturating_add_signed(down).min(height - 1)
    }

    /// Calls `each` with each word of a row and its neighbours; the last pixel repeats at the ends.
    fn for_words(
        &self,
        cpu: &mut Cpu<'_>,
        picture: Array<u64>,
        row: u64,
        mut each: impl FnMut(&mut Cpu<'_>, u64, [u8; 24]),
    ) {
        let words = self.parameters.size().row();
        let first = row * words;
        let mut middle = picture.get(cpu, first).to_le_bytes();
        let mut left = [middle[0]; 8];
        for word in 0..words {
            let right = if word + 1 < words {
                picture.get(cpu, first + word + 1).to_le_bytes()
            } else {
                [middle[7]; 8]
            };
            let mut bytes = [0; 24];
            for (part, from) in bytes.chunks_exact_mut(8).zip([left, middle, right]) {
                part.copy_from_slice(&from);
            }
            each(cpu, first + word, bytes);
            (left, middle) = (middle, right);
        }
    }

    fn find_edges(&self, cpu: &mut Cpu<'_>, frame: u32, row: u64) {
        let words = self.parameters.size().row();
        let start = u64::from(frame) * self.rows() * words;
        let picture = self.layout.grey.slice(start..start + self.rows() * words);
        let [above, below] = [-1, 1].map(|down| self.near(row, down));
        self.for_words(cpu, picture, row, |cpu, place, bytes| {
            let near =
                [above, below].map(|other| picture.ask(cpu, other * words + place - row * words));
            let [above, below] = near.map(|near| cpu.value(near).to_le_bytes());
            let edges =
                std::array::from_fn(|x| edge(bytes[x + 7], bytes[x + 9], above[x], below[x]));
            cpu.compute(8 * PER_WORD as u32);
            self.layout.edges[0].set(cpu, place, u64::from_le_bytes(edges));
        });
    }

    fn blur_row(&self, cpu: &mut Cpu<'_>, row: u64) {
        self.for_words(cpu, self.layout.edges[0], row, |cpu, place, bytes| {
            let blurred =
                std::array::from_fn(|x| blur([6, 7, 8, 9, 10].map(|from| bytes[x + from])));
            cpu.compute(40);
            self.layout.edges[1].set(cpu, place, u64::from_le_bytes(blurred));
        });
    }

    fn blur_columns(&self, cpu: &mut Cpu<'_>, row: u64) {
        let words = self.parameters.size().row();
        let rows = [-2, -1, 0, 1, 2].map(|down| self.near(row, down));
        for word in 0..words {
            let column =
                cpu.load_all(rows.map(|row| self.layout.edges[1].word(row * words + word)));
            let column = column.map(u64::to_le_bytes);
            let blurred = std::array::from_fn(|x| blur(column.map(|bytes| bytes[x])));
            cpu.compute(40);
            self.layout.edges[2].set(cpu, row * words + word, u64::from_le_bytes(blurred));
        }
    }

    /// Draws a particle according to the weights of the last ones, and disturbs it.
    fn draw(&self, cpu: &mut Cpu<'_>, layer: u32, particle: u64) {
        let particles = self.parameters.particles;
        let offset = self.layout.offset.ask(cpu, 0);
        let total = self.layout.sums.ask(cpu, particles - 1);
        let state = self.layout.states.ask(cpu, particle);
        let place = place_in_sum(particle, particles, cpu.value(offset), cpu.value(total));
        let (mut low, mut high) = (0, particles);
        cpu.compute(5);
        while low < high {
            let middle = (low + high) / 2;
            cpu.compute(5);
            if self.layout.sums.get(cpu, middle) <= place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let parent = self.load_pose(cpu, layer, low.min(particles - 1));
        OWN_POSE.store(cpu, 0..POSE as u64);
        let (pose, state) = follow(parent, cpu.value(state), layer % self.parameters.layers);
        for (number, value) in (0..).zip(pose) {
            OWN_POSE.load(cpu, number..number + 1);
            cpu.compute(FOLLOW / POSE as u32);
            self.layout.particles[(layer as usize + 1) % 2].set(
                cpu,
                particle * POSE as u64 + number,
                value,
            );
        }
        self.layout.states.set(cpu, particle, state);
    }

    /// Compares a particle with the frame's pictures.
    fn weigh(&self, cpu: &mut Cpu<'_>, frame: u32, layer: u32, particle: u64) {
        let pose = self.load_pose(cpu, layer + 1, particle);
        OWN_POSE.store(cpu, 0..POSE as u64);
        let limbs = self.place(cpu, &pose);
        let (mut at_edges, mut inside) = ((0, 0), (0, 0));
        for number in 0..self.parameters.cameras {
            let words = self.parameters.size().words();
            let edges = self.layout.edges[2].slice(number * words..(number + 1) * words);
            let start = (u64::from(frame) * self.parameters.cameras + number) * words;
            let body = self.layout.body.slice(start..start + words);
            let camera = self.load_camera(cpu, number);
            for (limb, first) in limbs.iter().zip((0..).step_by(LIMB as usize)) {
                OWN_LIMBS.load(cpu, first + 10..first + LIMB);
                let outline = camera.project(limb);
                cpu.compute(Camera::PROJECT);
                OUTLINE.store(cpu, 0..OUTLINE_WORDS);
                OUTLINE.load(cpu, 0..OUTLINE_WORDS);
                for side in 0..2 {
                    add(
                        &mut at_edges,
                        self.look(cpu, edges, outline.edge(side), edge_penalty),
                    );
                }
                OUTLINE.load(cpu, 0..OUTLINE_WORDS);
                add(
                    &mut inside,
                    self.look(cpu, body, outline.inside(), inside_penalty),
                );
            }
        }
        cpu.compute(5);
        self.layout
            .distances
            .set(cpu, particle, distance(at_edges, inside));
    }

    fn place(&self, cpu: &mut Cpu<'_>, pose: &Pose) -> [Placed; LIMBS] {
        let mut placed: [Option<Placed>; LIMBS] = [None; LIMBS];
        for (number, limb) in BODY.iter().enumerate() {
            let parent = limb.parent.and_then(|parent| {
                let first = parent as u64 * LIMB;
                OWN_LIMBS.load(cpu, first..first + 12);
                placed[parent]
            });
            OWN_POSE.load(cpu, 0..3);
            cpu.compute(Limb::PLACE);
            let first = number as u64 * LIMB;
            OWN_LIMBS.store(cpu, first..first + LIMB);
            placed[number] = Some(limb.place(parent.as_ref(), pose));
        }
        placed.map(|limb| limb.expect("each was placed"))
    }

    /// Compares points with a picture. Returns the sum of their penalties, and how many are in it.
    fn look(
        &self,
        cpu: &mut Cpu<'_>,
        picture: Array<u64>,
        mut points: impl Iterator<Item = [f64; 2]>,
        penalty: fn(u8) -> u64,
    ) -> (u64, u64) {
        let size = self.parameters.size();
        let mut sum = (0, 0);
        loop {
            let mut asked = [None; AHEAD];
            let mut taken = 0;
            for (asked, point) in asked.iter_mut().zip(points.by_ref()) {
                taken += 1;
                cpu.compute(10);
                for word in 0..2 {
                    // In the first-level cache, and known: nothing waits for it.
                    let _ = self.layout.header.ask(cpu, word);
                }
                if let Some((x, y)) = size.pixel(point) {
                    let word = picture.ask(cpu, y * size.row() + x / PER_WORD);
                    *asked = Some((word, x % PER_WORD));
                }
            }
            for (word, byte) in asked.into_iter().flatten() {
                let shown = cpu.value(word).to_le_bytes()[byte as usize];
                POINTS.load(cpu, 0..1);
                cpu.compute(2);
                POINTS.store(cpu, 0..1);
                add(&mut sum, (penalty(shown), 1));
            }
            if taken < AHEAD {
                return sum;
            }
        }
    }

    fn load_camera(&self, cpu: &mut Cpu<'_>, number: u64) -> Camera {
        let first = number * Camera::WORDS;
        let words = std::array::from_fn(|word| self.layout.cameras.word(first + word as u64));
        Camera::from_words(cpu.load_all(words))
    }

    /// Loads a pose as it is after `layers` layers.
    pub(super) fn load_pose(&self, cpu: &mut Cpu<'_>, layers: u32, particle: u64) -> Pose {
        let array = self.layout.particles[layers as usize % 2];
        let words =
            std::array::from_fn(|number| array.word(particle * POSE as u64 + number as u64));
        cpu.load_all(words).map(f64::from_bits)
    }

    /// Loads up to `count` numbers from `first` on, all at once.
    pub(super) fn ask_numbers(
        &self,
        cpu: &mut Cpu<'_>,
        array: Array<f64>,
        first: u64,
        count: u64,
    ) -> Vec<f64> {
        let asked: Vec<_> = (first..(first + count).min(array.len()))
            .map(|place| array.ask(cpu, place))
            .collect();
        asked
            .into_iter()
            .map(|pending| cpu.value(pending))
            .collect()
    }
}

fn add(sum: &mut (u64, u64), more: (u64, u64)) {
    sum.0 += more.0;
    sum.1 += more.1;
}
