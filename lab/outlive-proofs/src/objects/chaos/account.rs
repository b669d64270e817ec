//! The account of all ledgers: the objects that must exist, and the additions to them.

use super::KEYS;
use super::ledger::{Note, Operation, What};
use super::names::{is_common, name, owner};
use core::ops::RangeInclusive;
use std::collections::{BTreeMap, BTreeSet};

/// An object of one worker.
#[derive(Debug)]
struct Own {
    /// The names that it may have.
    names: Vec<u32>,
    /// Whether it certainly exists.
    is_certain: bool,
}

/// The account of one worker, over all of its incarnations.
#[derive(Debug, Default)]
struct Worker {
    own: BTreeMap<u64, Own>,
    /// The token of its last request that took effect.
    token: u64,
    /// The token of a request with an unknown outcome.
    pending: Option<u64>,
}

/// A number that is known except for operations with unknown outcomes.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    fn add(&mut self, outcome: Option<bool>) {
        self.least += u64::from(outcome == Some(true));
        self.most += u64::from(outcome != Some(false));
    }
}

/// An object that was found in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: u32,
    pub id: u64,
    /// The number of additions to it.
    pub count: u64,
}

/// The account of all workers.
#[derive(Debug, Default)]
pub struct Account {
    workers: Vec<Worker>,
    /// The number of requests that took effect, by total.
    pub totals: [u64; KEYS as usize],
    /// The additions to objects, by identity.
    additions: BTreeMap<u64, Bounds>,
    /// The identities of the objects with common names that may exist, the number of those that the
    /// last check found, and the creations and removals since then.
    common: BTreeSet<u64>,
    common_before: u64,
    common_created: Bounds,
    common_removed: Bounds,
    /// The number of operations that took effect, by kind.
    pub effects: BTreeMap<What, u64>,
    /// The number of operations that ended, and the number that a kill interrupted.
    pub operations: u64,
    pub cut_off: u64,
    /// The faults found.
    pub failures: Vec<String>,
}

impl Account {
    pub fn new(workers: u32) -> Self {
        Self {
            workers: (0..workers).map(|_| Worker::default()).collect(),
            ..Self::default()
        }
    }

    /// Enters the ledger of an incarnation of `worker`, which is dead.
    pub fn enter(&mut self, worker: u32, notes: &[Note]) {
        let (mut found, mut running) = (Vec::new(), None);
        for note in notes {
            match *note {
                Note::Last(token, effect) => self.settle_request(worker, token, effect),
                Note::Found(id, name) => found.push(Found { name, id, count: 0 }),
                Note::FoundAll => self.settle_objects(worker, &found),
                Note::Begin(operation) => running = Some(operation),
                Note::End(effect) => match running.take() {
                    Some(operation) => self.end(worker, operation, Some(effect)),
                    None => self.accuse(format!(
                        "worker {worker} ended an operation that it did not begin"
                    )),
                },
            }
        }
        if let Some(operation) = running {
            self.end(worker, operation, None);
        }
    }

    fn accuse(&mut self, what: String) {
        self.failures.push(what);
    }

    /// Enters the outcome of an operation. `None` means that it may have taken effect or not.
    fn end(&mut self, worker: u32, operation: Operation, outcome: Option<bool>) {
        let Operation { what, id, from, to } = operation;
        match outcome {
            Some(effect) => {
                self.operations += 1;
                *self.effects.entry(what).or_default() += u64::from(effect);
            }
            None => self.cut_off += 1,
        }
        let of = &mut self.workers[worker as usize];
        match what {
            What::Create if is_common(to) => {
                self.common.insert(id);
                self.common_created.add(outcome);
            }
            What::Remove if is_common(from) => self.common_removed.add(outcome),
            What::Rename if is_common(from) => {}
            What::Create if outcome != Some(false) => {
                let (names, is_certain) = (vec![to], outcome.is_some());
                of.own.insert(id, Own { names, is_certain });
            }
            What::Rename if outcome != Some(false) => {
                if let Some(own) = of.own.get_mut(&id) {
                    own.names.retain(|_| outcome.is_none());
                    own.names.push(to);
                }
            }
            What::Remove if outcome != Some(false) => {
                // An object that was never filled has no identity, but it has the staging name of
                // its worker.
                let has_it = |(this, own): &(&u64, &mut Own)| match id {
                    0 => own.names == [from],
                    id => **this == id,
                };
                let found = of.own.iter_mut().find(has_it);
                let found = found.map(|(id, own)| {
                    own.is_certain = false;
                    *id
                });
                match found {
                    Some(id) if outcome.is_some() => drop(of.own.remove(&id)),
                    Some(_) => {}
                    None => self.accuse(format!(
                        "worker {worker} removed `{}`, which it does not own",
                        name(from)
                    )),
                }
            }
            What::Add => self.additions.entry(id).or_default().add(outcome),
            What::Count => self.count(worker, id, outcome),
            What::Create | What::Rename | What::Remove => {}
        }
    }

