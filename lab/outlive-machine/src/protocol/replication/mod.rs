//! ReCXL's replication and recovery: how a store gets its replicas, when it may commit, and what is made of a node's death.
//!
//! A store of the shared memory is *replicated* before it commits (the paper's section IV-D): REPL goes to the N_r nodes of
//! its line's group, each answers REPL_ACK, and when the store is the oldest of its core, its node may write the line and
//! all have answered, it commits, and VAL goes to each of them. [`STORE`] is this, seen from the requester, for one store;
//! the words and numbers of the messages are those of [`logging`](crate::logging).
//!
//! # One table, four machines
//!
//! What differs between the variants is when whoever drives the table says [`StoreInput::Replicate`]:
//!
//! | | `Replicate` is told | to |
//! | --- | --- | --- |
//! | WB | at the head of the store buffer | nobody |
//! | baseline | when the store is at the head and the line may be written | the group |
//! | parallel | when the store is at the head | the group |
//! | proactive | when the store is in the store buffer and nothing will be coalesced with it any more | the group |
//!
//! A store without replicas has all its acknowledgements. (The timed machine commits those of WB without the table.)
//! Between retirement and commit any moment is right: what the table waits for is the same. After `Replicate` nothing
//! may be coalesced with the store ([`Store::is_sealed`]).
//!
//! # Who waits for what
//!
//! | state | waits for | which comes because |
//! | --- | --- | --- |
//! | `U`, `R`, `A` | its turn | the stores before it commit |
//! | `UH`, `RH`, `AH` | leave to write | it is asked for when the line is here neither to be written nor under way ([`StoreInput::Idle`]) |
//! | `R`, `RH`, `RW`, `RL` | REPL_ACKs | a living logging unit answers at once; for a dead one, recovery [restarts](StoreInput::Restart) the store |
//!
//! Acknowledgements wait for nothing of the coherence protocol, so a line need not be held while they are under way: if it
//! is lost, it is asked for again when they are in (`RL`), and they stay good, for they are about the store and not about
//! the owner. Then a grant is a commit, in the step that takes it in. So a store takes its line from another node twice at
//! most, however long its acknowledgements are under way.
//!
//! An atomic is different: what it stores depends on what it has read, so from its reading to its commit its node does not let
//! the line go. An interrupt makes it let go, and a restart read again.
//!
//! # Recovery
//!
//! A node dies: its caches, its store buffers and its logging unit are gone. What it has sent before arrives, and what is sent
//! to it vanishes; nobody answers in its name. The switch tells a living core, the configuration manager, and that one leads
//! (the paper's Table I, Algorithms 1 and 2):
//!
//! 1. *Interrupt* to all living nodes. Their cores ask for nothing more; agents, directories and logging units go on, and
//!    a store that gets its last acknowledgement or its line may commit still (in the timed machine cores that are interrupted
//!    commit nothing any more, which is one of these ways). A node answers *InterruptResp* with how many
//!    messages it has sent to each other node and got from it, memory nodes too, and again when that has changed.
//! 2. *The fabric is drained* when these counts agree for the living, and the switch has nothing left of the dead. Whatever
//!    waits now waits for the dead, or for one who does.
//! 3. *Restart* to all living nodes. Each tells its stores that have not committed [`StoreInput::Restart`], and its logging
//!    unit [forgets](crate::logging::LoggingUnit::forget) whatever is not validated, of every node. Nothing that these stores
//!    have sent is under way, and nothing is sent again before 6, so the REPL of a store that starts over never meets its old
//!    entry, which would keep its room for ever. All answer before 4: a burial grants lines, and a store that has all its
//!    acknowledgements and has not been told would commit on such a grant, and validate what the units have forgotten.
//! 4. *InitRecov* to the directories, and each repairs its lines in any order: it fetches what the logs have of each line
//!    that a dead node owns (*FetchLatestVers*, from the living units and from the memory nodes), puts it into memory, and
//!    [buries](BurialTable::bury) the dead: it finishes in their name what waits for their answers, undoes what they have
//!    asked for, and serves who waits behind that. The grants of these transactions go out at once. Each answers
//!    *InitRecovResp*.
//! 5. *The last round of dumps* under the old groups ([`DumpBarrier`](crate::logging::DumpBarrier)), when 4 is done: beside it, an
//!    entry could be in no answer, if a memory node is asked before it is stored there, and the units after they have cleared it.
//!    (For the same reason no round begins between 3 and this, whoever has asked for one.) First every unit saves its share of what is validated. When all have, each
//!    clears what is saved, forms the groups anew of the living ([`regroup`](crate::logging::LoggingUnit::regroup)), and
//!    answers.
//! 6. *RecovEnd*, when all of 4 and of 5 have answered: the cores go on, one after the other. Nobody waits for their
//!    *RecovEndResp*: a core that goes on later is one that asks later.
//!
//! Whoever dies meanwhile, the manager too: it is begun again at 1, with all who are known to be dead. Each step may be done
//! twice. What a burial has granted before is an ordinary transaction, and arrives in the second draining. An order names the
//! dead (in the timed machine a number, which grows with them), and a node takes no order that names fewer than the last Interrupt
//! it has got: so no order of a manager who has died,
//! or has begun again, is mistaken for one of the present recovery.
//!
//! # Why so many waits
//!
//! * *Nothing under way before 3*: what the dead have sent would come after their burial, and name them again; and
//!   acknowledgements would come to stores that have started over.
//! * *All have restarted before 4*: as said there.
//! * *All have saved before any unit clears what they are to save*: who saves a line may die before it has.
//! * *All know the new groups before any core goes on*, and not just each unit before its own: in a round, two members of
//!   a line's group of which one goes by the old groups can each take the other for the one who saves it. Then both clear,
//!   and nobody has saved. That may be the next round, or the one of a recovery that begins while some have gone on.
//! * *All lines are repaired before any core goes on*: it would ask a directory that waits for the dead.
//!
//! Each of these waits, left out, is a [`Fault`](crate::search::Fault) that the search finds.
//!
//! What a node does not let go (the line of an atomic, or of a store while its acknowledgements are under way, if the machine
//! does that) it lets go when it is interrupted: it may wait for the dead, and others for the line, and 2 would not come. An
//! atomic that keeps its line nevertheless may commit, if other cores of its node still do not write it; one that has lost it
//! does not get it back before 3, for nobody asks for it; and then it reads again.
//!
//! # Why nothing is lost
//!
//! 1. *Who owned a line when he died is in its directory.* A node may write from a grant on which the directory has made it
//!    the owner, until it has handed in the contents, and the directory has them. So before a burial there is one owner
//!    ([`Directory::owner`](super::Directory::owner)), and memory is current for what was committed before his epoch.
//! 2. *What he has committed at his epoch is in a living log or in a memory node, validated.* His commit waited for the
//!    acknowledgements of N_r units, of which one lives; its VALs were sent in the step of the commit, and when the fabric is
//!    drained they have arrived. They carry the epoch of the grant, and it is the one that the directory has: nobody was granted the
//!    line since. What was dumped is in a memory node.
//! 3. *Nothing else counts.* Entries of other epochs are older than memory, of other nodes too. Entries of his own are in
//!    the order of his commits. So two nodes' entries are never compared. Without epochs they would have to be: a node that
//!    has lost a line to another writer and got it back would be taken for the last who wrote it.
//! 4. *What is not validated has not committed*, or its node died while it sent the VALs. Then some units may have one and
//!    others none, and either is right: what the node sent after that step has not left it, so nobody has seen the store, nor
//!    any later one. Any validated entry makes it count, none makes it never have been. The same for all its words.
//! 5. *Afterwards again N_r logs have what commits.* What was validated before is in memory nodes, which do not fail, and what
//!    is stored later goes to the new groups. That is so when all have saved: from then on N_r - 1 more may die.
//! 6. *An epoch is one owner's.* Whoever is granted the only copy after another, or after nobody, gets an epoch of his own.
//!    So an entry that its line's directory has not as that of the present owner and epoch will never count again, and memory
//!    nodes may drop it at any time ([`Archive::truncate`](crate::logging::Archive::truncate)).
//!
//! 4 needs that what leaves a node leaves it in the order in which it is sent, although the fabric may reorder it: a death
//! takes an end of that, not a part out of the middle. If VALs could be lost while something that was sent after them got
//! through, a commit that others have learned of (by a later store, to another line that they then read) could be lost, and
//! no recovery could tell it from a store that has never committed. Only an acknowledgement of VALs would help.
//!
//! # Why no message carries the number of a recovery
//!
//! That is, no message of coherence or replication; orders of a recovery name the dead. A recovery begins only when nothing
//! is under way, and until RecovEnd only coherence messages are sent. So no REPL, REPL_ACK or VAL of before can arrive after
//! it, and none needs to be told from those of after. Nor could directories be
//! repaired earlier: while an answer of a living node is under way, whom they await is not known to be dead.
//!
//! All whom a record awaits when it is buried are known to be dead: all the others have restarted, and so have answered before,
//! also those who have died since. [`BURIAL`] has no rows for anything else.
//!
//! ```
//! use outlive_machine::protocol::{NodeId, NodeSet, STORE, Store, StoreAction, StoreInput, StoreTable};
//!
//! let table = StoreTable::new(STORE);
//! let (a, b) = (NodeId::new(1), NodeId::new(2));
//! let replicas = NodeSet::only(a).with(b);
//! // Proactive: replicated as soon as it has retired; and then it is its turn, on a line that may be written.
//! let sent = table.step(&Store::default(), StoreInput::Replicate { sequence: 0, replicas })?;
//! assert_eq!(sent.actions().collect::<Vec<_>>(), [StoreAction::Repl(replicas)]);
//! let one = table.step(&sent.store, StoreInput::Ack { from: b, sequence: 0 })?;
//! let head = table.step(&one.store, StoreInput::Head { writable: true })?;
//! assert_eq!(head.store.awaited(), NodeSet::only(a));
//! let last = table.step(&head.store, StoreInput::Ack { from: a, sequence: 0 })?;
//! assert_eq!(last.actions().collect::<Vec<_>>(), [StoreAction::Commit, StoreAction::Val(replicas)]);
//! assert!(last.store.is_committed());
//! # Ok::<(), outlive_machine::protocol::ProtocolError>(())
//! ```

mod burial;
mod burial_table;
mod store;
mod store_table;

use std::sync::LazyLock;

use super::directory_table::MESI_DIRECTORY;
use super::{DirectoryTable, Tables};
pub use burial::BurialTable;
pub use burial_table::{BURIAL, BurialEvent, BurialOperation, LONE_READER};
pub use store::{Store, StoreAction, StoreInput, StoreStep, StoreTable};
pub use store_table::{STORE, StoreEvent, StoreOperation, StoreState};

/// A protocol that replicates: the tables of all controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicatedTables {
    /// Of the agents and directories.
    pub coherence: Tables,
    /// Of the stores.
    pub store: StoreTable,
    /// Of the directories in a recovery.
    pub burial: BurialTable,
}

impl ReplicatedTables {
    /// MESI with ReCXL's replication.
    pub fn recxl() -> &'static ReplicatedTables {
        static RECXL: LazyLock<ReplicatedTables> = LazyLock::new(|| ReplicatedTables {
            coherence: Tables {
                directory: DirectoryTable::new(&[MESI_DIRECTORY, LONE_READER].concat()),
                ..Tables::mesi().clone()
            },
            store: StoreTable::new(STORE),
            burial: BurialTable::new(BURIAL),
        });
        &RECXL
    }
}
