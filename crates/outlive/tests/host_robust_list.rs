//! Joining the C library's robust list: beside its own mutexes, in any order, and killed at any instruction.

mod host_support;

use host_support::{Child, Shared, TestPod, hold, more_time, run};
use outlive::host::{Linux, Obituary, Os};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        (
            "robust_mutexes_of_the_thread_still_work",
            robust_mutexes_of_the_thread_still_work,
        ),
        ("many_obituaries_in_any_order", many_obituaries_in_any_order),
        ("killed_at_every_instruction", killed_at_every_instruction),
    ])
}

/// A robust mutex of the C library in memory that is shared with children.
fn robust_mutex(shared: &Shared, index: usize) -> *mut libc::pthread_mutex_t {
    let mutex = shared.at(index).as_ptr().cast();
    // SAFETY: zeroed shared memory with room for a mutex, initialised once.
    unsafe {
        let mut attributes = core::mem::MaybeUninit::uninit();
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
        let shared = libc::PTHREAD_PROCESS_SHARED;
        libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), shared);
        assert_eq!(libc::pthread_mutex_init(mutex, attributes.as_ptr()), 0);
    }
    mutex
}

fn robust_mutexes_of_the_thread_still_work() {
    // L(ock), U(nlock) a mutex; H(old), R(elease) an obituary: interleaved in all the ways that put one
    // kind next to the other in the list.
    for script in [
        "L1 H1 L2",
        "H1 L1 H2 L2 R1 U1",
        "L1 H1 L2 H2 U1 R1",
        "H1 H2 L1 L2 U1 R2",
        "L1 L2 H1 U2 H2 R1",
    ] {
        let pod = TestPod::new();
        let os = pod.attach();
        let shared = Shared::new();
        let mutexes = [1, 2].map(|index| robust_mutex(&shared, index * 64));
        let child = Child::run(|| {
            let os = pod.attach();
            for step in script.split(' ') {
                let which = u32::from(step.as_bytes()[1] - b'0');
                let mutex = mutexes[which as usize - 1];
                match step.as_bytes()[0] {
                    // SAFETY: an initialised mutex, locked and unlocked by this thread.
                    b'L' => assert_eq!(unsafe { libc::pthread_mutex_lock(mutex) }, 0),
                    // SAFETY: as above.
                    b'U' => assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex) }, 0),
                    b'H' => hold(os, which),
                    _ => os.release_obituary(which),
                }
            }
        });
        let pid = child.pid;
        child.succeed();
        for which in [1, 2] {
            let left = |take: &str, give: &str| {
                script.contains(&format!("{take}{which}"))
                    && !script.contains(&format!("{give}{which}"))
            };
            let expected = if left("H", "R") {
                Obituary::Marked { tid: pid }
            } else {
                Obituary::Vacant
            };
            assert_eq!(os.obituary(which), expected, "{script}");
            let expected = if left("L", "U") { libc::EOWNERDEAD } else { 0 };
            let mutex = mutexes[which as usize - 1];
            // SAFETY: an initialised mutex; made consistent and unlocked again.
            unsafe {
                assert_eq!(libc::pthread_mutex_lock(mutex), expected, "{script}");
                libc::pthread_mutex_consistent(mutex);
                assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
            }
        }
    }
}

fn many_obituaries_in_any_order() {
    let pod = TestPod::of(64);
    let os = pod.attach();
    let child = Child::run(|| {
        let os = pod.attach();
        let mut random = 12345u32;
        let mut held = [false; 64];
        for _ in 0..5000 {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            let slot = random >> 26;
            if held[slot as usize] {
                os.release_obituary(slot);
            } else {
                hold(os, slot);
            }
            held[slot as usize] ^= true;
        }
        // The even ones are to be held at the end.
        for slot in 0..64 {
            match (held[slot as usize], slot % 2 == 0) {
                (false, true) => hold(os, slot),
                (true, false) => os.release_obituary(slot),
                _ => {}
            }
        }
    });
    let pid = child.pid;
    child.succeed();
    for slot in 0..64 {
        let marked = Obituary::Marked { tid: pid };
        let expected = if slot % 2 == 0 {
            marked
        } else {
            Obituary::Vacant
        };
        assert_eq!(os.obituary(slot), expected);
    }
}

