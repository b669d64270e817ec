//! The extent of a sweep.

/// The number of items to take from a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All of them.
    Every,
    /// At most this many, spread evenly from the first to the last; a single one is the last.
    UpTo(u64),
}

impl Sample {
    /// None of them.
    pub const NONE: Self = Self::UpTo(0);

    /// Returns the chosen ones of `0..count`, in order.
    pub(super) fn of(self, count: u64) -> impl Iterator<Item = u64> {
        let take = match self {
            Self::Every => count,
            Self::UpTo(most) => most.min(count),
        };
        (0..take).map(move |index| match take {
            1 => count - 1,
            _ => (u128::from(index) * u128::from(count - 1) / u128::from(take - 1)) as u64,
        })
    }
}

/// The extent of a [real sweep](super::RealSweep), in which each kill costs a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RealPlan {
    /// The instructions of the operation after which a victim is killed.
    pub kills: Sample,
    /// The entries to and exits from system calls at which a victim is killed.
    pub call_kills: Sample,
    /// The kills after an instruction for which the recovery is swept in turn.
    pub recoveries: Sample,
    /// The instructions of each such recovery after which the recoverer is killed.
    pub second_kills: Sample,
}

/// The extent of a sweep, in addition to the recovery of the image after each instruction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The number of instructions after which an operation or recovery is assumed never to end.
    pub most_instructions: u64,
    /// The maximum duration of one stepped or real run, in seconds.
    pub patience: u32,
    /// The maximum time of one survivor to recover and check one image, in seconds.
    pub recovery_patience: u32,
    /// The instructions of an operation swept by images after which victims are really killed, to
    /// check that they leave these images.
    pub real_kills: Sample,
    /// The images, of those with different memory, from which the recovery is swept in turn.
    pub recoveries: Sample,
    /// The extent where every kill is a real one.
    pub real: RealPlan,
    /// The number of failures at which the sweep stops.
    pub most_failures: usize,
}

impl Plan {
    /// For the test suite: a second or so for an operation of a thousand instructions.
    pub fn quick() -> Self {
        Self {
            most_instructions: 1 << 20,
            patience: 60,
            recovery_patience: 10,
            real_kills: Sample::UpTo(8),
            recoveries: Sample::UpTo(12),
            real: RealPlan {
                kills: Sample::UpTo(48),
                call_kills: Sample::UpTo(64),
                recoveries: Sample::UpTo(3),
                second_kills: Sample::UpTo(6),
            },
            most_failures: 8,
        }
    }

    /// A real kill after every instruction, and the recovery of every image swept. (A string
    /// instruction is stepped round by round; if its rounds leave the shared memory unchanged,
    /// victims die in the first and the last.) Where each kill costs a pod and three processes
    /// ([`RealSweep`](super::RealSweep)), kills and second kills are spread evenly over the
    /// instructions instead, in addition to those after each crash point and at each system call;
    /// the report gives the share.
    pub fn full() -> Self {
        Self {
            most_instructions: 1 << 24,
            patience: 600,
            recovery_patience: 30,
            real_kills: Sample::Every,
            recoveries: Sample::Every,
            real: RealPlan {
                kills: Sample::UpTo(8_000),
                call_kills: Sample::Every,
                recoveries: Sample::UpTo(32),
                second_kills: Sample::UpTo(32),
            },
            most_failures: 32,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::quick()
    }
}
