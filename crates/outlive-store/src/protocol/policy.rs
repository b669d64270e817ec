//! The choices of the protocol that decide on its soundness.

/// The choices of the protocol. Each is sound if its field is `true`. A program can use
/// [`SOUND`](Self::SOUND) only; with the feature `proofs`, the laboratory constructs unsound ones,
/// which its proofs must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// An abort releases the latches that the attempt holds, and no other.
    pub(super) releases_own_latches_only: bool,
    /// Validation checks the latches of the read set as well as its versions.
    pub(super) validates_latches: bool,
    /// Validation begins after all latches are held.
    pub(super) validates_after_latching: bool,
    /// The log is written after the validation, or, in `ford`, removed if that fails.
    pub(super) logs_after_validation: bool,
    /// An object is logged after it is latched.
    pub(super) logs_after_latching: bool,
    /// The log entry contains objects that did not exist.
    pub(super) logs_insertions: bool,
    /// The absence of a key is in the read set.
    pub(super) validates_absence: bool,
    /// A read compares the versions before and after the value.
    pub(super) checks_reads: bool,
    /// Words that were read with a stray latch are read again if the failure was not known before.
    pub(super) reads_again_after_failures: bool,
    /// A recovery removes the log entries before it releases the latches.
    pub(super) truncates_before_unlatching: bool,
    /// A recovery removes the log entries of the group that it recovers, and no other.
    pub(super) truncates_one_group: bool,
    /// A recovery installs an old value under a new version.
    pub(super) raises_versions_on_undo: bool,
    /// A commit writes all replicas.
    pub(super) writes_all_replicas: bool,
    /// A latch is stolen after the logs of its holder are recovered.
    pub(super) steals_after_recovery: bool,
    /// A recovery restores all objects of a transaction that it undoes.
    pub(super) undoes_all_objects: bool,
    /// A recovery rolls a transaction forward that has reached all replicas.
    pub(super) keeps_committed: bool,
    /// The primaries of an epoch are not used before the commits of earlier epochs have ended.
    pub(super) waits_for_commits: bool,
    /// An attempt is committed only in the epoch in which it began.
    pub(super) commits_in_its_epoch: bool,
    /// A worker checks at each latch whether its holder has failed, even if it knows of a failure.
    pub(super) asks_for_each_latch: bool,
    /// A scan releases stray latches by compare-and-swap.
    pub(super) recycles_by_swaps: bool,
    /// A snapshot confirms all versions after all values are read.
    pub(super) collects_twice: bool,
    /// A snapshot confirms that no latch is held.
    pub(super) collects_latches: bool,
    /// A replica that is being filled cannot be the primary.
    pub(super) waits_for_copies: bool,
    /// A recovery decides by the replicas that the logged transaction wrote.
    pub(super) decides_in_its_epoch: bool,
    /// An object is copied to a replica under its latch.
    pub(super) copies_under_latch: bool,
    /// The copy of an object is registered as a commit is.
    pub(super) registers_copies: bool,
    /// An attempt ends if the answer of a CAS that latches is lost.
    pub(super) ends_after_lost_latches: bool,
    /// A release of a latch that may be lost is repeated by compare-and-swap.
    pub(super) releases_again_by_swaps: bool,
    /// A deletion decides under the latch of a bucket that no slot of it is in use.
    pub(super) empties_under_latch: bool,
    /// A deletion that removes a bucket from a chain has the chain before it in its read set.
    pub(super) validates_chains: bool,
}