    /// Enters a request. A retried request has the same token, and counts once.
    fn count(&mut self, worker: u32, token: u64, outcome: Option<bool>) {
        let of = &mut self.workers[worker as usize];
        match outcome {
            _ if token <= of.token => {}
            None => of.pending = Some(token),
            Some(false) => of.pending = None,
            Some(true) => {
                (of.token, of.pending) = (token, None);
                self.totals[(token % KEYS) as usize] += 1;
            }
        }
    }

    /// Enters the last request of a worker's client, and with it the outcome of a pending request.
    pub fn settle_request(&mut self, worker: u32, token: u64, effect: bool) {
        let of = &mut self.workers[worker as usize];
        let pending = of.pending.take();
        if pending == Some(token) {
            return self.count(worker, token, Some(effect));
        }
        // A request that failed for lack of memory is not pending.
        let is_known =
            (token, effect) == (of.token, true) || (token, effect) == (of.token + 1, false);
        if !is_known {
            let last = of.token;
            self.accuse(format!(
                "the last request of worker {worker} is {token} (took effect: {effect}), but its \
                 ledgers record the effect of request {last}, and {pending:?} as pending"
            ));
        }
    }

    /// Checks `found`, all existing objects of `worker`, after its recovery. No operation on them
    /// may run. Afterwards, each of them has exactly one possible name.
    pub fn settle_objects(&mut self, worker: u32, found: &[Found]) {
        let of = &mut self.workers[worker as usize];
        let mut failures = Vec::new();
        let mut left: Vec<_> = found.iter().collect();
        of.own.retain(|id, own| {
            let before = left.len();
            let mut at = None;
            left.retain(|found| {
                let is_it = found.id == *id || found.id == 0 && own.names == [found.name];
                if is_it {
                    at = Some(found.name);
                }
                !is_it
            });
            let names: Vec<_> = own.names.iter().map(|at| name(*at)).collect();
            match (at, before - left.len()) {
                (None, _) if own.is_certain => failures.push(format!(
                    "the object {id:#x} of worker {worker} is lost; it had one of the names {names:?}"
                )),
                (None, _) => {}
                (Some(at), 1) if own.names.contains(&at) => {
                    *own = Own {
                        names: vec![at],
                        is_certain: true,
                    };
                }
                (Some(at), many) => failures.push(format!(
                    "the object {id:#x} of worker {worker} has {many} names, one of them `{}`; it \
                     must have one of {names:?}",
                    name(at)
                )),
            }
            at.is_some()
        });
        failures.extend(left.iter().map(|found| {
            let Found { name: at, id, .. } = found;
            format!(
                "the object {id:#x} of worker {worker} under `{}` was never created, or was removed",
                name(*at)
            )
        }));
        self.failures.extend(failures);
    }

    /// Checks all objects of the pod. All workers are dead and recovered.
    pub fn settle_all(&mut self, found: &[Found]) {
        let (common, own): (Vec<Found>, Vec<_>) = found.iter().partition(|it| is_common(it.name));
        for worker in 0..self.workers.len() as u32 {
            let of_it = |found: &&Found| match found.id {
                0 => found.name == super::names::staging(worker),
                id => owner(id) == worker,
            };
            let found: Vec<_> = own.iter().filter(of_it).copied().collect();
            self.settle_objects(worker, &found);
        }
        self.settle_common(&common);
        let mut additions = BTreeMap::new();
        for Found {
            id,
            count,
            name: at,
        } in found
        {
            let bounds = self.additions.get(id).copied().unwrap_or_default();
            if !bounds.range().contains(count) {
                self.accuse(format!(
                    "the object {id:#x} under `{}` has {count} additions, but they must be {:?}",
                    name(*at),
                    bounds.range()
                ));
            }
            additions.insert(*id, bounds);
        }
        self.additions = additions;
    }

