//! The node agent: a compute node's state of one line of the shared memory, and its table.
//!
//! The agent knows nothing of caches within its node. Its inputs are the accesses of cores,
//! evictions by the caches, and the directory's messages. Its actions say when an access may be
//! performed and which messages to send. The caller keeps the line's contents (in the node's
//! caches, or in its write-back buffer while the agent is in `MI`) and passes them with each step.

use super::table::{Cell, Row, Table, names, row};
use super::{ProtocolError, ToDirectory, ToNode};
use ToDirectory::{
    Ack, Done, Downgraded, DowngradedClean, Gone, PutM, RdS, RdX, Relinquished, Upgrade,
};

names! {
    /// The states of a line in its agent: the rows of its table.
    pub enum NodeState {
        /// No copy here.
        I,
        /// A copy to read.
        S,
        /// The only copy, and memory is current.
        E,
        /// The only copy, written since it came.
        M,
        /// No copy; has requested to read, waits for a grant.
        IS,
        /// No copy; has requested to write, waits for a grant.
        IM,
        /// A copy to read; has requested permission to write, waits for a grant.
        SM,
        /// Put back: the write-back buffer has the contents until `PutAck`, and answers a recall.
        MI,
        /// Put back, and recalled since: waits for the `PutAck` of contents that are stale.
        II,
    }
}

names! {
    /// The events of an agent: the columns of its table.
    pub enum NodeEvent {
        /// A core wants to read.
        Load,
        /// A core wants to write.
        Store,
        /// A core will want to write (an exclusive prefetch).
        Prefetch,
        /// The caches drop the line.
        Evict,
        /// [`ToNode::Inv`]
        Inv,
        /// [`ToNode::RecallShared`]
        RecallShared,
        /// [`ToNode::RecallExclusive`]
        RecallExclusive,
        /// [`ToNode::GrantS`]
        GrantS,
        /// [`ToNode::GrantE`]
        GrantE,
        /// [`ToNode::GrantM`]
        GrantM,
        /// [`ToNode::GrantUpgrade`]
        GrantUpgrade,
        /// [`ToNode::PutAck`]
        PutAck,
    }
}

/// An input of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeInput<D> {
    /// A core wants to read.
    Load,
    /// A core wants to write.
    Store,
    /// A core will want to write.
    Prefetch,
    /// The caches drop the line; only if [`NodeState::is_evictable`].
    Evict,
    /// A message from the directory.
    Message(ToNode<D>),
}

/// An action that the agent demands. In tables it has no contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeAction<D> {
    /// Perform the load or store now, on the copy.
    Perform,
    /// Make the load or store wait until `Resume`.
    Wait,
    /// Install these contents of the line.
    Install(D),
    /// Drop the copy (in the caches or in the write-back buffer).
    Drop,
    /// Send this to the line's directory.
    Send(ToDirectory<D>),
    /// Pass every access that waits for this line to the agent again, in this very step: so a grant
    /// is used at least once before it can be recalled, and nodes that want the same line cannot
    /// take it from each other for ever.
    Resume,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeStep<D> {
    cell: Cell<NodeState, NodeAction<()>>,
    contents: Option<D>,
}

impl<D: Copy> NodeStep<D> {
    /// Returns the agent's next state.
    pub fn state(&self) -> NodeState {
        self.cell.next
    }

    /// Returns the actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = NodeAction<D>> + '_ {
        // Contents are filled in here, so that a step is small; it has them if needed.
        self.cell.actions().filter_map(|action| {
            Some(match action {
                Perform => NodeAction::Perform,
                Wait => NodeAction::Wait,
                Install(()) => NodeAction::Install(self.contents?),
                Drop => NodeAction::Drop,
                Send(message) => NodeAction::Send(message.try_map(|()| self.contents)?),
                Resume => NodeAction::Resume,
            })
        })
    }
}

/// A node agent's transitions.
pub type NodeTable = Table<NodeState, NodeEvent, NodeAction<()>>;

use NodeAction::{Drop, Install, Perform, Resume, Send, Wait};
use NodeEvent as On;
use NodeState::{E, I, II, IM, IS, M, MI, S, SM};

