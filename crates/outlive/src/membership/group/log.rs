//! The events of a group: a log to which any member can complete an append, and the table that the
//! log drives.
//!
//! A group is a state machine in shared memory. Its log is a ring of 128-bit slots; `tail` counts
//! the complete events; the table has one 128-bit word for each id, with the id's standing in the
//! group and the number of the latest event about it.
//!
//! To append an event, a writer reads `tail` = t, makes sure that slot t + 1 is empty and checks in
//! the table whether the event is still news. Then one compare-and-swap puts it into slot t + 1:
//! this is its linearisation point. Every member that sees slot t + 1 filled helps: it first
//! updates the table (a compare-and-swap from a word of an earlier event, so that it takes effect
//! once and never late), then `tail` to t + 1. So:
//!
//! * While `tail` is t, the table shows all events up to t, and none after t + 1. An event put into
//!   slot t + 1 was therefore judged news against exactly the events that precede it: **no event is
//!   reported twice**, however many members notice it.
//! * A writer that dies after filling the slot has reported the event; before that, nothing. No
//!   member waits for it and there is nothing to recover. Lock-free.
//! * A slot's old content is the event one ring's length earlier, so a writer that slept through a
//!   whole round fails its compare-and-swap. A word of the table contains the event's number, so it
//!   never returns to an earlier value.
//!
//! *When caches are lost* this does not hold yet (write-back segments are refused; the crash
//! explorer shows it). It would require the following:
//!
//! * Both halves of a word must show a tear: a bit of the ring's round in both halves of a slot, a
//!   bit that alternates from event to event in both halves of a table's word. A torn slot has
//!   never been helped, so it is overwritten like an old one; a torn word of the table is rewritten
//!   from the event's slot.
//! * A helper must make each word durable before it continues with the next: load, write back,
//!   drain, load again, and start again if it changed.
//! * That second load cannot detect a word that fell back and was rewritten with the same bits by
//!   another host that is lost next. So each word has to name its writer (sixteen bits: the number
//!   needs only forty), in the table too, where helpers write the same event.
//! * The tail may fall back by several, one for each host that is lost: a slot whose number is a
//!   round ahead shows that all events before it are complete, and then the tail is moved there;
//!   and [`finish_pending`](GroupLog::finish_pending) continues until nothing is pending.

use super::super::{Instance, InstanceId, Level};
use super::event::{Event, EventKind};
use outlive_memory::{Memory, Native, Offset, Ordering};

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt an append.
    pub enum AppendPoint for "group.append" {
        /// The event is judged news; nothing is written.
        Judged,
        /// The event is in its slot: it has happened.
        Placed,
        /// The table shows the event.
        Applied,
        /// The tail has passed the event; members can read it.
        Advanced,
    }
}

/// The standing of an id in a group: whether the id is a member, or how its membership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The id was never a member.
    Stranger,
    /// The id is a member.
    Member,
    /// A host that is suspected: it may be dead but could not be fenced yet.
    Suspect,
    /// The member left in good order.
    Left,
    /// The member died.
    Died,
}

impl Standing {
    /// Returns whether the id counts as a member, whose death is news.
    pub const fn is_in(self) -> bool {
        matches!(self, Self::Member | Self::Suspect)
    }
}

/// The table's entry for one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// The incarnation that the latest event was about.
    pub instance: Option<Instance>,
    /// The level of the member.
    pub level: Option<Level>,
    /// The standing of the id in the group.
    pub standing: Standing,
    /// The number of the latest event about the member; 0 if there was none.
    pub sequence: u64,
}

/// A handle on the log and the table of one group.
#[derive(Clone, Copy, Debug)]
pub struct GroupLog<M: Memory = Native> {
    memory: M,
    at: Offset,
    events: u32,
    ids: u32,
}

const RING: u64 = 128;

impl<M: Memory> GroupLog<M> {
    /// Returns the size in bytes of a log of `events` events about `ids` ids.
    pub const fn bytes(events: u32, ids: u32) -> u64 {
        // One word more than ids: the fabric manager's role is a member of its own.
        RING + (events as u64 + ids as u64 + 1) * 16
    }