impl Policy {
    /// All choices are sound.
    pub const SOUND: Self = Self {
        releases_own_latches_only: true,
        validates_latches: true,
        validates_after_latching: true,
        logs_after_validation: true,
        logs_after_latching: true,
        logs_insertions: true,
        validates_absence: true,
        checks_reads: true,
        reads_again_after_failures: true,
        truncates_before_unlatching: true,
        truncates_one_group: true,
        raises_versions_on_undo: true,
        writes_all_replicas: true,
        steals_after_recovery: true,
        undoes_all_objects: true,
        keeps_committed: true,
        waits_for_commits: true,
        commits_in_its_epoch: true,
        asks_for_each_latch: true,
        recycles_by_swaps: true,
        collects_twice: true,
        collects_latches: true,
        waits_for_copies: true,
        decides_in_its_epoch: true,
        copies_under_latch: true,
        registers_copies: true,
        ends_after_lost_latches: true,
        releases_again_by_swaps: true,
        empties_under_latch: true,
        validates_chains: true,
    };
}

/// An unsound choice.
#[cfg(feature = "proofs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// FORD's bug *complicit aborts*: an abort releases a latch that it did not acquire.
    ComplicitAborts,
    /// FORD's bug *covert latches*: validation ignores latches.
    CovertLatches,
    /// FORD's bug *relaxed latches*: validation before all latches are held.
    RelaxedLatches,
    /// FORD's bug *lost decision*: the log is written before the validation, and remains after an
    /// abort.
    LostDecision,
    /// FORD's bug *logging without latching*: an object is logged before it is latched.
    LoggingWithoutLatching,
    /// FORD's bug *missing actions*: insertions are not logged.
    MissingActions,
    /// The absence of a key is not validated.
    AbsenceNotValidated,
    /// A read of several words is accepted without a check.
    UncheckedReads,
    /// A value that was read before its writer was recovered is accepted after that.
    StaleStrayReads,
    /// A recovery releases latches before it removes the log entries, as the thesis describes.
    UnlatchesBeforeTruncation,
    /// A recovery removes the log entries of all groups with those of the first one.
    TruncatesAllGroups,
    /// A recovery sets versions back.
    RestoresVersions,
    /// A commit writes only the primary of an object.
    ForgetsReplicas,
    /// A latch of a dead compute server is stolen before its logs are recovered (Cor4 of the
    /// thesis).
    StealsEarly,
    /// A rollback restores only the first object of a transaction (Cor2 of the thesis).
    UndoesOneObject,
    /// A recovery also undoes a transaction that has reached all replicas (Cor3 of the thesis).
    UndoesCommitted,
    /// New primaries are used while commits to the old primaries are under way.
    UnsettledEpochs,
    /// An attempt is committed although a memory server with its latches was lost.
    CommitsAfterLoss,
    /// A worker takes the latches of a process id's next owner for those of the failed one.
    RemembersFailedIds,
    /// A scan releases stray latches by WRITE.
    RecyclesByWrites,
    /// A snapshot returns the values that it has read one after another, without a second read.
    CollectsOnce,
    /// A snapshot ignores latches.
    CollectsUnderLatches,
    /// A replica that is being filled may be a primary.
    ForgetsIncomplete,
    /// A recovery decides by all replicas, also by those that have joined since the transaction.
    DecidesByAll,
    /// An object is copied to a replica without its latch.
    CopiesUnlatched,
    /// The copy of an object is not registered, so a later epoch does not wait for it.
    CopiesUnregistered,
    /// A CAS that latches is posted again after its answer was lost, as if it had not taken effect.
    RepeatsLatching,
    /// A WRITE that releases a latch is posted again after its connection broke.
    RepeatsReleasing,
    /// A deletion unlinks a bucket because it read the bucket as empty before it latched it.
    UnlinksAsRead,
    /// A deletion unlinks a bucket from the bucket that preceded it when the chain was read,
    /// without validating the chain.
    UnlinksUnvalidated,
}

