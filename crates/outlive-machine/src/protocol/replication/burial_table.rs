//! The tables by which directories bury the dead, and by which they go on afterwards.

use crate::protocol::table::{Row, names, row};
use crate::protocol::{DirectoryEvent, DirectoryOperation, DirectoryState};

names! {
    /// What some nodes' death amounts to for a line: the columns of the table.
    pub enum BurialEvent {
        /// Readers have died, and others are left. None of the dead is awaited or served.
        Reader,
        /// All readers have died.
        LastReader,
        /// Invalidations of the dead are through; others are to come.
        Awaited,
        /// Invalidations of the dead are through, and these were the last.
        AwaitedLast,
        /// The owner has died; if somebody is served, he lives.
        Owner,
        /// Who was served has died; others may have copies.
        Requester,
        /// Who was served has died, and nobody else has a copy.
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
    /// Who has not answered yet is a holder, and nobody else.
    KeepAwaited,
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
use BurialOperation::{Finish, Forget, GrantE, GrantM, GrantUpgrade, KeepAwaited, Own, Restore};
use DirectoryState::{I, O, OD, OS, OX, S, SD, SU, SX};

/// How a directory buries the dead when nothing of the living is under way to it. *Finished in the name of the dead* is
/// what they would have answered; *undone* is what they have asked for.
#[rustfmt::skip]
pub const BURIAL: &[Row<DirectoryState, BurialEvent, BurialOperation>] = &[
    row(S,  On::Reader,            &[Forget],                    S),
    row(S,  On::LastReader,        &[Forget],                    I),

    row(O,  On::Owner,             &[Restore, Forget],           I),

    row(SX, On::Reader,            &[Forget],                    SX),
    row(SX, On::Awaited,           &[Forget],                    SX),
    row(SX, On::AwaitedLast,       &[Own, GrantM],               OD),
    // Who has not answered although nothing is under way has died too, and that is not known yet.
    row(SX, On::Requester,         &[KeepAwaited, Finish],       S),
    row(SX, On::RequesterLast,     &[KeepAwaited, Finish],       I),

    row(SU, On::Reader,            &[Forget],                    SU),
    row(SU, On::Awaited,           &[Forget],                    SU),
    row(SU, On::AwaitedLast,       &[Own, GrantUpgrade],         OD),
    row(SU, On::Requester,         &[KeepAwaited, Finish],       S),
    row(SU, On::RequesterLast,     &[KeepAwaited, Finish],       I),

    row(OS, On::Owner,             &[Restore, Own, GrantE],      OD),
    row(OS, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),
    row(OS, On::Requester,         &[Finish],                    O),

    row(OX, On::Owner,             &[Restore, Own, GrantM],      OD),
    row(OX, On::OwnerAndRequester, &[Restore, Forget, Finish],   I),
    row(OX, On::Requester,         &[Finish],                    O),

    row(SD, On::Reader,            &[Forget],                    SD),
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
