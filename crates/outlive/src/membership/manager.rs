//! The fabric manager: watches the hosts' hearts, fences the silent, raises and tells.
//!
//! Every sentinel stands for the role. The holder polls the hearts; a host that has not beaten for as
//! long as the settings allow is *suspected*: its word goes to [`Status::Fencing`], so that nobody joins
//! it any more, its members are killed, and only when none of them can write is its generation raised.
//! Then the groups are told: the host, then its processes, then its threads.
//!
//! The manager copies counters that others increment and judges by its own clock. So a manager that fails
//! can only delay a detection; and one that was itself held up does not count the time it missed against
//! anybody (LUPIN §3.3).

use super::death::{bury_members, bury_orphans, members_of, raise, tell};
use super::detector::Detector;
use super::fence::{Fence, FenceAgent, FenceState};
use super::{Instance, InstanceId, Level, Settings, State, Status, Tables};
use crate::host::Os;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// A counter that somebody else increments, and when it was last seen to move.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    of: Instance,
    beats: u64,
    moved: Duration,
}

/// What one process does for the role.
pub(crate) struct Manager {
    tables: Tables,
    me: Instance,
    os_number: u16,
    settings: Settings,
    agent: Option<Arc<dyn FenceAgent>>,
    last_poll: Option<Duration>,
    hosts: HashMap<InstanceId, Pulse>,
    manager: Option<Pulse>,
    fences: HashMap<InstanceId, Fence>,
    manager_fence: Option<Fence>,
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
            fences: HashMap::new(),
            manager_fence: None,
        }
    }

    /// When to call [`tick`](Self::tick) next, at the latest.
    pub(crate) fn next_tick(&self) -> Duration {
        if self.fences.is_empty() && self.manager_fence.is_none() {
            self.last_poll
                .map_or(Duration::ZERO, |last| last + self.settings.poll)
        } else {
            // A fence is finished as soon as the last process is gone.
            self.last_poll
                .map_or(Duration::ZERO, |last| last + Duration::from_millis(1))
        }
    }

    /// One round: stands for the role, or does its duty.
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
                self.manager_fence = None;
                self.do_duty(os, detector, now, missed);
            }
            Some(holder) if !role.is_vacant(generations, holder) => {
                self.hosts.clear();
                self.watch_manager(os, detector, holder, now, missed);
            }
            _ => {
                if role.take(generations, self.me) {
                    self.hosts.clear();
                    self.announce(os);
                }
            }
        }
    }

    /// Time since the last round that this process missed: it was not watching, so nobody was silent.
    fn missed(&self, now: Duration) -> Duration {
        let slack = self.settings.poll + self.settings.poll / 2;
        self.last_poll.map_or(Duration::ZERO, |last| {
            let gap = now.saturating_sub(last);
            if gap > slack {
                gap - self.settings.poll
            } else {
                Duration::ZERO
            }
        })
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

    fn silence(
        pulse: &mut Pulse,
        of: Instance,
        beats: u64,
        now: Duration,
        missed: Duration,
    ) -> Duration {
        if pulse.of != of || pulse.beats != beats {
            *pulse = Pulse {
                of,
                beats,
                moved: now,
            };
        } else {
            pulse.moved = (pulse.moved + missed).min(now);
        }
        now - pulse.moved
    }

    /// A backup's round: a manager that is silent is fenced, and then the role is vacant.
    fn watch_manager(
        &mut self,
        os: &dyn Os,
        detector: &mut Detector,
        holder: Instance,
        now: Duration,
        missed: Duration,
    ) {
        let beats = self.tables.role().beats();
        let first = Pulse {
            of: holder,
            beats,
            moved: now,
        };
        let pulse = self.manager.get_or_insert(first);
        let silence = Self::silence(pulse, holder, beats, now, missed);
        // Backups are more patient than the manager, so that a manager fences its own silent backups
        // and not they it.
        if silence <= self.settings.suspicion + self.settings.poll * 2 {
            self.manager_fence = None;
            return;
        }
        let Ok(state) = self.tables.generations().state(holder.id) else {
            return;
        };
        if self.tables.os_of(state) == Some(self.os_number) {
            // One process of ours: its pidfd is proof, and the detector raises it.
            match detector.handle(os, holder) {
                Ok(Some(handle)) if !handle.is_gone() => {
                    handle.send_kill();
                }
                _ => {
                    detector.look_at_processes(os, false);
                }
            }
            return;
        }
        let host = InstanceId::from(state.host);
        let Ok(host_state) = self.tables.generations().state(host) else {
            return;
        };
        let host = Instance::new(host, host_state.generation);
        let name = self.name_of(host);
        let patience = self.settings.fence_timeout;
        let fence = self
            .manager_fence
            .get_or_insert_with(|| Fence::begin(host, now, patience));
        if fence.drive_agent(now, &name, self.agent.as_ref()) == FenceState::Done {
            self.manager_fence = None;
            self.bury_host(os, host.id, host_state);
        }
    }

    fn name_of(&self, host: Instance) -> String {
        self.tables
            .records()
            .read(host)
            .map_or_else(String::new, |record| record.name)
    }

    /// The manager's round.
    fn do_duty(&mut self, os: &dyn Os, detector: &mut Detector, now: Duration, missed: Duration) {
        let (tables, records) = (self.tables, self.tables.records());
        for (id, state) in tables.writers() {
            if state.level != Some(Level::Host) {
                continue;
            }
            let host = Instance::new(id, state.generation);
            match state.status {
                Status::Live => {
                    let beats = records.beats(id);
                    let first = Pulse {
                        of: host,
                        beats,
                        moved: now,
                    };
                    let pulse = self.hosts.entry(id).or_insert(first);
                    if Self::silence(pulse, host, beats, now, missed) <= self.settings.suspicion {
                        continue;
                    }
                    let fencing = State {
                        status: Status::Fencing,
                        ..state
                    };
                    if tables.generations().transition(id, state, fencing) {
                        tracing::warn!(%host, "silent; fencing it");
                        self.go_on_fencing(os, detector, host, fencing, now);
                    }
                }
                // Ours, or begun by a manager that died.
                Status::Fencing => self.go_on_fencing(os, detector, host, state, now),
                _ => {}
            }
        }
        bury_orphans(tables, os.bells());
        self.hosts
            .retain(|id, pulse| tables.generations().current(*id) == pulse.of.generation);
        self.fences.retain(|id, _| {
            tables
                .generations()
                .state(*id)
                .is_ok_and(|state| state.status == Status::Fencing)
        });
    }

    fn go_on_fencing(
        &mut self,
        os: &dyn Os,
        detector: &mut Detector,
        host: Instance,
        state: State,
        now: Duration,
    ) {
        let patience = self.settings.fence_timeout;
        let name = self.name_of(host);
        let fence = self
            .fences
            .entry(host.id)
            .or_insert_with(|| Fence::begin(host, now, patience));
        let outcome = if state.host == self.os_number {
            fence.drive(self.tables, os, detector)
        } else {
            fence.drive_agent(now, &name, self.agent.as_ref())
        };
        match outcome {
            FenceState::Done => {
                self.fences.remove(&host.id);
                self.bury_host(os, host.id, state);
            }
            FenceState::Underway => {}
            FenceState::Failing(why) => self.report(os, host, &why),
        }
    }

    /// Raises and tells a host that is fenced, then its processes, then its threads.
    fn bury_host(&self, os: &dyn Os, id: InstanceId, state: State) {
        // Listed before the raise: afterwards the host could be joined again and have other members.
        let members = members_of(self.tables, id);
        if let Some(dead) = raise(self.tables, id, state) {
            tell(self.tables, os.bells(), dead);
            bury_members(self.tables, os.bells(), &members);
        }
    }

    fn report(&self, os: &dyn Os, host: Instance, why: &str) {
        let groups = self.tables.groups();
        for group in groups.all() {
            if groups.log(group).tell_suspected(host).is_some() {
                tracing::error!(%host, why, "suspected, and cannot be fenced");
                os.bells().ring(u64::from(group.number()));
            }
        }
    }
}
