//! The state of one execution, and every decision in it.

use super::access::{Access, Act, Answer};
use super::choices::{Choice, Choices};
use super::model::Model;
use super::words::Words;
use crate::schedule::coverage::Coverage;
use crate::schedule::trace::{Trace, place};
use outlive_memory::{CrashPoint, Ordering};
use std::collections::BTreeMap;

/// Codes on offer at a switch: 0 is the end, then threads from 1, then raises, then deaths.
const RAISE: u16 = 100;
const DIE: u16 = 200;
/// How often every waiting thread is woken without news before it is said that nobody can go on.
const PATIENCE: u32 = 300;

/// Bounds on what is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) preemptions: u32,
    pub(crate) stale: u32,
    pub(crate) deaths: u32,
    pub(crate) steps: u32,
}

/// What the engine needs to know of a thread before it runs.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPlan {
    pub(crate) name: String,
    pub(crate) host: usize,
    pub(crate) mortal: bool,
    pub(crate) after_death: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Not before a death has been told of.
    Blocked,
    Ready,
    Waiting,
    Finished,
    Dead,
}

/// What a thread read since it last waited.
#[derive(Clone, Copy, Debug)]
struct Seen {
    word: usize,
    stamp: u64,
    value: u128,
}

#[derive(Debug)]
struct Thread {
    plan: ThreadPlan,
    status: Status,
    /// Whether it did something since death was last on offer.
    fresh: bool,
    /// Whether it was interrupted before an access that it will make when it goes on.
    at_point: bool,
    seen: Vec<Seen>,
    /// When it began to wait, for threads that wait without having read.
    since: u32,
    /// Its next load of this word must find something newer.
    force: Option<(usize, u64)>,
    last_point: Option<(&'static str, usize)>,
}

/// Who runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Thread(usize),
    Raise(usize),
    Die(usize),
    End,
    /// Nobody, though somebody waits.
    Stuck(usize),
}

/// Whether the running thread goes on at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    On,
    Suspend,
    /// It is dead.
    Never,
}

/// Why an execution failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

/// What is left of an execution.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) failed: Option<Failed>,
    /// By thread.
    pub(crate) died: Vec<bool>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) choices: Choices,
    pub(super) model: Model,
    words: Words,
    limits: Limits,
    threads: Vec<Thread>,
    /// By host: whether a hook waits to be told of its death.
    raising: Vec<bool>,
    hooked: bool,
    /// Which thread runs; `None` in preparation, hooks and check, whose actor is `actor`.
    running: Option<usize>,
    actor: usize,
    interrupted: Option<usize>,
    /// Whether the running thread was just chosen, and with it its next access that others see.
    chosen: bool,
    last: usize,
    pub(super) next: Option<Target>,
    preemptions: u32,
    stale: u32,
    pub(super) deaths: u32,
    steps: u32,
    patience: u32,
    newest_only: bool,
    pub(super) failed: Option<Failed>,
    /// By byte: whether several threads touch its grain and one writes.
    shared: Vec<bool>,
    touched: BTreeMap<u64, (u32, u32)>,
    pub(super) grew: bool,
    pub(super) everything_shared: bool,
    pub(super) coverage: Coverage,
    pub(super) trace: Option<Trace>,
    codes: Vec<u16>,
}

impl State {
    pub(super) fn new(
        plans: Vec<ThreadPlan>,
        size: u64,
        model: Model,
        limits: Limits,
        hooked: bool,
    ) -> Self {
        let hosts = plans.iter().map(|plan| plan.host + 1).max().unwrap_or(0);
        let thread = |plan| Thread {
            plan,
            status: Status::Ready,
            fresh: true,
            at_point: false,
            seen: Vec::new(),
            since: 0,
            force: None,
            last_point: None,
        };
        Self {
            choices: Choices::tree(),
            model,
            words: Words::new(size),
            limits,
            threads: plans.into_iter().map(thread).collect(),
            raising: vec![false; hosts],
            hooked,
            running: None,
            actor: 0,
            interrupted: None,
            chosen: false,
            last: 0,
            next: None,
            preemptions: 0,
            stale: 0,
            deaths: 0,
            steps: 0,
            patience: 0,
            newest_only: false,
            failed: None,
            shared: vec![false; size as usize],
            touched: BTreeMap::new(),
            grew: false,
            everything_shared: false,
            coverage: Coverage::default(),
            trace: None,
            codes: Vec::new(),
        }
    }

