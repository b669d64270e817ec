//! The shipped tests.
//!
//! - Litmus 1 to 3 of the thesis, with variants and extensions: `always` tests of which any number
//!   of instances run on the same objects. Their assertions are scalable.
//! - The anomalies of the literature, among them those by which Hermitage describes databases (G0,
//!   G1a, G1b, G1c, OTV, PMP, lost update, read skew, write skew, G2), and reads that miss
//!   acknowledged writes: `never` tests on objects of their own.

use crate::test::{Family, Test};
use crate::text::parse;

/// The files of the suite: a family, and the text of its tests.
pub const FILES: [(Family, &str); 8] = [
    (
        Family::DirectWrite,
        include_str!("../suite/direct-write.litmus"),
    ),
    (
        Family::ReadWrite,
        include_str!("../suite/read-write.litmus"),
    ),
    (
        Family::IndirectWrite,
        include_str!("../suite/indirect-write.litmus"),
    ),
    (
        Family::WriteRead,
        include_str!("../suite/write-read.litmus"),
    ),
    (
        Family::AbortedRead,
        include_str!("../suite/aborted-read.litmus"),
    ),
    (
        Family::IntermediateRead,
        include_str!("../suite/intermediate-read.litmus"),
    ),
    (Family::Predicate, include_str!("../suite/predicate.litmus")),
    (Family::RealTime, include_str!("../suite/real-time.litmus")),
];

/// Returns the shipped tests, by family.
///
/// ```
/// use outlive_litmus::level::Level;
/// use outlive_litmus::suite;
///
/// let suite = suite::tests();
/// let read_committed = Level::named("read-committed").unwrap();
/// let lost_update = suite.iter().find(|it| it.name == "lost-update").unwrap();
/// assert!(!lost_update.is_forbidden_at(read_committed));
/// ```
#[must_use]
pub fn tests() -> Vec<Test> {
    let read = |text| parse(text).unwrap_or_else(|error| panic!("the shipped suite: {error}"));
    FILES.into_iter().flat_map(|(_, text)| read(text)).collect()
}
