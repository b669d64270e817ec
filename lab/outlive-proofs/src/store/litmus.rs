//! Litmus tests of the order of verbs: two programs, each on its own connection, and the outcomes
//! that the rules forbid.

use outlive_store::verbs::{Batch, Connection, RemoteOffset, Slot};

/// A verb of a program. Words are named by their index in the region.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Reads N words from the index on.
    Read(u64, usize),
    /// Writes these words from the index on.
    Write(u64, &'static [u64]),
    /// Replaces 0 by the value, with a CAS.
    Swap(u64, u64),
    /// Compares with a value that the word never has: a CAS that fails.
    Miss(u64),
    /// Adds the value.
    Add(u64, u64),
    /// Fences the next verb.
    Fence,
}

/// Batches, each of which is posted when the previous one is complete.
pub type Program = &'static [&'static [Step]];

/// Returns whether the results of the two programs have a certain property.
pub type Outcome = fn(&[u64], &[u64]) -> bool;

/// Two programs that run at the same time on a region of zeros.
#[derive(Clone, Copy, Debug)]
pub struct Litmus {
    /// The name.
    pub name: &'static str,
    /// The programs.
    pub programs: [Program; 2],
    /// Returns whether the rules forbid the results of the two programs.
    pub forbids: Outcome,
    /// An outcome that the rules allow and that the simulated network must show.
    pub shows: Option<Outcome>,
}

/// Runs `program` on `connection`. Returns the words that its READs read and the previous words of
/// its atomics, in order.
pub async fn run<C: Connection>(connection: &C, program: Program) -> Vec<u64> {
    let mut results = Vec::new();
    for steps in program {
        let mut batch = Batch::new();
        let mut slots: Vec<Slot> = Vec::new();
        for step in *steps {
            let at = |index: u64| RemoteOffset::new(index * 8);
            match *step {
                Step::Read(index, words) => slots.push(batch.read(at(index), words)),
                Step::Write(index, words) => batch.write(at(index), words),
                Step::Swap(index, new) => slots.push(batch.compare_swap(at(index), 0, new)),
                Step::Miss(index) => {
                    slots.push(batch.compare_swap(at(index), u64::MAX, 0));
                }
                Step::Add(index, add) => slots.push(batch.fetch_add(at(index), add)),
                Step::Fence => batch.fence(),
            }
        }
        let done = connection.post(batch).await.finished();
        let done = done.expect("litmus tests run without failures");
        results.extend(slots.iter().flat_map(|slot| done.words(*slot)));
    }
    results
}

use Step::{Add, Fence, Miss, Read, Swap, Write};

/// The word that litmus tests call X, a cache line apart from Y.
const X: u64 = 0;
const Y: u64 = 8;

/// Returns whether both programs read 0 last.
fn both_miss(left: &[u64], right: &[u64]) -> bool {
    left.last() == Some(&0) && right.last() == Some(&0)
}

/// Returns whether the second program read the written Y and the unwritten X.
fn later_only(_: &[u64], right: &[u64]) -> bool {
    right == [1, 0]
}

/// Returns whether both programs first read 1.
fn both_early(left: &[u64], right: &[u64]) -> bool {
    left[0] == 1 && right[0] == 1
}

