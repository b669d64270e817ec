//! The reports that Linux gives of a death, and their limits: every fact that the code relies on,
//! with real processes.

mod host_support;

use host_support::{
    Child, Shared, TestPod, hold, nap, run, sleep_for_ever, start_time, tid, until,
};
use outlive::host::{Capabilities, Linux, Liveness, Obituary, Os, ProcessIdentity, ThreadIdentity};
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(100);

fn main() -> ExitCode {
    run(&[
        // First, because children inherit what a process has learnt about futex_waitv.
        (
            "works_where_calls_are_filtered",
            works_where_calls_are_filtered,
        ),
        ("marked_on_sigkill", marked_on_sigkill),
        ("marked_when_a_thread_ends", marked_when_a_thread_ends),
        ("marked_on_abort_and_fault", marked_on_abort_and_fault),
        (
            "a_marked_thread_writes_no_more",
            a_marked_thread_writes_no_more,
        ),
        ("marked_before_the_teardown", marked_before_the_teardown),
        (
            "a_forked_child_inherits_nothing",
            a_forked_child_inherits_nothing,
        ),
        (
            "an_exec_by_the_leader_is_marked",
            an_exec_by_the_leader_is_marked,
        ),
        (
            "an_exec_by_another_thread_is_not",
            an_exec_by_another_thread_is_not,
        ),
        (
            "an_obituary_before_2048_others_is_missing",
            an_obituary_before_2048_others_is_missing,
        ),
        ("the_kernel_wakes_one_watcher", the_kernel_wakes_one_watcher),
        ("every_watcher_is_woken", every_watcher_is_woken),
        (
            "a_process_is_gone_when_all_threads_are",
            a_process_is_gone_when_all_threads_are,
        ),
        ("a_zombie_is_gone", a_zombie_is_gone),
        (
            "only_what_was_seen_is_cleared",
            only_what_was_seen_is_cleared,
        ),
        (
            "a_bell_rings_across_processes",
            a_bell_rings_across_processes,
        ),
    ])
}

