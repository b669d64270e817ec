//! Simulated annealing of a placement, as PARSEC's `canneal`.
//!
//! Elements of a netlist have locations on a chip. Threads exchange the locations of two random
//! elements if that makes the wires shorter, or also if it does not, with a chance that falls with
//! the temperature. There are no locks. As in the original, an exchange takes out the location of
//! the element with the lower number by a compare-and-exchange (the location is then *out*),
//! replaces that of the other element by another compare-and-exchange, and gives the first element
//! the other's old location by a plain store. Costs are computed from the current locations of the
//! neighbours, which may change at any time. Between temperatures there is a barrier; at the end
//! the threads add up the wires of a sample of the elements.
//!
//! Different from the original: a thread that finds an element's location out retries only 64
//! times, and then gives up the move (of a neighbour: leaves that wire out of the cost), so that no
//! thread waits forever for a thread that died in an exchange. A wire between the two elements is
//! not counted, so that costs add up with one thread. The generator of random numbers has one word
//! of state (the original's 624). Netlists are drawn: one to three drivers for an element.
//!
//! Private are the generator (a draw reads and writes its word) and the counters of good and bad
//! moves. Instructions that access no memory: 5 for a draw with its range, 11 for a neighbour (two
//! distances to it and the loop), 30 for the exponential function, 8 for a move (bounds,
//! temperature, the choice).
//!
//! Checked: the placement is a permutation of the locations; its parity is that of the number of
//! exchanges; the length of the wires that the threads added up is that of the placement; with one
//! thread, the placement is that of a plain program, and the costs of the exchanges add up.

mod anneal;
mod netlist;

use std::sync::Arc;

use self::anneal::{Layout, Thread};
use self::netlist::{Netlist, accepts, another};
use super::combining::Combining;
use outlive_machine::engine::Random;
use outlive_machine::program::{Allocator, Cpu, Origin, Scale, Word, Workload};

/// canneal's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Canneal {
    /// Elements of the netlist.
    pub elements: u32,
    /// Moves that are tried at each temperature, by all threads together.
    pub moves: u64,
    /// The first temperature. Each following one is lower by a third.
    pub temperature: f64,
    /// The number of temperatures.
    pub steps: u32,
    /// The seed of the netlist and the moves.
    pub seed: u64,
}

impl Canneal {
    /// Returns the parameters at a scale. Except for tests, the netlist and the temperatures are
    /// those of `simmedium`.
    pub fn at(scale: Scale) -> Self {
        let (elements, moves, steps) = match scale {
            Scale::Test => (120, 400, 6),
            Scale::Study => (200_000, 4_000, 64),
            Scale::Tenfold => (200_000, 40_000, 64),
            Scale::Full => (200_000, 1_000_000, 64),
        };
        Self {
            elements,
            moves,
            temperature: 2000.0,
            steps,
            seed: 1,
        }
    }

    /// Returns the workload.
    ///
    /// # Panics
    ///
    /// If there are fewer than two elements.
    pub fn workload(self, threads: usize) -> Workload {
        self.build(threads, true)
    }

    /// Returns the workload; without `care`, it exchanges locations by plain loads and stores.
    pub(super) fn build(self, threads: usize, care: bool) -> Workload {
        assert!(
            self.elements > 1,
            "an exchange needs at least 2 elements, not {}",
            self.elements
        );
        let netlist = Netlist::new(self.elements, self.seed);
        let mut memory = Allocator::new();
        let layout = lay_out(&mut memory, &netlist, threads);
        Workload::new(
            "canneal",
            threads,
            memory,
            origin(),
            move |cpu: &mut Cpu<'_>| {
                Thread::new(layout, self, cpu, care).run(cpu);
            },
        )
        .with_check({
            let netlist = Arc::new(netlist);
            move |memory| self.check(&netlist, layout, threads, memory)
        })
    }

    /// Returns the number of moves that a thread tries at each temperature.
    fn moves_of(self, threads: usize, thread: usize) -> u64 {
        let bound = |thread: usize| self.moves * thread as u64 / threads as u64;
        bound(thread + 1) - bound(thread)
    }

    /// Returns the elements whose wires to drivers are added up at the end: all if they are few.
    fn sample(self) -> impl Iterator<Item = u32> {
        (0..self.elements).step_by((self.elements / 4096).max(1) as usize)
    }

    fn random_of(self, thread: usize) -> Random {
        Random::new(self.seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9))
    }

    fn check(
        self,
        netlist: &Netlist,
        layout: Layout,
        threads: usize,
        memory: &dyn Fn(Word) -> u64,
    ) -> Result<(), String> {
        let mut placement = Vec::with_capacity(self.elements as usize);
        let mut taken = vec![None; self.elements as usize];
        for element in 0..self.elements {
            let location = layout.location_at(memory, element);
            let Some(by) = taken.get_mut(location as usize) else {
                return Err(format!(
                    "element {element} is at location {location:#x}, which does not exist"
                ));
            };
            if let Some(other) = by.replace(element) {
                return Err(format!(
                    "elements {other} and {element} are both at location {location}"
                ));
            }
            placement.push(location as u32);
        }
        let exchanges: u64 = layout.exchanges.all(memory).iter().sum();
        if parity(&placement) ^ parity(&netlist.placement) != (exchanges % 2 == 1) {
            return Err(format!(
                "{exchanges} exchanges cannot lead from the first placement to the last"
            ));
        }
        let sum: i64 = self
            .sample()
            .map(|element| netlist.cost_of(&placement, element))
            .sum();
        let found = layout.cost.at(memory, 0);
        if sum != found {
            return Err(format!(
                "the wires of the sample have the length {sum}, but the threads found {found}"
            ));
        }
        if threads == 1 {
            let (right, exchanged) = self.plain(netlist);
            if let Some(element) =
                (0..right.len()).find(|&element| right[element] != placement[element])
            {
                return Err(format!(
                    "element {element} is at location {}; it should be at {}",
                    placement[element], right[element],
                ));
            }
            let [before, cost] =
                [&netlist.placement, &placement].map(|placement| netlist.cost(placement));
            let sum = layout.saved.at(memory, 0);
            if exchanged != exchanges || before + sum != cost {
                return Err(format!(
                    "{exchanges} exchanges cost {sum} in total and change the cost from {before} \
                     to {cost}; there should be {exchanged} exchanges"
                ));
            }
        }
        Ok(())
    }

    /// Anneals with one thread in plain memory. Returns the placement and the number of exchanges.
    fn plain(self, netlist: &Netlist) -> (Vec<u32>, u64) {
        let mut placement = netlist.placement.clone();
        let mut random = self.random_of(0);
        let mut exchanges = 0;
        let mut temperature = self.temperature;
        let mut b = another(&mut random, self.elements, u32::MAX);
        for _ in 0..self.steps {
            temperature /= 1.5;
            for _ in 0..self.moves {
                let a = b;
                b = another(&mut random, self.elements, a);
                let more = netlist.exchange_cost(&placement, a, b);
                if accepts(more, temperature, &mut random) {
                    placement.swap(a as usize, b as usize);
                    exchanges += 1;
                }
            }
        }
        (placement, exchanges)
    }
}

