//! Counting under interleavings and deaths: what `outlive-lab prove schedule` runs of this crate.
//!
//! Workers of a small pod do the tasks of two units, on memory whose model is weaker than x86's, where any access may be a
//! worker's last. Whatever happens, the totals are those of the text. (That a task has one holder at a time is what the scenarios
//! of `outlive-tasks` are about.)

use crate::fixtures::{BYTES, SLOTS, Text, Way, World};
use outlive_prove::fixtures::weakened::Weakened;
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, Proving, Scenario, Scheduled};
use std::sync::OnceLock;

/// What is to be counted: unit 1 lets a smallest table grow, and has a key that does not fit into an entry.
const TEXT: Text = &[&["a", "b", "a"], &["b", "c", LONG, "d"]];
const LONG: &str = "a key of more than twenty-four bytes";

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let within = |preemptions, stale_reads, deaths| {
        let bounds = bounds().preemptions(preemptions).deaths(deaths);
        bounds.stale_reads(stale_reads)
    };
    vec![
        Proof::of_every(
            counting(2, Way::Sound),
            within(1, 0, 0),
            within(1, 1, 1).executions(5_000_000),
        ),
        Proof::of_some(counting(3, Way::Sound), within(4, 3, 2), 3_000, 300_000),
        Proof::of_some(heirs(Way::Sound), within(4, 3, 2), 3_000, 300_000),
    ]
}

/// Scenarios that must fail within these bounds, each with a part of what must be said.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let deaths = |deaths| bounds().preemptions(0).deaths(deaths);
    vec![
        (counting(1, Way::CommitsFirst), deaths(1), "counted"),
        (counting(1, Way::CompletesFirst), deaths(1), "counted"),
        (heirs(Way::ReusesAnAttempt), deaths(0), "counted"),
        (heirs(Way::TrustsTheDead), deaths(0), "counted"),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(500_000)
}

type Memories = Weakened<Scheduled>;

/// The handles; the memory behind them is each execution's own.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle()), TEXT))
}

/// A scenario of up to three workers, by number; another one does what they leave.
fn members(name: &str, prepare: impl Fn(&World<Memories>) + Send + Sync + 'static) -> Scenario {
    schedule::scenario(name)
        .memory(BYTES)
        .prepare(move |m| {
            World::create(Weakened::sound(m), TEXT);
            prepare(world());
        })
        .on_death(|_, host| world().die(host as u32))
        .check(|_, _| {
            let world = world();
            // Where number 3 has died at first, number 2 is not among the workers.
            world.finish(if world.status(3).may_write() { 3 } else { 2 });
            world
                .demand_counted()
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}

/// What worker `id` does: in its own slot, or in that of another.
fn worker(id: u32, slot: u32, way: Way) -> impl Fn(Scheduled) + Send + Sync {
    move |_| {
        let world = world();
        let member = world.act_as(id);
        let local = world.local(&member);
        world.work(&local, slot % SLOTS, usize::MAX, way);
    }
}

/// So many count, each into its own table, and may die; number 3 counts what they leave.
fn counting(workers: u32, way: Way) -> Scenario {
    let name = match way {
        Way::Sound => "counting",
        Way::CommitsFirst => "commits before it counts",
        _ => "is done before it commits",
    };
    (0..workers).fold(members(name, |_| ()), |scenario, id| {
        scenario.mortal(&format!("w{id}"), worker(id, id, way))
    })
}

/// The same, but slot 0 had an owner, who had begun to count its second unit, with other keys, and died.
fn heirs(way: Way) -> Scenario {
    let name = match way {
        Way::Sound => "counting after a death",
        Way::ReusesAnAttempt => "counts under an old number",
        _ => "trusts an abandoned attempt",
    };
    let scenario = members(name, |world| world.let_one_die(false));
    let scenario = scenario.mortal("w0", worker(0, 0, way));
    match way {
        Way::Sound => scenario.mortal("w1", worker(1, 1, way)),
        _ => scenario,
    }
}
