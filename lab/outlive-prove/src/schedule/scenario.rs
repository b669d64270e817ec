//! A scenario: a memory, threads, deaths and a check.

use super::bounds::Bounds;
use super::engine::choices::{Choices, read_schedule, write_schedule};
use super::engine::{Job, Ran, Runner, ThreadPlan};
use super::handle::{Plan, Proving, Scheduled};
use super::report::{Failure, ScheduleReport};
use crate::explore::CacheRules;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

type Body<M, R> = Arc<dyn Fn(M) -> R + Send + Sync>;
type OnDeath<M> = Arc<dyn Fn(M, usize) + Send + Sync>;
type Check<M, R> = Arc<dyn Fn(M, &End<R>) + Send + Sync>;

struct Thread<M, R> {
    plan: ThreadPlan,
    body: Body<M, R>,
}

/// Threads over one memory, and the conditions that must hold when all have ended or died.
///
/// The closures run once per execution, perhaps a million times, and must be deterministic: no
/// clocks, no random numbers, no state kept between executions (a [`Ghost`](super::Ghost) is fresh
/// in each). They panic to report a fault. `R` is the result type of the threads.
///
/// ```
/// use outlive_memory::{Memory, Offset, Ordering::*};
/// use outlive_prove::schedule::{self, Bounds};
///
/// const DATA: Offset = Offset::new(0);
/// const FLAG: Offset = Offset::new(64);
/// let report = schedule::scenario("message.passing")
///     .thread("writer", |m| {
///         m.store(DATA, 7u64, Relaxed);
///         m.store(FLAG, 1u64, Release);
///     })
///     .thread("reader", |m| {
///         if m.load::<u64>(FLAG, Acquire) == 1 {
///             assert_eq!(m.load::<u64>(DATA, Relaxed), 7);
///         }
///     })
///     .explore(&Bounds::exhaustive());
/// report.assert_proven();
/// ```
pub struct Scenario<M = Scheduled, R = ()> {
    name: String,
    size: u64,
    prepare: Body<M, ()>,
    threads: Vec<Thread<M, R>>,
    on_death: Option<OnDeath<M>>,
    check: Check<M, R>,
    rules: CacheRules,
}

/// The end of an execution.
#[derive(Debug)]
pub struct End<R> {
    results: Vec<Option<R>>,
    died: Vec<bool>,
}

impl<R> End<R> {
    /// Returns the result of each thread, in the order in which the threads were added; `None` for
    /// one that died first or never began. A host may also die after its thread has returned.
    pub fn results(&self) -> &[Option<R>] {
        &self.results
    }

    /// Returns the result of the thread, if it returned.
    pub fn result(&self, thread: usize) -> Option<&R> {
        self.results[thread].as_ref()
    }

    /// Returns whether the thread's host died, before or after the thread returned.
    pub fn died(&self, thread: usize) -> bool {
        self.died[thread]
    }

    /// Returns the number of threads whose hosts died.
    pub fn deaths(&self) -> usize {
        self.died.iter().filter(|died| **died).count()
    }
}

