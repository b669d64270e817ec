//! The timing wheel against the plainest possible queue, under any mix of near and far events,
//! equal times and limits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use outlive_machine::engine::{Clock, EventQueue, Frequency, Machine, Random, Simulation, Time};
use proptest::prelude::*;

/// The reference: a binary heap of (time, sequence number, event).
#[derive(Clone, Default)]
struct Reference {
    now: u64,
    sequence: u64,
    entries: BinaryHeap<Reverse<(u64, u64, u32)>>,
}

impl Reference {
    fn schedule_at(&mut self, time: u64, event: u32) {
        self.entries.push(Reverse((time, self.sequence, event)));
        self.sequence += 1;
    }

    fn pop_until(&mut self, limit: u64) -> Option<(Time, u32)> {
        let &Reverse((time, _, event)) = self.entries.peek()?;
        if time > limit {
            return None;
        }
        self.entries.pop();
        self.now = time;
        Some((Time::from_picos(time), event))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(u64),
    /// Several events at one instant.
    Burst(u64, u8),
    Pop(u8),
    PopUntil(u64),
    /// Takes the events that are due in this span, and advances the time by it.
    Advance(u64),
    Fork,
}

/// Delays of every order of magnitude: a word from which all but the last few bits are cut off at a
/// random position.
fn delays() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..600u64,
        4 => 0..2_000_000u64,
        2 => (any::<u64>(), 3..64u32).prop_map(|(bits, cut)| bits >> cut),
        1 => (0..62u32, 0..3u64).prop_map(|(bit, off)| (1u64 << bit).saturating_add(off).saturating_sub(1)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => delays().prop_map(Step::Schedule),
        1 => (delays(), any::<u8>()).prop_map(|(delay, times)| Step::Burst(delay, times)),
        4 => (1..12u8).prop_map(Step::Pop),
        3 => delays().prop_map(Step::PopUntil),
        1 => delays().prop_map(Step::Advance),
        1 => Just(Step::Fork),
    ];
    prop::collection::vec(step, 1..200)
}

/// Both queues, always in step.
#[derive(Clone)]
struct Pair {
    wheel: EventQueue<u32>,
    reference: Reference,
    event: u32,
}

impl Pair {
    fn schedule(&mut self, delay: u64) {
        // Such delays can reach the end of time, which is not tested here.
        let Some(time) = self.reference.now.checked_add(delay) else {
            return;
        };
        self.wheel.schedule_at(Time::from_picos(time), self.event);
        self.reference.schedule_at(time, self.event);
        self.event += 1;
    }

    fn pop_until(&mut self, limit: u64) -> Result<bool, TestCaseError> {
        let expected = self.reference.pop_until(limit);
        prop_assert_eq!(self.wheel.pop_until(Time::from_picos(limit)), expected);
        Ok(expected.is_some())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.wheel.len(), self.reference.entries.len());
        prop_assert_eq!(self.wheel.is_empty(), self.reference.entries.is_empty());
        prop_assert_eq!(self.wheel.now().picos(), self.reference.now);
        let next = self
            .reference
            .entries
            .peek()
            .map(|Reverse((time, ..))| Time::from_picos(*time));
        prop_assert_eq!(self.wheel.next_time(), next);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let end = |span: u64| self.reference.now.saturating_add(span);
        match *step {
            Step::Schedule(delay) => self.schedule(delay),
            Step::Burst(delay, times) => (0..times).for_each(|_| self.schedule(delay)),
            Step::Pop(times) => {
                for _ in 0..times {
                    self.pop_until(u64::MAX)?;
                }
            }
            Step::PopUntil(span) => {
                self.pop_until(end(span))?;
            }
            Step::Advance(span) => {
                let limit = end(span);
                while self.pop_until(limit)? {}
                self.wheel.advance_to(Time::from_picos(limit));
                self.reference.now = limit;
            }
            Step::Fork => {}
        }
        self.check()
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        while self.pop_until(u64::MAX)? {}
        self.check()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_wheel_is_the_reference(steps in steps()) {
        let mut pair = Pair { wheel: EventQueue::new(), reference: Reference::default(), event: 0 };
        for (at, step) in steps.iter().enumerate() {
            if matches!(step, Step::Fork) {
                // The clone executes all remaining steps, and the original is not affected.
                let mut fork = pair.clone();
                for step in &steps[at + 1..] {
                    fork.step(step)?;
                }
                fork.drain()?;
            }
            pair.step(step)?;
        }
        pair.drain()?;
    }

