//! The sentinel: the thread by which a process takes part in its pod. No daemon is needed.
//!
//! It joins for its process (and brings its host to life under the join lock), so it is the thread
//! whose obituary stands for the process. If its process is on [watch](super::watch) for the host,
//! then on every heartbeat and whenever an obituary or its wake-up futex wakes it, the sentinel
//! advances its host's heartbeat, scans for dead members of its operating system, notifies the
//! groups of deaths that have not been reported, is a candidate for fabric manager, and wakes local
//! sleepers for events that other operating systems have reported. The sentinels of the host's
//! other processes only watch the watcher.
//!
//! It does nothing that could take long: a host whose heartbeat stops for a recovery would be
//! fenced. The [recovery thread](super::recovery_thread), which it wakes, finishes the operations
//! of dead members.

use super::admission::{Admission, refuse_the_unfenceable};
use super::death::reconcile;
use super::detector::Detector;
use super::join::{self, Claim, JoinError};
use super::join_lock::{JoinLock, attach_host, end_host_if_empty};
use super::manager::Manager;
use super::shared::Shared;
use super::watch::{self, Watch};
use super::{GroupId, Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Os, end_this_process};
use core::time::Duration;
use outlive_memory::Native;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// The time that a process waits for one holder of its host's join lock.
const JOIN_LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The interval at which `/proc` is checked for threads whose obituaries are missing, and the
/// groups are compared with the table of generations even without a death.
const THOROUGH: Duration = Duration::from_secs(1);
/// The shortest time between two checks of a process whose sentinel is dead.
const DYING: Duration = Duration::from_micros(500);
/// The time until the next check is this part of the time that the process has been dying.
const DYING_PART: u32 = 16;
/// The time after which these checks end: a process may live on without its sentinel.
const DYING_PATIENCE: Duration = Duration::from_secs(2);

/// Returns the wake-up futex of the sentinel of process `id`.
pub(crate) const fn bell_of(id: InstanceId) -> u64 {
    1 << 32 | id as u64
}

/// The parameters of a process's join.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// `None`: a host of its own.
    pub host: Option<InstanceId>,
    pub host_name: String,
    pub id: Option<InstanceId>,
    pub name: String,
}

/// Joins the host and the process with the calling thread.
pub(crate) fn enter(
    shared: &Shared,
    os: &dyn Os,
    entry: &Entry,
) -> Result<(Instance, Instance), JoinError> {
    let (tables, number) = (shared.tables, shared.os_number);
    let (_join_lock, host) = match entry.host {
        Some(id) => {
            let join_lock = wait_for_join_lock(shared, os, id)?;
            (join_lock, attach(shared, os, entry, id)?)
        }
        None => join::first_free(tables, os, number, |id| create_host(shared, os, entry, id))?,
    };
    // Without a cord, only users that may signal the process can kill it. Admission depends on
    // that.
    let cord = os.tie_cord(host.id, host.generation);
    if let Err(error) = &cord {
        tracing::debug!(%host, %error, "this process has no cord");
    }
    let claim = Claim {
        level: Level::Process,
        host_word: host.id as u16,
        host: Some(host),
        process: None,
        has_cord: cord.is_ok(),
        name: &entry.name,
    };
    // Checked again, now that others can see the host: of two operating systems that join at the
    // same time, at least one sees the other.
    let refuse = || refuse_the_unfenceable(shared, os, Admission::Seen, cord.as_ref().err());
    let joined = refuse()
        .and_then(|()| join::join_process(tables, os, number, entry.id, &claim))
        .and_then(|(process, presence)| {
            // Checked again, now that others can see the process, which may have no cord.
            match refuse() {
                Ok(()) => Ok((process, presence)),
                Err(error) => {
                    join::leave(tables, os, process);
                    Err(error)
                }
            }
        });
    match joined {
        Ok((process, presence)) => {
            shared.keep(presence, cord.ok());
            tables.records().beat(host.id);
            for (instance, level) in [(host, Level::Host), (process, Level::Process)] {
                shared.announce(os, instance, level);
            }
            // Lets the watcher sleep on the new obituary too.
            watch::wake_watcher(tables, os, host);
            Ok((host, process))
        }
        Err(error) => {
            end_host_if_empty(tables, os, number, host, None);
            Err(error)
        }
    }
}

/// Enters the join lock of the host `id`. Hundreds of processes may join at the same time: the
/// patience is per holder of the lock.
fn wait_for_join_lock<'a>(
    shared: &Shared,
    os: &'a dyn Os,
    id: InstanceId,
) -> Result<JoinLock<'a>, JoinError> {
    let (tables, number) = (shared.tables, shared.os_number);
    loop {
        let holder = || (id < tables.extent().ids).then(|| os.obituary(id));
        let before = holder();
        match JoinLock::enter(tables, os, number, id, JOIN_LOCK_PATIENCE) {
            Err(JoinError::InUse { .. }) if holder() != before => {}
            entered => return entered,
        }
    }
}