    /// Returns the log at `at`, aligned to 16; zeroed memory is an empty log.
    ///
    /// # Panics
    /// Panics if `events` is zero.
    pub fn new(memory: M, at: Offset, events: u32, ids: u32) -> Self {
        assert!(events > 0, "a group must store at least one event");
        Self {
            memory,
            at,
            events,
            ids,
        }
    }

    /// Returns the number of complete events.
    pub fn tail(self) -> u64 {
        // Acquire: a reader of the tail sees the slots and the table up to it.
        self.memory.load(self.at, Ordering::Acquire)
    }

    fn slot_at(self, sequence: u64) -> Offset {
        self.at + RING + (sequence - 1) % u64::from(self.events) * 16
    }

    fn member_at(self, index: u32) -> Offset {
        self.at + RING + (u64::from(self.events) + u64::from(index)) * 16
    }

    /// Returns the table's index of the id or role that `event` is about.
    fn index_of(self, event: &Event) -> u32 {
        match event.kind {
            EventKind::RoleChanged => self.ids,
            _ => event.instance.id.min(self.ids),
        }
    }

    /// Returns the table's index of `instance`; `None` if no such instance can exist.
    fn place_of(self, instance: Instance) -> Option<u32> {
        (instance.id < self.ids && instance.generation != 0).then_some(instance.id)
    }

    fn slot(self, sequence: u64) -> u128 {
        self.memory.load(self.slot_at(sequence), Ordering::Acquire)
    }

    /// Returns the event numbered `sequence`, if it is complete and still in the ring.
    pub fn event(self, sequence: u64) -> Option<Event> {
        if sequence == 0 || sequence > self.tail() {
            return None;
        }
        let event = Event::from_word(self.slot(sequence))?;
        (event.sequence == sequence).then_some(event)
    }

    /// Returns the entry of `id`.
    pub fn member(self, id: InstanceId) -> MemberState {
        let none = MemberState {
            instance: None,
            level: None,
            standing: Standing::Stranger,
            sequence: 0,
        };
        if id > self.ids {
            return none;
        }
        let word = self
            .memory
            .load::<u128>(self.member_at(id), Ordering::Acquire);
        let Some(event) = Event::from_word(word) else {
            return none;
        };
        MemberState {
            instance: Some(event.instance),
            level: event.level,
            standing: match event.kind {
                EventKind::Joined | EventKind::Rejoined | EventKind::RoleChanged => {
                    Standing::Member
                }
                EventKind::HostSuspected => Standing::Suspect,
                EventKind::Left => Standing::Left,
                EventKind::ThreadDied | EventKind::ProcessDied | EventKind::HostDied => {
                    Standing::Died
                }
            },
            sequence: event.sequence,
        }
    }

    /// Returns the fabric manager that was reported last.
    pub fn manager(self) -> Option<Instance> {
        self.member(self.ids).instance
    }

    /// Reports that `instance` of `level` has joined: [`EventKind::Joined`], or
    /// [`EventKind::Rejoined`] if an earlier incarnation of the id had been a member. Returns the
    /// event's number, or `None` if the log has shown it already. Lock-free.
    pub fn tell_joined(self, instance: Instance, level: Level) -> Option<u64> {
        self.append(self.place_of(instance)?, |now| {
            let kind = match now.instance {
                // An old incarnation that was held up must not join after its successor.
                Some(known) if known.generation > instance.generation => return None,
                Some(known) if known == instance => match now.standing {
                    Standing::Member | Standing::Suspect | Standing::Died => return None,
                    Standing::Left | Standing::Stranger => EventKind::Rejoined,
                },
                Some(_) => EventKind::Rejoined,
                None => EventKind::Joined,
            };
            Some(Event::new(kind, instance, Some(level)))
        })
    }

    /// Reports that `instance` has left the group. Returns the event's number, or `None` if it was
    /// not a member. Lock-free.
    pub fn tell_left(self, instance: Instance) -> Option<u64> {
        self.append(self.place_of(instance)?, |now| {
            let is_in = now.instance == Some(instance) && now.standing.is_in();
            is_in.then(|| Event::new(EventKind::Left, instance, now.level))
        })
    }

    /// Reports that `instance` died. Returns the event's number, or `None` if it was not a member
    /// or its death has been reported. Lock-free.
    pub fn tell_died(self, instance: Instance) -> Option<u64> {
        self.tell_died_because(instance, false)
    }

