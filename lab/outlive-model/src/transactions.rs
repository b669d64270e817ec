//! The coordinators: execution, validation, and their reactions to results.
//!
//! A coordinator posts a batch, and reacts when it is complete. A reaction that depends on nothing
//! but the results is a part of the step in which the last verb takes effect. A reaction that
//! depends on the failures or the epoch is a step of its own, because these may change before it.

use crate::flaws::Flaw;
use crate::flight::{Actor, Posted, Verb};
use crate::history::Answer;
use crate::model::Commit;
use crate::scenarios::Operation;
use crate::state::{Compute, OBJECTS, State, Step, Tx, Version};

/// The state of a latch that was read.
enum Latch {
    Free,
    NewlyStray,
    Held,
}

impl Commit {
    /// Posts a verb of a coordinator. On a dead memory server it fails.
    pub fn post(&self, state: &mut State, of: usize, server: u8, verb: Verb) {
        if state.memory[usize::from(server)].is_dead {
            state.computes[of].has_error = true;
            return;
        }
        state.flight.post(Posted {
            actor: Actor::Compute(of as u8),
            server,
            is_awaited: true,
            verb,
        });
    }

    /// Begins the next step, which posts a batch.
    pub fn step(&self, state: &mut State, of: usize, step: Step) {
        let compute = &mut state.computes[of];
        compute.step = step;
        compute.found = Default::default();
        compute.has_error = false;
        compute.broken = 0;
    }

    /// Whether a coordinator can begin its next transaction: the epoch is settled.
    pub fn can_begin(&self, state: &State, of: usize) -> bool {
        let compute = &state.computes[of];
        let is_settled = || {
            let of_old = |it: &Compute| {
                let counts = !it.is_dead || self.is_sound(Flaw::ForgetsDead);
                it.registered == 1 && counts
            };
            !state.computes.iter().any(of_old) || self.has(Flaw::UnsettledEpochs)
        };
        !compute.is_dead
            && compute.step == Step::Idle
            && usize::from(compute.begun) < self.scenario.programs[of].len()
            && (compute.epoch == state.epoch() || is_settled())
    }

    /// Begins the next transaction.
    pub fn begin(&self, state: &mut State, of: usize) {
        state.computes[of].epoch = state.epoch();
        state.computes[of].begun += 1;
        let tx = self.running(state, of);
        state.history.before[usize::from(tx)] = state.history.committed();
        self.operate(state, of, 0);
    }

    /// Begins an operation, or the commit if there is none with this number.
    pub fn operate(&self, state: &mut State, of: usize, number: u8) {
        let tx = self.running(state, of);
        let Some(operation) = self.operations(tx).get(usize::from(number)) else {
            let compute = &mut state.computes[of];
            compute.step = Step::Entering;
            compute.found = Default::default();
            match compute.held.iter().any(Option::is_some) {
                // No reaction depends on the epoch then.
                true if self.scenario.deaths[2] == 0 => self.enter(state, of),
                true => {}
                false => self.validate(state, of),
            }
            return;
        };
        let object = operation.object();
        match operation {
            Operation::Read(_) => {
                self.step(state, of, Step::Reading(number));
                self.at_primary(state, of, object, |object| {
                    [
                        Verb::ReadHead(object),
                        Verb::ReadValue(object),
                        Verb::ReadHeadAgain(object),
                    ]
                });
            }
            _ if self.has(Flaw::RelaxedLatches) => {
                self.step(state, of, Step::ValidatingFirst(number));
                self.post_validation(state, of);
            }
            _ if self.has(Flaw::LoggingWithoutLatching)
                && state.computes[of].reads[object].is_some() =>
            {
                self.step(state, of, Step::LoggingFirst(number));
                self.post_log(state, of, Some(object));
            }
            _ => self.latch(state, of, number, 0),
        }
        self.settle(state, of);
    }

    /// Posts verbs on the primary of an object.
    pub fn at_primary<const N: usize>(
        &self,
        state: &mut State,
        of: usize,
        object: usize,
        verbs: impl Fn(u8) -> [Verb; N],
    ) {
        match self.primary(state, object, state.computes[of].epoch) {
            None => state.computes[of].has_error = true,
            Some(server) => {
                for verb in verbs(object as u8) {
                    self.post(state, of, server, verb);
                }
            }
        }
    }

