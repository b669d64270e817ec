//! A store that is replicated, and how it takes a step.

use super::store_table::{StoreEvent, StoreOperation as Do, StoreState};
use crate::protocol::table::Table;
use crate::protocol::{Actions, NodeId, NodeSet, ProtocolError};

/// One store, or several that were coalesced, from its retirement to its commit. Which core, line and values it has is
/// known to its caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Store {
    state: StoreState,
    sequence: u32,
    replicas: NodeSet,
    awaited: NodeSet,
}

/// What is told to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreInput {
    /// It is to be replicated now.
    Replicate {
        /// The number of its REPL among those of its core; see [`Repl`](crate::logging::Repl).
        sequence: u32,
        /// Where to: the line's group, or nobody.
        replicas: NodeSet,
    },
    /// A REPL_ACK has arrived.
    Ack {
        /// Whose logging unit has the store.
        from: NodeId,
        /// The number of the REPL.
        sequence: u32,
    },
    /// It is the oldest store of its core now.
    Head {
        /// Whether the line may be written here.
        writable: bool,
    },
    /// The line may be written from now on. Only to the head.
    Gained,
    /// The line may not be written any more. Only to the head.
    Lost,
    /// The line may not be written, and nothing is under way that would change that. Only where [`StoreState::asks`].
    Idle,
    /// A recovery: nothing that it has sent or is owed is under way, and each log forgets it before anything is sent again.
    Restart,
}

/// What a store wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAction {
    /// REPL to these nodes.
    Repl(NodeSet),
    /// The node's agent is to ask for leave to write.
    Ask,
    /// The store takes place now, in the node's caches; its node counts its commit.
    Commit,
    /// VAL to these nodes, with the number of the commit.
    Val(NodeSet),
}

/// What a step leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreStep {
    /// How far the store is next.
    pub store: Store,
    actions: Actions<StoreAction>,
}

impl StoreStep {
    /// What is to be done, in order.
    pub fn actions(&self) -> impl Iterator<Item = StoreAction> + '_ {
        self.actions.iter().copied()
    }
}

/// A store's transitions.
pub type StoreTable = Table<StoreState, StoreEvent, Do>;

impl Default for Store {
    fn default() -> Store {
        Store {
            state: StoreState::U,
            sequence: 0,
            replicas: NodeSet::EMPTY,
            awaited: NodeSet::EMPTY,
        }
    }
}

impl Store {
    /// The row of the table that it is in.
    pub fn state(&self) -> StoreState {
        self.state
    }

    /// The number of its REPL, if it has been replicated.
    pub fn sequence(&self) -> Option<u32> {
        (!self.state.is_unsent()).then_some(self.sequence)
    }

    /// Where it has been replicated to.
    pub fn replicas(&self) -> NodeSet {
        self.replicas
    }

    /// Whose acknowledgements are to come.
    pub fn awaited(&self) -> NodeSet {
        self.awaited
    }

    /// Whether nothing may be coalesced with it any more.
    pub fn is_sealed(&self) -> bool {
        !self.state.is_unsent()
    }

    /// Whether it has taken place.
    pub fn is_committed(&self) -> bool {
        self.state == StoreState::C
    }

    /// What an input amounts to: which column of the table it is looked up in.
    pub fn event(&self, input: StoreInput) -> StoreEvent {
        match input {
            StoreInput::Replicate { replicas, .. } if replicas.is_empty() => {
                StoreEvent::ReplicateNowhere
            }
            StoreInput::Replicate { .. } => StoreEvent::Replicate,
            StoreInput::Ack { from, sequence }
                if self.sequence() != Some(sequence) || !self.awaited.contains(from) =>
            {
                StoreEvent::Stray
            }
            StoreInput::Ack { from, .. } if self.awaited == NodeSet::only(from) => {
                StoreEvent::AckLast
            }
            StoreInput::Ack { .. } => StoreEvent::Ack,
            StoreInput::Head { writable: false } => StoreEvent::Head,
            StoreInput::Head { writable: true } => StoreEvent::HeadWritable,
            StoreInput::Gained => StoreEvent::Gained,
            StoreInput::Lost => StoreEvent::Lost,
            StoreInput::Idle => StoreEvent::Idle,
            StoreInput::Restart => StoreEvent::Restart,
        }
    }
}

impl StoreTable {
    /// One step of a store.
    ///
    /// # Errors
    /// [`ProtocolError::StoreUndefined`] if this cannot happen to it now.
    ///
    /// ```
    /// use outlive_machine::protocol::{NodeId, NodeSet, STORE, Store, StoreAction, StoreInput, StoreTable};
    ///
    /// let table = StoreTable::new(STORE);
    /// // Baseline: the line first, then the replicas. It is taken away meanwhile, and asked for again.
    /// let replicas = NodeSet::only(NodeId::new(1));
    /// let mut store = Store::default();
    /// for input in [
    ///     StoreInput::Head { writable: true },
    ///     StoreInput::Replicate { sequence: 7, replicas },
    ///     StoreInput::Lost,
    ///     StoreInput::Ack { from: NodeId::new(1), sequence: 7 },
    /// ] {
    ///     store = table.step(&store, input)?.store;
    /// }
    /// let asked = table.step(&store, StoreInput::Idle)?;
    /// assert_eq!(asked.actions().collect::<Vec<_>>(), [StoreAction::Ask]);
    /// let committed = table.step(&store, StoreInput::Gained)?;
    /// assert_eq!(committed.actions().last(), Some(StoreAction::Val(replicas)));
    /// // No second acknowledgement is due.
    /// assert!(table.step(&store, StoreInput::Ack { from: NodeId::new(1), sequence: 7 }).is_err());
    /// # Ok::<(), outlive_machine::protocol::ProtocolError>(())
    /// ```
    pub fn step(&self, store: &Store, input: StoreInput) -> Result<StoreStep, ProtocolError> {
        let (state, event) = (store.state, store.event(input));
        let cell = self
            .get(state, event)
            .ok_or(ProtocolError::StoreUndefined { state, event })?;
        let mut next = *store;
        match input {
            StoreInput::Replicate { sequence, replicas } => {
                next.sequence = sequence;
                next.replicas = replicas;
                next.awaited = replicas;
            }
            StoreInput::Ack { from, .. } => next.awaited = next.awaited.without(from),
            StoreInput::Restart => {
                (next.replicas, next.awaited) = (NodeSet::EMPTY, NodeSet::EMPTY);
            }
            _ => {}
        }
        let mut actions = Actions::new();
        for operation in cell.actions() {
            match operation {
                Do::Repl => actions.push(StoreAction::Repl(next.replicas))?,
                Do::Ask => actions.push(StoreAction::Ask)?,
                Do::Commit => actions.push(StoreAction::Commit)?,
                // Nobody to tell: a machine that does not replicate.
                Do::Val if next.replicas.is_empty() => {}
                Do::Val => actions.push(StoreAction::Val(next.replicas))?,
            }
        }
        next.state = cell.next;
        Ok(StoreStep {
            store: next,
            actions,
        })
    }
}
