//! Mapped memory behind an emulated link.

use super::batch::WORD;
use super::{Batch, Completed, Connection, Region, ServerId, VerbKind};
use core::cell::RefCell;
use core::future::Ready;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Instant;

/// The properties of an emulated link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The time from posting an empty batch to its completion.
    pub round_trip: Duration,
    /// The maximum of the random delay of a request, which is uniformly distributed from zero.
    pub jitter: Duration,
    /// The bandwidth in each direction, in bits per second.
    pub bits_per_second: u64,
}

impl Default for Link {
    /// Returns a link with a round trip of 2 µs, 100 Gb/s and no jitter.
    fn default() -> Self {
        Self {
            round_trip: Duration::from_micros(2),
            jitter: Duration::ZERO,
            bits_per_second: 100_000_000_000,
        }
    }
}

impl Link {
    fn transfer(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.bits_per_second.max(1));
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }
}

/// The number of bytes of a verb's header on the wire.
const HEADER: u64 = 30;

/// A connection to mapped memory with the timing of a [`Link`].
///
/// The verbs of a batch take effect at the first moment after the arrival of their request at which
/// the thread posts to an emulated connection or polls the completion of one. The batch completes
/// half a round trip and the transfer time of the answer after the arrival, or later if an earlier
/// batch does. Reports label the measurements *emulated*: the processor waits in place of a network
/// card, and a delay of the polling thread delays the verbs. Dropping the last handle first waits
/// for the requests that are under way, and executes them.
#[derive(Debug)]
pub struct Emulated<C: Posts> {
    line: Rc<Line<C>>,
}

/// A connection that executes a batch when it is posted.
pub trait Posts: Connection<Completion = Ready<Completed>> + 'static {}

impl<C: Connection<Completion = Ready<Completed>> + 'static> Posts for C {}

#[derive(Debug)]
struct Line<C: Posts> {
    server: C,
    link: Link,
    flights: RefCell<Flights>,
}

/// A line whose requests take effect when the thread polls any completion, also of another line.
trait Progress {
    /// Executes the requests that have arrived at `now`, in order.
    fn progress(&self, now: Instant);
}

thread_local! {
    /// The lines of this thread.
    static LINES: RefCell<Vec<Weak<dyn Progress>>> = const { RefCell::new(Vec::new()) };
}

/// Executes the requests that have arrived at `now` on all lines of this thread.
fn progress_all(now: Instant) {
    // A line that can be upgraded has another handle, so dropping the upgraded one does not run the
    // destructor of the line, which waits.
    let lines = LINES.try_with(|lines| {
        let lines = lines.borrow();
        let lines = lines.iter().filter_map(Weak::upgrade);
        lines.for_each(|line| line.progress(now));
    });
    // `LINES` may be destroyed when the thread exits. Each line executes its requests when it is
    // dropped.
    lines.unwrap_or_default();
}

