//! The directory: a memory node's state of one of its lines, and its steps.
//!
//! The table is [`MESI_DIRECTORY`](super::MESI_DIRECTORY); this file defines its events. The sender
//! of a message and the record's entry for it decide the column of the table
//! ([`Directory::event`]), so that no row has a condition.

use super::directory_table::{DirectoryEvent, DirectoryOperation as Do, DirectoryState};
use super::queue::{Queue, Request};
use super::table::Table;
use super::{Actions, Epoch, NodeId, NodeSet, ProtocolError, ToDirectory, ToNode};

/// A directory's state of a line. While nothing is under way it fits into a [`Record`], which is
/// smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Directory {
    pub(super) state: DirectoryState,
    pub(super) requester: Option<NodeId>,
    pub(super) holders: NodeSet,
    pub(super) awaited: NodeSet,
    epoch: Epoch,
    pub(super) queue: Queue,
}

/// A directory's state of a line without requests: twelve bytes.
///
/// ```
/// use outlive_machine::protocol::{Directory, Epoch, NodeId, NodeSet, Record};
///
/// let record = Record { holders: NodeSet::only(NodeId::new(2)), owned: true, epoch: Epoch(1) };
/// assert_eq!(Directory::from(record).record(), Some(record));
/// assert_eq!(std::mem::size_of::<Record>(), 12);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Record {
    /// The nodes that may have a copy; they may have dropped it silently.
    pub holders: NodeSet,
    /// Whether the only holder may have written its copy.
    pub owned: bool,
    /// The number of grants of the line to an only holder.
    pub epoch: Epoch,
}

/// An action that a directory demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryAction<D> {
    /// Send this to each of these nodes. Contents are those of memory at this point.
    Send(NodeSet, ToNode<D>),
    /// Write these contents of the line to memory.
    WriteMemory(D),
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryStep<D> {
    /// The next state of the directory.
    pub directory: Directory,
    actions: Actions<DirectoryAction<()>>,
    memory: D,
}

impl<D: Copy> DirectoryStep<D> {
    pub(super) fn new(
        directory: Directory,
        actions: Actions<DirectoryAction<()>>,
        memory: D,
    ) -> DirectoryStep<D> {
        DirectoryStep {
            directory,
            actions,
            memory,
        }
    }

    /// Returns the actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = DirectoryAction<D>> + '_ {
        // Contents are filled in here, so that a step is small. A step grants after it writes
        // memory.
        self.actions.iter().map(|action| match *action {
            DirectoryAction::Send(to, message) => {
                DirectoryAction::Send(to, message.map(|()| self.memory))
            }
            DirectoryAction::WriteMemory(()) => DirectoryAction::WriteMemory(self.memory),
        })
    }
}

/// A directory's transitions.
pub type DirectoryTable = Table<DirectoryState, DirectoryEvent, Do>;

impl Default for Directory {
    fn default() -> Directory {
        Directory::from(Record::default())
    }
}

impl From<Record> for Directory {
    fn from(record: Record) -> Directory {
        let state = match (record.owned, record.holders.is_empty()) {
            (true, _) => DirectoryState::O,
            (false, true) => DirectoryState::I,
            (false, false) => DirectoryState::S,
        };
        let holders = record.holders;
        Directory {
            state,
            requester: None,
            holders,
            awaited: NodeSet::EMPTY,
            epoch: record.epoch,
            queue: Queue::default(),
        }
    }
}

impl Directory {
    /// Returns the line's state, which is the row of the table.
    pub fn state(&self) -> DirectoryState {
        self.state
    }

    /// Returns the node whose request is served.
    pub fn requester(&self) -> Option<NodeId> {
        self.requester
    }

    /// Returns the nodes that may have a copy.
    pub fn holders(&self) -> NodeSet {
        self.holders
    }

    /// Returns the nodes whose answers to an invalidation or recall have not arrived.
    pub fn awaited(&self) -> NodeSet {
        self.awaited
    }

    /// Returns the number of the last exclusive grant. A grant of the only copy carries it: at this
    /// epoch its receiver owns the line, and says so with each of its commits
    /// ([`Val`](crate::logging::Val)).
    ///
    /// A recorded owner that sends another request is granted the same epoch again: it has dropped
    /// its copy silently, so it has committed nothing at this epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the requests that wait.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the complete state as a record, while nothing is under way.
    pub fn record(&self) -> Option<Record> {
        let owned = self.state == DirectoryState::O;
        let bare = self.state.is_stable() && self.queue.is_empty();
        bare.then_some(Record {
            holders: self.holders,
            owned,
            epoch: self.epoch,
        })
    }

    /// Returns the same state with the nodes renamed. Nodes are alike, so a search may count states
    /// that differ only in names once.
    pub fn renamed(&self, name: impl Fn(NodeId) -> NodeId) -> Directory {
        let mut queue = Queue::default();
        for (node, request) in self.queue.iter() {
            queue.push(name(node), request).expect("as many as before");
        }
        Directory {
            state: self.state,
            requester: self.requester.map(&name),
            holders: self.holders.iter().map(&name).collect(),
            awaited: self.awaited.iter().map(&name).collect(),
            epoch: self.epoch,
            queue,
        }
    }

