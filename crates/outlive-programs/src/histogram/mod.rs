//! Histogram: the number of occurrences of each byte value in a picture's channels, or in any data
//! (one of LUPIN's MapReduce programs; Phoenix's counts the three channels of a 24-bit bitmap).
//!
//! * [`Layout`] describes the bytes that count: in a bitmap (`BMP` of 8, 24 or 32 bits), in a `PPM`
//!   or `PGM` of one byte a value, or all bytes. The padding after a bitmap's rows does not count,
//!   nor does alpha.
//! * [`kernel::count`] is the work of a task: it counts any stretch of the data, wherever it is
//!   cut. [`Bins::merge`] adds counts, in any order.
//! * [`Counting`] is the program of tasks; each host reads the file itself.
//! * [`count`] is the plain program, with one thread; [`verify`](verify::verify) counts in another
//!   way.
//!
//! ```
//! use outlive_programs::histogram::{self, Format, Layout};
//!
//! // One red point and one violet one.
//! let picture = b"P6 2 1 255\n\xff\x00\x00\xff\x00\xff";
//! let layout = Layout::find(picture, Format::Any)?;
//! let bins = histogram::count(picture, &layout);
//! assert_eq!(layout.channels(), ["red", "green", "blue"]);
//! assert_eq!((bins.of(0)[255], bins.of(2)[0], bins.of(2)[255]), (2, 1, 1));
//! histogram::verify::verify(picture, &layout, &bins)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bitmap;
mod compressed;
pub mod generate;
pub mod kernel;
mod layout;
mod on_tasks;
pub mod verify;

pub use layout::{Format, FormatError, Layout};
pub use on_tasks::{Counting, OpenError, count_part};

/// The maximum number of channels of data.
pub const CHANNELS: usize = 3;

/// The count of each value in each channel, the channels in their order in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    counts: [[u64; 256]; CHANNELS],
}

impl Default for Bins {
    fn default() -> Self {
        Self {
            counts: [[0; 256]; CHANNELS],
        }
    }
}

impl Bins {
    /// Returns the counts of the values in channel `channel` of [`Layout::channels`].
    ///
    /// # Panics
    /// If it is not below [`CHANNELS`].
    pub fn of(&self, channel: usize) -> &[u64; 256] {
        &self.counts[channel]
    }

    /// Returns all counts.
    pub fn counts(&self) -> &[[u64; 256]; CHANNELS] {
        &self.counts
    }

    /// Returns all counts.
    pub fn counts_mut(&mut self) -> &mut [[u64; 256]; CHANNELS] {
        &mut self.counts
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &Self) {
        let all = other.counts.as_flattened();
        for (count, more) in self.counts.as_flattened_mut().iter_mut().zip(all) {
            *count += more;
        }
    }

    /// Returns the number of counted values.
    pub fn total(&self) -> u64 {
        self.counts.as_flattened().iter().sum()
    }
}

/// Counts the values of `file` by `layout` with one thread, in ordinary memory.
///
/// # Panics
/// If `layout` is of a longer file.
pub fn count(file: &[u8], layout: &Layout) -> Bins {
    let mut bins = Bins::default();
    kernel::count(&file[layout.data()], 0, layout, &mut bins);
    layout.of_channels(bins)
}
