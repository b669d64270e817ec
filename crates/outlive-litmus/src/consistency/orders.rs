//! Enumeration of orders, and cycles of small relations.

/// Returns all orders of `items`.
pub(super) fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
    let mut orders = vec![Vec::new()];
    for &item in items {
        let insert = |order: &Vec<T>| {
            let order = order.clone();
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, item);
                longer
            })
        };
        orders = orders.iter().flat_map(insert).collect();
    }
    orders
}

/// Returns one choice from each of `lists`, in all ways.
pub(super) fn choices<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |chosen, list| {
        let extend = |one: &Vec<T>| {
            let one = one.clone();
            { list.iter() }.map(move |item| [&one[..], std::slice::from_ref(item)].concat())
        };
        chosen.iter().flat_map(extend).collect()
    })
}

/// A relation on the numbers below 64: for each number, the set of its successors, one bit each.
#[derive(Clone, Debug)]
pub(super) struct Relation(Vec<u64>);

impl Relation {
    /// Returns the empty relation on the numbers below `size`.
    pub(super) fn new(size: usize) -> Self {
        assert!(size <= 64, "relations have at most 64 elements");
        Self(vec![0; size])
    }

    /// Adds a pair.
    pub(super) fn add(&mut self, from: usize, to: usize) {
        self.0[from] |= 1 << to;
    }

    /// Returns whether the pair is in it.
    pub(super) fn has(&self, from: usize, to: usize) -> bool {
        self.0[from] >> to & 1 == 1
    }

    /// Makes it transitive.
    pub(super) fn close(mut self) -> Self {
        for middle in 0..self.0.len() {
            for from in 0..self.0.len() {
                if self.has(from, middle) {
                    self.0[from] |= self.0[middle];
                }
            }
        }
        self
    }

    /// Returns whether it has no cycle.
    pub(super) fn is_acyclic(&self) -> bool {
        let closed = self.clone().close();
        (0..self.0.len()).all(|it| !closed.has(it, it))
    }
}

impl Relation {
    /// Returns the relation of `pairs` on the numbers below `size`.
    pub(super) fn of(size: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut relation = Self::new(size);
        for (from, to) in pairs {
            relation.add(from, to);
        }
        relation
    }
}