    /// Returns the event that a message is, which is the column of the table.
    /// [`DirectoryEvent::Stray`] stands for a message that its sender cannot have sent; no state
    /// has a row for it.
    pub fn event<D: Copy>(&self, from: NodeId, message: ToDirectory<D>) -> DirectoryEvent {
        use DirectoryState::{O, OD, OS, OX, S};
        let holds = self.holders.contains(from);
        let awaited = self.awaited.contains(from);
        let answer = |event| {
            if awaited {
                event
            } else {
                DirectoryEvent::Stray
            }
        };
        match message {
            ToDirectory::RdS => self.request(from, Request::RdS),
            ToDirectory::RdX => self.request(from, Request::RdX),
            ToDirectory::Upgrade => self.request(from, Request::Upgrade),
            ToDirectory::Ack if self.awaited == NodeSet::only(from) => DirectoryEvent::AckLast,
            ToDirectory::Ack => answer(DirectoryEvent::Ack),
            ToDirectory::Relinquished(_) => answer(DirectoryEvent::Relinquished),
            ToDirectory::Gone => answer(DirectoryEvent::Gone),
            ToDirectory::Downgraded(_) if holds => answer(DirectoryEvent::Downgraded),
            ToDirectory::DowngradedClean if holds => answer(DirectoryEvent::DowngradedClean),
            ToDirectory::Downgraded(_) | ToDirectory::DowngradedClean => DirectoryEvent::Stray,
            ToDirectory::Done if self.requester == Some(from) => DirectoryEvent::Done,
            ToDirectory::Done => DirectoryEvent::Stray,
            ToDirectory::PutM(_) if holds && matches!(self.state, O | OS | OX | OD) => {
                DirectoryEvent::PutM
            }
            // A node that reads, is served, or has a request waiting has no write-back under way.
            ToDirectory::PutM(_) if holds && self.state == S => DirectoryEvent::Stray,
            ToDirectory::PutM(_) if self.queue.contains(from) => DirectoryEvent::Stray,
            ToDirectory::PutM(_) if self.requester == Some(from) => DirectoryEvent::Stray,
            ToDirectory::PutM(_) => DirectoryEvent::PutMStale,
        }
    }

    fn request(&self, from: NodeId, request: Request) -> DirectoryEvent {
        let holds = self.holders.contains(from);
        let alone = self.holders.without(from).is_empty();
        if !self.state.is_stable() {
            // A granted node may send another request before its Done arrives; a node that the
            // directory is serving may not.
            let served = self.requester == Some(from) && !self.state.is_granted();
            return match request {
                _ if served || self.queue.contains(from) => DirectoryEvent::Stray,
                Request::RdS => DirectoryEvent::RdS,
                Request::RdX => DirectoryEvent::RdX,
                Request::Upgrade => DirectoryEvent::Upgrade,
            };
        }
        match (request, alone) {
            (Request::RdS, false) => DirectoryEvent::RdS,
            (Request::RdS, true) => DirectoryEvent::RdSAlone,
            (Request::Upgrade, _) if holds && self.state == DirectoryState::O => {
                DirectoryEvent::Stray
            }
            (Request::Upgrade, false) if holds => DirectoryEvent::Upgrade,
            (Request::Upgrade, true) if holds => DirectoryEvent::UpgradeAlone,
            // The sender of the Upgrade was invalidated in the meantime, so it has no copy any
            // more.
            (Request::RdX | Request::Upgrade, false) => DirectoryEvent::RdX,
            (Request::RdX | Request::Upgrade, true) => DirectoryEvent::RdXAlone,
        }
    }

    fn requester_for(&self, what: &'static str) -> Result<NodeId, ProtocolError> {
        self.requester.ok_or(ProtocolError::NobodyToTell {
            state: self.state,
            what,
        })
    }

    /// Returns the one holder of an owned line, whose answer is awaited from now on.
    fn recall(&mut self) -> Result<NodeSet, ProtocolError> {
        if self.holders.len() != 1 {
            return Err(ProtocolError::NobodyToTell {
                state: self.state,
                what: "a recall",
            });
        }
        self.awaited = self.holders;
        Ok(self.holders)
    }
}

