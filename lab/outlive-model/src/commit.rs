//! The end of attempts: log, commit and acknowledgement, or the removal of the log and the release
//! of the latches.

use crate::flaws::Flaw;
use crate::flight::{Actor, Posted, Verb};
use crate::history::{Answer, Fault};
use crate::model::Commit;
use crate::scenarios::Operation;
use crate::state::{Compute, Contents, Entry, Logged, OBJECTS, State, Step, Tx, Version};

/// A bit for each memory server.
pub const ALL_SERVERS: u8 = u8::MAX;

impl Commit {
    /// Posts the log of the running transaction.
    pub fn log(&self, state: &mut State, of: usize) {
        self.step(state, of, Step::Logging);
        self.post_log(state, of, None);
        self.settle(state, of);
    }

    /// The version that a transaction gives to an object.
    fn new_version(&self, tx: Tx, object: usize, old: Version) -> Version {
        let deletion = Operation::Delete(object as u8);
        let deletes = self.operations(tx).contains(&deletion);
        old.next(!deletes)
    }

    /// Posts the WRITEs of the log entry. `unlatched` is logged too, although it is not latched.
    pub fn post_log(&self, state: &mut State, of: usize, unlatched: Option<usize>) {
        self.record_reads(state, of);
        let tx = self.running(state, of);
        let compute = &state.computes[of];
        let logged = |object: usize| {
            let read = compute.reads[object].filter(|_| unlatched == Some(object));
            let old = compute.held[object].or(read)?;
            let is_logged = old.version.exists() || self.is_sound(Flaw::MissingActions);
            let new = self.new_version(tx, object, old.version);
            is_logged.then_some(Logged { old, new })
        };
        let entry = Entry {
            tx,
            objects: core::array::from_fn(logged),
            decision: None,
        };
        for server in self.log_servers(state, compute.epoch) {
            self.post(state, of, server, Verb::BeginLog(tx));
            self.post(state, of, server, Verb::WriteLog(entry));
        }
    }

    /// Records the values on which the running transaction relies.
    pub fn record_reads(&self, state: &mut State, of: usize) {
        let tx = usize::from(self.running(state, of));
        let compute = &state.computes[of];
        for object in 0..OBJECTS {
            if let Some(seen) = compute.held[object].or(compute.reads[object]) {
                state.history.reads[tx][object] = Some(seen.value[0]);
                if seen.value[0] != seen.value[1] {
                    state.history.fault(Fault::TornValue);
                }
            }
        }
    }

    /// Writes the new values and versions to all live replicas.
    pub fn write(&self, state: &mut State, of: usize) {
        self.step(state, of, Step::Writing);
        if self.has(Flaw::AcknowledgesEarly) {
            let tx = self.running(state, of);
            state.history.answers[usize::from(tx)] = Answer::Committed;
        }
        self.post_writes(state, of, ALL_SERVERS);
        self.settle(state, of);
    }

    /// Posts the WRITEs of the commit to those of the replicas that are on `servers`.
    pub fn post_writes(&self, state: &mut State, of: usize, servers: u8) {
        let tx = self.running(state, of);
        let compute = state.computes[of].clone();
        for object in 0..OBJECTS {
            let Some(old) = compute.held[object] else {
                continue;
            };
            let contents = Contents {
                value: [tx; 2],
                version: self.new_version(tx, object, old.version),
            };
            let replicas = self.replicas(state, object, compute.epoch);
            for server in replicas.filter(|it| servers >> it & 1 != 0) {
                for verb in self.writes_of(object, contents) {
                    self.post(state, of, server, verb);
                }
            }
        }
    }

