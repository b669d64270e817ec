//! The fabric manager: watches hosts' heartbeats, fences silent hosts, raises generations, notifies
//! groups.
//!
//! Every sentinel is a candidate for the role. The holder polls the heartbeats. A host that has not
//! beaten for as long as the settings allow is *suspected*: its word goes to [`Status::Fencing`],
//! so that no member joins it any more, and its members are killed. Its generation is raised only
//! when none of them can write, from the very word that it had when the fence began. Then the
//! groups are notified of the host, then of its processes, then of its threads.
//!
//! The manager copies counters that others increment and measures by its own clock. So a manager
//! that fails can only delay a detection. A manager that was itself held up does not count the time
//! it missed against any host (LUPIN §3.3), unless it is always late ([`LATE_ROUNDS_FORGIVEN`]). A
//! heartbeat is read between two readings of the clock. Its silence is counted from the *later*
//! reading of the poll that last saw it move, to the *earlier* reading of the current poll. So a
//! manager that is held up anywhere in between only finds silences shorter than they were.

use super::agents::bit;
use super::death::{bury_host, bury_orphans, bury_process};
use super::detector::Detector;
use super::fence::{AgentState, Call, Fence, FenceAgent, FenceState, RunningAgent};
use super::kill::{Ending, end_process};
use super::{Instance, InstanceId, Level, Settings, State, Status, Tables};
use crate::host::Os;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of consecutive late rounds that count as no silence at all.
///
/// The cause of a late round is not known: the whole machine may have been held up. So the first
/// late rounds do not count. If none ever counted, a manager whose every round is late (for
/// example, under a CPU quota) would never suspect a host. So after them a late round counts as one
/// poll.
///
/// This suspects no host that beats. A heartbeat that advances at least once between two rounds of
/// the manager has no silence, however late the rounds are, and its late rounds are counted from
/// zero again. A suspected host has not beaten once in `LATE_ROUNDS_FORGIVEN` rounds and then
/// `suspicion / poll` more, while the manager ran in every one of them: no stall that stops both
/// explains that.
const LATE_ROUNDS_FORGIVEN: u32 = 8;

/// A counter that another member increments, and when it was last seen to have moved.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    of: Instance,
    beats: u64,
    moved: Duration,
    /// The number of consecutive late rounds, up to the last one, that have not seen it move.
    late_rounds: u32,
}

/// The time that a round of the manager must not count as silence.
#[derive(Clone, Copy, Debug)]
struct Missed {
    /// The time since the last round, if this round is late; else zero.
    gap: Duration,
    poll: Duration,
}

impl Pulse {
    /// Returns the time for which the counter that `read` returns has certainly not moved, without
    /// the time that was `missed`.
    fn silence(
        pulse: &mut Option<Self>,
        of: Instance,
        os: &dyn Os,
        missed: Missed,
        read: impl FnOnce() -> u64,
    ) -> Duration {
        let before = os.now();
        let beats = read();
        match pulse {
            Some(known) if known.of == of && known.beats == beats => {
                let forgiven = known.forgive(missed);
                known.moved = (known.moved + forgiven).min(before);
                before - known.moved
            }
            _ => {
                let moved = os.now();
                *pulse = Some(Self {
                    of,
                    beats,
                    moved,
                    late_rounds: 0,
                });
                Duration::ZERO
            }
        }
    }

    /// Returns the part of the time since the last round that does not count, in a round in which
    /// the counter has not moved. See [`LATE_ROUNDS_FORGIVEN`].
    fn forgive(&mut self, missed: Missed) -> Duration {
        if missed.gap.is_zero() {
            self.late_rounds = 0;
            return Duration::ZERO;
        }
        self.late_rounds = self.late_rounds.saturating_add(1);
        if self.late_rounds <= LATE_ROUNDS_FORGIVEN {
            missed.gap
        } else {
            missed.gap.saturating_sub(missed.poll)
        }
    }
}

/// The state of one process as holder of the role or as backup.
pub(crate) struct Manager {
    tables: Tables,
    me: Instance,
    os_number: u16,
    settings: Settings,
    agent: Option<Arc<dyn FenceAgent>>,
    last_poll: Option<Duration>,
    hosts: HashMap<InstanceId, Option<Pulse>>,
    manager: Option<Pulse>,
    /// The silent manager that has been logged as one that cannot be killed.
    unkillable: Option<Instance>,
    fences: HashMap<InstanceId, Fence>,
    /// Whether the process is leaving: see [`leave_off`](Self::leave_off).
    leaving: bool,
    /// Agents at work for fences that are over, with the hosts against which they were called.
    lingering: Vec<(InstanceId, RunningAgent)>,
}

