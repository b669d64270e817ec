//! A body: ten limbs with joints, and their projections to cameras.

use super::super::vector::{Vector, add, cross, dot, scale, sub, unit};

/// Numbers of a pose: the body's position (3), its rotation (3), and the angles of its joints.
pub(super) const POSE: usize = 24;
/// All numbers of a pose.
pub(super) type Pose = [f64; POSE];

/// Limbs of a body.
pub(super) const LIMBS: usize = 10;

/// A limb: it begins at a joint of another one and is turned by angles of the pose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limb {
    /// The limb that it is joined to, if it is not the trunk.
    pub(super) parent: Option<usize>,
    /// Its beginning in the parent's coordinates, and its end in its own.
    joint: Vector,
    end: Vector,
    /// Half its width at its beginning and end.
    radii: [f64; 2],
    /// Its angles in the pose: the first, and their number (about the first axes).
    angles: (usize, usize),
}

const fn limb(
    parent: usize,
    joint: Vector,
    length: f64,
    radii: [f64; 2],
    angles: (usize, usize),
) -> Limb {
    Limb {
        parent: Some(parent),
        joint,
        end: [0.0, -length, 0.0],
        radii,
        angles,
    }
}

/// The body: trunk, head, two arms, two legs. In metres; y is up.
pub(super) const BODY: [Limb; LIMBS] = [
    Limb {
        parent: None,
        joint: [0.0; 3],
        end: [0.0, 0.5, 0.0],
        radii: [0.14, 0.18],
        angles: (3, 3),
    },
    Limb {
        parent: Some(0),
        joint: [0.0, 0.56, 0.0],
        end: [0.0, 0.24, 0.0],
        radii: [0.09, 0.09],
        angles: (6, 2),
    },
    limb(0, [0.22, 0.48, 0.0], 0.3, [0.055, 0.045], (8, 3)),
    limb(2, [0.0, -0.3, 0.0], 0.28, [0.045, 0.035], (11, 1)),
    limb(0, [-0.22, 0.48, 0.0], 0.3, [0.055, 0.045], (12, 3)),
    limb(4, [0.0, -0.3, 0.0], 0.28, [0.045, 0.035], (15, 1)),
    limb(0, [0.1, 0.0, 0.0], 0.42, [0.085, 0.065], (16, 3)),
    limb(6, [0.0, -0.42, 0.0], 0.42, [0.06, 0.04], (19, 1)),
    limb(0, [-0.1, 0.0, 0.0], 0.42, [0.085, 0.065], (20, 3)),
    limb(8, [0.0, -0.42, 0.0], 0.42, [0.06, 0.04], (23, 1)),
];

/// The rotation of a limb, and the positions of its beginning and end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    axes: [Vector; 3],
    ends: [Vector; 2],
    radii: [f64; 2],
}

impl Limb {
    /// Instructions of [`place`](Self::place): up to three turns of two axes each with a sine and a
    /// cosine, and three changes of coordinates.
    pub(super) const PLACE: u32 = 140;

    /// Returns the limb's position, given its parent's.
    pub(super) fn place(&self, parent: Option<&Placed>, pose: &Pose) -> Placed {
        let (mut axes, start) = match parent {
            Some(parent) => (
                parent.axes,
                add(parent.ends[0], outward(&parent.axes, self.joint)),
            ),
            None => (
                [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                [pose[0], pose[1], pose[2]],
            ),
        };
        let (first, count) = self.angles;
        for (axis, angle) in pose[first..first + count].iter().enumerate() {
            let (sine, cosine) = angle.sin_cos();
            let [one, other] = [(axis + 1) % 3, (axis + 2) % 3];
            let (a, b) = (axes[one], axes[other]);
            axes[one] = add(scale(a, cosine), scale(b, sine));
            axes[other] = sub(scale(b, cosine), scale(a, sine));
        }
        Placed {
            axes,
            ends: [start, add(start, outward(&axes, self.end))],
            radii: self.radii,
        }
    }
}

/// Places all limbs.
pub(super) fn place(pose: &Pose) -> [Placed; LIMBS] {
    let mut placed: [Option<Placed>; LIMBS] = [None; LIMBS];
    for (number, limb) in BODY.iter().enumerate() {
        let parent = limb.parent.and_then(|parent| placed[parent]);
        placed[number] = Some(limb.place(parent.as_ref(), pose));
    }
    placed.map(|limb| limb.expect("each was placed"))
}

fn outward(axes: &[Vector; 3], along: Vector) -> Vector {
    add(
        add(scale(axes[0], along[0]), scale(axes[1], along[1])),
        scale(axes[2], along[2]),
    )
}

/// A camera: its position, its axes (to the right, down, ahead), and pixels per unit at distance 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Camera {
    eye: Vector,
    axes: [Vector; 3],
    focus: f64,
    middle: [f64; 2],
}

impl Camera {
    /// Words in shared memory.
    pub(super) const WORDS: u64 = 15;
    /// Instructions of [`project`](Self::project).
    pub(super) const PROJECT: u32 = 70;

