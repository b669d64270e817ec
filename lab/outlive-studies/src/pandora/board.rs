//! Shared memory in which the compute servers of a run find their times, and leave the times of
//! their commits.
//!
//! ```text
//! 0   start and end of the run on the monotonic clock, in nanoseconds; 0 before they are set
//! 16  the process id of the server that is killed; 0 if none is
//! 64  a lane for each server: number of commits, time of the first stolen latch, numbers of stolen
//!     latches, of aborted attempts and of accesses that stalled; then, from byte 64 of the lane on,
//!     the times of the commits
//! ```

use crate::scratch::{ScratchPod, payload};
use crate::{StudyError, clock};
use outlive::membership::Settings;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive_store::protocol::Counts;
use std::path::Path;
use std::time::Duration;

const START: u64 = 0;
const END: u64 = 8;
const VICTIM: u64 = 16;
const LANES: u64 = 64;

const COMMITS: u64 = 0;
const FIRST_STOLEN: u64 = 8;
const STOLEN: u64 = 16;
const ABORTED: u64 = 24;
const STALLED: u64 = 32;
const TIMES: u64 = 64;

/// The number of commits of which a lane keeps the times.
const MOST_COMMITS: u64 = 1 << 21;
const LANE: u64 = TIMES + MOST_COMMITS * 8;
/// The number of servers of a run.
const SERVERS: u64 = 4;
/// How long a waiting server sleeps.
const NAP: Duration = Duration::from_micros(100);

/// The board, as a process of the run sees it.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    memory: Native,
    at: Offset,
}

/// The lane of a server.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    memory: Native,
    at: Offset,
}

/// The contents of a server's lane.
#[derive(Clone, Debug)]
pub struct Left {
    /// The times of its commits in nanoseconds, in order.
    pub times: Vec<u64>,
    /// The time of its first stolen latch.
    pub first_stolen: Option<u64>,
    pub stolen: u64,
    pub aborted: u64,
    pub stalled: u64,
}

impl Board {
    /// Creates the pod of a board.
    pub fn create() -> Result<ScratchPod, StudyError> {
        ScratchPod::of_ids(LANES + SERVERS * LANE + (4 << 20), Settings::default(), 16)
    }

    pub fn of(pod: &Pod) -> Self {
        Self {
            memory: pod.segment().memory(),
            at: payload(pod),
        }
    }

    pub fn open(path: &Path) -> Result<Self, StudyError> {
        Ok(Self::of(&Pod::open(path)?))
    }

    pub fn lane(self, server: u64) -> Lane {
        assert!(server < SERVERS, "a board has {SERVERS} lanes");
        Lane {
            memory: self.memory,
            at: self.at + LANES + server * LANE,
        }
    }

    /// Clears the board for the next run.
    pub fn clear(self) {
        for at in [START, END, VICTIM] {
            self.memory.store(self.at + at, 0u64, Ordering::Relaxed);
        }
        for server in 0..SERVERS {
            let lane = self.lane(server);
            for at in [COMMITS, FIRST_STOLEN, STOLEN, ABORTED, STALLED] {
                lane.memory.store(lane.at + at, 0u64, Ordering::Relaxed);
            }
        }
    }

    /// Sets the times of the run, and the process id of the server that will be killed. The servers
    /// begin.
    pub fn start(self, start: u64, end: u64, victim: Option<u16>) {
        let victim = u64::from(victim.unwrap_or(0));
        self.memory
            .store(self.at + VICTIM, victim, Ordering::Relaxed);
        self.memory.store(self.at + END, end, Ordering::Relaxed);
        // Release: publishes the others.
        self.memory.store(self.at + START, start, Ordering::Release);
    }

    /// Waits until the run begins. Returns its start and end.
    pub fn await_start(self) -> (u64, u64) {
        loop {
            let start: u64 = self.memory.load(self.at + START, Ordering::Acquire);
            if start != 0 && clock::now() >= start {
                return (start, self.memory.load(self.at + END, Ordering::Relaxed));
            }
            std::thread::sleep(NAP);
        }
    }

    /// The process id of the server that is killed, once the run has begun.
    pub fn victim(self) -> u16 {
        let victim: u64 = self.memory.load(self.at + VICTIM, Ordering::Relaxed);
        victim as u16
    }
}

impl Lane {
    fn load(self, at: u64) -> u64 {
        self.memory.load(self.at + at, Ordering::Acquire)
    }

    /// Adds a commit at `time`. Those for which there is no space are counted only.
    pub fn commit(self, time: u64) {
        let number: u64 = self.memory.load(self.at + COMMITS, Ordering::Relaxed);
        if number < MOST_COMMITS {
            let at = self.at + TIMES + number * 8;
            self.memory.store(at, time, Ordering::Relaxed);
        }
        // Release: publishes the time. Only this server writes to the lane.
        self.memory
            .store(self.at + COMMITS, number + 1, Ordering::Release);
    }

    /// Notes the counts of the worker. `time` is that of the first stolen latch, if there is one.
    pub fn note(self, counts: Counts, time: u64) {
        if counts.stolen > 0 && self.load(FIRST_STOLEN) == 0 {
            self.memory
                .store(self.at + FIRST_STOLEN, time, Ordering::Release);
        }
        let aborted = counts.latched + counts.changed + counts.torn + counts.interrupted;
        for (at, count) in [
            (STOLEN, counts.stolen),
            (ABORTED, aborted),
            (STALLED, counts.stalled),
        ] {
            self.memory.store(self.at + at, count, Ordering::Relaxed);
        }
    }

    /// Returns the contents of the lane.
    ///
    /// # Errors
    /// If it has committed more often than the lane has space for.
    pub fn left(self) -> Result<Left, StudyError> {
        let commits = self.load(COMMITS);
        if commits > MOST_COMMITS {
            return Err(StudyError::void(format!(
                "a server has committed {commits} transactions, and the times of {MOST_COMMITS} \
                 are kept"
            )));
        }
        let time = |number: u64| {
            let at = self.at + TIMES + number * 8;
            self.memory.load::<u64>(at, Ordering::Relaxed)
        };
        let first_stolen = self.load(FIRST_STOLEN);
        Ok(Left {
            times: (0..commits).map(time).collect(),
            first_stolen: (first_stolen > 0).then_some(first_stolen),
            stolen: self.load(STOLEN),
            aborted: self.load(ABORTED),
            stalled: self.load(STALLED),
        })
    }
}