/// A child that holds obituary `slot` in its leader thread and sleeps.
fn holder(pod: &TestPod, slot: u32) -> Child {
    let ready = Shared::new();
    let child = Child::run(|| {
        hold(pod.attach(), slot);
        ready.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    ready.wait(0, 1);
    child
}

fn no_core() {
    rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
    .unwrap();
}

/// Makes `calls` fail with EPERM, as the filters of containers do.
fn filter(calls: &[libc::c_long]) {
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump_if = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = vec![step(load_number, 0, 0)];
    for (at, &call) in calls.iter().enumerate() {
        program.push(step(jump_if, (calls.len() - at) as u8, call as u32));
    }
    program.push(step(answer, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(
        answer,
        0,
        libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    ));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a valid program, which the kernel copies; it holds for this child only.
    let answer = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

fn works_where_calls_are_filtered() {
    const FUTEX_WAITV: libc::c_long = 449;
    let pod = TestPod::new();
    let victim = holder(&pod, 1);
    let bell = holder(&pod, 2);
    Child::run(|| {
        filter(&[
            FUTEX_WAITV,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_send_signal,
        ]);
        let os = pod.attach();
        let missing = Capabilities::probe();
        let missing: Vec<_> = missing.missing().map(|one| one.name).collect();
        for name in ["futex_waitv", "pidfd_open", "pidfd_send_signal"] {
            assert!(missing.contains(&name), "{missing:?}");
        }
        let seen = os.bells().read(3);
        os.wait_for_news(&[(1, victim.pid)], 3, seen, Duration::from_millis(5));
        let handle = os.open_process(victim.identity()).unwrap().unwrap();
        assert!(!handle.is_gone());
        assert!(handle.send_kill());
        os.wait_for_news(&[(2, bell.pid), (1, victim.pid)], 3, seen, LONG);
        until(|| os.obituary(1) == Obituary::Marked { tid: victim.pid });
        assert!(handle.wait_gone(LONG));
        os.bells().ring(3);
        os.wait_for_news(&[(2, bell.pid)], 3, seen, LONG);
    })
    .succeed();
}

fn marked_on_sigkill() {
    let pod = TestPod::new();
    let os = pod.attach();
    let mut child = holder(&pod, 1);
    let thread = child.thread();
    let held = Obituary::Held { tid: child.pid };
    assert_eq!(os.obituary(1), held);
    assert_eq!(os.hold_obituary(1).unwrap(), Err(held));
    assert_eq!(os.thread_liveness(thread), Liveness::Exists);
    child.kill();
    os.wait_for_news(&[(1, child.pid)], 0, os.bells().read(0), LONG);
    until(|| os.obituary(1) != held);
    let marked = Obituary::Marked { tid: child.pid };
    assert_eq!(os.obituary(1), marked);
    child.reap();
    assert_eq!(os.thread_liveness(thread), Liveness::Gone);
    assert_eq!(os.hold_obituary(1).unwrap(), Err(marked));
    assert!(os.clear_obituary(1, marked));
    assert_eq!(os.obituary(1), Obituary::Vacant);
    hold(os, 1);
    assert_eq!(os.obituary(1), Obituary::Held { tid: tid() });
    os.release_obituary(1);
    assert_eq!(os.obituary(1), Obituary::Vacant);
}

extern "C" fn hold_and_pthread_exit(pod: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the test passes its pod, which outlives the thread.
    let pod = unsafe { &*pod.cast::<TestPod>() };
    hold(pod.attach(), 2);
    // SAFETY: no frame of this thread has anything to drop.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    core::ptr::null_mut()
}

extern "C" fn hold_and_return(pod: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: as above.
    let pod = unsafe { &*pod.cast::<TestPod>() };
    hold(pod.attach(), 3);
    core::ptr::null_mut()
}

fn marked_when_a_thread_ends() {
    let pod = TestPod::new();
    let os = pod.attach();
    let ready = Shared::new();
    let _child = Child::run(|| {
        let os = pod.attach();
        std::thread::spawn(move || hold(os, 1)).join().unwrap();
        let argument = core::ptr::from_ref(&pod).cast_mut().cast();
        // A start routine's return calls pthread_exit, too; the other thread ends without it.
        for start in [hold_and_pthread_exit, hold_and_return] {
            let mut thread = core::mem::MaybeUninit::uninit();
            // SAFETY: valid arguments; the pod lives as long as the child.
            let made = unsafe {
                libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), start, argument)
            };
            assert_eq!(made, 0);
        }
        ready.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    ready.wait(0, 1);
    // Its process lives on.
    for slot in 1..4 {
        until(|| matches!(os.obituary(slot), Obituary::Marked { tid } if tid != 0));
    }
}

fn marked_on_abort_and_fault() {
    let pod = TestPod::new();
    let os = pod.attach();
    let deaths: [(u32, fn()); 3] = [
        (1, || std::process::abort()),
        // SAFETY: the kernel refuses the store, which is the point.
        (2, || unsafe { (8 as *mut u32).write_volatile(1) }),
        (3, || {
            // A panic in a destructor while unwinding aborts.
            struct Worse;
            impl Drop for Worse {
                fn drop(&mut self) {
                    panic!("again");
                }
            }
            std::panic::set_hook(Box::new(|_| {}));
            let _worse = Worse;
            panic!("once");
        }),
    ];
    for (slot, death) in deaths {
        let mut child = Child::run(|| {
            no_core();
            // SAFETY: sends standard error, where the runtime explains aborts, to nowhere.
            unsafe { libc::close(2) };
            hold(pod.attach(), slot);
            death();
        });
        let status = child.reap();
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(os.obituary(slot), Obituary::Marked { tid: child.pid });
    }
}

fn a_marked_thread_writes_no_more() {
    for _ in 0..20 {
        let pod = TestPod::new();
        let os = pod.attach();
        let shared = Shared::new();
        let child = Child::run(|| {
            let count = |slot: usize| {
                hold(pod.attach(), slot as u32);
                loop {
                    shared.at(slot * 16).fetch_add(1, SeqCst);
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| count(1));
                count(2);
            });
        });
        let counts = |slot| shared.at(slot * 16).load(SeqCst);
        until(|| counts(1) > 0 && counts(2) > 0);
        child.kill();
        let mut after = [0; 3];
        for slot in [1, 2] {
            while !matches!(os.obituary(slot as u32), Obituary::Marked { .. }) {}
            after[slot] = counts(slot);
        }
        for _ in 0..10 {
            nap();
            assert_eq!([counts(1), counts(2)], after[1..]);
        }
    }
}

fn marked_before_the_teardown() {
    let mut seen_before = 0;
    for _ in 0..10 {
        let pod = TestPod::new();
        let os = pod.attach();
        let ready = Shared::new();
        let child = Child::run(|| {
            let memory = std::hint::black_box(vec![1u8; 128 << 20]);
            hold(pod.attach(), 1);
            ready.at(0).store(1, SeqCst);
            std::hint::black_box(&memory);
            sleep_for_ever();
        });
        ready.wait(0, 1);
        let handle = os.open_process(child.identity()).unwrap().unwrap();
        assert!(handle.send_kill());
        while !matches!(os.obituary(1), Obituary::Marked { .. }) {
            assert!(!handle.is_gone() || matches!(os.obituary(1), Obituary::Marked { .. }));
        }
        seen_before += u32::from(!handle.is_gone());
        assert!(handle.wait_gone(LONG));
    }
    assert!(
        seen_before > 0,
        "no mark was ever seen before the end of the process"
    );
}

fn a_forked_child_inherits_nothing() {
    let pod = TestPod::new();
    let os = pod.attach();
    hold(os, 1);
    let me = tid();
    let mut toucher = Child::run(|| {
        no_core();
        os.clear_obituary(1, Obituary::Held { tid: me });
    });
    let status = toucher.reap();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
    assert_eq!(os.obituary(1), Obituary::Held { tid: me });
    // It may attach again and sees the word, and its own death marks only its own obituary.
    let child = Child::run(|| {
        let os = pod.attach();
        assert_eq!(os.obituary(1), Obituary::Held { tid: me });
        hold(os, 2);
    });
    let pid = child.pid;
    child.succeed();
    assert_eq!(os.obituary(1), Obituary::Held { tid: me });
    assert_eq!(os.obituary(2), Obituary::Marked { tid: pid });
    os.release_obituary(1);
}

fn exec_sleep() {
    let error =
        std::os::unix::process::CommandExt::exec(std::process::Command::new("sleep").arg("100"));
    panic!("{error}");
}

fn an_exec_by_the_leader_is_marked() {
    let pod = TestPod::new();
    let os = pod.attach();
    let child = Child::run(|| {
        hold(pod.attach(), 1);
        exec_sleep();
    });
    until(|| os.obituary(1) == Obituary::Marked { tid: child.pid });
}

fn an_exec_by_another_thread_is_not() {
    let pod = TestPod::new();
    let os = pod.attach();
    let shared = Shared::new();
    let child = Child::run(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hold(pod.attach(), 1);
                shared.at(0).store(tid(), SeqCst);
                shared.wait(1, 1);
                exec_sleep();
            });
        });
    });
    let tid = shared.wait(0, 1);
    let thread = ThreadIdentity {
        process: child.identity(),
        tid,
        start_time: start_time(child.pid, tid),
    };
    assert_eq!(os.thread_liveness(thread), Liveness::Exists);
    shared.at(1).store(1, SeqCst);
    let name = format!("/proc/{}/comm", child.pid);
    until(|| std::fs::read_to_string(&name).unwrap() == "sleep\n");
    let held = Obituary::Held { tid };
    assert_eq!(os.obituary(1), held, "never marked");
    assert_eq!(os.thread_liveness(thread), Liveness::Gone);
    assert!(os.clear_obituary(1, held));
    assert_eq!(os.obituary(1), Obituary::Vacant);
    // To its pidfd, the process is the same, though.
    assert!(os.open_process(child.identity()).unwrap().is_some());
}

