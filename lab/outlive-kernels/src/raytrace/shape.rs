//! Primitives of a scene, and their intersections with rays.

use super::super::vector::{Vector, add, cross, dot, scale, sub, unit};

/// The distance from a surface at which rays begin, so that they do not meet it again.
const CLEARANCE: f64 = 1e-6;

/// A point and a direction of length 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ray {
    pub(super) from: Vector,
    pub(super) toward: Vector,
}

impl Ray {
    /// Returns the point at `distance` along the ray.
    pub(super) fn at(&self, distance: f64) -> Vector {
        add(self.from, scale(self.toward, distance))
    }

    /// Returns the ray that a mirror with this normal reflects at `point`.
    pub(super) fn reflected(&self, point: Vector, normal: Vector) -> Self {
        let back = 2.0 * dot(self.toward, normal);
        Self {
            from: point,
            toward: unit(sub(self.toward, scale(normal, back))),
        }
    }
}

/// The form of a primitive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Sphere { centre: Vector, radius: f64 },
    Triangle { corner: Vector, edges: [Vector; 2] },
}

/// A primitive: a form of some material.
#[derive(Clone, Copy, Debug)]
pub(super) struct Primitive {
    pub(super) form: Form,
    pub(super) material: u32,
}

impl Form {
    /// The kinds of forms, as numbers.
    pub(super) const KINDS: [u64; 2] = [Self::SPHERE, Self::TRIANGLE];
    const SPHERE: u64 = 0;
    const TRIANGLE: u64 = 1;

    /// Returns its kind.
    pub(super) fn kind(&self) -> u64 {
        match self {
            Self::Sphere { .. } => Self::SPHERE,
            Self::Triangle { .. } => Self::TRIANGLE,
        }
    }

    /// Returns the number of numbers in a form of this kind.
    pub(super) fn count(kind: u64) -> usize {
        if kind == Self::SPHERE { 4 } else { 9 }
    }

    /// Instructions of [`meets`](Self::meets): one for each operation and each comparison with its
    /// branch.
    pub(super) fn effort(kind: u64) -> u32 {
        if kind == Self::SPHERE { 23 } else { 55 }
    }

    /// Returns its numbers.
    pub(super) fn numbers(&self) -> Vec<f64> {
        match *self {
            Self::Sphere { centre, radius } => [&centre[..], &[radius]].concat(),
            Self::Triangle { corner, edges } => [corner, edges[0], edges[1]].concat(),
        }
    }

    /// Builds a form from its kind and its numbers.
    pub(super) fn from_numbers(kind: u64, n: &[f64; 9]) -> Self {
        if kind == Self::SPHERE {
            Self::Sphere {
                centre: [n[0], n[1], n[2]],
                radius: n[3],
            }
        } else {
            Self::Triangle {
                corner: [n[0], n[1], n[2]],
                edges: [[n[3], n[4], n[5]], [n[6], n[7], n[8]]],
            }
        }
    }

    /// Returns the distance along the ray of its first intersection, if any.
    pub(super) fn meets(&self, ray: &Ray) -> Option<f64> {
        let distance = match *self {
            Self::Sphere { centre, radius } => {
                let to = sub(centre, ray.from);
                let along = dot(to, ray.toward);
                let square = along * along - (dot(to, to) - radius * radius);
                if square < 0.0 {
                    return None;
                }
                let half = square.sqrt();
                if along - half > CLEARANCE {
                    along - half
                } else {
                    along + half
                }
            }
            Self::Triangle { corner, edges } => {
                let across = cross(ray.toward, edges[1]);
                let volume = dot(edges[0], across);
                if volume == 0.0 {
                    return None;
                }
                let to = sub(ray.from, corner);
                let u = dot(to, across) / volume;
                let beside = cross(to, edges[0]);
                let v = dot(ray.toward, beside) / volume;
                if u < 0.0 || v < 0.0 || u + v > 1.0 {
                    return None;
                }
                dot(edges[1], beside) / volume
            }
        };
        (distance > CLEARANCE).then_some(distance)
    }

    /// Returns the normal of its surface at `point`, toward the ray's origin.
    pub(super) fn normal(&self, point: Vector, ray: &Ray) -> Vector {
        let out = match *self {
            Self::Sphere { centre, .. } => unit(sub(point, centre)),
            Self::Triangle { edges, .. } => unit(cross(edges[0], edges[1])),
        };
        if dot(out, ray.toward) > 0.0 {
            scale(out, -1.0)
        } else {
            out
        }
    }

    /// Returns the corners of a box around it.
    pub(super) fn bounds(&self) -> [Vector; 2] {
        match *self {
            Self::Sphere { centre, radius } => [sub(centre, [radius; 3]), add(centre, [radius; 3])],
            Self::Triangle { corner, edges } => {
                let others = [add(corner, edges[0]), add(corner, edges[1])];
                others.iter().fold([corner; 2], |[low, high], point| {
                    [
                        std::array::from_fn(|axis| low[axis].min(point[axis])),
                        std::array::from_fn(|axis| high[axis].max(point[axis])),
                    ]
                })
            }
        }
    }
}

/// The look of a surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Material {
    pub(super) colour: Vector,
    /// The share of the light that is mirrored, from 0 to 1.
    pub(super) mirror: f64,
}

impl Material {
    /// Words in shared memory; four of them are used.
    pub(super) const WORDS: u64 = 8;

    pub(super) fn to_words(self) -> [u64; 4] {
        let [r, g, b] = self.colour;
        [r, g, b, self.mirror].map(f64::to_bits)
    }

    pub(super) fn from_words(words: [u64; 4]) -> Self {
        let [r, g, b, mirror] = words.map(f64::from_bits);
        Self {
            colour: [r, g, b],
            mirror,
        }
    }
}