/// Brings the host `id` to life, unless it lives, another process joins it, or the id is to be that
/// of the process.
fn create_host<'a>(
    shared: &Shared,
    os: &'a dyn Os,
    entry: &Entry,
    id: InstanceId,
) -> Result<(JoinLock<'a>, Instance), JoinError> {
    let (tables, number) = (shared.tables, shared.os_number);
    let taken = |by: &str| JoinError::InUse { id, by: by.into() };
    if entry.id == Some(id) {
        return Err(taken("the process that joins"));
    }
    let join_lock = JoinLock::enter(tables, os, number, id, Duration::ZERO)?;
    match tables.generations().state(id) {
        Ok(state) if !state.status.may_write() => {}
        _ => return Err(taken("another member")),
    }
    Ok((join_lock, attach(shared, os, entry, id)?))
}

/// Joins the host `id`, or brings it to life, under its join lock.
fn attach(
    shared: &Shared,
    os: &dyn Os,
    entry: &Entry,
    id: InstanceId,
) -> Result<Instance, JoinError> {
    let (tables, number) = (shared.tables, shared.os_number);
    let suspicion = shared.settings.suspicion;
    let has_agent = shared.fence_agent.is_some();
    let name = match entry.host_name.as_str() {
        "" => &format!("host {id}"),
        name => name,
    };
    attach_host(tables, os, number, id, name, suspicion, has_agent)
}

