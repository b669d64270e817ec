//! Logs in a memory node: the dumps of logging units.

use std::ops::AddAssign;
use std::sync::Arc;

use crate::line::LineAddress;
use crate::protocol::{Directory, Epoch, NodeId};

use super::dump::{Piece, Stored};
use super::entry::LogEntry;
use super::error::{FormError, LoggingError};
use super::form;
use super::needs::Needs;
use super::versions::{LineVersions, Traversal};

/// The dumps in a memory node, compressed as they came, from older to newer. Memory nodes do not fail.
///
/// A unit saves in whichever memory node the machine chooses (such as the one with its own number, modulo how many there
/// are), so a recovery asks all archives. Clones share the dumps.
///
/// ```
/// use outlive_machine::logging::{Archive, Commit, Epoch, LogEntry, Piece, Requester, Standing, pack};
/// use outlive_machine::program::Word;
/// use outlive_machine::protocol::NodeId;
///
/// let requester = Requester { node: NodeId::new(2), core: 0 };
/// let entry = LogEntry { requester, commit: Commit(1), epoch: Epoch(3), word: Word(9), value: 1 };
/// let dump = pack(NodeId::new(4), 1, &[entry]);
/// let mut archive = Archive::default();
/// // Pieces come in any order; with the last one, the dump is stored.
/// for (index, chunk) in dump.chunks(Piece::BYTES).enumerate().rev() {
///     let mut bytes = [0; Piece::BYTES];
///     bytes[..chunk.len()].copy_from_slice(chunk);
///     let (index, length) = (index as u32, dump.len() as u32);
///     let stored = archive.receive(&Piece { node: NodeId::new(4), round: 1, index, length, bytes })?;
///     assert_eq!(stored.is_some(), index == 0);
/// }
/// assert_eq!(archive.fetch(&[Word(9).line()])?[0].updates, [entry]);
/// // When the line is no longer owned as it was then, nobody needs the entry any more.
/// let granted = |epoch, owner| move |_| Standing { epoch: Epoch(epoch), owner };
/// assert_eq!(archive.truncate(granted(3, Some(requester.node)))?.1, [Word(9).line()]);
/// assert_eq!(archive.truncate(granted(2, None))?.0.dropped_dumps, 0); // an answer from before
/// assert_eq!(archive.truncate(granted(3, None))?.0.dropped_dumps, 1);
/// assert_eq!(archive.len(), 0);
/// # Ok::<(), outlive_machine::logging::LoggingError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Archive {
    dumps: Vec<Dump>,
    intakes: Vec<Intake>,
}

/// A dump that is whole.
#[derive(Clone, Debug)]
struct Dump {
    node: NodeId,
    round: u32,
    packed: Arc<[u8]>,
}

/// A dump that is coming.
#[derive(Clone, Debug)]
struct Intake {
    node: NodeId,
    round: u32,
    bytes: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

/// What the directory of a line said at some time: who owned it, and its last epoch. By default what it said before its first
/// exclusive grant, by which nothing is past.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The number of the last exclusive grant.
    pub epoch: Epoch,
    /// Whom the line was granted to at that epoch, unless memory had its contents again.
    pub owner: Option<NodeId>,
}

impl From<&Directory> for Standing {
    fn from(directory: &Directory) -> Self {
        Self {
            epoch: directory.epoch(),
            owner: directory.owner().map(|(node, _)| node),
        }
    }
}

impl Standing {
    /// Whether the epoch of an entry of this line is over for its node: memory has, or a recovery has brought it, what was
    /// committed then. Once it is, it is for ever.
    pub fn is_past(&self, entry: &LogEntry) -> bool {
        entry.epoch < self.epoch
            || entry.epoch == self.epoch && self.owner != Some(entry.requester.node)
    }
}

/// What a truncation has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truncated {
    /// Dumps of which no entry was needed.
    pub dropped_dumps: u64,
    /// Dumps of which less than half was needed, and which were written anew without the rest.
    pub rewritten_dumps: u64,
    /// Entries that are gone.
    pub entries: u64,
    /// Bytes that are free.
    pub bytes: u64,
    /// Bytes of what was written anew.
    pub written: u64,
}

impl AddAssign for Truncated {
    fn add_assign(&mut self, other: Truncated) {
        self.dropped_dumps += other.dropped_dumps;
        self.rewritten_dumps += other.rewritten_dumps;
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.written += other.written;
    }
}

impl Archive {
    /// Takes a piece of a dump; when it was the last that was missing, the answer to its unit.
    ///
    /// # Errors
    /// If the piece does not belong to its dump, or came before.
    pub fn receive(&mut self, piece: &Piece) -> Result<Option<Stored>, LoggingError> {
        let (node, round) = (piece.node, piece.round);
        let wrong = |doing| LoggingError::OutOfTurn {
            receiver: "an archive",
            message: "a piece of a dump",
            round,
            doing,
        };
        let of = |intake: &Intake| (intake.node, intake.round) == (node, round);
        let at = match self.intakes.iter().position(of) {
            Some(at) => at,
            None if self
                .dumps
                .iter()
                .any(|dump| (dump.node, dump.round) == (node, round)) =>
            {
                return Err(wrong("done with that dump"));
            }
            None => {
                let length = piece.length as usize;
                let pieces = length.div_ceil(Piece::BYTES);
                self.intakes.push(Intake {
                    node,
                    round,
                    bytes: vec![0; length],
                    arrived: vec![false; pieces],
                    missing: pieces,
                });
                self.intakes.len() - 1
            }
        };
        let intake = &mut self.intakes[at];
        let index = piece.index as usize;
        if piece.length as usize != intake.bytes.len() || index >= intake.arrived.len() {
            return Err(wrong("taking in a dump of another length"));
        }
        if intake.arrived[index] {
            return Err(wrong("not missing this piece"));
        }
        let place = intake.bytes.chunks_mut(Piece::BYTES).nth(index);
        let place = place.expect("there are as many chunks as pieces");
        place.copy_from_slice(&piece.bytes[..place.len()]);
        intake.arrived[index] = true;
        intake.missing -= 1;
        if intake.missing > 0 {
            return Ok(None);
        }
        let whole = self.intakes.swap_remove(at);
        self.dumps.push(Dump {
            node,
            round,
            packed: whole.bytes.into(),
        });
        Ok(Some(Stored { node, round }))
    }

