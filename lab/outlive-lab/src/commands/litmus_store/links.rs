//! Emulated links to memory servers, with crash points at their ends.

use super::crashes::Crashes;
use fastrand::Rng;
use outlive_store::servers::{Connector, MappedServer};
use outlive_store::verbs::{
    Batch, Completed, Connection, Emulated, Link, Region, ServerId, VerbKind,
};
use std::cell::{Cell, RefCell};
use std::future::{Ready, ready};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The sleep between two polls of a completion. Without it, each process would occupy a processor
/// while it waits, and few transactions would be concurrent.
const NAP: Duration = Duration::from_micros(10);

/// Makes the sleeps of this thread end when they should.
pub fn sleep_exactly() {
    // Without it, sleeps take 50 µs longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Makes connections over emulated links, at whose ends the process dies at crash points.
#[derive(Debug)]
pub struct Links {
    link: Link,
    spread: Duration,
    crashes: Rc<Crashes>,
    seed: Cell<u64>,
}

impl Links {
    /// Returns links like `link`. `spread` is the longest time between two verbs of a batch.
    pub fn new(link: Link, spread: Duration, crashes: Rc<Crashes>, seed: u64) -> Self {
        Self {
            link,
            spread,
            crashes,
            seed: Cell::new(seed),
        }
    }
}

impl Connector for Links {
    type Connection = Patient;

    fn connect(&self, server: MappedServer) -> Patient {
        self.seed.set(self.seed.get().wrapping_add(1));
        let end = End {
            server,
            spread: self.spread,
            crashes: Rc::clone(&self.crashes),
            random: RefCell::new(Rng::with_seed(self.seed.get())),
        };
        Patient(Emulated::new(end, self.link, self.seed.get()))
    }
}

/// The end of a link, where verbs take effect. If the process dies, the requests that are under way
/// on its links do not arrive.
#[derive(Debug)]
pub struct End {
    server: MappedServer,
    spread: Duration,
    crashes: Rc<Crashes>,
    random: RefCell<Rng>,
}

impl End {
    /// Executes the first `count` verbs of a batch, one after another.
    fn execute(&self, mut batch: Batch, count: usize) -> Completed {
        for index in 0..count {
            if index > 0 {
                self.wait();
            }
            let verb = batch.verbs()[index];
            let mut single = Batch::new();
            match verb.kind {
                VerbKind::Read => {
                    single.read(verb.at, verb.words() as usize);
                }
                VerbKind::Write => single.write(verb.at, &batch.buffer()[verb.local()]),
                VerbKind::CompareSwap { expected, new } => {
                    single.compare_swap(verb.at, expected, new);
                }
                VerbKind::FetchAdd { add } => {
                    single.fetch_add(verb.at, add);
                }
            }
            let Completed {
                batch: single,
                result,
            } = self.server.post(single).into_inner();
            if result.is_err() {
                return Completed { batch, result };
            }
            batch.parts().1[verb.local()].copy_from_slice(single.buffer());
        }
        Completed {
            batch,
            result: Ok(()),
        }
    }

    /// Waits for a random time between two verbs.
    fn wait(&self) {
        let longest = self.spread.as_nanos() as u64;
        let time = Duration::from_nanos(self.random.borrow_mut().u64(0..=longest));
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::yield_now();
        }
    }
}

impl Connection for End {
    type Completion = Ready<Completed>;

    fn server(&self) -> ServerId {
        self.server.server()
    }

    fn region(&self) -> Region {
        self.server.region()
    }

    fn post(&self, batch: Batch) -> Self::Completion {
        if let Some(index) = self.crashes.choose(&batch) {
            let _ = self.execute(batch, index);
            self.crashes.die();
        }
        if self.spread.is_zero() {
            return self.server.post(batch);
        }
        let count = batch.len();
        ready(self.execute(batch, count))
    }
}

/// A link whose poster sleeps while it waits.
#[derive(Debug)]
pub struct Patient(Emulated<End>);

impl Connection for Patient {
    type Completion = Sleeping;

    fn server(&self) -> ServerId {
        self.0.server()
    }

    fn region(&self) -> Region {
        self.0.region()
    }

    fn post(&self, batch: Batch) -> Sleeping {
        Sleeping(self.0.post(batch))
    }
}

/// The completion of a batch, whose polls sleep until it is ready.
#[derive(Debug)]
pub struct Sleeping(<Emulated<End> as Connection>::Completion);

impl Future for Sleeping {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        let polled = Pin::new(&mut self.0).poll(context);
        if polled.is_pending() {
            std::thread::sleep(NAP);
        }
        polled
    }
}
