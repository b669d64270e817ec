//! The coroutines of an execution and the loop that resumes them.

use super::choices::{Choices, Diverged};
use super::model::Model;
use super::state::{Failed, Go, Limits, Ran, State, Target, ThreadPlan};
use crate::schedule::coverage::Coverage;
use crate::schedule::trace::Trace;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// In bytes; enough to format a panic's message in a build without optimisation.
const STACK: usize = 256 * 1024;

thread_local! {
    /// The execution that runs on this operating-system thread. Never borrowed across a switch.
    static STATE: RefCell<Option<Box<State>>> = const { RefCell::new(None) };
    /// The yielder of the coroutine that runs, null outside coroutines.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// The number of this execution, counted over the life of the process.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// The message and place of the panic in progress.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The code of a thread, a hook, the preparation or the check.
pub(crate) type Body = Box<dyn Fn()>;

/// The parts of an execution.
pub(crate) struct Job {
    pub(crate) plans: Vec<ThreadPlan>,
    pub(crate) size: u64,
    pub(crate) prepare: Body,
    pub(crate) threads: Vec<Body>,
    /// Called with the dead host's number.
    pub(crate) on_death: Option<Box<dyn Fn(usize)>>,
    pub(crate) check: Box<dyn Fn(&Ran)>,
}

/// Runs executions of one job, one after the other.
pub(crate) struct Runner {
    job: Job,
    stacks: Vec<DefaultStack>,
}

type Thread = Coroutine<(), (), (), DefaultStack>;

impl Runner {
    /// Makes this operating-system thread the one that runs the job.
    pub(crate) fn new(job: Job, model: Model, limits: Limits) -> Self {
        crate::panics::listen();
        let hooked = job.on_death.is_some();
        let state = State::new(job.plans.clone(), job.size, model, limits, hooked);
        STATE.set(Some(Box::new(state)));
        Self {
            job,
            stacks: Vec::new(),
        }
    }

    pub(crate) fn set_choices(&mut self, choices: Choices) {
        with(|s| s.choices = choices);
    }

    /// Treats every access as visible to other threads.
    pub(crate) fn share_everything(&mut self) {
        with(|s| s.everything_shared = true);
    }

    pub(crate) fn advance(&mut self) -> Result<bool, Diverged> {
        with(|s| s.choices.advance())
    }

    pub(crate) fn points(&self) -> u32 {
        with(|s| s.choices.points())
    }

    pub(crate) fn taken(&self) -> Vec<(u32, u16)> {
        with(|s| s.choices.taken().to_vec())
    }

    pub(crate) fn deaths(&self) -> u32 {
        with(|s| s.deaths)
    }

    /// Returns whether another word has turned out to be shared since the last call.
    pub(crate) fn learnt(&mut self) -> bool {
        with(|s| std::mem::take(&mut s.grew))
    }

    pub(crate) fn coverage(&self) -> Coverage {
        with(|s| s.coverage.clone())
    }

    /// Returns the number of images left by deaths, and whether all possible ones were tried.
    pub(crate) fn images(&self) -> (u64, bool) {
        with(|s| s.model.images_seen())
    }

    /// Runs one execution, with its trace if `traced`.
    pub(crate) fn run(&mut self, traced: bool) -> (Ran, Option<Trace>) {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
        with(|s| {
            s.clear();
            s.trace = traced.then(Trace::default);
        });
        alone(&self.job.prepare);
        if !failed() {
            with(State::start_threads);
            self.run_threads();
        }
        if !failed() {
            with(State::start_check);
            let ran = with(|s| s.ran());
            alone(|| (self.job.check)(&ran));
        }
        with(|s| (s.ran(), s.trace.take()))
    }

    fn run_threads(&mut self) {
        let mut coroutines: Vec<Option<Thread>> = self.job.threads.iter().map(|_| None).collect();
        let mut next = with(State::pick_next);
        while !failed() {
            match next {
                Target::End => break,
                Target::Thread(thread) => self.resume(&mut coroutines, thread),
                Target::Stuck(thread) => {
                    with(|s| s.lose_patience(thread));
                    if !failed() {
                        self.resume(&mut coroutines, thread);
                    }
                }
                Target::Raise(host) => {
                    with(|s| s.start_raise(host));
                    if let Some(on_death) = &self.job.on_death {
                        alone(|| on_death(host));
                    }
                    with(State::end_raise);
                    with(|s| s.next = Some(s.pick_after_event()));
                }
                Target::Die(host) => with(|s| {
                    s.die_late(host);
                    s.next = Some(s.pick_after_event());
                }),
            }
            if failed() {
                break;
            }
            next = with(|s| s.next.take().unwrap_or_else(|| s.pick_next()));
        }
        self.stacks
            .extend(coroutines.into_iter().flatten().map(abandon));
    }

    fn resume(&mut self, coroutines: &mut [Option<Thread>], thread: usize) {
        with(|s| s.set_running(thread));
        let coroutine = coroutines[thread].get_or_insert_with(|| {
            let stack = self.stacks.pop().unwrap_or_else(|| {
                DefaultStack::new(STACK).expect("memory for the stack of a thread")
            });
            spawn(stack, &self.job.threads[thread])
        });
        // The yielder of a coroutine is where it was when it first ran; each sets it when it
        // continues.
        coroutine.resume(());
        YIELDER.set(std::ptr::null());
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        STATE.set(None);
    }
}

fn spawn(stack: DefaultStack, body: &Body) -> Thread {
    let body: *const Body = body;
    // SAFETY: the closure holds a raw pointer to a body of the runner's job. The coroutine is
    // resumed by `Runner::resume` only and is given up before `run_threads` returns, during which
    // the runner, and the job in it, is borrowed.
    unsafe {
        Coroutine::with_stack_unchecked(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            let ended = catch_unwind(AssertUnwindSafe(|| (*body)()));
            finish(ended);
        })
    }
}

