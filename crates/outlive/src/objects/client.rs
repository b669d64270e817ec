//! Exactly once: what became of the last request of a client that died.
//!
//! ```text
//!   0  slot of the lease by which the client is used, or 0 | which request is the last: 0 or 1
//!  16  two requests, each: token | number of the operation before it | state | -
//! ```
//!
//! A request is written in the place of the last but one; then the second word selects it. Then its
//! operation runs, which the log of the member shows: each has a number, and took effect or not.
//! Then the state says what became of it. If the member dies before, the member that recovers it
//! settles the operation, then reads the log and writes the state, before it ends the lease. All of
//! these words are written by the user of the client, or in its name.

use super::lease::Lease;
use super::record::Record;
use super::{Class, Contents, Named, Object, ObjectError, Objects};
use crate::heap::LocalHeap;
use crate::recovery::Log;
use crate::structures::{Action, Outcome};
use core::fmt;
use outlive_memory::{Memory, Native, Offset, Ordering, crash_points};

const SELECTED: u64 = 8;
const REQUESTS: u64 = 16;
const REQUEST: u64 = 32;
const BEFORE: u64 = 8;
const STATE: u64 = 16;
const BYTES: u64 = REQUESTS + 2 * REQUEST;

crash_points! {
    /// The places where a request may be cut short.
    pub enum RequestPoint for "objects.request" {
        /// It is written, but not the last request yet.
        Written,
        /// It is the last request, and open.
        Opened,
        /// Its outcome is written.
        Closed,
    }
}

/// The states of a request. A place without a request is zero.
const OPEN: u64 = 1;
const TOOK_EFFECT: u64 = 2;
const DID_NOT: u64 = 3;

/// The last request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRequest {
    /// Its token.
    pub token: u64,
    /// Whether its operation took effect.
    pub took_effect: bool,
}

/// One user of a pod that goes on after its death, by a name of its own: what it did last is kept
/// for its next incarnation. One handle uses it at a time.
///
/// A client gives each of its requests a token, which it can derive after a restart: a number that
/// it counts up, or the number of a message that it answers.
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::objects::{Directory, LastRequest, Objects};
/// use outlive::structures::Map;
///
/// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
/// let words = objects.open_or_create::<Map<str, u64>>("words", ())?;
/// let me = objects.client("teller 7")?;
/// let next = match me.last() {
///     None => 1,
///     Some(LastRequest { token, took_effect: true }) => token + 1,
///     Some(LastRequest { token, took_effect: false }) => token, // again
/// };
/// words.request(&me, next).upsert("ash", &1, |n| n + 1)?;
/// assert_eq!(me.last(), Some(LastRequest { token: 1, took_effect: true }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Crash
/// Whenever its user dies, the client's [last request](Self::last) is the one before, or this one
/// with what became of it, as soon as the member is recovered. Opening it recovers it.
pub struct Client<'h, M: Memory = Native>(Named<'h, Requests<M>, M>);

/// The contents of a client.
pub(super) struct Requests<M: Memory>(Contents<M>);

impl<M: Memory> Object<M> for Requests<M> {
    type Init = ();
    const CLASS: Class = Class::Client;

    fn describe() -> String {
        "client".into()
    }

    fn bytes((): &()) -> u64 {
        BYTES
    }

    fn create(_: &LocalHeap<'_, M>, _: Offset, (): ()) -> Result<(), ObjectError> {
        Ok(()) // zeroes: no user, no request
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        contents.of_size(BYTES)?;
        Ok(Self(contents))
    }
}

/// The words of a client.
#[derive(Clone, Copy)]
struct Words<M: Memory> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Words<M> {
    /// Returns where the last request is, or the other one.
    fn request(self, other: bool) -> Offset {
        // Acquire: the request is written.
        let selected: u64 = self.memory.load(self.at + SELECTED, Ordering::Acquire);
        self.at + REQUESTS + ((selected & 1) ^ u64::from(other)) * REQUEST
    }

    fn last(self) -> Option<LastRequest> {
        let request = self.request(false);
        let state: u64 = self.memory.load(request + STATE, Ordering::Acquire);
        (state != 0).then(|| LastRequest {
            token: self.memory.load(request, Ordering::Relaxed),
            took_effect: state == TOOK_EFFECT,
        })
    }

    fn is_open(self) -> bool {
        self.memory
            .load::<u64>(self.request(false) + STATE, Ordering::Relaxed)
            == OPEN
    }

    /// Opens a request, before its operation begins in `log`.
    fn open(self, token: u64, log: Log<M>) {
        let (memory, request) = (self.memory, self.request(true));
        // Relaxed: the selection publishes them.
        memory.store(request, token, Ordering::Relaxed);
        memory.store(request + BEFORE, last_number(log), Ordering::Relaxed);
        memory.store(request + STATE, OPEN, Ordering::Relaxed);
        memory.persist(request, REQUEST);
        memory.crash_point(RequestPoint::Written);
        let selected: u64 = memory.load(self.at + SELECTED, Ordering::Relaxed);
        memory.store(self.at + SELECTED, selected ^ 1, Ordering::Release);
        memory.persist(self.at + SELECTED, 8);
        memory.crash_point(RequestPoint::Opened);
    }

