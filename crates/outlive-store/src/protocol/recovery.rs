//! The recovery of a dead compute server's logs (*Tandem* thesis, section 4.3.2.2).
//!
//! The caller has ensured that the dead server cannot access memory any more, and that no other
//! recovery of the same server is under way. The log slots are recovered in groups, one after
//! another, because the buffers of large batches cost more than they save. The order of groups does
//! not matter: an entry is of a committed transaction, whose versions are never set back, so that
//! recovery writes none of its objects, or of a transaction that holds all its latches. In a group,
//! each step is complete before the next one begins:
//!
//! 1. Read the headers of the log slots on all live log servers, and then one copy of each entry:
//!    the newest, with a decision if there is one. The next copy is read only if that one is not
//!    whole. An entry with one whole copy is logged.
//! 2. Decide: read the versions of its objects on all live replicas. If all are at least the logged
//!    new versions, the client may know of the commit: forward. Else it cannot: back.
//! 3. Write the entries that go back, with their decisions, to all live log servers. A re-execution
//!    decides alike, also if step 4 was cut short. Forward needs no record: versions are never set
//!    back, so a re-execution finds all of them at least as high.
//! 4. Undo the entries that go back: the old value, and then a version above the new one, because a
//!    version is never set back. While the entry exists, its transaction holds the latches, so no
//!    write of another one is undone.
//! 5. Remove all entries. After that, no re-execution can undo a later write.
//! 6. Release the latches, each by a CAS from the transaction's own id.
//!
//! This is `pandora`. The other protocols write all entries in step 3, because a re-execution after
//! the loss of all replicas would take a transaction for one that was not validated. The recoveries
//! of `ford` and `log-a-latch` also differ in step 1 (records of single objects are read, on all
//! memory servers), in step 5 (the records are removed before the entries with decisions: a
//! re-execution that found only records would decide anew), and in step 6 (all latches of the dead
//! server are released, because none is stolen).
//!
//! `ford` and `log-a-latch` recover all slots as one group, because their latches are released
//! after all entries. In `pandora` and `latch-to-log`, the number of round trips depends on the
//! number of groups, not on that of entries.

use super::RecoverLogsError;
use super::fanout::Fanout;
use super::log::{self, Decision, LOG_HEADER_WORDS, LogEntry, LoggedObject, length};
use super::records::{read_logs, release_latches};
use super::view::View;
use super::worker::Worker;
use crate::tables::{LATCH, TransactionId, VALUE, VERSION};
use crate::verbs::{ServerId, VerbError};
use core::ops::Range;

/// The number of log slots that [`recover_logs`] recovers at a time.
pub const SLOTS_PER_GROUP: u16 = 128;

/// The result of a recovery. If it is executed again, that of the last execution: transactions that
/// an earlier one has ended are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of logged transactions whose writes remain. They include transactions that were
    /// committed before: the last one of each coordinator.
    pub forward: u64,
    /// The number of logged transactions that were undone.
    pub back: u64,
    /// The number of objects in all logged transactions.
    pub objects: u64,
    /// The number of objects in the transactions that were undone.
    pub undone: u64,
    /// The number of verbs that were posted, except in the step that releases latches which are in
    /// no entry (`ford`, `log-a-latch`).
    pub verbs: u64,
    /// The number of round trips of these verbs. All verbs of a step, to any number of servers,
    /// share one round trip.
    pub round_trips: u64,
}

struct Logged {
    entry: LogEntry,
    decision: Decision,
    /// The number of steps of restorations in the epoch of the transaction. The replicas that have
    /// joined since then do not have its writes. The epoch is registered, and no object is copied
    /// to a replica before the registrations of earlier epochs have ended: so the transaction does
    /// not hold the latch of an object that such a replica has.
    steps: u8,
}

/// Recovers the logs of the dead compute server in whose place `worker` was created: with its
/// process id and its log slots.
///
/// # Errors
/// A verb failed on a live memory server. The recovery must be executed again.
///
/// # Crash
/// A re-execution completes the recovery, with the same decisions.
pub async fn recover_logs<V: View>(worker: &Worker<V>) -> Result<Recovered, RecoverLogsError> {
    recover_logs_in_groups(worker, SLOTS_PER_GROUP).await
}

