//! The tables by which directories bury the dead, and by which they go on afterwards.

use crate::protocol::table::{Row, names, row};
use crate::protocol::{DirectoryEvent, DirectoryOperation, DirectoryState};

names! {
    /// What some nodes' death amounts to for a line: the columns of the table.
    pub enum BurialEvent {
        /// Readers have died, and others are left.
        Reader,
        /// All readers have died.
        LastReader,
        /// All who have not answered have died, and who is served lives.
        AwaitedLast,
        /// The owner has died; if somebody is served, he lives.
        Owner,
        /// Who was served has died; others have copies.
        Requester,
        /// Who was served has died, and so have all who had copies or have not answered.
        RequesterLast,
        /// Who was served has died, and the owner too, who may be the same.
        OwnerAndRequester,
    }
}

/// What the table says is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BurialOperation {
    /// What the logs know of the line goes to memory.
    Restore,
    /// The dead are no holders any more.
    Forget,
    /// Nobody is a holder.
    ForgetAll,
    /// The requester is the only holder now, at a new epoch.
    Own,
    /// `GrantE` with memory's contents to the requester.
    GrantE,
    /// `GrantM` with memory's contents to the requester.
    GrantM,
    /// `GrantUpgrade` to the requester.
    GrantUpgrade,
    /// The transaction is over; the next request is served.
    Finish,
}

use BurialEvent as On;
use BurialOperation::{Finish, Forget, ForgetAll, GrantE, GrantM, GrantUpgrade, Own, Restore};
use DirectoryState::{I, O, OD, OS, OX, S, SD, SU, SX};

/// How a directory buries the dead when nothing of the living is under way to it. *Finished in the name of the dead* is
/// what they would have answered; *undone* is what they have asked for.
///
/// All whom a directory waits for are then known to be dead: whoever dies after his part of *Restart* has answered before it.
/// So nothing is here for a line that waits for one who lives; that would be an error of the recovery.
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

    // It may have had the grant, and have written and committed in the same step, of which the Done did not get out. What a
    // later step has sent got out after that: so nobody has put the line back (ID) without Done.
    row(OD, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),
];

use DirectoryEvent as Asks;
use DirectoryOperation::{
    Begin, GrantE as Alone, GrantM as ToWrite, GrantUpgrade as Upgraded, Own as Owns,
};

/// What a directory needs besides [`MESI_DIRECTORY`](crate::protocol::MESI_DIRECTORY): after a burial a line may have one
/// reader, and no owner.
#[rustfmt::skip]
pub const LONE_READER: &[Row<DirectoryState, DirectoryEvent, DirectoryOperation>] = &[
    row(S,  Asks::RdSAlone,        &[Begin, Owns, Alone],        OD),
    row(S,  Asks::RdXAlone,        &[Begin, Owns, ToWrite],      OD),
    row(S,  Asks::UpgradeAlone,    &[Begin, Owns, Upgraded],     OD),
];