/// How far a traced child came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// Killed where it was asked for.
    Here,
    /// As before, and the next instruction is a system call, so further steps belong to the next stretch.
    EndOfStretch,
    /// It ended by itself before.
    Finished,
}

fn ptrace(request: libc::c_uint, pid: u32, address: usize) -> libc::c_long {
    // SAFETY: only requests that touch no memory of ours are made; the tracee is our child.
    unsafe { libc::ptrace(request, pid as libc::pid_t, address, 0usize) }
}

/// Runs `prepare`, then `body` traced, lets it make `stops` system call stops (two for each call: before and after it),
/// then `steps` instructions, and kills it there.
#[cfg(target_arch = "x86_64")]
fn killed_after<T>(
    stops: u32,
    steps: u32,
    prepare: impl FnOnce() -> T,
    body: impl FnOnce(T),
) -> (Reached, u32) {
    let mut child = Child::run(|| {
        let prepared = prepare();
        ptrace(libc::PTRACE_TRACEME, 0, 0);
        // SAFETY: stops until the tracer goes on.
        unsafe { libc::raise(libc::SIGSTOP) };
        body(prepared);
    });
    let wait = |child: &Child| {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child.pid as i32, &mut status, 0) };
        libc::WIFSTOPPED(status)
    };
    assert!(wait(&child));
    for at in 0..stops + steps {
        let request = if at < stops {
            libc::PTRACE_SYSCALL
        } else {
            libc::PTRACE_SINGLESTEP
        };
        ptrace(request, child.pid, 0);
        if !wait(&child) {
            child.forget();
            return (Reached::Finished, child.pid);
        }
    }
    // SAFETY: plain data, filled by the call.
    let registers = unsafe {
        let mut registers: libc::user_regs_struct = core::mem::zeroed();
        let pid = child.pid as libc::pid_t;
        libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers);
        registers
    };
    let instruction = ptrace(libc::PTRACE_PEEKTEXT, child.pid, registers.rip as usize);
    child.kill();
    child.reap();
    let at_call = instruction as u16 == u16::from_le_bytes([0x0F, 0x05]);
    // Before a call (an odd stop) there is nothing to step.
    let end = at_call || stops % 2 == 1;
    let reached = if end {
        Reached::EndOfStretch
    } else {
        Reached::Here
    };
    (reached, child.pid)
}

#[cfg(not(target_arch = "x86_64"))]
fn killed_at_every_instruction() {
    println!("skipped: the sweep tells system calls by x86-64's instruction");
}

#[cfg(target_arch = "x86_64")]
fn killed_at_every_instruction() {
    if Child::run(|| assert_eq!(ptrace(libc::PTRACE_TRACEME, 0, 0), 0)).reap() != 0 {
        println!("skipped: ptrace is forbidden here");
        return;
    }
    let pod = TestPod::new();
    let os = pod.attach();
    // Slot 1 stays held throughout, so that the swept entry has a neighbour in the list.
    let prepare = || {
        let os = pod.attach();
        hold(os, 1);
        os
    };
    let body = |os: &Linux| {
        os.hold_obituary(2).unwrap().unwrap();
        os.release_obituary(2);
    };
    let (mut points, mut vacant, mut marked) = (0, 0, 0);
    'sweep: for stops in 0.. {
        for steps in 0.. {
            more_time();
            let (reached, pid) = killed_after(stops, steps, prepare, body);
            points += 1;
            assert_eq!(os.obituary(1), Obituary::Marked { tid: pid });
            assert!(os.clear_obituary(1, Obituary::Marked { tid: pid }));
            match os.obituary(2) {
                Obituary::Vacant => vacant += 1,
                seen @ Obituary::Marked { tid } => {
                    assert!(tid == 0 || tid == pid, "{seen:?} of {pid}");
                    assert!(os.clear_obituary(2, seen));
                    marked += 1;
                }
                held => panic!("{held:?}, not marked, after {stops} stops and {steps} steps"),
            }
            match reached {
                Reached::Here => {}
                Reached::EndOfStretch => break,
                Reached::Finished => break 'sweep,
            }
        }
    }
    println!("killed at {points} points: vacant after {vacant}, marked after {marked}");
    assert!(vacant > 100 && marked > 100);
}
