//! Repairs a pod that is not in use.

use super::{Check, Pod, PodError};
use crate::heap::HeapRepair;
use crate::membership::{InstanceId, JoinError, Level, Member, ProcessOptions, State, Status};
use crate::segment::{OpenError, backend};
use core::time::Duration;
use std::time::Instant;

/// The time for members that seem live to be proven dead, or for the dead to be recovered.
const PATIENCE: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_millis(5);

/// The actions of a repair, and the state after it.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The ids that were recovered: logs, pending-allocation cells and retired blocks.
    pub recovered: Vec<InstanceId>,
    /// The ids that could not be recovered, and the reasons.
    pub unrecovered: Vec<(InstanceId, String)>,
    /// The number of retired blocks that were freed.
    pub freed: u64,
    /// The repairs in the heap.
    pub heap: Vec<HeapRepair>,
    /// The check after the repair.
    pub check: Check,
}

/// A repair that uses the pod exclusively, until this is dropped.
struct Repairing<'a>(&'a Pod);

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        if let Ok(file) = self.0.segment().own_file() {
            // If this fails, the pod stays locked by this opening.
            let _ = backend::share(&file, self.0.segment().path());
        }
        self.0.use_of_it().repairing = false;
    }
}

impl Pod {
    /// Recovers the dead members, frees the blocks that they retired and repairs the heap as far as
    /// possible, if the pod is not in use. Returns the actions and the remaining violations. No
    /// other process must open the pod at the same time.
    ///
    /// For the time of the repair, the caller joins as a process on a host of its own. This process
    /// detects deaths that no live member could report. State that only a program's own handlers
    /// can recover is left unrecovered, and the heap is then not repaired.
    ///
    /// # Errors
    /// If the pod is in use, or has no id to spare.
    ///
    /// # Crash
    /// The repair can be repeated.
    pub fn repair(&self) -> Result<Repair, PodError> {
        let in_use = |why: String| PodError::InUse {
            path: self.segment().path().into(),
            why,
        };
        self.refuse_an_observer()?;
        if self.segment().is_inherited() {
            // The lock belongs to the parent as well, and would keep all others out.
            return Err(in_use(
                "this process was forked after it was opened; open it again".into(),
            ));
        }
        // Clones of this pod share its lock, so a flag keeps them out.
        let mut of_it = self.use_of_it();
        if of_it.repairing || of_it.has_members() {
            return Err(in_use(
                "this process is a member of it, or is already repairing it".into(),
            ));
        }
        of_it.repairing = true;
        drop(of_it);
        let _repairing = Repairing(self);
        // Every other opening on this kernel holds a shared lock.
        let file = self.segment().own_file()?;
        if !backend::lock(&file, self.segment().path()).map_err(OpenError::from)? {
            return Err(in_use("another process has it open".into()));
        }
        self.repair_alone(in_use)
    }

    fn repair_alone(&self, in_use: impl Fn(String) -> PodError) -> Result<Repair, PodError> {
        let states = || -> Vec<Option<State>> {
            let generations = self.tables().generations();
            (0..self.tables().extent().ids)
                .map(|id| generations.state(id).ok())
                .collect()
        };
        let before = states();
        // The last id without an owner, because ids that are given by hand begin with 0. If there
        // is none, that of a former host, whose members are dead: no other process has the pod
        // open.
        let last = |is_one: fn(State) -> bool| {
            let mut states = before.iter();
            states.rposition(|state| state.is_some_and(is_one))
        };
        let is_free = |state: State| {
            use Status::{Free, Left, Recovered};
            matches!(state.status, Free | Left | Recovered)
        };
        let host = last(is_free).or_else(|| last(|state| state.level == Some(Level::Host)));
        let host = host.ok_or_else(|| in_use("all of its ids are taken".into()))? as InstanceId;
        let options = ProcessOptions::on_host(host)
            .host_name("repair")
            .name("repair");
        let process = self.join_as(options, |recoverers| recoverers, true)?;
        let until = Instant::now() + PATIENCE;
        let thread = loop {
            match process.enter(None, "repair") {
                // Until the deaths of members are noticed and recovered, all ids may be taken.
                Err(JoinError::Full { .. } | JoinError::NotRecovered { .. })
                    if Instant::now() < until =>
                {
                    std::thread::sleep(ROUND);
                }
                entered => break entered?,
            }
        };
        let own = [host, process.instance().id, thread.instance().id];
        let others = || -> Vec<InstanceId> {
            let writers = self.tables().writers();
            writers
                .map(|(id, _)| id)
                .filter(|id| !own.contains(id))
                .collect()
        };
        // The deaths among them are noticed by now, or soon.
        let until = Instant::now() + PATIENCE;
        while !others().is_empty() {
            if Instant::now() > until {
                let ids: Vec<String> = others().iter().map(u32::to_string).collect();
                return Err(in_use(format!(
                    "the members with the ids {} are alive",
                    ids.join(", ")
                )));
            }
            std::thread::sleep(ROUND);
        }
        let unrecovered = self.recover_the_dead(&thread);
        let mut freed = 0;
        let mut heap = Vec::new();
        if unrecovered.is_empty()
            && let Some(of) = self.heap()
        {
            let retired = || -> u64 {
                let all = 0..self.tables().extent().ids;
                all.map(|id| of.retired(self.logs().of(id)).count() as u64)
                    .sum()
            };
            let there = retired();
            heap = of.repair();
            thread.heap(self)?.reclaim();
            freed = there.saturating_sub(retired());
        }
        drop(thread);
        process.leave()?;
        let recovered = (0u32..)
            .zip(before.into_iter().zip(states()))
            .filter(|(_, (before, after))| {
                let was = |state: State| state.status.may_write() || state.status == Status::Dead;
                let is = |state: State| state.status == Status::Recovered;
                before.is_some_and(was) && after.is_some_and(is)
            })
            .map(|(id, _)| id)
            .collect();
        Ok(Repair {
            recovered,
            unrecovered,
            freed,
            heap,
            check: self.check(),
        })
    }

    /// Recovers the dead members, and the logs that dead members had claimed. Returns the ids that
    /// it could not recover, and the reasons.
    fn recover_the_dead(&self, thread: &Member) -> Vec<(InstanceId, String)> {
        let (generations, recoverers) = (self.tables().generations(), thread.recoverers());
        let until = Instant::now() + PATIENCE;
        let mut failed = Vec::new();
        for id in 0..self.tables().extent().ids {
            // A host holds nothing; the recovery thread marks it as recovered.
            while let Ok(state) = generations.state(id)
                && (state.status == Status::Dead
                    || recoverers.is_some_and(|recoverers| recoverers.is_due(thread, id)))
            {
                let outcome = match recoverers {
                    Some(recoverers) if state.level != Some(Level::Host) => {
                        recoverers.recover(thread, id).map_err(|e| e.to_string())
                    }
                    _ => Ok(crate::recovery::Recovered::NothingLeft),
                };
                if let Err(why) = outcome {
                    failed.push((id, why));
                    break;
                }
                if Instant::now() > until {
                    failed.push((id, "it is still not recovered".into()));
                    break;
                }
                std::thread::sleep(ROUND);
            }
        }
        failed
    }
}
