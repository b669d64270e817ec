//! The chains with which a run begins in which chains grow and shrink.

use super::super::network::Task;
use super::{Access, OBSERVER, Outcome, STEPS, TABLE, World};
use outlive_store::tables::{Geometry, VERSION};
use std::cell::RefCell;

/// The number of objects of a bucket.
const BUCKET: usize = 8;
/// Clients use no key from here on.
const FILLERS: u64 = 100;

impl World {
    /// Makes the chains before the run: each begins with a full bucket, and each key of a client
    /// is in an extra bucket of its own.
    pub(super) fn load(&self) -> Result<(), String> {
        let result = RefCell::new(Ok(()));
        let loading = async {
            let worker = self.worker(OBSERVER, OBSERVER);
            let mut coordinator = worker.coordinator().expect("a free slot");
            let record = self.history.begin("loader".into(), OBSERVER);
            for step in self.steps(record) {
                let done = coordinator.transaction(async |tx| {
                    for step in &step {
                        match step {
                            Step::Insert(key, value) => {
                                tx.insert(TABLE, *key, &[*value; 2]).await?;
                            }
                            Step::Delete(key) => {
                                tx.delete(TABLE, *key).await?;
                            }
                        }
                    }
                    Ok(())
                });
                if let Err(error) = done.await {
                    *result.borrow_mut() = Err(error.to_string());
                }
            }
            self.history.complete(record);
            self.history.end(record, Outcome::Committed);
            // The last latches are released after the commit.
            if let Err(error) = worker.finish().await {
                *result.borrow_mut() = Err(error.to_string());
            }
        };
        let task: Task<'_> = (OBSERVER, Box::pin(loading));
        let ended = self.network.run(vec![task], STEPS);
        ended.map_err(|_| "the loader did not end".to_owned())?;
        result.into_inner()
    }

    /// The transactions of the loader. Its insertions of the clients' keys are those of `record`.
    fn steps(&self, record: usize) -> Vec<Vec<Step>> {
        let geometry = self.plan.geometry();
        let mut steps = Vec::new();
        for bucket in 0..geometry.main {
            let mut fillers = keys_of(geometry, bucket, FILLERS);
            let mut keys = keys_of(geometry, bucket, 0).take_while(|it| *it < self.plan.keys);
            let fill: Vec<u64> = fillers.by_ref().take(BUCKET).collect();
            let removed: Vec<u64> = fillers.take(BUCKET - 1).collect();
            let insert = |key: u64| {
                let value = self.value();
                self.history.add(record, Access::Insert(key, value, true));
                Step::Insert(key, value)
            };
            let filler = |key: &u64| Step::Insert(*key, *key);
            steps.push(fill.iter().map(filler).collect());
            let first = keys.next().map(insert);
            steps.push(
                first
                    .into_iter()
                    .chain(removed.iter().map(filler))
                    .collect(),
            );
            steps.extend(keys.map(|key| vec![insert(key)]));
            steps.push(removed.iter().map(|it| Step::Delete(*it)).collect());
        }
        steps
    }

    /// The number of changes of the header since the run began, by its version.
    pub(super) fn moves(&self) -> u64 {
        if !self.plan.chains {
            return 0;
        }
        let configuration = self.configuration.borrow();
        let mut places = configuration.places[0].iter();
        let Some(place) = places.find(|it| !self.network.has_crashed(it.server)) else {
            return 0;
        };
        let header = self.plan.geometry().header(0, 0);
        let at = place.of(header, VERSION);
        let version = self.network.peek(place.server, at.get() as usize / 8);
        // Each extra bucket has changed it once before.
        (version / 2).saturating_sub(self.plan.keys)
    }
}

/// An access of the loader.
enum Step {
    Insert(u64, u64),
    Delete(u64),
}

/// The keys from `first` on whose chain begins with `bucket`.
fn keys_of(geometry: Geometry, bucket: u32, first: u64) -> impl Iterator<Item = u64> {
    (first..).filter(move |it| geometry.home(*it) == (0, bucket))
}
