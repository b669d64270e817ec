//! The model: the steps that are possible in a state, and their effects.
//!
//! Two reductions keep it small, and lose no state of the memory servers:
//!
//! * A coordinator that reacts to nothing but its results does so in the step in which its last
//!   verb takes effect. If it dies in between, its new verbs are lost, as if it had not posted
//!   them.
//! * A compute server dies and is fenced in one step. A dead server that is not fenced yet differs
//!   from a slow one by its reactions only, and these are lost with its verbs.

use crate::flaws::Flaw;
use crate::flight::Actor;
use crate::properties;
use crate::scenarios::{Operation, Scenario};
use crate::state::{
    COMPUTE_SERVERS, Compute, Memory, Recovering, Recovery, Replica, State, Step, Tx, Version,
};
use stateright::{Model, Property};

/// The model of commit and recovery.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The programs and deaths.
    pub scenario: Scenario,
    /// The unsound choice, if any.
    pub flaw: Option<Flaw>,
}

/// A step. Numbers are those of compute servers, unless they are named otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A coordinator begins its next transaction.
    Begin(u8),
    /// A coordinator registers its commit.
    Enter(u8),
    /// A coordinator reacts to the answers of a batch.
    React(u8),
    /// A coordinator acknowledges its commit.
    Acknowledge(u8),
    /// The first verb on a connection to a memory server takes effect.
    Effect {
        /// The owner of the connection.
        actor: Actor,
        /// The memory server.
        server: u8,
    },
    /// A connection to a memory server breaks: none of its verbs in flight takes effect.
    Break {
        /// The owner of the connection.
        actor: Actor,
        /// The memory server.
        server: u8,
        /// Whether the first of them takes effect before, and only its completion is lost.
        takes_effect: bool,
    },
    /// A compute server dies, and is fenced.
    Die(u8),
    /// A recoverer begins the recovery of a compute server.
    Recover(u8),
    /// A recoverer marks a compute server as failed.
    MarkFailed(u8),
    /// The recoverer of a compute server dies, and is fenced.
    RecovererDies(u8),
    /// A memory server dies.
    MemoryDies {
        /// The memory server.
        server: u8,
    },
    /// A survivor adds a dead memory server to the list of lost ones: an epoch begins.
    Lose {
        /// The memory server.
        server: u8,
    },
}

impl Action {
    fn is_death(&self) -> bool {
        matches!(
            self,
            Self::Die(_) | Self::RecovererDies(_) | Self::MemoryDies { .. }
        )
    }
}

impl Commit {
    /// Whether the model has an unsound choice.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether a choice is sound.
    pub fn is_sound(&self, flaw: Flaw) -> bool {
        !self.has(flaw)
    }

    /// The compute server of a transaction.
    pub fn owner(&self, tx: Tx) -> usize {
        (usize::from(tx) > self.scenario.programs[0].len()).into()
    }

    /// The operations of a transaction.
    pub fn operations(&self, tx: Tx) -> &'static [Operation] {
        let all = self.scenario.programs.iter().copied().flatten();
        all.copied()
            .nth(usize::from(tx).wrapping_sub(1))
            .unwrap_or_default()
    }

    /// Whether a transaction writes an object.
    pub fn writes(&self, tx: usize, object: usize) -> bool {
        let mut operations = self.operations(tx as Tx).iter();
        operations.any(|it| it.object() == object && !matches!(it, Operation::Read(_)))
    }

    /// The transaction that a coordinator began last.
    pub fn running(&self, state: &State, of: usize) -> Tx {
        let before = if of == 0 {
            0
        } else {
            self.scenario.programs[0].len() as u8
        };
        before + state.computes[of].begun
    }

    /// The replicas of an object that are not lost in `epoch`.
    pub fn replicas(
        &self,
        state: &State,
        object: usize,
        epoch: u8,
    ) -> impl Iterator<Item = u8> + use<> {
        let servers = match (object, self.scenario.memory_servers) {
            (0, _) => [0, 1],
            (_, 2) => [1, 0],
            _ => [1, 2],
        };
        let lost = state.lost.filter(|_| epoch > 0);
        servers.into_iter().filter(move |it| Some(*it) != lost)
    }

    /// The primary of an object in `epoch`.
    pub fn primary(&self, state: &State, object: usize, epoch: u8) -> Option<u8> {
        self.replicas(state, object, epoch).next()
    }

    /// The log servers in `epoch`: as many as replicas, if there are so many.
    pub fn log_servers(&self, state: &State, epoch: u8) -> impl Iterator<Item = u8> + use<> {
        let lost = state.lost.filter(|_| epoch > 0);
        let all = 0..self.scenario.memory_servers;
        all.filter(move |it| Some(*it) != lost).take(2)
    }

    /// Whether no step but a death is possible.
    pub fn is_quiet(&self, state: &State) -> bool {
        if !state.flight.is_empty() {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.iter().all(Action::is_death)
    }

    fn kill(&self, state: &mut State, of: usize) {
        if self.is_sound(Flaw::RecoversBeforeRevoking) {
            state.flight.fence(Actor::Compute(of as u8));
        }
        let compute = &mut state.computes[of];
        *compute = Compute {
            is_dead: true,
            begun: compute.begun,
            epoch: compute.epoch,
            registered: compute.registered,
            outcome: compute.outcome,
            ..Compute::default()
        };
    }

    fn kill_memory(&self, state: &mut State, server: u8) {
        state.memory[usize::from(server)] = Memory {
            is_dead: true,
            ..Memory::default()
        };
        for actor in state.flight.lose(server) {
            if let Actor::Compute(of) = actor {
                state.computes[usize::from(of)].has_error = true;
            }
        }
        for of in 0..COMPUTE_SERVERS {
            self.settle(state, of);
            self.settle_recovery(state, of);
        }
    }
}