    /// In a recovery, when all that `node` sent has arrived: what it has not sent whole will never be. What is whole stays.
    pub fn lose(&mut self, node: NodeId) {
        self.intakes.retain(|intake| intake.node != node);
    }

    /// For each of these lines, in the order of their addresses, the updates in the dumps, from latest to earliest.
    ///
    /// # Errors
    /// If a dump is damaged.
    pub fn fetch(&self, lines: &[LineAddress]) -> Result<Vec<LineVersions>, LoggingError> {
        let mut traversal = Traversal::new(lines);
        for dump in self.dumps.iter().rev() {
            let entries = dump.entries()?;
            entries
                .into_iter()
                .rev()
                .for_each(|entry| traversal.meet(entry));
        }
        Ok(traversal.finish())
    }

    /// Drops what is obsolete, and says of which lines anything is needed, by rising address. An entry is obsolete when its line has
    /// [passed](Standing::is_past) from its node since, or when there is one here of a later commit at the same epoch to the same
    /// word.
    ///
    /// This may be done at any time, of which those are good ones at which the archive has grown. `standing` is what the lines'
    /// directories say, each for itself, now or at any time before, and is asked once for each line. So those of other
    /// memory nodes can be asked by messages, and nothing waits for their answers; the default will do where there is none.
    /// Nothing is obsolete too early:
    ///
    /// * A recovery asks for entries of the owner and epoch that a directory has. An epoch passes once: whoever owns the line
    ///   next does so at a higher one. So what an old answer calls past is past; and of entries that are younger than the answer
    ///   it says nothing, for theirs is a higher epoch, or the one of an owner.
    /// * An entry is as good as an answer: when it was committed, its node owned the line at its epoch, and all earlier ones
    ///   were past.
    /// * While a transaction is under way that takes the line from its owner, the directory says that it is his still, until it
    ///   has the contents ([`Directory::owner`]).
    /// * A recovery wants the latest commit to each word. That a later one is here says that it is validated, and here it stays
    ///   until it is obsolete.
    ///
    /// A dump goes as a whole when all of it is obsolete, and is written anew when more than half is; so at most twice what
    /// is needed is kept, and nothing is compressed again and again. What is needed is at most an entry for each word that
    /// the nodes own; where a line's entries come to other archives from time to time, an entry in each.
    ///
    /// # Errors
    /// If a dump is damaged. It stays, as do all.
    pub fn truncate(
        &mut self,
        standing: impl Fn(LineAddress) -> Standing,
    ) -> Result<(Truncated, Vec<LineAddress>), LoggingError> {
        let unpacked: Result<Vec<_>, _> = self.dumps.iter().map(Dump::entries).collect();
        let unpacked = unpacked?;
        let needs = Needs::of(unpacked.iter().flatten(), standing);
        let mut done = Truncated::default();
        let mut kept = Vec::with_capacity(self.dumps.len());
        let mut is_needed = needs.verdicts();
        for (dump, entries) in self.dumps.iter().zip(&unpacked) {
            let needed = entries.iter().filter(|entry| is_needed(entry));
            let needed: Vec<_> = needed.copied().collect();
            if needed.len() * 2 >= entries.len() && !needed.is_empty() {
                kept.push(dump.clone());
                continue;
            }
            done.entries += (entries.len() - needed.len()) as u64;
            done.bytes += dump.packed.len() as u64;
            if needed.is_empty() {
                done.dropped_dumps += 1;
                continue;
            }
            let packed = form::pack(dump.node, dump.round, &needed);
            done.rewritten_dumps += 1;
            done.written += packed.len() as u64;
            done.bytes = done.bytes.saturating_sub(packed.len() as u64);
            kept.push(Dump {
                packed: packed.into(),
                ..*dump
            });
        }
        self.dumps = kept;
        Ok((done, needs.lines()))
    }

    /// How many dumps there are.
    pub fn len(&self) -> usize {
        self.dumps.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dumps.is_empty()
    }

    /// Whether a dump has come in part.
    pub fn is_taking_in(&self) -> bool {
        !self.intakes.is_empty()
    }

    /// What they take, in bytes, compressed.
    pub fn bytes(&self) -> u64 {
        self.dumps.iter().map(|dump| dump.packed.len() as u64).sum()
    }

    /// All entries, in the order in which their dumps came.
    ///
    /// # Errors
    /// If a dump is damaged.
    pub fn entries(&self) -> Result<Vec<LogEntry>, LoggingError> {
        let mut all = Vec::new();
        for dump in &self.dumps {
            all.extend(dump.entries()?);
        }
        Ok(all)
    }
}

impl Dump {
    fn entries(&self) -> Result<Vec<LogEntry>, LoggingError> {
        let damaged = |why| LoggingError::Damaged {
            node: self.node,
            round: self.round,
            why,
        };
        let found = form::unpack(&self.packed).map_err(damaged)?;
        let (node, round) = (found.node, found.round);
        if (usize::from(node), round) != (self.node.index(), self.round) {
            return Err(damaged(FormError::Mislaid { node, round }));
        }
        Ok(found.entries)
    }
}
