//! Simulated annealing of a placement, as PARSEC's `canneal`.
//!
//! Elements of a netlist have locations on a chip; threads exchange the locations of two elements, chosen at random, when
//! that makes the wires shorter, or also when it does not, with a chance that falls with the temperature. There are no locks:
//! an element's location is exchanged as in the original: the location of the element with the lower number is taken out by a
//! compare-and-exchange (it is then *out*), that of the other is replaced by another, and the first gets what the other had by
//! a plain store. Costs are computed from whatever the neighbours' locations are meanwhile. Between temperatures there is a
//! barrier; at the end the threads add up the wires of a sample of the elements.
//!
//! Different from the original: who finds an element's location out tries again 64 times only, and then gives up the move
//! (of a neighbour: leaves that wire out of the cost), so that nobody waits for ever for a thread that died in an exchange. A
//! wire between the two elements is not counted, so that costs add up with one thread. The generator of random numbers has
//! one word of state (the original's 624). Netlists are drawn: one to three drivers for an element.
//!
//! Private are the generator (a draw reads and writes its word) and the counters of good and bad moves. Instructions that
//! access no memory: 5 for a draw with its range, 11 for a neighbour (two distances to it and the loop), 30 for the exponential
//! function, 8 for a move (bounds, temperature, the choice).
//!
//! Checked: the placement is a permutation of the locations; its parity is that of the number of exchanges; the length of
//! the wires that the threads added up is that of the placement; with one thread, the placement is that of a plain program, and
//! the costs of the exchanges add up.

mod anneal;
mod netlist;

use std::sync::Arc;

use self::anneal::{Layout, Thread};
use self::netlist::{Netlist, accepts, another};
use super::super::{Allocator, Cpu, Origin, Scale, Word, Workload};
use super::combining::Combining;
use crate::engine::Random;

/// canneal's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Canneal {
    /// Elements of the netlist.
    pub elements: u32,
    /// Moves that are tried at each temperature, of all threads together.
    pub moves: u64,
    /// The first temperature. Each next one is lower by a third.
    pub temperature: f64,
    /// How many temperatures there are.
    pub steps: u32,
    /// Of the netlist and the moves.
    pub seed: u64,
}

impl Canneal {
    /// The parameters at a scale. But for tests, the netlist has the size of `simmedium`, and the temperatures are its.
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

    /// The workload.
    ///
    /// # Panics
    ///
    /// If there are fewer than two elements.
    pub fn workload(self, threads: usize) -> Workload {
        self.build(threads, true)
    }

    /// The workload; or without `care` one that exchanges locations by plain loads and stores.
    pub(super) fn build(self, threads: usize, care: bool) -> Workload {
        assert!(
            self.elements > 1,
            "nothing to exchange with: {} elements",
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

    /// How many moves a thread tries at each temperature.
    fn moves_of(self, threads: usize, thread: usize) -> u64 {
        let bound = |thread: usize| self.moves * thread as u64 / threads as u64;
        bound(thread + 1) - bound(thread)
    }

    /// The elements whose wires to their drivers are added up at the end: all if they are few.
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
                    "element {element} is at location {location:#x}, which there is not"
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
                "the wires of the sample are {sum} long, but the threads found {found}"
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
                    "{exchanges} exchanges cost {sum} together and lead from {before} to {cost}; there should be {exchanged}"
                ));
            }
        }
        Ok(())
    }

    /// Annealing by one thread without simulated memory: the placement, and how many exchanges there were.
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

/// Whether an odd number of exchanges makes the permutation.
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
            "the share of stores in ours is 7.2%: only a move that is accepted stores locations, and here 34% of all moves \
             are, over 64 temperatures; a small input has few temperatures, all hot: with 4 threads and the input of tests \
             99% are, and 11.4% of the accesses are stores",
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

    /// What an exchange costs is the difference of what the placements cost.
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
