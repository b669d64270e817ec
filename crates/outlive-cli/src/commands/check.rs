//! `outlive pod check`.

use super::Which;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive::pod::{self, HeapCheck, Pod, Repair};
use outlive_tasks::WorkerPool;
use serde::Serialize;
use std::path::Path;

/// Arguments of `outlive pod check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod check /dev/shm/demo\n  \
    outlive pod check /dev/shm/demo --json | jq '.violations[]'\n  \
    outlive pod check /dev/shm/demo --repair\n\n\
    Without --repair, the command changes nothing and can run while the pod is in use. With \
    --repair, it repairs what is wrong; the pod must not be in use. It exits with 1 if it finds a \
    violation, or, with --repair, if a violation remains or a member could not be recovered.\n\n\
    If the pod is not in use, the command also searches for leaked blocks: blocks to which no \
    root, named object or log leads. --repair does not free them. If a program stores offsets in a \
    form of its own (shifted, relative, or in less than 8 bytes), blocks that it uses may be \
    reported as leaked.\n\n\
    JSON: path, ids, alive, groups, events, heap, objects, leaks_searched, pools (checked, \
    in_use), violations (room, offset, what) and, after --repair, repaired (recovered, \
    unrecovered, freed, mended); docs/json.md says what they mean.")]
pub struct Check {
    #[command(flatten)]
    which: Which,
    /// Recover dead members and repair the heap first; refused while the pod is in use
    #[arg(long)]
    repair: bool,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked<'a> {
    path: &'a Path,
    ids: u32,
    alive: u32,
    groups: u32,
    events: u64,
    heap: Option<Heap>,
    /// The number of named objects, if the pod has a directory of objects that can be read.
    objects: Option<u64>,
    /// Whether the check searched for leaked blocks.
    leaks_searched: bool,
    pools: Pools,
    violations: Vec<Violation<'a>>,
    /// Present only after a repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<Repaired>,
}

#[derive(Serialize)]
struct Heap {
    bytes: u64,
    free: u64,
    largest_free: u64,
    slabs: u64,
    small_blocks: u64,
    small_bytes: u64,
    large_blocks: u64,
    /// Blocks that are unreachable, but may still be read by a member.
    retired: u64,
    /// The size classes that have slabs.
    classes: Vec<Class>,
}

#[derive(Serialize)]
struct Class {
    size: u64,
    slabs: u64,
    blocks: u64,
    allocated: u64,
}

#[derive(Serialize)]
struct Violation<'a> {
    room: &'static str,
    /// Bytes from the start of the segment.
    offset: Option<u64>,
    what: &'a str,
}

impl<'a> Violation<'a> {
    fn of(found: &'a pod::Violation) -> Self {
        Self {
            room: found.room,
            offset: found.at.map(|at| at.byte()),
            what: &found.what,
        }
    }
}

/// The worker pools of the pod.
#[derive(Serialize, Default)]
struct Pools {
    checked: Vec<String>,
    /// Pools that live workers use, which are not checked.
    in_use: Vec<String>,
}

/// The result of a repair.
#[derive(Serialize)]
struct Repaired {
    recovered: Vec<u32>,
    unrecovered: Vec<Unrecovered>,
    freed: u64,
    mended: Vec<String>,
}

#[derive(Serialize)]
struct Unrecovered {
    id: u32,
    why: String,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let (pod, check, repaired) = if self.repair {
            let pod = self.which.open()?;
            let done = pod.repair()?;
            let repaired = Repaired::of(&done);
            (pod, done.check, Some(repaired))
        } else {
            let pod = self.which.observe()?;
            let check = pod.check();
            (pod, check, None)
        };
        let mut violations = check.violations.clone();
        // In a damaged heap, a pool's own structures are not reliable.
        let pools = if check.is_clean() {
            Pools::of(&pod, &mut violations)?
        } else {
            Pools::default()
        };
        let unrecovered = repaired
            .as_ref()
            .is_some_and(|done| !done.unrecovered.is_empty());
        if self.json {
            output::json(&Checked {
                path: self.which.path(),
                ids: check.ids,
                alive: check.alive,
                groups: check.groups,
                events: check.events,
                heap: check.heap.as_ref().map(Heap::of),
                objects: check.objects,
                leaks_searched: check.leaks_searched,
                pools,
                violations: violations.iter().map(Violation::of).collect(),
                repaired,
            })?;
        } else {
            if let Some(done) = &repaired {
                done.tell()?;
            }
            violations.iter().try_for_each(output::line)?;
            if let Some(heap) = &check.heap {
                Heap::of(heap).tell()?;
                output::line(leaks_line(&check))?;
            }
            pools.tell()?;
            let found = match violations.len() {
                0 => "nothing is wrong".into(),
                1 => "1 violation".into(),
                many => format!("{many} violations"),
            };
            output::line(format_args!(
                "{}: checked {} ids ({} members), {} groups, {} events, {} objects: {found}",
                self.which.path().display(),
                check.ids,
                check.alive,
                check.groups,
                check.events,
                check.objects.unwrap_or(0),
            ))?;
        }
        if violations.is_empty() && !unrecovered {
            Ok(())
        } else {
            Err(Failure::Found)
        }
    }
}

