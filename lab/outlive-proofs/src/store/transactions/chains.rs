//! The chain with which a run begins in which chains grow and shrink.

use super::super::network::Task;
use super::{Access, OBSERVER, Outcome, STEPS, TABLE, World};
use outlive_store::tables::VERSION;
use std::cell::RefCell;
use std::ops::Range;

/// The keys that fill the main bucket. No client uses them.
const MAIN: Range<u64> = 100..108;
/// The keys that fill the second bucket together with key 0, until there is a third one.
const SECOND: Range<u64> = 200..207;

impl World {
    /// Makes a chain of three buckets before the run: a full one, one with key 0 and one with
    /// key 1.
    pub(super) fn load(&self) -> Result<(), String> {
        let result = RefCell::new(Ok(()));
        let loading = async {
            let worker = self.worker(OBSERVER, OBSERVER);
            let mut coordinator = worker.coordinator().expect("a free slot");
            let record = self.history.begin("loader".into());
            let values = [(0, self.value()), (1, self.value())];
            for (key, value) in values {
                self.history.add(record, Access::Insert(key, value, true));
            }
            let [first, second] = values;
            let seconds = [first].into_iter().chain(SECOND.map(|key| (key, key)));
            let steps: [Vec<(u64, u64)>; 3] = [
                MAIN.map(|key| (key, key)).collect(),
                seconds.collect(),
                vec![second],
            ];
            for keys in steps {
                let done = coordinator.transaction(async |tx| {
                    for (key, value) in &keys {
                        tx.insert(TABLE, *key, &[*value; 2]).await?;
                    }
                    Ok(())
                });
                if let Err(error) = done.await {
                    *result.borrow_mut() = Err(error.to_string());
                }
            }
            let done = coordinator.transaction(async |tx| {
                for key in SECOND {
                    tx.delete(TABLE, key).await?;
                }
                Ok(())
            });
            if let Err(error) = done.await {
                *result.borrow_mut() = Err(error.to_string());
            }
            self.history.complete(record);
            self.history.end(record, Outcome::Committed);
        };
        let task: Task<'_> = (OBSERVER, Box::pin(loading));
        let ended = self.network.run(vec![task], STEPS);
        ended.map_err(|_| "the loader did not end".to_owned())?;
        result.into_inner()
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
        // Each of the two extra buckets has changed it once before.
        (version / 2).saturating_sub(2)
    }
}