/// The agent of the MESI protocol. A pair without a row is impossible; see [the module](super).
#[rustfmt::skip]
pub const MESI_NODE: &[Row<NodeState, NodeEvent, NodeAction<()>>] = &[
    row(I,  On::Load,            &[Send(RdS), Wait],                IS),
    row(I,  On::Store,           &[Send(RdX), Wait],                IM),
    row(I,  On::Prefetch,        &[Send(RdX)],                      IM),
    // The copy was dropped silently, and the directory did not know.
    row(I,  On::Inv,             &[Send(Ack)],                      I),
    row(I,  On::RecallShared,    &[Send(Gone)],                     I),
    row(I,  On::RecallExclusive, &[Send(Gone)],                     I),

    row(S,  On::Load,            &[Perform],                        S),
    row(S,  On::Store,           &[Send(Upgrade), Wait],            SM),
    row(S,  On::Prefetch,        &[Send(Upgrade)],                  SM),
    row(S,  On::Evict,           &[Drop],                           I),
    row(S,  On::Inv,             &[Drop, Send(Ack)],                I),

    row(E,  On::Load,            &[Perform],                        E),
    row(E,  On::Store,           &[Perform],                        M),
    row(E,  On::Prefetch,        &[],                               E),
    row(E,  On::Evict,           &[Drop],                           I),
    row(E,  On::RecallShared,    &[Send(DowngradedClean)],          S),
    row(E,  On::RecallExclusive, &[Drop, Send(Gone)],               I),

    row(M,  On::Load,            &[Perform],                        M),
    row(M,  On::Store,           &[Perform],                        M),
    row(M,  On::Prefetch,        &[],                               M),
    row(M,  On::Evict,           &[Send(PutM(()))],                 MI),
    row(M,  On::RecallShared,    &[Send(Downgraded(()))],           S),
    row(M,  On::RecallExclusive, &[Send(Relinquished(())), Drop],   I),

    row(IS, On::Load,            &[Wait],                           IS),
    row(IS, On::Store,           &[Wait],                           IS),
    row(IS, On::Prefetch,        &[],                               IS),
    // Demands on a copy that was dropped silently; none of them is about the grant to come.
    row(IS, On::Inv,             &[Send(Ack)],                      IS),
    row(IS, On::RecallShared,    &[Send(Gone)],                     IS),
    row(IS, On::RecallExclusive, &[Send(Gone)],                     IS),
    row(IS, On::GrantS,          &[Install(()), Send(Done), Resume],S),
    row(IS, On::GrantE,          &[Install(()), Send(Done), Resume],E),

    row(IM, On::Load,            &[Wait],                           IM),
    row(IM, On::Store,           &[Wait],                           IM),
    row(IM, On::Prefetch,        &[],                               IM),
    row(IM, On::Inv,             &[Send(Ack)],                      IM),
    row(IM, On::RecallShared,    &[Send(Gone)],                     IM),
    row(IM, On::RecallExclusive, &[Send(Gone)],                     IM),
    // Nothing is written yet: a store that waits makes it M at once, a prefetch leaves it E.
    row(IM, On::GrantM,          &[Install(()), Send(Done), Resume],E),

    row(SM, On::Load,            &[Perform],                        SM),
    row(SM, On::Store,           &[Wait],                           SM),
    row(SM, On::Prefetch,        &[],                               SM),
    // Another writer was served first: the Upgrade will be served as an RdX.
    row(SM, On::Inv,             &[Drop, Send(Ack)],                IM),
    row(SM, On::GrantUpgrade,    &[Send(Done), Resume],             E),

    row(MI, On::Load,            &[Wait],                           MI),
    row(MI, On::Store,           &[Wait],                           MI),
    row(MI, On::Prefetch,        &[],                               MI),
    row(MI, On::RecallShared,    &[Send(Relinquished(())), Drop],   II),
    row(MI, On::RecallExclusive, &[Send(Relinquished(())), Drop],   II),
    row(MI, On::PutAck,          &[Drop, Resume],                   I),

    row(II, On::Load,            &[Wait],                           II),
    row(II, On::Store,           &[Wait],                           II),
    row(II, On::Prefetch,        &[],                               II),
    row(II, On::PutAck,          &[Resume],                         I),
];

