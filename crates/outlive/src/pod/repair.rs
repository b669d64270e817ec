//! Mending a pod that nobody uses.

use super::{Check, Pod, PodError};
use crate::heap::HeapRepair;
use crate::membership::{InstanceId, Level, Member, ProcessOptions, State, Status};
use crate::segment::backend;
use core::time::Duration;
use std::time::Instant;

/// How long those who seem to live are given to be proven dead, or the dead to be recovered.
const PATIENCE: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_millis(5);

/// What a repair did, and what it found afterwards.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The ids that were recovered: their logs, what they had in their hands, their retired blocks.
    pub recovered: Vec<InstanceId>,
    /// The ids that could not be, and why.
    pub unrecovered: Vec<(InstanceId, String)>,
    /// How many retired blocks were freed.
    pub freed: u64,
    /// What was mended in the heap.
    pub heap: Vec<HeapRepair>,
    /// What is wrong still.
    pub check: Check,
}

/// A repair that uses the pod exclusively, until this is dropped.
struct Repairing<'a>(&'a Pod);

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        if let Ok(file) = self.0.segment().own_file() {
            backend::share(&file);
        }
        self.0.use_of_it().repairing = false;
    }
}

impl Pod {
    /// Recovers the dead, frees what they retired and mends what can be mended in the heap, if nobody uses the
    /// pod; says what was done, and what is wrong still. Nobody must open the pod meanwhile.
    ///
    /// It joins as a process of a host of its own for the time, by which those are noticed whom nobody
    /// was left to notice. What only a program's own handlers can recover is left, and with it the heap.
    ///
    /// # Errors
    /// If somebody uses the pod, or it has no id to spare.
    ///
    /// # Crash
    /// It can be run again.
    pub fn repair(&self) -> Result<Repair, PodError> {
        let in_use = |why: String| PodError::InUse {
            path: self.segment().path().into(),
            why,
        };
        // Clones of this pod share its lock, so a flag keeps them out.
        let mut of_it = self.use_of_it();
        if of_it.repairing || of_it.has_members() {
            return Err(in_use(
                "this process is a member of it, or repairs it".into(),
            ));
        }
        of_it.repairing = true;
        drop(of_it);
        let _repairing = Repairing(self);
        // Every other opening on this kernel holds a shared lock.
        let file = self.segment().own_file()?;
        if !backend::lock(&file) {
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
        // The last id that nobody has, for ids that are given by hand begin with 0.
        let host = before.iter().rposition(|state| {
            state.is_some_and(|state| {
                matches!(
                    state.status,
                    Status::Free | Status::Left | Status::Recovered
                )
            })
        });
        let host = host.ok_or_else(|| in_use("all of its ids are taken".into()))? as InstanceId;
        let options = ProcessOptions::on_host(host)
            .host_name("repair")
            .name("repair");
        let process = self.join_as(options, |recoverers| recoverers, true)?;
        let thread = process.enter(None, "repair")?;
        let own = [host, process.instance().id, thread.instance().id];
        let others = || -> Vec<InstanceId> {
            let writers = self.tables().writers();
            writers
                .map(|(id, _)| id)
                .filter(|id| !own.contains(id))
                .collect()
        };
        // The dead among them are noticed by now, or soon.
        let until = Instant::now() + PATIENCE;
        while !others().is_empty() {
            if Instant::now() > until {
                let ids: Vec<String> = others().iter().map(u32::to_string).collect();
                return Err(in_use(format!("ids {} live", ids.join(", "))));
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

    /// Recovers whoever is dead, and the logs that the dead had in their hands; whom it could not, and why.
    fn recover_the_dead(&self, thread: &Member) -> Vec<(InstanceId, String)> {
        let (generations, recoverers) = (self.tables().generations(), thread.recoverers());
        let until = Instant::now() + PATIENCE;
        let mut failed = Vec::new();
        for id in 0..self.tables().extent().ids {
            // A host holds nothing; the keeper says so.
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
