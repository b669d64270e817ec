//! Breadth-first search of every state that a small machine can reach.

use core::fmt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::check::Claims;
use super::fingerprint::Fingerprinter;
use super::machine::Machine;
use super::payload::Freshness;
use super::trace::{Counterexample, Step};
use super::violation::Violation;
use super::world::{Rules, Shape, World};

/// The parameters of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// The machine.
    pub shape: Shape,
    /// How many accesses and evictions each node asks for; `None`: any number, in any order.
    pub budget: Option<u8>,
    /// Whether states that differ only in the nodes' names count once.
    pub symmetric: bool,
    /// The claims to check.
    pub claims: Claims,
    /// The search ends without a verdict when it has found this many states.
    pub most_states: usize,
}

/// The statistics of a search that found no violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps from one state to another, whether that was new or not.
    pub transitions: usize,
    /// The largest distance of a state from the initial one, in steps.
    pub depth: usize,
    /// States in which nothing is under way.
    pub quiet: usize,
    /// Whether these are all states. If not, `most_states` was too small, and the search has not
    /// checked that deliveries come to an end.
    pub complete: bool,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = match self.complete {
            true => "all of them",
            false => "NOT ALL",
        };
        write!(
            f,
            "{} states ({} quiet), {} transitions, depth {}, {all}",
            self.states, self.quiet, self.transitions, self.depth
        )
    }
}

/// A hasher that returns the fingerprint itself.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

/// The states found so far.
struct Met {
    numbers: HashMap<u128, u32, BuildHasherDefault<AsItIs>>,
    /// For each state, the state from which it was found first, and the index of the choice there.
    came_from: Vec<(u32, u16)>,
    /// Deliveries, as pairs of state numbers.
    deliveries: Vec<(u32, u32)>,
}

impl Search {
    /// Explores every state that can be reached under `rules`. The claims must hold in each state,
    /// and once no core asks for anything more, every order of deliveries must lead to quiet.
    ///
    /// # Errors
    /// Returns the shortest path to a violation.
    ///
    /// ```
    /// use outlive_machine::protocol::Tables;
    /// use outlive_machine::search::{Claims, Rules, Search, Shape};
    ///
    /// let rules = Rules::strict(Tables::mesi());
    /// let shape = Shape { nodes: 2, lines: 1, capacity: 1 };
    /// let claims = Claims::All;
    /// let search = Search { shape, budget: None, symmetric: true, claims, most_states: 1 << 20 };
    /// let explored = search.run(&rules).expect("two nodes are coherent");
    /// assert!(explored.complete && explored.states > 100);
    /// ```
    pub fn run(&self, rules: &Rules) -> Result<Explored, Box<Counterexample>> {
        let mut fingerprints = Fingerprinter::new(self.shape.nodes, self.symmetric);
        let start = World::<Freshness>::new(self.shape, self.budget);
        let exploration = Exploration {
            start: &start,
            rules,
            claims: self.claims,
            most_states: self.most_states,
        };
        exploration.run(|world| fingerprints.of(world))
    }
}

/// An exploration of any machine.
pub(super) struct Exploration<'a, M: Machine> {
    /// The initial state.
    pub start: &'a M,
    /// The rules that drive the machine.
    pub rules: &'a M::Rules,
    /// The claims to check.
    pub claims: Claims,
    /// The exploration ends without a verdict when it has found this many states.
    pub most_states: usize,
}

