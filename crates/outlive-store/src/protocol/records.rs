//! The logs of the protocols that log at the replicas of objects, as a recovery reads them: see the
//! [log](super::log).

use super::fanout::Fanout;
use super::log::{LATCH_WORDS, LogArea, LogEntry, length};
use super::recycle::scan;
use super::worker::{View, Worker};
use crate::tables::{LATCH, ObjectId, TransactionId, VALUE};
use crate::verbs::VerbError;
use std::collections::HashSet;

/// The logs of a compute server.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// The newest logged transaction of each coordinator.
    pub entries: Vec<LogEntry>,
    /// The logged latches of these transactions, and of earlier ones.
    pub latches: HashSet<(ObjectId, u64)>,
}

/// Reads the slots of all coordinators on all live memory servers.
pub(super) async fn read_logs<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
) -> Result<Logs, VerbError> {
    let area = worker.log();
    let mut logs = Logs::default();
    fanout.clear();
    let mut slots = Vec::new();
    for coordinator in 0..area.coordinators {
        for server in &area.servers {
            let (index, batch) = fanout.to(*server);
            let slot = batch.read(area.slot(coordinator), area.slot_words);
            slots.push((coordinator, index, slot));
        }
    }
    fanout.post_to_live(worker).await?;
    for coordinator in 0..area.coordinators {
        let is_own = |transaction: TransactionId| {
            (transaction.process(), transaction.coordinator()) == (worker.process, coordinator)
        };
        let copies = slots.iter().filter(|(of, ..)| *of == coordinator);
        let copies = copies.filter_map(|(_, index, slot)| Some(fanout.valid(*index)?.words(*slot)));
        let mut found = Vec::new();
        for words in copies {
            read_slot(&area, words, is_own, &mut found);
            if area.protocol.logs_latches() {
                let pairs = words[..area.log_words()].rchunks_exact(LATCH_WORDS);
                // Words of old values may look like latches. A release of one has no effect, unless
                // its transaction holds it.
                let latches = pairs.filter_map(|pair| {
                    let holder = TransactionId::from_word(pair[1]).filter(|it| is_own(*it))?;
                    Some((ObjectId::from_word(pair[0]), holder.to_word()))
                });
                logs.latches.extend(latches);
            }
        }
        logs.entries.extend(newest(found));
    }
    Ok(logs)
}

/// Adds the records of the last transaction in a slot, and the entry with a decision.
fn read_slot(
    area: &LogArea,
    words: &[u64],
    is_own: impl Fn(TransactionId) -> bool,
    found: &mut Vec<LogEntry>,
) {
    let (mut records, decided) = words.split_at(area.log_words());
    let entry = |words: &[u64]| {
        let entry = LogEntry::parse(&words[..length(words, words.len())?])?;
        is_own(entry.transaction).then_some(entry)
    };
    found.extend(entry(decided).filter(|it| it.decision.is_some() && it.is_complete()));
    let mut transaction = None;
    // The records of earlier transactions may follow.
    while let Some(record) = entry(records)
        && *transaction.get_or_insert(record.transaction) == record.transaction
    {
        records = &records[length(records, records.len()).unwrap_or_default()..];
        found.push(record);
    }
}

/// Returns the newest transaction that is logged whole, with its decision, if a recovery made one.
fn newest(mut found: Vec<LogEntry>) -> Option<LogEntry> {
    while !found.is_empty() {
        let newer = |best: TransactionId, it: &LogEntry| match it.transaction.follows(best) {
            true => it.transaction,
            false => best,
        };
        let newest = found.iter().fold(found[0].transaction, newer);
        let (entries, rest): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| it.transaction == newest);
        found = rest;
        if let Some(decided) = entries.iter().find(|it| it.decision.is_some()) {
            return Some(decided.clone());
        }
        let mut entries = entries.into_iter();
        let mut whole = entries.next()?;
        for object in entries.flat_map(|it| it.objects) {
            if whole.objects.iter().all(|it| it.object != object.object) {
                whole.objects.push(object);
            }
        }
        if whole.is_complete() {
            return Some(whole);
        }
    }
    None
}

/// Releases all latches of the dead compute server.
pub(super) async fn release_latches<V: View>(
    worker: &Worker<V>,
    logged: &HashSet<(ObjectId, u64)>,
) -> Result<(), VerbError> {
    if worker.protocol().logs_latches() {
        return release_logged(worker, logged).await;
    }
    for table in 0..=u8::MAX {
        let Some(layout) = worker.view.layout(table) else {
            continue;
        };
        for partition in 0..layout.geometry.partitions {
            let is_own = |holder: TransactionId| holder.process() == worker.process;
            match scan(worker, table, partition, is_own).await {
                // The latches of the partition are lost with their server.
                Ok(_) | Err(VerbError::ServerDied { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Releases the latches in the logs of latches, each by a CAS from its transaction's id.
async fn release_logged<V: View>(
    worker: &Worker<V>,
    logged: &HashSet<(ObjectId, u64)>,
) -> Result<(), VerbError> {
    let mut fanout = Fanout::default();
    for (object, holder) in logged {
        let exists = worker.view.layout(object.table()).is_some_and(|layout| {
            object.partition() < layout.geometry.partitions
                && object.offset() + VALUE <= layout.geometry.partition_bytes()
        });
        if !exists {
            continue;
        }
        if let Some(place) = worker.primary(*object) {
            let batch = fanout.to(place.server).1;
            batch.compare_swap(place.of(*object, LATCH), *holder, 0);
        }
    }
    fanout.post_to_live(worker).await
}