    pub(super) fn main(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn memory_size(&self) -> u64 {
        self.words.size()
    }

    /// Makes ready for another execution.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.model.clear();
        for thread in &mut self.threads {
            thread.status = if thread.plan.after_death {
                Status::Blocked
            } else {
                Status::Ready
            };
            thread.fresh = true;
            thread.at_point = false;
            thread.seen.clear();
            thread.since = 0;
            thread.force = None;
            thread.last_point = None;
        }
        self.raising.fill(false);
        (self.running, self.interrupted, self.next) = (None, None, None);
        self.actor = self.main();
        (self.last, self.preemptions, self.stale, self.deaths) = (0, 0, 0, 0);
        (self.steps, self.patience, self.newest_only) = (0, 0, false);
        self.failed = None;
        self.touched.clear();
    }

    pub(super) fn ran(&self) -> Ran {
        let died = self
            .threads
            .iter()
            .map(|t| t.status == Status::Dead)
            .collect();
        Ran {
            failed: self.failed.clone(),
            died,
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(Failed(why));
    }

    // ---- Who runs ----

    /// Preparation is over: every thread knows what it did.
    pub(super) fn start_threads(&mut self) {
        for thread in 0..self.threads.len() {
            self.model.follow(self.main(), thread);
        }
    }

    /// All is over: the check knows everything.
    pub(super) fn start_check(&mut self) {
        self.running = None;
        self.actor = self.main();
        self.model.know_all(self.actor);
    }

    pub(super) fn set_running(&mut self, thread: usize) {
        self.running = Some(thread);
        self.actor = thread;
        self.last = thread;
        self.chosen = !std::mem::take(&mut self.threads[thread].at_point);
    }

    /// The running thread has done all it does; its host may still die.
    pub(super) fn finish(&mut self) -> Go {
        let Some(current) = self.running else {
            return Go::On;
        };
        if self.die() {
            return Go::Never;
        }
        self.note(|_| "ends".to_owned());
        self.threads[current].status = Status::Finished;
        self.running = None;
        self.interrupted = None;
        Go::On
    }

    fn can_run(&self, thread: usize) -> bool {
        let t = &self.threads[thread];
        match t.status {
            Status::Ready => true,
            Status::Waiting if t.seen.is_empty() => self.steps > t.since,
            Status::Waiting => t
                .seen
                .iter()
                .any(|s| self.model.news(s.word, s.stamp, s.value)),
            _ => false,
        }
    }

    /// Decides who runs next. `current` could go on.
    pub(super) fn pick(&mut self, current: Option<usize>) -> Target {
        let mut codes = std::mem::take(&mut self.codes);
        codes.clear();
        codes.extend(current.map(|t| t as u16 + 1));
        let count = self.threads.len();
        if current.is_none() || self.preemptions < self.limits.preemptions {
            let others = (1..=count).map(|i| (self.last + i) % count);
            codes.extend(
                others
                    .filter(|&t| Some(t) != current && self.can_run(t))
                    .map(|t| t as u16 + 1),
            );
        }
        let nobody = codes.is_empty();
        let raises = self
            .raising
            .iter()
            .enumerate()
            .filter(|(_, raising)| **raising);
        codes.extend(raises.map(|(host, _)| RAISE + host as u16));
        let target = if codes.is_empty()
            && let Some(waits) = self.somebody_waits()
        {
            self.choices.pass();
            Target::Stuck(waits)
        } else {
            if nobody && codes.is_empty() {
                codes.push(0);
            }
            let choice = if current.is_some() {
                Choice::Switch
            } else {
                Choice::Next
            };
            match self.choices.choose(choice, &codes) {
                Ok(index) => Self::target(codes[index]),
                Err(_) => self.diverged(),
            }
        };
        self.codes = codes;
        if let (Some(current), Target::Thread(next)) = (current, target)
            && next != current
        {
            self.preemptions += 1;
        }
        if !matches!(target, Target::Stuck(_)) && current.is_none() {
            self.newest_only = false;
        }
        target
    }

    fn target(code: u16) -> Target {
        match code {
            0 => Target::End,
            DIE.. => Target::Die(usize::from(code - DIE)),
            RAISE.. => Target::Raise(usize::from(code - RAISE)),
            _ => Target::Thread(usize::from(code) - 1),
        }
    }

    fn diverged(&mut self) -> Target {
        self.fail(
            "the schedule does not fit: the scenario did something else when it was given the same; \
             it must not depend on time, addresses, random numbers or what earlier executions left"
                .to_owned(),
        );
        Target::End
    }

    fn somebody_waits(&self) -> Option<usize> {
        let count = self.threads.len();
        (1..=count)
            .map(|i| (self.last + i) % count)
            .find(|&t| self.threads[t].status == Status::Waiting)
    }

    /// Wakes a thread that has no news, in case it waits by counting.
    pub(super) fn lose_patience(&mut self, thread: usize) {
        let waiting = self
            .threads
            .iter()
            .filter(|t| t.status == Status::Waiting)
            .count() as u32;
        self.patience += 1;
        if self.patience > PATIENCE * waiting {
            let names: Vec<_> = (self.threads.iter().filter(|t| t.status == Status::Waiting))
                .map(|t| t.plan.name.as_str())
                .collect();
            let names = names.join(", ");
            self.fail(format!(
                "nobody can go on: {names} wait for stores that nobody will make"
            ));
        }
        self.threads[thread].status = Status::Ready;
        self.threads[thread].seen.clear();
        self.newest_only = true;
    }

    /// Decides at a point that others may see whether the running thread goes on.
    pub(super) fn switch(&mut self) -> Go {
        let Some(current) = self.running else {
            return Go::On;
        };
        if std::mem::take(&mut self.chosen) {
            self.choices.pass();
            return Go::On;
        }
        match self.pick(Some(current)) {
            Target::Thread(next) if next == current => Go::On,
            target => {
                self.interrupted = Some(current);
                self.threads[current].at_point = true;
                self.next = Some(target);
                Go::Suspend
            }
        }
    }

    /// Who runs after an event: whoever it interrupted could go on.
    pub(super) fn pick_after_event(&mut self) -> Target {
        let interrupted = self
            .interrupted
            .filter(|&t| self.threads[t].status == Status::Ready);
        self.pick(interrupted)
    }

    pub(super) fn pick_next(&mut self) -> Target {
        self.interrupted = None;
        self.pick(None)
    }

    // ---- Deaths ----

    /// Decides whether the running thread's host dies here.
    pub(super) fn die(&mut self) -> bool {
        let Some(current) = self.running else {
            return false;
        };
        let thread = &mut self.threads[current];
        let fresh = std::mem::take(&mut thread.fresh);
        let may = thread.plan.mortal
            && fresh
            && self.deaths < self.limits.deaths
            && !std::thread::panicking();
        if !may {
            self.choices.pass();
            return false;
        }
        match self.choices.choose(Choice::Death, &[0, 1]) {
            Ok(0) => false,
            Ok(_) => {
                self.kill(self.threads[current].plan.host);
                true
            }
            Err(_) => {
                self.diverged();
                false
            }
        }
    }

    pub(super) fn kill(&mut self, host: usize) {
        self.deaths += 1;
        self.note(|_| "dies".to_owned());
        for thread in self.threads.iter_mut().filter(|t| t.plan.host == host) {
            if thread.status != Status::Finished {
                thread.status = Status::Dead;
                if let Some((operation, index)) = thread.last_point {
                    self.coverage.died_after(operation, index);
                }
            }
        }
        self.running = None;
        self.interrupted = None;
        let told = self.hooked || self.threads.iter().any(|t| t.status == Status::Blocked);
        self.raising[host] = told;
    }

    /// The death of `host` is told now: its hook runs next.
    pub(super) fn start_raise(&mut self, host: usize) {
        self.raising[host] = false;
        self.running = None;
        self.actor = self.main() + 1 + host;
        self.model.follow(self.main(), self.actor);
        for thread in 0..self.threads.len() {
            if self.threads[thread].plan.host == host {
                self.model.follow(thread, self.actor);
            }
        }
        self.note(|_| "the death is told".to_owned());
    }

    pub(super) fn end_raise(&mut self) {
        for thread in 0..self.threads.len() {
            if self.threads[thread].status == Status::Blocked {
                self.threads[thread].status = Status::Ready;
                self.model.follow(self.actor, thread);
            }
        }
        self.actor = self.main();
    }

    /// Where the moment of a death matters: whether the running thread's host dies now that it could go on.
    pub(super) fn die_here(&mut self) -> bool {
        self.running.is_some() && self.model.deaths_are_timed() && self.die()
    }

    pub(super) fn crash_point<P: CrashPoint>(&mut self, point: P) {
        self.coverage.declare::<P>();
        if let Some(current) = self.running {
            let thread = &mut self.threads[current];
            thread.last_point = Some((P::OPERATION, point.index()));
            thread.fresh = true;
        }
        self.note(|_| format!("passes {}::{}", P::OPERATION, point.name()));
    }

    // ---- Points ----

    fn arrive(&mut self, seen_by_others: bool) -> Go {
        if self.running.is_none() {
            return Go::On;
        }
        if !self.model.deaths_are_timed() && self.die() {
            return Go::Never;
        }
        if (seen_by_others || self.everything_shared) && !std::thread::panicking() {
            self.switch()
        } else {
            self.choices.pass();
            Go::On
        }
    }

    pub(super) fn arrive_at_word(&mut self, access: &Access) -> Go {
        self.arrive_at_line(access.at, u64::from(access.size))
    }

    pub(super) fn arrive_at_line(&mut self, at: u64, len: u64) -> Go {
        let grain = self.model.grain();
        let (from, to) = (
            at / grain * grain,
            at.saturating_add(len).next_multiple_of(grain),
        );
        let to = to.min(self.shared.len() as u64);
        let shared = from < to && self.shared[from as usize..to as usize].contains(&true);
        self.arrive(shared)
    }

    pub(super) fn arrive_at_fence(&mut self, order: Ordering) -> Go {
        self.arrive(order == Ordering::SeqCst)
    }

    pub(super) fn arrive_unseen(&mut self) -> Go {
        self.arrive(false)
    }

    pub(super) fn arrive_outside(&mut self) -> Go {
        self.arrive(true)
    }

    pub(super) fn outside(&mut self) {
        self.acted();
    }

    /// The running thread did something that its death could leave behind.
    fn acted(&mut self) {
        if let Some(current) = self.running {
            self.threads[current].fresh = true;
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        // Never a second panic while one is on its way.
        if self.steps > self.limits.steps && !std::thread::panicking() {
            return Err(format!("it went on for {} accesses", self.limits.steps));
        }
        Ok(())
    }

    // ---- Accesses ----

    pub(super) fn access(&mut self, access: &Access) -> Result<Answer, String> {
        access.check_order()?;
        self.step()?;
        let word = self.words.locate(access.at, access.size)?;
        self.touch(access.at, access.size, access.writes());
        let way = self.way(word, access);
        let writer = self.trace.is_some().then(|| match access.act {
            Act::Store(_) => 0,
            _ => self.model.writer(word, way),
        });
        let answer = self.model.access(self.actor, word, access, way, self.steps);
        if let Some(writer) = writer {
            let access = *access;
            self.note(|step| place(step, &access, answer, way, writer));
        }
        if answer.swapped {
            self.acted();
            self.newest_only = false;
            if !matches!(access.act, Act::Exchange(new) if new == answer.value) {
                self.patience = 0;
            }
        }
        if let Some(current) = self.running
            && !matches!(access.act, Act::Store(_))
        {
            let stamp = self.model.stamp(current, word);
            let seen = &mut self.threads[current].seen;
            seen.retain(|s| s.word != word);
            seen.push(Seen {
                word,
                stamp,
                value: answer.value,
            });
        }
        Ok(answer)
    }

    fn way(&mut self, word: usize, access: &Access) -> u16 {
        let Some(current) = self.running else {
            return 0;
        };
        let force = self.threads[current]
            .force
            .filter(|(forced, _)| *forced == word);
        let mut codes = std::mem::take(&mut self.codes);
        codes.clear();
        let after = force.map(|(_, stamp)| stamp);
        self.model.ways(current, word, access, after, &mut codes);
        if self.newest_only || self.stale >= self.limits.stale {
            codes.truncate(1);
        }
        let way = match self.choices.choose(Choice::Message, &codes) {
            Ok(index) => codes[index],
            Err(_) => {
                self.diverged();
                0
            }
        };
        self.codes = codes;
        self.stale += u32::from(way != 0);
        way
    }

    fn touch(&mut self, at: u64, size: u8, writes: bool) {
        if self.actor == self.main() {
            return;
        }
        let grain = self.model.grain().max(u64::from(size));
        let at = at / grain * grain;
        if self.shared[at as usize] {
            return;
        }
        let (read, wrote) = self.touched.entry(at).or_default();
        let me = 1 << self.actor;
        *read |= me;
        if writes {
            *wrote |= me;
        }
        if *wrote != 0 && (*read & !me) != 0 {
            let to = ((at + grain) as usize).min(self.shared.len());
            self.shared[at as usize..to].fill(true);
            self.grew = true;
        }
    }

    pub(super) fn fence(&mut self, order: Ordering) {
        self.model.fence(self.actor, order);
        self.note(|_| format!("fence  {order:?}"));
    }

    pub(super) fn write_back(&mut self, at: u64, len: u64) -> Result<(), String> {
        if at
            .checked_add(len)
            .is_none_or(|end| end > self.words.size())
        {
            return Err(format!(
                "a write-back of {len} bytes at offset {at:#x} is outside a memory of {} bytes",
                self.words.size()
            ));
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) {}

    // ---- Waiting ----

    /// The running thread waits for another's store. Outside threads nobody can make one.
    pub(super) fn wait(&mut self) -> Go {
        let Some(current) = self.running else {
            let spins = self.step();
            if let Err(why) = spins {
                self.fail(why);
            }
            return Go::On;
        };
        if self.die() {
            return Go::Never;
        }
        let thread = &mut self.threads[current];
        thread.status = Status::Waiting;
        thread.since = self.steps;
        thread.force = None;
        self.running = None;
        self.interrupted = None;
        Go::Suspend
    }

    /// The running thread waited and goes on: one of its words has news, and it will see that.
    pub(super) fn wake(&mut self) {
        let Some(thread) = self.running else { return };
        if self.threads[thread].status != Status::Waiting {
            return;
        }
        let news = |s: &&Seen| self.model.news(s.word, s.stamp, s.value);
        let fresh: Vec<Seen> = self.threads[thread]
            .seen
            .iter()
            .filter(news)
            .copied()
            .collect();
        let codes: Vec<u16> = (0..fresh.len() as u16).collect();
        let force = match self
            .choices
            .choose(Choice::Any, if codes.is_empty() { &[0] } else { &codes })
        {
            Ok(index) => fresh.get(index).map(|s| (s.word, s.stamp)),
            Err(_) => {
                self.diverged();
                None
            }
        };
        let thread = &mut self.threads[thread];
        thread.status = Status::Ready;
        thread.force = force;
        thread.seen.clear();
    }

    fn note(&mut self, line: impl FnOnce(u32) -> String) {
        // Rounds in which everybody looks in vain are all alike.
        if self.newest_only && self.patience > self.threads.len() as u32 {
            return;
        }
        let Some(trace) = &mut self.trace else { return };
        let name = match self.actor {
            actor if actor < self.threads.len() => self.threads[actor].plan.name.as_str(),
            actor if actor == self.threads.len() => "main",
            _ => "manager",
        };
        trace.push(name, line(self.steps));
    }
}
