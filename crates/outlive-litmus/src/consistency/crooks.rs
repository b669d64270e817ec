//! Levels by the commit tests of Crooks et al.: an order of the transactions exists in which each
//! of them could have read what it read from the states before it.
//!
//! Where Adya looks for cycles, this looks for a witness. The two computations share no code.

use super::history::{History, Version};
use super::orders::permutations;
use crate::level::{Isolation, Level};

/// Returns whether `level` allows the history.
pub fn allows(history: &History, level: Level) -> bool {
    if level.isolation == Isolation::None {
        return true;
    }
    let real_time = match level.real_time {
        true => history.real_time_order(),
        false => Vec::new(),
    };
    let orders = permutations(&history.committed());
    { orders.into_iter() }.any(|order| {
        let at = |it: usize| order.iter().position(|&other| other == it);
        let in_time = real_time.iter().all(|&(from, to)| at(from) < at(to));
        let is_sorted = |writers: &Vec<usize>| writers.is_sorted_by_key(|&it| at(it));
        let has_its_versions = history.objects.iter().all(|it| is_sorted(&it.writers));
        let execution = Execution {
            history,
            order: &order,
        };
        let tested = |at: usize| execution.commits(at, level.isolation, &real_time);
        in_time && has_its_versions && (0..order.len()).all(tested)
    })
}

/// A total order of the committed transactions. State `n` is the one after `n` transactions.
struct Execution<'h> {
    history: &'h History,
    order: &'h [usize],
}

impl Execution<'_> {
    /// Returns the place of the version of `object` in a state.
    fn place(&self, object: usize, state: usize) -> usize {
        let writers = &self.history.objects[object].writers;
        let done = |it: &&usize| writers.contains(it);
        self.order[..state].iter().filter(done).count()
    }

    /// Returns whether `state` has the version. For a count, a version with the same presence
    /// suffices.
    fn has(&self, state: usize, object: usize, version: Version, is_count: bool) -> bool {
        let Some(place) = self.history.place(object, version) else {
            return false;
        };
        let now = self.place(object, state);
        let between = place.min(now) + 1..=place.max(now);
        let changes = || self.history.changes_of_presence(object);
        place == now || is_count && !changes().iter().any(|it| between.contains(it))
    }

    /// Returns whether the transaction at `at` passes the commit test of `isolation`. Its parent
    /// state is state `at`.
    fn commits(&self, at: usize, isolation: Isolation, real_time: &[(usize, usize)]) -> bool {
        let transaction = self.order[at];
        let views = self.history.views(transaction);
        let reads_from = |state: usize, (is_count, view): &(bool, Vec<(usize, Version)>)| {
            { view.iter() }.all(|&(object, it)| self.has(state, object, it, *is_count))
        };
        // At the weak levels, a count may see each object in a different state, as Adya's version
        // sets may.
        let has_read_states = |(is_count, view): &(bool, Vec<(usize, Version)>)| {
            { view.iter() }
                .all(|&(object, it)| (0..=at).any(|state| self.has(state, object, it, *is_count)))
        };
        match isolation {
            Isolation::None | Isolation::ReadUncommitted => true,
            Isolation::ReadCommitted => views.iter().all(has_read_states),
            Isolation::RepeatableRead => { views.iter() }.all(|view| match view.0 {
                true => has_read_states(view),
                false => reads_from(at, view),
            }),
            Isolation::Serializable => views.iter().all(|view| reads_from(at, view)),
            Isolation::Snapshot => (0..=at).any(|state| {
                let is_complete = views.iter().all(|view| reads_from(state, view));
                let between = &self.order[state..at];
                let conflicts = { self.history.objects.iter() }.any(|object| {
                    let wrote = |it: &usize| object.writers.contains(it);
                    wrote(&transaction) && between.iter().any(wrote)
                });
                let is_late = |it| between.contains(&it);
                let misses =
                    { real_time.iter() }.any(|&(from, to)| to == transaction && is_late(from));
                is_complete && !conflicts && !misses
            }),
        }
    }
}