#[cfg(feature = "proofs")]
impl Flaw {
    /// All flaws. The first six are those of FORD.
    pub const ALL: [Self; 30] = [
        Self::ComplicitAborts,
        Self::CovertLatches,
        Self::RelaxedLatches,
        Self::LostDecision,
        Self::LoggingWithoutLatching,
        Self::MissingActions,
        Self::AbsenceNotValidated,
        Self::UncheckedReads,
        Self::StaleStrayReads,
        Self::UnlatchesBeforeTruncation,
        Self::TruncatesAllGroups,
        Self::RestoresVersions,
        Self::ForgetsReplicas,
        Self::StealsEarly,
        Self::UndoesOneObject,
        Self::UndoesCommitted,
        Self::UnsettledEpochs,
        Self::CommitsAfterLoss,
        Self::RemembersFailedIds,
        Self::RecyclesByWrites,
        Self::CollectsOnce,
        Self::CollectsUnderLatches,
        Self::ForgetsIncomplete,
        Self::DecidesByAll,
        Self::CopiesUnlatched,
        Self::CopiesUnregistered,
        Self::RepeatsLatching,
        Self::RepeatsReleasing,
        Self::UnlinksAsRead,
        Self::UnlinksUnvalidated,
    ];

    /// Returns whether FORD as published has the flaw (*Tandem* thesis, table 5.1).
    pub const fn is_of_ford(self) -> bool {
        self as u8 <= Self::MissingActions as u8
    }

    /// Returns the policy of FORD as published, with all of its bugs.
    pub fn published() -> Policy {
        let mut policy = Policy::SOUND;
        let bugs = Self::ALL.into_iter().filter(|it| it.is_of_ford());
        bugs.for_each(|it| it.add_to(&mut policy));
        policy
    }

    /// Returns the policy with this flaw only.
    pub const fn policy(self) -> Policy {
        let mut policy = Policy::SOUND;
        self.add_to(&mut policy);
        policy
    }

    const fn add_to(self, policy: &mut Policy) {
        let choice = match self {
            Self::ComplicitAborts => &mut policy.releases_own_latches_only,
            Self::CovertLatches => &mut policy.validates_latches,
            Self::RelaxedLatches => &mut policy.validates_after_latching,
            Self::LostDecision => &mut policy.logs_after_validation,
            Self::LoggingWithoutLatching => &mut policy.logs_after_latching,
            Self::MissingActions => &mut policy.logs_insertions,
            Self::AbsenceNotValidated => &mut policy.validates_absence,
            Self::UncheckedReads => &mut policy.checks_reads,
            Self::StaleStrayReads => &mut policy.reads_again_after_failures,
            Self::UnlatchesBeforeTruncation => &mut policy.truncates_before_unlatching,
            Self::TruncatesAllGroups => &mut policy.truncates_one_group,
            Self::RestoresVersions => &mut policy.raises_versions_on_undo,
            Self::ForgetsReplicas => &mut policy.writes_all_replicas,
            Self::StealsEarly => &mut policy.steals_after_recovery,
            Self::UndoesOneObject => &mut policy.undoes_all_objects,
            Self::UndoesCommitted => &mut policy.keeps_committed,
            Self::UnsettledEpochs => &mut policy.waits_for_commits,
            Self::CommitsAfterLoss => &mut policy.commits_in_its_epoch,
            Self::RemembersFailedIds => &mut policy.asks_for_each_latch,
            Self::RecyclesByWrites => &mut policy.recycles_by_swaps,
            Self::CollectsOnce => &mut policy.collects_twice,
            Self::CollectsUnderLatches => &mut policy.collects_latches,
            Self::ForgetsIncomplete => &mut policy.waits_for_copies,
            Self::DecidesByAll => &mut policy.decides_in_its_epoch,
            Self::CopiesUnlatched => &mut policy.copies_under_latch,
            Self::CopiesUnregistered => &mut policy.registers_copies,
            Self::RepeatsLatching => &mut policy.ends_after_lost_latches,
            Self::RepeatsReleasing => &mut policy.releases_again_by_swaps,
            Self::UnlinksAsRead => &mut policy.empties_under_latch,
            Self::UnlinksUnvalidated => &mut policy.validates_chains,
        };
        *choice = false;
    }
}
