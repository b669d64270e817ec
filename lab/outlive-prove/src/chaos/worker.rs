//! A worker: joins under its ids, settles its last incarnation's intent, and works until stopped.

use super::ledger::{COUNTERS, Intent, Ledger, Tally, What};
use super::stage::{
    self, COMMON_KEYS, LARGE_CELLS, MOST_WORKERS, OWN_KEYS, SHARED_KEYS, SMALL_CELLS, Stage, text,
    thread_of, worker_of,
};
use super::{BROKEN, Broken, PARENT, SEED, STAGE, WORKERS, blocks, counters, entries};
use crate::schedule::engine::choices::Dice;
use core::cell::RefCell;
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::membership::{JoinError, Member, ProcessOptions};
use outlive::pod::{Pod, PodError};
use outlive::recovery::{OwnLog, Recoverers};
use outlive::structures::Map;
use outlive::supervise::Place;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// The time that joining may take while a predecessor's death is recovered or a host is fenced.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker checks one of its own keys every `LOOK` operations.
const LOOK: u64 = 8;

/// The handles of a worker.
pub struct Hands<'w> {
    pub stage: Stage,
    pub worker: u32,
    pub member: &'w Member,
    pub recoverers: &'w Recoverers,
    pub heap: LocalHeap<'w>,
    pub map: Map<u64, u64>,
    pub dawdles: RefCell<Dice>,
}

impl Hands<'_> {
    /// Sleeps for a moment in one of `one_in` calls. Otherwise a worker would spend only a few
    /// nanoseconds where its death does most harm.
    pub fn dawdle(&self, one_in: u64) {
        let roll = self.dawdles.borrow_mut().roll();
        if roll.is_multiple_of(one_in) {
            std::thread::sleep(Duration::from_micros(20 + roll / one_in % 200));
        }
    }

    /// Returns the value of own key `number` by the tally, or `None` if it is not in the map.
    pub fn own(&self, number: u64) -> Option<u64> {
        let room = OwnLog::of(self.member).log().program_room();
        let own = Ledger::at(self.stage.memory, room).tally().own[number as usize];
        (own != 0).then_some(own)
    }
}

/// Runs one worker, whose ids are in the environment, until the driver stops it. For the command
/// passed to [`run`](super::run).
///
/// # Errors
/// Returns the fault, which is also reported to the driver.
pub fn work() -> Result<(), String> {
    // A worker is useless without its driver, so it dies with it. If the driver has died already,
    // the worker has another parent.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(text)?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent != std::env::var(PARENT).ok() {
        return Err("the driver has ended".into());
    }
    // The driver's own host must not be taken for silent because its workers want every core.
    // SAFETY: changes this process's priority and nothing else.
    unsafe { libc::nice(10) };
    let place = Place::from_env().map_err(text)?;
    let number = |name: &str| -> Result<u64, String> {
        let value = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
        value.parse().map_err(|error| format!("{name}: {error}"))
    };
    let workers = number(WORKERS)?;
    let seed = number(SEED)?;
    let worker = worker_of(place.id);
    if workers > u64::from(MOST_WORKERS) || u64::from(worker) >= workers {
        return Err(format!("worker {worker} of {workers}"));
    }
    let pod = Pod::open(&place.pod).map_err(text)?;
    let stage = Stage::at(&pod, number(STAGE)?)?;
    let broken = match std::env::var(BROKEN) {
        Ok(name) => Some(name.parse()?),
        Err(_) => None,
    };
    // From here on the driver gets the text of every failure, those of joining included.
    let part = AssertUnwindSafe(|| take_part(&pod, stage, &place, worker, seed, broken));
    match catch_unwind(part) {
        Ok(outcome) => {
            outcome.inspect_err(|what| stage.accuse(&format!("worker {worker}: {what}")))
        }
        Err(panic) => {
            let said = said(&*panic);
            stage.accuse(&format!("worker {worker} panicked: {said}"));
            resume_unwind(panic)
        }
    }
}

/// Returns the message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("nothing")
}

