//! A replicated store, and its steps.

use super::store_table::{StoreEvent, StoreOperation as Do, StoreState};
use crate::protocol::table::Table;
use crate::protocol::{Actions, NodeId, NodeSet, ProtocolError};

/// One store, or several that were coalesced, from its retirement to its commit. The caller knows
/// its core, line and values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Store {
    state: StoreState,
    sequence: u32,
    replicas: NodeSet,
    awaited: NodeSet,
}

/// An input of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreInput {
    /// The store is to be replicated now.
    Replicate {
        /// The number of its REPL among those of its core; see [`Repl`](crate::logging::Repl).
        sequence: u32,
        /// The receivers: the line's group, or none.
        replicas: NodeSet,
    },
    /// A REPL_ACK has arrived.
    Ack {
        /// The node whose logging unit has the store.
        from: NodeId,
        /// The number of the REPL.
        sequence: u32,
    },
    /// The store is now the oldest of its core.
    Head {
        /// Whether the line may be written here.
        writable: bool,
    },
    /// The line may be written from now on. Only for the head.
    Gained,
    /// The line may not be written any more. Only for the head.
    Lost,
    /// The line may not be written, and nothing is under way that would change that. Only if
    /// [`StoreState::asks`].
    Idle,
    /// A recovery: no message from or to the store is under way, and each log forgets it before
    /// anything is sent again.
    Restart,
}

/// An action that a store demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAction {
    /// Send REPL to these nodes.
    Repl(NodeSet),
    /// The node's agent is to request permission to write.
    Ask,
    /// The store is performed now, in the node's caches; its node counts the commit.
    Commit,
    /// Send VAL to these nodes, with the number of the commit.
    Val(NodeSet),
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreStep {
    /// The next state of the store.
    pub store: Store,
    actions: Actions<StoreAction>,
}

impl StoreStep {
    /// Returns the actions, in order.
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
    /// Returns its state, which is the row of the table.
    pub fn state(&self) -> StoreState {
        self.state
    }

    /// Returns the number of its REPL, if it has been replicated.
    pub fn sequence(&self) -> Option<u32> {
        (!self.state.is_unsent()).then_some(self.sequence)
    }

    /// Returns the nodes to which it has been replicated.
    pub fn replicas(&self) -> NodeSet {
        self.replicas
    }

    /// Returns the nodes whose acknowledgements have not arrived.
    pub fn awaited(&self) -> NodeSet {
        self.awaited
    }

    /// Returns whether nothing may be coalesced with it any more.
    pub fn is_sealed(&self) -> bool {
        !self.state.is_unsent()
    }

    /// Returns whether it has been performed.
    pub fn is_committed(&self) -> bool {
        self.state == StoreState::C
    }

    /// Returns the event that an input is, which is the column of the table.
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
    /// Takes one step of a store.
    ///
    /// # Errors
    /// [`ProtocolError::StoreUndefined`] if this input is impossible in its state.
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
                // The machine does not replicate.
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