/// All litmus tests.
pub const ALL: &[Litmus] = &[
    Litmus {
        name: "WRITE WRITE against READ READ",
        programs: [
            &[&[Write(X, &[1]), Write(Y, &[1])]],
            &[&[Read(Y, 1), Read(X, 1)]],
        ],
        forbids: later_only,
        shows: None,
    },
    Litmus {
        name: "the same in batches of their own",
        programs: [
            &[&[Write(X, &[1])], &[Write(Y, &[1])]],
            &[&[Read(Y, 1)], &[Read(X, 1)]],
        ],
        forbids: later_only,
        shows: None,
    },
    Litmus {
        name: "WRITE READ on both sides",
        programs: [
            &[&[Write(X, &[1]), Read(Y, 1)]],
            &[&[Write(Y, &[1]), Read(X, 1)]],
        ],
        forbids: both_miss,
        shows: None,
    },
    Litmus {
        name: "WRITE, then READ in a batch of its own, on both sides",
        programs: [
            &[&[Write(X, &[1])], &[Read(Y, 1)]],
            &[&[Write(Y, &[1])], &[Read(X, 1)]],
        ],
        forbids: both_miss,
        shows: None,
    },
    Litmus {
        name: "CAS READ on both sides",
        programs: [&[&[Swap(X, 1), Read(Y, 1)]], &[&[Swap(Y, 1), Read(X, 1)]]],
        forbids: both_miss,
        shows: None,
    },
    Litmus {
        name: "WRITE FAA READ on both sides",
        programs: [
            &[&[Write(X, &[1]), Add(16, 1), Read(Y, 1)]],
            &[&[Write(Y, &[1]), Add(24, 1), Read(X, 1)]],
        ],
        forbids: both_miss,
        shows: None,
    },
    Litmus {
        name: "WRITE and a CAS that fails, on both sides",
        programs: [&[&[Write(X, &[1]), Miss(Y)]], &[&[Write(Y, &[1]), Miss(X)]]],
        forbids: both_miss,
        shows: None,
    },
    Litmus {
        name: "a CAS passes a READ",
        programs: [&[&[Read(X, 1), Swap(Y, 1)]], &[&[Read(Y, 1), Swap(X, 1)]]],
        forbids: |_, _| false,
        shows: Some(both_early),
    },
    Litmus {
        name: "a fenced CAS passes no READ",
        programs: [
            &[&[Read(X, 1), Fence, Swap(Y, 1)]],
            &[&[Read(Y, 1), Fence, Swap(X, 1)]],
        ],
        forbids: both_early,
        shows: None,
    },
    Litmus {
        name: "a WRITE passes a READ",
        programs: [
            &[&[Read(X, 1), Write(Y, &[1])]],
            &[&[Read(Y, 1), Write(X, &[1])]],
        ],
        forbids: |_, _| false,
        shows: Some(both_early),
    },
    Litmus {
        name: "a fenced WRITE passes no READ",
        programs: [
            &[&[Read(X, 1), Fence, Write(Y, &[1])]],
            &[&[Read(Y, 1), Fence, Write(X, &[1])]],
        ],
        forbids: both_early,
        shows: None,
    },
    Litmus {
        name: "a WRITE passes no completed READ",
        programs: [
            &[&[Read(X, 1)], &[Write(Y, &[1])]],
            &[&[Read(Y, 1)], &[Write(X, &[1])]],
        ],
        forbids: both_early,
        shows: None,
    },
    Litmus {
        name: "a WRITE passes a CAS",
        programs: [
            &[&[Swap(X, 1), Write(Y, &[1])]],
            &[&[Read(Y, 1), Read(X, 1)]],
        ],
        forbids: |_, _| false,
        shows: Some(later_only),
    },
    Litmus {
        name: "a fenced WRITE passes no CAS",
        programs: [
            &[&[Swap(X, 1), Fence, Write(Y, &[1])]],
            &[&[Read(Y, 1), Read(X, 1)]],
        ],
        forbids: later_only,
        shows: None,
    },
    Litmus {
        name: "a CAS passes no WRITE",
        programs: [
            &[&[Write(X, &[1]), Swap(Y, 1)]],
            &[&[Read(Y, 1), Read(X, 1)]],
        ],
        forbids: later_only,
        shows: None,
    },
    Litmus {
        name: "a WRITE is torn, its end first",
        programs: [&[&[Write(X, &[1, 1])]], &[&[Read(X, 2)]]],
        forbids: |_, right| right.iter().any(|word| *word > 1),
        shows: Some(|_, right| right == [0, 1]),
    },
    Litmus {
        name: "a READ is torn, its start first",
        programs: [&[&[Write(X, &[1, 1])]], &[&[Read(X, 2)]]],
        forbids: |_, right| right.iter().any(|word| *word > 1),
        shows: Some(|_, right| right == [1, 0]),
    },
    Litmus {
        name: "one of two CAS takes effect",
        programs: [&[&[Swap(X, 1)]], &[&[Swap(X, 2)]]],
        forbids: |left, right| !matches!((left[0], right[0]), (0, 1) | (2, 0)),
        shows: None,
    },
    Litmus {
        name: "both FAA take effect",
        programs: [&[&[Add(X, 1), Read(X, 1)]], &[&[Add(X, 1), Read(X, 1)]]],
        forbids: |left, right| left[0] == right[0] || left[1] <= left[0] || right[1] <= right[0],
        shows: None,
    },
];
