//! The kills of a run: their hosts and their units.

use super::{KillAt, Options, Supervise};
use crate::header::Header;
use crate::random::Random;

/// The time in seconds that the host which was drawn for a kill may take to join the pod, before
/// another host is killed instead.
const JOIN_PATIENCE: f64 = 5.0;
/// The time in seconds that workers wait at a gate while no host can be killed. Then the kill is
/// missed.
const GATE_PATIENCE: f64 = 20.0;

/// The kills of a run, in their order.
#[derive(Debug)]
pub(super) struct Kills {
    header: Header,
    /// The number of kills that are over: sent, or missed.
    over: usize,
    /// For each kill at random, the number of begun units after which it happens. Empty if kills
    /// happen before commits.
    units: Vec<u64>,
    /// The host that was drawn for each kill at random.
    hosts: Vec<u32>,
    /// The time at which the next kill became due, if it is due.
    due_since: Option<f64>,
    /// Whether dead hosts are restarted.
    restarts: bool,
    random: Random,
}

/// The decision about a kill that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The kill waits until the drawn host has joined.
    Wait,
    /// This host is to be killed.
    Kill(u32),
    /// The kill is missed: no host can be killed.
    Miss,
}

impl Kills {
    /// Draws the kills that `options` request, and makes a halt or a gate for each.
    pub fn new(options: &Options, header: Header) -> Self {
        let (units, crew) = (header.units(), header.crew());
        let mut random = Random::new(options.seed | 1);
        let mut at = match (&options.kill_units[..], options.kill_at) {
            ([], KillAt::Commit) => evenly(units, options.kills),
            ([], KillAt::Random) => (0..options.kills)
                .map(|_| random.below(units.max(1)))
                .collect(),
            (asked, _) => asked.to_vec(),
        };
        at.sort_unstable();
        let (units, hosts) = match options.kill_at {
            KillAt::Commit => {
                header.arm(&at);
                (Vec::new(), Vec::new())
            }
            KillAt::Random => {
                header.shut_gates(&at);
                let hosts = drawn(crew.hosts - crew.spares, at.len(), &mut random);
                (at, hosts)
            }
        };
        Self {
            header,
            over: 0,
            units,
            hosts,
            due_since: None,
            restarts: options.supervise == Supervise::Restart,
            random,
        }
    }

    /// Returns the hosts whose workers have halted before a commit, to be killed now.
    pub fn halted(&self) -> Vec<u32> {
        self.header.halted().skip(self.over).collect()
    }

    /// Returns whether the next kill is due after `begun` units and has not been tried yet, or a
    /// worker has halted.
    pub fn is_news(&self, begun: u64) -> bool {
        self.header.halted().nth(self.over).is_some()
            || self.due_since.is_none() && self.is_due(begun)
    }

    /// Returns whether the next kill at random is due after `begun` units.
    pub fn is_due(&self, begun: u64) -> bool {
        self.units.get(self.over).is_some_and(|unit| begun > *unit)
    }

    /// Returns whether some kills at random are not over yet.
    pub fn is_more(&self) -> bool {
        self.over < self.units.len()
    }

    /// Decides about the kill that is due at `now`: the host that was drawn for it is killed, or
    /// one of `alive` if the drawn host is not working. `is_to_work` returns whether a host takes
    /// part in the work, and `has_failed` whether it failed before.
    pub fn next(
        &mut self,
        now: f64,
        alive: &[u32],
        is_to_work: impl Fn(u32) -> bool,
        has_failed: impl Fn(u32) -> bool,
    ) -> Next {
        let drawn = self.hosts[self.over];
        if alive.contains(&drawn) {
            return Next::Kill(drawn);
        }
        let waited = now - *self.due_since.get_or_insert(now);
        let may_come = is_to_work(drawn) && (self.restarts || !has_failed(drawn));
        match alive.len() as u64 {
            _ if may_come && waited < JOIN_PATIENCE => Next::Wait,
            0 if waited < GATE_PATIENCE => Next::Wait,
            0 => Next::Miss,
            all => Next::Kill(alive[self.random.below(all) as usize]),
        }
    }