impl Model for Commit {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let exists = self.scenario.exists;
        let replica = |object: usize| {
            let mut replica = Replica::default();
            replica.contents.version = Version(exists[object].into());
            replica
        };
        let memory = Memory {
            replicas: core::array::from_fn(replica),
            ..Memory::default()
        };
        let mut history = crate::history::History::default();
        history.reads[0] = Default::default();
        vec![State {
            memory: [memory; 3],
            computes: Default::default(),
            recoveries: Default::default(),
            flight: Default::default(),
            lost: None,
            deaths: self.scenario.deaths,
            breaks: self.scenario.breaks,
            history,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (actor, server) in state.flight.connections() {
            actions.push(Action::Effect { actor, server });
            if !self.can_break(state, actor) {
                continue;
            }
            let broken = |takes_effect| Action::Break {
                actor,
                server,
                takes_effect,
            };
            actions.push(broken(false));
            if self.can_lose_completion(state, actor, server) {
                actions.push(broken(true));
            }
        }
        for of in 0..COMPUTE_SERVERS {
            let (compute, number) = (&state.computes[of], of as u8);
            if self.can_begin(state, of) {
                actions.push(Action::Begin(number));
            }
            match compute.step {
                _ if compute.is_dead => {}
                Step::Entering => actions.push(Action::Enter(number)),
                Step::Written => actions.push(Action::Acknowledge(number)),
                _ if self.is_waiting_to_react(state, of) => actions.push(Action::React(number)),
                _ => {}
            }
            let can_die = !compute.is_dead && compute.begun > 0 && self.scenario.victims[of];
            if can_die && state.deaths[0] > 0 {
                actions.push(Action::Die(number));
            }
            let step = state.recoveries[of].step;
            match step {
                Recovering::Waiting if compute.is_dead => actions.push(Action::Recover(number)),
                Recovering::Marking => actions.push(Action::MarkFailed(number)),
                _ => {}
            }
            let is_recovered = !matches!(step, Recovering::Waiting | Recovering::Done);
            if is_recovered && state.deaths[1] > 0 {
                actions.push(Action::RecovererDies(number));
            }
        }
        let memory = &state.memory[..usize::from(self.scenario.memory_servers)];
        for (server, memory) in (0u8..).zip(memory) {
            if memory.is_dead && state.lost.is_none() {
                actions.push(Action::Lose { server });
            }
            if !memory.is_dead && state.deaths[2] > 0 {
                actions.push(Action::MemoryDies { server });
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(of) => self.begin(&mut state, of.into()),
            Action::Enter(of) => self.enter(&mut state, of.into()),
            Action::React(of) => self.react(&mut state, of.into()),
            Action::Acknowledge(of) => self.acknowledge(&mut state, of.into()),
            Action::Effect { actor, server } => self.take_effect(&mut state, actor, server),
            Action::Break {
                actor,
                server,
                takes_effect,
            } => self.break_connection(&mut state, actor, server, takes_effect),
            Action::Die(of) => {
                state.deaths[0] -= 1;
                self.kill(&mut state, of.into());
            }
            Action::Recover(of) => self.recover(&mut state, of.into()),
            Action::MarkFailed(of) => self.mark_failed(&mut state, of.into()),
            Action::RecovererDies(of) => {
                state.deaths[1] -= 1;
                self.kill_recoverer(&mut state, of.into());
            }
            Action::MemoryDies { server } => {
                state.deaths[2] -= 1;
                self.kill_memory(&mut state, server);
            }
            Action::Lose { server } => state.lost = Some(server),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let of_scenario = |it: &&properties::Sometimes| it.applies(&self.scenario);
        let always = properties::ALWAYS
            .iter()
            .map(|it| Property::always(it.name, it.holds));
        let sometimes = properties::SOMETIMES.iter().filter(of_scenario);
        let sometimes = sometimes.map(|it| Property::sometimes(it.name, it.happens));
        always.chain(sometimes).collect()
    }
}

/// Whether a recoverer has died before.
pub fn is_reexecuted(model: &Commit, state: &State, recovery: &Recovery) -> bool {
    recovery.step == Recovering::Marking && state.deaths[1] < model.scenario.deaths[1]
}
