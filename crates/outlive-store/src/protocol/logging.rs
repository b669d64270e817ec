//! The log of an attempt.

use super::transaction::{Stage, Transaction};
use super::view::Member;
use super::{Abort, log};
use crate::tables::{ObjectId, Version};
use crate::verbs::VerbError;
use core::ops::Range;

/// An object that an unsound policy logs although it is not latched.
pub(super) type Unlatched = (ObjectId, Version, Range<usize>);

impl<V: Member> Transaction<V> {
    /// Writes the log to all log servers.
    pub(super) async fn log(&mut self, unlatched: Option<Unlatched>) -> Result<(), Abort> {
        self.sets.fanout.clear();
        self.plan_log(unlatched)?;
        self.stage = Stage::Logging;
        self.sets.fanout.post(&self.worker).await?;
        self.stage = Stage::Committing;
        Ok(())
    }

    /// Adds the WRITEs of the log to the batches.
    pub(super) fn plan_log(&mut self, unlatched: Option<Unlatched>) -> Result<(), Abort> {
        self.worker.complete_log(self.epoch)?;
        let (worker, sets) = (&self.worker, &mut self.sets);
        let (area, coordinator) = (worker.log(), self.id.coordinator());
        let logs_insertions = worker.policy().logs_insertions;
        let is_logged = |old: Version, new| new != old && (logs_insertions || old.exists());
        let writes = sets.writes.iter().filter(|it| is_logged(it.old, it.new));
        let writes = writes.map(|it| (it.object, it.old, it.new, it.old_value.clone()));
        let unlatched = unlatched.map(|(object, old, value)| (object, old, old.next(true), value));
        let objects = writes.chain(unlatched);
        let total = objects.clone().count();
        let each = |value: &Range<usize>| log::OBJECT_WORDS + value.len();
        let values: usize = objects.clone().map(|(.., value)| each(&value)).sum();
        let at_replicas = area.protocol.logs_at_replicas();
        let headers = if at_replicas { total } else { 1 };
        let latches = sets.latches * log::LATCH_WORDS;
        let words = headers * log::LOG_HEADER_WORDS + values + latches;
        let most = area.log_words();
        if words > most {
            return Err(Abort::WriteSetTooLarge { words, most });
        }
        // Backups are written for the first time with the log, or after it. If one cannot be
        // reached, the attempt must not be logged.
        for write in sets.writes.iter().filter(|it| it.new != it.old) {
            for place in worker.replicas(write.object) {
                match worker.connection(place.server) {
                    Ok(_) | Err(VerbError::ServerDied { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        sets.logged.clear();
        if at_replicas {
            for (object, old, new, value) in objects {
                log::begin(&mut sets.entry);
                log::append(&mut sets.entry, object, (old, new), &sets.words[value]);
                log::seal(&mut sets.entry, self.id, self.epoch, total);
                for place in worker.replicas(object) {
                    let known = sets.logged.iter().position(|it| it.0 == place.server);
                    let index = known.unwrap_or_else(|| {
                        sets.logged.push((place.server, 0));
                        sets.logged.len() - 1
                    });
                    let used = &mut sets.logged[index].1;
                    let at = area.slot(coordinator) + *used as u64 * 8;
                    *used += sets.entry.len();
                    sets.fanout.to(place.server).1.write(at, &sets.entry);
                }
            }
            return Ok(());
        }
        if area.servers.is_empty() {
            return Err(Abort::NoMemory);
        }
        log::begin(&mut sets.entry);
        for (object, old, new, value) in objects {
            log::append(&mut sets.entry, object, (old, new), &sets.words[value]);
        }
        log::seal(&mut sets.entry, self.id, self.epoch, total);
        for server in &area.servers {
            let batch = sets.fanout.to(*server).1;
            batch.write(area.slot(coordinator), &sets.entry);
            sets.logged.push((*server, words));
        }
        Ok(())
    }

    /// Removes the log of an attempt that is not committed. While it exists, recovery would undo
    /// writes of others to these objects.
    pub(super) async fn remove_log(&mut self) -> Result<(), VerbError> {
        let checksum = self.worker.log().checksum(self.id.coordinator());
        let sets = &mut self.sets;
        sets.fanout.clear();
        for (server, _) in &sets.logged {
            sets.fanout.to(*server).1.write(checksum, &[0]);
        }
        sets.fanout.post_to_live(&self.worker).await
    }

    /// Logs a latch that the attempt will try to acquire, so that recovery can release it.
    ///
    /// The record at the object's primary is enough, because the latch is lost with that server.
    /// The next attempt's record overwrites it after the latch is released: both WRITEs are on the
    /// same connection, as long as the same worker uses the slot. (On connections that are not
    /// complete when they are posted, the death of a server just after another of its workers took
    /// over the slot may leave a latch.) The scheme writes it to all replicas all the same, as any
    /// log.
    pub(super) async fn log_latch(&mut self, object: ObjectId) -> Result<(), Abort> {
        let (area, sets) = (self.worker.log(), &mut self.sets);
        let words = (sets.latches + 1) * log::LATCH_WORDS;
        // A recovery that removes records must not overwrite a latch.
        let most = area.log_words().saturating_sub(log::LOG_HEADER_WORDS);
        if words > most {
            return Err(Abort::WriteSetTooLarge { words, most });
        }
        let at = area.latch(self.id.coordinator(), sets.latches);
        sets.latches += 1;
        sets.fanout.clear();
        for place in self.worker.replicas(object) {
            let record = [object.to_word(), self.id.to_word()];
            sets.fanout.to(place.server).1.write(at, &record);
        }
        Ok(sets.fanout.post(&self.worker).await?)
    }
}
