//! The effects of verbs on the memory servers.

use crate::flaws::Flaw;
use crate::flight::{Actor, Posted, Verb};
use crate::history::Fault;
use crate::model::Commit;
use crate::state::{Contents, Found, State, Version};

impl Commit {
    /// Lets the first verb of a connection take effect.
    pub fn take_effect(&self, state: &mut State, actor: Actor, server: u8) {
        let Some(posted) = state.flight.take(actor, server) else {
            return;
        };
        let of = actor.of();
        self.execute(state, actor, posted);
        match actor {
            Actor::Compute(_) => self.settle(state, of),
            Actor::Recoverer(_) => self.settle_recovery(state, of),
            Actor::Ghost(_) => {}
        }
    }

    /// Lets a verb take effect, and returns its result.
    pub fn execute(&self, state: &mut State, actor: Actor, posted: Posted) {
        let Posted {
            server,
            is_awaited,
            verb,
            ..
        } = posted;
        if matches!(actor, Actor::Compute(_)) && state.recoveries[actor.of()].has_begun {
            state.history.fault(Fault::AccessAfterRecovery);
        }
        let memory = &mut state.memory[usize::from(server)];
        let replica = |object: u8| memory.replicas[usize::from(object)];
        match verb {
            Verb::ReadHead(object) => {
                let it = replica(object);
                self.answer(state, actor, object, |found| {
                    (found.latch, found.contents.version) = (it.latch, it.contents.version);
                });
            }
            Verb::ReadValue(object) => {
                let value = replica(object).contents.value;
                self.answer(state, actor, object, |found| found.contents.value = value);
            }
            Verb::ReadHeadAgain(object) => {
                let it = replica(object);
                let again = (it.latch, it.contents.version);
                self.answer(state, actor, object, |found| found.again = again);
            }
            Verb::ReadContents(object) => {
                let contents = replica(object).contents;
                self.answer(state, actor, object, |found| found.contents = contents);
            }
            Verb::ReadLatch(object) => {
                let latch = replica(object).latch;
                self.answer(state, actor, object, |found| found.latch = latch);
            }
            Verb::ReadVersion(object) => {
                let version = replica(object).contents.version;
                match actor {
                    Actor::Recoverer(of) => self.compare(state, of.into(), object, version),
                    _ => self.answer(state, actor, object, |it| it.contents.version = version),
                }
            }
            Verb::Swap { object, from, to } => {
                let latch = replica(object).latch;
                if latch == from {
                    memory.replicas[usize::from(object)].latch = to;
                    if from != 0 && to != 0 && self.is_logged(state, from) {
                        state.history.fault(Fault::StolenLogged);
                    }
                }
                if is_awaited {
                    self.answer(state, actor, object, |found| found.latch = latch);
                }
            }
            Verb::Release { object, .. } => memory.replicas[usize::from(object)].latch = 0,
            Verb::WriteWord {
                object,
                word,
                value,
            } => {
                let contents = &mut memory.replicas[usize::from(object)].contents;
                contents.value[usize::from(word)] = value;
            }
            Verb::WriteValue { object, value } => {
                memory.replicas[usize::from(object)].contents.value = value;
            }
            Verb::WriteVersion { object, version } => {
                let contents = &mut memory.replicas[usize::from(object)].contents;
                let is_earlier = version < contents.version;
                contents.version = version;
                if is_earlier {
                    state.history.fault(Fault::EarlierVersion);
                }
            }
            Verb::ReadLog => {
                let entry = memory.logs[actor.of()];
                if let (Actor::Recoverer(of), Some(entry)) = (actor, entry) {
                    let best = &mut state.recoveries[usize::from(of)].entry;
                    let rank = |it: crate::state::Entry| (it.tx, it.decision.is_some());
                    if best.is_none_or(|best| rank(best) < rank(entry)) {
                        *best = Some(entry);
                    }
                }
            }
            Verb::BeginLog(tx) => {
                let slot = &mut memory.logs[actor.of()];
                if slot.is_some_and(|it| it.tx != tx) {
                    *slot = None;
                }
            }
            Verb::WriteLog(entry) => memory.logs[actor.of()] = Some(entry),
            Verb::Truncate => memory.logs[actor.of()] = None,
        }
    }

    /// Returns a result to a live coordinator. The results of others are not needed.
    fn answer(&self, state: &mut State, actor: Actor, object: u8, set: impl FnOnce(&mut Found)) {
        if let Actor::Compute(of) = actor
            && !state.computes[usize::from(of)].is_dead
        {
            set(&mut state.computes[usize::from(of)].found[usize::from(object)]);
        }
    }

    /// Whether a log slot on a live memory server has a whole entry of a transaction.
    fn is_logged(&self, state: &State, tx: crate::state::Tx) -> bool {
        let owner = self.owner(tx);
        let mut slots = state.memory.iter().map(|it| it.logs[owner]);
        slots.any(|slot| slot.is_some_and(|entry| entry.tx == tx))
    }

    /// Compares a version with the logged one.
    fn compare(&self, state: &mut State, of: usize, object: u8, version: Version) {
        let recovery = &mut state.recoveries[of];
        let logged = recovery
            .entry
            .and_then(|it| it.objects[usize::from(object)]);
        match logged.is_some_and(|it| version >= it.new) {
            true => recovery.updated += 1,
            false => recovery.outdated += 1,
        }
    }

    /// The contents of an object after it is undone.
    pub fn undone(&self, logged: crate::state::Logged) -> Contents {
        let version = match self.has(Flaw::RestoresVersions) {
            true => logged.old.version,
            false => logged.new.next(logged.old.version.exists()),
        };
        Contents {
            version,
            value: logged.old.value,
        }
    }
}
