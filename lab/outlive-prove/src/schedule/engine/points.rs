//! Points and accesses: where a thread may be interrupted or die, and its action when it continues.

use super::access::{Access, Act, Answer};
use super::choices::Choice;
use super::state::{Go, Seen, State};
use crate::schedule::trace::place;
use outlive_memory::Ordering;

impl State {
    fn arrive(&mut self, seen_by_others: bool) -> Go {
        if self.running.is_none() {
            return Go::On;
        }
        if !self.model.deaths_are_timed() && self.die() {
            return Go::Never;
        }
        let point = seen_by_others || self.everything_shared || self.may_die_later();
        if point && !std::thread::panicking() {
            self.switch()
        } else {
            self.choices.pass();
            Go::On
        }
    }

    /// Arrives after the last action of a thread: its result is known, but it may still die.
    pub(super) fn arrive_at_end(&mut self) -> Go {
        self.acted();
        self.arrive(false)
    }

    /// Returns whether this is a point for others although they cannot see its action: where the
    /// moment of a death matters, others may act between the last action they saw and the death.
    fn may_die_later(&self) -> bool {
        let mortal = |current: usize| self.threads[current].plan.mortal;
        self.model.deaths_are_timed()
            && self.deaths < self.limits.deaths
            && self.running.is_some_and(mortal)
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

    pub(super) fn arrive_at_drain(&mut self) -> Go {
        self.arrive(self.model.drains(self.actor))
    }

    pub(super) fn arrive_outside(&mut self) -> Go {
        self.arrive(true)
    }

    pub(super) fn outside(&mut self) {
        self.acted();
    }

    /// Marks that the running thread did something that its death could leave behind.
    fn acted(&mut self) {
        if let Some(current) = self.running {
            self.threads[current].fresh = true;
        }
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        // Never a second panic while one is in progress.
        if self.steps > self.limits.steps && !std::thread::panicking() {
            return Err(format!(
                "no end after {} accesses: does a thread loop forever?",
                self.limits.steps
            ));
        }
        Ok(())
    }

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
        if answer.swapped || self.model.deaths_are_timed() {
            self.acted();
        }
        if answer.swapped {
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
        self.step()?;
        self.model.write_back(self.actor, at, len);
        self.acted();
        self.note(|step| format!("{step:4}  [{at:#06x}] write back {len} bytes"));
        Ok(())
    }

    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.step()?;
        self.model.drain(self.actor);
        self.acted();
        self.note(|step| format!("{step:4}  drain"));
        Ok(())
    }
}
