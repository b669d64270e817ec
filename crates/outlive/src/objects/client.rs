//! Exactly once: the outcome of the last request of a client that died.
//!
//! ```text
//!   0  slot of the lease by which the client is used, or 0 | which request is the last: 0 or 1
//!  16  two requests, each: token | number of the operation before it | state | structure
//! ```
//!
//! The second word selects the last request. A new request is written over the other one and then
//! selected. Then its operation runs. The log of the member records it: each operation has a
//! number, and took effect or not. Then the state records the outcome. If the member dies first,
//! the recovering member settles the operation, writes the state from the log, and then ends the
//! lease. Only the user of the client writes these words, or a member that recovers it.
//!
//! Tests: `tests/objects.rs`, `tests/examples_killed.rs`; proofs:
//! `lab/outlive-proofs/src/objects/sweeps.rs`.

use super::lease::Lease;
use super::name_lock::NameLock;
use super::record::Record;
use super::{Class, Contents, Named, Object, ObjectError, Objects, Value};
use crate::heap::LocalHeap;
use crate::membership::Instance;
use crate::recovery::Log;
use crate::structures::{Action, Outcome};
use core::fmt;
use outlive_memory::{Memory, Native, Offset, Ordering, crash_points};

const SELECTED: u64 = 8;
const REQUESTS: u64 = 16;
const REQUEST: u64 = 32;
const PREVIOUS: u64 = 8;
const STATE: u64 = 16;
const STRUCTURE: u64 = 24;
const BYTES: u64 = REQUESTS + 2 * REQUEST;

crash_points! {
    /// The crash points of a request.
    pub enum RequestPoint for "objects.request" {
        /// The request is written, but is not the client's last request yet.
        Written,
        /// The request is the client's last request, and open.
        Opened,
        /// The outcome of the request is written.
        Closed,
    }
}

/// The states of a request. A place without a request is zero.
const OPEN: u64 = 1;
/// The program's own code computes a value: the operation has not begun.
const PAUSED: u64 = 4;
const TOOK_EFFECT: u64 = 2;
const NO_EFFECT: u64 = 3;

/// The last request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRequest {
    /// The token of the request.
    pub token: u64,
    /// Whether the request's operation took effect; false while the request is running.
    pub took_effect: bool,
}

/// A named record of its user's last request. After the user's death, its next incarnation opens
/// the client by name and reads the outcome. One handle uses it at a time.
///
/// Each request has a token that the user can derive after a restart: a number that it counts up,
/// or the number of a message that it answers. Tokens are not compared: the user reads
/// [`last`](Self::last) before it makes a request.
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::objects::{Directory, LastRequest, Objects};
/// use outlive::structures::Map;
///
/// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
/// let words = objects.open_or_create::<Map<str, u64>>("words", ())?;
/// let me = objects.client("teller 7")?;
/// let next = me.next_token(); // the last request again, if it had no effect
/// words.request(&me, next).upsert("ash", &1, |n| n + 1)?;
/// assert_eq!(me.last(), Some(LastRequest { token: 1, took_effect: true }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Crash
/// After the user is recovered, [`last`](Self::last) returns the request that was running, with its
/// outcome, or the one before it, and then the running request had no effect.
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

    fn state(self) -> u64 {
        // Relaxed: the user's own word, or acquired with the claim on the dead member's log.
        self.memory
            .load(self.request(false) + STATE, Ordering::Relaxed)
    }

    fn is_open(self) -> bool {
        matches!(self.state(), OPEN | PAUSED)
    }

    fn set_state(self, state: u64) {
        let at = self.request(false) + STATE;
        // Release: after the operation that it describes.
        self.memory.store(at, state, Ordering::Release);
        self.memory.persist(at, 8);
    }

    /// Opens a request, before its operation begins in `log`.
    fn open(self, token: u64, structure: Offset, log: Log<M>) {
        let (memory, request) = (self.memory, self.request(true));
        // Relaxed: the selection publishes them.
        memory.store(request, token, Ordering::Relaxed);
        memory.store(request + PREVIOUS, last_number(log), Ordering::Relaxed);
        memory.store(request + STATE, OPEN, Ordering::Relaxed);
        memory.store(request + STRUCTURE, structure.raw(), Ordering::Relaxed);
        memory.persist(request, REQUEST);
        memory.crash_point(RequestPoint::Written);
        let selected: u64 = memory.load(self.at + SELECTED, Ordering::Relaxed);
        memory.store(self.at + SELECTED, selected ^ 1, Ordering::Release);
        memory.persist(self.at + SELECTED, 8);
        memory.crash_point(RequestPoint::Opened);
    }

    /// Closes the request that is open, if there is one, with the outcome of its operation, which
    /// is settled in the log.
    fn close(self, log: Log<M>) {
        if !self.is_open() {
            return;
        }
        let (memory, request) = (self.memory, self.request(false));
        let before: u64 = memory.load(request + PREVIOUS, Ordering::Relaxed);
        // An operation of the map's own, such as the opening of buckets, precedes that of the
        // program: if it is the last, the program's never began.
        let is_paused = self.state() == PAUSED;
        let took_effect = !is_paused
            && operation(log).is_some_and(|outcome| {
                let is_one = matches!(
                    outcome.action,
                    Action::Insert | Action::Remove | Action::Replace
                );
                let structure: u64 = memory.load(request + STRUCTURE, Ordering::Relaxed);
                is_one
                    && outcome.structure.raw() == structure
                    && outcome.sequence > before
                    && outcome.took_effect == Some(true)
            });
        self.set_state(if took_effect { TOOK_EFFECT } else { NO_EFFECT });
        memory.crash_point(RequestPoint::Closed);
    }
}

