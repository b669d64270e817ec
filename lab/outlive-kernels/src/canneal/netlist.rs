//! A netlist to place, and the cost of a placement.

use outlive_machine::engine::Random;

/// Elements, the wires between them, and a chip with a location for each element.
#[derive(Clone, Debug)]
pub(super) struct Netlist {
    /// The drivers of each element.
    pub(super) fan_in: Vec<Vec<u32>>,
    /// The elements that each element drives.
    pub(super) fan_out: Vec<Vec<u32>>,
    /// The column and row of each location on the chip.
    pub(super) locations: Vec<(u32, u32)>,
    /// The initial location of each element.
    pub(super) placement: Vec<u32>,
}

impl Netlist {
    /// Draws a netlist of `elements` elements, each driven by one to three others.
    pub(super) fn new(elements: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut fan_out = vec![Vec::new(); elements as usize];
        let mut fan_in = Vec::with_capacity(elements as usize);
        for element in 0..elements {
            let drivers: Vec<u32> = (0..=random.below(3))
                .map(|_| another(&mut random, elements, element))
                .collect();
            for &driver in &drivers {
                fan_out[driver as usize].push(element);
            }
            fan_in.push(drivers);
        }
        let columns = f64::from(elements).sqrt().ceil() as u32;
        let mut placement: Vec<u32> = (0..elements).collect();
        for place in (1..elements).rev() {
            placement.swap(place as usize, random.below(u64::from(place) + 1) as usize);
        }
        Self {
            fan_in,
            fan_out,
            locations: (0..elements)
                .map(|location| (location % columns, location / columns))
                .collect(),
            placement,
        }
    }

    /// Returns the length of all wires.
    pub(super) fn cost(&self, placement: &[u32]) -> i64 {
        (0..placement.len() as u32)
            .map(|element| self.cost_of(placement, element))
            .sum()
    }

    /// Returns the length of the wires to the drivers of an element.
    pub(super) fn cost_of(&self, placement: &[u32], element: u32) -> i64 {
        let at = |element: u32| self.locations[placement[element as usize] as usize];
        let drivers = self.fan_in[element as usize].iter();
        drivers
            .map(|&driver| distance(at(element), at(driver)))
            .sum()
    }

    /// Returns the increase in cost when `element` moves from its location to that of `other`. A
    /// wire between the two keeps its length, because `other` moves the opposite way.
    fn moved(&self, placement: &[u32], element: u32, other: u32) -> i64 {
        let at = |element: u32| self.locations[placement[element as usize] as usize];
        let (from, to) = (at(element), at(other));
        let ends = self.fan_in[element as usize]
            .iter()
            .chain(&self.fan_out[element as usize]);
        let ends = ends.filter(|end| **end != other);
        ends.map(|&end| distance(to, at(end)) - distance(from, at(end)))
            .sum()
    }

    /// Returns the cost of exchanging the two.
    pub(super) fn exchange_cost(&self, placement: &[u32], a: u32, b: u32) -> i64 {
        self.moved(placement, a, b) + self.moved(placement, b, a)
    }
}

/// Draws an element other than `not`.
pub(super) fn another(random: &mut Random, elements: u32, not: u32) -> u32 {
    loop {
        let element = random.below(u64::from(elements)) as u32;
        if element != not {
            return element;
        }
    }
}

/// Returns the distance along columns and rows.
pub(super) fn distance(a: (u32, u32), b: (u32, u32)) -> i64 {
    i64::from(a.0.abs_diff(b.0)) + i64::from(a.1.abs_diff(b.1))
}

/// Returns whether an exchange is made. One that does not reduce the cost is accepted with a chance
/// that falls with its cost and rises with the temperature.
pub(super) fn accepts(more: i64, temperature: f64, random: &mut Random) -> bool {
    if more < 0 {
        return true;
    }
    let chance = (-(more as f64) / temperature).exp();
    chance > (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}