/// Joins, works and leaves.
fn take_part(
    pod: &Pod,
    stage: Stage,
    place: &Place,
    worker: u32,
    seed: u64,
    broken: Option<Broken>,
) -> Result<(), String> {
    let options = ProcessOptions::on_host(place.host)
        .id(place.id)
        .name(format!("worker {worker}"));
    let process = patiently(|| pod.join_with(options.clone(), stage::add_handlers))?;
    let thread = match broken {
        // An id that does not exist in any pod.
        Some(Broken::Lost) => u32::MAX,
        _ => thread_of(worker),
    };
    let member = patiently(|| {
        let name = format!("worker {worker}");
        Ok(process.enter(Some(thread), &name)?)
    })?;
    let hands = Hands {
        stage,
        worker,
        member: &member,
        recoverers: member.recoverers().ok_or("no recoverers")?,
        heap: member.heap(pod).map_err(text)?,
        map: stage.map()?,
        dawdles: RefCell::new(Dice::new(seed ^ u64::from(std::process::id()))),
    };
    let outcome = toil(&hands, seed, broken);
    drop(hands);
    drop(member);
    let left = process.leave().map_err(text);
    outcome.and(left)
}

/// Retries while a predecessor is in the way.
fn patiently<T>(attempt: impl Fn() -> Result<T, PodError>) -> Result<T, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(PodError::Join(
                JoinError::InUse { .. } | JoinError::NotRecovered { .. } | JoinError::Gone { .. },
            )) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Settles the inherited intent, then records and carries out one operation after another.
fn toil(hands: &Hands<'_>, seed: u64, broken: Option<Broken>) -> Result<(), String> {
    let ledger = Ledger::at(
        hands.stage.memory,
        OwnLog::of(hands.member).log().program_room(),
    );
    let mut tally = ledger.tally();
    if let Some(intent) = ledger.intended(tally.sequence)? {
        // The broken variant assumes that an intent without a tally entry had no effect.
        let effect = !broken.is_some_and(|broken| broken.forgets(intent)) && ask(hands, intent)?;
        tally.enter(intent, effect);
        ledger.commit(&tally);
    }
    // The own keys must have survived the last death.
    for number in 0..OWN_KEYS {
        entries::look(hands, number)?;
    }
    while !hands.stage.is_stopped() {
        let mut intent = next(seed, hands.worker, &tally);
        let last = OwnLog::of(hands.member).log().operation().map_err(text)?;
        intent.after = last.map_or(0, |operation| operation.sequence);
        ledger.intend(intent);
        hands.dawdle(256);
        if let Some(broken) = broken {
            broken.misbehave(hands, intent)?;
        }
        let effect = perform(hands, intent)?;
        hands.dawdle(64);
        if broken.is_some_and(|broken| broken.forgets(intent)) {
            // Where the variant forgets. Otherwise a short run may have no kill there.
            std::thread::sleep(Duration::from_millis(1));
        }
        tally.enter(intent, effect);
        ledger.commit(&tally);
        if tally.sequence.is_multiple_of(LOOK) {
            entries::look(hands, tally.sequence / LOOK % OWN_KEYS)?;
        }
    }
    Ok(())
}

/// Returns the next operation, which follows from the seed, the worker's number and its tally.
fn next(seed: u64, worker: u32, tally: &Tally) -> Intent {
    let sequence = tally.sequence + 1;
    let mut dice = Dice::new(seed ^ u64::from(worker) << 48 ^ sequence << 8);
    dice.roll();
    let roll = dice.roll();
    let mut one_of = |many: u64| dice.roll() % many;
    let (what, which) = match roll % 16 {
        0..4 => (What::Count, one_of(COUNTERS as u64)),
        4..6 => match one_of(LARGE_CELLS) {
            cell if tally.large & 1 << cell == 0 => (What::Allocate, cell),
            cell => (What::Free, cell),
        },
        6..9 => match one_of(SMALL_CELLS) {
            cell if tally.small & 1 << cell == 0 => (What::AllocateSmall, cell),
            cell => (What::FreeSmall, cell),
        },
        9..12 => match (one_of(OWN_KEYS), one_of(3)) {
            (key, 0) if tally.own[key as usize] != 0 => (What::Remove, key),
            (key, _) => (What::Put, key),
        },
        12..14 => (What::Add, one_of(SHARED_KEYS)),
        14 => (What::InsertCommon, one_of(COMMON_KEYS)),
        _ => (What::RemoveCommon, one_of(COMMON_KEYS)),
    };
    Intent {
        sequence,
        what,
        which,
        // A value that the key never had before.
        much: sequence,
        after: 0,
    }
}

fn perform(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    match intent.what {
        What::Count => counters::count(hands, intent),
        What::Allocate | What::Free | What::AllocateSmall | What::FreeSmall => {
            blocks::perform(hands, intent)
        }
        _ => entries::perform(hands, intent),
    }
}

fn ask(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    match intent.what {
        What::Count => counters::ask(hands, intent),
        What::Allocate | What::Free | What::AllocateSmall | What::FreeSmall => {
            blocks::ask(hands, intent)
        }
        _ => entries::ask(hands, intent),
    }
}
