//! Records of incarnations: where they run, heartbeats, the provers of their deaths, exit statuses.
//!
//! A record is written by its joining thread between the claim of the id and the step to
//! [`Status::Live`](super::Status::Live), and read by detectors and managers. Its first word names
//! its incarnation and is written last: a record whose first word is another incarnation's has not
//! been written yet.

use super::{Instance, InstanceId};
use crate::host::{ProcessIdentity, ThreadIdentity};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The record of an incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The incarnation that the record describes.
    pub instance: Instance,
    /// The thread that joined; for a process its sentinel, for a host the thread that joined it.
    pub thread: ThreadIdentity,
    /// The process instance that a thread belongs to; `None` for hosts and processes.
    pub process: Option<Instance>,
    /// The user that runs the incarnation.
    pub uid: u32,
    /// Whether the incarnation is tied to its host's cord, by which it can be killed from other PID
    /// namespaces and by other users.
    pub has_cord: bool,
    /// The name the incarnation gave itself, at most [`Record::NAME`] bytes.
    pub name: String,
}

impl Record {
    /// The longest name in bytes.
    pub const NAME: usize = 40;
}

/// A handle on the records.
#[derive(Clone, Copy, Debug)]
pub struct Records<M: Memory = Native> {
    memory: M,
    table: Offset,
}

const STRIDE: u64 = 256;
const HEART: u64 = 128;
/// The word of a host that names its process on watch. It is in the cache line of the host's
/// heartbeat, which the watcher writes.
const WATCHER: u64 = 136;
const PROVEN: u64 = 192;
const ENDED: u64 = 208;
/// The word of a process that publishes against which hosts its fence agents are at work.
const AGENTS: u64 = 224;
/// The word of a host that names its incarnation that was fenced.
const FENCED: u64 = 232;

impl<M: Memory> Records<M> {
    pub(crate) fn new(memory: M, table: Offset) -> Self {
        Self { memory, table }
    }

    /// Returns the size in bytes of the records of `ids` ids.
    pub const fn bytes(ids: u32) -> u64 {
        ids as u64 * STRIDE
    }

    fn at(self, id: InstanceId) -> Offset {
        self.table + u64::from(id) * STRIDE
    }

    /// Writes the record of an incarnation that is joining. Only the joining thread calls it.
    pub(crate) fn write(self, record: &Record) {
        let at = self.at(record.instance.id);
        // The record is not this incarnation's until the last store.
        self.memory.store(at, Instance::NONE, Ordering::Relaxed);
        // Release fence: a reader of any word below also sees that the first word was cleared.
        self.memory.fence(Ordering::Release);
        let name = &record.name.as_bytes()[..record.name.len().min(Record::NAME)];
        let words = [
            u64::from(record.thread.process.pid) | u64::from(record.thread.tid) << 32,
            record.thread.process.start_time,
            record.thread.start_time,
            record.process.map_or(Instance::NONE, Instance::to_word),
            u64::from(record.uid) | (name.len() as u64) << 32 | u64::from(record.has_cord) << 63,
        ];
        for (i, word) in words.into_iter().enumerate() {
            self.memory
                .store(at + 8 + i as u64 * 8, word, Ordering::Relaxed);
        }
        self.memory.copy_in(at + 48, name);
        // Agents that the last incarnation called do not belong to this one.
        self.memory.store(at + AGENTS, 0u64, Ordering::Relaxed);
        self.memory.persist(at, HEART);
        // Release: the first word is visible after the rest.
        self.memory
            .store(at, record.instance.to_word(), Ordering::Release);
        self.memory.persist(at, 8);
    }

