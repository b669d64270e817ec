//! The flaws, and the conditions in which they are searched for.

use crate::commands::litmus_store::{self, Point};
use outlive_litmus::suite;
use outlive_litmus::test::{Assertion, Family, Test};
use outlive_store::protocol::{Flaw, Protocol};
use std::time::Duration;

/// A search with one seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The number of the first test that runs.
    pub first: usize,
    /// The end of a search that finds nothing.
    pub limit: Duration,
}

/// A flaw, and the conditions in which it is searched for.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The flaw; `None` for the sound protocol.
    pub flaw: Option<Flaw>,
    pub protocol: Protocol,
    /// The category in the thesis: C1 without failures, C2 recovery during operation.
    pub category: Option<&'static str>,
    /// The families whose tests run.
    pub families: &'static [Family],
    /// Whether the thesis finds the bug with these families (table 5.1).
    pub is_named: bool,
    /// The verbs before which clients kill themselves, with a probability of one in `one_in`.
    pub crashes: &'static [Point],
    pub one_in: u32,
    /// The longest time between two verbs of a request.
    pub spread: Duration,
    /// Whether memory servers leave, and their replicas are restored.
    pub loses_memory: bool,
    /// The number of process ids of the store.
    pub process_ids: u16,
    /// The reason for which no test can find the flaw.
    pub unreachable: Option<&'static str>,
}

/// All crash points.
const ALL: &[Point] = &[
    Point::Read,
    Point::Latch,
    Point::Validate,
    Point::Log,
    Point::Commit,
    Point::Unlatch,
    Point::RemoveLog,
    Point::Release,
    Point::Recovery,
];
/// The families of the thesis.
pub const LITMUS: &[Family; 3] = &[
    Family::DirectWrite,
    Family::ReadWrite,
    Family::IndirectWrite,
];

impl Hunt {
    const fn new(protocol: Protocol, families: &'static [Family]) -> Self {
        Self {
            flaw: None,
            protocol,
            category: None,
            families,
            is_named: true,
            crashes: &[],
            one_in: 100,
            spread: Duration::ZERO,
            loses_memory: false,
            process_ids: 4096,
            unreachable: None,
        }
    }

