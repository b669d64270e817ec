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

/// Returns the processor time of all threads of a process so far, in seconds.
pub fn cpu_seconds_of(process: rustix::process::Pid) -> std::io::Result<f64> {
    let mut clock = 0;
    // SAFETY: the call writes the clock's id, if it succeeds.
    let errno =
        unsafe { libc::clock_getcpuclockid(process.as_raw_nonzero().get(), &raw mut clock) };
    if errno != 0 {
        return Err(std::io::Error::from_raw_os_error(errno));
    }
    let mut spent = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to the given structure.
    match unsafe { libc::clock_gettime(clock, &raw mut spent) } {
        0 => Ok(spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the processor time of all reaped children and of their reaped children, in seconds.
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