    /// Latches the object of an operation by a CAS from this word, and reads it.
    pub fn latch(&self, state: &mut State, of: usize, number: u8, from: Tx) {
        let tx = self.running(state, of);
        let object = self.operations(tx)[usize::from(number)].object();
        self.step(state, of, Step::Latching(number, from));
        self.at_primary(state, of, object, |object| {
            let to = tx;
            [Verb::Swap { object, from, to }, Verb::ReadContents(object)]
        });
    }

    /// Registers the commit.
    pub fn enter(&self, state: &mut State, of: usize) {
        let epoch = match self.has(Flaw::CommitsAfterLoss) {
            true => state.epoch(),
            false => state.computes[of].epoch,
        };
        if epoch < state.epoch() {
            return self.abort(state, of);
        }
        state.computes[of].registered = epoch + 1;
        if self.has(Flaw::LostDecision) {
            self.step(state, of, Step::LoggingEarly);
            self.post_log(state, of, None);
            self.settle(state, of);
        } else if self.has(Flaw::RelaxedLatches) {
            self.log(state, of);
        } else {
            self.validate(state, of);
        }
    }

    fn validate(&self, state: &mut State, of: usize) {
        self.step(state, of, Step::Validating);
        self.post_validation(state, of);
        self.settle(state, of);
    }

    /// The objects that are validated: those that were only read. A single read needs no
    /// validation.
    pub fn validated(&self, compute: &Compute) -> Vec<(usize, Version)> {
        let versions = (0..OBJECTS).filter_map(|it| Some((it, compute.reads[it]?.version)));
        let misses_absence = self.has(Flaw::AbsenceNotValidated);
        let mut all: Vec<_> = { versions }
            .filter(|(_, version)| version.exists() || !misses_absence)
            .collect();
        if all.len() <= 1 && compute.held.iter().all(Option::is_none) {
            all.clear();
        }
        all
    }

    fn post_validation(&self, state: &mut State, of: usize) {
        for (object, _) in self.validated(&state.computes[of]) {
            self.at_primary(state, of, object, |object| {
                [Verb::ReadLatch(object), Verb::ReadVersion(object)]
            });
        }
    }

    /// Whether the batch of a coordinator is complete and its reaction depends on shared state.
    pub fn is_waiting_to_react(&self, state: &State, of: usize) -> bool {
        let compute = &state.computes[of];
        let is_foreign = |object: usize| compute.found[object].latch != 0;
        let depends = match compute.step {
            _ if compute.has_error || compute.broken != 0 => false,
            Step::Reading(number) => is_foreign(self.object_of(state, of, number)),
            Step::Latching(number, from) => {
                let latch = compute.found[self.object_of(state, of, number)].latch;
                latch != from && latch != 0
            }
            Step::Validating | Step::ValidatingFirst(_) => (0..OBJECTS).any(is_foreign),
            _ => false,
        };
        depends && !state.flight.is_awaited(Actor::Compute(of as u8))
    }

    /// Lets a coordinator react to a complete batch, unless its reaction is a step of its own.
    pub fn settle(&self, state: &mut State, of: usize) {
        let compute = &state.computes[of];
        let waits = matches!(compute.step, Step::Idle | Step::Entering | Step::Written);
        if compute.is_dead
            || waits
            || state.flight.is_awaited(Actor::Compute(of as u8))
            || self.is_waiting_to_react(state, of)
        {
            return;
        }
        self.react(state, of);
    }

    /// The object of an operation of the running transaction.
    pub fn object_of(&self, state: &State, of: usize, number: u8) -> usize {
        self.operations(self.running(state, of))[usize::from(number)].object()
    }

