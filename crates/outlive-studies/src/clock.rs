//! The clock that all processes of one operating system read alike.

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Microseconds between two readings.
pub fn micros(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}