fn an_obituary_before_2048_others_is_missing() {
    let pod = TestPod::of(2200);
    let os = pod.attach();
    let ready = Shared::new();
    let mut child = Child::run(|| {
        let os = pod.attach();
        (0..2100).for_each(|slot| hold(os, slot));
        ready.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    ready.wait(0, 1);
    let thread = child.thread();
    child.kill();
    child.reap();
    assert_eq!(os.obituary(2099), Obituary::Marked { tid: child.pid });
    assert_eq!(os.obituary(0), Obituary::Held { tid: child.pid });
    assert_eq!(os.thread_liveness(thread), Liveness::Gone);
}

/// The word of an obituary, found without the library's help.
fn raw_word(slot: u32) -> *mut u32 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .rfind(|line| line.contains("/dev/shm/outlive."));
    let base = line.unwrap().split('-').next().unwrap();
    let base = usize::from_str_radix(base, 16).unwrap();
    let pages = host_support::words_at(16) as usize + slot as usize / 3 * 4096;
    (base + pages + 4096 - 24 + slot as usize % 3 * 8) as *mut u32
}

fn the_kernel_wakes_one_watcher() {
    let pod = TestPod::new();
    let os = pod.attach();
    let shared = Shared::new();
    let mut victim = holder(&pod, 1);
    let watchers: Vec<_> = (0..3)
        .map(|_| {
            Child::run(|| {
                pod.attach();
                let word = raw_word(1);
                // SAFETY: a word of the mapping just made, accessed atomically.
                let atomic = unsafe { core::sync::atomic::AtomicU32::from_ptr(word) };
                atomic.fetch_or(libc::FUTEX_WAITERS, SeqCst);
                let value = victim.pid | libc::FUTEX_WAITERS;
                shared.at(0).fetch_add(1, SeqCst);
                // SAFETY: as above; no timeout.
                let answer = unsafe { libc::syscall(libc::SYS_futex, word, 0, value, 0) };
                assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
                shared.at(1).fetch_add(1, SeqCst);
            })
        })
        .collect();
    shared.wait(0, 3);
    let asleep = |child: &Child| {
        let line = std::fs::read_to_string(format!("/proc/{}/syscall", child.pid));
        line.is_ok_and(|line| line.starts_with(&format!("{} ", libc::SYS_futex)))
    };
    until(|| watchers.iter().all(asleep));
    victim.kill();
    victim.reap();
    shared.wait(1, 1);
    (0..200).for_each(|_| nap());
    assert_eq!(
        shared.at(1).load(SeqCst),
        1,
        "the kernel woke more than one"
    );
    os.wake_watchers(1);
    watchers.into_iter().for_each(Child::succeed);
}

fn every_watcher_is_woken() {
    for _ in 0..20 {
        let pod = TestPod::new();
        let os = pod.attach();
        let ready = Shared::new();
        let victim = holder(&pod, 1);
        let other = holder(&pod, 2);
        let watchers: Vec<_> = (0..3)
            .map(|_| {
                Child::run(|| {
                    let os = pod.attach();
                    let seen = os.bells().read(7);
                    ready.at(0).fetch_add(1, SeqCst);
                    let held = [(2, other.pid), (1, victim.pid)];
                    let mut waits = 0;
                    while !matches!(os.obituary(1), Obituary::Marked { .. }) {
                        os.wait_for_news(&held, 7, seen, LONG);
                        waits += 1;
                    }
                    assert!(waits <= 2, "it did not sleep, or was woken for nothing");
                })
            })
            .collect();
        ready.wait(0, 3);
        victim.kill();
        watchers.into_iter().for_each(Child::succeed);
        assert_eq!(os.obituary(2), Obituary::Held { tid: other.pid });
    }
}

fn a_process_is_gone_when_all_threads_are() {
    let pod = TestPod::new();
    let os = pod.attach();
    let shared = Shared::new();
    let child = Child::run(|| {
        std::thread::spawn(move || {
            shared.at(0).store(1, SeqCst);
            sleep_for_ever();
        });
        hold(pod.attach(), 1);
        // SAFETY: ends the leader thread only, which has nothing left to drop.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    });
    let thread = child.thread();
    let handle = os.open_process(child.identity()).unwrap().unwrap();
    until(|| os.obituary(1) == Obituary::Marked { tid: child.pid });
    until(|| os.thread_liveness(thread) == Liveness::Gone);
    assert!(!handle.is_gone(), "another thread lives");
    assert!(!handle.wait_gone(Duration::from_millis(20)));
    assert!(os.open_process(child.identity()).unwrap().is_some());
    assert!(handle.send_kill());
    assert!(handle.wait_gone(LONG));
}

fn a_zombie_is_gone() {
    let pod = TestPod::new();
    let os = pod.attach();
    let child = holder(&pod, 1);
    let thread = child.thread();
    let wrong = ProcessIdentity {
        start_time: thread.process.start_time + 1,
        ..thread.process
    };
    assert!(os.open_process(wrong).unwrap().is_none(), "a recycled pid");
    child.kill();
    child.wait_zombie();
    assert_eq!(os.thread_liveness(thread), Liveness::Gone);
    assert!(os.open_process(thread.process).unwrap().is_none());
}

fn only_what_was_seen_is_cleared() {
    let pod = TestPod::new();
    let os = pod.attach();
    let mut child = holder(&pod, 1);
    let marked = Obituary::Marked { tid: child.pid };
    assert!(!os.clear_obituary(1, marked), "it is still held");
    assert!(!os.clear_obituary(1, Obituary::Held { tid: tid() }));
    assert!(!os.clear_obituary(1, Obituary::Vacant));
    child.kill();
    child.reap();
    assert!(!os.clear_obituary(1, Obituary::Held { tid: child.pid }));
    assert!(!os.clear_obituary(1, Obituary::Marked { tid: child.pid + 1 }));
    assert!(os.clear_obituary(1, marked));
    assert!(!os.clear_obituary(1, marked));
}

fn a_bell_rings_across_processes() {
    const ROUNDS: u32 = 2000;
    let pod = TestPod::new();
    let os = pod.attach();
    let turn = Shared::new();
    let play = |os: &Linux, mine: u32| {
        for round in 0..ROUNDS {
            loop {
                let seen = os.bells().read(9);
                if turn.at(0).load(SeqCst) == 2 * round + mine {
                    break;
                }
                // A lost wake-up would cost all this time, and exceed the harness's limit.
                if mine == 0 {
                    os.bells().wait(9, seen, LONG);
                } else {
                    os.wait_for_news(&[], 9, seen, LONG);
                }
            }
            turn.at(0).fetch_add(1, SeqCst);
            os.bells().ring(9);
        }
    };
    let child = Child::run(|| play(pod.attach(), 1));
    play(os, 0);
    child.succeed();
    assert_eq!(turn.at(0).load(SeqCst), 2 * ROUNDS);
}
