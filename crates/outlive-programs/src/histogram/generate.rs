//! Pictures drawn with a seed: slopes of colour with noise on them, and flat places in between.

use outlive_run::random::Random;

/// Returns a 24-bit bitmap.
///
/// # Panics
/// If it has no points, or more than a bitmap can have.
pub fn bmp(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let points = rows(width, height, seed);
    let reversed = { points.as_chunks::<3>().0.iter() }.flat_map(|point| point.iter().rev());
    let points: Vec<u8> = reversed.copied().collect();
    bitmap((width, height), 24, 0, &[], &points)
}

/// Returns a bitmap of 32 bits a point with the same colours. `masks` are those of red, green and
/// blue; without any, the order is blue, green and red.
///
/// # Panics
/// Panics under the same conditions as [`bmp`].
pub fn bmp_of_32_bits(width: u32, height: u32, seed: u64, masks: Option<[u32; 3]>) -> Vec<u8> {
    let shifts = masks
        .unwrap_or([0x00FF_0000, 0xFF00, 0xFF])
        .map(u32::trailing_zeros);
    let mut points = Vec::new();
    for point in rows(width, height, seed).as_chunks::<3>().0 {
        let colours = point.iter().zip(shifts);
        let word = colours.fold(0, |word, (value, shift)| word | u32::from(*value) << shift);
        points.extend(word.to_le_bytes());
    }
    let masks: Vec<u8> = masks
        .iter()
        .flatten()
        .flat_map(|mask| mask.to_le_bytes())
        .collect();
    let compression = if masks.is_empty() { 0 } else { 3 };
    bitmap((width, height), 32, compression, &masks, &points)
}

/// Returns a bitmap of 8 bits a point: each is the number of a colour, the value of the same point
/// of the [`pgm`]. `palette` gives blue, green and red of each.
///
/// # Panics
/// Panics under the same conditions as [`bmp`].
pub fn bmp_of_8_bits(
    width: u32,
    height: u32,
    seed: u64,
    palette: impl Fn(u8) -> [u8; 3],
) -> Vec<u8> {
    let points: Vec<u8> = greens(width, height, seed).collect();
    let colours = (0..=255).flat_map(|number| {
        let [blue, green, red] = palette(number);
        [blue, green, red, 0]
    });
    let colours: Vec<u8> = colours.collect();
    bitmap((width, height), 8, 0, &colours, &points)
}

/// Returns a bitmap with `between` after its header, and `points`, row after row from the top.
fn bitmap(
    (width, height): (u32, u32),
    bits: u16,
    compression: u32,
    between: &[u8],
    points: &[u8],
) -> Vec<u8> {
    let row = width as usize * usize::from(bits / 8);
    let stride = row.next_multiple_of(4);
    let size = stride as u64 * u64::from(height);
    let size = u32::try_from(size).expect("a bitmap has up to 4 GiB");
    let start = 54 + between.len() as u32;
    let mut file = Vec::with_capacity(start as usize + size as usize);
    file.extend_from_slice(b"BM");
    // Bytes in all, unused, start of the data; length of the next header, width, height.
    for number in [size.saturating_add(start), 0, start, 40, width, height] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    // One plane, bits a point.
    file.extend_from_slice(&[1, 0, bits as u8, 0]);
    // Compression, bytes of data, points a metre each way, the maximum of colours.
    for number in [compression, size, 2835, 2835, 0, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(between);
    // The lowest row is the first.
    for row in points.rchunks_exact(row) {
        file.extend_from_slice(row);
        // Padding of other bytes than 0, which must not be counted.
        file.resize(file.len() + stride - row.len(), 0xEE);
    }
    file
}

/// Returns a binary `PPM`.
///
/// # Panics
/// If it has no points.
pub fn ppm(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut file = format!("P6\n# seed {seed}\n{width} {height}\n255\n").into_bytes();
    file.append(&mut rows(width, height, seed));
    file
}

/// Returns a binary `PGM` of the picture's green.
///
/// # Panics
/// If it has no points.
pub fn pgm(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut file = format!("P5\n# seed {seed}\n{width} {height}\n255\n").into_bytes();
    file.extend(greens(width, height, seed));
    file
}

/// Returns the green of the points.
fn greens(width: u32, height: u32, seed: u64) -> impl Iterator<Item = u8> {
    rows(width, height, seed).into_iter().skip(1).step_by(3)
}

/// Returns the points, row after row from the top: red, green, blue.
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
