//! The tables by which directories remove dead nodes, and continue afterwards.

use crate::protocol::table::{Row, names, row};
use crate::protocol::{DirectoryEvent, DirectoryOperation, DirectoryState};

names! {
    /// The effect of the death of nodes on a line: the columns of the table.
    pub enum BurialEvent {
        /// Readers have died, and others are left.
        Reader,
        /// All readers have died.
        LastReader,
        /// All nodes that have not answered have died, and the requester lives.
        AwaitedLast,
        /// The owner has died; the requester, if there is one, lives.
        Owner,
        /// The requester has died; other nodes have copies.
        Requester,
        /// The requester has died, and so have all nodes that had copies or have not answered.
        RequesterLast,
        /// The requester and the owner have died; they may be the same node.
        OwnerAndRequester,
    }
}

/// An operation of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BurialOperation {
    /// Writes the logged updates of the line to memory.
    Restore,
    /// Removes the dead nodes from the holders.
    Forget,
    /// Removes all holders.
    ForgetAll,
    /// Makes the requester the only holder, at a new epoch.
    Own,
    /// Sends `GrantE` with memory's contents to the requester.
    GrantE,
    /// Sends `GrantM` with memory's contents to the requester.
    GrantM,
    /// Sends `GrantUpgrade` to the requester.
    GrantUpgrade,
    /// Ends the transaction; the next request is served.
    Finish,
}

use BurialEvent as On;
use BurialOperation::{Finish, Forget, ForgetAll, GrantE, GrantM, GrantUpgrade, Own, Restore};
use DirectoryState::{I, O, OD, OS, OX, S, SD, SU, SX};

/// The burial of dead nodes in a directory when no message of a living node is under way to it.
/// Missing answers of dead nodes are assumed given; requests of dead nodes are undone.
///
/// All nodes that a directory waits for are then known to be dead: a node that dies after its part
/// of *Restart* has answered before it. So there is no row for a line that waits for a living node;
/// that would be an error of the recovery.
#[rustfmt::skip]
pub const BURIAL: &[Row<DirectoryState, BurialEvent, BurialOperation>] = &[
    row(S,  On::Reader,            &[Forget],                    S),
    row(S,  On::LastReader,        &[Forget],                    I),

    row(O,  On::Owner,             &[Restore, Forget],           I),

    row(SX, On::AwaitedLast,       &[Own, GrantM],               OD),
    row(SX, On::RequesterLast,     &[ForgetAll, Finish],         I),

    row(SU, On::AwaitedLast,       &[Own, GrantUpgrade],         OD),
    row(SU, On::RequesterLast,     &[ForgetAll, Finish],         I),

    row(OS, On::Owner,             &[Restore, Own, GrantE],      OD),
    row(OS, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),

    row(OX, On::Owner,             &[Restore, Own, GrantM],      OD),
    row(OX, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),

    row(SD, On::Requester,         &[Forget, Finish],            S),
    row(SD, On::RequesterLast,     &[Forget, Finish],            I),

    // The node may have had the grant, and have written and committed in the same step, whose Done
    // did not get out. Messages of a later step got out after that Done: so without Done, the line
    // has not been put back (ID).
    row(OD, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),
];

use DirectoryEvent as Asks;
use DirectoryOperation::{
    Begin, GrantE as Alone, GrantM as ToWrite, GrantUpgrade as Upgraded, Own as Owns,
};

/// The rows that a directory needs in addition to
/// [`MESI_DIRECTORY`](crate::protocol::MESI_DIRECTORY): after a burial a line may have one reader
/// and no owner.
#[rustfmt::skip]
pub const LONE_READER: &[Row<DirectoryState, DirectoryEvent, DirectoryOperation>] = &[
    row(S,  Asks::RdSAlone,        &[Begin, Owns, Alone],        OD),
    row(S,  Asks::RdXAlone,        &[Begin, Owns, ToWrite],      OD),
    row(S,  Asks::UpgradeAlone,    &[Begin, Owns, Upgraded],     OD),
];
