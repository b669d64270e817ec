//! A thread that traces rays.

use super::super::super::{Array, BarrierId, Cpu, LockId};
use super::super::private::Private;
use super::super::vector::{Vector, add, scale};
use super::grid::{Frame, Walk};
use super::plain::better;
use super::scene::{BACKGROUND, Camera, DEEPEST, FAINT, lit, toward, unlit};
use super::shape::{Material, Primitive, Ray};

/// Where things stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) side: u64,
    pub(super) tile: u64,
    /// The first; there is one for each thread.
    pub(super) pool_locks: LockId,
    pub(super) ray_lock: LockId,
    pub(super) end: BarrierId,
    /// How many rays there were.
    pub(super) rays: Array<u64>,
    /// A line for each thread: its next tile, and the end of its tiles.
    pub(super) pools: Array<u64>,
    pub(super) camera: Array<u64>,
    pub(super) lights: Array<f64>,
    pub(super) frame: Array<u64>,
    /// For each cell of the grid, where its entries begin (upper half) and how many they are.
    pub(super) cells: Array<u64>,
    pub(super) entries: Array<u64>,
    pub(super) materials: Array<u64>,
    pub(super) primitives: Array<u64>,
    pub(super) picture: Array<f64>,
}

const STACK: Private = Private(0);
const WALK: Private = Private(1 << 10);
const HIT: Private = Private(2 << 10);
const MARKS: Private = Private(4 << 10);
/// Words of a ray on the stack.
const RAY: u64 = 10;
/// Words of the record of a hit.
const RECORD: u64 = 4;

/// Which locks are taken. Tests leave them out.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Locks {
    pub(in super::super) tiles: bool,
    pub(in super::super) rays: bool,
}

impl Locks {
    pub(in super::super) const ALL: Self = Self {
        tiles: true,
        rays: true,
    };
}

/// A ray with what is known of it.
#[derive(Clone, Copy)]
struct Traced {
    ray: Ray,
    number: u64,
    weight: f64,
    depth: u32,
}

pub(super) struct Tracer {
    layout: Layout,
    /// For each primitive the last ray that was tested with it.
    marks: Vec<u64>,
    locks: Locks,
}

impl Tracer {
    pub(super) fn new(layout: Layout, primitives: usize, locks: Locks) -> Self {
        Self {
            layout,
            marks: vec![0; primitives],
            locks,
        }
    }

    pub(super) fn run(mut self, cpu: &mut Cpu<'_>) {
        while let Some(tile) = self.take_tile(cpu) {
            let Layout {
                side, tile: edge, ..
            } = self.layout;
            let across = side.div_ceil(edge);
            let (left, top) = (tile % across * edge, tile / across * edge);
            cpu.compute(8);
            for y in top..(top + edge).min(side) {
                for x in left..(left + edge).min(side) {
                    self.trace_pixel(cpu, x, y);
                }
            }
        }
        cpu.barrier(self.layout.end);
    }

    /// A tile of one's own, or of somebody who has some left.
    fn take_tile(&self, cpu: &mut Cpu<'_>) -> Option<u64> {
        let pools = self.layout.pools;
        for turn in 0..cpu.threads() {
            let owner = (cpu.thread() + turn) % cpu.threads();
            let (next, end) = (owner as u64 * 8, owner as u64 * 8 + 1);
            let lock = LockId(self.layout.pool_locks.0 + owner as u32);
            cpu.compute(4);
            // A look without the lock: a pool that is empty stays so.
            let look = [pools.ask(cpu, next), pools.ask(cpu, end)];
            if cpu.value(look[0]) >= cpu.value(look[1]) {
                continue;
            }
            if self.locks.tiles {
                cpu.lock(lock);
            }
            let found = [pools.ask(cpu, next), pools.ask(cpu, end)];
            let [tile, end] = found.map(|pending| cpu.value(pending));
            cpu.compute(2);
            if tile < end {
                pools.set(cpu, next, tile + 1);
            }
            if self.locks.tiles {
                cpu.unlock(lock);
            }
            if tile < end {
                return Some(tile);
            }
        }
        None
    }

    fn trace_pixel(&mut self, cpu: &mut Cpu<'_>, x: u64, y: u64) {
        let words = std::array::from_fn(|word| self.layout.camera.word(word as u64));
        let camera = Camera::from_words(cpu.load_all(words));
        cpu.compute(Camera::RAY);
        let mut next = Some(Traced {
            ray: camera.ray(x, y),
            number: self.number_ray(cpu),
            weight: 1.0,
            depth: 0,
        });
        STACK.store(cpu, 0..RAY);
        while let Some(traced) = next.take() {
            STACK.load(cpu, 0..RAY);
            let pixel = y * self.layout.side + x;
            match self.nearest(cpu, &traced.ray, traced.number, f64::INFINITY) {
                None => self.contribute(cpu, pixel, scale(BACKGROUND, traced.weight)),
                Some(hit) => next = self.shade(cpu, pixel, &traced, hit),
            }
        }
    }

    /// A number that no other ray has.
    fn number_ray(&self, cpu: &mut Cpu<'_>) -> u64 {
        if self.locks.rays {
            cpu.lock(self.layout.ray_lock);
        }
        let number = self.layout.rays.get(cpu, 0) + 1;
        cpu.compute(1);
        self.layout.rays.set(cpu, 0, number);
        if self.locks.rays {
            cpu.unlock(self.layout.ray_lock);
        }
        number
    }

