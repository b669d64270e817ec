//! A store in the memory of a unit test: two memory servers, whose links fail as the test says. The
//! first one has the only replica of the table, and the second one has the log.

use super::{LogArea, Member, Protocol, Slot, View};
use crate::tables::{Geometry, Place, TableLayout, TransactionId};
use crate::verbs::{
    Batch, Completed, Connection, Liveness, Mapped, Region, RemoteOffset, ServerId, VerbError,
};
use core::cell::{Cell, RefCell};
use core::pin::Pin;
use core::task::{Context, Poll};
use outlive::memory::{Native, Offset, PersistenceDomain};
use std::rc::Rc;

/// The server of the table.
pub const TABLES: ServerId = ServerId(0);
/// The server of the log.
pub const LOGS: ServerId = ServerId(1);

/// The number of batches after which a test fails that would post them forever.
const MAX_POSTS: u32 = 1000;
const REGION: u64 = 4096;
const SLOTS: u16 = 2;
const SLOT_WORDS: usize = 64;
/// The start of the table in its region.
const BASE: RemoteOffset = RemoteOffset::new(SLOTS as u64 * SLOT_WORDS as u64 * 8);
const GEOMETRY: Geometry = Geometry {
    value_words: 1,
    partitions: 1,
    main: 1,
    extra: 1,
};

/// The state of the link to a memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Open,
    /// Verbs take effect, and their completions do not arrive.
    Late,
    /// The connection breaks when a batch is posted, which has no effect. Then the link is open.
    Breaks,
    /// As `Breaks`, and the completion does not arrive while the link is in this state.
    Silent,
    /// As `Breaks`, and no connection opens any more, because the server is dead.
    Dead,
}

/// The facts that all workers of the store share.
#[derive(Debug)]
pub struct Facts {
    memory: Native,
    protocol: Protocol,
    links: [Cell<Link>; 2],
    posts: Cell<u32>,
    /// The number of changes. The first one is the loss of the table's server.
    pub epoch: Cell<u64>,
    pub is_settled: Cell<bool>,
    slots: RefCell<Vec<Slot>>,
    /// The transactions that recoveries have rolled forward.
    pub committed: RefCell<Vec<TransactionId>>,
    /// Whether latches may remain.
    pub has_latches: Cell<bool>,
    /// A commit of another compute server, which delays each epoch.
    pub straggler: Cell<Option<TransactionId>>,
    /// The number of fences.
    pub fences: Cell<u32>,
}

/// The store as each of its servers sees it.
#[derive(Clone, Debug)]
pub struct SmallView(pub Rc<Facts>);

impl SmallView {
    pub fn new(protocol: Protocol) -> Self {
        Self(Rc::new(Facts {
            memory: Native::leaked(3 * REGION, PersistenceDomain::Flushed),
            protocol,
            links: [Link::Open; 2].map(Cell::new),
            posts: Cell::new(0),
            epoch: Cell::new(0),
            is_settled: Cell::new(true),
            slots: RefCell::new((0..SLOTS).map(|it| Slot::new(it, 0)).collect()),
            committed: RefCell::default(),
            has_latches: Cell::default(),
            straggler: Cell::default(),
            fences: Cell::default(),
        }))
    }

    pub fn set_link(&self, server: ServerId, link: Link) {
        self.0.links[usize::from(server.0)].set(link);
    }

    pub fn log_area(&self) -> LogArea {
        LogArea {
            base: RemoteOffset::new(0),
            servers: vec![LOGS],
            coordinators: SLOTS,
            slot_words: SLOT_WORDS,
            protocol: self.0.protocol,
        }
    }
}

/// A connection to a memory server.
#[derive(Debug)]
pub struct Wire {
    mapped: Mapped,
    facts: Rc<Facts>,
    is_broken: Cell<bool>,
}

impl Wire {
    fn link(&self) -> &Cell<Link> {
        &self.facts.links[usize::from(self.server().0)]
    }
}

impl Connection for Wire {
    type Completion = Arrival;

    const CAN_BREAK: bool = true;

    fn server(&self) -> ServerId {
        self.mapped.server()
    }

    fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    fn region(&self) -> Region {
        self.mapped.region()
    }