/// Recovers logs in groups of at most `group` log slots, 0 being 1: see [`recover_logs`]. `ford`
/// and `log-a-latch` have one group of all slots.
///
/// # Errors
/// The errors of [`recover_logs`].
///
/// # Crash
/// A re-execution completes the recovery, also with groups of another size.
pub async fn recover_logs_in_groups<V: View>(
    worker: &Worker<V>,
    group: u16,
) -> Result<Recovered, RecoverLogsError> {
    let mut fanout = Fanout::default();
    let mut recovered = Recovered::default();
    let slots = worker.log().coordinators;
    if worker.protocol().logs_at_replicas() {
        let logs = read_logs(worker, &mut fanout).await?;
        let entries = logs.entries.into_iter();
        let logged = entries.map(|it| Logged::new(worker, it)).collect();
        resolve(worker, &mut fanout, (0..slots, logged), &mut recovered).await?;
        release_latches(worker, &logs.latches).await?;
    } else {
        let group = group.max(1);
        for first in (0..slots).step_by(group.into()) {
            let slots = first..slots.min(first.saturating_add(group));
            let logged = read_entries(worker, &mut fanout, slots.clone()).await?;
            resolve(worker, &mut fanout, (slots, logged), &mut recovered).await?;
        }
    }
    (recovered.verbs, recovered.round_trips) = (fanout.verbs, fanout.round_trips);
    Ok(recovered)
}

/// Returns the number of log slots of `worker` in which a live log server has a complete or partial
/// entry. It is 0 after a recovery, and after the compute server has left.
///
/// # Errors
/// If a verb failed on a live memory server.
pub async fn slots_in_use<V: View>(worker: &Worker<V>) -> Result<u64, VerbError> {
    let (log, mut fanout) = (worker.log(), Fanout::default());
    let mut checksums = Vec::new();
    for coordinator in 0..log.coordinators {
        for at in log.checksums(coordinator) {
            for server in &log.servers {
                let (index, batch) = fanout.to(*server);
                checksums.push((coordinator, index, batch.read(at, 1)));
            }
        }
    }
    fanout.post_to_live(worker).await?;
    let used = checksums.into_iter().filter(|(_, index, slot)| {
        let batch = fanout.valid(*index);
        batch.is_some_and(|it| it.value(*slot) != 0)
    });
    let mut used: Vec<u16> = used.map(|(coordinator, ..)| coordinator).collect();
    used.dedup();
    Ok(used.len() as u64)
}

/// Ends the transactions that are logged in a group of slots: steps 2 to 6.
async fn resolve<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    (slots, mut logged): (Range<u16>, Vec<Logged>),
    recovered: &mut Recovered,
) -> Result<(), RecoverLogsError> {
    for it in &logged {
        let mut objects = it.entry.objects.iter();
        if let Some(missing) = objects.find(|logged| !exists(worker, logged)) {
            return Err(RecoverLogsError::NoSuchObject {
                transaction: it.entry.transaction,
                object: missing.object,
            });
        }
    }
    decide(worker, fanout, &mut logged).await?;
    let log = worker.log();
    let servers = &log.servers;
    fanout.clear();
    let writes_all = worker.protocol().logs_during_validation();
    let is_written = |it: &&Logged| writes_all || it.decision == Decision::Back;
    for it in logged.iter().filter(is_written) {
        let decided = log.decided(it.entry.transaction.coordinator());
        let words = it.entry.to_words(it.decision);
        for server in servers {
            fanout.to(*server).1.write(decided, &words);
        }
    }
    fanout.post_to_live(worker).await?;
    undo(worker, fanout, &logged).await?;
    // Before the entries are removed: a re-execution finds them, or the outcomes are recorded.
    for it in logged.iter().filter(|it| it.decision == Decision::Forward) {
        worker.view.record_commit(it.entry.transaction);
    }
    let slots = match worker.policy().truncates_one_group {
        true => slots,
        false => 0..log.coordinators,
    };
    if worker.policy().truncates_before_unlatching {
        truncate(worker, fanout, slots).await?;
        unlatch(worker, fanout, &logged).await?;
    } else {
        unlatch(worker, fanout, &logged).await?;
        truncate(worker, fanout, slots).await?;
    }
    for it in &logged {
        let objects = it.entry.objects.len() as u64;
        recovered.objects += objects;
        match it.decision {
            Decision::Forward => recovered.forward += 1,
            Decision::Back => {
                recovered.back += 1;
                recovered.undone += objects;
            }
        }
    }
    Ok(())
}

