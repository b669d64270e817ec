//! Spawning, finding, stealing and completing make no system call: a child process does these after
//! it has given up its right to make any (seccomp's strict mode, in which the kernel kills a
//! process that makes one; it may end, and touch memory).

use outlive::heap::{self, Heap, LocalHeap};
use outlive::memory::{Native, Offset, PersistenceDomain};
use outlive::sync;
use outlive_proofs::pod::{DATA, Pod, SIZE};
use outlive_tasks::{Engine, Settings, Slots, Spec, State, Task};

const SLOTS: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + (16 << 10));
const REGION: Offset = Offset::new(1 << 20);
const BYTES: u64 = 32 << 20;
/// The number of tasks that a parent spawns.
const BATCH: u64 = 100;

/// Lets a parent and a thief take a batch of the parent's in turn; returns how many each had.
fn round<'e>(worker: &mut Engine<'e>, thief: &mut Engine<'e>, root: Task) -> [u64; 2] {
    let spec = Spec::new(0, &[]);
    root.prepare_root(worker.heap(), &spec, State::Ready)
        .unwrap();
    let mut parent = worker
        .start(root)
        .unwrap()
        .expect("no other worker knows it");
    for _ in 0..BATCH {
        worker.spawn(&mut parent, &Spec::new(0, &[1, 2])).unwrap();
    }
    worker.complete(&mut parent, &mut ()).unwrap();
    let mut had = [0; 2];
    loop {
        let before = had;
        for (engine, had) in [&mut *thief, &mut *worker].into_iter().zip(&mut had) {
            if let Some(mut run) = engine.next(&mut ()).unwrap() {
                engine.complete(&mut run, &mut ()).unwrap();
                *had += 1;
            }
        }
        if had == before {
            return had;
        }
    }
}

/// Returns how a child ends that may make no system call but the one by which it ends.
fn without_system_calls(work: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: the child calls nothing that waits for other threads of this process, which it does
    // not have, and ends by a bare system call. (To allocate is allowed after a fork.)
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a child");
    if child == 0 {
        // SAFETY: takes the right to make system calls from this thread, the child's only one.
        let is_strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        let failed = is_strict != 0 || !work();
        // SAFETY: ends the child, which never returns from here. (Not `exit_group`, which strict
        // mode does not know.)
        unsafe { libc::syscall(libc::SYS_exit, libc::c_long::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of this function; the status is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn spawning_and_stealing_make_no_system_call() {
    let memory = Native::leaked(REGION.raw() + BYTES, PersistenceDomain::Flushed);
    let heap = Heap::create(memory, STATE, REGION, BYTES).unwrap();
    let settings = Settings {
        capacity: 2,
        ..Settings::default()
    };
    let slots = Slots::create(memory, SLOTS, settings).unwrap();
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
    let members = [0, 1].map(|id| pod.join(id));
    let locals = [0, 1].map(|at: usize| LocalHeap::of(heap, &members[at], &pod.recoverers));
    let claim = |at: usize| Engine::claim(slots, &locals[at], &pod.recoverers, &mut ()).unwrap();
    let (mut worker, mut thief) = (claim(0), claim(1));
    let root = Task::new(memory, DATA);
    // Each takes every other one.
    let expected = [BATCH / 2; 2];
    assert_eq!(round(&mut worker, &mut thief, root), expected);
    let status =
        without_system_calls(|| (0..50).all(|_| round(&mut worker, &mut thief, root) == expected));
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the child ended with status {status:#x}"
    );
}

#[test]
fn whoever_makes_one_is_killed() {
    let status = without_system_calls(|| {
        // SAFETY: asks for a number.
        unsafe { libc::syscall(libc::SYS_getppid) != 0 }
    });
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL,
        "the child ended with status {status:#x}"
    );
}
