//! The steps of the protocol: what the compute servers that died in a run had posted last, and
//! what was outstanding on connections that broke.

use super::Plan;
use super::view::{base, is_log};
use outlive_store::protocol::Protocol;
use outlive_store::tables::LATCH;
use outlive_store::verbs::{Verb, VerbKind};
use std::collections::BTreeMap;

/// A compute server that dies, or whose connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// It executes transactions.
    Client,
    /// It recovers another one.
    Recoverer,
    /// It restores lost replicas.
    Restorer,
}

impl Victim {
    /// The kinds of victims.
    pub const ALL: [Self; 3] = [Self::Client, Self::Recoverer, Self::Restorer];
}

/// The kind of a batch, by its effect: the last one of a server that died, or one whose connection
/// broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Reads objects.
    Read,
    /// Reads only latches and versions: the validation, or the decision of a recovery.
    Validate,
    /// Acquires a latch by CAS.
    Latch,
    /// Reads logs.
    ReadLog,
    /// Writes or removes log entries or records.
    Log,
    /// Writes values and versions of objects: a commit, or an undo.
    Write,
    /// Releases a latch by WRITE.
    Unlatch,
    /// Releases a latch by CAS: after an abort, or in a recovery.
    Release,
}

/// The numbers of deaths, or of batches whose connections broke, in runs.
pub type Steps = BTreeMap<(Victim, Step), u64>;

impl Step {
    /// All steps.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Validate,
        Self::Latch,
        Self::ReadLog,
        Self::Log,
        Self::Write,
        Self::Unlatch,
        Self::Release,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Validate => "validate",
            Self::Latch => "latch",
            Self::ReadLog => "read-log",
            Self::Log => "log",
            Self::Write => "write",
            Self::Unlatch => "unlatch",
            Self::Release => "release",
        }
    }

    /// Returns whether runs of this plan have batches of this kind of such compute servers.
    pub fn is_of(self, victim: Victim, plan: &Plan) -> bool {
        match victim {
            // The other protocols log in the batch that validates, and one access needs no
            // validation.
            Victim::Client if self == Self::Validate => {
                plan.protocol == Protocol::Pandora && plan.accesses > 1
            }
            Victim::Client => self != Self::ReadLog,
            // It reads no values of objects.
            Victim::Recoverer => !matches!(self, Self::Read | Self::Latch | Self::Unlatch),
            // A copy is not logged. Which kind of reads a run meets depends on its copies.
            Victim::Restorer => {
                let depends = matches!(self, Self::Read | Self::Validate);
                plan.restores && !depends && !matches!(self, Self::ReadLog | Self::Log)
            }
        }
    }

    /// Returns the step of a batch: that of the verb of the batch with the most effect.
    pub(super) fn of(batch: &[Verb], plan: &Plan) -> Option<Self> {
        let step = batch.iter().map(|verb| Self::of_verb(verb, plan)).max()?;
        // With the value of an object, its latch and version are in the same batch.
        let reads_words = step == Self::Read && batch.iter().all(|verb| verb.words() == 1);
        Some(if reads_words { Self::Validate } else { step })
    }

    fn of_verb(verb: &Verb, plan: &Plan) -> Self {
        let is_log = is_log(verb.at, plan.protocol);
        match verb.kind {
            VerbKind::Read if is_log => Self::ReadLog,
            VerbKind::Read => Self::Read,
            VerbKind::CompareSwap { new: 0, .. } => Self::Release,
            VerbKind::CompareSwap { .. } => Self::Latch,
            VerbKind::Write if is_log => Self::Log,
            VerbKind::Write if is_latch(verb, plan) => Self::Unlatch,
            VerbKind::Write | VerbKind::FetchAdd { .. } => Self::Write,
        }
    }
}

/// Returns whether a verb on a table begins at a latch.
fn is_latch(verb: &Verb, plan: &Plan) -> bool {
    let geometry = plan.geometry();
    (0..geometry.partitions).any(|partition| {
        let base = base(plan, partition);
        let mut objects = geometry.objects(0, partition);
        objects.any(|(object, _)| base + (object.offset() + LATCH) == verb.at)
    })
}