impl Manager {
    pub(crate) fn new(
        tables: Tables,
        me: Instance,
        os_number: u16,
        settings: Settings,
        agent: Option<Arc<dyn FenceAgent>>,
    ) -> Self {
        Self {
            tables,
            me,
            os_number,
            settings,
            agent,
            last_poll: None,
            hosts: HashMap::new(),
            manager: None,
            unkillable: None,
            fences: HashMap::new(),
            leaving: false,
            lingering: Vec::new(),
        }
    }

    /// Returns the latest time of the next call of [`tick`](Self::tick).
    pub(crate) fn next_tick(&self) -> Duration {
        let Some(last) = self.last_poll else {
            return Duration::ZERO;
        };
        // Frequent polls complete a fence as soon as the last process is gone.
        let hurried = self.fences.values().any(|fence| !fence.is_failing(last));
        let interval = if hurried {
            self.settings.poll.min(Duration::from_millis(1))
        } else {
            self.settings.poll
        };
        last + interval
    }

    /// Executes one round: does the manager's duty, or watches the manager and takes a vacant role.
    pub(crate) fn tick(&mut self, os: &dyn Os, detector: &mut Detector) {
        let now = os.now();
        let missed = self.missed(now);
        self.last_poll = Some(now);
        let role = self.tables.role();
        let generations = self.tables.generations();
        match role.holder() {
            Some(holder) if holder == self.me => {
                role.beat();
                self.manager = None;
                self.do_duty(os, now, missed);
            }
            // A leaving process neither fences a silent manager nor takes the role.
            _ if self.leaving => {}
            Some(holder) if !role.is_vacant(generations, holder) => {
                self.watch_manager(os, detector, holder, now, missed);
            }
            _ => {
                if role.take(generations, self.me) {
                    self.hosts.clear();
                    self.announce(os);
                }
            }
        }
        self.forget_finished_fences();
    }

    /// Prepares the manager for the end of its process: begins no new fence from the first call on.
    /// Returns whether no agent is at work any more; then the role has been resigned.
    ///
    /// While an agent is at work the role is kept, because a second manager would start a second
    /// fence, which might hit the host's next incarnation. So the caller continues its rounds,
    /// which advance all heartbeats, until this returns true.
    pub(crate) fn leave_off(&mut self, os: &dyn Os) -> bool {
        self.leaving = true;
        // Takes the answers of agents that have finished, even if another process holds the role by
        // now: each answer is about the word with which its fence began.
        let finished = |(id, fence): (&InstanceId, &Fence)| {
            (fence.agent() == AgentState::Finished).then(|| (*id, fence.seen()))
        };
        let finished: Vec<_> = self.fences.iter().filter_map(finished).collect();
        for (id, seen) in finished {
            self.go_on_fencing(os, id, seen, os.now(), false);
        }
        self.forget_finished_fences();
        let mut fences = self.fences.values();
        let is_at_work =
            fences.any(|fence| fence.agent() == AgentState::AtWork) || !self.lingering.is_empty();
        if !is_at_work {
            self.tables.role().resign(self.me);
        }
        !is_at_work
    }

    /// Returns the time since the last round, if this round is late. Then it is not known which
    /// processes were held up, and since when.
    fn missed(&self, now: Duration) -> Missed {
        let poll = self.settings.poll;
        let gap = self.last_poll.map_or(Duration::ZERO, |last| now - last);
        let is_late = gap >= poll + poll / 8;
        Missed {
            gap: if is_late { gap } else { Duration::ZERO },
            poll,
        }
    }

    /// Returns whether a host or manager that has been silent for `silence` is suspected. Polls are
    /// discrete: half of the time by which a poll may precede a beat is forgiven, so that two polls
    /// without a beat between them suffice.
    fn is_suspect(&self, silence: Duration) -> bool {
        let forgiven = self.settings.poll.saturating_sub(self.settings.heartbeat) / 2;
        !silence.is_zero() && silence + forgiven >= self.settings.suspicion
    }

    fn announce(&self, os: &dyn Os) {
        let groups = self.tables.groups();
        for group in groups.all() {
            if groups.log(group).tell_role(self.me).is_some() {
                os.bells().ring(u64::from(group.number()));
            }
        }
        tracing::info!(manager = %self.me, "became the fabric manager");
    }

