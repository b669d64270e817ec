//! The recovery of a dead compute server's log, and the deaths of recoverers.
//!
//! A recoverer posts the verbs of a step at a time, and takes the next step when they are complete.

use crate::commit::ALL_SERVERS;
use crate::flaws::Flaw;
use crate::flight::{Actor, Posted, Verb};
use crate::model::Commit;
use crate::state::{Decision, OBJECTS, Recovering, Recovery, State};

impl Commit {
    fn post_for(&self, state: &mut State, of: usize, server: u8, verb: Verb) {
        // Batches of a recovery go to the servers that are live.
        if !state.memory[usize::from(server)].is_dead {
            state.flight.post(Posted {
                actor: Actor::Recoverer(of as u8),
                server,
                is_awaited: true,
                verb,
            });
        }
    }

    /// The log servers of the recovered server.
    fn its_log_servers(&self, state: &State, of: usize) -> Vec<u8> {
        self.log_servers(state, state.computes[of].epoch).collect()
    }

    /// Begins a recovery, or executes it again. The dead server and earlier recoverers are fenced.
    pub fn recover(&self, state: &mut State, of: usize) {
        state.recoveries[of] = Recovery {
            step: Recovering::ReadingLogs,
            has_begun: true,
            epoch: state.epoch(),
            ..Recovery::default()
        };
        if self.has(Flaw::NotifiesFirst) {
            state.computes[of].has_failed = true;
        }
        self.take_step(state, of, ALL_SERVERS);
        self.settle_recovery(state, of);
    }

    /// Takes the next step of a recovery whose verbs are complete.
    pub fn settle_recovery(&self, state: &mut State, of: usize) {
        while !state.flight.is_awaited(Actor::Recoverer(of as u8)) {
            if state.recoveries[of].broken != 0 {
                self.repeat_recovery(state, of);
                continue;
            }
            let next = self.next_step(state, of);
            let recovery = &mut state.recoveries[of];
            match next {
                None => return,
                Some(step) => recovery.step = step,
            }
            self.take_step(state, of, ALL_SERVERS);
        }
    }

    fn next_step(&self, state: &State, of: usize) -> Option<Recovering> {
        let recovery = &state.recoveries[of];
        let unlatches_first = self.has(Flaw::UnlatchesBeforeTruncation);
        Some(match recovery.step {
            Recovering::Waiting | Recovering::Marking | Recovering::Done => return None,
            Recovering::ReadingLogs => Recovering::ReadingVersions,
            Recovering::ReadingVersions => Recovering::WritingDecision,
            Recovering::WritingDecision => Recovering::Undoing,
            Recovering::Undoing if unlatches_first => Recovering::Unlatching,
            Recovering::Undoing => Recovering::Truncating,
            Recovering::Truncating if unlatches_first => Recovering::Marking,
            Recovering::Truncating => Recovering::Unlatching,
            Recovering::Unlatching if unlatches_first => Recovering::Truncating,
            Recovering::Unlatching => Recovering::Marking,
        })
    }

