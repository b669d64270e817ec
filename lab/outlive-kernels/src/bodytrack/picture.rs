//! Pictures: a word has eight pixels of one byte. Finds edges, and draws the cameras' pictures of a
//! walking body.

use super::body::{Camera, POSE, Pose, place};
use outlive_machine::engine::Random;

/// Pixels in a word.
pub(super) const PER_WORD: u64 = 8;
/// Changes of brightness up to this are not edges.
const THRESHOLD: u32 = 40;

/// The size of pictures: the width is a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u64,
    pub(super) height: u64,
}

impl Size {
    /// Words of a row.
    pub(super) fn row(self) -> u64 {
        self.width / PER_WORD
    }

    /// Words of a picture.
    pub(super) fn words(self) -> u64 {
        self.row() * self.height
    }

    /// Returns the pixel of a point, if it is in the picture.
    pub(super) fn pixel(self, [x, y]: [f64; 2]) -> Option<(u64, u64)> {
        let inside = |at: f64, end: u64| (at >= 0.0 && at < end as f64).then_some(at as u64);
        Some((inside(x + 0.5, self.width)?, inside(y + 0.5, self.height)?))
    }
}

/// Returns white if a pixel is at an edge, judged from its four neighbours, and black otherwise.
pub(super) fn edge(left: u8, right: u8, above: u8, below: u8) -> u8 {
    let change = u32::from(left.abs_diff(right)) + u32::from(above.abs_diff(below));
    if change > THRESHOLD { 255 } else { 0 }
}

/// Returns the mean of five pixels in a row or column, with higher weights for the nearer ones.
pub(super) fn blur([a, b, c, d, e]: [u8; 5]) -> u8 {
    let [a, b, c, d, e] = [a, b, c, d, e].map(u32::from);
    ((a + e + 4 * (b + d) + 6 * c) / 16) as u8
}

/// Returns the penalty of a point of an edge, from the blurred edges there.
pub(super) fn edge_penalty(shown: u8) -> u64 {
    let missing = u64::from(255 - shown);
    missing * missing
}

/// Returns the penalty of a point inside, from the foreground there.
pub(super) fn inside_penalty(shown: u8) -> u64 {
    u64::from(shown == 0)
}

/// Returns the distance of a pose from the pictures, from the sum and the number of points of each
/// penalty.
pub(super) fn distance(edges: (u64, u64), inside: (u64, u64)) -> f64 {
    let mean = |(sum, points): (u64, u64)| sum as f64 / points.max(1) as f64;
    mean(edges) / (255.0 * 255.0) + mean(inside)
}

/// Returns the pose of the walking body in a frame.
pub(super) fn walk(frame: u32) -> Pose {
    let phase = f64::from(frame) * 0.25 + 0.4;
    let swing = phase.sin();
    let mut pose = [0.0; POSE];
    (pose[0], pose[2]) = (0.02 * f64::from(frame), 0.03 * f64::from(frame));
    (pose[4], pose[6]) = (0.3 + 0.02 * f64::from(frame), 0.1 * swing);
    (pose[8], pose[10], pose[11]) = (0.5 * swing, 0.25, 0.5);
    (pose[12], pose[14], pose[15]) = (-0.5 * swing, -0.25, 0.6);
    (pose[16], pose[18], pose[19]) = (-0.4 * swing, 0.05, -0.3);
    (pose[20], pose[22], pose[23]) = (0.4 * swing, -0.05, -0.4);
    pose
}

/// Returns a camera's picture as words: the brightness, and the foreground (the body is white).
pub(super) fn take(camera: &Camera, size: Size, pose: &Pose, random: &mut Random) -> [Vec<u64>; 2] {
    let outlines = place(pose).map(|limb| camera.project(&limb));
    let mut pictures = [Vec::new(), Vec::new()];
    for y in 0..size.height {
        for word in 0..size.row() {
            let mut bytes = [[0; 8]; 2];
            for (place, x) in (word * PER_WORD..(word + 1) * PER_WORD).enumerate() {
                let point = [x as f64, y as f64];
                let limb = outlines.iter().position(|outline| outline.contains(point));
                let noise = random.below(12) as u8;
                bytes[0][place] = limb.map_or(40, |limb| 140 + 7 * limb as u8) + noise;
                bytes[1][place] = if limb.is_some() { 255 } else { 0 };
            }
            for (picture, bytes) in pictures.iter_mut().zip(bytes) {
                picture.push(u64::from_le_bytes(bytes));
            }
        }
    }
    pictures
}
