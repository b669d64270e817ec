//! An operating system that has only obituaries. They are words of the proof's memory, so they,
//! too, are read at every interleaving.

use super::tables::Silent;
use core::time::Duration;
use outlive::host::{
    Bells, Liveness, Obituary, Os, OsError, OsIdentity, Presence, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
use outlive_memory::{Memory, Offset, Ordering};

/// The operating system, as seen by one thread. It has no processes, and panics if one is needed.
#[derive(Clone, Copy, Debug)]
pub struct Obituaries<M: Memory> {
    memory: M,
    at: Offset,
    tid: u32,
}

const MARK: u64 = 1 << 32;

fn of_word(word: u64) -> Obituary {
    let tid = word as u32;
    match word {
        0 => Obituary::Vacant,
        _ if word & MARK != 0 => Obituary::Marked { tid },
        _ => Obituary::Held { tid },
    }
}

fn to_word(obituary: Obituary) -> u64 {
    match obituary {
        Obituary::Vacant => 0,
        Obituary::Held { tid } => tid.into(),
        Obituary::Marked { tid } => MARK | u64::from(tid),
    }
}

impl<M: Memory> Obituaries<M> {
    /// Returns the obituaries at `at`, for the thread `tid`.
    pub fn new(memory: M, at: Offset, tid: u32) -> Self {
        Self { memory, at, tid }
    }

    fn word_at(&self, slot: u32) -> Offset {
        self.at + u64::from(slot) * 8
    }

    /// Marks the obituary of `slot`, as the kernel does when the thread that holds it dies.
    pub fn mark(&self, slot: u32) {
        let held: u64 = self.memory.load(self.word_at(slot), Ordering::Acquire);
        assert!(matches!(of_word(held), Obituary::Held { .. }));
        // Release: after all writes of the dead thread.
        self.memory
            .store(self.word_at(slot), held | MARK, Ordering::Release);
    }
}

impl<M: Memory> Os for Obituaries<M> {
    fn identity(&self) -> OsIdentity {
        OsIdentity {
            id: 1,
            boot: 1,
            machine: 0,
            one_kernel: false,
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn uid(&self) -> u32 {
        0
    }

    fn gid(&self) -> u32 {
        0
    }

    fn this_thread(&self) -> ThreadIdentity {
        ThreadIdentity {
            process: ProcessIdentity {
                pid: self.tid,
                start_time: 0,
            },
            tid: self.tid,
            start_time: 0,
        }
    }

    fn claim_presence(&self, _id: u32) -> Result<Option<Presence>, OsError> {
        Ok(Some(Presence::new(())))
    }

    fn claim_presence_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.claim_presence(id)
    }

    /// No process lives on without its one thread.
    fn is_present(&self, id: u32) -> bool {
        matches!(self.obituary(id), Obituary::Held { .. })
    }

    fn use_system(&self, _number: u16) -> Result<Option<Presence>, OsError> {
        Ok(Some(Presence::new(())))
    }

    fn reserve_system(&self, _number: u16) -> Result<Option<Presence>, OsError> {
        Ok(None)
    }

    fn tie_cord(&self, _host: u32, _generation: u32) -> Result<Presence, OsError> {
        Ok(Presence::new(()))
    }

    fn pull_cord(&self, _host: u32, _generation: u32) -> bool {
        false
    }

    fn finds_cord(&self, _host: u32, _generation: u32) -> bool {
        false
    }

    fn has_cord_of_another(&self, _host: u32, _generation: u32) -> bool {
        false
    }

    fn maps_pod(&self, _process: ProcessIdentity) -> bool {
        true
    }

    fn remove_cord(&self, _host: u32, _generation: u32) {}

    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
        unreachable!("{process:?} is none: there are no processes here")
    }

    fn thread_liveness(&self, _thread: ThreadIdentity) -> Liveness {
        Liveness::Unknown
    }

    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError> {
        let taken = self.memory.compare_exchange(
            self.word_at(slot),
            0,
            u64::from(self.tid),
            Ordering::Acquire,
            Ordering::Acquire,
        );
        Ok(taken.map(drop).map_err(of_word))
    }

    fn release_obituary(&self, slot: u32) {
        let _ = self.memory.compare_exchange(
            self.word_at(slot),
            u64::from(self.tid),
            0,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    fn obituary(&self, slot: u32) -> Obituary {
        of_word(self.memory.load(self.word_at(slot), Ordering::Acquire))
    }

    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        let cleared = self.memory.compare_exchange(
            self.word_at(slot),
            to_word(seen),
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        cleared.is_ok()
    }

    fn holder(&self, _slot: u32) -> Option<ThreadIdentity> {
        None
    }

    fn clear_if_gone(&self, _slot: u32) -> bool {
        false
    }

    fn bells(&self) -> &'static dyn Bells {
        &Silent
    }

    fn wait_for_news(&self, _held: &[(u32, u32)], _key: u64, _seen: u32, _timeout: Duration) {}

    fn most_watched(&self) -> usize {
        0
    }

    fn wake_watchers(&self, _slot: u32) {}
}
