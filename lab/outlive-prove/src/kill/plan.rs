//! How much of a sweep to do.

/// How many of a number of things to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All of them.
    Every,
    /// All of them if they are no more than this many, otherwise this many, spread evenly, the first
    /// and the last among them.
    UpTo(u64),
}

impl Sample {
    /// None of them.
    pub const NONE: Self = Self::UpTo(0);

    /// Which of `0..count` to take, in order.
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

/// How much of a [real sweep](super::RealSweep) to do: there each kill costs a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RealPlan {
    /// After which of the operation's instructions a victim is killed.
    pub kills: Sample,
    /// At which of the places where it enters or leaves a system call.
    pub call_kills: Sample,
    /// For which of the kills after an instruction the recovery is swept in turn.
    pub recoveries: Sample,
    /// After which of the instructions of each such recovery the recoverer is killed.
    pub second_kills: Sample,
}

/// How much of a sweep to do. The image after each instruction is always recovered; a plan chooses how
/// much is done beyond that.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// After how many instructions an operation or recovery is taken never to end.
    pub most_instructions: u64,
    /// How many seconds one stepped or real run may take.
    pub patience: u32,
    /// How many seconds one survivor may take to recover and check one image.
    pub recovery_patience: u32,
    /// After which of the instructions of an operation that is swept by images victims are really
    /// killed, to see that they leave these images.
    pub real_kills: Sample,
    /// From which of the images, as far as their memory differs, the recovery is swept in turn.
    pub recoveries: Sample,
    /// How much to do where every kill is a real one.
    pub real: RealPlan,
    /// At how many failures to stop.
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

    /// A real kill after every instruction, and the recovery of every image swept. (A string instruction is stepped
    /// through round by round; where its rounds leave the shared memory as it is, victims die in the first and the last.) Where each kill costs a
    /// pod and three processes ([`RealSweep`](super::RealSweep)), kills and second kills are spread
    /// evenly over the instructions instead, besides those after each crash point and at each system call;
    /// the report says what share that is.
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