#[derive(Debug)]
struct Flights {
    /// The posted batches, until their results are taken, in posting order.
    queue: VecDeque<Flight>,
    /// The ticket of the first of them.
    first: u64,
    /// The arrival time of the last request. Later requests do not arrive before it.
    last_arrival: Instant,
    /// The completion time of the last executed batch. Later batches do not complete before it.
    last_completion: Instant,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Flight {
    arrives: Instant,
    state: State,
    is_abandoned: bool,
}

#[derive(Debug)]
enum State {
    Request(Batch),
    Answer(Completed, Instant),
    Taken,
}

impl<C: Posts> Emulated<C> {
    /// Returns a connection to `server` over `link`. `seed` determines the jitter.
    pub fn new(server: C, link: Link, seed: u64) -> Self {
        let now = Instant::now();
        let line = Rc::new(Line {
            server,
            link,
            flights: RefCell::new(Flights {
                queue: VecDeque::new(),
                first: 0,
                last_arrival: now,
                last_completion: now,
                random: fastrand::Rng::with_seed(seed),
            }),
        });
        let weak = Rc::downgrade(&line);
        LINES.with_borrow_mut(|lines| {
            lines.retain(|line| line.strong_count() > 0);
            lines.push(weak);
        });
        Self { line }
    }
}

/// Returns the number of bytes of a batch's request, or of its answer, with the headers.
fn bytes(batch: &Batch, is_answer: bool) -> u64 {
    let each = |kind: VerbKind, words: u64| match kind {
        VerbKind::Read if is_answer => words * WORD,
        VerbKind::Write if !is_answer => words * WORD,
        VerbKind::CompareSwap { .. } | VerbKind::FetchAdd { .. } => WORD,
        _ => 0,
    };
    let verbs = batch.verbs().iter();
    verbs.map(|it| HEADER + each(it.kind, it.words())).sum()
}

impl<C: Posts> Progress for Line<C> {
    fn progress(&self, now: Instant) {
        let mut flights = self.flights.borrow_mut();
        let Flights {
            queue,
            last_completion,
            first,
            ..
        } = &mut *flights;
        for flight in queue.iter_mut() {
            if flight.arrives > now {
                break;
            }
            if !matches!(flight.state, State::Request(_)) {
                continue;
            }
            let State::Request(batch) = core::mem::replace(&mut flight.state, State::Taken) else {
                unreachable!("it was a request");
            };
            let answer = self.link.transfer(bytes(&batch, true));
            let completed = self.server.post(batch).into_inner();
            let earliest = flight.arrives + self.link.round_trip / 2 + answer;
            *last_completion = earliest.max(*last_completion + answer);
            if !flight.is_abandoned {
                flight.state = State::Answer(completed, *last_completion);
            }
        }
        while let Some(Flight {
            state: State::Taken,
            ..
        }) = queue.front()
        {
            queue.pop_front();
            *first += 1;
        }
    }
}

impl<C: Posts> Drop for Line<C> {
    fn drop(&mut self) {
        while let Some(last) = self.flights.get_mut().queue.back() {
            if !matches!(last.state, State::Request(_)) {
                break;
            }
            self.progress(Instant::now());
            core::hint::spin_loop();
        }
    }
}

impl<C: Posts> Connection for Emulated<C> {
    type Completion = Landing<C>;

    fn server(&self) -> ServerId {
        self.line.server.server()
    }

    fn region(&self) -> Region {
        self.line.server.region()
    }

    fn post(&self, batch: Batch) -> Self::Completion {
        let (line, now) = (&self.line, Instant::now());
        progress_all(now);
        let mut flights = line.flights.borrow_mut();
        let jitter = line.link.jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(flights.random.u64(0..=jitter));
        let transfer = line.link.transfer(bytes(&batch, false));
        let arrives = now + line.link.round_trip / 2 + jitter + transfer;
        // A connection keeps the order of its requests, and sends them one after another.
        flights.last_arrival = arrives.max(flights.last_arrival + transfer);
        let arrives = flights.last_arrival;
        let ticket = flights.first + flights.queue.len() as u64;
        flights.queue.push_back(Flight {
            arrives,
            state: State::Request(batch),
            is_abandoned: false,
        });
        Landing {
            line: Rc::clone(line),
            ticket,
        }
    }
}

/// The completion of a batch on an [`Emulated`] connection.
#[derive(Debug)]
#[must_use = "the results of a batch are lost if its completion is not polled"]
pub struct Landing<C: Posts> {
    line: Rc<Line<C>>,
    ticket: u64,
}

impl<C: Posts> Future for Landing<C> {
    type Output = Completed;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        let now = Instant::now();
        progress_all(now);
        let mut flights = self.line.flights.borrow_mut();
        let index = self.ticket.checked_sub(flights.first);
        let index = index.expect("a completion is not polled after it was ready") as usize;
        let state = &mut flights.queue[index].state;
        match state {
            State::Answer(_, at) if *at <= now => {
                let State::Answer(completed, _) = core::mem::replace(state, State::Taken) else {
                    unreachable!("it was an answer");
                };
                Poll::Ready(completed)
            }
            State::Taken => panic!("a completion is not polled after it was ready"),
            _ => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl<C: Posts> Drop for Landing<C> {
    fn drop(&mut self) {
        let mut flights = self.line.flights.borrow_mut();
        let index = self.ticket.checked_sub(flights.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let flight = index.and_then(|index| flights.queue.get_mut(index));
        if let Some(flight) = flight {
            // The request still takes effect, but its answer is dropped.
            flight.is_abandoned = true;
            if matches!(flight.state, State::Answer(..)) {
                flight.state = State::Taken;
            }
        }
    }
}
