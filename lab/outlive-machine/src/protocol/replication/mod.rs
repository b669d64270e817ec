//! ReCXL's replication and recovery: how a store gets its replicas, when it may commit, and how the
//! machine recovers from the death of a node.
//!
//! A store to the shared memory is *replicated* before it commits (the paper's section IV-D). REPL
//! goes to the N_r nodes of its line's group, and each answers REPL_ACK. The store commits when it
//! is the oldest of its core, its node may write the line, and all replicas have answered. Then VAL
//! goes to each of them. [`STORE`] is this sequence for one store, seen from the requester; the
//! words and numbers of the messages are those of [`logging`](crate::logging).
//!
//! # One table, four machines
//!
//! The variants differ in when the driver of the table passes [`StoreInput::Replicate`]:
//!
//! | | `Replicate` is passed | to |
//! | --- | --- | --- |
//! | WB | at the head of the store buffer | no node |
//! | baseline | when the store is at the head and the line may be written | the group |
//! | parallel | when the store is at the head | the group |
//! | proactive | when the store is in the store buffer and nothing will be coalesced with it any more | the group |
//!
//! A store without replicas has all its acknowledgements. (The timed machine commits the stores of
//! WB without the table.) Any moment between retirement and commit is correct, because the table
//! waits for the same conditions. After `Replicate` nothing may be coalesced with the store
//! ([`Store::is_sealed`]).
//!
//! # Why every wait ends
//!
//! | state | waits for | which comes because |
//! | --- | --- | --- |
//! | `U`, `R`, `A` | its turn | the stores before it commit |
//! | `UH`, `RH`, `AH` | leave to write | it is asked for when the line is here neither to be written nor under way ([`StoreInput::Idle`]) |
//! | `R`, `RH`, `RW`, `RL` | REPL_ACKs | a living logging unit answers at once; for a dead one, recovery [restarts](StoreInput::Restart) the store |
//!
//! Acknowledgements wait for nothing of the coherence protocol, so a line need not be held while
//! they are under way. If the line is lost, it is requested again once they have arrived (`RL`).
//! They stay valid, because they are about the store and not about the owner. The next grant is
//! then a commit, in the step that takes it in. So a store takes its line from another node at most
//! twice, however long its acknowledgements are under way.
//!
//! An atomic is different: the value that it stores depends on the value that it has read. So its
//! node does not release the line between the atomic's read and its commit. An interrupt makes the
//! node release the line, and a restart makes the atomic read again.
//!
//! # Recovery
//!
//! When a node dies, its caches, its store buffers and its logging unit are lost. Messages that it
//! has sent before arrive, messages to it vanish, and nothing answers in its name. The switch
//! notifies a living core, the configuration manager, which leads (the paper's Table I, Algorithms
//! 1 and 2):
//!
//! 1. *Interrupt* to all living nodes. Their cores request nothing more; agents, directories and
//!    logging units go on, and a store that gets its last acknowledgement or its line may still
//!    commit. (In the timed machine, interrupted cores commit nothing more, which is one of the
//!    allowed behaviours.) A node answers *InterruptResp* with the numbers of messages that it has
//!    sent to and received from each other node, memory nodes included. It answers again when these
//!    numbers change.
//! 2. *The fabric is drained* when these counts agree for the living nodes, and the switch holds
//!    nothing from dead nodes. Every remaining wait is for a dead node, or for a node that waits
//!    for one.
//! 3. *Restart* to all living nodes. Each passes [`StoreInput::Restart`] to its stores that have
//!    not committed, and its logging unit [forgets](crate::logging::LoggingUnit::forget) all
//!    entries that are not validated, of every node. No message of these stores is under way, and
//!    none is sent again before step 6. So the REPL of a store that starts over never meets its old
//!    entry, which would otherwise occupy its space for ever. All nodes answer before 4: a burial
//!    grants lines, and a store that has all its acknowledgements and has not been restarted would
//!    commit on such a grant, and validate entries that the units have forgotten.
//! 4. *InitRecov* to the directories. Each repairs its lines in any order. For a line that a dead
//!    node owns, it fetches the updates in the logs (*FetchLatestVers*, from the living units and
//!    from the memory nodes) and puts them into memory. Then it [removes](BurialTable::bury) the
//!    dead nodes: it finishes in their name the transactions that wait for their answers, undoes
//!    the requests that they made, and serves the requests queued behind. The grants of these
//!    transactions go out at once. Each directory answers *InitRecovResp*.
//! 5. *The last round of dumps* under the old groups
//!    ([`DumpBarrier`](crate::logging::DumpBarrier)), when 4 is done. Concurrently with 4, an entry
//!    could be in no answer: a memory node could be asked before the entry is stored there, and the
//!    units after they have cleared it. (For the same reason no other round begins between 3 and
//!    this one, even if a unit has asked for it.) First every unit saves its share of the validated
//!    entries. When all have saved, each clears the saved entries, forms new groups of the living
//!    nodes ([`regroup`](crate::logging::LoggingUnit::regroup)), and answers.
//! 6. *RecovEnd*, when all of 4 and 5 have answered: the cores go on, one after the other. No node
//!    waits for their *RecovEndResp*: a core that goes on later only sends its requests later.
//!
//! If another node dies in the meantime, even the manager, the recovery begins again at 1, with all
//! nodes that are known to be dead. Each step may be executed twice. The grants of an earlier
//! burial are ordinary transactions, and arrive in the second draining. An order names the dead
//! nodes (in the timed machine by a number, which grows with them), and a node accepts no order
//! that names fewer than the last Interrupt that it has received. So no order of a manager that has
//! died, or has begun again, is mistaken for one of the present recovery.
//!
//! # Why so many waits
//!
//! * *Nothing under way before 3*: messages of dead nodes would arrive after their burial, and name
//!   them again; and acknowledgements would arrive for stores that have started over.
//! * *All have restarted before 4*: see step 3.
//! * *All have saved before any unit clears entries that they are to save*: the saver of a line may
//!   die before it has saved.
//! * *All know the new groups before any core goes on*, and not just each unit before its own core:
//!   in a round, two members of a line's group of which one uses the old groups can each take the
//!   other for the saver of the line. Then both clear, and neither has saved. That may be the next
//!   round, or the round of a recovery that begins while some cores have gone on.
//! * *All lines are repaired before any core goes on*: the core would send a request to a directory
//!   that waits for dead nodes.
//!
//! Each of these waits, left out, is a [`Fault`](crate::search::Fault) that the search finds.
//!
//! When a node is interrupted, it releases the lines that it otherwise keeps (the line of an
//! atomic, or of a store while its acknowledgements are under way, if the machine does that). The
//! atomic or store may wait for a dead node, and others for the line, and 2 would not come. An
//! atomic that keeps its line nevertheless may commit, if other cores of its node still do not
//! write the line. An atomic that has lost its line does not get it back before 3, because no node
//! requests it, and then it reads again.
//!
//! # Why nothing is lost
//!
//! 1. *The owner of a line at its death is in the line's directory.* A node may write from the
//!    grant by which the directory has made it the owner, until it hands in the contents; it stays
//!    the owner in the directory until they have arrived there. So before a burial there is one
//!    owner ([`Directory::owner`](super::Directory::owner)), and memory is current for all commits
//!    before its epoch.
//! 2. *Its commits at its epoch are in a living log or in a memory node, validated.* Each commit
//!    waited for the acknowledgements of N_r units, of which one lives; its VALs were sent in the
//!    step of the commit, and have arrived when the fabric is drained. They carry the epoch of the
//!    grant, and it is the directory's epoch: the line was granted to no node since. Dumped entries
//!    are in a memory node.
//! 3. *Nothing else counts.* Entries of other epochs, of other nodes too, are older than memory.
//!    Entries of its own epoch are in the order of its commits. So entries of two nodes are never
//!    compared. Without epochs they would have to be: a node that lost a line to another writer and
//!    got it back would be taken for the last writer.
//! 4. *A store that is not validated has not committed*, or its node died while it sent the VALs.
//!    Then some units may have a VAL and others none, and either outcome is correct: nothing that
//!    the node sent after that step has left it, so no other node has seen the store or any later
//!    one. Any validated entry makes the store count; without one, the store has never happened.
//!    The outcome is the same for all its words.
//! 5. *Afterwards N_r logs again have every commit.* Entries validated before are in memory nodes,
//!    which do not fail, and later stores go to the new groups. This holds when all have saved:
//!    from then on N_r - 1 more nodes may die.
//! 6. *An epoch belongs to one owner.* A node that is granted the only copy after another node, or
//!    after none, gets a new epoch. So an entry whose node and epoch are not those of the present
//!    owner in its line's directory will never count again, and memory nodes may drop it at any
//!    time ([`Archive::truncate`](crate::logging::Archive::truncate)).
//!
//! 4 needs that messages leave a node in the order in which they are sent, although the fabric may
//! reorder them: a death takes an end of that sequence, not a part out of the middle. If VALs could
//! be lost while a message that was sent after them got through, a commit that others have learned
//! of (by a later store, to another line that they then read) could be lost, and no recovery could
//! tell it from a store that has never committed. Only an acknowledgement of VALs would help.
//!
//! # Why no message carries the number of a recovery
//!
//! That is, no message of coherence or replication; orders of a recovery name the dead nodes. A
//! recovery begins only when nothing is under way, and until RecovEnd only coherence messages are
//! sent. So no REPL, REPL_ACK or VAL from before can arrive after it, and none needs to be
//! distinguished from later ones. Nor could directories be repaired earlier: while an answer of a
//! living node is under way, the awaited nodes are not known to be dead.
//!
//! All nodes that a directory awaits at a burial are known to be dead: all others have restarted,
//! and so have answered before, including those that have died since. [`BURIAL`] has no rows for
//! anything else.
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
    /// The tables of agents and directories.
    pub coherence: Tables,
    /// The table of stores.
    pub store: StoreTable,
    /// The table of directories in a recovery.
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
