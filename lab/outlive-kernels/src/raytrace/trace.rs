//! A thread that traces rays.

use std::ops::Range;

use super::super::private::Private;
use super::super::vector::{Vector, add, scale};
use super::grid::Walk;
use super::plain::better;
use super::scene::{BACKGROUND, Camera, DEEPEST, FAINT, lit, toward, unlit};
use super::shape::Ray;
use super::solids::Solids;
use super::voxels::Voxels;
use outlive_machine::program::{Array, BarrierId, Cpu, LockId};

/// The layout of shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) side: u64,
    pub(super) tile: u64,
    /// The first lock; there is one for each thread.
    pub(super) pool_locks: LockId,
    pub(super) ray_lock: LockId,
    pub(super) end: BarrierId,
    /// The number of rays so far.
    pub(super) rays: Array<u64>,
    /// A line for each thread: its next tile, and the end of its tiles.
    pub(super) pools: Array<u64>,
    pub(super) camera: Array<u64>,
    pub(super) lights: Array<f64>,
    pub(super) voxels: Voxels,
    pub(super) solids: Solids,
    pub(super) picture: Array<f64>,
}

const STACK: Private = Private(0);
const WALK: Private = Private(1 << 10);
const HIT: Private = Private(2 << 10);
/// The ray that is traced, and the ray that is made from it.
const TRACED: Private = Private(3 << 10);
const MADE: Private = Private(4 << 10);
/// Words of a ray; its origin and direction come first.
const RAY: u64 = 10;
const ORIGIN_AND_WAY: Range<u64> = 0..6;
/// Words of the record of a hit.
const RECORD: u64 = 4;
/// The entries of a voxel that are read before the first of them is tested.
const AHEAD: usize = 8;

/// The locks that are taken. Tests leave some out.
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

/// A ray with its weight and depth.
#[derive(Clone, Copy)]
struct Traced {
    ray: Ray,
    weight: f64,
    depth: u32,
}

/// Pushes the new ray on the stack.
fn push(cpu: &mut Cpu<'_>) {
    MADE.store(cpu, 0..RAY);
    copy(cpu, MADE, STACK);
}

fn copy(cpu: &mut Cpu<'_>, from: Private, to: Private) {
    from.load(cpu, 0..RAY);
    to.store(cpu, 0..RAY);
}

pub(super) struct Tracer {
    layout: Layout,
    locks: Locks,
}

impl Tracer {
    pub(super) fn new(layout: Layout, locks: Locks) -> Self {
        Self { layout, locks }
    }

    pub(super) fn run(self, cpu: &mut Cpu<'_>) {
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

    /// Takes a tile from the thread's own pool, or else from a pool that has some left.
    fn take_tile(&self, cpu: &mut Cpu<'_>) -> Option<u64> {
        let pools = self.layout.pools;
        for turn in 0..cpu.threads() {
            let owner = (cpu.thread() + turn) % cpu.threads();
            let (next, end) = (owner as u64 * 8, owner as u64 * 8 + 1);
            let lock = LockId(self.layout.pool_locks.0 + owner as u32);
            cpu.compute(4);
            // Reads without the lock first: an empty pool stays empty.
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

    fn trace_pixel(&self, cpu: &mut Cpu<'_>, x: u64, y: u64) {
        let words = std::array::from_fn(|word| self.layout.camera.word(word as u64));
        let camera = Camera::from_words(cpu.load_all(words));
        cpu.compute(Camera::RAY);
        self.number_ray(cpu);
        push(cpu);
        let mut next = Some(Traced {
            ray: camera.ray(x, y),
            weight: 1.0,
            depth: 0,
        });
        while let Some(traced) = next.take() {
            copy(cpu, STACK, TRACED);
            let pixel = y * self.layout.side + x;
            match self.nearest(cpu, TRACED, &traced.ray, f64::INFINITY) {
                None => self.contribute(cpu, pixel, scale(BACKGROUND, traced.weight)),
                Some(hit) => next = self.shade(cpu, pixel, &traced, hit),
            }
        }
    }

    /// Takes a number that no other ray has.
    fn number_ray(&self, cpu: &mut Cpu<'_>) {
        if self.locks.rays {
            cpu.lock(self.layout.ray_lock);
        }
        let number = self.layout.rays.get(cpu, 0) + 1;
        cpu.compute(1);
        self.layout.rays.set(cpu, 0, number);
        if self.locks.rays {
            cpu.unlock(self.layout.ray_lock);
        }
    }

    /// Adds the colour at the ray's end to the pixel, and returns the reflected ray, if any.
    fn shade(
        &self,
        cpu: &mut Cpu<'_>,
        pixel: u64,
        traced: &Traced,
        hit: (f64, u32),
    ) -> Option<Traced> {
        HIT.load(cpu, 0..RECORD);
        let (distance, number) = hit;
        let form = self.layout.solids.read(cpu, u64::from(number));
        let material = self.layout.solids.material(cpu, u64::from(number));
        let point = traced.ray.at(distance);
        let normal = form.normal(point, &traced.ray);
        cpu.compute(6 + 16 + 3);
        // The point and the normal, which the original passes on in memory.
        HIT.store(cpu, RECORD..RECORD + 6);
        let mut seen = unlit(&material);
        for light in 0..self.layout.lights.len() / 3 {
            let at = [0, 1, 2].map(|part| self.layout.lights.ask(cpu, light * 3 + part));
            let at = at.map(|pending| cpu.value(pending));
            HIT.load(cpu, RECORD..RECORD + 6);
            cpu.compute(10);
            let (shadow, distance) = toward(point, at);
            self.number_ray(cpu);
            MADE.store(cpu, ORIGIN_AND_WAY);
            if self.nearest(cpu, MADE, &shadow, distance).is_none() {
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
        self.number_ray(cpu);
        push(cpu);
        Some(Traced {
            ray: traced.ray.reflected(point, normal),
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

    /// Returns the first primitive that the ray stored in `place` meets before `until`, with its
    /// distance.
    fn nearest(
        &self,
        cpu: &mut Cpu<'_>,
        place: Private,
        ray: &Ray,
        until: f64,
    ) -> Option<(f64, u32)> {
        let Layout { voxels, solids, .. } = self.layout;
        let frame = voxels.frame(cpu);
        place.load(cpu, ORIGIN_AND_WAY);
        cpu.compute(Walk::BEGIN);
        let mut walk = Walk::begin(frame, ray)?;
        WALK.store(cpu, 0..24);
        let mut best = None;
        loop {
            let voxel = voxels.at(cpu, walk.cell());
            let entries = voxel.map_or(0..0, |voxel| voxel.first..voxel.first + voxel.count);
            // Entries of a voxel are contiguous: a core reads ahead.
            for first in entries.clone().step_by(AHEAD) {
                let count = AHEAD.min((entries.end - first) as usize);
                let numbers: [u64; AHEAD] = voxels.entries(cpu, first, count);
                for number in numbers.into_iter().take(count) {
                    let form = solids.read(cpu, number);
                    place.load(cpu, ORIGIN_AND_WAY);
                    let nearer = better(best, form.meets(ray), number as u32, until);
                    if nearer != best {
                        HIT.store(cpu, 0..RECORD);
                    }
                    best = nearer;
                }
            }
            WALK.load(cpu, 0..1);
            cpu.compute(Walk::STEP);
            if best.is_some_and(|(distance, _)| distance <= walk.exit()) || walk.exit() >= until {
                return best;
            }
            WALK.load(cpu, 0..12);
            if !walk.step(voxels.across(cpu)) {
                return best;
            }
            WALK.store(cpu, 0..7);
        }
    }
}