    /// Does the same as [`tell_died`](Self::tell_died), with whether `instance` is a host that was
    /// `fenced`.
    pub(crate) fn tell_died_because(self, instance: Instance, fenced: bool) -> Option<u64> {
        self.append(self.place_of(instance)?, |now| {
            if now.instance != Some(instance) || !now.standing.is_in() {
                return None;
            }
            let kind = EventKind::death_of(now.level?);
            Some(Event::new(kind, instance, now.level).because_fenced(fenced))
        })
    }

    /// Reports that the host `instance` is suspected and could not be fenced. Returns the event's
    /// number, or `None` if the log has shown it already. Lock-free.
    pub fn tell_suspected(self, instance: Instance) -> Option<u64> {
        self.append(self.place_of(instance)?, |now| {
            let news = now.instance == Some(instance) && now.standing == Standing::Member;
            news.then(|| Event::new(EventKind::HostSuspected, instance, now.level))
        })
    }

    /// Reports that `manager` has become the fabric manager. Returns the event's number, or `None`
    /// if the log has shown it already. Lock-free.
    pub fn tell_role(self, manager: Instance) -> Option<u64> {
        if manager.generation == 0 {
            return None;
        }
        self.append(self.ids, |now| {
            (now.instance != Some(manager))
                .then(|| Event::new(EventKind::RoleChanged, manager, Some(Level::Process)))
        })
    }

    /// Completes a pending event, whose writer may have died. Returns whether an event was pending.
    /// Wait-free. The table may already show the change of a pending event, so a member that
    /// compares the table with the events that it has read would miss the change.
    pub fn finish_pending(self) -> bool {
        let next = self.tail().saturating_add(1);
        let pending = Event::sequence_of(self.slot(next)) == next;
        if pending {
            self.help(next);
        }
        pending
    }

    /// Appends the event that `judge` returns for the state of `index`, if it returns one.
    fn append(self, index: u32, judge: impl Fn(MemberState) -> Option<Event>) -> Option<u64> {
        loop {
            let tail = self.tail();
            if tail >= Event::LAST {
                // Only a damaged log gets here; `pod check` reports it.
                return None;
            }
            let next = tail + 1;
            let old = self.slot(next);
            match Event::sequence_of(old).cmp(&next) {
                core::cmp::Ordering::Equal => {
                    self.help(next);
                    continue;
                }
                // A round has passed since `tail` was read; or the log is damaged.
                core::cmp::Ordering::Greater if self.tail() == tail => return None,
                core::cmp::Ordering::Greater => continue,
                core::cmp::Ordering::Less => {}
            }
            let event = judge(self.member(index))?;
            let word = event.numbered(next).to_word();
            self.memory.crash_point(AppendPoint::Judged);
            // AcqRel: release, so that a reader of the event sees its writer's earlier stores (the
            // raised generation); acquire, for the table that the helpers of earlier events wrote.
            if self
                .memory
                .compare_exchange(
                    self.slot_at(next),
                    old,
                    word,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
            {
                self.memory.crash_point(AppendPoint::Placed);
                self.help(next);
                self.memory.crash_point(AppendPoint::Advanced);
                return Some(next);
            }
        }
    }

    /// Completes event `sequence`, which is in its slot: the table first, then the tail.
    fn help(self, sequence: u64) {
        let slot_at = self.slot_at(sequence);
        let word = self.slot(sequence);
        if Event::sequence_of(word) != sequence {
            // Another member completed it, and the slot has been reused since.
            return;
        }
        self.memory.persist(slot_at, 16);
        // A slot that has the number but no valid event is damaged. It is skipped, so that it
        // blocks no member.
        if let Some(event) = Event::from_word(word) {
            let at = self.member_at(self.index_of(&event));
            let mut old = self.memory.load::<u128>(at, Ordering::Acquire);
            while Event::sequence_of(old) < sequence {
                match self.memory.compare_exchange(
                    at,
                    old,
                    word,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
            self.memory.persist(at, 16);
        }
        self.memory.crash_point(AppendPoint::Applied);
        // Release: the tail passes only events that the table shows.
        let _ = self.memory.compare_exchange(
            self.at,
            sequence - 1,
            sequence,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.memory.persist(self.at, 8);
    }
}
