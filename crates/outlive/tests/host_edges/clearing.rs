//! Obituaries of holders that are gone and were not marked by the kernel.

use super::host_support::{Child, TestPod, hold, more_time, sleep_for_ever, until, words_at};
use super::names;
use outlive::host::{Obituary, Os};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Puts a holder that is gone and was never marked into slot 1 of `file`.
fn forge_unmarked(file: &File, dead: u32, recorded: bool) {
    let holders = 4096 + 1024 * 64;
    let mut holder = [0; 16];
    if recorded {
        holder[..4].copy_from_slice(&dead.to_ne_bytes());
        holder[4..8].copy_from_slice(&dead.to_ne_bytes());
        holder[8..].copy_from_slice(&1u64.to_ne_bytes());
    }
    file.write_all_at(&holder, holders + 16).unwrap();
    let word = words_at(16) + 4096 - 24 + 8;
    file.write_all_at(&dead.to_ne_bytes(), word).unwrap();
}

pub fn a_clearer_killed_at_any_step_blocks_nothing() {
    if Child::run(|| assert_eq!(trace(libc::PTRACE_TRACEME, 0), 0)).reap() != 0 {
        return println!("skipped: ptrace is forbidden here");
    }
    let pod = TestPod::new();
    let os = pod.attach();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&names(&pod)[0])
        .unwrap();
    let dead = {
        let mut child = Child::run(|| {});
        child.reap();
        child.pid
    };
    let state = || {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    // Kills after each change of the file, and at the edges of each system call.
    for (request, by_change) in [
        (libc::PTRACE_SINGLESTEP, true),
        (libc::PTRACE_SYSCALL, false),
    ] {
        for recorded in [true, false] {
            let mut finished = false;
            let mut kills = 0;
            while !finished {
                more_time();
                forge_unmarked(&file, dead, recorded);
                let mut child = Child::run(|| {
                    let os = pod.attach();
                    trace(libc::PTRACE_TRACEME, 0);
                    // SAFETY: stops until the tracer goes on.
                    unsafe { libc::raise(libc::SIGSTOP) };
                    os.clear_if_gone(1);
                });
                let (mut left, mut last) = (kills + 1, state());
                loop {
                    let mut status = 0;
                    // SAFETY: our own child, which is traced.
                    unsafe { libc::waitpid(child.pid as i32, &mut status, 0) };
                    if !libc::WIFSTOPPED(status) {
                        child.forget();
                        finished = true;
                        break;
                    }
                    let now = if by_change { state() } else { Vec::new() };
                    left -= u32::from(!by_change || now != last);
                    last = now;
                    if left == 0 {
                        break;
                    }
                    trace(request, child.pid);
                }
                drop(child);
                match os.obituary(1) {
                    Obituary::Held { tid } => {
                        assert_eq!(tid, dead);
                        assert!(os.clear_if_gone(1), "blocked after {kills} steps");
                    }
                    marked @ Obituary::Marked { .. } => {
                        assert!(os.clear_obituary(1, marked), "blocked after {kills} steps");
                    }
                    Obituary::Vacant => {}
                }
                hold(os, 1);
                os.release_obituary(1);
                kills += 1;
            }
            println!("killed in {kills} places, recorded {recorded}");
            // The word; and the holder's record of itself, if it exists.
            assert!(kills >= if recorded { 3 } else { 2 });
        }
    }
    // A live holder is not cleared, whichever thread had its id before.
    hold(os, 1);
    Child::run(|| assert!(!pod.attach().clear_if_gone(1))).succeed();
    os.release_obituary(1);
}