impl<M: Machine> Exploration<'_, M> {
    /// Explores the machine; `fingerprint` identifies states that are already known.
    pub fn run(
        &self,
        mut fingerprint: impl FnMut(&M) -> u128,
    ) -> Result<Explored, Box<Counterexample>> {
        let rules = self.rules;
        let mut met = Met {
            numbers: HashMap::default(),
            came_from: vec![(u32::MAX, 0)],
            deliveries: Vec::new(),
        };
        met.numbers.insert(fingerprint(self.start), 0);
        let mut explored = Explored {
            states: 1,
            transitions: 0,
            depth: 0,
            quiet: 1,
            complete: true,
        };
        let (mut layer, mut next_layer) = (vec![(0u32, self.start.clone())], Vec::new());
        let mut choices = Vec::new();
        'search: while !layer.is_empty() {
            for (number, world) in layer.drain(..) {
                world.list(rules, &mut choices);
                for (which, &choice) in choices.iter().enumerate() {
                    let mut next = world.clone();
                    let fault = |violation| self.explain(&met, number, Some(which), violation);
                    next.take(rules, choice).map_err(fault)?;
                    explored.transitions += 1;
                    let new = u32::try_from(met.came_from.len())
                        .expect("fewer than four thousand million states");
                    let reached = match met.numbers.entry(fingerprint(&next)) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(place) => {
                            place.insert(new);
                            met.came_from.push((number, which as u16));
                            next.judge(rules, self.claims)
                                .map_err(|violation| self.explain(&met, new, None, violation))?;
                            next.settle();
                            explored.quiet += usize::from(next.is_quiet());
                            next_layer.push((new, next));
                            new
                        }
                    };
                    if M::follows(choice) {
                        met.deliveries.push((number, reached));
                    }
                    if met.came_from.len() >= self.most_states {
                        explored.complete = false;
                        break 'search;
                    }
                }
            }
            explored.depth += usize::from(!next_layer.is_empty());
            std::mem::swap(&mut layer, &mut next_layer);
        }
        explored.states = met.came_from.len();
        if explored.complete
            && let Some(endless) = endless(met.came_from.len(), &met.deliveries)
        {
            return Err(self.explain(&met, endless, None, Violation::NoEnd));
        }
        Ok(explored)
    }

    /// Returns the path to a state, and to its choice `last` if the violation occurs in that step.
    fn explain(
        &self,
        met: &Met,
        state: u32,
        last: Option<usize>,
        violation: Violation,
    ) -> Box<Counterexample> {
        let mut path: Vec<usize> = last.into_iter().collect();
        let mut at = state;
        while at != 0 {
            let (from, which) = met.came_from[at as usize];
            path.push(usize::from(which));
            at = from;
        }
        let mut world = self.start.clone();
        let (mut choices, mut steps) = (Vec::new(), Vec::new());
        for which in path.into_iter().rev() {
            world.list(self.rules, &mut choices);
            let (step, _) = Step::take(&mut world, self.rules, choices[which]);
            steps.push(step);
            world.settle();
        }
        Box::new(Counterexample { violation, steps })
    }
}

/// Returns the first state from which some order of deliveries never ends, if there is one. Counts
/// back from the states without deliveries: a state is settled when all successors of its
/// deliveries are settled.
fn endless(states: usize, deliveries: &[(u32, u32)]) -> Option<u32> {
    let mut open = vec![0u32; states];
    let mut begin = vec![0u32; states + 1];
    for &(from, to) in deliveries {
        open[from as usize] += 1;
        begin[to as usize + 1] += 1;
    }
    for place in 0..states {
        begin[place + 1] += begin[place];
    }
    let mut fill = begin.clone();
    let mut sources = vec![0u32; deliveries.len()];
    for &(from, to) in deliveries {
        sources[fill[to as usize] as usize] = from;
        fill[to as usize] += 1;
    }
    let mut settled: Vec<u32> = (0..states as u32)
        .filter(|&state| open[state as usize] == 0)
        .collect();
    while let Some(state) = settled.pop() {
        for &source in &sources[begin[state as usize] as usize..begin[state as usize + 1] as usize]
        {
            open[source as usize] -= 1;
            if open[source as usize] == 0 {
                settled.push(source);
            }
        }
    }
    open.iter()
        .position(|&open| open > 0)
        .map(|state| state as u32)
}

#[cfg(test)]
mod tests {
    use super::endless;

    #[test]
    fn a_cycle_is_endless_and_so_is_what_leads_to_it() {
        assert_eq!(endless(3, &[(0, 1), (1, 2)]), None);
        assert_eq!(endless(3, &[(0, 1), (1, 0), (1, 2)]), Some(0));
        assert_eq!(endless(4, &[(0, 3), (0, 1), (1, 2), (2, 1)]), Some(0));
        assert_eq!(endless(4, &[(0, 3), (2, 1), (1, 2), (1, 3)]), Some(1));
    }
}
