//! A scripted operating system, as one of its threads uses it.

use super::{Claimed, Process, Scripted, Slot, State};
use crate::host::{
    Bells, Liveness, Obituary, Os, OsError, OsIdentity, Presence, ProcessHandle, ProcessIdentity,
    ThreadIdentity,
};
use core::fmt;
use core::time::Duration;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A scripted operating system as one of its threads sees it.
#[derive(Clone)]
pub struct ScriptedOs {
    pub(super) os: Scripted,
    pub(super) thread: ThreadIdentity,
}

impl ScriptedOs {
    /// Returns the thread that acts through this value.
    pub fn thread(&self) -> ThreadIdentity {
        self.thread
    }

    /// Returns the operating system.
    pub fn scripted(&self) -> &Scripted {
        &self.os
    }

    /// A dead thread executes nothing.
    fn acting(&self) -> MutexGuard<'static, State> {
        let state = self.os.state();
        let me = state.threads.iter().find(|t| t.identity == self.thread);
        let dead = me.is_none_or(|thread| thread.gone);
        if dead {
            drop(state);
            panic!("the script lets a dead thread act: {:?}", self.thread);
        }
        state
    }
}

impl Os for ScriptedOs {
    fn identity(&self) -> OsIdentity {
        self.os.machine.identity
    }

    fn now(&self) -> Duration {
        self.os.now()
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn gid(&self) -> u32 {
        1000
    }

    fn this_thread(&self) -> ThreadIdentity {
        self.thread
    }

    fn claim_presence(&self, id: u32) -> Result<Option<Presence>, OsError> {
        let alive = Arc::clone(&self.acting().process(self.thread.process).alive);
        let presences = Arc::clone(&self.os.machine.presences);
        let mut all = presences.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&id).is_some_and(|of| of.load(Ordering::SeqCst)) {
            return Ok(None);
        }
        all.insert(id, Arc::clone(&alive));
        drop(all);
        Ok(Some(Presence::new(Claimed {
            presences,
            id,
            alive,
        })))
    }

    fn claim_presence_briefly(&self, id: u32) -> Result<Option<Presence>, OsError> {
        self.claim_presence(id)
    }

    fn is_present(&self, id: u32) -> bool {
        let all = self.os.machine.presences.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        all.get(&id).is_some_and(|of| of.load(Ordering::SeqCst))
    }

