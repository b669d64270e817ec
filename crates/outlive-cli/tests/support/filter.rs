//! Commands under a seccomp filter, as in a container.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A filtered call: its name, its number, and the argument and value that are filtered, unless the
/// whole call is.
pub type Call = (&'static str, libc::c_long, Option<(usize, u32)>);

/// Makes `command` run under a filter that answers `calls` with `errno` instead of executing them:
/// zero pretends that they succeeded.
pub fn answer(command: &mut Command, calls: &[Call], errno: i32) {
    let jump = |k: u32, jt, jf| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let load = |k: u32| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let end = |k: u32| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let answered = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = Vec::new();
    for (_, number, argument) in calls {
        // The number of the call is at 0, the low half of argument N at 16 + 8 * N (little-endian).
        match *argument {
            None => filter.extend([load(0), jump(*number as u32, 0, 1)]),
            Some((at, value)) => filter.extend([
                load(0),
                jump(*number as u32, 0, 3),
                load(16 + 8 * at as u32),
                jump(value, 0, 1),
            ]),
        }
        filter.push(end(answered));
    }
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: system calls only; the program lives until they return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    0,
                    &raw const program,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: `install` makes system calls only.
    unsafe { command.pre_exec(install) };
}