    /// Reacts to a complete batch.
    pub fn react(&self, state: &mut State, of: usize) {
        let compute = &state.computes[of];
        let has_error = compute.has_error;
        if compute.broken != 0 {
            return self.repeat(state, of);
        }
        match compute.step {
            Step::Idle | Step::Entering | Step::Written => {}
            // These batches go to the servers that are live.
            Step::Writing => {
                let compute = &mut state.computes[of];
                compute.step = Step::Written;
                compute.has_error = false;
            }
            Step::RemovingLog => self.release(state, of),
            Step::Releasing => self.end(state, of, Answer::Aborted),
            _ if has_error => self.abort(state, of),
            Step::Reading(number) => self.react_to_read(state, of, number),
            Step::Latching(number, from) => self.react_to_latch(state, of, number, from),
            Step::ValidatingFirst(number) => match self.is_validated(state, of) {
                Some(true) => self.latch_after(state, of, number),
                Some(false) => {
                    self.step(state, of, Step::ValidatingFirst(number));
                    self.post_validation(state, of);
                    self.settle(state, of);
                }
                None => self.abort(state, of),
            },
            Step::LoggingFirst(number) => self.latch_after(state, of, number),
            Step::LoggingEarly => self.validate(state, of),
            Step::Validating => match self.is_validated(state, of) {
                Some(true) if state.computes[of].held.iter().all(Option::is_none) => {
                    let compute = &mut state.computes[of];
                    compute.step = Step::Written;
                    compute.found = Default::default();
                }
                Some(true) if self.has(Flaw::LostDecision) => self.write(state, of),
                Some(true) => self.log(state, of),
                Some(false) => self.validate(state, of),
                None => self.abort(state, of),
            },
            Step::Logging => self.write(state, of),
        }
    }

    fn latch_after(&self, state: &mut State, of: usize, number: u8) {
        self.latch(state, of, number, 0);
        self.settle(state, of);
    }

    /// The state of a latch, as the coordinator knows or finds out now.
    fn state_of(&self, state: &mut State, of: usize, latch: Tx) -> Latch {
        if latch == 0 {
            return Latch::Free;
        }
        let owner = self.owner(latch);
        let is_known = state.computes[of].known >> owner & 1 != 0;
        match state.computes[owner].has_failed {
            false => Latch::Held,
            true if is_known => Latch::Free,
            true => {
                state.computes[of].known |= 1 << owner;
                Latch::NewlyStray
            }
        }
    }

    fn react_to_read(&self, state: &mut State, of: usize, number: u8) {
        let object = self.object_of(state, of, number);
        let found = state.computes[of].found[object];
        match self.state_of(state, of, found.latch) {
            Latch::Free => {}
            Latch::Held => return self.abort(state, of),
            Latch::NewlyStray if self.has(Flaw::StaleStrayReads) => {}
            Latch::NewlyStray => return self.operate(state, of, number),
        }
        let is_equal = (found.latch, found.contents.version) == found.again;
        if !is_equal && self.is_sound(Flaw::UncheckedReads) {
            return self.abort(state, of);
        }
        state.computes[of].reads[object] = Some(found.contents);
        self.operate(state, of, number + 1);
    }

    fn react_to_latch(&self, state: &mut State, of: usize, number: u8, from: Tx) {
        let object = self.object_of(state, of, number);
        let found = state.computes[of].found[object];
        if found.latch != from {
            if let Latch::Held = self.state_of(state, of, found.latch) {
                if self.has(Flaw::ComplicitAborts) {
                    state.computes[of].tentative = Some(object as u8);
                }
                return self.abort(state, of);
            }
            self.latch(state, of, number, found.latch);
            return self.settle(state, of);
        }
        let compute = &mut state.computes[of];
        compute.held[object] = Some(found.contents);
        let read = compute.reads[object].take();
        match read {
            Some(read) if read.version != found.contents.version => self.abort(state, of),
            _ => self.operate(state, of, number + 1),
        }
    }

    /// Whether the read set is unchanged; `Some(false)` if it is to be read again, and `None` if
    /// the attempt cannot commit.
    fn is_validated(&self, state: &mut State, of: usize) -> Option<bool> {
        let reads = self.validated(&state.computes[of]);
        let mut is_current = true;
        for (object, version) in reads {
            let found = state.computes[of].found[object];
            if found.contents.version != version {
                return None;
            }
            match self.state_of(state, of, found.latch) {
                Latch::Free => {}
                _ if self.has(Flaw::CovertLatches) => {}
                Latch::Held => return None,
                Latch::NewlyStray => is_current = self.has(Flaw::StaleStrayReads),
            }
        }
        Some(is_current)
    }
}