/// A thread takes the word after a dead one, and records its identity while another process checks
/// whether it is gone: at every instruction between the load of the word and the question to the
/// kernel. It must not be judged by its own id and the start time of the dead thread.
pub fn a_new_holder_is_not_judged_by_what_stands_of_the_last() {
    if Child::run(|| assert_eq!(trace(libc::PTRACE_TRACEME, 0), 0)).reap() != 0 {
        return println!("skipped: ptrace is forbidden here");
    }
    let pod = TestPod::new();
    let os = pod.attach();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&names(&pod)[0])
        .unwrap();
    let mut new = Child::run(|| {
        hold(pod.attach(), 1);
        sleep_for_ever();
    });
    until(|| matches!(os.obituary(1), Obituary::Held { tid } if tid == new.pid));
    until(|| os.holder(1).is_some());
    let at = 4096 + 1024 * 64 + 16;
    let mut said = [0; 16];
    file.read_exact_at(&mut said, at).unwrap();
    let mut of_the_dead = said;
    of_the_dead[..4].fill(0);
    of_the_dead[8..].copy_from_slice(&1u64.to_ne_bytes());
    let look = || {
        file.write_all_at(&of_the_dead, at).unwrap();
        let child = Child::run(|| {
            let os = pod.attach();
            trace(libc::PTRACE_TRACEME, 0);
            // SAFETY: stops until the tracer goes on.
            unsafe { libc::raise(libc::SIGSTOP) };
            assert!(!os.clear_if_gone(1), "a live thread's obituary was cleared");
        });
        assert!(stops(child.pid));
        // SAFETY: an option of our own child, which is stopped. It makes stops identify themselves.
        let set = unsafe {
            let option = libc::PTRACE_O_TRACESYSGOOD as usize;
            libc::ptrace(libc::PTRACE_SETOPTIONS, child.pid as libc::pid_t, 0, option)
        };
        assert_eq!(set, 0);
        // It loads the word once it has the clearers' lock.
        loop {
            trace(libc::PTRACE_SYSCALL, child.pid);
            assert!(stops(child.pid), "it takes no lock");
            if is_lock(&info(child.pid)) {
                trace(libc::PTRACE_SYSCALL, child.pid);
                assert!(stops(child.pid));
                return child;
            }
        }
    };
    // The position of the next system call.
    let child = look();
    trace(libc::PTRACE_SYSCALL, child.pid);
    assert!(stops(child.pid));
    let end = info(child.pid).instruction_pointer;
    drop(child);
    for steps in 0.. {
        more_time();
        let child = look();
        let mut is_over = false;
        for _ in 0..steps {
            trace(libc::PTRACE_SINGLESTEP, child.pid);
            assert!(stops(child.pid));
            is_over = info(child.pid).instruction_pointer == end;
        }
        file.write_all_at(&said, at).unwrap();
        trace(libc::PTRACE_CONT, child.pid);
        child.succeed();
        assert_eq!(
            os.obituary(1),
            Obituary::Held { tid: new.pid },
            "after {steps} steps"
        );
        if is_over {
            println!("{steps} instructions");
            assert!(steps > 10);
            break;
        }
        assert!(steps < 100_000);
    }
    new.kill();
    new.reap();
}

/// Waits until the traced child stops; `false` if it has ended.
fn stops(pid: u32) -> bool {
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
    libc::WIFSTOPPED(status)
}

/// Returns the position of the stopped child.
fn info(pid: u32) -> libc::ptrace_syscall_info {
    // SAFETY: numbers, for which zeros are valid; the kernel writes at most that many bytes.
    unsafe {
        let mut info: libc::ptrace_syscall_info = core::mem::zeroed();
        let size = size_of_val(&info);
        let got = libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            pid as libc::pid_t,
            size,
            &raw mut info,
        );
        assert!(got > 0);
        info
    }
}

fn is_lock(info: &libc::ptrace_syscall_info) -> bool {
    // SAFETY: at an entry the kernel has written these fields.
    let (number, arguments) = unsafe { (info.u.entry.nr, info.u.entry.args) };
    info.op == libc::PTRACE_SYSCALL_INFO_ENTRY
        && number == libc::SYS_fcntl as u64
        && arguments[1] == libc::F_OFD_SETLK as u64
}

fn trace(request: libc::c_uint, pid: u32) -> libc::c_long {
    // SAFETY: only requests that touch no memory of ours are made; the tracee is our child.
    unsafe { libc::ptrace(request, pid as libc::pid_t, 0usize, 0usize) }
}
