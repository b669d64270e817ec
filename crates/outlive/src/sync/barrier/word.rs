//! The word of a barrier: all state that must change atomically.
//!
//! ```text
//! 127          81 80        41  40   39    38 37   26 25     13 12      0
//! | changes, 47  | releases, 40 | asleep | last step | its seat | members | waiting |
//! ```
//!
//! *Members* and *waiting* count to 4096 inclusive, so they have 13 bits each; a seat's number has
//! 12. *Changes* is the paper's membership sequence. A thread is deceived by a sequence that wraps
//! only if it sleeps between its load and its compare-and-swap for exactly as many steps as the
//! field has numbers: 2^47 changes are half a year at ten million a second, more than a
//! compare-and-swap of a shared line can do. *Releases* needs no width for that: a release needs
//! every member, so the holder of a ticket has missed at most one. It has 40 bits for callers that
//! count releases.

use core::fmt;

/// The largest number of seats of a barrier.
pub(super) const MOST_SEATS: u32 = 1 << SEAT_BITS;

const COUNT_BITS: u32 = 13;
const SEAT_BITS: u32 = 12;
const RELEASE_BITS: u32 = 40;
const CHANGE_BITS: u32 = 47;

const MEMBERS_AT: u32 = COUNT_BITS;
const SEAT_AT: u32 = MEMBERS_AT + COUNT_BITS;
const STEP_AT: u32 = SEAT_AT + SEAT_BITS;
const ASLEEP_AT: u32 = STEP_AT + 2;
const RELEASES_AT: u32 = ASLEEP_AT + 1;
const CHANGES_AT: u32 = RELEASES_AT + RELEASE_BITS;
const _: () = assert!(CHANGES_AT + CHANGE_BITS == u128::BITS);

/// The last change of members. The slot of its seat may not have followed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No member has ever joined.
    None,
    /// The claimant of this seat became a member.
    In(u32),
    /// The member on this seat was removed.
    Out(u32),
}

/// The two sequences. An arrival remains counted while neither moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    pub changes: u64,
    pub releases: u64,
}

/// The word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub epoch: Epoch,
    /// Whether a member sleeps; the thread that moves a sequence next wakes it.
    pub asleep: bool,
    pub last: Step,
    pub members: u32,
    /// The number of members that have arrived in this epoch, and of no others.
    pub waiting: u32,
}

/// A state that is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impossible(pub &'static str);

impl State {
    pub(super) fn to_word(self) -> u128 {
        let (step, seat) = match self.last {
            Step::None => (0, 0),
            Step::In(seat) => (1, seat),
            Step::Out(seat) => (2, seat),
        };
        u128::from(self.waiting)
            | u128::from(self.members) << MEMBERS_AT
            | u128::from(seat) << SEAT_AT
            | step << STEP_AT
            | u128::from(self.asleep) << ASLEEP_AT
            | u128::from(self.epoch.releases) << RELEASES_AT
            | u128::from(self.epoch.changes) << CHANGES_AT
    }

    /// Decodes the word of a barrier of `seats` seats, if it can be one.
    pub(super) fn from_word(word: u128, seats: u32) -> Result<Self, Impossible> {
        let field = |at: u32, bits: u32| (word >> at) as u64 & ((1 << bits) - 1);
        let seat = field(SEAT_AT, SEAT_BITS) as u32;
        let last = match field(STEP_AT, 2) {
            0 if seat == 0 => Step::None,
            1 => Step::In(seat),
            2 => Step::Out(seat),
            _ => return Err(Impossible("its last change of members is invalid")),
        };
        let state = Self {
            epoch: Epoch {
                changes: field(CHANGES_AT, CHANGE_BITS),
                releases: field(RELEASES_AT, RELEASE_BITS),
            },
            asleep: field(ASLEEP_AT, 1) == 1,
            last,
            members: field(MEMBERS_AT, COUNT_BITS) as u32,
            waiting: field(0, COUNT_BITS) as u32,
        };
        if seat >= seats {
            return Err(Impossible(
                "its last change is of a seat that does not exist",
            ));
        }
        if state.members > seats {
            return Err(Impossible("it counts more members than it has seats"));
        }
        if state.waiting > state.members {
            return Err(Impossible("it counts more waiting members than members"));
        }
        Ok(state)
    }

    /// Returns whether all members wait.
    pub(super) fn is_complete(self) -> bool {
        self.waiting == self.members && self.members > 0
    }

    /// Returns this state with `asleep` cleared.
    pub(super) fn awake(self) -> Self {
        Self {
            asleep: false,
            ..self
        }
    }

    /// Counts one more arrival.
    pub(super) fn arrived(self) -> Self {
        Self {
            waiting: self.waiting + 1,
            ..self
        }
    }

