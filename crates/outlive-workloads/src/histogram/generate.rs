//! Pictures drawn with a seed: slopes of colour with noise on them, and flat places in between.

use crate::random::Random;

/// A 24-bit bitmap.
///
/// # Panics
/// If it has no points, or more than a bitmap can.
pub fn bmp(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let stride = (u64::from(width) * 3).next_multiple_of(4);
    let size = u32::try_from(stride * u64::from(height)).expect("a bitmap has up to 4 GiB");
    let mut file = Vec::with_capacity(54 + size as usize);
    file.extend_from_slice(b"BM");
    // Bytes in all, nothing, where the data begin; how long the next header is, width, height.
    for number in [size.saturating_add(54), 0, 54, 40, width, height] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    // One plane, 24 bits a point.
    file.extend_from_slice(&[1, 0, 24, 0]);
    // No compression, bytes of data, points a metre each way, no palette.
    for number in [0, size, 2835, 2835, 0, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    // The lowest row is the first.
    let rows = rows(width, height, seed);
    for row in rows.rchunks_exact(width as usize * 3) {
        for point in row.as_chunks::<3>().0 {
            file.extend(point.iter().rev());
        }
        // Padding of other bytes than 0, which must not be counted.
        file.resize(file.len() + stride as usize - row.len(), 0xEE);
    }
    file
}

/// A binary `PPM`.
///
/// # Panics
/// If it has no points.
pub fn ppm(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut file = format!("P6\n# seed {seed}\n{width} {height}\n255\n").into_bytes();
    file.append(&mut rows(width, height, seed));
    file
}

/// A binary `PGM`, of the picture's green.
///
/// # Panics
/// If it has no points.
pub fn pgm(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut file = format!("P5\n# seed {seed}\n{width} {height}\n255\n").into_bytes();
    file.extend(rows(width, height, seed).iter().skip(1).step_by(3));
    file
}

/// The points, row after row from the top: red, green, blue.
fn rows(width: u32, height: u32, seed: u64) -> Vec<u8> {
    assert!(width > 0 && height > 0, "a picture has points");
    let mut random = Random::new(seed);
    let mut points = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..u64::from(height) {
        for x in 0..u64::from(width) {
            // Every other square of 64 times 64 points is flat.
            let noise = match (x / 64 + y / 64) % 2 {
                0 => 0,
                _ => random.word() & 0x000F_0F0F,
            };
            let red = x * 240 / u64::from(width) + (noise & 15);
            let green = y * 240 / u64::from(height) + (noise >> 8 & 15);
            let blue = (x / 64 * 31 + y / 64 * 17) % 240 + (noise >> 16 & 15);
            points.extend([red as u8, green as u8, blue as u8]);
        }
    }
    points
}
