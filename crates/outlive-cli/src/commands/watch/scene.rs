//! The state of a watched pod: the latest look, the events since the previous one, and the rates of
//! heartbeats.
//!
//! The pod is opened for an observer, so watching changes nothing in it.

use crate::commands::pools::Pool;
use crate::event_text::describe;
use crate::look::Look;
use outlive::membership::{GroupId, Instance, InstanceId, Status, Subscription};
use outlive::pod::Pod;
use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The maximum number of event lines kept, and the number of earlier events that are shown.
const MOST_LINES: usize = 200;
const FROM_BEFORE: u64 = 20;

/// A watched pod.
pub struct Scene {
    pub path: PathBuf,
    pub pod: Pod,
    pub look: Look,
    /// The descriptions of the worker pools, in lines.
    pub pools: Vec<String>,
    /// The lines for events, the latest last.
    pub told: VecDeque<String>,
    /// Heartbeats per second of members present at both looks.
    rates: HashMap<Instance, f64>,
    looked: Instant,
    began: Instant,
    subscription: Subscription,
}

impl Scene {
    pub fn new(path: &Path, pod: Pod) -> Self {
        let tables = pod.tables();
        let log = tables.groups().log(GroupId::POD);
        let after = log.tail().saturating_sub(FROM_BEFORE);
        let now = Instant::now();
        let mut scene = Self {
            path: path.into(),
            look: Look::at(&pod),
            pools: pools_of(&pod),
            told: VecDeque::new(),
            rates: HashMap::new(),
            looked: now,
            began: now,
            subscription: Subscription::new(log, tables.extent().ids, after).observing(),
            pod,
        };
        scene.listen("    before");
        scene
    }

    /// Observes the pod again.
    pub fn look(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.looked).as_secs_f64();
        let look = Look::at(&self.pod);
        let at = format!("{:8.2} s", self.began.elapsed().as_secs_f64());
        self.listen(&at);
        self.rates.clear();
        for (id, seen) in &look.members {
            let Some(before) = self.look.members.get(id) else {
                continue;
            };
            let instance = seen.status.instance();
            if seen.is_there() && before.status.instance() == instance && passed > 0.0 {
                let beats = seen.status.beats.saturating_sub(before.status.beats);
                self.rates.insert(instance, beats as f64 / passed);
            }
        }
        for line in recoveries(&self.look, &look) {
            self.tell(format!("{at}        {line}"));
        }
        self.look = look;
        self.pools = pools_of(&self.pod);
        self.looked = now;
    }

    /// Returns the heartbeats per second of `instance`.
    pub fn rate(&self, instance: Instance) -> Option<f64> {
        self.rates.get(&instance).copied()
    }

    /// Returns whether the pod's file has lost its name, so that only its last members use it.
    pub fn is_destroyed(&self) -> bool {
        let file = self.pod.segment().file().metadata();
        file.is_ok_and(|file| file.nlink() == 0)
    }

    fn listen(&mut self, at: &str) {
        while let Some(news) = self.subscription.poll() {
            let line = format!("{at}  {}", describe(self.pod.tables(), &news));
            self.tell(line);
        }
    }

    fn tell(&mut self, line: String) {
        if self.told.len() == MOST_LINES {
            self.told.pop_front();
        }
        self.told.push_back(line);
    }
}

fn pools_of(pod: &Pod) -> Vec<String> {
    match Pool::all(pod) {
        Ok(pools) => pools.iter().flat_map(Pool::lines).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Describes recoveries that began or ended between two looks. They are not events of groups.
fn recoveries(before: &Look, now: &Look) -> Vec<String> {
    let status =
        |look: &Look, id: InstanceId| look.members.get(&id).map(|seen| seen.state().status);
    let mut lines = Vec::new();
    for (id, seen) in &now.members {
        let earlier = before.members.get(id);
        if let Some(by) = seen.recoverer
            && earlier.is_none_or(|earlier| earlier.recoverer != Some(by))
        {
            lines.push(format!("{by} recovers {}", seen.status.instance()));
        }
        let recovered = |status| status == Some(Status::Recovered);
        if recovered(status(now, *id)) && !recovered(status(before, *id)) {
            lines.push(format!(
                "{} {} is recovered",
                seen.level(),
                seen.status.instance()
            ));
        }
    }
    lines
}
