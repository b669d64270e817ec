//! The scene: a sphere with nine smaller ones on it, each with nine smaller ones, and so on, over a
//! floor with a pyramid. Additionally the colours that rays see of it.

use super::super::vector::{Vector, add, cross, dot, scale, sub, unit};
use super::grid::Grid;
use super::shape::{Form, Material, Primitive, Ray};

/// The colour of a ray that meets nothing.
pub(super) const BACKGROUND: Vector = [0.078, 0.361, 0.753];
/// The brightness of a surface without any light.
const AMBIENT: f64 = 0.15;
/// A ray that would contribute less is not followed.
pub(super) const FAINT: f64 = 0.02;
/// A ray that was reflected this many times is not reflected again.
pub(super) const DEEPEST: u32 = 4;

/// The view: the middle of a pixel is `corner + x * across + y * down`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Camera {
    eye: Vector,
    corner: Vector,
    across: Vector,
    down: Vector,
}

impl Camera {
    /// Words in shared memory.
    pub(super) const WORDS: u64 = 12;
    /// Instructions of [`ray`](Self::ray), counted as those of a primitive's test.
    pub(super) const RAY: u32 = 28;

    fn new(side: u64) -> Self {
        let (eye, at): (Vector, Vector) = ([2.1, -3.4, 1.7], [0.0, 0.0, 0.1]);
        let forward = unit(sub(at, eye));
        let right = unit(cross(forward, [0.0, 0.0, 1.0]));
        let below = cross(forward, right);
        let pixel = 0.9 / side as f64;
        let (across, down) = (scale(right, pixel), scale(below, pixel));
        let middle = (side as f64 - 1.0) / 2.0;
        Self {
            eye,
            corner: sub(sub(forward, scale(across, middle)), scale(down, middle)),
            across,
            down,
        }
    }

    /// Returns the ray through a pixel.
    pub(super) fn ray(&self, x: u64, y: u64) -> Ray {
        let toward = add(
            add(self.corner, scale(self.across, x as f64)),
            scale(self.down, y as f64),
        );
        Ray {
            from: self.eye,
            toward: unit(toward),
        }
    }

    pub(super) fn to_words(self) -> Vec<u64> {
        let numbers = [self.eye, self.corner, self.across, self.down].concat();
        numbers.into_iter().map(f64::to_bits).collect()
    }

    pub(super) fn from_words(words: [u64; Self::WORDS as usize]) -> Self {
        let n = words.map(f64::from_bits);
        Self {
            eye: [n[0], n[1], n[2]],
            corner: [n[3], n[4], n[5]],
            across: [n[6], n[7], n[8]],
            down: [n[9], n[10], n[11]],
        }
    }
}

/// The scene that is rendered.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) primitives: Vec<Primitive>,
    pub(super) materials: Vec<Material>,
    pub(super) lights: Vec<Vector>,
    pub(super) grid: Grid,
    pub(super) camera: Camera,
}

impl Scene {
    /// Builds the scene with spheres on spheres, `levels` deep, seen in `side` by `side` pixels.
    pub(super) fn new(levels: u32, side: u64) -> Self {
        let mut primitives = Vec::new();
        flake(
            &mut primitives,
            [0.0, 0.0, 0.0],
            0.5,
            [0.0, 0.0, 1.0],
            levels,
        );
        let spheres = primitives.len();
        let mut triangle = |material, a: Vector, b, c| {
            let form = Form::Triangle {
                corner: a,
                edges: [sub(b, a), sub(c, a)],
            };
            primitives.push(Primitive { form, material });
        };
        let floor = -0.5;
        let corners =
            [[-4.0, -4.0], [4.0, -4.0], [4.0, 4.0], [-4.0, 4.0]].map(|[x, y]| [x, y, floor]);
        triangle(2, corners[0], corners[1], corners[2]);
        triangle(2, corners[0], corners[2], corners[3]);
        let foot = [[0.9, -1.3], [1.4, -1.1], [1.2, -0.6], [0.7, -0.8]].map(|[x, y]| [x, y, floor]);
        for side in 0..4 {
            triangle(3, foot[side], foot[(side + 1) % 4], [1.05, -0.95, 0.1]);
        }
        let materials = vec![
            Material {
                colour: [1.0, 0.9, 0.7],
                mirror: 0.5,
            },
            Material {
                colour: [0.8, 0.5, 0.3],
                mirror: 0.3,
            },
            Material {
                colour: [0.6, 0.65, 0.6],
                mirror: 0.0,
            },
            Material {
                colour: [0.3, 0.4, 0.9],
                mirror: 0.1,
            },
        ];
        let side_of_grid = (1.5 * (spheres as f64).cbrt()) as u64 + 1;
        Self {
            grid: Grid::around(&primitives, side_of_grid),
            camera: Camera::new(side),
            lights: vec![[4.0, -3.0, 3.0], [-3.0, -4.0, 4.0]],
            primitives,
            materials,
        }
    }
}

fn flake(primitives: &mut Vec<Primitive>, centre: Vector, radius: f64, up: Vector, levels: u32) {
    primitives.push(Primitive {
        form: Form::Sphere { centre, radius },
        material: levels % 2,
    });
    if levels == 0 {
        return;
    }
    let other = if up[0].abs() < 0.7 {
        [1.0, 0.0, 0.0]
    } else {
        [0.0, 1.0, 0.0]
    };
    let right = unit(cross(up, other));
    let front = cross(up, right);
    for child in 0..9 {
        // Six around the middle, three above.
        let (around, height) = if child < 6 {
            (60.0 * f64::from(child), 0.0f64)
        } else {
            (120.0 * f64::from(child) + 30.0, 60.0)
        };
        let (sine, cosine) = around.to_radians().sin_cos();
        let (rise, width) = height.to_radians().sin_cos();
        let outward = add(
            add(scale(right, width * cosine), scale(front, width * sine)),
            scale(up, rise),
        );
        flake(
            primitives,
            add(centre, scale(outward, radius * 4.0 / 3.0)),
            radius / 3.0,
            outward,
            levels - 1,
        );
    }
}

/// Returns the ray from `point` to a light, and the light's distance. 10 instructions.
pub(super) fn toward(point: Vector, light: Vector) -> (Ray, f64) {
    let way = sub(light, point);
    let distance = dot(way, way).sqrt();
    let ray = Ray {
        from: point,
        toward: scale(way, 1.0 / distance),
    };
    (ray, distance)
}

/// Returns the colour of a surface without any light. 3 instructions.
pub(super) fn unlit(material: &Material) -> Vector {
    scale(material.colour, AMBIENT)
}

/// Returns the colour that a light adds to that. 15 instructions.
pub(super) fn lit(material: &Material, normal: Vector, toward: Vector) -> Vector {
    let brightness = 0.55 * dot(normal, toward).max(0.0);
    scale(material.colour, brightness)
}