    fn post(&self, batch: Batch) -> Arrival {
        let (server, link) = (self.server(), self.link());
        self.facts.posts.set(self.facts.posts.get() + 1);
        assert!(self.facts.posts.get() < MAX_POSTS, "the test does not end");
        if matches!(link.get(), Link::Breaks | Link::Silent | Link::Dead) {
            self.is_broken.set(true);
        }
        if link.get() == Link::Breaks {
            link.set(Link::Open);
        }
        let completed = match self.is_broken.get() {
            true => Completed {
                batch,
                result: Err(VerbError::Broken { server }),
            },
            false => self.mapped.post(batch).into_inner(),
        };
        Arrival {
            server,
            facts: Rc::clone(&self.facts),
            completed: Some(completed),
        }
    }
}

/// A completion.
#[derive(Debug)]
pub struct Arrival {
    server: ServerId,
    facts: Rc<Facts>,
    completed: Option<Completed>,
}

impl Future for Arrival {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Completed> {
        match self.facts.links[usize::from(self.server.0)].get() {
            Link::Late | Link::Silent => Poll::Pending,
            _ => Poll::Ready(
                self.completed
                    .take()
                    .expect("it is polled until it is ready"),
            ),
        }
    }
}

impl View for SmallView {
    type Connection = Wire;

    fn connect(&self, server: ServerId) -> Result<Wire, VerbError> {
        let memory = self.0.memory;
        if self.0.links[usize::from(server.0)].get() == Link::Dead {
            return Err(VerbError::ServerDied { server });
        }
        // No test changes the liveness word.
        let liveness = Liveness {
            memory,
            at: Offset::new(64),
            live: 0,
        };
        let first = Offset::new(u64::from(server.0 + 1) * REGION);
        let region = Region {
            key: 1,
            bytes: REGION,
        };
        Ok(Wire {
            mapped: Mapped::new(memory, server, first, region, liveness),
            facts: Rc::clone(&self.0),
            is_broken: Cell::new(false),
        })
    }

    fn layout(&self, table: u8) -> Option<TableLayout> {
        (table == 0).then(|| TableLayout {
            geometry: GEOMETRY,
            places: vec![vec![Place {
                server: TABLES,
                base: BASE,
                step: 0,
            }]],
        })
    }

    fn failed(&self, _: u16) -> Option<u64> {
        None
    }

    fn epoch(&self) -> u64 {
        self.0.epoch.get()
    }

    fn lost(&self, epoch: u64) -> Vec<ServerId> {
        if epoch > 0 { vec![TABLES] } else { Vec::new() }
    }

    fn steps(&self, _: u64) -> u8 {
        0
    }

    fn begun(&self, _: u16, _: u16) -> Option<TransactionId> {
        None
    }

    fn record_commit(&self, transaction: TransactionId) {
        self.0.committed.borrow_mut().push(transaction);
    }

    fn leave_latches(&self) {
        self.0.has_latches.set(true);
    }
}

/// No compute server dies.
impl Member for SmallView {
    fn is_over(&self, epoch: u64) -> bool {
        self.0.epoch.get() > epoch
    }

    fn is_settled(&self, _: u64) -> bool {
        self.0.is_settled.get()
    }

    fn is_under_recovery(&self, _: u16) -> bool {
        false
    }

    fn stragglers(&self, _: u64) -> Vec<TransactionId> {
        self.0.straggler.get().into_iter().collect()
    }

    fn fence(&self, _: TransactionId) {
        self.0.fences.set(self.0.fences.get() + 1);
    }

    fn enter_commit(&self, _: TransactionId, epoch: u64) -> bool {
        !self.is_over(epoch)
    }

    fn leave_commit(&self, _: TransactionId, _: bool) {}

    fn log(&self, _: u64) -> Result<LogArea, VerbError> {
        Ok(self.log_area())
    }

    fn take_slot(&self) -> Option<Slot> {
        self.0.slots.borrow_mut().pop()
    }

    fn return_slot(&self, slot: Slot) {
        self.0.slots.borrow_mut().push(slot);
    }

    fn recoveries(&self) -> u64 {
        0
    }

    fn is_recovering(&self) -> bool {
        false
    }
}