    const fn of(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    const fn crashing(mut self, crashes: &'static [Point], one_in: u32) -> Self {
        self.crashes = crashes;
        self.one_in = one_in;
        self
    }

    const fn spread(mut self, microseconds: u64) -> Self {
        self.spread = Duration::from_micros(microseconds);
        self
    }

    const fn losing_memory(mut self) -> Self {
        self.loses_memory = true;
        self
    }

    /// Returns the searches for the same bug with each family of the thesis alone.
    pub fn by_family(&self) -> impl Iterator<Item = Self> {
        LITMUS.chunks(1).map(|families| Self {
            families,
            is_named: self.families.contains(&families[0]),
            ..self.clone()
        })
    }

    /// The name of the flaw, or `sound`.
    pub fn name(&self) -> String {
        self.flaw.map_or_else(|| "sound".into(), litmus_store::name)
    }

    /// The name with the protocol and, if there is one only, the family.
    pub fn title(&self) -> String {
        match self.families {
            [family] => format!("{}, {}, {}", self.name(), self.protocol, family.name()),
            _ => format!("{}, {}", self.name(), self.protocol),
        }
    }

    /// Returns the tests, those of many instances on the same objects first.
    pub fn tests(&self) -> Vec<Test> {
        let is_shared = |it: &Test| matches!(it.assertion, Assertion::Always(_));
        let mut tests = suite::tests();
        tests.retain(|it| self.families.contains(&it.family));
        tests.sort_by_key(|it| !is_shared(it));
        tests
    }
}

/// Returns the bugs of FORD (table 5.1 of the thesis), each with the protocols that can have it,
/// and the sound protocols.
pub fn bugs() -> Vec<Hunt> {
    use Family::{DirectWrite, IndirectWrite, ReadWrite};
    type Bug = (Flaw, &'static str, &'static [Family], &'static [Point], u32);
    // An attempt that was logged and aborted does harm if its server dies before the next log of
    // the same coordinator: at a latch.
    const BUGS: [Bug; 6] = [
        (Flaw::ComplicitAborts, "C1", &[DirectWrite], &[], 100),
        (
            Flaw::MissingActions,
            "C2",
            &[DirectWrite],
            &[Point::Commit],
            60,
        ),
        (Flaw::CovertLatches, "C1", &[ReadWrite], &[], 100),
        (Flaw::RelaxedLatches, "C1", &[ReadWrite], &[], 100),
        (
            Flaw::LostDecision,
            "C2",
            &[IndirectWrite],
            &[Point::Latch],
            60,
        ),
        (
            Flaw::LoggingWithoutLatching,
            "C2",
            &[IndirectWrite],
            &[Point::Latch],
            60,
        ),
    ];
    let mut all = Vec::new();
    for protocol in [Protocol::Ford, Protocol::Pandora] {
        for (flaw, category, families, crashes, one_in) in BUGS {
            // Only the thesis's Baseline, which is `ford`, had it.
            if flaw == Flaw::MissingActions && protocol == Protocol::Pandora {
                continue;
            }
            let mut hunt = Hunt::new(protocol, families).of(flaw);
            hunt = hunt.crashing(crashes, one_in);
            hunt.category = Some(category);
            all.push(hunt);
        }
        all.push(Hunt::new(protocol, &Family::ALL).crashing(ALL, 300));
    }
    all
}

/// Returns the flaws that FORD does not have.
pub fn mutants() -> Vec<Hunt> {
    const INSERTS: &[Family] = &[Family::DirectWrite, Family::Predicate];
    // A replica that is behind may be in an earlier state in which all assertions hold.
    const LOSSES: &[Family] = &[Family::RealTime, Family::DirectWrite, Family::ReadWrite];
    const READS: &[Family] = &[Family::WriteRead, Family::ReadWrite, Family::AbortedRead];
    const NO_SNAPSHOT: &str = "no statement of a test takes a snapshot of tables";
    const FEW_SLOTS: &str =
        "a process of a test has fewer log slots than a recovery has in a group";
    const NO_BREAK: &str = "connections to mapped memory do not break";
    let with = |families| Hunt::new(Protocol::Pandora, families);
    let hunt = |flaw| match flaw {
        Flaw::AbsenceNotValidated => with(INSERTS),
        Flaw::UncheckedReads => with(READS).spread(400),
        Flaw::StaleStrayReads
        | Flaw::RestoresVersions
        | Flaw::UndoesOneObject
        | Flaw::UndoesCommitted => with(LITMUS).crashing(&[Point::Commit, Point::Log], 60),
        Flaw::UnlatchesBeforeTruncation => {
            with(LITMUS).crashing(&[Point::Commit, Point::Log, Point::Recovery], 60)
        }
        Flaw::RemembersFailedIds | Flaw::RecyclesByWrites => Hunt {
            process_ids: 24,
            ..with(LITMUS).crashing(&[Point::Commit, Point::Validate], 30)
        },
        Flaw::UnsettledEpochs | Flaw::CommitsAfterLoss | Flaw::ForgetsReplicas => {
            with(LOSSES).losing_memory()
        }
        Flaw::StealsEarly => with(LITMUS).crashing(&[Point::Commit, Point::Log], 60),
        Flaw::ForgetsIncomplete
        | Flaw::DecidesByAll
        | Flaw::CopiesUnlatched
        | Flaw::CopiesUnregistered => with(LITMUS).crashing(&[Point::Commit], 200).losing_memory(),
        Flaw::CollectsOnce | Flaw::CollectsUnderLatches => Hunt {
            unreachable: Some(NO_SNAPSHOT),
            ..with(LITMUS)
        },
        Flaw::TruncatesAllGroups => Hunt {
            unreachable: Some(FEW_SLOTS),
            ..with(LITMUS)
        },
        Flaw::RepeatsLatching | Flaw::RepeatsReleasing => Hunt {
            unreachable: Some(NO_BREAK),
            ..with(LITMUS)
        },
        _ => with(LITMUS).crashing(ALL, 200),
    };
    let mut flaws: Vec<Flaw> = Flaw::ALL.to_vec();
    flaws.retain(|it| !it.is_of_ford());
    flaws.into_iter().map(|it| hunt(it).of(it)).collect()
}