    fn settle_common(&mut self, found: &[Found]) {
        let ids: BTreeSet<u64> = found.iter().map(|found| found.id).collect();
        for id in ids.difference(&self.common).copied().collect::<Vec<_>>() {
            self.accuse(format!("the common object {id:#x} was not created"));
        }
        if ids.len() != found.len() {
            self.accuse(format!("a common object has two names: {found:?}"));
        }
        let (created, removed) = (self.common_created, self.common_removed);
        let least = (self.common_before + created.least).saturating_sub(removed.most);
        let most = (self.common_before + created.most).saturating_sub(removed.least);
        let now = found.len() as u64;
        if !(least..=most).contains(&now) {
            self.accuse(format!(
                "there are {now} common objects, not {least} to {most}"
            ));
        }
        (self.common, self.common_before) = (ids, now);
        (self.common_created, self.common_removed) = Default::default();
    }
}

impl Bounds {
    fn range(self) -> RangeInclusive<u64> {
        self.least..=self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(what: What, id: u64, from: u32, to: u32) -> Note {
        Note::Begin(Operation { what, id, from, to })
    }

    /// Returns the faults of an account with `notes` of worker 0, if the pod contains `found`.
    fn faults(notes: &[Note], found: &[(u32, u64, u64)]) -> Vec<String> {
        let mut account = Account::new(1);
        account.enter(0, notes);
        let found = { found.iter() }.map(|(name, id, count)| Found {
            name: *name,
            id: *id,
            count: *count,
        });
        account.settle_all(&found.collect::<Vec<_>>());
        account.failures
    }

    #[test]
    fn an_operation_without_outcome_may_have_taken_effect_or_not() {
        let created = [begin(What::Create, 5, 1, 1), Note::End(true)];
        let then = |more: &[Note]| [&created, more].concat();
        let renaming = then(&[begin(What::Rename, 5, 1, 2)]);
        let removing = then(&[begin(What::Remove, 5, 1, 1)]);
        let adding = then(&[begin(What::Add, 5, 0, 0)]);
        let common = [begin(What::Create, 6, 8, 8)];
        for (notes, may_be, cannot_be) in [
            (
                &created[..],
                &[&[(1, 5, 0)][..]][..],
                &[&[][..], &[(2, 5, 0)], &[(1, 6, 0)]][..],
            ),
            (&created[..1], &[&[(1, 5, 0)], &[]], &[&[(1, 5, 1)]]),
            (
                &renaming,
                &[&[(1, 5, 0)], &[(2, 5, 0)]],
                &[&[], &[(1, 5, 0), (2, 5, 0)]],
            ),
            (&removing, &[&[(1, 5, 0)], &[]], &[&[(2, 5, 0)]]),
            (&adding, &[&[(1, 5, 0)], &[(1, 5, 1)]], &[&[(1, 5, 2)]]),
            (
                &common,
                &[&[(8, 6, 0)], &[]],
                &[&[(8, 6, 0), (9, 6, 0)], &[(8, 7, 0)]],
            ),
        ] {
            for found in may_be {
                assert_eq!(faults(notes, found), [""; 0], "{notes:?}, {found:?}");
            }
            for found in cannot_be {
                assert_ne!(faults(notes, found), [""; 0], "{notes:?}, {found:?}");
            }
        }
    }

    #[test]
    fn a_request_counts_once() {
        let request = |token| begin(What::Count, token, 0, 0);
        let mut account = Account::new(1);
        account.enter(
            0,
            &[Note::Last(0, true), request(1), Note::End(true), request(2)],
        );
        account.enter(
            0,
            &[
                Note::Last(2, false),
                request(2),
                Note::End(true),
                request(3),
            ],
        );
        account.settle_request(0, 3, true);
        assert_eq!((account.totals, account.failures.len()), ([0, 1, 1, 1], 0));
        for (token, effect) in [(2, true), (3, false), (4, true), (5, false)] {
            account.settle_request(0, token, effect);
        }
        assert_eq!((account.totals, account.failures.len()), ([0, 1, 1, 1], 4));
    }
}
