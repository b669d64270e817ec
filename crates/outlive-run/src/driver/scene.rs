//! The pod of a run: made before the hosts are started, destroyed when the run is over.

use super::stale::{Name, sweep};
use super::{Options, Order, Program, RunError, Running, Stage};
use crate::blocks::Blocks;
use crate::host::HostError;
use crate::size;
use outlive::host::{Linux, OsError};
use outlive::membership::{FenceCommandDigest, Process, ProcessOptions, Settings};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::{CreateError, DestroyError, NoRoom, say_after_bus_error};
use outlive::structures;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A pod created for a run. It is destroyed on drop.
pub(super) struct Scene<R> {
    pub(super) pod: Pod,
    pub(super) path: PathBuf,
    /// The reason why it is not in /dev/shm, if it was to be there.
    pub(super) no_room: Option<NoRoom>,
    pub(super) process: Option<Process>,
    pub(super) run: R,
    /// The estimated size in bytes.
    pub(super) estimate: u64,
    /// Last, so that it is dropped when all that uses the pod is gone.
    made: Made,
}

/// The pod at a path, which is destroyed on drop.
struct Made {
    path: PathBuf,
    /// The pod, once no thread of this process uses it any more. It is closed before it is
    /// destroyed: a process may have many runs, and memory is freed only when the last mapping is
    /// removed; and a device that is open here counts as in use, and would keep its contents.
    unused: Option<Pod>,
}

impl Drop for Made {
    fn drop(&mut self) {
        // The threads of a run are scoped, and the run's result holds nothing of the pod. The field
        // `run`, which does, precedes this one in `Scene`.
        let number = self.unused.as_ref().map(Pod::number);
        if let Some(Err(error)) = self.unused.take().map(|pod| pod.close()) {
            tracing::warn!(%error, "the pod of a run could not be unmapped");
        }
        // Other workers are about to leave. Until then a device is in use, and the side file by
        // which the kernel reports their deaths stays.
        let until = Instant::now() + LEAVING;
        let mut is_left = loop {
            match Pod::destroy_forcibly(&self.path) {
                Ok(left) => break left.is_some(),
                Err(PodError::Destroy(DestroyError::Busy { .. })) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => {
                    let path = self.path.display();
                    tracing::warn!(%error, %path, "the pod of a run could not be removed");
                    break false;
                }
            }
        };
        while let Some(number) = number.filter(|_| is_left && Instant::now() < until) {
            std::thread::sleep(Duration::from_millis(2));
            is_left = matches!(Linux::remove_side_file(number), Err(OsError::InUse { .. }));
        }
    }
}

impl<R: Running> Scene<R> {
    pub(super) fn set(
        options: &Options,
        order: &Order,
        program: &impl Program<Running = R>,
    ) -> Result<Self, RunError> {
        let ids = order.crew.ids();
        let estimate = size::segment_bytes(program.heap_bytes(order)?, ids);
        let bytes = options.size.unwrap_or(estimate);
        let (pod, path, elsewhere) = create(options, bytes, ids)?;
        say_after_bus_error(&format!(
            "outlive: the run is lost; remove what it leaves with \
             `rm {0} && outlive pod clean --remove`\n",
            path.display()
        ));
        let mut made = Made {
            path: path.clone(),
            unused: None,
        };
        let too_small = |wanted| RunError::Full {
            size: bytes,
            wanted,
            ask: ask_for(bytes, estimate),
        };
        let mut process = None;
        let begun = match pod.heap() {
            Some(_) => begin(options, order, program, &pod, &mut process),
            None => Err(Unbegun::Full(bytes)),
        };
        match begun {
            Ok(run) => Ok(Self {
                pod,
                path,
                no_room: elsewhere,
                process,
                run,
                estimate,
                made,
            }),
            Err(unbegun) => {
                if process.is_none_or(|process| process.leave().is_ok()) {
                    made.unused = Some(pod);
                }
                Err(match unbegun {
                    Unbegun::Full(wanted) => too_small(wanted),
                    Unbegun::Failed(error) => error,
                })
            }
        }
    }
}