/// Returns the line about leaked blocks.
fn leaks_line(check: &pod::Check) -> &'static str {
    match (check.leaks_searched, check.is_clean()) {
        (true, true) => "no block of the heap has leaked",
        (true, false) => "blocks of the heap have leaked",
        (false, true) => {
            "no search for leaked blocks: the pod is in use, or has dead members that are not \
             recovered (--repair recovers them, as does the next process that joins)"
        }
        (false, false) => "no search for leaked blocks: the pod is damaged",
    }
}

impl Heap {
    fn of(heap: &HeapCheck) -> Self {
        let (all, region) = (&heap.statistics.classes, &heap.statistics.region);
        let slabs = all.iter().map(|class| class.slabs).sum();
        let blocks: u64 = region.allocated.iter().sum();
        Self {
            bytes: region.bytes,
            free: region.free_bytes,
            largest_free: region.largest_free,
            slabs,
            small_blocks: all.iter().map(|class| class.allocated).sum(),
            small_bytes: all.iter().map(|class| class.bytes_in_use()).sum(),
            large_blocks: blocks.saturating_sub(slabs + heap.statistics.owed),
            retired: heap.retired,
            classes: all
                .iter()
                .filter(|class| class.slabs > 0)
                .map(|class| Class {
                    size: class.size,
                    slabs: class.slabs,
                    blocks: class.blocks,
                    allocated: class.allocated,
                })
                .collect(),
        }
    }

    fn tell(&self) -> Result<(), Failure> {
        output::line(format_args!(
            "heap: {} of {} free, the largest free block {}; {} large blocks; {} small blocks of \
             {} in all in {} slabs; {} retired blocks",
            Bytes(self.free),
            Bytes(self.bytes),
            Bytes(self.largest_free),
            self.large_blocks,
            self.small_blocks,
            Bytes(self.small_bytes),
            self.slabs,
            self.retired,
        ))?;
        if self.classes.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(["SIZE", "SLABS", "BLOCKS", "ALLOCATED"]);
        for class in &self.classes {
            table.row([
                class.size.to_string(),
                class.slabs.to_string(),
                class.blocks.to_string(),
                class.allocated.to_string(),
            ]);
        }
        table.lines().try_for_each(output::line)
    }
}

impl Pools {
    fn of(pod: &Pod, violations: &mut Vec<pod::Violation>) -> Result<Self, Failure> {
        let mut pools = Self::default();
        if pod.heap().is_none() {
            return Ok(pools);
        }
        for name in WorkerPool::names(pod).map_err(Failure::new)? {
            let findings = match WorkerPool::verify(pod, &name) {
                Ok(None) => {
                    pools.in_use.push(name);
                    continue;
                }
                Ok(Some(findings)) => findings,
                Err(error) => vec![error.to_string()],
            };
            violations.extend(findings.into_iter().map(|what| pod::Violation {
                room: "tasks",
                at: None,
                what: format!("pool {name}: {what}"),
            }));
            pools.checked.push(name);
        }
        Ok(pools)
    }

    fn tell(&self) -> Result<(), Failure> {
        if !self.checked.is_empty() {
            output::line(format_args!("pools: {}", self.checked.join(", ")))?;
        }
        if !self.in_use.is_empty() {
            let names = self.in_use.join(", ");
            output::line(format_args!("pools in use, not checked: {names}"))?;
        }
        Ok(())
    }
}

impl Repaired {
    fn of(done: &Repair) -> Self {
        Self {
            recovered: done.recovered.clone(),
            unrecovered: done
                .unrecovered
                .iter()
                .map(|(id, why)| Unrecovered {
                    id: *id,
                    why: why.clone(),
                })
                .collect(),
            freed: done.freed,
            mended: done.heap.iter().map(ToString::to_string).collect(),
        }
    }

    fn tell(&self) -> Result<(), Failure> {
        if !self.recovered.is_empty() {
            let ids: Vec<String> = self.recovered.iter().map(u32::to_string).collect();
            output::line(format_args!("recovered the ids {}", ids.join(", ")))?;
        }
        for left in &self.unrecovered {
            output::line(format_args!(
                "id {} could not be recovered, so the heap was not repaired: {}",
                left.id, left.why
            ))?;
        }
        if self.freed > 0 {
            output::line(format_args!("freed {} retired blocks", self.freed))?;
        }
        self.mended.iter().try_for_each(output::line)?;
        if self.recovered.is_empty() && self.freed == 0 && self.mended.is_empty() {
            output::line("nothing was repaired")?;
        }
        Ok(())
    }
}