    fn use_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        // A lock that several processes may hold is one presence for each of them.
        let pid = self.thread.process.pid;
        self.claim_presence(1 << 31 | u32::from(number) << 15 | pid)
    }

    fn reserve_system(&self, number: u16) -> Result<Option<Presence>, OsError> {
        let all = self.os.machine.presences.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let first = 1 << 31 | u32::from(number) << 15;
        let mut users = all.range(first..first + (1 << 15));
        let is_used = users.any(|(_, of)| of.load(Ordering::SeqCst));
        Ok((!is_used).then(|| Presence::new(())))
    }

    fn tie_cord(&self, host: u32, generation: u32) -> Result<Presence, OsError> {
        let mut cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let tied = cords.entry((host, generation)).or_default();
        tied.push((self.os.clone(), self.thread.process));
        Ok(Presence::new(()))
    }

    fn pull_cord(&self, host: u32, generation: u32) -> bool {
        drop(self.acting());
        let tied = {
            let cords = self
                .os
                .machine
                .cords
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cords.get(&(host, generation)).cloned().unwrap_or_default()
        };
        let mut pulled = false;
        for (os, process) in tied {
            let handle = ScriptedHandle { os, process };
            // A process that refuses kills represents the first process of a PID namespace.
            pulled |= !handle.is_gone() && handle.send_kill();
        }
        pulled
    }

    fn finds_cord(&self, host: u32, generation: u32) -> bool {
        let cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cords.contains_key(&(host, generation))
    }

    fn has_cord_of_another(&self, _host: u32, _generation: u32) -> bool {
        false
    }

    fn maps_pod(&self, _process: ProcessIdentity) -> bool {
        true
    }

    fn remove_cord(&self, host: u32, generation: u32) {
        let mut cords = self
            .os
            .machine
            .cords
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cords.remove(&(host, generation));
    }

    fn open_process(
        &self,
        process: ProcessIdentity,
    ) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
        let state = self.acting();
        let mut processes = state.processes.iter();
        match processes.find(|known| known.identity == process) {
            Some(known) if known.gone => Ok(None),
            Some(known) if known.hidden => Err(OsError::Missing {
                what: "/proc of other processes",
                hint: "the script hides it".into(),
            }),
            Some(_) => Ok(Some(Box::new(ScriptedHandle {
                os: self.os.clone(),
                process,
            }))),
            None => Ok(None),
        }
    }

    fn thread_liveness(&self, thread: ThreadIdentity) -> Liveness {
        let state = self.acting();
        let hidden = |p: &&Process| p.identity == thread.process && p.hidden && !p.gone;
        if state.processes.iter().any(|process| hidden(&process)) {
            return Liveness::Unknown;
        }
        match state.threads.iter().find(|t| t.identity == thread) {
            Some(known) if !known.gone => Liveness::Exists,
            _ => Liveness::Gone,
        }
    }

    fn hold_obituary(&self, slot: u32) -> Result<Result<(), Obituary>, OsError> {
        let mut state = self.acting();
        let seen = state.obituary(slot);
        if seen != Obituary::Vacant {
            return Ok(Err(seen));
        }
        state.obituaries[slot as usize].holder = self.thread.tid;
        Ok(Ok(()))
    }

    fn release_obituary(&self, slot: u32) {
        let mut state = self.acting();
        if state.obituaries[slot as usize].holder == self.thread.tid {
            state.obituaries[slot as usize] = Slot::default();
        }
    }

    fn obituary(&self, slot: u32) -> Obituary {
        self.acting().obituary(slot)
    }

    fn clear_obituary(&self, slot: u32, seen: Obituary) -> bool {
        let mut state = self.acting();
        let clears = seen != Obituary::Vacant && state.obituary(slot) == seen;
        if clears {
            state.obituaries[slot as usize] = Slot::default();
        }
        clears
    }

    fn holder(&self, slot: u32) -> Option<ThreadIdentity> {
        let state = self.acting();
        let tid = state.obituaries[slot as usize].holder;
        let mut threads = state.threads.iter().rev();
        threads
            .find(|thread| thread.identity.tid == tid)
            .map(|thread| thread.identity)
    }

    fn clear_if_gone(&self, slot: u32) -> bool {
        let Some(holder) = self.holder(slot) else {
            return false;
        };
        let unmarked = !self.acting().obituaries[slot as usize].marked;
        let gone = unmarked && self.thread_liveness(holder) == Liveness::Gone;
        if gone {
            self.acting().obituaries[slot as usize] = Slot::default();
        }
        gone
    }

    fn bells(&self) -> &'static dyn Bells {
        self.os.machine.bells.get_or_init(|| self.os.clone())
    }

    /// If there is no news yet, time passes up to `timeout`, with the scheduled events in it.
    fn wait_for_news(&self, held: &[(u32, u32)], key: u64, seen: u32, timeout: Duration) {
        let until = self.acting().now + timeout;
        self.os.pass_time(until, || {
            let state = self.os.state();
            let same = |&(slot, tid): &(u32, u32)| state.obituary(slot) == Obituary::Held { tid };
            state.bells.get(&key).copied().unwrap_or(0) != seen || !held.iter().all(same)
        });
    }

    fn most_watched(&self) -> usize {
        127
    }

    fn wake_watchers(&self, slot: u32) {
        self.acting().wakes.push(slot);
    }
}

impl Bells for Scripted {
    fn read(&self, key: u64) -> u32 {
        self.state().bells.get(&key).copied().unwrap_or(0)
    }

    fn wait(&self, key: u64, seen: u32, timeout: Duration) {
        let until = self.now() + timeout;
        self.pass_time(until, || self.read(key) != seen);
    }

    fn ring(&self, key: u64) {
        let mut state = self.state();
        let bell = state.bells.entry(key).or_default();
        *bell = bell.wrapping_add(1);
    }
}

struct ScriptedHandle {
    pub(super) os: Scripted,
    process: ProcessIdentity,
}

impl ProcessHandle for ScriptedHandle {
    fn identity(&self) -> ProcessIdentity {
        self.process
    }

    fn is_gone(&self) -> bool {
        self.os.state().process(self.process).gone
    }

    fn send_kill(&self) -> bool {
        let mut state = self.os.state();
        let process = state.process(self.process);
        if process.gone {
            return true;
        }
        if process.refuses {
            return false;
        }
        process.told_to_die = true;
        let dies = !process.unkillable;
        drop(state);
        if dies {
            self.os.kill_process(self.process);
        }
        true
    }

    fn wait_gone(&self, timeout: Duration) -> bool {
        let until = self.os.now() + timeout;
        self.os.pass_time(until, || self.is_gone());
        self.is_gone()
    }
}

impl fmt::Debug for ScriptedOs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} seen by {}", self.os, self.thread.tid)
    }
}

impl fmt::Debug for ScriptedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedHandle({})", self.process.pid)
    }
}
