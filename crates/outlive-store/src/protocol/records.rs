//! The logs of the protocols that log at the replicas of objects, as a recovery reads them: see the
//! [log](super::log).
//!
//! A slot is overwritten only when its coordinator writes an object of that memory server, so it
//! may have records of any age. Only the transaction that began its commit last can need recovery:
//! the earlier ones have ended, and are ignored.
//!
//! Its records need not be complete. If the death cut the log short, no object is written yet, so
//! the decision is to undo, which changes no value. If the log was complete, each live replica of
//! an object has the object's record.

use super::fanout::Fanout;
use super::log::{LATCH_WORDS, LogArea, LogEntry, length};
use super::recycle::scan;
use super::view::View;
use super::worker::Worker;
use crate::tables::{LATCH, ObjectId, TransactionId};
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
        let begun = worker.view.begun(worker.process, coordinator);
        let is_last = |it: TransactionId| is_own(it) && begun.is_none_or(|begun| it == begun);
        let copies = slots.iter().filter(|(of, ..)| *of == coordinator);
        let copies = copies.filter_map(|(_, index, slot)| Some(fanout.valid(*index)?.words(*slot)));
        let mut found = Vec::new();
        for words in copies {
            read_slot(&area, words, is_last, &mut found);
            if area.protocol.logs_latches() {
                let pairs = words[..area.log_words()].rchunks_exact(LATCH_WORDS);
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
    is_last: impl Fn(TransactionId) -> bool,
    found: &mut Vec<LogEntry>,
) {
    let (mut records, decided) = words.split_at(area.log_words());
    let entry = |words: &[u64]| {
        let entry = LogEntry::parse(&words[..length(words, words.len())?])?;
        is_last(entry.transaction).then_some(entry)
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

/// Returns the newest transaction, with its decision if a recovery made one.
fn newest(found: Vec<LogEntry>) -> Option<LogEntry> {
    let first = found.first()?.transaction;
    let newest = found.iter().fold(first, |best, it| {
        let is_newer = it.transaction.follows(best);
        if is_newer { it.transaction } else { best }
    });
    let entries = found.into_iter().filter(|it| it.transaction == newest);
    let mut all = entries.reduce(|all, entry| match (all.decision, entry.decision) {
        (Some(_), _) => all,
        (_, Some(_)) => entry,
        _ => all.joined(entry),
    })?;
    // The entry with the decision will be complete with these.
    all.total = all.objects.len();
    Some(all)
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
        // Words of old values may look like latches. A release of one has no effect, unless its
        // transaction holds it.
        let exists = worker.view.layout(object.table()).is_some_and(|layout| {
            object.partition() < layout.geometry.partitions
                && layout.geometry.has_object(object.offset())
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

#[cfg(test)]
mod tests {
    use super::super::log::{Decision, append, begin, seal};
    use super::*;
    use crate::protocol::Protocol;
    use crate::tables::Version;

    #[test]
    fn a_slot_may_be_full_to_the_last_word() {
        let id = TransactionId::new(1, 0, 1);
        for left in 0..12 {
            let mut words = Vec::new();
            for number in 0..3u64 {
                let mut record = Vec::new();
                begin(&mut record);
                let object = ObjectId::new(0, 0, number * 16);
                append(&mut record, object, (Version(1), Version(3)), &[7, 8]);
                seal(&mut record, id, 0, 3);
                words.extend(record);
            }
            words.resize(words.len() + left, 0);
            let half = words.len();
            words.resize(2 * half, 0);
            let area = LogArea {
                slot_words: 2 * half,
                protocol: Protocol::Ford,
                ..LogArea::default()
            };
            let mut found = Vec::new();
            read_slot(&area, &words, |it| it == id, &mut found);
            assert_eq!(found.len(), 3);
            let all = newest(found).unwrap();
            assert_eq!((all.objects.len(), all.total), (3, 3));
        }
    }

    fn record(attempt: u32, object: u64) -> LogEntry {
        let mut words = Vec::new();
        begin(&mut words);
        let object = ObjectId::new(0, 0, object * 16);
        append(&mut words, object, (Version(1), Version(3)), &[7, 8]);
        seal(&mut words, TransactionId::new(1, 0, attempt), 0, 2);
        LogEntry::parse(&words).unwrap()
    }

    #[test]
    fn a_record_of_any_age_is_ignored() {
        let (old, last) = (record(5, 0), record(7 + (1 << 31), 1));
        // By their numbers alone, the old one follows the last one.
        assert!(old.transaction.follows(last.transaction));
        let area = LogArea {
            slot_words: 64,
            protocol: Protocol::Ford,
            ..LogArea::default()
        };
        let mut found = Vec::new();
        for entry in [&old, &last] {
            let mut words = entry.to_words(Decision::Back);
            words[0] = 0;
            words.resize(64, 0);
            read_slot(&area, &words, |it| it == last.transaction, &mut found);
        }
        assert_eq!(newest(found).unwrap().transaction, last.transaction);
    }

    #[test]
    fn the_records_that_are_left_are_recovered() {
        let copies = vec![record(1, 0), record(1, 0)];
        let left = newest(copies).unwrap();
        assert_eq!((left.objects.len(), left.total), (1, 1));
        assert!(left.is_complete());
    }
}
