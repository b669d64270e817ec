//! A machine and its simulated time.

use super::{EventQueue, Time};

/// A machine that a [`Simulation`] runs: state that changes only by events.
pub trait Machine {
    /// An event: a small plain value that says which part it is for and which action it is.
    type Event: Copy;

    /// Handles `event`, which happens at `now`, and schedules the events that follow from it.
    fn handle(&mut self, now: Time, event: Self::Event, queue: &mut EventQueue<Self::Event>);

    /// Called with the event that is probably next: a large machine may have the host prefetch the
    /// data that this event will use. The machine must not change.
    #[inline]
    fn look_ahead(&self, _event: &Self::Event) {}
}

/// A machine with the queue of its pending events. A clone continues exactly as the original does.
///
/// The [module](crate::engine) has an example.
#[derive(Clone, Debug)]
pub struct Simulation<M: Machine> {
    machine: M,
    queue: EventQueue<M::Event>,
    handled: u64,
}

impl<M: Machine> Simulation<M> {
    /// Returns the machine at time zero, with an empty queue.
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            queue: EventQueue::new(),
            handled: 0,
        }
    }

    /// Handles the next event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.handle_next(Time::MAX)
    }

    /// Handles all events up to and including `limit`, and returns their number. Afterwards the
    /// time is `limit`, and events scheduled then happen at `limit` or later.
    pub fn run_until(&mut self, limit: Time) -> u64 {
        let before = self.handled;
        while self.handle_next(limit) {}
        self.queue.advance_to(limit);
        self.handled - before
    }

    /// Handles events until none is pending, and returns their number. Does not return if the
    /// machine always schedules another event.
    pub fn run(&mut self) -> u64 {
        let before = self.handled;
        while self.step() {}
        self.handled - before
    }

    #[inline]
    fn handle_next(&mut self, limit: Time) -> bool {
        let Some((now, event)) = self.queue.pop_until(limit) else {
            return false;
        };
        self.handled += 1;
        if let Some(next) = self.queue.at_hand() {
            self.machine.look_ahead(next);
        }
        self.machine.handle(now, event, &mut self.queue);
        true
    }

    /// Returns the time of the last event, or the last limit.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// Returns the number of events handled since the start (of the original, in a clone).
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the machine, to change it from outside, for example to crash a node.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Returns the pending events.
    pub fn queue(&self) -> &EventQueue<M::Event> {
        &self.queue
    }

    /// Returns the queue of pending events, to schedule from outside.
    pub fn queue_mut(&mut self) -> &mut EventQueue<M::Event> {
        &mut self.queue
    }

    /// Returns the machine and the queue, to call a function of the machine that schedules events.
    pub fn parts_mut(&mut self) -> (&mut M, &mut EventQueue<M::Event>) {
        (&mut self.machine, &mut self.queue)
    }
}