    /// Closes the request that is open, if there is one, with what the log says of its operation,
    /// which is settled.
    fn close(self, log: Log<M>) {
        if !self.is_open() {
            return;
        }
        let (memory, request) = (self.memory, self.request(false));
        let before: u64 = memory.load(request + BEFORE, Ordering::Relaxed);
        // An operation of the map's own, such as the opening of buckets, precedes that of the
        // program: if it is the last, the program's never began.
        let took_effect = operation(log).is_some_and(|outcome| {
            let is_one = matches!(
                outcome.action,
                Action::Insert | Action::Remove | Action::Replace
            );
            is_one && outcome.sequence > before && outcome.took_effect == Some(true)
        });
        let state = if took_effect { TOOK_EFFECT } else { DID_NOT };
        // Release: after the operation.
        memory.store(request + STATE, state, Ordering::Release);
        memory.persist(request + STATE, 8);
        memory.crash_point(RequestPoint::Closed);
    }
}

/// Returns the number of the last operation in `log`.
fn last_number<M: Memory>(log: Log<M>) -> u64 {
    let last = log.operation().ok().flatten();
    last.map_or(0, |last| last.sequence)
}

/// Returns the outcome of the last operation in `log`, if a program requested it.
fn operation<M: Memory>(log: Log<M>) -> Option<Outcome> {
    log.operation()
        .ok()
        .flatten()
        .as_ref()
        .and_then(Outcome::of)
}

/// Ends the use of a client by the owner of `slot`, in whose name `heap` acts.
pub(super) fn release<M: Memory>(heap: &LocalHeap<'_, M>, record: Record<M>, slot: Offset) {
    let (memory, at) = (heap.memory(), record.contents());
    if record.content_bytes() != BYTES || memory.load::<u64>(at, Ordering::Relaxed) != slot.raw() {
        return;
    }
    Words { memory, at }.close(heap.logs().of(heap.instance().id));
    // Release: the next user sees what became of the request.
    memory.store(at, 0u64, Ordering::Release);
    memory.persist(at, 8);
}

impl<'h, M: Memory> Objects<'h, M> {
    /// Opens the client `name`, or creates it. If its last user is dead, it is recovered first.
    ///
    /// # Errors
    /// If another handle uses it, the object is of another type or damaged, the name is not valid,
    /// or there is no memory.
    ///
    /// # Crash
    /// As [`open_or_create`](Self::open_or_create).
    pub fn client(self, name: &str) -> Result<Client<'h, M>, ObjectError> {
        let requests = self.open_or_create::<Requests<M>>(name, ())?;
        let (memory, at) = (self.heap.memory(), requests.low_level().0.at);
        let slot = requests.lease().slot().raw();
        // Acquire: what became of the last request.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let claim = || {
            memory
                .compare_exchange(at, 0, slot, order.0, order.1)
                .is_ok()
        };
        let is_claimed = claim() || {
            self.heap.recover_dead_members()?;
            claim()
        };
        if !is_claimed {
            let lease = requests.lease();
            let users = self.directory.users(lease.at(), lease.slot()).collect();
            let name = name.into();
            return Err(ObjectError::InUse { name, users });
        }
        memory.persist(at, 8);
        Ok(Client(requests))
    }
}

impl<'h, M: Memory> Client<'h, M> {
    fn words(&self) -> Words<M> {
        let contents = self.0.low_level().0;
        Words {
            memory: contents.memory,
            at: contents.at,
        }
    }

    fn lease(&self) -> &Lease<'h, M> {
        self.0.lease()
    }

    /// Returns the last request of this client, in this or an earlier incarnation, and what became
    /// of it; `None` if it has made none. A request whose token is not this one was never begun, or
    /// others followed it.
    pub fn last(&self) -> Option<LastRequest> {
        self.words().last()
    }

    /// Runs `operation`, one operation of a structure, as the request `token`.
    pub(super) fn run<R>(
        &self,
        heap: &LocalHeap<'_, M>,
        token: u64,
        operation: impl FnOnce() -> R,
    ) -> R {
        let own = self.lease().heap();
        assert!(
            heap.instance() == own.instance(),
            "the client is used by {}, and the object by {}; open both in one session",
            own.instance(),
            heap.instance()
        );
        let words = self.words();
        assert!(!words.is_open(), "a request of this client is running");
        let log = own.logs().of(own.instance().id);
        words.open(token, log);
        // Also after a panic of the program's own code. One that interrupted the operation itself
        // leaves both to the recovery.
        let _closing = Closing {
            words,
            log,
            heap: own,
        };
        operation()
    }
}

/// Closes the request when it is dropped.
struct Closing<'c, 'h, M: Memory> {
    words: Words<M>,
    log: Log<M>,
    heap: &'c LocalHeap<'h, M>,
}

impl<M: Memory> Drop for Closing<'_, '_, M> {
    fn drop(&mut self) {
        if self.heap.is_idle() {
            self.words.close(self.log);
        }
    }
}

impl<M: Memory> fmt::Debug for Client<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.last()).finish()
    }
}
