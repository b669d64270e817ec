//! `outlive pod status`.

use super::Which;
use super::pools::Pool;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::look::{Look, Presence, Seen};
use crate::output;
use crate::table::Table;
use clap::Args;
use humantime::format_duration;
use outlive::membership::{Instance, Level};
use outlive::pod::Pod;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Arguments of `outlive pod status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod status /dev/shm/demo\n  \
    outlive pod status /dev/shm/demo --json | jq '.members[] | select(.status == \"live\")'\n\n\
    The command does not join the pod and changes nothing. \"live, but gone\" is a member that was \
    killed when no other member was left to detect its death: the next process that joins detects \
    it.\n\n\
    JSON: path, uuid, size, backend, domain, created, heap, ids, settings, manager, members (id, \
    generation, instance, level, status, there, host, process, pid, tid, uid, name, beats, locks, \
    mutexes, recovered_by), groups and pools; docs/json.md says what they mean.")]
pub struct Status {
    #[command(flatten)]
    which: Which,
    /// Show only current members
    #[arg(long)]
    live: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        let pod = self.which.observe()?;
        let look = Look::at(&pod);
        let pools = Pool::all(&pod).map_err(Failure::new)?;
        if self.json {
            let answer = Answer::new(self.which.path(), &pod, &look, self.live, pools);
            return output::json(&answer);
        }
        output::line(heading(self.which.path(), &pod, &look))?;
        let members = member_table(&look, self.live);
        output::line("")?;
        if members.rows() == 0 {
            let now = if self.live { " now" } else { " yet" };
            output::line(format_args!("no host has joined{now}"))?;
        } else {
            members.lines().try_for_each(output::line)?;
        }
        output::line("")?;
        let mut groups = Table::new(["GROUP", "MEMBERS", "EVENTS"]);
        for group in &look.groups {
            let name = match group.name.as_str() {
                "" => "(the pod's own)",
                name => name,
            };
            groups.row([
                name.into(),
                group.members.to_string(),
                group.events.to_string(),
            ]);
        }
        groups.lines().try_for_each(output::line)?;
        for pool in &pools {
            output::line("")?;
            pool.lines().iter().try_for_each(output::line)?;
        }
        Ok(())
    }
}

fn heading(path: &Path, pod: &Pod, look: &Look) -> String {
    let (segment, settings) = (pod.segment(), pod.settings());
    let created = SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(segment.superblock().created))
        .map_or_else(String::new, |created| {
            humantime::format_rfc3339_seconds(created).to_string()
        });
    let manager = match look.manager {
        Some(manager) if is_vacant(look, manager) => {
            format!(
                "fabric manager: {manager}, which has ended; the next member that checks takes the \
                 role"
            )
        }
        Some(manager) => format!("fabric manager: process {manager}"),
        None => "no fabric manager".into(),
    };
    let heap = match pod.heap() {
        Some(heap) => format!("a heap of {}", Bytes(heap.buddy().bytes())),
        None => "no heap".into(),
    };
    let fence = match &settings.fence_command {
        Some(digest) => format!("fenced by the command with SHA-256 {digest:.16}…"),
        None => "fenced by a kill".into(),
    };
    format!(
        "{}: a pod of {} ({}, {}), created {created}
  {heap}; {} of {} ids have been used; {} control groups \
         at most, and the pod's own
  heartbeats every {}, checked every {}; a host without one for {} is {fence}
  {manager}",
        path.display(),
        Bytes(segment.size()),
        segment.backend(),
        segment.domain(),
        look.members.len(),
        pod.tables().extent().ids,
        pod.tables().extent().groups.saturating_sub(1),
        format_duration(settings.heartbeat),
        format_duration(settings.poll),
        format_duration(settings.suspicion),
    )
}

fn is_vacant(look: &Look, manager: Instance) -> bool {
    !look
        .members
        .get(&manager.id)
        .is_some_and(|seen| seen.is_there() && seen.status.instance() == manager)
}

fn member_table(look: &Look, live: bool) -> Table {
    let mut table = Table::new(["MEMBER", "STATUS", "PID/TID", "BEATS", "LOCKS", "NAME"]);
    for (depth, seen) in look.tree() {
        if live && !seen.is_there() {
            continue;
        }
        let is_manager = look.manager == Some(seen.status.instance());
        let name = match (seen.name(), is_manager) {
            (name, false) => output::printable(&name),
            ("", true) => "(fabric manager)".into(),
            (name, true) => format!("{} (fabric manager)", output::printable(&name)),
        };
        table.row([
            format!(
                "{:indent$}{} {}",
                "",
                seen.level(),
                seen.status.instance(),
                indent = 2 * depth
            ),
            seen.condition(),
            seen.pid(),
            match seen.state().level {
                Some(Level::Host | Level::Process) => seen.status.beats.to_string(),
                _ => "-".into(),
            },
            seen.lock_summary(),
            name,
        ]);
    }
    table
}

#[derive(Serialize)]
struct Answer<'a> {
    path: &'a Path,
    uuid: String,
    size: u64,
    backend: String,
    domain: String,
    /// Seconds since 1970.
    created: u64,
    /// The size of the heap in bytes, if there is one.
    heap: Option<u64>,
    ids: u32,
    settings: Settings,
    /// The instance, as "id.generation".
    manager: Option<String>,
    members: Vec<Member<'a>>,
    groups: Vec<Group<'a>>,
    pools: Vec<Pool>,
}

/// Intervals in seconds.
#[derive(Serialize)]
struct Settings {
    heartbeat: f64,
    poll: f64,
    suspicion: f64,
    /// The SHA-256 of the fence command.
    fence_command: Option<String>,
    uid: u32,
}

#[derive(Serialize)]
struct Member<'a> {
    id: u32,
    /// The current generation.
    generation: u32,
    /// The instance of the other fields, as "id.generation"; of a dead member, the one that died.
    instance: String,
    level: &'static str,
    status: &'static str,
    /// Whether a member that may write is present; null if unknown, or if it may not write.
    there: Option<bool>,
    host: u32,
    process: Option<String>,
    pid: Option<u32>,
    tid: Option<u32>,
    uid: Option<u32>,
    name: &'a str,
    beats: u64,
    locks: Vec<Lock>,
    /// The names of the mutexes that it holds.
    mutexes: &'a [String],
    recovered_by: Option<String>,
}

#[derive(Serialize)]
struct Lock {
    offset: u64,
    kind: u8,
}

#[derive(Serialize)]
struct Group<'a> {
    number: u32,
    name: &'a str,
    members: u32,
    events: u64,
}

impl<'a> Answer<'a> {
    fn new(path: &'a Path, pod: &'a Pod, look: &'a Look, live: bool, pools: Vec<Pool>) -> Self {
        let (segment, settings) = (pod.segment(), pod.settings());
        let shown = |seen: &&Seen| !live || seen.is_there();
        Self {
            path,
            uuid: segment.uuid().to_string(),
            size: segment.size(),
            backend: segment.backend().to_string(),
            domain: segment.domain().to_string(),
            created: segment.superblock().created,
            heap: pod.heap().map(|heap| heap.buddy().bytes()),
            ids: pod.tables().extent().ids,
            settings: Settings {
                heartbeat: settings.heartbeat.as_secs_f64(),
                poll: settings.poll.as_secs_f64(),
                suspicion: settings.suspicion.as_secs_f64(),
                fence_command: settings.fence_command.map(|digest| digest.to_string()),
                uid: settings.uid,
            },
            manager: look.manager.map(|manager| manager.to_string()),
            members: look
                .members
                .values()
                .filter(shown)
                .map(Member::new)
                .collect(),
            groups: look
                .groups
                .iter()
                .map(|group| Group {
                    number: group.id.number(),
                    name: &group.name,
                    members: group.members,
                    events: group.events,
                })
                .collect(),
            pools,
        }
    }
}

impl<'a> Member<'a> {
    fn new(seen: &'a Seen) -> Self {
        let (state, record) = (seen.state(), seen.status.record.as_ref());
        Self {
            id: seen.id(),
            generation: state.generation,
            instance: seen.status.instance().to_string(),
            level: seen.level(),
            status: state.status.name(),
            there: match seen.presence {
                Some(Presence::Here) => Some(true),
                Some(Presence::Gone) => Some(false),
                Some(Presence::Unknown) | None => None,
            },
            host: match state.level {
                Some(Level::Host) => seen.id(),
                _ => state.host.into(),
            },
            process: record
                .and_then(|record| record.process)
                .map(|process| process.to_string()),
            pid: record.map(|record| record.thread.process.pid),
            tid: record.map(|record| record.thread.tid),
            uid: record.map(|record| record.uid),
            name: seen.name(),
            beats: seen.status.beats,
            locks: seen
                .locks
                .iter()
                .map(|lock| Lock {
                    offset: lock.lock.byte(),
                    kind: lock.kind.get(),
                })
                .collect(),
            mutexes: &seen.mutexes,
            recovered_by: seen.recoverer.map(|by| by.to_string()),
        }
    }
}