impl NodeState {
    /// Returns whether loads may be performed.
    pub fn is_readable(self) -> bool {
        matches!(self, S | E | M | SM)
    }

    /// Returns whether stores may be performed.
    pub fn is_writable(self) -> bool {
        matches!(self, E | M)
    }

    /// Returns whether the node keeps the contents, in its caches or in its write-back buffer.
    pub fn has_copy(self) -> bool {
        matches!(self, S | E | M | SM | MI)
    }

    /// Returns whether the agent waits for nothing.
    pub fn is_stable(self) -> bool {
        matches!(self, I | S | E | M)
    }

    /// Returns whether the caches may drop the line; a requested line is left alone.
    pub fn is_evictable(self) -> bool {
        matches!(self, S | E | M)
    }
}

impl<D> NodeInput<D> {
    /// Returns its event, which is the column of the table.
    pub fn event(&self) -> NodeEvent {
        match self {
            NodeInput::Load => NodeEvent::Load,
            NodeInput::Store => NodeEvent::Store,
            NodeInput::Prefetch => NodeEvent::Prefetch,
            NodeInput::Evict => NodeEvent::Evict,
            NodeInput::Message(message) => match message {
                ToNode::Inv => NodeEvent::Inv,
                ToNode::RecallShared => NodeEvent::RecallShared,
                ToNode::RecallExclusive => NodeEvent::RecallExclusive,
                ToNode::GrantS(_) => NodeEvent::GrantS,
                ToNode::GrantE(_) => NodeEvent::GrantE,
                ToNode::GrantM(_) => NodeEvent::GrantM,
                ToNode::GrantUpgrade => NodeEvent::GrantUpgrade,
                ToNode::PutAck => NodeEvent::PutAck,
            },
        }
    }
}

impl NodeTable {
    /// Takes one step of an agent in `state`, whose node has the contents `copy` of the line.
    ///
    /// # Errors
    /// [`ProtocolError::NodeUndefined`] if this cannot happen in this state, and
    /// [`ProtocolError::NoCopy`] or [`ProtocolError::NoContents`] if contents to be sent or kept do
    /// not exist.
    ///
    /// ```
    /// use outlive_machine::protocol::{NodeAction, NodeInput, NodeState, Tables, ToDirectory, ToNode};
    ///
    /// let node = &Tables::mesi().node;
    /// // A store to a line that the node can read: leave is asked for, and the store waits.
    /// let asked = node.step(NodeState::S, NodeInput::Store, Some(7u64))?;
    /// assert_eq!(asked.state(), NodeState::SM);
    /// let actions: Vec<_> = asked.actions().collect();
    /// assert_eq!(actions, [NodeAction::Send(ToDirectory::Upgrade), NodeAction::Wait]);
    /// // A grant of shared data to a writer would be a protocol error.
    /// let error = node.step(asked.state(), NodeInput::Message(ToNode::GrantS(7)), Some(7)).unwrap_err();
    /// assert_eq!(error.to_string(), "a node agent in state SM has no transition for GrantS");
    /// # Ok::<(), outlive_machine::protocol::ProtocolError>(())
    /// ```
    pub fn step<D: Copy>(
        &self,
        state: NodeState,
        input: NodeInput<D>,
        copy: Option<D>,
    ) -> Result<NodeStep<D>, ProtocolError> {
        let event = input.event();
        let cell = self
            .get(state, event)
            .ok_or(ProtocolError::NodeUndefined { state, event })?;
        let received = match input {
            NodeInput::Message(message) => message.data(),
            _ => None,
        };
        let contents = received.or(copy);
        for action in cell.actions() {
            match action {
                Install(()) if received.is_none() => {
                    return Err(ProtocolError::NoContents {
                        what: "a node agent",
                    });
                }
                Send(message) if message.data().is_some() && contents.is_none() => {
                    return Err(ProtocolError::NoCopy { state, event });
                }
                _ => {}
            }
        }
        Ok(NodeStep {
            cell: *cell,
            contents,
        })
    }
}
