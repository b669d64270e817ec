//! Conditions on differences of integers, decided exactly.
//!
//! A constraint `a - b <= n` is an edge from `b` to `a` of length `n`. A set of constraints has a
//! solution in the integers if and only if the graph has no cycle of negative length; the lengths
//! of the shortest paths are then a solution.

/// A variable: the value of an object, or [`ZERO`].
pub(super) type Variable = usize;

/// The variable whose value is 0. The object `i` is the variable `i + 1`.
pub(super) const ZERO: Variable = 0;

/// A condition without negations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Formula {
    /// `plus - minus <= bound`.
    Constraint {
        plus: Variable,
        minus: Variable,
        bound: i128,
    },
    /// All conditions are true.
    All(Vec<Self>),
    /// At least one condition is true.
    Any(Vec<Self>),
}

impl Formula {
    /// Returns the condition that is true, or the one that is false.
    pub fn constant(truth: bool) -> Self {
        match truth {
            true => Self::All(Vec::new()),
            false => Self::Any(Vec::new()),
        }
    }
}

/// The maximum number of choices that the searches of a proof make.
pub(super) const MAX_CHOICES: u32 = 500_000;

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// The values of the variables from 1 on.
    Solution(Vec<i128>),
    NoSolution,
    /// The searches made [`MAX_CHOICES`] choices.
    GaveUp,
}

/// Searches for values that make all `formulas` true. `variables` is the number of variables, with
/// [`ZERO`], and `choices` the number of choices so far.
pub(super) fn search(formulas: &[Formula], variables: usize, choices: &mut u32) -> Search {
    let paths = Paths {
        variables,
        lengths: vec![None; variables * variables],
    };
    let found = choose(formulas.iter().collect(), Vec::new(), paths, choices);
    match found {
        Some(solution) => Search::Solution(solution),
        None if *choices >= MAX_CHOICES => Search::GaveUp,
        None => Search::NoSolution,
    }
}

/// Adds the constraints of `all`, then those of one part of each of `open`.
fn choose<'f>(
    mut all: Vec<&'f Formula>,
    mut open: Vec<&'f [Formula]>,
    mut paths: Paths,
    choices: &mut u32,
) -> Option<Vec<i128>> {
    while let Some(formula) = all.pop() {
        match formula {
            Formula::Constraint { plus, minus, bound } => {
                if !paths.add(*minus, *plus, *bound) {
                    return None;
                }
            }
            Formula::All(parts) => all.extend(parts),
            Formula::Any(parts) => open.push(parts),
        }
    }
    let Some(parts) = open.pop() else {
        return Some(paths.solution());
    };
    for part in parts {
        *choices += 1;
        if *choices >= MAX_CHOICES {
            return None;
        }
        let found = choose(vec![part], open.clone(), paths.clone(), choices);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The lengths of the shortest paths between variables.
#[derive(Clone)]
struct Paths {
    variables: usize,
    /// By start and end; `None` if there is no path.
    lengths: Vec<Option<i128>>,
}

impl Paths {
    fn length(&self, from: Variable, to: Variable) -> Option<i128> {
        match from == to {
            true => Some(0),
            false => self.lengths[from * self.variables + to],
        }
    }

    /// Adds an edge. Returns whether there is still no cycle of negative length.
    fn add(&mut self, from: Variable, to: Variable, length: i128) -> bool {
        if self.length(to, from).is_some_and(|back| back + length < 0) {
            return false;
        }
        for a in 0..self.variables {
            let Some(before) = self.length(a, from) else {
                continue;
            };
            for b in 0..self.variables {
                let Some(after) = self.length(to, b) else {
                    continue;
                };
                let through = before + length + after;
                let shortest = self.length(a, b).map_or(through, |it| it.min(through));
                self.lengths[a * self.variables + b] = Some(shortest);
            }
        }
        true
    }

    /// Returns a solution: the lengths of the shortest paths from a start with edges of length 0 to
    /// all variables, less that of [`ZERO`].
    fn solution(&self) -> Vec<i128> {
        let value = |to: Variable| {
            let lengths = (0..self.variables).filter_map(|from| self.length(from, to));
            lengths.min().unwrap_or(0)
        };
        (1..self.variables)
            .map(|it| value(it) - value(ZERO))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_most(plus: Variable, minus: Variable, bound: i128) -> Formula {
        Formula::Constraint { plus, minus, bound }
    }

    #[test]
    fn cycles_of_negative_length_have_no_solution() {
        let x_before_y = at_most(1, 2, -1);
        let y_before_x = at_most(2, 1, 0);
        assert_eq!(
            search(&[x_before_y.clone(), y_before_x.clone()], 3, &mut 0),
            Search::NoSolution
        );
        let either = Formula::Any(vec![y_before_x.clone(), at_most(2, ZERO, 7)]);
        let Search::Solution(values) = search(&[x_before_y, either], 3, &mut 0) else {
            panic!("x < y <= 7 has a solution");
        };
        assert!(values[0] < values[1] && values[1] <= 7, "{values:?}");
        assert_eq!(
            search(&[Formula::constant(false)], 1, &mut 0),
            Search::NoSolution
        );
        assert_eq!(
            search(&[Formula::constant(true)], 1, &mut 0),
            Search::Solution(vec![])
        );
    }

    /// All conditions of three constraints on two variables with bounds from -2 to 2 have a
    /// solution if and only if they have one from -6 to 6.
    #[test]
    fn solutions_are_those_of_an_enumeration() {
        let mut constraints = Vec::new();
        for (plus, minus) in [(1, 2), (2, 1), (1, 0), (0, 1), (2, 0), (0, 2)] {
            for bound in [-2, 0, 1] {
                constraints.push(at_most(plus, minus, bound));
            }
        }
        let holds = |values: [i128; 3], it: &Formula| match it {
            Formula::Constraint { plus, minus, bound } => values[*plus] - values[*minus] <= *bound,
            _ => unreachable!("all are constraints"),
        };
        for a in &constraints {
            for b in &constraints {
                for c in &constraints {
                    let all = [a.clone(), b.clone(), c.clone()];
                    let sound = |x, y| all.iter().all(|it| holds([0, x, y], it));
                    let expected = (-6..=6).any(|x| (-6..=6).any(|y| sound(x, y)));
                    match search(&all, 3, &mut 0) {
                        Search::Solution(found) => assert!(sound(found[0], found[1]), "{all:?}"),
                        other => assert!(!expected && other == Search::NoSolution, "{all:?}"),
                    }
                }
            }
        }
    }
}