    /// Returns one of `cameras` in a circle around the origin, with pictures of this size.
    pub(super) fn new(number: u64, cameras: u64, width: u64, height: u64) -> Self {
        let (sine, cosine) =
            (number as f64 / cameras as f64 * std::f64::consts::TAU + 0.3).sin_cos();
        let eye = [4.0 * sine, 1.0, 4.0 * cosine];
        let ahead = unit(scale(eye, -1.0));
        let right = unit(cross(ahead, [0.0, 1.0, 0.0]));
        Self {
            eye,
            axes: [right, cross(ahead, right), ahead],
            focus: 1.5 * height as f64,
            middle: [width as f64 / 2.0, height as f64 / 2.0],
        }
    }

    /// Returns the outline of a limb in the picture.
    pub(super) fn project(&self, limb: &Placed) -> Outline {
        let seen = limb.ends.map(|end| {
            let way = sub(end, self.eye);
            let [right, down, ahead] = self.axes.map(|axis| dot(axis, way));
            let scale = self.focus / ahead.max(0.1);
            (
                [
                    self.middle[0] + right * scale,
                    self.middle[1] + down * scale,
                ],
                scale,
            )
        });
        let [(from, near), (to, far)] = seen;
        let along = [to[0] - from[0], to[1] - from[1]];
        let length = (along[0] * along[0] + along[1] * along[1]).sqrt().max(1e-6);
        let across = [-along[1] / length, along[0] / length];
        let beside = |at: [f64; 2], by: f64| [at[0] + across[0] * by, at[1] + across[1] * by];
        let widths = [limb.radii[0] * near, limb.radii[1] * far];
        Outline {
            sides: [
                [beside(from, widths[0]), beside(to, widths[1])],
                [beside(from, -widths[0]), beside(to, -widths[1])],
            ],
        }
    }

    pub(super) fn to_words(self) -> Vec<u64> {
        let axes = self.axes.concat();
        let numbers = [&self.eye[..], &axes, &[self.focus], &self.middle].concat();
        numbers.into_iter().map(f64::to_bits).collect()
    }

    pub(super) fn from_words(words: [u64; Self::WORDS as usize]) -> Self {
        let n = words.map(f64::from_bits);
        Self {
            eye: [n[0], n[1], n[2]],
            axes: [[n[3], n[4], n[5]], [n[6], n[7], n[8]], [n[9], n[10], n[11]]],
            focus: n[12],
            middle: [n[13], n[14]],
        }
    }
}

/// The outline of a limb: two sides, each from the limb's beginning to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    pub(super) sides: [[[f64; 2]; 2]; 2],
}

/// Pixels between the points that are compared, along a limb's edge and inside.
const EDGE_GAP: f64 = 5.0;
const INSIDE_GAP: f64 = 8.0;

impl Outline {
    /// Returns the points along a side.
    pub(super) fn edge(&self, side: usize) -> impl Iterator<Item = [f64; 2]> {
        let [from, to] = self.sides[side];
        let steps = steps(from, to, EDGE_GAP);
        (0..=steps).map(move |step| between(from, to, f64::from(step) / f64::from(steps)))
    }

    /// Returns the points in the middle, row by row.
    pub(super) fn inside(&self) -> impl Iterator<Item = [f64; 2]> {
        let [one, other] = self.sides;
        let rows = steps(one[0], one[1], INSIDE_GAP);
        let columns = steps(
            between(one[0], one[1], 0.5),
            between(other[0], other[1], 0.5),
            INSIDE_GAP,
        );
        (0..=rows).flat_map(move |row| {
            let row = f64::from(row) / f64::from(rows);
            let (from, to) = (
                between(one[0], one[1], row),
                between(other[0], other[1], row),
            );
            (0..columns).map(move |column| {
                between(from, to, (f64::from(column) + 0.5) / f64::from(columns))
            })
        })
    }

    /// Returns whether a point is in it.
    pub(super) fn contains(&self, point: [f64; 2]) -> bool {
        let [[a, b], [d, c]] = self.sides;
        let corners = [a, b, c, d];
        let turns = (0..4).map(|corner| {
            let (from, to) = (corners[corner], corners[(corner + 1) % 4]);
            (to[0] - from[0]) * (point[1] - from[1]) - (to[1] - from[1]) * (point[0] - from[0])
                > 0.0
        });
        let left = turns.filter(|left| *left).count();
        left == 0 || left == 4
    }
}

fn steps(from: [f64; 2], to: [f64; 2], gap: f64) -> u32 {
    let (x, y) = (to[0] - from[0], to[1] - from[1]);
    (((x * x + y * y).sqrt() / gap + 0.5) as u32).clamp(4, 64)
}

fn between(from: [f64; 2], to: [f64; 2], part: f64) -> [f64; 2] {
    [
        from[0] + (to[0] - from[0]) * part,
        from[1] + (to[1] - from[1]) * part,
    ]
}