    /// Returns the record of `instance`, if it has been written and not been replaced.
    pub fn read(self, instance: Instance) -> Option<Record> {
        // The instance may come from a damaged event.
        let at = Offset::checked(self.at(instance.id).raw(), STRIDE, 8, self.memory.size()).ok()?;
        let mine = instance.to_word();
        if self.memory.load::<u64>(at, Ordering::Acquire) != mine {
            return None;
        }
        let word = |i: u64| self.memory.load::<u64>(at + 8 + i * 8, Ordering::Relaxed);
        let (ids, process_start, thread_start, process, user) =
            (word(0), word(1), word(2), word(3), word(4));
        let mut name = vec![0; ((user >> 32) as usize & 0xFF).min(Record::NAME)];
        self.memory.copy_out(at + 48, &mut name);
        // Acquire fence, then the first word again: if it is unchanged, none of the words above
        // came from a later writer, whose release fence would have made its NONE visible here.
        self.memory.fence(Ordering::Acquire);
        if self.memory.load::<u64>(at, Ordering::Relaxed) != mine {
            return None;
        }
        Some(Record {
            instance,
            thread: ThreadIdentity {
                process: ProcessIdentity {
                    pid: ids as u32,
                    start_time: process_start,
                },
                tid: (ids >> 32) as u32,
                start_time: thread_start,
            },
            process: Instance::from_word(process),
            uid: user as u32,
            has_cord: user >> 63 != 0,
            name: String::from_utf8_lossy(&name).into_owned(),
        })
    }