    /// The verbs that write an object: the value, then the version.
    pub fn writes_of(
        &self,
        object: usize,
        contents: Contents,
    ) -> impl Iterator<Item = Verb> + use<> {
        let (object, value) = (object as u8, contents.value);
        let version = Verb::WriteVersion {
            object,
            version: contents.version,
        };
        let word = |word: u8| Verb::WriteWord {
            object,
            word,
            value: value[usize::from(word)],
        };
        let (whole, words) = match self.scenario.cuts_values {
            true => (None, Some([word(0), word(1)])),
            false => (Some(Verb::WriteValue { object, value }), None),
        };
        whole
            .into_iter()
            .chain(words.into_iter().flatten())
            .chain([version])
    }

    /// Acknowledges the commit, records it, and posts the release of the latches.
    pub fn acknowledge(&self, state: &mut State, of: usize) {
        let tx = self.running(state, of);
        let compute = state.computes[of].clone();
        let mut writes = false;
        for object in (0..OBJECTS).filter(|it| compute.held[*it].is_some()) {
            writes = true;
            let Some(server) = self.primary(state, object, compute.epoch) else {
                continue;
            };
            if !state.memory[usize::from(server)].is_dead {
                state.flight.post(Posted {
                    actor: Actor::Compute(of as u8),
                    server,
                    is_awaited: false,
                    verb: Verb::Release {
                        object: object as u8,
                        holder: tx,
                    },
                });
            }
        }
        if writes {
            state.computes[of].outcome = tx;
        } else {
            self.record_reads(state, of);
        }
        self.end(state, of, Answer::Committed);
    }

    /// Ends the running transaction with an answer to its client.
    pub fn end(&self, state: &mut State, of: usize, answer: Answer) {
        let tx = self.running(state, of);
        state.history.answers[usize::from(tx)] = answer;
        let compute = &mut state.computes[of];
        *compute = Compute {
            begun: compute.begun,
            epoch: compute.epoch,
            known: compute.known,
            outcome: compute.outcome,
            ..Compute::default()
        };
    }

    /// Ends an attempt that does not commit: removes its log if that may be whole.
    pub fn abort(&self, state: &mut State, of: usize) {
        let compute = &state.computes[of];
        let is_logged = matches!(compute.step, Step::Logging | Step::LoggingEarly);
        if is_logged && self.is_sound(Flaw::KeepsInterruptedLogs) {
            self.step(state, of, Step::RemovingLog);
            self.post_removals(state, of, ALL_SERVERS);
            return self.settle(state, of);
        }
        self.release(state, of);
    }

    /// Posts the WRITEs that remove the log from those of its servers that are in `servers`.
    pub fn post_removals(&self, state: &mut State, of: usize, servers: u8) {
        let all: Vec<_> = self.log_servers(state, state.computes[of].epoch).collect();
        for server in all.into_iter().filter(|it| servers >> it & 1 != 0) {
            self.post(state, of, server, Verb::Truncate);
        }
    }

    /// Releases the latches of an attempt that does not commit.
    pub fn release(&self, state: &mut State, of: usize) {
        let tx = self.running(state, of);
        state.history.reads[usize::from(tx)] = [None; OBJECTS];
        self.step(state, of, Step::Releasing);
        state.computes[of].registered = 0;
        self.post_releases(state, of, ALL_SERVERS);
        self.settle(state, of);
    }

    /// Posts the releases of those latches that are on `servers`.
    pub fn post_releases(&self, state: &mut State, of: usize, servers: u8) {
        let tx = self.running(state, of);
        let compute = state.computes[of].clone();
        for object in 0..OBJECTS {
            let is_tentative = compute.tentative == Some(object as u8);
            let primary = self.primary(state, object, compute.epoch);
            let is_meant = primary.is_none_or(|it| servers >> it & 1 != 0);
            if !is_meant || compute.held[object].is_none() && !is_tentative {
                continue;
            }
            self.at_primary(state, of, object, |object| {
                match self.has(Flaw::ComplicitAborts) {
                    true => [Verb::Release { object, holder: tx }],
                    false => [Verb::Swap {
                        object,
                        from: tx,
                        to: 0,
                    }],
                }
            });
        }
    }
}
