//! The protocols of a store: `pandora`, the two that the thesis compares it with, and the
//! alternative that it names.

use core::fmt;

/// The protocol of a store's transactions and of their recovery. All compute servers of a store
/// have the same one. All are strictly serializable.
///
/// They differ in the place and the time of the log, and in the fate of a dead compute server's
/// latches (*Tandem* thesis, sections 4.2.3, 4.3.1 and 4.5.1):
///
/// | | log | latches of the dead |
/// | --- | --- | --- |
/// | `pandora` | one entry in f + 1 log servers, after the validation | stolen by those that meet them |
/// | `ford` | a record for each object in each of its replicas, during the validation | found by a scan of all tables, while no transaction begins |
/// | `latch-to-log` | as `pandora`, during the validation | stolen by those that meet them |
/// | `log-a-latch` | as `ford`, and a record of each latch before it is acquired | found in these records |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Pandora.
    #[default]
    Pandora,
    /// FORD without its bugs, with Pandora's log recovery: the thesis's *Baseline*.
    ///
    /// FORD's latches do not name their owner, so its scan has to wait for all transactions. Here
    /// they do, because a CAS whose answer was lost could not be resolved otherwise; but only the
    /// owner and the recovery read the name.
    Ford,
    /// `ford` with a log of latches: the thesis's *naive logging scheme*.
    LogALatch,
    /// `pandora` with its log entry in the round trip of the validation: the alternative of section
    /// 5.3.3, which saves the logging phase. An attempt whose validation fails removes its entry
    /// before it releases its latches, which costs that attempt a round trip.
    LatchToLog,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Pandora, Self::Ford, Self::LogALatch, Self::LatchToLog];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pandora => "pandora",
            Self::Ford => "ford",
            Self::LogALatch => "log-a-latch",
            Self::LatchToLog => "latch-to-log",
        }
    }

    /// Returns the protocol with this number in the configuration.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u64 == number)
    }

    /// Returns whether objects are logged at their replicas, each in a record of its own.
    pub(crate) const fn logs_at_replicas(self) -> bool {
        matches!(self, Self::Ford | Self::LogALatch)
    }

    /// Returns whether an attempt is logged in the round trip of its validation, and not after it.
    pub(super) const fn logs_during_validation(self) -> bool {
        !matches!(self, Self::Pandora)
    }

    /// Returns whether latches are logged before they are acquired.
    pub(super) const fn logs_latches(self) -> bool {
        matches!(self, Self::LogALatch)
    }

    /// Returns whether latches of failed compute servers are stray, and may be stolen.
    pub(super) const fn steals_latches(self) -> bool {
        matches!(self, Self::Pandora | Self::LatchToLog)
    }

    /// Returns whether no transaction begins while a compute server is recovered.
    pub(super) const fn stops_for_recovery(self) -> bool {
        matches!(self, Self::Ford)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