/// Returns the last request in a copy of the contents of a client.
pub(super) fn last_in(contents: &[u8]) -> Value {
    let word = |at: u64| -> Option<u64> {
        let bytes = contents.get(at as usize..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let last = || {
        let request = REQUESTS + (word(SELECTED)? & 1) * REQUEST;
        let outcome = match word(request + STATE)? {
            0 => return None,
            TOOK_EFFECT => "took effect",
            NO_EFFECT => "no effect",
            _ => "not known yet",
        };
        Some(Value::Fields(vec![
            ("token".into(), Value::Unsigned(word(request)?.into())),
            ("outcome".into(), Value::Text(outcome.into())),
        ]))
    };
    last().unwrap_or(Value::Nothing)
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
    // Release: the next user sees the outcome of the request.
    memory.store(at, 0u64, Ordering::Release);
    memory.persist(at, 8);
}

impl<'h, M: Memory> Objects<'h, M> {
    /// Opens the client `name`, or creates it. If its last user has been reported dead, that user
    /// is recovered first; until then the client is in use. (A
    /// [session](crate::pod::Session::client) waits for the report.)
    ///
    /// # Errors
    /// [`ObjectError::ClientInUse`] if another handle uses it. Other errors if a dead member cannot
    /// be recovered, the object is of another type or damaged, the name is not valid, or there is
    /// no memory.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`open_or_create`](Self::open_or_create).
    pub fn client(self, name: &str) -> Result<Client<'h, M>, ObjectError> {
        let memory = self.heap.memory();
        loop {
            let requests = self.open_or_create::<Requests<M>>(name, ())?;
            let (at, lease) = (requests.low_level().0.at, requests.lease());
            let slot = lease.slot().raw();
            // Acquire: the outcome of the last request.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let claim = || memory.compare_exchange(at, 0, slot, order.0, order.1);
            if claim().is_err() {
                let recovered = self.heap.recover_dead_members();
                if let Err(user) = claim() {
                    recovered?;
                    return Err(self.client_in_use(name, lease, user));
                }
            }
            memory.persist(at, 8);
            // A member that locks the name later finds the client in use, and does not unlink it.
            if NameLock::acquire(lease)?.is_some() {
                return Ok(Client(requests));
            }
            // It was unlinked before.
        }
    }

    /// Returns the error for the client `name`, which is in use by the owner of slot `user`.
    pub(super) fn client_in_use(self, name: &str, lease: &Lease<'h, M>, user: u64) -> ObjectError {
        ObjectError::ClientInUse {
            name: name.into(),
            by: self.describe_user(user),
            users: self.directory.users(lease.at(), lease.slot()).collect(),
        }
    }

    /// Describes the owner of slot `user` for an error.
    fn describe_user(self, user: u64) -> String {
        let member = self.heap.member();
        let Some(id) = self.directory.holder(Offset::from_raw(user)) else {
            return format!("an unknown member (its slot is {user:#x})");
        };
        if id == member.instance().id {
            return "this session".into();
        }
        let read = || {
            let state = member.generations().state(id).ok()?;
            let record = member
                .records()?
                .read(Instance::new(id, state.generation))?;
            Some((record, state.host))
        };
        match read() {
            Some((record, host)) => format!(
                "the member {} on host {host} (pid {} in its own PID namespace)",
                record.instance, record.thread.process.pid
            ),
            None => format!("the member {id}"),
        }
    }
}

/// Returns the slot of the user of a client; 0 if it has none, or the object is not a client. For
/// the holder of the lock on its name.
pub(super) fn user_of<M: Memory>(memory: M, record: Record<M>) -> u64 {
    match record.class() {
        // Acquire: ordered by the lock.
        Some(Class::Client) if record.content_bytes() == BYTES => {
            memory.load(record.contents(), Ordering::Acquire)
        }
        _ => 0,
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

    /// Returns the last request of this client, of this or an earlier incarnation; `None` if it has
    /// made none. A request with another token never began, or other requests followed it. After a
    /// panic inside the operation, the outcome is settled when the member is recovered.
    pub fn last(&self) -> Option<LastRequest> {
        self.words().last()
    }

    /// Returns the token to continue with, for a user that counts its requests from 1: that of the
    /// [last](Self::last) request if it had no effect, and otherwise the next number.
    ///
    /// A request that ended without a change, such as the insertion of a key that exists, had no
    /// effect. So it is made again after a restart.
    pub fn next_token(&self) -> u64 {
        let next = |last: LastRequest| last.token.saturating_add(u64::from(last.took_effect));
        self.last().map_or(1, next)
    }

    /// Returns whether the request `token` took effect. Returns `None` if it is not the
    /// [last](Self::last) one: it never began, or other requests followed it.
    pub fn took_effect(&self, token: u64) -> Option<bool> {
        let last = self.last().filter(|last| last.token == token);
        last.map(|last| last.took_effect)
    }

    /// Runs `operation`, one operation on the structure whose header is at `structure`, as the
    /// request `token`.
    pub(super) fn run<R>(
        &self,
        heap: &LocalHeap<'_, M>,
        token: u64,
        structure: Offset,
        operation: impl FnOnce(&Open<'_, 'h, M>) -> R,
    ) -> R {
        let own = self.lease().heap();
        assert!(
            core::ptr::eq(heap, own),
            "the client is used by {}, and the object by {}; open both in one session",
            own.instance(),
            heap.instance()
        );
        let words = self.words();
        assert!(
            !words.is_open(),
            "the request {token} cannot begin: one of this client has not ended; make no request \
             inside a closure of another one"
        );
        let log = own.logs().of(own.instance().id);
        words.open(token, structure, log);
        // Also after a panic of the program's own code. After a panic in the operation itself, the
        // recovery closes the request.
        operation(&Open {
            words,
            log,
            heap: own,
        })
    }
}

/// A request whose operation runs. Dropping it closes the request.
pub(super) struct Open<'c, 'h, M: Memory> {
    words: Words<M>,
    log: Log<M>,
    heap: &'c LocalHeap<'h, M>,
}

impl<M: Memory> Open<'_, '_, M> {
    /// Calls `make`, code of the program that computes a value before the operation begins. It may
    /// run operations of its own, which are not the request's.
    pub fn pause<R>(&self, make: impl FnOnce() -> R) -> R {
        let memory = self.words.memory;
        self.words.set_state(PAUSED);
        let made = make();
        let request = self.words.request(false);
        memory.store(request + PREVIOUS, last_number(self.log), Ordering::Relaxed);
        // Release, in here: a recovery that finds the request open finds this number.
        self.words.set_state(OPEN);
        made
    }
}

impl<M: Memory> Drop for Open<'_, '_, M> {
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
