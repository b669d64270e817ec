//! Counting, killed at every instruction, for `outlive-lab prove kill`.
//!
//! A small pod with a victim and two survivors. The victim takes tasks, counts their units into the
//! table of its slot, which grows, and commits them. Whenever it dies, a survivor continues in a
//! slot of its own with a table of its own, and as the next owner of the victim's slot, until all
//! is done. The totals must then be those of the text.

use super::fixture::{BYTES, Text, Way, World};
use outlive_programs::mapreduce::results::CommitPoint;
use outlive_programs::table::{CountPoint, GrowPoint};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// The text to count. The key in the middle is too long for an entry, and the table must grow
/// twice.
const TEXT: Text = &[
    &["a", "b", "a"],
    &["b", "a", LONG, "c"],
    &["d", LONG, "e", "a", ALSO_LONG],
    &["a", "f", "b"],
];
const LONG: &str = "a key of more than twenty-four bytes";
const ALSO_LONG: &str = "another key of more than twenty-four bytes, and of more than sixty-four";

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in [Case::First, Case::AfterADeath, Case::AfterAGrowth] {
        suite.add(Counting(case));
    }
    suite.declare::<CommitPoint>();
    suite.declare::<CountPoint>().declare::<GrowPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        Way::ReusesAnAttempt,
        Way::ForgetsTheAttempt,
        Way::TrustsTheDead,
        Way::CommitsFirst,
        Way::CompletesFirst,
    ]
    .map(|way| -> (Box<dyn Sweep>, _) { (Box::new(Counting(Case::Wrong(way))), "counted") })
    .into()
}

/// The state that the victim finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Nothing: it is the first.
    First,
    /// Its slot's last owner has committed one unit and died in the next.
    AfterADeath,
    /// The same, while the table grew.
    AfterAGrowth,
    /// Broken: the same as after a death.
    Wrong(Way),
}

impl Case {
    fn way(self) -> Way {
        match self {
            Self::Wrong(way) => way,
            _ => Way::Sound,
        }
    }
}

/// Number 0 is the victim; 1 and 2 recover; 3 has prepared the memory, and has died in some of the
/// cases.
struct Counting(Case);

impl Sweep for Counting {
    fn name(&self) -> String {
        match self.0 {
            Case::Wrong(way) => format!("wordcount {way:?}"),
            case => format!("wordcount {case:?}"),
        }
    }

    fn size(&self) -> u64 {
        BYTES.next_multiple_of(4096)
    }

    fn prepare(&self, memory: Marked) {
        let world = World::create(memory, TEXT);
        if self.0 != Case::First {
            world.let_one_die(self.0 == Case::AfterAGrowth);
        }
    }

    fn operate(&self, memory: Marked) {
        let world = World::open(memory, TEXT);
        let victim = world.act_as(0);
        let local = world.local(&victim);
        world.work(&local, 0, 2, self.0.way());
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let world = World::open(memory, TEXT);
        (0..=crash.recoverers_lost).for_each(|id| world.die(id));
        world.finish(1 + crash.recoverers_lost);
    }

    fn check(&self, memory: Marked, _crash: &Crash) -> Result<(), String> {
        World::open(memory, TEXT).demand_counted()
    }
}
