//! A thread that anneals.

use super::super::combining::Combining;
use super::super::private::Private;
use super::Canneal;
use super::netlist::{accepts, another, distance};
use outlive_machine::engine::Random;
use outlive_machine::program::{Array, Cpu, Pending, Update, Word};

/// The layout of shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) barrier: Combining,
    /// A line for each element: the bounds of its drivers among the wires, the bounds of the
    /// elements that it drives, and its location.
    pub(super) elements: Array<u64>,
    /// Numbers of elements.
    pub(super) wires: Array<u64>,
    /// The column (upper half) and row of each location.
    pub(super) locations: Array<u64>,
    /// The length of the wires of the sample at the end.
    pub(super) cost: Array<i64>,
    /// Exchanges of each thread.
    pub(super) exchanges: Array<u64>,
    /// The cost of the exchanges of each thread, with the neighbours' locations that it read.
    pub(super) saved: Array<i64>,
}

/// The location is out: a thread is exchanging it.
const OUT: u64 = u64::MAX;
/// The number of times that a location that is out is read again.
const TRIES: u32 = 64;

const RANDOM: Private = Private(0);
const COUNTERS: Private = Private(64);

impl Layout {
    pub(super) fn location_at(self, memory: &dyn Fn(Word) -> u64, element: u32) -> u64 {
        self.elements.at(memory, u64::from(element) * 8 + 4)
    }

    fn location(self, element: u32) -> Word {
        self.elements.word(u64::from(element) * 8 + 4)
    }
}

pub(super) struct Thread {
    layout: Layout,
    parameters: Canneal,
    random: Random,
    care: bool,
}

/// The bounds of an element's wires, whose loads are in progress.
struct Ends {
    bounds: [Pending; 4],
}

impl Thread {
    pub(super) fn new(layout: Layout, parameters: Canneal, cpu: &Cpu<'_>, care: bool) -> Self {
        Self {
            layout,
            parameters,
            random: parameters.random_of(cpu.thread()),
            care,
        }
    }

    pub(super) fn run(mut self, cpu: &mut Cpu<'_>) {
        let moves = self.parameters.moves_of(cpu.threads(), cpu.thread());
        let (mut exchanges, mut saved) = (0, 0);
        let mut temperature = self.parameters.temperature;
        let mut b = self.draw_element(cpu, u32::MAX);
        for _ in 0..self.parameters.steps {
            temperature /= 1.5;
            for _ in 0..moves {
                // One of the two stays, so it is in the cache.
                let a = b;
                b = self.draw_element(cpu, a);
                cpu.compute(8);
                let Some(more) = self.exchange_cost(cpu, a, b) else {
                    continue;
                };
                if self.accepts(cpu, more, temperature) && self.exchange(cpu, a, b) {
                    COUNTERS.load(cpu, 0..1);
                    COUNTERS.store(cpu, 0..1);
                    exchanges += 1;
                    saved += more;
                }
            }
            self.layout.barrier.meet(cpu);
        }
        let thread = cpu.thread() as u64;
        self.layout.exchanges.set(cpu, thread, exchanges);
        self.layout.saved.set(cpu, thread, saved);
        self.add_up(cpu);
        self.layout.barrier.meet(cpu);
    }

    fn draw_element(&mut self, cpu: &mut Cpu<'_>, not: u32) -> u32 {
        RANDOM.load(cpu, 0..1);
        cpu.compute(5);
        RANDOM.store(cpu, 0..1);
        another(&mut self.random, self.parameters.elements, not)
    }

    fn accepts(&mut self, cpu: &mut Cpu<'_>, more: i64, temperature: f64) -> bool {
        if more >= 0 {
            RANDOM.load(cpu, 0..1);
            cpu.compute(5 + 30);
            RANDOM.store(cpu, 0..1);
        }
        accepts(more, temperature, &mut self.random)
    }

    /// Returns the cost of exchanging the two; `None` if the location of one stays out.
    fn exchange_cost(&self, cpu: &mut Cpu<'_>, a: u32, b: u32) -> Option<i64> {
        // Loads that do not depend on one another are begun together, as far as an out-of-order
        // core would run ahead.
        let locations = [a, b].map(|element| cpu.load_later(self.layout.location(element)));
        let ends = [a, b].map(|element| self.ask_ends(cpu, element));
        let a_location = self.seen(cpu, a, locations[0])?;
        let b_location = self.seen(cpu, b, locations[1])?;
        let places =
            [a_location, b_location].map(|location| self.layout.locations.ask(cpu, location));
        let [a_place, b_place] = places.map(|place| unpack(cpu.value(place)));
        let [a_ends, b_ends] = ends;
        let more = self.moved(cpu, &a_ends, b, a_place, b_place);
        Some(more + self.moved(cpu, &b_ends, a, b_place, a_place))
    }

