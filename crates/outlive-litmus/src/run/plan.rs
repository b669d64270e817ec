//! The choices of a client.

use fastrand::Rng;
use std::thread;
use std::time::Duration;

/// Returns the generator for the choices of a client in a round. It depends only on the arguments,
/// so neither the store's answers nor the other clients change the choices.
pub(super) fn generator(seed: u64, test: &str, client: usize, round: u64) -> Rng {
    let mut hash = seed ^ 0xcbf2_9ce4_8422_2325;
    let numbers = (client as u64).to_le_bytes().into_iter();
    let bytes = test.bytes().chain(numbers).chain(round.to_le_bytes());
    // FNV-1a.
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    Rng::with_seed(hash)
}

/// One execution of a transaction, as a client has chosen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The transaction.
    pub transaction: usize,
    /// The position after which the client crashes; see [`Crashes`](super::crashes::Crashes).
    pub crash: Option<usize>,
    /// The delays between statements.
    pub pace: Pace,
    /// The seed of the delays.
    pub seed: u64,
}

/// The delays of a client between its statements, which widen races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// No delay.
    Immediate,
    /// Lets other threads run.
    Yields,
    /// Sleeps for up to this number of microseconds.
    Sleeps(u64),
}

impl Pace {
    /// Chooses the delays of a round.
    pub(super) fn choose(rng: &mut Rng) -> Self {
        match rng.u8(0..8) {
            0 => Self::Immediate,
            1 => Self::Yields,
            2..5 => Self::Sleeps(60),
            5..7 => Self::Sleeps(300),
            _ => Self::Sleeps(2000),
        }
    }

    /// Waits between two statements.
    pub(super) fn wait(self, rng: &mut Rng) {
        match self {
            Self::Immediate => {}
            Self::Yields => (0..rng.u8(0..4)).for_each(|_| thread::yield_now()),
            // Half of the delays are zero: each pair of statements is sometimes adjacent.
            Self::Sleeps(_) if rng.bool() => {}
            Self::Sleeps(longest) => thread::sleep(Duration::from_micros(rng.u64(1..=longest))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_choices_of_each_client() {
        let choices = |seed, test, client, round| {
            let mut rng = generator(seed, test, client, round);
            (Pace::choose(&mut rng), rng.u64(..))
        };
        let first = choices(7, "a", 0, 0);
        assert_eq!(first, choices(7, "a", 0, 0));
        for other in [
            choices(8, "a", 0, 0),
            choices(7, "b", 0, 0),
            choices(7, "a", 1, 0),
            choices(7, "a", 0, 1),
        ] {
            assert_ne!(first.1, other.1);
        }
    }
}