/// Ends a thread that returned or panicked.
fn finish(ended: Result<(), Box<dyn Any + Send>>) {
    match ended {
        Ok(()) => at_point(State::arrive_at_end, State::finish),
        Err(panic) => {
            let said = said(panic);
            with(|s| s.fail(said));
        }
    }
}

/// Gives up a coroutine, wherever it is, and returns its stack.
fn abandon(mut coroutine: Thread) -> DefaultStack {
    if coroutine.started() && !coroutine.done() {
        // The frames of this module hold no values that have to be dropped, and a scenario's frames
        // are forgotten, as those of a killed process are. SAFETY: forgetting is safe for all
        // values but those that lend the stack itself to other threads until they are dropped
        // (scoped threads); `Scenario::thread` forbids them across an access.
        unsafe { coroutine.force_reset() };
    } else if !coroutine.started() {
        coroutine.force_unwind();
    }
    coroutine.into_stack()
}

/// Runs code that is not a thread of the scenario.
fn alone(body: impl Fn()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        let said = said(panic);
        with(|s| s.fail(said));
    }
}

fn failed() -> bool {
    with(|s| s.failed.is_some())
}

fn suspend() {
    let yielder = YIELDER.get();
    assert!(
        !yielder.is_null(),
        "only a thread of a scenario can be suspended"
    );
    // SAFETY: a yielder lives as long as its coroutine, and the pointer is that of the coroutine
    // that runs: set when it started and, below, whenever it goes on.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

/// Returns to the loop for good.
fn never() -> ! {
    loop {
        suspend();
    }
}

pub(super) fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(|state| {
        f(state.as_deref_mut().expect(
            "this memory exists inside the threads, hooks, preparation and check of a scenario only",
        ))
    })
}

/// Stops before an action that other threads may see, and then performs it.
pub(super) fn at_point<R>(
    arrive: impl FnOnce(&mut State) -> Go,
    act: impl FnOnce(&mut State) -> R,
) -> R {
    match with(arrive) {
        Go::On => {}
        Go::Suspend => suspend(),
        Go::Never => never(),
    }
    if with(State::die_here) {
        never();
    }
    with(act)
}

pub(super) fn spin() {
    match with(State::wait) {
        Go::On => {
            if let Some(Failed(why)) = with(|s| s.failed.clone()) {
                panic!("{why}");
            }
        }
        Go::Suspend => {
            suspend();
            with(State::wake);
        }
        Go::Never => never(),
    }
}

/// Returns the number of the execution that runs on this thread, if there is one.
pub(crate) fn number() -> u64 {
    NUMBER.get()
}

/// Returns whether this operating-system thread runs an execution.
pub(crate) fn in_execution() -> bool {
    STATE
        .try_with(|state| state.try_borrow().is_ok_and(|state| state.is_some()))
        .unwrap_or(false)
}

/// Keeps the message of a panic inside an execution, since it is an outcome; returns `false` if
/// this thread runs no execution.
pub(crate) fn capture_panic(info: &PanicHookInfo<'_>) -> bool {
    let is_outcome = in_execution();
    if is_outcome {
        SAID.set(Some(info.to_string()));
    }
    is_outcome
}

fn said(panic: Box<dyn Any + Send>) -> String {
    drop(panic);
    SAID.take()
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
