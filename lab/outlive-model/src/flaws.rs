//! Unsound choices of the protocol, each of which a scenario must find.

use crate::properties as must;

/// An unsound choice. The first eleven, `UnsettledEpochs`, `CommitsAfterLoss`, `RepeatsLatching`
/// and `RepeatsReleasing` are those of `outlive_store::protocol::Flaw` with these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The absence of an object is not validated.
    AbsenceNotValidated,
    /// A read is accepted without comparing the versions before and after the value.
    UncheckedReads,
    /// A value that was read before its writer was recovered is accepted after that.
    StaleStrayReads,
    /// A recovery releases latches before it removes the log entry.
    UnlatchesBeforeTruncation,
    /// A recovery sets versions back.
    RestoresVersions,
    /// New primaries are used while commits to the old ones are under way.
    UnsettledEpochs,
    /// An epoch does not wait for the commits of dead compute servers.
    ForgetsDead,
    /// An attempt is committed although a memory server with its latches was lost.
    CommitsAfterLoss,
    /// An attempt whose log could not be completed leaves the copies that are whole.
    KeepsInterruptedLogs,
    /// A client is told of its commit before the writes are complete.
    AcknowledgesEarly,
    /// Against Cor1: a recovery begins before the dead server is fenced.
    RecoversBeforeRevoking,
    /// Against Cor2: a recovery undoes the first object of an entry only.
    HalfAnUndo,
    /// Against Cor3: a recovery undoes transactions whose writes are complete.
    UndoesAcknowledged,
    /// Against Cor4: latches may be stolen before the log is recovered.
    NotifiesFirst,
    /// A recovery does not write its decision before it undoes an entry.
    DecidesInSilence,
    /// A recovery is executed again before the earlier recoverer is fenced.
    UnfencedRecoverers,
    /// A CAS that latches is posted again after its answer was lost, as if it had not taken effect.
    RepeatsLatching,
    /// A WRITE that releases a latch is posted again after its connection broke.
    RepeatsReleasing,
    /// A release whose connection broke is not posted again.
    ForgetsReleases,
    /// A connection opens before the server has drained the broken one.
    OpensBeforeDraining,
}

impl Flaw {
    /// All flaws. The first six are those of FORD.
    pub const ALL: [Self; 26] = [
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
        Self::RestoresVersions,
        Self::UnsettledEpochs,
        Self::ForgetsDead,
        Self::CommitsAfterLoss,
        Self::KeepsInterruptedLogs,
        Self::AcknowledgesEarly,
        Self::RecoversBeforeRevoking,
        Self::HalfAnUndo,
        Self::UndoesAcknowledged,
        Self::NotifiesFirst,
        Self::DecidesInSilence,
        Self::UnfencedRecoverers,
        Self::RepeatsLatching,
        Self::RepeatsReleasing,
        Self::ForgetsReleases,
        Self::OpensBeforeDraining,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        self.found().0
    }

    /// The scenario that finds the flaw, and the assertion that fails there.
    pub const fn finder(self) -> (&'static str, &'static str) {
        let (_, scenario, property) = self.found();
        (scenario, property)
    }

    const fn found(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ComplicitAborts => ("complicit-aborts", "contention", must::SERIALIZABLE),
            Self::CovertLatches => ("covert-latches", "skew", must::SERIALIZABLE),
            Self::RelaxedLatches => ("relaxed-latches", "skew", must::SERIALIZABLE),
            Self::LostDecision => ("lost-decision", "validation", must::COR3),
            Self::LoggingWithoutLatching => ("logging-without-latching", "update", must::COR3),
            Self::MissingActions => ("missing-actions", "insert-delete", must::COR2),
            Self::AbsenceNotValidated => ("absence-not-validated", "absence", must::SERIALIZABLE),
            Self::UncheckedReads => ("unchecked-reads", "single", must::WHOLE),
            Self::StaleStrayReads => ("stale-stray-reads", "single", must::READS),
            Self::UnlatchesBeforeTruncation => {
                ("unlatches-before-truncation", "recoverer", must::COR3)
            }
            Self::RestoresVersions => ("restores-versions", "pair", must::VERSIONS),
            Self::UnsettledEpochs => ("unsettled-epochs", "loss", must::COR3),
            Self::ForgetsDead => ("forgets-dead", "loss", must::COR3),
            Self::CommitsAfterLoss => ("commits-after-loss", "loss", must::COR3),
            Self::KeepsInterruptedLogs => ("keeps-interrupted-logs", "loss", must::COR3),
            Self::AcknowledgesEarly => ("acknowledges-early", "pair", must::COR3),
            Self::RecoversBeforeRevoking => ("recovers-before-revoking", "pair", must::COR1),
            Self::HalfAnUndo => ("half-an-undo", "pair", must::COR2),
            Self::UndoesAcknowledged => ("undoes-acknowledged", "pair", must::COR3),
            Self::NotifiesFirst => ("notifies-first", "pair", must::COR4),
            Self::DecidesInSilence => ("decides-in-silence", "recoverer", must::COR2),
            Self::UnfencedRecoverers => ("unfenced-recoverers", "recoverer", must::COR3),
            Self::RepeatsLatching => ("repeats-latching", "breaks", must::OWNERS),
            Self::RepeatsReleasing => ("repeats-releasing", "breaks", must::COR3),
            Self::ForgetsReleases => ("forgets-releases", "breaks", must::LATCHES),
            Self::OpensBeforeDraining => ("opens-before-draining", "breaks", must::COR3),
        }
    }

    /// Returns the flaw with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}