    /// Records that the next kill was sent or missed. For a kill at random, opens the gate that
    /// stops later units, and returns the unit of the kill.
    pub fn finish_next(&mut self) -> Option<u64> {
        let unit = self.units.get(self.over).copied();
        if unit.is_some() {
            self.header.open_gate(self.over as u64);
        }
        self.over += 1;
        self.due_since = None;
        unit
    }
}

/// Returns the numbers of `kills` units at even distances.
fn evenly(units: u64, kills: u32) -> Vec<u64> {
    let kills = u64::from(kills);
    (1..=kills).map(|kill| kill * units / (kills + 1)).collect()
}

/// Returns `kills` of `hosts` hosts in random order: each of them once, then each of them again.
fn drawn(hosts: u32, kills: usize, random: &mut Random) -> Vec<u32> {
    let mut all = Vec::new();
    while all.len() < kills {
        let mut round: Vec<u32> = (0..hosts).collect();
        while !round.is_empty() {
            all.push(round.swap_remove(random.below(round.len() as u64) as usize));
        }
    }
    all.truncate(kills);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Crew;
    use crate::header::Beginning;
    use outlive::memory::{Native, Offset, PersistenceDomain};

    fn kills(supervise: Supervise) -> Kills {
        let memory = Native::leaked(4096, PersistenceDomain::Flushed);
        let beginning = Beginning {
            program: 1,
            crew: Crew::with_driver(3, 1, 1),
            kills: 4,
            units: 100,
        };
        let options = Options {
            kills: 4,
            kill_at: KillAt::Random,
            supervise,
            seed: 5,
            ..Options::default()
        };
        Kills::new(
            &options,
            Header::create(memory, Offset::new(128), beginning),
        )
    }

    #[test]
    fn each_host_is_drawn_once_before_one_is_drawn_again() {
        let (one, other) = (kills(Supervise::None), kills(Supervise::None));
        assert_eq!((&one.hosts, &one.units), (&other.hosts, &other.units));
        let mut first = one.hosts[..3].to_vec();
        first.sort_unstable();
        assert_eq!((first, one.hosts.len()), (vec![0, 1, 2], 4));
        assert!(one.units.is_sorted());
    }

    #[test]
    fn a_kill_waits_for_its_host_then_takes_another_or_is_missed() {
        let mut kills = kills(Supervise::Restart);
        let (drawn, unit) = (kills.hosts[0], kills.units[0]);
        let others: Vec<u32> = (0..3).filter(|host| *host != drawn).collect();
        assert!(!kills.is_due(unit) && kills.is_due(unit + 1));
        assert!(kills.header.is_gated(unit + 1) && !kills.header.is_gated(unit));
        let next =
            |kills: &mut Kills, now, alive: &[u32]| kills.next(now, alive, |_| true, |_| true);
        assert_eq!(next(&mut kills, 1.0, &others), Next::Wait);
        assert!(!kills.is_news(unit + 1), "the kill is already pending");
        assert_eq!(next(&mut kills, 2.0, &[drawn]), Next::Kill(drawn));
        assert!(matches!(next(&mut kills, 7.0, &others), Next::Kill(host) if host != drawn));
        assert_eq!(next(&mut kills, 7.0, &[]), Next::Wait);
        assert_eq!(next(&mut kills, 22.0, &[]), Next::Miss);
        assert_eq!(kills.finish_next(), Some(unit));
        assert!(!kills.header.is_gated(unit + 1) || kills.units[1] == unit);
    }

    #[test]
    fn a_dead_host_that_is_not_started_again_is_not_waited_for() {
        let mut kills = kills(Supervise::None);
        let drawn = kills.hosts[0];
        let alive = [(drawn + 1) % 3];
        let next = kills.next(1.0, &alive, |_| true, |host| host == drawn);
        assert_eq!(next, Next::Kill(alive[0]));
    }
}