impl Logged {
    fn new<V: View>(worker: &Worker<V>, entry: LogEntry) -> Self {
        let epoch = match worker.policy().decides_in_its_epoch {
            true => entry.epoch,
            false => worker.epoch(),
        };
        Self {
            steps: worker.view.steps(epoch),
            decision: entry.decision.unwrap_or(Decision::Back),
            entry,
        }
    }
}

/// Returns whether a logged object is inside a partition of its table.
fn exists<V: View>(worker: &Worker<V>, logged: &LoggedObject) -> bool {
    let object = logged.object;
    let end = object.offset() + VALUE + logged.value.len() as u64 * 8;
    worker.layout_if_any(object.table()).is_some_and(|layout| {
        object.partition() < layout.geometry.partitions && end <= layout.geometry.partition_bytes()
    })
}

/// Reads the newest whole entry in each of these slots.
async fn read_entries<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    slots: Range<u16>,
) -> Result<Vec<Logged>, VerbError> {
    let area = worker.log();
    fanout.clear();
    let mut headers = Vec::new();
    for server in &area.servers {
        for coordinator in slots.clone() {
            let (index, batch) = fanout.to(*server);
            let header = batch.read(area.slot(coordinator), LOG_HEADER_WORDS);
            headers.push((*server, coordinator, index, header));
        }
    }
    fanout.post_to_live(worker).await?;
    // The copies of each coordinator's entries, the best one last.
    let mut copies: Vec<Vec<EntryCopy>> = vec![Vec::new(); slots.len()];
    for (server, coordinator, index, header) in headers {
        let header = fanout.valid(index).map(|it| it.words(header));
        let copy = header.and_then(|header| {
            let (transaction, decision) = log::identity(header)?;
            let is_own =
                (transaction.process(), transaction.coordinator()) == (worker.process, coordinator);
            let words = length(header, area.slot_words).filter(|_| is_own)?;
            Some(EntryCopy {
                server,
                words,
                transaction,
                is_decided: decision.is_some(),
            })
        });
        copies[usize::from(coordinator - slots.start)].extend(copy);
    }
    for (coordinator, copies) in copies.iter_mut().enumerate() {
        // Equal copies are read from the log servers in turn.
        let turn = coordinator.checked_rem(copies.len()).unwrap_or(0);
        copies.rotate_left(turn);
        // Attempts are compared by their distance from one of them, because their numbers wrap.
        let from = copies.first().map_or(0, |it| it.transaction.attempt());
        copies.sort_by_key(|it| {
            let ahead = it.transaction.attempt().wrapping_sub(from) as i32;
            (ahead, it.is_decided)
        });
    }
    let mut newest: Vec<Option<Logged>> = slots.clone().map(|_| None).collect();
    let mut bodies = Vec::new();
    loop {
        fanout.clear();
        bodies.clear();
        for (at, (coordinator, copies)) in slots.clone().zip(&mut copies).enumerate() {
            if newest[at].is_none()
                && let Some(copy) = copies.pop()
            {
                let (index, batch) = fanout.to(copy.server);
                let body = batch.read(area.slot(coordinator), copy.words);
                bodies.push((at, index, body));
            }
        }
        if bodies.is_empty() {
            return Ok(newest.into_iter().flatten().collect());
        }
        fanout.post_to_live(worker).await?;
        for (at, index, body) in &bodies {
            // The header of a copy that is not whole may be that of another transaction.
            let words = fanout.valid(*index).map(|it| it.words(*body));
            let entry = words.and_then(LogEntry::parse);
            let entry = entry.filter(LogEntry::is_complete);
            newest[*at] = entry.map(|it| Logged::new(worker, it));
        }
    }
}

/// A copy of an entry, as its header describes it.
#[derive(Clone, Copy, Debug)]
struct EntryCopy {
    server: ServerId,
    words: usize,
    transaction: TransactionId,
    is_decided: bool,
}