    /// Posts the verbs of the step that has just begun, as far as they go to `servers`.
    pub fn take_step(&self, state: &mut State, of: usize, servers: u8) {
        let recovery = state.recoveries[of].clone();
        let is_meant = |server: &u8| servers >> server & 1 != 0;
        let logged = |object: usize| recovery.entry.and_then(|it| it.objects[object]);
        let decision = recovery.entry.and_then(|it| it.decision);
        match recovery.step {
            Recovering::ReadingLogs => {
                let log_servers = self.its_log_servers(state, of);
                for server in log_servers.into_iter().filter(is_meant) {
                    self.post_for(state, of, server, Verb::ReadLog);
                }
            }
            Recovering::ReadingVersions if decision.is_none() => {
                for object in (0..OBJECTS).filter(|it| logged(*it).is_some()) {
                    let replicas = self.replicas(state, object, recovery.epoch);
                    for server in replicas.filter(is_meant) {
                        self.post_for(state, of, server, Verb::ReadVersion(object as u8));
                    }
                }
            }
            Recovering::WritingDecision => self.decide(state, of, servers),
            Recovering::Undoing if decision == Some(Decision::Back) => {
                self.undo(state, of, &recovery, servers);
            }
            Recovering::Truncating => {
                // The outcome is recorded before the entry is removed.
                let outcome = &mut state.computes[of].outcome;
                if let (Some(entry), Some(Decision::Forward)) = (recovery.entry, decision) {
                    *outcome = entry.tx.max(*outcome);
                }
                let log_servers = self.its_log_servers(state, of);
                for server in log_servers.into_iter().filter(is_meant) {
                    self.post_for(state, of, server, Verb::Truncate);
                }
            }
            Recovering::Unlatching => {
                for object in (0..OBJECTS).filter(|it| logged(*it).is_some()) {
                    let server = self.primary(state, object, recovery.epoch);
                    let from = recovery.entry.map_or(0, |it| it.tx);
                    let object = object as u8;
                    if let Some(server) = server.filter(is_meant) {
                        let verb = Verb::Swap {
                            object,
                            from,
                            to: 0,
                        };
                        self.post_for(state, of, server, verb);
                    }
                }
            }
            _ => {}
        }
    }

    /// Decides, unless an earlier recoverer has, and writes the entry if it goes back.
    fn decide(&self, state: &mut State, of: usize, servers: u8) {
        let recovery = &mut state.recoveries[of];
        let is_updated = recovery.outdated == 0 && self.is_sound(Flaw::UndoesAcknowledged);
        (recovery.updated, recovery.outdated) = (0, 0);
        let Some(entry) = &mut recovery.entry else {
            return;
        };
        entry.decision.get_or_insert(match is_updated {
            true => Decision::Forward,
            false => Decision::Back,
        });
        let entry = *entry;
        // Versions are not set back, so a re-execution decides forward again.
        if entry.decision == Some(Decision::Forward) || self.has(Flaw::DecidesInSilence) {
            return;
        }
        let log_servers = self.its_log_servers(state, of).into_iter();
        for server in log_servers.filter(|it| servers >> it & 1 != 0) {
            self.post_for(state, of, server, Verb::BeginLog(entry.tx));
            self.post_for(state, of, server, Verb::WriteLog(entry));
        }
    }

    fn undo(&self, state: &mut State, of: usize, recovery: &Recovery, servers: u8) {
        let objects = recovery.entry.map_or([None; OBJECTS], |it| it.objects);
        let logged = objects.into_iter().enumerate();
        let mut logged = logged.filter_map(|(object, it)| Some((object, it?)));
        let half = match self.has(Flaw::HalfAnUndo) {
            true => 1,
            false => OBJECTS,
        };
        for (object, logged) in logged.by_ref().take(half) {
            let replicas = self.replicas(state, object, recovery.epoch);
            for server in replicas.filter(|it| servers >> it & 1 != 0) {
                for verb in self.writes_of(object, self.undone(logged)) {
                    self.post_for(state, of, server, verb);
                }
            }
        }
    }

    /// Marks a recovered server as failed: its latches are stray from now on, and its commit delays
    /// no epoch.
    pub fn mark_failed(&self, state: &mut State, of: usize) {
        state.computes[of].has_failed = true;
        state.computes[of].registered = 0;
        state.recoveries[of] = Recovery {
            step: Recovering::Done,
            has_begun: true,
            ..Recovery::default()
        };
    }

    /// Kills a recoverer. Its verbs that have not taken effect never do: a recovery is executed
    /// again only after the earlier recoverer is fenced.
    pub fn kill_recoverer(&self, state: &mut State, of: usize) {
        match self.has(Flaw::UnfencedRecoverers) {
            true => state.flight.abandon(of as u8),
            false => state.flight.fence(Actor::Recoverer(of as u8)),
        }
        state.recoveries[of] = Recovery {
            has_begun: true,
            ..Recovery::default()
        };
    }
}
