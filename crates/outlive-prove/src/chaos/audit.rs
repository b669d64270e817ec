//! The reckoning: what the pod holds must be what the workers' tallies add up to.

use super::ledger::{Ledger, Sum, Tally};
use super::stage::{Stage, process_of, thread_of};
use super::{blocks, counters, entries};
use outlive::heap::LocalHeap;
use outlive::membership::Member;
use outlive::pod::Pod;
use outlive_memory::Offset;

/// Everything that is wrong, with all workers gone, and what they did.
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
                "worker {worker} left, and {intent:?} is not settled"
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
