//! The pod of a run: made before the hosts are started, destroyed when the run is over.

use super::stale::{Name, sweep};
use super::{Options, RunError, driver_thread, process_of};
use crate::host::HostError;
use crate::mapreduce::{MapReduce, Totals, no_room};
use crate::run::{MapReduceRun, Plan, ROOT, Run};
use crate::size;
use crate::table::Blocks;
use outlive::heap::buddy::AllocateError;
use outlive::membership::{Process, ProcessOptions};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::CreateError;
use outlive::structures;
use std::path::{Path, PathBuf};

pub(super) fn plan(options: &Options, program: u64) -> Plan {
    let (hosts, processes, threads) = (options.hosts, options.processes, options.threads);
    let bytes = options.inputs.bytes();
    Plan {
        inputs: options.inputs.clone(),
        program,
        hosts,
        processes,
        threads,
        first_process: process_of(options, 0),
        first_id: driver_thread(options) + 1,
        unit: options
            .unit
            .unwrap_or_else(|| Plan::unit_for(bytes, hosts * processes * threads)),
        seed: options.seed,
        kills: options.kills,
    }
}

/// A pod made for a run. Dropped, it is destroyed.
pub(super) struct Scene {
    pub(super) pod: Pod,
    pub(super) path: PathBuf,
    pub(super) process: Option<Process>,
    pub(super) run: Run,
    /// How large it should be, as far as can be known before.
    pub(super) estimate: u64,
}

impl Scene {
    pub(super) fn set(
        options: &Options,
        plan: &Plan,
        program: &impl MapReduce,
    ) -> Result<Self, RunError> {
        let ids = plan.first_id + plan.workers() + 1;
        let keys = size::keys_of(&options.inputs, program)?;
        let estimate = size::segment_bytes(size::heap_bytes(plan, keys), ids);
        let bytes = options.size.unwrap_or(estimate);
        let (pod, path) = create(options, bytes, ids)?;
        let owned = OwnPath(Some(path));
        let memory = pod.segment().memory();
        let too_small = |wanted| RunError::Full {
            size: bytes,
            wanted,
            ask: ask_for(bytes, estimate),
        };
        let heap = pod.heap().ok_or_else(|| too_small(bytes))?;
        let hosts = plan.hosts;
        let own = ProcessOptions::on_host(hosts)
            .host_name("driver")
            .id(process_of(options, hosts))
            .name("driver");
        let process = pod.join(own)?;
        let run = {
            let member = process
                .enter(Some(driver_thread(options)), "driver")
                .map_err(PodError::from)?;
            let blocks = Blocks {
                buddy: *heap.buddy(),
                member: &member,
                recoverers: member.recoverers().ok_or(HostError::NoRun)?,
            };
            // A cell of the driver's own, for the block on its way into the root.
            let cell = pod.logs().of(member.instance().id).program_room();
            let refused = |error: AllocateError| match no_room(&error) {
                Some(asked) => too_small(asked),
                None => HostError::from(error).into(),
            };
            let run = Run::create(plan, blocks, memory, cell).map_err(refused)?;
            let local = member.heap(&pod)?;
            match Totals::create_seeded(&local, run.totals_cell(), plan.seed) {
                Ok(_) => run,
                Err(structures::CreateError::Heap(error)) => return Err(refused(error)),
                Err(other) => return Err(HostError::from(other).into()),
            }
        };
        pod.roots()
            .publish::<MapReduceRun>(ROOT, run.at())
            .map_err(HostError::from)?;
        Ok(Self {
            pod,
            path: owned.keep(),
            process: Some(process),
            run,
            estimate,
        })
    }
}

pub(super) fn ask_for(had: u64, estimated: u64) -> u64 {
    estimated
        .max(had.saturating_mul(2))
        .next_multiple_of(1 << 20)
}

/// Removes what is there unless it is kept.
struct OwnPath(Option<PathBuf>);

impl OwnPath {
    fn keep(mut self) -> PathBuf {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = Pod::destroy(path);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.leave();
        }
        let _ = Pod::destroy(&self.path);
    }
}

/// Makes the pod where it was asked for; else in /dev/shm, or where temporary files are if /dev/shm has no room.
fn create(options: &Options, bytes: u64, ids: u32) -> Result<(Pod, PathBuf), RunError> {
    let make = |path: &Path| Pod::create(path, PodOptions::new().size(bytes).ids(ids).groups(1));
    if let Some(path) = &options.pod {
        return Ok((make(path)?, path.clone()));
    }
    let (name, elsewhere) = (Name::of_this_process().to_string(), std::env::temp_dir());
    let memory = Path::new("/dev/shm");
    // What killed drivers have left behind may be in the way.
    sweep(memory);
    sweep(&elsewhere);
    let path = memory.join(&name);
    match make(&path) {
        Ok(pod) => Ok((pod, path)),
        Err(PodError::Create(CreateError::NoRoom(full))) => {
            let elsewhere = elsewhere.join(&name);
            // The first refusal says what is missing.
            let pod = make(&elsewhere).map_err(|_| PodError::Create(CreateError::NoRoom(full)))?;
            Ok((pod, elsewhere))
        }
        Err(error) => Err(error.into()),
    }
}
