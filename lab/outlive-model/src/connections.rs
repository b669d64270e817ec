//! Broken connections. The poster does not learn which of its verbs on the connection have taken
//! effect. It goes on over a new one, which opens after the server has drained the old one, so no
//! other verb of that one takes effect.
//!
//! A break is a step between two effects, or one in which a verb takes effect and its completion is
//! lost. The second kind is needed for the last verb of a connection only, because a break after an
//! earlier one is of the first kind, and for the releases of latches, for which no step waits.
//!
//! A release that took effect before the break, with other verbs after it, is not repeated here.
//! The store may repeat it, by a CAS that has no effect then.

use crate::flaws::Flaw;
use crate::flight::{Actor, Posted, Verb};
use crate::model::Commit;
use crate::state::{State, Step};

impl Commit {
    /// Whether a connection can break, by its owner.
    pub fn can_break(&self, state: &State, actor: Actor) -> bool {
        state.breaks > 0 && !matches!(actor, Actor::Ghost(_))
    }

    /// Whether the completion of the first verb of a connection can be lost alone.
    pub fn can_lose_completion(&self, state: &State, actor: Actor, server: u8) -> bool {
        let mut verbs = state.flight.on(actor, server);
        let is_release = verbs.next().is_some_and(|it| !it.is_awaited);
        is_release || verbs.next().is_none()
    }

    /// Breaks a connection. If `takes_effect`, its first verb takes effect before.
    pub fn break_connection(
        &self,
        state: &mut State,
        actor: Actor,
        server: u8,
        takes_effect: bool,
    ) {
        let of = actor.of();
        state.breaks -= 1;
        let first = takes_effect.then(|| state.flight.take(actor, server));
        let first = first.flatten();
        if let Some(posted) = first {
            self.execute(state, actor, posted);
        }
        let rest = state.flight.cut(actor, server);
        if self.has(Flaw::OpensBeforeDraining) {
            for posted in &rest {
                state.flight.post(Posted {
                    actor: Actor::Ghost(of as u8),
                    is_awaited: false,
                    ..*posted
                });
            }
        }
        let mut is_awaited = false;
        for posted in first.into_iter().chain(rest) {
            is_awaited |= posted.is_awaited;
            if !posted.is_awaited {
                self.release_again(state, posted);
            }
        }
        if is_awaited {
            match actor {
                Actor::Recoverer(_) => state.recoveries[of].broken |= 1 << server,
                _ => self.lose_answers(state, of, server),
            }
        }
        self.settle(state, of);
        self.settle_recovery(state, of);
    }

    /// Posts the release of a latch again, before all other verbs of the new connection.
    fn release_again(&self, state: &mut State, lost: Posted) {
        let verb = match lost.verb {
            Verb::Release { object, holder } if self.is_sound(Flaw::RepeatsReleasing) => {
                Verb::Swap {
                    object,
                    from: holder,
                    to: 0,
                }
            }
            verb => verb,
        };
        if self.is_sound(Flaw::ForgetsReleases) {
            state.flight.post(Posted { verb, ..lost });
        }
    }

    /// Notes that the answers of the batch to `server` are lost.
    fn lose_answers(&self, state: &mut State, of: usize, server: u8) {
        let object = match state.computes[of].step {
            Step::Latching(number, _) => Some(self.object_of(state, of, number) as u8),
            _ => None,
        };
        let compute = &mut state.computes[of];
        match compute.step {
            Step::Latching(..) if self.has(Flaw::RepeatsLatching) => {}
            Step::Reading(_) | Step::Writing | Step::RemovingLog | Step::Releasing => {}
            // The attempt ends. It gives the latch up, whether it was acquired or not.
            Step::Latching(..) => {
                compute.tentative = object;
                compute.has_error = true;
                return;
            }
            _ => {
                compute.has_error = true;
                return;
            }
        }
        compute.broken |= 1 << server;
    }

    /// Posts the verbs of a step again whose answers were lost.
    pub fn repeat(&self, state: &mut State, of: usize) {
        let servers = core::mem::take(&mut state.computes[of].broken);
        match state.computes[of].step {
            Step::Reading(number) => return self.operate(state, of, number),
            Step::Latching(number, from) => self.latch(state, of, number, from),
            Step::Writing => self.post_writes(state, of, servers),
            Step::RemovingLog => self.post_removals(state, of, servers),
            _ => self.post_releases(state, of, servers),
        }
        self.settle(state, of);
    }

    /// Posts the verbs of a recovery's step again whose answers were lost. Versions that were read
    /// before count as well: those of the objects of a logged transaction do not change.
    pub fn repeat_recovery(&self, state: &mut State, of: usize) {
        let servers = core::mem::take(&mut state.recoveries[of].broken);
        self.take_step(state, of, servers);
    }
}
