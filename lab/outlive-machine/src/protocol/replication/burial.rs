//! Burial: the removal of dead nodes from a directory in a recovery.

use super::burial_table::{BurialEvent, BurialOperation as Do};
use crate::protocol::table::Table;
use crate::protocol::{
    Actions, Directory, DirectoryAction, DirectoryState, DirectoryStep, DirectoryTable, Epoch,
    NodeId, NodeSet, ProtocolError, ToNode,
};

/// A directory's transitions at the death of nodes.
pub type BurialTable = Table<DirectoryState, BurialEvent, Do>;

impl Directory {
    /// Returns the node that may have the only copy, and its epoch. Contents that no node has
    /// handed in yet belong to this node, even if they have been recalled from it.
    pub fn owner(&self) -> Option<(NodeId, Epoch)> {
        let holder = self.holders.iter().next();
        holder
            .filter(|_| self.state.is_owned())
            .map(|node| (node, self.epoch()))
    }

    /// Returns whether any of these nodes is named: as a holder, as awaited, or by a request.
    pub fn names_any(&self, nodes: NodeSet) -> bool {
        nodes.iter().any(|node| {
            self.holders.contains(node)
                || self.awaited.contains(node)
                || self.requester == Some(node)
                || self.queue.contains(node)
        })
    }

    /// Returns the event that the death of these nodes is, which is the column of the table; `None`
    /// if nothing that is under way or recorded depends on them.
    pub fn burial(&self, dead: NodeSet) -> Option<BurialEvent> {
        use DirectoryState::{I, ID, O, OD, OS, OX, S, SD, SU, SX};
        let requester = self.requester.is_some_and(|node| dead.contains(node));
        let some_held = self.holders.iter().any(|node| dead.contains(node));
        let none_left = self.holders.iter().all(|node| dead.contains(node));
        let some_awaited = self.awaited.iter().any(|node| dead.contains(node));
        let all_through = self.awaited.iter().all(|node| dead.contains(node));
        let pick = |which: &[(bool, BurialEvent)]| {
            let found = which.iter().find(|(holds, _)| *holds);
            found.map(|(_, event)| *event)
        };
        match self.state {
            I => None,
            S => pick(&[
                (some_held && none_left, BurialEvent::LastReader),
                (some_held, BurialEvent::Reader),
            ]),
            O => pick(&[(some_held, BurialEvent::Owner)]),
            SX | SU => pick(&[
                (requester && all_through, BurialEvent::RequesterLast),
                (requester, BurialEvent::Requester),
                (some_awaited && all_through, BurialEvent::AwaitedLast),
                (some_awaited || some_held, BurialEvent::Reader),
            ]),
            OS | OX => pick(&[
                (requester && some_held, BurialEvent::OwnerAndRequester),
                (requester, BurialEvent::Requester),
                (some_held, BurialEvent::Owner),
            ]),
            SD => pick(&[
                (requester && none_left, BurialEvent::RequesterLast),
                (requester, BurialEvent::Requester),
                (some_held, BurialEvent::Reader),
            ]),
            OD => pick(&[(requester, BurialEvent::OwnerAndRequester)]),
            ID => pick(&[(requester, BurialEvent::RequesterLast)]),
        }
    }
}

impl BurialTable {
    /// Removes these dead nodes from a line's `directory` (the paper's Algorithm 1). Afterwards the
    /// directory does not name them. Transactions that waited for them are finished in their name;
    /// transactions for them are undone.
    ///
    /// `logged` is memory's contents brought up to date by the logs
    /// ([`LatestWords`](crate::logging::LatestWords)) for the [`owner`](Directory::owner) and epoch
    /// that the directory names; it is used only if this owner is among the dead nodes. A second
    /// call with the same dead nodes changes nothing, so a recovery may begin again.
    ///
    /// Nothing of the dead nodes may be under way to the directory any more.
    ///
    /// # Errors
    /// [`ProtocolError::BurialUndefined`] if the directory waits for a node that is not among the
    /// dead nodes, or else the error of `directories`.
    pub fn bury<D: Copy>(
        &self,
        directories: &DirectoryTable,
        directory: &Directory,
        dead: NodeSet,
        logged: D,
        memory: D,
    ) -> Result<DirectoryStep<D>, ProtocolError> {
        let event = directory.burial(dead);
        let mut next = *directory;
        next.queue = directory.queue.without(dead);
        next.awaited = directory.awaited.minus(dead);
        let mut memory = memory;
        let mut actions = Actions::new();
        let Some(event) = event else {
            return Ok(DirectoryStep::new(next, actions, memory));
        };
        let state = directory.state;
        let cell = self
            .get(state, event)
            .ok_or(ProtocolError::BurialUndefined { state, event })?;
        let mut finished = false;
        for operation in cell.actions() {
            match operation {
                Do::Restore => {
                    memory = logged;
                    actions.push(DirectoryAction::WriteMemory(()))?;
                }
                Do::Forget => next.holders = next.holders.minus(dead),
                Do::ForgetAll => next.holders = NodeSet::EMPTY,
                Do::Own => next.own()?,
                Do::GrantE => actions.push(next.grant(ToNode::GrantE(()))?)?,
                Do::GrantM => actions.push(next.grant(ToNode::GrantM(()))?)?,
                Do::GrantUpgrade => actions.push(next.grant(ToNode::GrantUpgrade)?)?,
                Do::Finish => {
                    next.requester = None;
                    next.awaited = NodeSet::EMPTY;
                    finished = true;
                }
            }
        }
        next.state = cell.next;
        let turn = if finished { next.next_turn() } else { None };
        directories.serve(&mut next, turn, &mut memory, &mut actions)?;
        Ok(DirectoryStep::new(next, actions, memory))
    }
}