    /// Notes that `by` has proven that `dead` is dead, and raised its generation. Called by `by`
    /// after the raise. Nothing depends on the note; if `by` dies before, there is none.
    pub(crate) fn note_proven(self, dead: Instance, by: Instance) {
        let at = self.at(dead.id) + PROVEN;
        let note = u128::from(dead.to_word()) << 64 | u128::from(by.to_word());
        // Relaxed: the note publishes nothing but itself. The note of a later incarnation stays.
        let order = Ordering::Relaxed;
        let mut seen: u128 = self.memory.load(at, order);
        while Instance::from_word((seen >> 64) as u64)
            .is_none_or(|before| before.generation < dead.generation)
        {
            match self.memory.compare_exchange(at, seen, note, order, order) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        self.memory.persist(at, 16);
    }

    /// Returns the process that proved the death of `dead`. Returns `None` if that process is not
    /// known: `dead` lives, or the process was not a member yet, or died before it recorded the
    /// proof.
    pub fn proven_by(self, dead: Instance) -> Option<Instance> {
        let note: u128 = self
            .memory
            .load(self.at(dead.id) + PROVEN, Ordering::Relaxed);
        let of = Instance::from_word((note >> 64) as u64);
        (of == Some(dead)).then_some(Instance::from_word(note as u64)?)
    }

    /// Returns the offset of the word that names the fenced incarnation of `host`: for proofs.
    #[doc(hidden)]
    pub fn fenced_at(self, host: InstanceId) -> Offset {
        self.at(host) + FENCED
    }

    /// Notes that `host` is off because it was fenced. Called before its generation is raised, so
    /// that the reason is there for every member that may report the death. A caller that dies in
    /// between leaves a note of a host that is still being fenced; the next one writes the same.
    pub(crate) fn note_fenced(self, host: Instance) {
        // Relaxed: the raise, which is a release, publishes it. The note of an incarnation that was
        // not raised means nothing: no incarnation of a later generation has this word.
        let at = self.fenced_at(host.id);
        self.memory.store(at, host.to_word(), Ordering::Relaxed);
        self.memory.persist(at, 8);
    }

    /// Returns whether `dead`, whose generation was raised, was a host that had been fenced.
    pub(crate) fn was_fenced(self, dead: Instance) -> bool {
        // Relaxed: the caller has acquired the raise.
        let noted = self.memory.load(self.fenced_at(dead.id), Ordering::Relaxed);
        Instance::from_word(noted) == Some(dead)
    }

    /// Records that the process with the process id `pid`, which was an incarnation of `id`, ended
    /// with the wait status `status`. Does nothing unless the record of `id` is still that
    /// process's. Its supervisor calls this when it reaps the process. Nothing depends on this
    /// status, and a supervisor that dies before the call leaves none.
    pub(crate) fn note_ended(self, id: InstanceId, pid: u32, status: i32) {
        let at = self.at(id);
        let written = Instance::from_word(self.memory.load(at, Ordering::Acquire));
        let record = written.and_then(|instance| self.read(instance));
        if let Some(record) = record.filter(|record| record.thread.process.pid == pid) {
            let note = u128::from(record.instance.to_word()) << 64 | u128::from(status as u32);
            // Relaxed: the status and its process are in one word. Only one supervisor writes it.
            self.memory.store(at + ENDED, note, Ordering::Relaxed);
            self.memory.persist(at + ENDED, 16);
        }
    }

    /// Returns the wait status with which the process `instance` ended, as in
    /// [`ExitStatusExt::from_raw`](std::os::unix::process::ExitStatusExt::from_raw). `None` if no
    /// supervisor has recorded it, or a later incarnation of the id has ended since.
    pub fn ended(self, instance: Instance) -> Option<i32> {
        let note: u128 = self
            .memory
            .load(self.at(instance.id) + ENDED, Ordering::Relaxed);
        let of = Instance::from_word((note >> 64) as u64);
        (of == Some(instance)).then_some(note as u32 as i32)
    }

    /// Publishes against which hosts the fence agents of the process `id` are at work, as
    /// [bits](super::agents::bit). Only one thread of that process calls this.
    pub(crate) fn publish_agents(self, id: InstanceId, hosts: u64) {
        // Relaxed: the handshake in `agents.rs` has full fences, and nothing else depends on the
        // word.
        self.memory
            .store(self.at(id) + AGENTS, hosts, Ordering::Relaxed);
    }

    /// Returns the hosts against which the fence agents of the process `id` are at work.
    pub(crate) fn agents(self, id: InstanceId) -> u64 {
        self.memory.load(self.at(id) + AGENTS, Ordering::Relaxed)
    }

    /// Advances the heartbeat of `id`. Wait-free.
    #[inline]
    pub fn beat(self, id: InstanceId) {
        // Relaxed: readers only check whether the count has changed.
        self.memory
            .fetch_add(self.at(id) + HEART, 1u64, Ordering::Relaxed);
    }

    /// Returns the word that names the process on watch for `host`; that process may have died
    /// since.
    pub(crate) fn watch(self, host: InstanceId) -> u64 {
        self.memory.load(self.at(host) + WATCHER, Ordering::Relaxed)
    }

    /// Changes that word from `seen` to `to`. Returns `false` if the word is not `seen` any more.
    pub(crate) fn change_watch(self, host: InstanceId, seen: u64, to: u64) -> bool {
        // Relaxed: the word alone decides, and it publishes no other memory.
        let (at, order) = (self.at(host) + WATCHER, Ordering::Relaxed);
        let changed = self.memory.compare_exchange(at, seen, to, order, order);
        changed.is_ok()
    }

    /// Returns the number of heartbeats of `id`.
    pub fn beats(self, id: InstanceId) -> u64 {
        self.memory.load(self.at(id) + HEART, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_memory::PersistenceDomain;

    #[test]
    fn a_record_is_read_by_its_incarnation_only() {
        let memory = Native::leaked(4096, PersistenceDomain::Flushed);
        let records = Records::new(memory, Offset::new(0));
        let record = Record {
            instance: Instance::new(2, 7),
            thread: ThreadIdentity {
                process: ProcessIdentity {
                    pid: 10,
                    start_time: 20,
                },
                tid: 11,
                start_time: 21,
            },
            process: Some(Instance::new(1, 3)),
            uid: 1000,
            has_cord: true,
            name: "worker".into(),
        };
        assert_eq!(records.read(record.instance), None);
        records.write(&record);
        assert_eq!(records.read(record.instance), Some(record.clone()));
        assert_eq!(records.read(Instance::new(2, 8)), None);
        let long = Record {
            name: "x".repeat(200),
            ..record
        };
        records.write(&long);
        assert_eq!(records.read(long.instance).unwrap().name, "x".repeat(40));
        // The prover is noted of the incarnation that died last.
        let (first, second, by) = (record.instance, Instance::new(2, 8), Instance::new(4, 1));
        assert_eq!(records.proven_by(first), None);
        records.note_ended(2, 11, 9);
        assert_eq!(records.ended(record.instance), None);
        records.note_ended(2, 10, 0x86);
        assert_eq!(records.ended(record.instance), Some(0x86));
        assert_eq!(records.ended(Instance::new(2, 8)), None);
        records.note_proven(first, by);
        assert_eq!(records.proven_by(first), Some(by));
        records.note_proven(second, Instance::new(5, 1));
        records.note_proven(first, by);
        assert_eq!(records.proven_by(second), Some(Instance::new(5, 1)));
        assert_eq!(records.proven_by(first), None);
    }
}
