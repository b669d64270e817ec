//! Counting under interleavings and deaths, for `outlive-lab prove schedule`.
//!
//! Workers of a small pod do the tasks of two units, on a memory model weaker than x86's, and any
//! access may be a worker's last. In every execution the totals are those of the text. (The
//! scenarios of `outlive-tasks` show that a task has one holder at a time.)

use super::fixture::{BYTES, SLOTS, Text, Way, World};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, Proving, Scenario, Scheduled};
use outlive_prove::weakened::Weakened;
use std::sync::OnceLock;

/// The text to count: unit 1 lets a smallest table grow, and has a key too long for an entry.
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

/// Returns scenarios that must fail within these bounds, each with a part of the message.
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

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle()), TEXT))
}

/// A scenario of up to three workers, by number; another one does the rest of their work.
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
            // If number 3 died at first, number 2 is not among the workers.
            world.finish(if world.status(3).may_write() { 3 } else { 2 });
            world
                .demand_counted()
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}

/// Returns the body of worker `id`, in its own slot or in that of another.
fn worker(id: u32, slot: u32, way: Way) -> impl Fn(Scheduled) + Send + Sync {
    move |_| {
        let world = world();
        let member = world.act_as(id);
        let local = world.local(&member);
        world.work(&local, slot % SLOTS, usize::MAX, way);
    }
}

/// All workers count, each into its own table, and may die; number 3 counts the rest.
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

/// The same, but slot 0 had an owner that had begun to count its second unit, with other keys, and
/// died.
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