/// Returns whether the permutation is made by an odd number of exchanges.
fn parity(permutation: &[u32]) -> bool {
    let mut seen = vec![false; permutation.len()];
    let mut odd = false;
    for start in 0..permutation.len() {
        let mut length = 0u32;
        let mut at = start;
        while !seen[at] {
            seen[at] = true;
            at = permutation[at] as usize;
            length += 1;
        }
        odd ^= length > 0 && length.is_multiple_of(2);
    }
    odd
}

fn lay_out(memory: &mut Allocator, netlist: &Netlist, threads: usize) -> Layout {
    let mut wires = Vec::new();
    let mut elements = Vec::new();
    for ((fan_in, fan_out), &location) in netlist
        .fan_in
        .iter()
        .zip(&netlist.fan_out)
        .zip(&netlist.placement)
    {
        let mut list = |ends: &Vec<u32>| {
            let first = wires.len() as u64;
            wires.extend(ends.iter().map(|&end| u64::from(end)));
            [first, wires.len() as u64]
        };
        let ([in_first, in_end], [out_first, out_end]) = (list(fan_in), list(fan_out));
        elements.extend([
            in_first,
            in_end,
            out_first,
            out_end,
            u64::from(location),
            0,
            0,
            0,
        ]);
    }
    let locations: Vec<u64> = (netlist.locations.iter())
        .map(|&(column, row)| u64::from(column) << 32 | u64::from(row))
        .collect();
    Layout {
        barrier: Combining::new(memory, threads),
        elements: memory.array_of(&elements),
        wires: memory.array_of(&wires),
        locations: memory.array_of(&locations),
        cost: memory.array(1),
        exchanges: memory.spread(threads as u64),
        saved: memory.spread(threads as u64),
    }
}

fn origin() -> Origin {
    Origin {
        program: "PARSEC canneal",
        stores: Some(0.11),
        shared_stores: Some(0.44),
        source: "recorded with 4 threads and a small input",
        differs: Some(
            "the share of stores in ours is 7.2%: only an accepted move stores locations, and here \
             34% of all moves are accepted, over 64 temperatures; a small input has few \
             temperatures, all hot: with 4 threads and the input of tests 99% are accepted, and \
             11.4% of the accesses are stores",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parity_of_a_permutation_is_that_of_its_exchanges() {
        let mut random = Random::new(3);
        let mut permutation: Vec<u32> = (0..20).collect();
        for exchanges in 0..100 {
            assert_eq!(parity(&permutation), exchanges % 2 == 1);
            let a = another(&mut random, 20, u32::MAX);
            let b = another(&mut random, 20, a);
            permutation.swap(a as usize, b as usize);
        }
    }

    /// The cost of an exchange is the difference of the costs of the two placements.
    #[test]
    fn costs_add_up() {
        let netlist = Netlist::new(30, 5);
        let mut placement = netlist.placement.clone();
        let mut random = Random::new(4);
        for _ in 0..1000 {
            let a = another(&mut random, 30, u32::MAX);
            let b = another(&mut random, 30, a);
            let (before, more) = (
                netlist.cost(&placement),
                netlist.exchange_cost(&placement, a, b),
            );
            placement.swap(a as usize, b as usize);
            assert_eq!(netlist.cost(&placement), before + more);
        }
    }
}
