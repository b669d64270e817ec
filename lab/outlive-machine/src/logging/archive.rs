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

/// The dumps in a memory node, compressed as received, oldest first. Memory nodes do not fail.
///
/// The machine chooses the memory node in which a unit saves (such as the one with the unit's
/// number, modulo their number), so a recovery asks all archives. Clones share the dumps.
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
/// // When the line is no longer owned as it was then, no node needs the entry any more.
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

/// A complete dump.
#[derive(Clone, Debug)]
struct Dump {
    node: NodeId,
    round: u32,
    packed: Arc<[u8]>,
}

/// A dump that is being received.
#[derive(Clone, Debug)]
struct Intake {
    node: NodeId,
    round: u32,
    bytes: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

/// The owner and last epoch of a line in its directory at some time. The default is the state
/// before the first exclusive grant, by which no entry is past.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The number of the last exclusive grant.
    pub epoch: Epoch,
    /// The node to which the line was granted at that epoch, unless memory had its contents again.
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
    /// Returns whether the epoch of an entry of this line is over for its node: memory has the
    /// commits of that epoch, or a recovery has brought them there. Once over, it stays over.
    pub fn is_past(&self, entry: &LogEntry) -> bool {
        entry.epoch < self.epoch
            || entry.epoch == self.epoch && self.owner != Some(entry.requester.node)
    }
}

/// The result of a truncation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truncated {
    /// Dumps of which no entry was needed.
    pub dropped_dumps: u64,
    /// Dumps of which less than half was needed, and which were rewritten without the rest.
    pub rewritten_dumps: u64,
    /// Entries that were removed.
    pub entries: u64,
    /// Bytes that were freed.
    pub bytes: u64,
    /// Bytes of the rewritten dumps.
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
    /// Takes a piece of a dump. If it was the last missing piece, returns the answer to its unit.
    ///
    /// # Errors
    /// If the piece does not belong to its dump, or was received before.
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

    /// Drops the incomplete dumps of `node`, in a recovery when all that `node` sent has arrived:
    /// their missing pieces will never come. Complete dumps stay.
    pub fn lose(&mut self, node: NodeId) {
        self.intakes.retain(|intake| intake.node != node);
    }

    /// Returns, for each of these lines in the order of their addresses, the updates in the dumps,
    /// from latest to earliest.
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

    /// Drops obsolete entries, and returns the lines of which an entry is needed, by rising
    /// address. An entry is obsolete when its line has [passed](Standing::is_past) from its node
    /// since, or when a later commit at the same epoch to the same word is here.
    ///
    /// This may be called at any time; good times are those at which the archive has grown.
    /// `standing` returns the state of a line in its directory, now or at any earlier time, each
    /// line for itself, and is called once for each line. So directories in other memory nodes can
    /// be asked by messages, and nothing waits for their answers; the default is valid where there
    /// is none. Nothing is obsolete too early:
    ///
    /// * A recovery asks for entries of the owner and epoch that a directory has. An epoch passes
    ///   once: the next owner of the line has a higher one. So an entry that is past by an old
    ///   answer is past; and the answer excludes no entry that is younger than it, because such an
    ///   entry has a higher epoch, or the epoch of an owner.
    /// * An entry is as good as an answer: when it was committed, its node owned the line at its
    ///   epoch, and all earlier ones were past.
    /// * While a transaction is under way that takes the line from its owner, the directory still
    ///   names this owner, until it has the contents ([`Directory::owner`]).
    /// * A recovery needs the latest commit to each word. A later commit that is here is validated,
    ///   and stays here until it is obsolete.
    ///
    /// A dump is dropped when all of it is obsolete, and rewritten when more than half is; so at
    /// most twice the needed entries are kept, and nothing is compressed again and again. The
    /// needed entries are at most one for each word that the nodes own; if a line's entries come to
    /// other archives from time to time, one in each.
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

    /// Returns the number of dumps.
    pub fn len(&self) -> usize {
        self.dumps.len()
    }

    /// Returns whether there is no dump.
    pub fn is_empty(&self) -> bool {
        self.dumps.is_empty()
    }

    /// Returns whether a dump has been received in part.
    pub fn is_taking_in(&self) -> bool {
        !self.intakes.is_empty()
    }

    /// Returns the compressed size of all dumps, in bytes.
    pub fn bytes(&self) -> u64 {
        self.dumps.iter().map(|dump| dump.packed.len() as u64).sum()
    }

    /// Returns all entries, in the order in which their dumps were received.
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
