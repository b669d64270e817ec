//! Clocks. All processes of one operating system read the same monotonic clock.

/// Returns the time of the monotonic clock in nanoseconds.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the microseconds between two readings of [`now`], in nanoseconds.
pub fn micros(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

/// Returns the processor time of the calling thread so far, in seconds.
pub fn thread_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

/// Returns the processor time of all threads of this process so far, in seconds.
pub fn process_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

/// Returns the processor time of all reaped children and of their reaped children, in seconds.
#[cfg(any(feature = "lupin", feature = "mpi", feature = "ray"))]
pub fn children_cpu_seconds() -> f64 {
    // SAFETY: `getrusage` writes to the given structure, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
