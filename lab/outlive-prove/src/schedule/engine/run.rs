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

/// Enough for formatting a panic's message in a build without optimisation.
const STACK: usize = 256 * 1024;

thread_local! {
    /// The execution that runs on this operating-system thread. Never borrowed across a switch.
    static STATE: RefCell<Option<Box<State>>> = const { RefCell::new(None) };
    /// The yielder of the coroutine that runs, null outside coroutines.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// Which execution this is, counted over the life of the process.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// What the panic that is on its way said, and where.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// What a thread, a hook, the preparation or the check does.
pub(crate) type Body = Box<dyn Fn()>;

/// All that an execution runs.
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

    /// Takes every access as one that others may see.
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

    /// Whether another word has turned out to be shared since the last call.
    pub(crate) fn learnt(&mut self) -> bool {
        with(|s| std::mem::take(&mut s.grew))
    }

    pub(crate) fn coverage(&self) -> Coverage {
        with(|s| s.coverage.clone())
    }

    /// How many images of the memory deaths left, and whether all that could be were tried.
    pub(crate) fn images(&self) -> (u64, bool) {
        with(|s| s.model.images_seen())
    }

    /// Runs one execution, with its trace if asked for.
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
        // The yielder of a coroutine is where it was when it first ran; each sets it when it goes on.
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
    // SAFETY: the closure holds a raw pointer to a body of the runner's job. The coroutine is resumed by
    // `Runner::resume` only and is given up before `run_threads` returns, during which the runner, and
    // the job in it, is borrowed.
    unsafe {
        Coroutine::with_stack_unchecked(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            let ended = catch_unwind(AssertUnwindSafe(|| (*body)()));
            finish(ended);
        })
    }
}

/// The end of a thread, as far as it came by itself.
fn finish(ended: Result<(), Box<dyn Any + Send>>) {
    match ended {
        Ok(()) => at_point(State::arrive_at_end, State::finish),
        Err(panic) => {
            let said = said(panic);
            with(|s| s.fail(said));
        }
    }
}

/// Gives up a coroutine, wherever it stands, and takes its stack back.
fn abandon(mut coroutine: Thread) -> DefaultStack {
    if coroutine.started() && !coroutine.done() {
        // The frames of this module hold no values that have to be dropped, and a scenario's frames are
        // forgotten, as those of a killed process are.
        // SAFETY: forgetting is safe for all values but those that lend the stack itself to other threads
        // until they are dropped (scoped threads); `Scenario::thread` forbids them across an access.
        unsafe { coroutine.force_reset() };
    } else if !coroutine.started() {
        coroutine.force_unwind();
    }
    coroutine.into_stack()
}

/// Runs what is not a thread of the scenario.
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
    // SAFETY: a yielder lives as long as its coroutine, and the pointer is that of the coroutine that
    // runs: set when it started and, below, whenever it goes on.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

/// Hands over to the loop for good.
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

/// Stops before something that others may see, and then does it.
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

/// The number of the execution that runs on this thread, if any.
pub(crate) fn number() -> u64 {
    NUMBER.get()
}

/// Whether this operating-system thread runs an execution.
pub(crate) fn in_execution() -> bool {
    STATE
        .try_with(|state| state.try_borrow().is_ok_and(|state| state.is_some()))
        .unwrap_or(false)
}

/// Panics inside executions are outcomes: keeps the message of one; `false` if this thread runs none.
pub(crate) fn hears(info: &PanicHookInfo<'_>) -> bool {
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