    /// Executes a backup's round: fences a silent manager, which makes the role vacant.
    fn watch_manager(
        &mut self,
        os: &dyn Os,
        detector: &mut Detector,
        holder: Instance,
        now: Duration,
        missed: Missed,
    ) {
        let (role, generations) = (self.tables.role(), self.tables.generations());
        let mut pulse = self.manager;
        let silence = Pulse::silence(&mut pulse, holder, os, missed, || role.beats());
        self.manager = pulse;
        let host_silence = self.silence_of_its_host(os, holder, missed);
        // Backups are more patient than the manager, so that the manager fences a silent backup
        // before the backup fences the manager.
        if silence.is_zero() || silence <= self.settings.suspicion + self.settings.poll * 2 {
            return;
        }
        let Ok(state) = generations.state(holder.id) else {
            return;
        };
        if state.generation != holder.generation {
            return;
        }
        if self.tables.os_of(state) == Some(self.os_number) {
            // It is a process of this operating system, whose free presence is proof. Its state was
            // read before its presence.
            match end_process(self.tables, os, holder.id, state, true) {
                Ending::Gone => {
                    bury_process(self.tables, os.bells(), holder.id, state, Some(self.me));
                    detector.check_processes(os, true);
                    return;
                }
                Ending::Sent(_)
                    if silence <= self.settings.suspicion + self.settings.fence_timeout =>
                {
                    return;
                }
                // A manager that the signal does not end (for example, in an uninterruptible wait)
                // counts as one that cannot be killed, since it fences no host in the meantime.
                Ending::Sent(why) | Ending::Refused(why) => {
                    // Its host is fenced, unless that is this process's own.
                    let own = generations.state(self.me.id);
                    if own.is_ok_and(|own| own.host == state.host) {
                        if self.unkillable.replace(holder) != Some(holder) {
                            tracing::error!(%holder, why, "the fabric manager is silent and cannot be killed");
                        }
                        return;
                    }
                }
            }
        }
        // Its host is fenced as the manager would fence it.
        let id = InstanceId::from(state.host);
        match generations.state(id) {
            Ok(seen) if seen.level == Some(Level::Host) && seen.status == Status::Live => {
                let is_begun = self.begin_fence(id, seen, now);
                if is_begun {
                    tracing::warn!(manager = %holder, ?silence, "the fabric manager is silent; fencing its host");
                }
            }
            // Another backup has begun the fence. It gets time before a second agent is called.
            Ok(seen)
                if seen.status == Status::Fencing
                    && (self.fences.contains_key(&id)
                        || silence > self.settings.suspicion + self.settings.fence_timeout * 2) =>
            {
                // Its manager is silent; another process of it may beat for the host.
                let is_silent = self.is_suspect(host_silence);
                self.go_on_fencing(os, id, seen, now, is_silent);
            }
            _ => {}
        }
    }

    /// Returns the time for which the heartbeat of the manager's host has not moved; a backup
    /// follows no other heartbeat. Called at every round, since a round that this process missed is
    /// forgiven.
    fn silence_of_its_host(&mut self, os: &dyn Os, manager: Instance, missed: Missed) -> Duration {
        let generations = self.tables.generations();
        let state_of = |id| generations.state(id).ok();
        let id = state_of(manager.id).map(|state| InstanceId::from(state.host));
        let host = id.and_then(|id| Some(Instance::new(id, state_of(id)?.generation)));
        self.hosts
            .retain(|id, _| host.is_some_and(|host| host.id == *id));
        host.map_or(Duration::ZERO, |host| self.silence_of(os, host, missed))
    }

    /// Returns the time for which this process has not seen the heartbeat of `host` move.
    fn silence_of(&mut self, os: &dyn Os, host: Instance, missed: Missed) -> Duration {
        let records = self.tables.records();
        let pulse = self.hosts.entry(host.id).or_insert(None);
        Pulse::silence(pulse, host, os, missed, || records.beats(host.id))
    }

    /// Executes the manager's round.
    fn do_duty(&mut self, os: &dyn Os, now: Duration, missed: Missed) {
        let tables = self.tables;
        for (id, seen) in tables.writers() {
            if seen.level != Some(Level::Host) {
                continue;
            }
            match seen.status {
                // The obituary of a host that joins on this operating system is watched.
                Status::Joining if seen.host == self.os_number => {}
                Status::Live | Status::Joining | Status::Fencing => {
                    let host = Instance::new(id, seen.generation);
                    let silence = self.silence_of(os, host, missed);
                    let is_silent = self.is_suspect(silence);
                    if seen.status == Status::Fencing {
                        // Begun by this manager, by one that died, or on request.
                        if !self.leaving || self.fences.contains_key(&id) {
                            self.go_on_fencing(os, id, seen, now, is_silent);
                        }
                    } else if is_silent && self.begin_fence(id, seen, now) {
                        tracing::warn!(%host, ?silence, "a host is silent; fencing it");
                        let fencing = State {
                            status: Status::Fencing,
                            ..seen
                        };
                        self.go_on_fencing(os, id, fencing, now, true);
                    }
                }
                _ => {}
            }
        }
        bury_orphans(tables, os.bells(), Some(self.me));
        self.hosts.retain(|id, pulse| {
            pulse.is_some_and(|pulse| tables.generations().current(*id) == pulse.of.generation)
        });
    }

