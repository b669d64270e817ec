//! Ray tracing, as SPLASH-2's `raytrace` does it with its input `balls4`.
//!
//! A scene of spheres and triangles is in shared memory behind a uniform grid, together with the
//! frame buffer. Each thread has a pool of tiles of the picture, under a lock; a thread that has
//! none left takes from the others' pools. Every ray gets a number from one counter under one lock,
//! as in the original, where the threads wait mainly for that lock. From the point where a ray
//! meets a surface, rays go to the lights, and one is mirrored. The contribution of each is added
//! to the pixel in the frame buffer.
//!
//! As in the original, a ray looks up each cell on its way in a map of the empty ones, finds the
//! others in a hash table (`voxels.rs`), and reaches a primitive through its element, its object
//! and the procedures of its form (`solids.rs`). A primitive that is in several cells is tested in
//! each of them.
//!
//! Left out of the original: transparency, highlights, antialiasing and the hierarchy of grids;
//! preprocessing and files. In place of the hierarchy there is one grid. With the original's teapot
//! there are, for each ray, 8 steps, 3 descents into a finer grid, and 25 tests, 7 in a voxel that
//! has primitives. One grid with as many tests would take 37 steps; this one is a little coarser:
//! 26 steps and 38 tests, 11 in a voxel. It was chosen of five, with the published share of stores
//! in view; with a finer one, of 42 cells a side, that is 22% instead of 17%.
//!
//! Private are the ray that is traced and the ray that is made from it, the stack of rays, the walk
//! through the grid and the record of the nearest hit. The original keeps all of these in
//! structures that it reaches by pointers, so they are accesses there and here: a ray has 10 words,
//! which are copied to the stack and back, a walk begins by writing 24, a step reads 12 of them and
//! writes 7, and a test reads 6 of the ray.
//!
//! Instructions that access no memory are counted from the formulas: one for each operation, each
//! comparison with its branch and each index (see `effort`, `BEGIN`, `STEP`, `RAY`, `EMPTY` and
//! `FIND`).
//!
//! Checked: each colour of each pixel equals, to the last bit, the result of a plain renderer,
//! which needs as many rays.

mod grid;
mod plain;
mod scene;
mod shape;
mod solids;
mod trace;
mod voxels;

use self::scene::Scene;
use self::solids::Solids;
pub(super) use self::trace::Locks;
use self::trace::{Layout, Tracer};
use self::voxels::Voxels;
use outlive_machine::program::{Allocator, Cpu, Origin, Scale, Word, Workload};

/// The size of the scene and of its picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raytrace {
    /// Pixels along each side of the picture.
    pub side: u64,
    /// Pixels along each side of a tile.
    pub tile: u64,
    /// The depth of spheres on spheres: (9^(levels + 1) - 1) / 8 spheres. `balls4` has 4.
    pub levels: u32,
}

impl Raytrace {
    /// Returns the parameters at a scale.
    pub fn at(scale: Scale) -> Self {
        let (side, tile, levels) = match scale {
            Scale::Test => (12, 3, 1),
            Scale::Study => (96, 4, 4),
            Scale::Tenfold => (304, 8, 4),
            Scale::Full => (1408, 8, 4),
        };
        Self { side, tile, levels }
    }

    /// Returns the workload.
    ///
    /// # Panics
    ///
    /// If a tile has no pixels.
    pub fn workload(self, threads: usize) -> Workload {
        self.build(threads, Locks::ALL)
    }

    /// Returns the workload, which takes only the given locks.
    pub(super) fn build(self, threads: usize, locks: Locks) -> Workload {
        assert!(self.tile > 0, "a tile has no pixels");
        let scene = Scene::new(self.levels, self.side);
        let mut memory = Allocator::new();
        let layout = self.lay_out(&mut memory, &scene, threads);
        let body = move |cpu: &mut Cpu<'_>| Tracer::new(layout, locks).run(cpu);
        Workload::new("raytrace", threads, memory, Self::origin(), body).with_check(move |memory| {
            let (picture, rays) = plain::render(&scene, self.side);
            let found = layout.rays.at(memory, 0);
            if found != rays {
                return Err(format!(
                    "{found} rays were numbered; there should be {rays}"
                ));
            }
            for (pixel, right) in (0..).zip(&picture) {
                for (part, right) in (0..3).zip(right) {
                    let found = layout.picture.at(memory, pixel * 3 + part);
                    if found.to_bits() != right.to_bits() {
                        let (x, y) = (pixel % self.side, pixel / self.side);
                        return Err(format!(
                            "colour {part} of pixel ({x}, {y}) is {found}; it should be {right}"
                        ));
                    }
                }
            }
            Ok(())
        })
    }

    fn lay_out(self, memory: &mut Allocator, scene: &Scene, threads: usize) -> Layout {
        let across = self.side.div_ceil(self.tile);
        let tiles = across * across;
        let pools: Vec<u64> = (0..threads as u64)
            .flat_map(|thread| {
                let bound = |thread| tiles * thread / threads as u64;
                let mut line = [0; Word::PER_LINE as usize];
                line[..2].copy_from_slice(&[bound(thread), bound(thread + 1)]);
                line
            })
            .collect();
        Layout {
            side: self.side,
            tile: self.tile,
            pool_locks: memory.locks(threads as u32),
            ray_lock: memory.lock(),
            end: memory.barrier(threads),
            rays: memory.array(1),
            pools: memory.array_of(&pools),
            camera: memory.array_of(&scene.camera.to_words()),
            lights: memory.array_of(&scene.lights.concat()),
            voxels: Voxels::new(memory, &scene.grid),
            solids: Solids::new(memory, scene),
            picture: memory.array(self.side * self.side * 3),
        }
    }

    fn origin() -> Origin {
        Origin {
            program: "SPLASH-2 raytrace",
            stores: Some(0.17),
            shared_stores: Some(0.05),
            source: "recorded with 4 threads and a small input",
            differs: Some(
                "the share of shared stores in ours is 0.6%: the recorded one includes private \
                 data of a thread on the heap, such as its stack of rays; with the original's \
                 teapot and 4 threads 5.6% of the stores go to the heap or to globals, and 0.73% \
                 to lines that several threads touch",
            ),
        }
    }
}