    #[test]
    fn a_clock_keeps_time(hertz in 1..=1_000_000_000_000u64, cycle in 0..1_000_000u64, picos in 0..u64::MAX / 2) {
        let clock = Clock::new(Frequency::from_hertz(hertz).unwrap());
        let exact = (u128::from(cycle) * 1_000_000_000_000).div_ceil(u128::from(hertz));
        prop_assert_eq!(u128::from(clock.edge(cycle).picos()), exact);
        prop_assert_eq!(clock.cycle(clock.edge(cycle)), cycle);
        let time = Time::from_picos(picos);
        let next = clock.next_edge(time);
        prop_assert!(next >= time && clock.edge(clock.cycle(time)) <= time);
        prop_assert!(next.picos() - picos < 1_000_000_000_000u64.div_ceil(hertz));
    }
}

/// A machine that schedules what it draws, and remembers all that it handled.
#[derive(Clone)]
struct Wanderer {
    random: Random,
    seen: Vec<(Time, u64)>,
}

impl Machine for Wanderer {
    type Event = u64;
    fn handle(&mut self, now: Time, event: u64, queue: &mut EventQueue<u64>) {
        self.seen.push((now, event));
        for _ in 0..self.random.below(3) {
            queue.schedule(
                Time::from_picos(self.random.below(5_000)),
                self.random.bits(),
            );
        }
        if queue.is_empty() {
            queue.schedule(Time::from_micros(3), event);
        }
    }
}

fn wanderer(seed: u64) -> Simulation<Wanderer> {
    let mut simulation = Simulation::new(Wanderer {
        random: Random::new(seed),
        seen: Vec::new(),
    });
    simulation.queue_mut().schedule(Time::ZERO, 0);
    simulation
}

/// Runs until `events` events were handled, in total.
fn run_to(simulation: &mut Simulation<Wanderer>, events: u64) {
    while simulation.handled() < events {
        assert!(simulation.step());
    }
}

#[test]
fn a_fork_at_any_event_goes_on_as_the_original() {
    let mut whole = wanderer(3);
    run_to(&mut whole, 2_000);
    let mut original = wanderer(3);
    for events in 0..200 {
        run_to(&mut original, events * 10);
        let mut fork = original.clone();
        run_to(&mut fork, 2_000);
        assert_eq!(
            fork.machine().seen,
            whole.machine().seen,
            "forked after {} events",
            events * 10
        );
    }
    assert_ne!(wanderer_seen(4), wanderer_seen(3), "the seed decides");
    assert!(whole.machine().seen.is_sorted_by_key(|(time, _)| *time));
}

fn wanderer_seen(seed: u64) -> Vec<(Time, u64)> {
    let mut simulation = wanderer(seed);
    run_to(&mut simulation, 100);
    simulation.machine().seen.clone()
}

#[test]
fn a_run_in_pieces_is_a_run() {
    let mut whole = wanderer(9);
    whole.run_until(Time::from_micros(40));
    let mut pieces = wanderer(9);
    for nanos in (0..=40_000).step_by(7) {
        pieces.run_until(Time::from_nanos(nanos));
        assert_eq!(pieces.now(), Time::from_nanos(nanos));
    }
    pieces.run_until(Time::from_micros(40));
    assert_eq!(pieces.machine().seen, whole.machine().seen);
    assert_eq!(pieces.handled(), whole.handled());
}

#[test]
fn ten_thousand_at_one_instant_come_in_order_though_each_brings_another() {
    let mut queue = EventQueue::new();
    let instant = Time::from_nanos(77);
    for event in 0..10_000u32 {
        queue.schedule_at(instant, event);
    }
    for event in 0..10_000 {
        assert_eq!(queue.pop(), Some((instant, event)));
        queue.schedule(Time::ZERO, event + 10_000);
    }
    for event in 10_000..20_000 {
        assert_eq!(queue.pop(), Some((instant, event)));
    }
    assert!(queue.is_empty());
}

#[test]
fn the_end_of_time_is_in_reach() {
    let mut queue = EventQueue::new();
    queue.schedule_at(Time::MAX, 'z');
    queue.schedule_at(Time::from_picos(u64::MAX - 1), 'y');
    queue.schedule_at(Time::MAX, 'Z');
    assert_eq!(queue.pop().map(|(_, event)| event), Some('y'));
    assert_eq!(queue.pop(), Some((Time::MAX, 'z')));
    assert_eq!(queue.pop(), Some((Time::MAX, 'Z')));
}

#[test]
#[should_panic(expected = "it is 2 ns and an event is scheduled at 1 ns")]
fn nothing_is_scheduled_in_the_past() {
    let mut queue = EventQueue::new();
    queue.schedule(Time::from_nanos(2), ());
    queue.pop();
    queue.schedule_at(Time::from_nanos(1), ());
}

#[test]
#[should_panic(expected = "time cannot pass until 3 ns while an event is pending at 2 ns")]
fn time_does_not_pass_over_an_event() {
    let mut queue = EventQueue::new();
    queue.schedule(Time::from_nanos(2), ());
    queue.advance_to(Time::from_nanos(3));
}