    /// Adds what is seen where the ray ends, and says how it goes on.
    fn shade(
        &mut self,
        cpu: &mut Cpu<'_>,
        pixel: u64,
        traced: &Traced,
        hit: (f64, u32),
    ) -> Option<Traced> {
        HIT.load(cpu, 0..RECORD);
        let (distance, number) = hit;
        let primitive = self.load_primitive(cpu, u64::from(number));
        let first = u64::from(primitive.material) * Material::WORDS;
        let words = std::array::from_fn(|word| self.layout.materials.word(first + word as u64));
        let material = Material::from_words(cpu.load_all(words));
        let point = traced.ray.at(distance);
        let normal = primitive.normal(point, &traced.ray);
        cpu.compute(6 + 16 + 3);
        // The point and the normal, which the original hands on in memory.
        HIT.store(cpu, RECORD..RECORD + 6);
        let mut seen = unlit(&material);
        for light in 0..self.layout.lights.len() / 3 {
            let at = [0, 1, 2].map(|part| self.layout.lights.ask(cpu, light * 3 + part));
            let at = at.map(|pending| cpu.value(pending));
            HIT.load(cpu, RECORD..RECORD + 6);
            cpu.compute(10);
            let (shadow, distance) = toward(point, at);
            let number = self.number_ray(cpu);
            STACK.store(cpu, RAY..2 * RAY);
            if self.nearest(cpu, &shadow, number, distance).is_none() {
                cpu.compute(15);
                seen = add(seen, lit(&material, normal, shadow.toward));
            }
        }
        cpu.compute(4);
        self.contribute(
            cpu,
            pixel,
            scale(seen, traced.weight * (1.0 - material.mirror)),
        );
        let weight = traced.weight * material.mirror;
        cpu.compute(3);
        if weight < FAINT || traced.depth == DEEPEST {
            return None;
        }
        cpu.compute(25);
        STACK.store(cpu, 0..RAY);
        Some(Traced {
            ray: traced.ray.reflected(point, normal),
            number: self.number_ray(cpu),
            weight,
            depth: traced.depth + 1,
        })
    }

    fn contribute(&self, cpu: &mut Cpu<'_>, pixel: u64, colour: Vector) {
        let picture = self.layout.picture;
        let before = [0, 1, 2].map(|part| picture.ask(cpu, pixel * 3 + part));
        cpu.compute(5);
        let sum = add(before.map(|pending| cpu.value(pending)), colour);
        for (part, value) in (0..).zip(sum) {
            picture.set(cpu, pixel * 3 + part, value);
        }
    }

    /// What the ray meets first before `until`: how far along, and which primitive.
    fn nearest(
        &mut self,
        cpu: &mut Cpu<'_>,
        ray: &Ray,
        number: u64,
        until: f64,
    ) -> Option<(f64, u32)> {
        let words = std::array::from_fn(|word| self.layout.frame.word(word as u64));
        let frame = Frame::from_words(cpu.load_all(words));
        cpu.compute(Walk::BEGIN);
        let mut walk = Walk::begin(frame, ray)?;
        WALK.store(cpu, 0..24);
        let mut best = None;
        loop {
            WALK.load(cpu, 0..9);
            let cell = self.layout.cells.get(cpu, walk.cell());
            let (first, count) = (cell >> 32, cell & 0xffff_ffff);
            // Entries of a cell stand one after the other: a core reads ahead.
            for chunk in (first..first + count).step_by(8) {
                let mut entries = [None; 8];
                for (entry, place) in entries
                    .iter_mut()
                    .zip(chunk..(chunk + 8).min(first + count))
                {
                    *entry = Some(self.layout.entries.ask(cpu, place));
                }
                for entry in entries.into_iter().flatten() {
                    let primitive = cpu.value(entry);
                    MARKS.load(cpu, primitive..primitive + 1);
                    cpu.compute(2);
                    if self.marks[primitive as usize] == number {
                        continue;
                    }
                    self.marks[primitive as usize] = number;
                    MARKS.store(cpu, primitive..primitive + 1);
                    let distance = self.load_primitive(cpu, primitive).meets(ray);
                    let nearer = better(best, distance, primitive as u32, until);
                    if nearer != best {
                        HIT.store(cpu, 0..RECORD);
                    }
                    best = nearer;
                }
            }
            cpu.compute(Walk::STEP);
            if best.is_some_and(|(distance, _)| distance <= walk.exit())
                || walk.exit() >= until
                || !walk.step()
            {
                return best;
            }
            WALK.store(cpu, 0..6);
        }
    }

    /// Loads a primitive for a test, and counts the test's instructions.
    fn load_primitive(&self, cpu: &mut Cpu<'_>, number: u64) -> Primitive {
        let first = number * Primitive::WORDS;
        let word = |place| self.layout.primitives.word(first + place);
        // The first line at once; its head says whether there is more.
        let [head, near @ ..] = cpu.load_all([0, 1, 2, 3, 4].map(word));
        let mut numbers = [0.0; 9];
        numbers[..4].copy_from_slice(&near.map(f64::from_bits));
        if Primitive::numbers(head) == 9 {
            let far = cpu.load_all([5, 6, 7, 8, 9].map(word));
            numbers[4..].copy_from_slice(&far.map(f64::from_bits));
        }
        cpu.compute(Primitive::effort(head));
        Primitive::from_words(head, &numbers)
    }
}
