//! The audit: the pod must hold the sum of the workers' tallies.

use super::ledger::{Ledger, Sum, Tally};
use super::stage::{Stage, process_of, thread_of};
use super::{blocks, counters, entries};
use outlive::heap::LocalHeap;
use outlive::membership::Member;
use outlive::pod::Pod;
use outlive::recovery::Logs;
use outlive_memory::Offset;
use std::time::{Duration, Instant};

/// The time within which all retired blocks must be freed. One round is usually enough, but the
/// workers that died last may first have to be recovered, which other processes do.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// Returns all faults found, and the sum of the tallies. All workers are gone.
pub fn audit(pod: &Pod, stage: Stage, member: &Member, workers: u32) -> (Vec<String>, Sum) {
    let mut wrong = Vec::new();
    let (heap, recoverers) = match (pod.heap(), member.recoverers()) {
        (Some(heap), Some(recoverers)) => (heap, recoverers),
        _ => return (vec!["the pod has no heap".into()], Sum::default()),
    };
    let (logs, mut sum) = (pod.logs(), Sum::default());
    let mut tallies: Vec<Tally> = Vec::new();
    for worker in 0..workers {
        let log = logs.of(thread_of(worker));
        let ledger = Ledger::at(stage.memory, log.program_room());
        let tally = ledger.tally();
        match ledger.intended(tally.sequence) {
            Ok(None) => {}
            Ok(Some(intent)) => wrong.push(format!(
                "worker {worker} left, but {intent:?} is not settled"
            )),
            Err(what) => wrong.push(format!("worker {worker}: {what}")),
        }
        for id in [thread_of(worker), process_of(worker)] {
            let log = logs.of(id);
            if let Some(claimant) = log.claimant() {
                wrong.push(format!("the log of id {id} is still claimed by {claimant}"));
            }
            if let Some(entry) = log.locks().next() {
                wrong.push(format!("the log of id {id} still lists {entry:?}"));
            }
        }
        sum.add(&tally);
        tallies.push(tally);
    }
    wrong.extend(counters::audit(stage, member, recoverers, &sum.counted));
    let mut in_use = vec![Offset::from_raw(stage.place())];
    for (worker, tally) in (0..).zip(&tallies) {
        wrong.extend(blocks::audit(stage, worker, tally, &mut in_use));
    }
    let local = LocalHeap::of(heap, member, recoverers);
    wrong.extend(entries::audit(stage, &local, &tallies, &sum, &mut in_use));
    wrong.extend(settle(&local, logs, SETTLED_WITHIN));
    drop(local);
    let report = heap.check_reachable(in_use);
    wrong.extend(
        report
            .findings
            .iter()
            .map(|finding| format!("heap: {finding}")),
    );
    let generations = pod.tables().generations();
    for finding in heap.check_members(logs, generations) {
        wrong.push(format!("heap: {finding}"));
    }
    let check = pod.check();
    wrong.extend(check.violations.iter().map(|what| format!("pod: {what}")));
    (wrong, sum)
}

/// Frees the blocks that the workers retired, and returns a fault for each log with blocks that
/// stay. A worker that leaves while another is pinned leaves blocks in its list for the next
/// reclaimer. No thread is pinned now, so no block may stay.
fn settle(local: &LocalHeap<'_>, logs: Logs, time: Duration) -> Vec<String> {
    let heap = local.heap();
    let retired = || {
        (0..logs.capacity())
            .map(|id| (id, heap.retired(logs.of(id)).count()))
            .filter(|(_, many)| *many != 0)
    };
    let until = Instant::now() + time;
    loop {
        local.reclaim();
        if retired().next().is_none() {
            return Vec::new();
        }
        if Instant::now() > until {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    retired()
        .map(|(id, many)| format!("id {id} has retired {many} blocks that no member can free"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::heap::LocalHeap;
    use outlive::membership::{ProcessOptions, Settings};
    use outlive::pod::PodOptions;
    use outlive_memory::{Memory, Ordering};
    use std::sync::mpsc::channel;

    /// Retires `many` blocks.
    fn retire(heap: &LocalHeap<'_>, many: u64) {
        let (memory, pending) = (heap.memory(), heap.pending_cell(0));
        for _ in 0..many {
            let block = heap.allocate_into(64, pending).unwrap();
            memory.store(block, heap.era(), Ordering::Relaxed);
            memory.store(pending, 0u64, Ordering::Relaxed);
            heap.retire(block);
        }
    }

    #[test]
    fn what_a_worker_leaves_while_another_is_pinned_is_no_leak() {
        let path = format!("/dev/shm/outlive-chaos-audit-{}", std::process::id());
        let settings = Settings {
            uid: rustix::process::geteuid().as_raw(),
            ..Settings::default()
        };
        let options = PodOptions::new().size(8 << 20).settings(settings);
        let pod = Pod::create(&path, options).unwrap();
        let process = pod.join(ProcessOptions::on_host(0)).unwrap();
        let member = process.enter(None, "auditor").unwrap();
        let local = member.heap(&pod).unwrap();
        let (pinned, is_pinned) = channel();
        let (done, is_done) = channel::<()>();
        let (unpinned, is_unpinned) = channel();
        let (entrance, place) = (&process, &pod);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let member = entrance.enter(None, "reader").unwrap();
                let heap = member.heap(place).unwrap();
                let pin = heap.pin();
                pinned.send(()).unwrap();
                is_done.recv().unwrap();
                drop(pin);
                unpinned.send(()).unwrap();
            });
            is_pinned.recv().unwrap();
            let left = scope.spawn(|| {
                let member = process.enter(None, "leaver").unwrap();
                retire(&member.heap(&pod).unwrap(), 3);
                member.instance().id
            });
            let left = left.join().unwrap();
            // The audit used to report these blocks as leaked.
            let heap = pod.heap().unwrap();
            assert_eq!(heap.retired(pod.logs().of(left)).count(), 3);
            // Blocks that cannot be freed are reported.
            assert_eq!(
                settle(&local, pod.logs(), Duration::from_millis(20)),
                [format!(
                    "id {left} has retired 3 blocks that no member can free"
                )]
            );
            done.send(()).unwrap();
            is_unpinned.recv().unwrap();
            assert!(settle(&local, pod.logs(), SETTLED_WITHIN).is_empty());
            assert_eq!(heap.retired(pod.logs().of(left)).count(), 0);
        });
        drop(local);
        drop(member);
        process.leave().unwrap();
        Pod::destroy(&path).unwrap();
    }
}
