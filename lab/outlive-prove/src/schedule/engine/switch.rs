//! The choice of the thread that runs next.

use super::choices::{Choice, Diverged};
use super::state::{Go, Seen, State, Status, Target};

/// Codes on offer at a switch: the end, then threads from 1, then raises, then deaths.
const END: u16 = 0;
const RAISE: u16 = 100;
const DIE: u16 = 200;
/// How often each waiting thread is woken without a new value before the execution is stuck.
const PATIENCE: u32 = 300;

impl State {
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

    /// Decides what runs next. `current`, if any, could continue.
    fn pick(&mut self, current: Option<usize>) -> Target {
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
            if codes.is_empty() {
                codes.push(END);
            }
            codes.extend(self.hosts_that_may_die().map(|host| DIE + host as u16));
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
            END => Target::End,
            DIE.. => Target::Die(usize::from(code - DIE)),
            RAISE.. => Target::Raise(usize::from(code - RAISE)),
            _ => Target::Thread(usize::from(code) - 1),
        }
    }

    pub(super) fn diverged(&mut self) -> Target {
        self.fail(Diverged.to_string());
        Target::End
    }

    fn somebody_waits(&self) -> Option<usize> {
        let count = self.threads.len();
        (1..=count)
            .map(|i| (self.last + i) % count)
            .find(|&t| self.threads[t].status == Status::Waiting)
    }

    /// Wakes a thread for which there is no new value, in case it waits by counting.
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
                "no thread can continue: {names} wait for stores that no thread will make"
            ));
        }
        self.threads[thread].status = Status::Ready;
        self.threads[thread].seen.clear();
        self.newest_only = true;
    }

    /// Decides at a point that others may see whether the running thread continues.
    pub(super) fn switch(&mut self) -> Go {
        let Some(current) = self.running else {
            return Go::On;
        };
        if std::mem::take(&mut self.chosen) && !self.limits.everywhere {
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

    /// Decides what runs after an event. The thread that it interrupted could continue.
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

    /// Makes the running thread wait for another's store. Outside threads no store can come.
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

    /// Ends the running thread's wait: one of its words has a new value, which it will see.
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
}
