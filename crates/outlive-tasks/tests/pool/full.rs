//! In a completely full heap a job fails and reports the number of bytes that it needed, even where
//! the heap has no space for the reason.

use crate::support::{LONG, with_workers};
use outlive::memory::{Memory, Ordering};
use outlive_tasks::{Context, Options, task};

/// Takes every block that is available to this worker. Can be repeated.
fn fill(context: &Context<'_>) {
    let (heap, memory) = (context.heap(), context.memory());
    let pending = heap.pending_cell(7);
    let (large, small) = ((10..26).rev(), (1..64).rev());
    for bytes in large
        .map(|log2| 1 << log2)
        .chain(small.map(|many| many * 16))
    {
        while heap.allocate_into(bytes, pending).is_ok() {
            // The block is leaked: the pod ends with the test.
            memory.store(pending, 0u64, Ordering::Relaxed);
        }
    }
}

task! {
    /// Needs a cell for its job's result.
    fn wants_a_cell(context) {
        fill(context);
        context.result(b"x")
    }

    /// Has a cell, and spawns a task that needs ports.
    fn has_a_cell(context) {
        context.result(b"mine")?;
        context.spawn(wants_ports())
    }

    fn wants_ports(context) {
        fill(context);
        context.result(b"x")
    }

    fn fills(context) {
        fill(context);
        Ok(())
    }

    fn quiet(_context) {
        Ok(())
    }
}

/// Returns the error of the job, which failed for lack of memory.
fn said(job: &outlive_tasks::Job<'_>) -> String {
    let why = job.wait(LONG).unwrap_err().to_string();
    assert!(
        why.contains("a task requested a block of ") || why.contains("has no free block of "),
        "{why}"
    );
    why
}

#[test]
fn a_result_without_a_cell_says_how_much_was_wanted() {
    with_workers("full-cell", 1, Options::new(), |_, heap, pool| {
        said(&pool.submit(heap, "cell", wants_a_cell()).unwrap());
    });
}

#[test]
fn a_result_without_ports_says_how_much_was_wanted() {
    with_workers("full-ports", 1, Options::new(), |_, heap, pool| {
        let why = said(&pool.submit(heap, "ports", has_a_cell()).unwrap());
        assert!(why.contains(" 48 bytes"), "{why}");
    });
}

#[test]
fn a_root_without_room_says_how_much_was_wanted() {
    with_workers("full-root", 1, Options::new(), |_, heap, pool| {
        let wait = |name: &str, call| pool.submit(heap, name, call).unwrap().wait(LONG);
        // The submitter has free memory for its own records.
        wait("first", quiet().writes("named")).unwrap();
        wait("fills", fills()).unwrap();
        // Its ports have a name, and are larger than those that are free again.
        let third = pool.submit(heap, "third", quiet().writes("other"));
        said(&third.unwrap());
    });
}