    /// Takes one arrival back.
    pub(super) fn withdrawn(self) -> Self {
        Self {
            waiting: self.waiting - 1,
            ..self
        }
    }

    /// Releases all members; none waits in the next epoch.
    pub(super) fn released(self) -> Self {
        let releases = self.epoch.releases.wrapping_add(1) & ((1 << RELEASE_BITS) - 1);
        Self {
            epoch: Epoch {
                releases,
                ..self.epoch
            },
            waiting: 0,
            asleep: false,
            ..self
        }
    }

    /// Voids all waiting: the count becomes zero with the step of the sequence.
    pub(super) fn changed(self) -> Self {
        let changes = self.epoch.changes.wrapping_add(1) & ((1 << CHANGE_BITS) - 1);
        Self {
            epoch: Epoch {
                changes,
                ..self.epoch
            },
            waiting: 0,
            asleep: false,
            ..self
        }
    }
}

/// The slot of a seat: its occupant and phase.
///
/// ```text
/// low half: the member's instance, or 0     high half: | turn, 62 bits | phase, 2 bits |
/// ```
///
/// The turn grows whenever the seat becomes vacant, so a slot's word never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The instance's word; 0 if the seat is vacant.
    pub occupant: u64,
    pub turn: u64,
    pub phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Vacant = 0,
    /// Claimed. Its occupant is a member only if the barrier's last step says so.
    Claimed = 1,
    /// Its occupant is a member, unless the barrier's last step says that it was taken out.
    Seated = 2,
}

impl Slot {
    pub(super) fn to_word(self) -> u128 {
        u128::from(self.turn << 2 | self.phase as u64) << 64 | u128::from(self.occupant)
    }

    pub(super) fn from_word(word: u128) -> Result<Self, Impossible> {
        let (occupant, high) = (word as u64, (word >> 64) as u64);
        let phase = match high & 3 {
            0 => Phase::Vacant,
            1 => Phase::Claimed,
            2 => Phase::Seated,
            _ => return Err(Impossible("a seat is neither vacant nor claimed nor taken")),
        };
        if (phase == Phase::Vacant) != (occupant == 0) {
            return Err(Impossible(
                "a vacant seat has an occupant, or a taken one has none",
            ));
        }
        Ok(Self {
            occupant,
            turn: high >> 2,
            phase,
        })
    }

    pub(super) fn claimed_by(self, occupant: u64) -> Self {
        Self {
            occupant,
            phase: Phase::Claimed,
            ..self
        }
    }

    pub(super) fn seated(self) -> Self {
        Self {
            phase: Phase::Seated,
            ..self
        }
    }

    pub(super) fn vacated(self) -> Self {
        Self {
            occupant: 0,
            turn: self.turn.wrapping_add(1) & (u64::MAX >> 2),
            phase: Phase::Vacant,
        }
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_is_a_state_or_is_refused(word: u128, seats in 1..=MOST_SEATS, low in 0u128..1 << 41) {
            for word in [word, word & !((1 << 41) - 1) | low] {
                if let Ok(state) = State::from_word(word, seats) {
                    prop_assert_eq!(state.to_word(), word);
                    prop_assert!(state.waiting <= state.members && state.members <= seats);
                }
            }
        }

        #[test]
        fn a_slot_s_word_comes_back(occupant: u64, turn in 0..=u64::MAX >> 2, phase in 0u64..4) {
            let word = u128::from(turn << 2 | phase) << 64 | u128::from(occupant);
            if let Ok(slot) = Slot::from_word(word) {
                prop_assert_eq!(slot.to_word(), word);
                prop_assert!(slot.vacated().turn != slot.turn);
            }
        }
    }

    #[test]
    fn counts_and_sequences_do_not_touch_one_another_at_their_ends() {
        let most = State {
            epoch: Epoch {
                changes: (1 << CHANGE_BITS) - 1,
                releases: (1 << RELEASE_BITS) - 1,
            },
            asleep: true,
            last: Step::Out(MOST_SEATS - 1),
            members: MOST_SEATS,
            waiting: MOST_SEATS,
        };
        let there = |state: State| State::from_word(state.to_word(), MOST_SEATS);
        assert_eq!(there(most), Ok(most));
        assert!(most.is_complete());
        for next in [most.released(), most.changed(), most.withdrawn()] {
            assert_eq!(there(next), Ok(next));
        }
        assert_eq!(most.changed().epoch.changes, 0);
        assert_eq!(most.changed().epoch.releases, most.epoch.releases);
        assert_eq!(State::from_word(0, 1).map(|state| state.members), Ok(0));
    }
}