    /// Closes the host: no member joins it from now on. Returns whether this call did. The fence
    /// proves the death for this word only.
    fn begin_fence(&mut self, id: InstanceId, seen: State, now: Duration) -> bool {
        if self.leaving {
            return false;
        }
        let fencing = State {
            status: Status::Fencing,
            ..seen
        };
        let begun = self.tables.generations().transition(id, seen, fencing);
        if begun {
            let fence = Fence::begin(id, fencing, now, self.settings.fence_timeout);
            self.fences.insert(id, fence);
        }
        begun
    }

    /// Continues the fence of host `id`. `is_silent`: no beat for the suspicion time.
    fn go_on_fencing(
        &mut self,
        os: &dyn Os,
        id: InstanceId,
        seen: State,
        now: Duration,
        is_silent: bool,
    ) {
        if self
            .fences
            .get(&id)
            .is_some_and(|fence| fence.seen() != seen)
        {
            self.forget_fence(id);
        }
        let patience = self.settings.fence_timeout;
        let host = Instance::new(id, seen.generation);
        let name = self
            .tables
            .records()
            .read(host)
            .map_or_else(String::new, |record| record.name);
        let fence = self
            .fences
            .entry(id)
            .or_insert_with(|| Fence::begin(id, seen, now, patience));
        let call = Call {
            tables: self.tables,
            me: self.me.id,
            name: &name,
            agent: self.agent.as_ref(),
            may_begin: !self.leaving,
        };
        let systems = self.tables.operating_systems();
        let outcome = if systems.absence_is_proof(self.os_number, seen.host) {
            fence.drive(os, seen.host == self.os_number, call)
        } else if systems.is_earlier_boot(seen.host, os.identity()) && self.agent.is_none() {
            // A machine runs one boot at a time, so the host is dead. But machine ids are copied
            // with virtual machines. So a host that beats is on another machine (its fence was
            // requested), and an agent is preferred where one is configured.
            match is_silent {
                // Nothing was fenced, so the events do not report a fence.
                true => return bury_host(self.tables, os, id, seen, false, self.me),
                false if fence.is_failing(now) => FenceState::Failing(
                    "its heartbeat continues, so it is on another machine with the same machine \
                     id, and no fence command is configured"
                        .into(),
                ),
                false => FenceState::Underway,
            }
        } else {
            fence.drive_agent(now, call)
        };
        match outcome {
            FenceState::Done => bury_host(self.tables, os, id, seen, true, self.me),
            FenceState::Underway => {}
            FenceState::Failing(why) => {
                let is_news = fence.note_reason(&why);
                self.report(os, host, &why, is_news);
            }
        }
    }

    /// Reports to all groups that `host` is suspected. Logs the reason if it `is_news`.
    fn report(&self, os: &dyn Os, host: Instance, why: &str, is_news: bool) {
        if is_news {
            tracing::error!(%host, why, "a host is suspected and cannot be fenced");
        }
        let groups = self.tables.groups();
        for group in groups.all() {
            if groups.log(group).tell_suspected(host).is_some() {
                os.bells().ring(u64::from(group.number()));
            }
        }
    }

    /// Forgets the fences that are over, and withdraws the agents that have returned. Called in
    /// each round, also of a process that does nothing else for the role.
    pub(crate) fn forget_finished_fences(&mut self) {
        let generations = self.tables.generations();
        let over: Vec<_> = self
            .fences
            .iter()
            .filter(|(id, fence)| generations.state(**id) != Ok(fence.seen()))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.forget_fence(id);
        }
        self.lingering.retain(|(_, agent)| !agent.is_finished());
        self.publish_agents();
    }

    /// Withdraws the hosts, published by [`announce`](super::agents::announce), of finished agents.
    fn publish_agents(&self) {
        let of_fences = self
            .fences
            .iter()
            .filter(|(_, fence)| fence.agent() == AgentState::AtWork)
            .map(|(host, _)| *host);
        let lingering = self.lingering.iter().map(|(host, _)| *host);
        let hosts = of_fences
            .chain(lingering)
            .fold(0, |all, host| all | bit(host));
        let records = self.tables.records();
        if records.agents(self.me.id) != hosts {
            records.publish_agents(self.me.id, hosts);
        }
    }

    fn forget_fence(&mut self, id: InstanceId) {
        let fence = self.fences.remove(&id);
        self.lingering.extend(fence.and_then(Fence::into_running));
    }
}
