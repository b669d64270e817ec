//! A machine and its time.

use super::{EventQueue, Time};

/// What a [`Simulation`] runs: state that changes only by events.
pub trait Machine {
    /// What happens: a small plain value that says to which part, and what.
    type Event: Copy;

    /// Handles `event`, which happens `now`, and schedules what follows from it.
    fn handle(&mut self, now: Time, event: Self::Event, queue: &mut EventQueue<Self::Event>);

    /// `event` is probably the next: a large machine may have the host fetch what it will look at. It must change nothing.
    #[inline]
    fn look_ahead(&self, _event: &Self::Event) {}
}

/// A machine with the queue of what is still to happen to it. A clone goes on exactly as the original does.
///
/// The example stands at the [module](crate::engine).
#[derive(Clone, Debug)]
pub struct Simulation<M: Machine> {
    machine: M,
    queue: EventQueue<M::Event>,
    handled: u64,
}

impl<M: Machine> Simulation<M> {
    /// A machine at time zero, to which nothing happens until something is scheduled.
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            queue: EventQueue::new(),
            handled: 0,
        }
    }

    /// Handles the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.handle_next(Time::MAX)
    }

    /// Handles all events up to `limit` (those at `limit` too). Afterwards it is `limit`, and what is scheduled then
    /// happens at `limit` or later. Returns how many there were.
    pub fn run_until(&mut self, limit: Time) -> u64 {
        let before = self.handled;
        while self.handle_next(limit) {}
        self.queue.advance_to(limit);
        self.handled - before
    }

    /// Handles events until there is none; returns how many there were. A machine that always schedules another never ends.
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

    /// What time it is: that of the last event, or the last limit.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// How many events have been handled since the beginning (of the original, in a clone).
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to change it from outside: crash a node of it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What is still to happen.
    pub fn queue(&self) -> &EventQueue<M::Event> {
        &self.queue
    }

    /// What is still to happen, to schedule from outside.
    pub fn queue_mut(&mut self) -> &mut EventQueue<M::Event> {
        &mut self.queue
    }

    /// The machine and the queue at once, to call a function of the machine that schedules.
    pub fn parts_mut(&mut self) -> (&mut M, &mut EventQueue<M::Event>) {
        (&mut self.machine, &mut self.queue)
    }
}