    fn ask_ends(&self, cpu: &mut Cpu<'_>, element: u32) -> Ends {
        let first = u64::from(element) * 8;
        Ends {
            bounds: [0, 1, 2, 3].map(|word| self.layout.elements.ask(cpu, first + word)),
        }
    }

    /// Returns the change in cost of one element's wires, without those to `other`, if the element
    /// moves from one position to another.
    fn moved(
        &self,
        cpu: &mut Cpu<'_>,
        ends: &Ends,
        other: u32,
        from: (u32, u32),
        to: (u32, u32),
    ) -> i64 {
        let [in_first, in_end, out_first, out_end] = ends.bounds.map(|bound| cpu.value(bound));
        let mut more = 0;
        for (first, end) in [(in_first, in_end), (out_first, out_end)] {
            self.for_each_end(cpu, first, end, |end, place| {
                if end != other {
                    more += distance(to, place) - distance(from, place);
                }
            });
        }
        more
    }

    /// Calls `each` with the other ends of these wires and their positions; loads eight at a time.
    fn for_each_end(
        &self,
        cpu: &mut Cpu<'_>,
        first: u64,
        end: u64,
        mut each: impl FnMut(u32, (u32, u32)),
    ) {
        for chunk in (first..end).step_by(8) {
            let count = (end - chunk).min(8) as usize;
            let mut wires = [None; 8];
            for (wire, number) in wires.iter_mut().zip(chunk..end) {
                *wire = Some(self.layout.wires.ask(cpu, number));
            }
            let ends = wires.map(|wire| wire.map_or(0, |wire| cpu.value(wire) as u32));
            let mut locations = [None; 8];
            for (location, &end) in locations.iter_mut().zip(&ends[..count]) {
                *location = Some(cpu.load_later(self.layout.location(end)));
            }
            let mut places = [None; 8];
            for ((place, location), &end) in places
                .iter_mut()
                .zip(locations.into_iter().flatten())
                .zip(&ends)
            {
                let location = self.seen(cpu, end, location);
                *place = location.map(|location| self.layout.locations.ask(cpu, location));
            }
            for (place, end) in places.into_iter().zip(ends) {
                if let Some(place) = place {
                    cpu.compute(11);
                    each(end, unpack(cpu.value(place)));
                }
            }
        }
    }

    /// Returns the location that was loaded; reads it again while it is out, but not forever.
    fn seen(&self, cpu: &mut Cpu<'_>, element: u32, asked: Pending) -> Option<u64> {
        let mut location = cpu.value(asked);
        for _ in 0..TRIES {
            cpu.compute(1);
            if location != OUT {
                return Some(location);
            }
            location = cpu.load(self.layout.location(element));
        }
        None
    }

    /// Exchanges the locations of the two, unless one stays out.
    fn exchange(&self, cpu: &mut Cpu<'_>, a: u32, b: u32) -> bool {
        let (first, last) = (
            self.layout.location(a.min(b)),
            self.layout.location(a.max(b)),
        );
        if !self.care {
            let [one, other] = cpu.load_all([first, last]);
            cpu.store(last, one);
            cpu.store(first, other);
            return true;
        }
        // The lower number always comes first, so threads do not wait in a cycle.
        let Some(one) = self.replace(cpu, first, OUT) else {
            return false;
        };
        let other = self.replace(cpu, last, one);
        cpu.store(first, other.unwrap_or(one));
        other.is_some()
    }

    /// Replaces a location that is not out by `new`. Returns the old one.
    fn replace(&self, cpu: &mut Cpu<'_>, place: Word, new: u64) -> Option<u64> {
        for _ in 0..TRIES {
            let expected = cpu.load(place);
            cpu.compute(2);
            if expected != OUT
                && cpu.atomic(place, Update::CompareExchange { expected, new }) == expected
            {
                return Some(expected);
            }
        }
        None
    }

    /// Adds the wires to the drivers of this thread's part of the sample to the cost.
    fn add_up(&self, cpu: &mut Cpu<'_>) {
        let (threads, thread) = (cpu.threads() as u64, cpu.thread() as u64);
        let mut cost = 0;
        for element in self
            .parameters
            .sample()
            .skip(thread as usize)
            .step_by(threads as usize)
        {
            let element = u64::from(element);
            let [first, end, location] =
                [0, 1, 4].map(|word| self.layout.elements.ask(cpu, element * 8 + word));
            let location = cpu.value(location);
            let place = self.layout.locations.get(cpu, location);
            let (first, end) = (cpu.value(first), cpu.value(end));
            let here = unpack(place);
            self.for_each_end(cpu, first, end, |_, there| cost += distance(here, there));
        }
        cpu.atomic(self.layout.cost.word(0), Update::Add(cost.cast_unsigned()));
    }
}

fn unpack(place: u64) -> (u32, u32) {
    ((place >> 32) as u32, place as u32)
}