/// Waits until the recovery thread has ended, which may first complete a recovery; the heartbeats
/// of the host and the process continue while it waits. Returns whether the recovery thread could
/// settle the obligations of the process.
pub(crate) fn await_recovery_thread(
    shared: &Shared,
    host: Instance,
    process: Instance,
    in_order: &Receiver<bool>,
) -> bool {
    loop {
        beat(shared.tables, host, process);
        match in_order.recv_timeout(shared.settings.heartbeat) {
            Ok(in_order) => return in_order,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Advances the heartbeats of the host and the process.
fn beat(tables: Tables, host: Instance, process: Instance) {
    tables.records().beat(host.id);
    tables.records().beat(process.id);
}

/// Leaves for the process, and for its host if it was the last. `in_order`: the process holds
/// nothing.
pub(crate) fn exit(
    shared: &Shared,
    os: &dyn Os,
    host: Instance,
    process: Instance,
    in_order: bool,
) {
    let (tables, number) = (shared.tables, shared.os_number);
    tables.role().resign(process);
    Watch::new(tables, host, process, &shared.settings).resign(os);
    // The join lock is taken first, so that no process finds the host empty before this one has
    // ended it. Heartbeats continue while it waits.
    let until = os.now() + JOIN_LOCK_PATIENCE;
    let join_lock = loop {
        beat(tables, host, process);
        match JoinLock::enter(tables, os, number, host.id, shared.settings.heartbeat) {
            Ok(join_lock) => break Some(join_lock),
            Err(JoinError::InUse { .. }) if os.now() < until => {}
            // For example, no descriptor is left. A watcher ends the host, or the next process that
            // joins it does.
            Err(error) => {
                tracing::warn!(%host, %error, "this process left without its host's join lock");
                break None;
            }
        }
    };
    if in_order {
        join::leave(tables, os, process);
    } else {
        join::give_up(tables, os, process);
    }
    if join_lock.is_some() {
        end_host_if_empty(
            tables,
            os,
            number,
            host,
            (!in_order).then_some(Some(process)),
        );
    }
    // The presence is released last: until then the table says that the process may write, or that
    // it died.
    shared.give_up_presence();
}

/// Runs until the process leaves and no fence agent that it has called is at work; returns without
/// the role.
pub(crate) fn run(shared: &Shared, os: &dyn Os, host: Instance, process: Instance) {
    let mut sentinel = Sentinel::new(shared, host, process);
    let mut turn = 0;
    while !(shared.stop.load(Ordering::Acquire) && sentinel.leave_off(os)) {
        end_if_declared_dead(shared.tables, host, process);
        end_if_absent(os, process);
        // The futex is read before the round, so that an event after the round's checks ends the
        // sleep.
        let seen = os.bells().read(bell_of(process.id));
        let until = sentinel.round(os);
        let timeout = until.saturating_sub(os.now());
        let held = in_turn(sentinel.held(), os.most_watched(), &mut turn);
        os.wait_for_news(held, bell_of(process.id), seen, timeout);
    }
    // Before the wait for the recovery thread, during which this thread beats and does not watch.
    sentinel.watch.resign(os);
}

/// Ends this process by SIGKILL if the pod has declared it or its host dead: a fence command
/// succeeded although the host was not off, or an operator was wrong. Other members recover, or
/// have recovered, the operations of this process. It can store until this check: for a heartbeat,
/// or in a backup for [`watch::interval`]; longer if it is stopped.
fn end_if_declared_dead(tables: Tables, host: Instance, process: Instance) {
    let is_dead = |instance| tables.generations().is_dead(instance);
    if is_dead(host) || is_dead(process) {
        end_this_process(&format!(
            "outlive: the pod has declared this process ({process}, on host {host}) dead although \
             it runs: a fence command succeeded before the host was off, `outlive pod bury` named \
             a running host, or the process was restored from a checkpoint. The process is killed, \
             because others have recovered its work; check the pod with `outlive pod check`\n"
        ));
    }
}

/// Ends this process by SIGKILL if its presence is free: for every other process that proves its
/// death. It can store until this check, for as long as above.
fn end_if_absent(os: &dyn Os, process: Instance) {
    if !os.is_present(process.id) {
        end_this_process(&format!(
            "outlive: the lock by which the pod knows that this process ({process}) lives is free \
             although it runs: the process was restored from a checkpoint (CRIU, CRaC, DMTCP, \
             `docker checkpoint`), which outlive does not support, or it has unmapped memory of \
             the library. The process is killed, because others count it as dead; start it again, \
             without a checkpoint, and check the pod with `outlive pod check`\n"
        ));
    }
}

/// The state that the sentinel keeps between two rounds.
pub(crate) struct Sentinel<'a> {
    shared: &'a Shared,
    host: Instance,
    process: Instance,
    watch: Watch<Native>,
    detector: Detector,
    manager: Manager,
    /// The dead members that had not been recovered in the last round.
    unrecovered: Vec<Instance>,
    /// The files of the pod that are known to have been removed.
    removed: Vec<PathBuf>,
    /// The obituary of the watcher, on which it sleeps as a backup.
    watcher: Vec<(u32, u32)>,
    /// The tail of each group's log when its waiters were last woken.
    tails: Vec<u64>,
    next_beat: Duration,
    next_thorough: Duration,
    dying: Option<Dying>,
}

impl<'a> Sentinel<'a> {
    pub(crate) fn new(shared: &'a Shared, host: Instance, process: Instance) -> Self {
        let (tables, number) = (shared.tables, shared.os_number);
        let (settings, agent) = (shared.settings.clone(), shared.fence_agent.clone());
        Self {
            shared,
            host,
            process,
            watch: Watch::new(tables, host, process, &shared.settings),
            detector: Detector::new(tables, number, host, process),
            unrecovered: Vec::new(),
            removed: Vec::new(),
            watcher: Vec::new(),
            manager: Manager::new(tables, process, number, settings, agent),
            tails: vec![0; tables.extent().groups as usize],
            next_beat: Duration::ZERO,
            next_thorough: Duration::ZERO,
            dying: None,
        }
    }

    /// Executes one round. Returns the time at which the next is due.
    pub(crate) fn round(&mut self, os: &dyn Os) -> Duration {
        let (tables, settings) = (self.shared.tables, &self.shared.settings);
        let now = os.now();
        let is_on_watch = self.watch.stand(os);
        let is_due = now >= self.next_beat;
        if is_due {
            beat(tables, self.host, self.process);
            let interval = match is_on_watch {
                true => settings.heartbeat,
                false => watch::interval(settings),
            };
            self.next_beat = now + interval;
        }
        self.watcher.clear();
        if !is_on_watch {
            self.watcher.extend(self.watch.obituary(os));
            // A process keeps the manager's role as long as it lives, even if it was stopped and
            // has lost the watch.
            if tables.role().holder() != Some(self.process) {
                self.manager.forget_finished_fences();
                return self.next_beat;
            }
            if now >= self.manager.next_tick() {
                self.manager.tick(os, &mut self.detector);
            }
            return self.next_beat.min(self.manager.next_tick());
        }
        // Shortens a backup's interval to a watcher's.
        self.next_beat = self.next_beat.min(now + settings.heartbeat);
        self.detector.look(os);
        let mut died = !self.detector.sighting.dead.is_empty();
        let hurry = self.hurry(os, now);
        let thorough = now >= self.next_thorough;
        let is_one_dying = is_due && !self.detector.sighting.dying.is_empty();
        if is_one_dying || thorough || hurry.is_gone || died {
            died |= self.detector.check_processes(os, thorough);
        }
        if thorough {
            self.next_thorough = now + THOROUGH;
            self.report_removed_files(os);
        }
        if died || thorough {
            reconcile(tables, os.bells());
        }
        if self.is_one_more_unrecovered() {
            self.shared.wake_recovery_thread(os);
        }
        ring_for_others(tables, os, &mut self.tails);
        if now >= self.manager.next_tick() {
            self.manager.tick(os, &mut self.detector);
        }
        let next = self.next_beat.min(self.manager.next_tick());
        hurry.next.map_or(next, |hurried| next.min(hurried))
    }

    /// Reports each file of the pod that has been removed, once.
    fn report_removed_files(&mut self, os: &dyn Os) {
        for (path, what_follows) in os.removed_files() {
            if !self.removed.contains(&path) {
                tracing::error!("{} was removed: {what_follows}", path.display());
                self.removed.push(path);
            }
        }
    }

    /// Returns whether there is a dead member that has not been recovered and that the last round
    /// did not see. A death that cannot be recovered here (for example, without a handler) is left
    /// to the recovery thread's own rounds.
    fn is_one_more_unrecovered(&mut self) -> bool {
        let tables = self.shared.tables;
        let generations = tables.generations();
        let before = core::mem::take(&mut self.unrecovered);
        let dead = (0..tables.extent().ids).filter_map(|id| {
            let state = generations.state(id).ok()?;
            (state.status == Status::Dead).then_some(Instance::new(id, state.generation))
        });
        self.unrecovered.extend(dead);
        let mut now = self.unrecovered.iter();
        now.any(|dead| !before.contains(dead))
    }

    /// Returns the obituaries to sleep on until the next round.
    pub(crate) fn held(&self) -> &[(u32, u32)] {
        match self.watcher.is_empty() {
            true => &self.detector.sighting.held,
            false => &self.watcher,
        }
    }

    /// Stops fencing, because the process leaves, and resigns the role. Returns whether that is
    /// done; until then the caller continues the rounds.
    pub(crate) fn leave_off(&mut self, os: &dyn Os) -> bool {
        self.manager.leave_off(os)
    }

    /// Checks, when a check is due, the processes that lost their sentinels recently and are
    /// probably about to be gone.
    ///
    /// The kernel releases the memory of a process before the process is gone. This takes longer
    /// the more memory the process has touched and the busier the processors are. So a watcher
    /// checks again after a part of the time that this has taken so far. The watcher of every host
    /// waits twice as long as that of the host before it: the first live watcher checks for all of
    /// them, and if it is stopped, the next one follows soon.
    fn hurry(&mut self, os: &dyn Os, now: Duration) -> Hurry {
        let seen = &self.detector.sighting.dying;
        if seen.is_empty() {
            self.dying = None;
            return Hurry::default();
        }
        let is_known = |known: &Dying| {
            let of = |(id, state): &(InstanceId, State)| Instance::new(*id, state.generation);
            seen.iter().all(|seen| known.who.contains(&of(seen)))
        };
        let known = self.dying.take().filter(is_known);
        let mut dying = known.unwrap_or_else(|| Dying {
            who: seen
                .iter()
                .map(|(id, state)| Instance::new(*id, state.generation))
                .collect(),
            since: now,
            next: now,
        });
        if now - dying.since >= DYING_PATIENCE {
            self.dying = Some(dying);
            return Hurry::default();
        }
        let mut is_gone = false;
        let (before, _) = self.detector.other_hosts();
        // The first watcher checks at every wake-up.
        if now >= dying.next || before == 0 {
            is_gone = self.detector.is_one_gone_of_the_dying(os);
            let patience = DYING.max((now - dying.since) / DYING_PART);
            dying.next = now + patience * (1 << before.min(6));
        }
        let next = Some(dying.next);
        self.dying = Some(dying);
        Hurry { is_gone, next }
    }
}

/// The dying processes, the time since which they are dying, and the time of the next check.
#[derive(Clone, Debug)]
struct Dying {
    who: Vec<Instance>,
    since: Duration,
    next: Duration,
}

/// Whether a check found a dying process gone, and the time of the next check.
#[derive(Clone, Copy, Debug, Default)]
struct Hurry {
    is_gone: bool,
    next: Option<Duration>,
}

/// Returns at most `most` of `held`, another part on each call.
pub(crate) fn in_turn<'a>(
    held: &'a [(u32, u32)],
    most: usize,
    turn: &mut usize,
) -> &'a [(u32, u32)] {
    if held.len() <= most {
        return held;
    }
    let part = *turn % held.len().div_ceil(most);
    *turn = turn.wrapping_add(1);
    &held[part * most..held.len().min((part + 1) * most)]
}

/// Wakes the members of this operating system, which sleep on its futexes, for events that other
/// operating systems have appended.
fn ring_for_others(tables: Tables, os: &dyn Os, tails: &mut [u64]) {
    let groups = tables.groups();
    for group in groups.all() {
        let tail = groups.log(group).tail();
        let known = &mut tails[GroupId::number(group) as usize];
        if *known != tail {
            *known = tail;
            os.bells().ring(u64::from(group.number()));
        }
    }
}