impl<M: Proving, R: Send + 'static> Scenario<M, R> {
    /// Returns a scenario over 4 KiB of zeros, without threads.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            size: 4096,
            prepare: Arc::new(|_| {}),
            threads: Vec::new(),
            on_death: None,
            check: Arc::new(|_, _| {}),
            rules: CacheRules::default(),
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the size of the memory in bytes: a few KiB.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets the preparation, which runs before the threads start. It happens before all of them.
    pub fn prepare(mut self, prepare: impl Fn(M) + Send + Sync + 'static) -> Self {
        self.prepare = Arc::new(prepare);
        self
    }

    /// Adds a thread that does not die, on a host of its own.
    ///
    /// Its frames may be forgotten at any access when an execution is given up, so it lends nothing
    /// on its stack to other operating-system threads and holds no lock of the standard library
    /// across an access.
    pub fn thread(self, name: &str, body: impl Fn(M) -> R + Send + Sync + 'static) -> Self {
        self.add(name, false, false, body)
    }

    /// Adds a thread that may die at any access.
    pub fn mortal(self, name: &str, body: impl Fn(M) -> R + Send + Sync + 'static) -> Self {
        self.add(name, true, false, body)
    }

    /// Adds a recoverer: a thread that begins only after a death has been reported (see
    /// [`on_death`](Self::on_death)) and knows of it. It does not run if no host dies.
    pub fn after_death(self, name: &str, body: impl Fn(M) -> R + Send + Sync + 'static) -> Self {
        self.add(name, false, true, body)
    }

    /// Does what [`after_death`](Self::after_death) does, but the thread may die in turn.
    pub fn mortal_after_death(
        self,
        name: &str,
        body: impl Fn(M) -> R + Send + Sync + 'static,
    ) -> Self {
        self.add(name, true, true, body)
    }

    fn add(
        mut self,
        name: &str,
        mortal: bool,
        after_death: bool,
        body: impl Fn(M) -> R + Send + Sync + 'static,
    ) -> Self {
        let host = self.threads.len();
        let plan = ThreadPlan {
            name: name.to_owned(),
            host,
            mortal,
            after_death,
        };
        self.threads.push(Thread {
            plan,
            body: Arc::new(body),
        });
        self
    }

    /// Puts the thread added last on the host `host`, whose threads die together. A thread's own
    /// host has the thread's number.
    ///
    /// # Panics
    /// If there is no thread, or no thread `host` before it.
    pub fn on_host(mut self, host: usize) -> Self {
        let count = self.threads.len();
        assert!(
            host < count,
            "host {host} is the number of a thread already added"
        );
        self.threads[count - 1].plan.host = host;
        self
    }

    /// Sets the fabric manager's reaction to a death, such as raising a generation: one step at any
    /// time after the death. It is called with the number of the dead host, that of its first
    /// thread, and happens after everything that the dead threads did.
    pub fn on_death(mut self, on_death: impl Fn(M, usize) + Send + Sync + 'static) -> Self {
        self.on_death = Some(Arc::new(on_death));
        self
    }

    /// Sets the check, which runs when all threads have ended or died and all deaths have been
    /// reported. It may recover the remaining state; it sees every store.
    pub fn check(mut self, check: impl Fn(M, &End<R>) + Send + Sync + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// Sets the rules of the caches that die, for [`Exploring`](crate::explore::Exploring) memory.
    pub fn caches(mut self, rules: CacheRules) -> Self {
        self.rules = rules;
        self
    }

    /// Tries every execution within the bounds, until one fails.
    pub fn explore(&self, bounds: &Bounds) -> ScheduleReport {
        self.apart(bounds, |mut runner| {
            let mut report = self.report();
            let started = Instant::now();
            if bounds.is_unreduced() {
                runner.share_everything();
            }
            while report.executions < bounds.budget() {
                self.once(&mut runner, &mut report, None);
                if !report.passed() {
                    break;
                }
                if runner.learnt() {
                    runner.set_choices(Choices::tree());
                    continue;
                }
                match runner.advance() {
                    Ok(true) => {}
                    Ok(false) => {
                        report.complete = true;
                        break;
                    }
                    Err(diverged) => {
                        report.failures.push(Failure {
                            message: diverged.to_string(),
                            schedule: write_schedule(&runner.taken()),
                            seed: None,
                            trace: String::new(),
                        });
                        break;
                    }
                }
            }
            report.seconds = started.elapsed().as_secs_f64();
            sum_up(&runner, &mut report);
            report
        })
    }

    /// Draws `executions` executions within the bounds at random, from `seed` on, until one fails.
    pub fn sample(&self, bounds: &Bounds, seed: u64, executions: u64) -> ScheduleReport {
        self.apart(bounds, |mut runner| {
            let mut report = self.report();
            report.seed = Some(seed);
            let started = Instant::now();
            for seed in seed..seed.saturating_add(executions) {
                runner.set_choices(Choices::random(seed));
                self.once(&mut runner, &mut report, Some(seed));
                if !report.passed() {
                    break;
                }
            }
            report.seconds = started.elapsed().as_secs_f64();
            sum_up(&runner, &mut report);
            report
        })
    }

    /// Runs the one execution that `schedule` describes, as given in a failure's text, within the
    /// bounds in which it was found.
    ///
    /// # Panics
    /// If it is not a schedule.
    pub fn replay(&self, bounds: &Bounds, schedule: &str) -> ScheduleReport {
        let decisions =
            read_schedule(schedule).unwrap_or_else(|| panic!("no schedule: {schedule:?}"));
        self.apart(bounds, |mut runner| {
            let mut report = self.report();
            let started = Instant::now();
            runner.share_everything();
            runner.set_choices(Choices::replay(decisions));
            self.once(&mut runner, &mut report, None);
            report.seconds = started.elapsed().as_secs_f64();
            sum_up(&runner, &mut report);
            report
        })
    }

    fn report(&self) -> ScheduleReport {
        ScheduleReport {
            scenario: self.name.clone(),
            executions: 0,
            complete: false,
            seed: None,
            deepest: 0,
            deaths: 0,
            coverage: Default::default(),
            images: 0,
            failures: Vec::new(),
            seconds: 0.0,
        }
    }

    fn once(&self, runner: &mut Runner, report: &mut ScheduleReport, seed: Option<u64>) {
        let (ran, _) = runner.run(false);
        report.executions += 1;
        report.deepest = report.deepest.max(runner.points());
        report.deaths += u64::from(runner.deaths());
        let Some(failed) = ran.failed else { return };
        let taken = runner.taken();
        let schedule = write_schedule(&taken);
        runner.share_everything();
        runner.set_choices(Choices::replay(taken.into_iter().collect()));
        let (_, trace) = runner.run(true);
        let trace = trace.map(|trace| trace.to_string()).unwrap_or_default();
        report.failures.push(Failure {
            message: failed.0,
            schedule,
            seed,
            trace,
        });
    }

    /// Runs on an operating-system thread of its own: an execution may leave thread-local state,
    /// such as a panic that was abandoned half-way, which stays there.
    fn apart(
        &self,
        bounds: &Bounds,
        explore: impl FnOnce(Runner) -> ScheduleReport + Send,
    ) -> ScheduleReport {
        assert!(
            !self.threads.is_empty(),
            "the scenario {} has no threads",
            self.name
        );
        assert!(
            self.threads.len() <= 8,
            "the scenario {} has more than 8 threads",
            self.name
        );
        std::thread::scope(|scope| {
            let explorer = scope.spawn(|| {
                let world = M::world(&Plan {
                    // The threads, main, and a manager's hook per host.
                    actors: 2 * self.threads.len() + 1,
                    hosts: self.threads.iter().map(|thread| thread.plan.host).collect(),
                    size: self.size,
                    history: bounds.messages(),
                    rules: self.rules,
                });
                explore(Runner::new(self.job(), world.0, bounds.limits()))
            });
            explorer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn job(&self) -> Job {
        let results: Rc<RefCell<Vec<Option<R>>>> = Rc::default();
        let count = self.threads.len();
        let prepare = {
            let (results, prepare) = (Rc::clone(&results), Arc::clone(&self.prepare));
            move || {
                results.borrow_mut().clear();
                results.borrow_mut().resize_with(count, || None);
                prepare(M::handle());
            }
        };
        let threads = self.threads.iter().enumerate().map(|(i, thread)| {
            let (results, body) = (Rc::clone(&results), Arc::clone(&thread.body));
            Box::new(move || {
                let result = body(M::handle());
                results.borrow_mut()[i] = Some(result);
            }) as Box<dyn Fn()>
        });
        let threads = threads.collect();
        let on_death = self.on_death.clone().map(|on_death| {
            Box::new(move |host| on_death(M::handle(), host)) as Box<dyn Fn(usize)>
        });
        let check = Arc::clone(&self.check);
        let check = Box::new(move |ran: &Ran| {
            let results = results.take();
            check(
                M::handle(),
                &End {
                    results,
                    died: ran.died.clone(),
                },
            );
        });
        Job {
            plans: self
                .threads
                .iter()
                .map(|thread| thread.plan.clone())
                .collect(),
            size: self.size,
            prepare: Box::new(prepare),
            threads,
            on_death,
            check,
        }
    }
}

/// Adds the numbers that the runner has counted itself.
fn sum_up(runner: &Runner, report: &mut ScheduleReport) {
    report.coverage = runner.coverage();
    let (images, all) = runner.images();
    report.images = images;
    report.complete &= all;
}
