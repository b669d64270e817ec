//! A processor of its own for each compute server of a run, so that a server that is left does not
//! receive the processor time of one that was killed.
//!
//! This is the cap that an unprivileged process has on any Linux. (`cpu.max` of a control group
//! needs its controller and the right to make groups, and stops a server that has used its share
//! until the next period: gaps of its own.)

use super::failover::SERVERS;
use crate::StudyError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of the compute servers.
#[derive(Clone, Copy, Debug)]
pub struct Caps([usize; SERVERS as usize]);

impl Caps {
    /// Chooses a processor for each server. `None` if this process may use fewer.
    pub fn choose() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut processors = (0..CpuSet::MAX_CPU).filter(|it| allowed.is_set(*it));
        let mut chosen = [0; SERVERS as usize];
        for processor in &mut chosen {
            *processor = processors.next()?;
        }
        Some(Self(chosen))
    }

    /// The processor of the server with this lane. A standby has that of the server that it
    /// replaces, which is the last one.
    pub fn of(&self, lane: u64) -> usize {
        self.0[lane.min(SERVERS - 1) as usize]
    }

    /// The words about the caps in a case.
    pub fn describe(caps: Option<Self>) -> &'static str {
        match caps {
            Some(_) => "each on a processor of its own",
            None => "not capped for lack of processors",
        }
    }
}

/// Keeps this thread, and those that it starts, on a processor.
pub fn keep_on(processor: usize) -> Result<(), StudyError> {
    let mut here = CpuSet::new();
    here.set(processor);
    sched_setaffinity(None, &here)
        .map_err(|errno| StudyError::io("choosing a processor")(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_has_the_processor_of_the_last_server() {
        let caps = Caps([3, 5]);
        assert_eq!([0, 1, 2].map(|lane| caps.of(lane)), [3, 5, 5]);
    }

    #[test]
    fn a_thread_is_kept_on_the_processor() {
        let Some(caps) = Caps::choose() else {
            return;
        };
        assert_ne!(caps.of(0), caps.of(1));
        // The affinity of another thread does not change.
        let kept = std::thread::spawn(move || {
            keep_on(caps.of(1)).unwrap();
            let now = sched_getaffinity(None).unwrap();
            (now.count(), now.is_set(caps.of(1)))
        });
        assert_eq!(kept.join().unwrap(), (1, true));
    }
}
