//! The part of a run's report on its workers: those that came and went, with the reasons, and those
//! that were suspected.

use crate::failure::Failure;
use crate::output::To;
use core::fmt;
use outlive_run::driver::{Options, Turns};
use serde::Serialize;

/// The numbers of workers that started and stopped working, for JSON.
#[derive(Serialize)]
pub struct Workers {
    /// The limits for the number of workers; null if it did not change with the ready tasks.
    elastic: Option<Elastic>,
    /// The time in seconds for which a heartbeat could stand still, if `--freeze` was given.
    freeze: Option<f64>,
    /// The numbers of workers that came.
    came: Triggers,
    /// The numbers of workers that went, dead ones not included.
    went: Triggers,
    /// The workers whose heartbeats stood still while those of others advanced.
    suspected: Vec<Noted>,
    /// The time in seconds that a worker may take for one task, if `--deadline` was given.
    deadline: Option<f64>,
    /// The workers that took longer for a task.
    overdue: Vec<Noted>,
}

#[derive(Serialize)]
struct Elastic {
    least: u32,
    most: u32,
    fewest_ready: f64,
    most_ready: f64,
    may_fail: f64,
}

/// The number of workers for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
struct Triggers {
    /// Because of the number of ready tasks.
    by_ready: u64,
    /// Because others had failed; no worker goes for this reason.
    by_failures: Option<u64>,
    /// Because of a request.
    by_request: u64,
}

#[derive(Serialize)]
struct Noted {
    host: u32,
    worker: u32,
    times: u64,
}

impl Workers {
    pub fn of(options: &Options, turns: &Turns) -> Self {
        let elastic = options.elastic.map(|elastic| Elastic {
            least: elastic.least,
            most: elastic.most,
            fewest_ready: elastic.band.fewest,
            most_ready: elastic.band.most,
            may_fail: elastic.band.failed,
        });
        let each = options.processes * options.threads;
        let noted = |of: &[(u32, u64)]| {
            let all = of.iter().map(|(worker, times)| Noted {
                host: worker / each,
                worker: *worker,
                times: *times,
            });
            all.collect()
        };
        Self {
            elastic,
            freeze: options.freeze.map(|freeze| freeze.as_secs_f64()),
            came: Triggers {
                by_ready: turns.came_for_tasks,
                by_failures: Some(turns.came_for_failures),
                by_request: turns.came_on_request,
            },
            went: Triggers {
                by_ready: turns.went_for_tasks,
                by_failures: None,
                by_request: turns.went_on_request,
            },
            suspected: noted(&turns.suspected),
            deadline: options
                .deadline
                .map(|deadline| deadline.limit.as_secs_f64()),
            overdue: noted(&turns.overdue),
        }
    }

    /// Prints this part as text.
    pub fn tell(&self, to: To) -> Result<(), Failure> {
        let (came, went) = (self.came.named(true), self.went.named(false));
        if let Some(elastic) = &self.elastic {
            to.line(format_args!(
                "{} to {} workers: {came}; {went}",
                elastic.least, elastic.most
            ))?;
        } else if self.came.by_request + self.went.by_request > 0 {
            // Replacements by spares are reported with the failures.
            to.line(format_args!("the pool was resized: {came}; {went}"))?;
        }
        for suspected in &self.suspected {
            to.line(format_args!(
                "{suspected} was suspected {}: its heartbeat stood still while those of others \
                 advanced",
                suspected.times()
            ))?;
        }
        for overdue in &self.overdue {
            to.line(format_args!(
                "{overdue} was in one task for longer than the deadline, {}",
                overdue.times()
            ))?;
        }
        Ok(())
    }
}

impl Noted {
    /// Returns how often, in words.
    fn times(&self) -> String {
        match self.times {
            1 => "once".into(),
            times => format!("{times} times"),
        }
    }
}

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} of host {}", self.worker, self.host)
    }
}

impl Triggers {
    /// Describes the numbers in words.
    fn named(self, came: bool) -> String {
        let (verb, by_ready) = match came {
            true => ("came", "because each had too many ready tasks"),
            false => ("went", "because each had too few ready tasks"),
        };
        let why = [
            (self.by_ready, by_ready),
            (self.by_failures.unwrap_or(0), "because others had failed"),
            (self.by_request, "on request"),
        ];
        let parts: Vec<String> = { why.iter() }
            .filter(|(number, _)| *number > 0)
            .map(|(number, why)| format!("{number} {verb} {why}"))
            .collect();
        match parts.is_empty() {
            true => format!("none {verb}"),
            false => parts.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_said_in_words() {
        let none = Triggers {
            by_ready: 0,
            by_failures: None,
            by_request: 0,
        };
        assert_eq!(none.named(true), "none came");
        let some = Triggers {
            by_ready: 2,
            by_failures: Some(1),
            ..none
        };
        assert_eq!(
            some.named(true),
            "2 came because each had too many ready tasks, 1 came because others had failed"
        );
        let asked = Triggers {
            by_request: 3,
            ..none
        };
        assert_eq!(asked.named(false), "3 went on request");
    }
}