impl DirectoryTable {
    /// Takes one step of a `directory` whose line has the contents `memory`, for a message from a
    /// node. If the step ends a transaction, it also begins the next request in the queue.
    ///
    /// # Errors
    /// [`ProtocolError::DirectoryUndefined`] if this cannot happen in this state; the others if the
    /// table is unsound.
    ///
    /// ```
    /// use outlive_machine::protocol::{Directory, DirectoryAction, NodeId, NodeSet, Tables, ToDirectory, ToNode};
    ///
    /// let table = &Tables::mesi().directory;
    /// let (reader, writer) = (NodeId::new(0), NodeId::new(1));
    /// let line = Directory::default();
    /// let step = table.step(&line, reader, ToDirectory::RdS, 7u64)?;
    /// let actions: Vec<_> = step.actions().collect();
    /// assert_eq!(actions, [DirectoryAction::Send(NodeSet::only(reader), ToNode::GrantE(7))]);
    /// // Another request waits until the grant has arrived.
    /// let step = table.step(&step.directory, writer, ToDirectory::RdX, 7)?;
    /// assert!(step.actions().next().is_none() && step.directory.queue().contains(writer));
    /// let step = table.step(&step.directory, reader, ToDirectory::Done, 7)?;
    /// let actions: Vec<_> = step.actions().collect();
    /// assert_eq!(actions, [DirectoryAction::Send(NodeSet::only(reader), ToNode::RecallExclusive)]);
    /// # Ok::<(), outlive_machine::protocol::ProtocolError>(())
    /// ```
    pub fn step<D: Copy>(
        &self,
        directory: &Directory,
        from: NodeId,
        message: ToDirectory<D>,
        memory: D,
    ) -> Result<DirectoryStep<D>, ProtocolError> {
        let mut next = *directory;
        let mut memory = memory;
        let mut actions = Actions::new();
        self.serve(&mut next, Some((from, message)), &mut memory, &mut actions)?;
        Ok(DirectoryStep::new(next, actions, memory))
    }

    /// Takes in a message, and serves queued requests for as long as transactions end at once.
    pub(super) fn serve<D: Copy>(
        &self,
        next: &mut Directory,
        mut turn: Option<(NodeId, ToDirectory<D>)>,
        memory: &mut D,
        actions: &mut Actions<DirectoryAction<()>>,
    ) -> Result<(), ProtocolError> {
        while let Some((from, message)) = turn.take() {
            let (state, event) = (next.state, next.event(from, message));
            let cell = self
                .get(state, event)
                .ok_or(ProtocolError::DirectoryUndefined {
                    state,
                    event,
                    from,
                    message: message.kind(),
                })?;
            next.awaited = if event.is_answer() {
                next.awaited.without(from)
            } else {
                next.awaited
            };
            let mut finished = false;
            for operation in cell.actions() {
                match operation {
                    Do::Begin => next.requester = Some(from),
                    Do::Enqueue => {
                        let request = match message {
                            ToDirectory::RdS => Request::RdS,
                            ToDirectory::RdX => Request::RdX,
                            _ => Request::Upgrade,
                        };
                        next.queue.push(from, request)?;
                    }
                    Do::Finish => {
                        next.requester = None;
                        finished = true;
                    }
                    Do::Own => next.own()?,
                    Do::Join => next.holders = next.holders.with(next.requester_for("a grant")?),
                    Do::Forget => next.holders = next.holders.without(from),
                    Do::WriteMemory => {
                        *memory = message.data().ok_or(ProtocolError::NoContents {
                            what: "a directory",
                        })?;
                        actions.push(DirectoryAction::WriteMemory(()))?;
                    }
                    Do::Invalidate => {
                        next.awaited = next.holders.without(next.requester_for("an invalidation")?);
                        actions.push(DirectoryAction::Send(next.awaited, ToNode::Inv))?;
                    }
                    Do::RecallShared => {
                        actions.push(DirectoryAction::Send(next.recall()?, ToNode::RecallShared))?
                    }
                    Do::RecallExclusive => {
                        actions.push(DirectoryAction::Send(
                            next.recall()?,
                            ToNode::RecallExclusive,
                        ))?;
                    }
                    Do::PutAck => {
                        actions.push(DirectoryAction::Send(NodeSet::only(from), ToNode::PutAck))?
                    }
                    Do::GrantS => actions.push(next.grant(ToNode::GrantS(()))?)?,
                    Do::GrantE => actions.push(next.grant(ToNode::GrantE(()))?)?,
                    Do::GrantM => actions.push(next.grant(ToNode::GrantM(()))?)?,
                    Do::GrantUpgrade => actions.push(next.grant(ToNode::GrantUpgrade)?)?,
                }
            }
            next.state = cell.next;
            if finished {
                turn = next.next_turn();
            }
        }
        Ok(())
    }
}

impl Directory {
    /// Makes the requester the only holder, at a new epoch.
    pub(super) fn own(&mut self) -> Result<(), ProtocolError> {
        self.holders = NodeSet::only(self.requester_for("a grant")?);
        let epoch = self.epoch.0.checked_add(1);
        self.epoch = Epoch(epoch.ok_or(ProtocolError::NoEpochLeft)?);
        Ok(())
    }

    /// Takes the next request out of the queue.
    pub(super) fn next_turn<D>(&mut self) -> Option<(NodeId, ToDirectory<D>)> {
        self.queue.pop().map(|(node, request)| match request {
            Request::RdS => (node, ToDirectory::RdS),
            Request::RdX => (node, ToDirectory::RdX),
            Request::Upgrade => (node, ToDirectory::Upgrade),
        })
    }

    pub(super) fn grant(&self, grant: ToNode<()>) -> Result<DirectoryAction<()>, ProtocolError> {
        Ok(DirectoryAction::Send(
            NodeSet::only(self.requester_for("a grant")?),
            grant,
        ))
    }
}
