//! Deaths, and the hooks that they cause.

use super::choices::Choice;
use super::state::{State, Status};
use outlive_memory::CrashPoint;

impl State {
    /// Decides whether the running thread's host dies here.
    pub(super) fn die(&mut self) -> bool {
        let Some(current) = self.running else {
            return false;
        };
        let thread = &mut self.threads[current];
        let fresh = std::mem::take(&mut thread.fresh);
        let may = thread.plan.mortal
            && (fresh || self.limits.everywhere)
            && self.deaths < self.limits.deaths
            && !std::thread::panicking();
        if !may {
            self.choices.pass();
            return false;
        }
        match self.choices.choose(Choice::Death, &[0, 1]) {
            Ok(0) => false,
            Ok(_) => {
                self.note(|_| "dies".to_owned());
                self.kill(self.threads[current].plan.host);
                self.running = None;
                self.interrupted = None;
                true
            }
            Err(_) => {
                self.diverged();
                false
            }
        }
    }

    fn kill(&mut self, host: usize) {
        self.deaths += 1;
        self.dead[host] = true;
        for thread in self.threads.iter_mut().filter(|t| t.plan.host == host) {
            if thread.status != Status::Finished {
                thread.status = Status::Dead;
                if let Some((operation, index)) = thread.last_point {
                    self.coverage.died_after(operation, index);
                }
            }
        }
        self.lose_caches(host);
        let told = self.hooked || self.threads.iter().any(|t| t.status == Status::Blocked);
        self.raising[host] = told;
    }

    /// Reports the death of `host`: its hook runs next.
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
        self.note(|_| "the death is reported".to_owned());
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

    /// Kills a host all of whose threads have ended, between two steps of others.
    pub(super) fn die_late(&mut self, host: usize) {
        let (running, actor) = (self.running.take(), self.actor);
        self.actor = self.main();
        let name = self.threads[host].plan.name.clone();
        self.note(|_| format!("the host of {name}, which has ended, dies"));
        self.kill(host);
        (self.running, self.actor) = (running, actor);
    }

    /// Returns the hosts that may still die although their threads have ended, where the moment of
    /// a death matters.
    pub(super) fn hosts_that_may_die(&self) -> impl Iterator<Item = usize> + use<> {
        let of = |host: usize| self.threads.iter().filter(move |t| t.plan.host == host);
        let may = |host: usize| {
            !self.dead[host]
                && of(host).any(|t| t.plan.mortal)
                && of(host).all(|t| t.status == Status::Finished)
        };
        let any = self.model.deaths_are_timed() && self.deaths < self.limits.deaths;
        let hosts: Vec<usize> = (0..self.dead.len())
            .filter(|&host| any && may(host))
            .collect();
        hosts.into_iter()
    }

    /// Decides which part of the host's caches is lost.
    fn lose_caches(&mut self, host: usize) {
        let images = self.model.images(host);
        let codes: Vec<u16> = (0..images).collect();
        match self.choices.choose(Choice::Any, &codes) {
            Ok(image) => {
                let lost = self.model.lose(host, image as u16);
                for line in lost {
                    self.note(|_| line);
                }
            }
            Err(_) => {
                self.diverged();
            }
        }
    }

    /// Decides whether the running thread's host dies now that it could continue, where the moment
    /// of a death matters.
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
}