/// Decides on the entries without a decision.
async fn decide<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    logged: &mut [Logged],
) -> Result<(), VerbError> {
    fanout.clear();
    let mut versions = Vec::new();
    for (number, it) in logged.iter().enumerate() {
        for logged in it
            .entry
            .objects
            .iter()
            .filter(|_| it.entry.decision.is_none())
        {
            for place in worker.replicas_after(logged.object, it.steps) {
                let (index, batch) = fanout.to(place.server);
                let version = batch.read(place.of(logged.object, VERSION), 1);
                versions.push((number, index, version, logged.new));
            }
        }
    }
    fanout.post_to_live(worker).await?;
    // If no replica of any object is left, a transaction that was logged before its validation may
    // have failed that.
    let without_replicas = match worker.protocol().logs_during_validation() {
        true => Decision::Back,
        false => Decision::Forward,
    };
    for it in logged.iter_mut().filter(|it| it.entry.decision.is_none()) {
        it.decision = without_replicas;
    }
    let found = versions
        .into_iter()
        .filter_map(|(number, index, version, new)| {
            let version = fanout.valid(index)?.value(version);
            Some((number, version >= new.0))
        });
    let found: Vec<_> = found.collect();
    for (number, _) in &found {
        logged[*number].decision = Decision::Forward;
    }
    let keeps = worker.policy().keeps_committed;
    for (number, _) in found.iter().filter(|(_, is_updated)| !(is_updated & keeps)) {
        logged[*number].decision = Decision::Back;
    }
    Ok(())
}

async fn undo<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    logged: &[Logged],
) -> Result<(), VerbError> {
    fanout.clear();
    for it in logged.iter().filter(|it| it.decision == Decision::Back) {
        let undone = match worker.policy().undoes_all_objects {
            true => it.entry.objects.len(),
            false => 1,
        };
        for logged in it.entry.objects.iter().take(undone) {
            let version = match worker.policy().raises_versions_on_undo {
                true => logged.new.next(logged.old.exists()),
                false => logged.old,
            };
            for place in worker.replicas_after(logged.object, it.steps) {
                let batch = fanout.to(place.server).1;
                batch.write(place.of(logged.object, VALUE), &logged.value);
                batch.write(place.of(logged.object, VERSION), &[version.0]);
            }
        }
    }
    fanout.post_to_live(worker).await
}

/// Removes the logs in these slots, those with decisions last.
async fn truncate<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    slots: Range<u16>,
) -> Result<(), VerbError> {
    let log = worker.log();
    for step in 0..2 {
        fanout.clear();
        for coordinator in slots.clone() {
            let Some(checksum) = log.checksums(coordinator).nth(step) else {
                continue;
            };
            for server in &log.servers {
                fanout.to(*server).1.write(checksum, &[0]);
            }
        }
        fanout.post_to_live(worker).await?;
    }
    Ok(())
}

/// Releases the latches of the logged transactions.
async fn unlatch<V: View>(
    worker: &Worker<V>,
    fanout: &mut Fanout<V::Connection>,
    logged: &[Logged],
) -> Result<(), VerbError> {
    fanout.clear();
    for it in logged {
        for logged in &it.entry.objects {
            let Some(place) = worker.primary(logged.object) else {
                continue;
            };
            let latch = place.of(logged.object, LATCH);
            let batch = fanout.to(place.server).1;
            batch.compare_swap(latch, it.entry.transaction.to_word(), 0);
        }
    }
    fanout.post_to_live(worker).await
}

#[cfg(test)]
mod tests {
    use super::super::log::{append, begin, seal};
    use super::super::small_view::{LOGS, Link, SmallView, TABLES};
    use super::*;
    use crate::protocol::Protocol;
    use crate::tables::{ObjectId, TransactionId, Version};
    use crate::verbs::{Batch, Connection, block_on};

    /// In `pandora` a logged transaction was validated. In `latch-to-log` it may have failed its
    /// validation, and its client may know that.
    #[test]
    fn a_transaction_whose_replicas_are_lost_is_committed_only_if_it_was_validated() {
        let id = TransactionId::new(1, 0, 1);
        for (protocol, committed) in [
            (Protocol::Pandora, vec![id]),
            (Protocol::LatchToLog, Vec::new()),
        ] {
            let view = SmallView::new(protocol);
            let mut words = Vec::new();
            begin(&mut words);
            let object = ObjectId::new(0, 0, 0);
            append(&mut words, object, (Version(1), Version(3)), &[7]);
            seal(&mut words, id, 0, 1);
            let mut batch = Batch::new();
            batch.write(view.log_area().slot(0), &words);
            let wire = view.connect(LOGS).unwrap();
            block_on(wire.post(batch)).finished().unwrap();
            view.0.epoch.set(1);
            view.set_link(TABLES, Link::Dead);
            let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
            assert_eq!(block_on(slots_in_use(&worker)).unwrap(), 1);
            let recovered = block_on(recover_logs(&worker)).unwrap();
            assert_eq!(recovered.forward + recovered.back, 1);
            assert_eq!(block_on(slots_in_use(&worker)).unwrap(), 0);
            assert_eq!(*view.0.committed.borrow(), committed, "{protocol}");
        }
    }
}