/// The reason why a run could not begin in a pod.
enum Unbegun {
    /// The pod is too small for an allocation of this many bytes.
    Full(u64),
    Failed(RunError),
}

impl<E: Into<RunError>> From<E> for Unbegun {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Joins `pod` as the driver, stores its membership in `process`, and begins the program.
fn begin<R: Running>(
    options: &Options,
    order: &Order,
    program: &impl Program<Running = R>,
    pod: &Pod,
    process: &mut Option<Process>,
) -> Result<R, Unbegun> {
    let crew = order.crew;
    let own = ProcessOptions::on_host(crew.hosts)
        .host_name("driver")
        .id(crew.driver())
        .name("driver");
    let own = match &options.fence_command {
        Some(command) => own.fence_command(command),
        None => own,
    };
    let process = process.insert(pod.join(own)?);
    let member = process
        .enter(Some(crew.driver_thread()), "driver")
        .map_err(PodError::from)?;
    let (heap, local) = (pod.heap().ok_or(HostError::NoRun)?, member.heap(pod)?);
    let stage = Stage {
        pod,
        blocks: Blocks {
            buddy: *heap.buddy(),
            member: &member,
            recoverers: member.recoverers().ok_or(HostError::NoRun)?,
        },
        heap: &local,
        // A cell owned by the driver, for the block until the root leads to it.
        cell: pod.logs().of(member.instance().id).program_room(),
    };
    program.begin(order, &stage).map_err(|error| {
        let full = match &error {
            RunError::Begin(
                HostError::Allocate(error)
                | HostError::Totals(structures::CreateError::Heap(error)),
            ) => error.asked(),
            RunError::Begin(HostError::Pool(error)) => error.wanted(),
            _ => None,
        };
        full.map_or(Unbegun::Failed(error), Unbegun::Full)
    })
}

/// Returns the size to ask for after a segment of `had` bytes was too small; `needed`, the
/// estimate, may be less.
pub(super) fn ask_for(had: u64, needed: u64) -> u64 {
    let more = if needed > had {
        needed
    } else {
        had.saturating_mul(2)
    };
    more.next_multiple_of(1 << 20)
}

/// The time for which the driver waits at the end for workers to leave that it has not started. If
/// one takes longer, the last worker to leave removes the side file.
const LEAVING: Duration = Duration::from_secs(1);

impl<R> Drop for Scene<R> {
    fn drop(&mut self) {
        say_after_bus_error("");
        let process = self.process.take();
        if process.is_some_and(|process| process.leave().is_ok()) {
            self.made.unused = Some(self.pod.clone());
        }
    }
}

/// Creates the pod at the requested path; otherwise in /dev/shm, or, if that has no free space, in
/// the directory for temporary files. Returns the reason in the latter case.
fn create(
    options: &Options,
    bytes: u64,
    ids: u32,
) -> Result<(Pod, PathBuf, Option<NoRoom>), RunError> {
    let settings = Settings {
        fence_command: { options.fence_command.as_deref() }.map(FenceCommandDigest::of),
        ..options.settings.clone()
    };
    let make = |path: &Path| {
        let like = PodOptions::new().size(bytes).ids(ids).groups(1);
        Pod::create(path, like.settings(settings.clone()))
    };
    if let Some(path) = &options.pod {
        return Ok((make(path)?, path.clone(), None));
    }
    let (name, elsewhere) = (Name::of_this_process().to_string(), std::env::temp_dir());
    let memory = Path::new("/dev/shm");
    // Pods left by killed drivers may take up the space.
    sweep(memory);
    sweep(&elsewhere);
    let path = memory.join(&name);
    match make(&path) {
        Ok(pod) => Ok((pod, path, None)),
        Err(PodError::Create(CreateError::NoRoom(full))) => {
            let elsewhere = elsewhere.join(&name);
            // The first error says which resource is missing.
            let pod = make(&elsewhere)
                .map_err(|_| PodError::Create(CreateError::NoRoom(full.clone())))?;
            Ok((pod, elsewhere, Some(full)))
        }
        Err(error) => Err(error.into()),
    }
}
