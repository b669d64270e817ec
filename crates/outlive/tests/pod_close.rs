//! A process that opens and closes pods in turn ends with the resources that it had at the start:
//! descriptors, mappings, locked and shared memory. This is one test, since other threads of the
//! program would have descriptors of their own.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodError, PodOptions};
use std::path::Path;

/// The number of pods that are opened. To open more by hand:
/// `CLOSED_PODS=10000 cargo test -p outlive --test pod_close`.
const PODS: u32 = 300;

/// The resources that a process has of the operating system.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    mappings: usize,
    locked_kib: u64,
    shared_kib: u64,
    threads: u64,
}

impl Held {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // The C library's arenas and stacks come and go.
        let is_ours = |line: &&str| {
            line.contains("/dev/shm") || line.contains("memfd:") || line.contains("---p")
        };
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(is_ours).count(),
            locked_kib: field("VmLck:"),
            shared_kib: field("RssShmem:"),
            threads: field("Threads:"),
        }
    }
}

fn use_one(path: &Path) -> Result<(), PodError> {
    let pod = Pod::create(path, PodOptions::new().size(4 << 20))?;
    let process = pod.join(ProcessOptions::on_host(0))?;
    let thread = process.enter(None, "me").unwrap();
    let heap = thread.heap(&pod)?;
    let cell = heap.pending_cell(0);
    heap.allocate_into(64, cell).unwrap();
    heap.free_from(cell, 0).unwrap();
    assert!(matches!(pod.close(), Err(PodError::InUse { .. })));
    drop(heap);
    drop(thread);
    process.leave()?;
    // A second opening has a mapping of its own, and keeps the resources that the process shares.
    let second = Pod::open(path)?;
    second.os()?;
    pod.close()?;
    let again = second.join(ProcessOptions::on_host(1))?;
    drop(again);
    second.close()?;
    second.close()?;
    Pod::destroy(path)?;
    refuse_one(path)
}

/// A refused join leaves nothing of the side file that it has created.
fn refuse_one(path: &Path) -> Result<(), PodError> {
    let pod = Pod::create(path, PodOptions::new().size(4 << 20))?;
    for _ in 0..3 {
        let refused = pod.join(ProcessOptions::on_host(u32::MAX)).unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");
    }
    pod.close()?;
    Pod::destroy(path)?;
    Ok(())
}

#[test]
fn pods_that_are_closed_leave_nothing() {
    let path = format!("/dev/shm/outlive-test-close-{}", std::process::id());
    let pods = std::env::var("CLOSED_PODS").map_or(PODS, |pods| pods.parse().unwrap());
    for _ in 0..3 {
        use_one(path.as_ref()).unwrap();
    }
    let before = Held::now();
    for _ in 0..pods {
        use_one(path.as_ref()).unwrap();
    }
    let after = Held::now();
    println!("{before:?}\n{after:?}");
    // Reservations that do not lie side by side are several mappings.
    let few = 8;
    assert!(
        after.mappings <= before.mappings + few,
        "{before:?} {after:?}"
    );
    assert_eq!(
        Held {
            mappings: 0,
            ..after
        },
        Held {
            mappings: 0,
            ..before
        }
    );
}
