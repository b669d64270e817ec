//! Joining the C library's robust list: beside its own mutexes, in any order, and killed at any
//! instruction.

mod host_support;

use host_support::{Child, Shared, TestPod, hold, more_time, run, sleep_for_ever, words_at};
use outlive::host::{Access, Linux, Obituary, Os, SideFileEntry};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

fn main() -> ExitCode {
    run(&[
        (
            "robust_mutexes_of_the_thread_still_work",
            robust_mutexes_of_the_thread_still_work,
        ),
        ("many_obituaries_in_any_order", many_obituaries_in_any_order),
        ("killed_at_every_instruction", killed_at_every_instruction),
        (
            "what_others_write_is_not_followed",
            what_others_write_is_not_followed,
        ),
        (
            "an_obituary_that_others_empty_leaves_no_entry",
            an_obituary_that_others_empty_leaves_no_entry,
        ),
        (
            "the_entry_of_another_thread_is_not_released",
            the_entry_of_another_thread_is_not_released,
        ),
        (
            "the_list_of_another_library_is_refused",
            the_list_of_another_library_is_refused,
        ),
    ])
}

/// A robust mutex of the C library in memory that is shared with children.
fn robust_mutex(shared: &Shared, index: usize) -> *mut libc::pthread_mutex_t {
    let mutex = shared.at(index).as_ptr().cast();
    // SAFETY: zeroed shared memory with space for a mutex, initialised once.
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
    // L(ock), U(nlock) a mutex; H(old), R(elease) an obituary: interleaved in all the ways that put
    // one kind next to the other in the list.
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

fn ptrace(request: libc::c_uint, pid: u32, address: usize) -> libc::c_long {
    // SAFETY: only requests that touch no memory of ours are made; the tracee is our child.
    unsafe { libc::ptrace(request, pid as libc::pid_t, address, 0usize) }
}

/// Everything that the kernel uses when a thread dies: the head of its list, its entries' links,
/// and the words.
#[derive(PartialEq, Eq)]
struct State {
    head: [usize; 3],
    /// The back link and the link of each entry that the kernel would visit.
    links: Vec<[usize; 2]>,
    words: Vec<u8>,
}

/// `N` words of the stopped child `pid`.
fn words_of<const N: usize>(pid: u32, at: usize) -> Option<[usize; N]> {
    let mut words = [0; N];
    let range = |iov_base| libc::iovec {
        iov_base,
        iov_len: size_of::<[usize; N]>(),
    };
    let (to, from) = (
        range(words.as_mut_ptr().cast()),
        range(at as *mut libc::c_void),
    );
    // SAFETY: the kernel checks the child's side; ours has that size.
    let read = unsafe { libc::process_vm_readv(pid as i32, &to, 1, &from, 1, 0) };
    (read == size_of::<[usize; N]>() as isize).then_some(words)
}

impl State {
    /// The state of the stopped child `pid`.
    fn of(pid: u32, side_file: &File, words_at: u64) -> Self {
        let mut at: *const usize = core::ptr::null();
        let mut length = 0usize;
        // SAFETY: the call writes the two words given.
        let got =
            unsafe { libc::syscall(libc::SYS_get_robust_list, pid, &raw mut at, &raw mut length) };
        assert_eq!((got, length), (0, size_of::<[usize; 3]>()));
        let head: [usize; 3] = words_of(pid, at as usize).expect("a head");
        let mut links = Vec::new();
        let mut link = head[0];
        while link != at as usize && links.len() < 8 {
            let entry: Option<[usize; 2]> = words_of(pid, link - 8);
            let entry = entry.expect("an entry that the kernel could not read either");
            links.push(entry);
            link = entry[1];
        }
        let mut words = vec![0; 4096];
        side_file.read_exact_at(&mut words, words_at).unwrap();
        Self { head, links, words }
    }
}

/// Runs `prepare`, then `body` traced, instruction by instruction, until the state of the list has
/// changed `changes` times, and kills it there. `false` if it ended before.
fn killed_after<T>(
    changes: u32,
    state: impl Fn(u32) -> State,
    prepare: impl FnOnce() -> T,
    body: impl FnOnce(T),
) -> (bool, u32) {
    let mut child = Child::run(|| {
        let prepared = prepare();
        ptrace(libc::PTRACE_TRACEME, 0, 0);
        // SAFETY: stops until the tracer goes on.
        unsafe { libc::raise(libc::SIGSTOP) };
        body(prepared);
    });
    let stopped = |child: &Child| {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child.pid as i32, &mut status, 0) };
        libc::WIFSTOPPED(status)
    };
    assert!(stopped(&child));
    let mut last = state(child.pid);
    let mut left = changes;
    while left > 0 {
        ptrace(libc::PTRACE_SINGLESTEP, child.pid, 0);
        if !stopped(&child) {
            child.forget();
            return (false, child.pid);
        }
        let now = state(child.pid);
        left -= u32::from(now != last);
        last = now;
    }
    child.kill();
    child.reap();
    (true, child.pid)
}

/// Another process writes all over the side file while this one holds obituaries and robust mutexes
/// of the C library. Releasing them in any order follows no written value, and where only the words
/// were spared the kernel marks all.
fn what_others_write_is_not_followed() {
    let pod = TestPod::of(16);
    let path = |pod: &TestPod| {
        let ours = |file: &SideFileEntry| file.pod == pod.id;
        Linux::side_files()
            .unwrap()
            .into_iter()
            .find(ours)
            .unwrap()
            .path
    };
    let scribble = |spare_words: bool| {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path(&pod))
            .unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let words = words_at(pod.slots) as usize;
        for (at, byte) in bytes.iter_mut().enumerate().skip(4096) {
            // Addresses near the stack, and of nothing.
            if !(spare_words && at >= words && at % 4096 >= 4096 - 24) {
                *byte = [0x7F, 0x41, 0xFF, 0x10][at % 4];
            }
        }
        file.write_all_at(&bytes[4096..], 4096).unwrap();
    };
    // For any order of releasing them, with mutexes taken before, between and after.
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        Child::run(|| {
            let os = pod.attach();
            let shared = Shared::new();
            let mutexes = [1, 2, 3].map(|index| robust_mutex(&shared, index * 64));
            for slot in 0..3 {
                let mutex = mutexes[slot as usize];
                // SAFETY: an initialised mutex, locked and unlocked by this thread.
                assert_eq!(unsafe { libc::pthread_mutex_lock(mutex) }, 0);
                hold(os, slot + 5);
            }
            scribble(true);
            for slot in order {
                os.release_obituary(slot + 5);
                let mutex = mutexes[(slot as usize + 1) % 3];
                // SAFETY: as above.
                assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex) }, 0);
            }
            for slot in 5..8 {
                assert_eq!(os.obituary(slot), Obituary::Vacant);
            }
            hold(os, 9);
            scribble(false);
            // The word is invalid: it is refused, and nothing is followed.
            os.release_obituary(9);
        })
        .succeed();
    }
    let os = pod.attach();
    let shared = Shared::new();
    let mut child = Child::run(|| {
        let os = pod.attach();
        (1..9).for_each(|slot| hold(os, slot));
        scribble(true);
        shared.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    shared.wait(0, 1);
    let pid = child.pid;
    child.kill();
    child.reap();
    for slot in 1..9 {
        assert!(
            matches!(os.obituary(slot), Obituary::Marked { .. }),
            "slot {slot} of {pid}"
        );
    }
}

/// Returns a function that writes the word of obituary 1, as another user of the pod can.
fn word_of_the_first(pod: &TestPod) -> impl Fn(u32) + Sync + use<> {
    let ours = |file: &SideFileEntry| file.pod == pod.id;
    let path = Linux::side_files().unwrap().into_iter().find(ours).unwrap();
    let file = File::options().write(true).open(path.path).unwrap();
    let at = words_at(pod.slots) + 4096 - 24 + 8;
    move |word| file.write_all_at(&word.to_ne_bytes(), at).unwrap()
}

/// Another user empties a word before its holder releases it. The holder's list must not lead into
/// memory that is unmapped afterwards.
fn an_obituary_that_others_empty_leaves_no_entry() {
    let pod = TestPod::new();
    Child::run(|| {
        // Before, so that nothing is mapped where the window was.
        let shared = Shared::new();
        let mutex = robust_mutex(&shared, 64);
        let os = pod.attach();
        hold(os, 1);
        word_of_the_first(&pod)(0);
        os.release_obituary(1);
        os.detach().unwrap();
        // SAFETY: an initialised mutex, locked and unlocked by this thread.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
            assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        }
    })
    .succeed();
}

/// Another user empties a word, so that a second thread takes it, and then gives it back to its
/// first holder. The first holder must not change the list of the second one.
fn the_entry_of_another_thread_is_not_released() {
    let pod = TestPod::new();
    Child::run(|| {
        let (os, shared) = (pod.attach(), Shared::new());
        let word = word_of_the_first(&pod);
        let first = host_support::tid();
        hold(os, 1);
        word(0);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                hold(os, 1);
                shared.at(0).store(host_support::tid(), SeqCst);
                shared.wait(1, 1);
            });
            let second = shared.wait(0, 1);
            word(first);
            os.release_obituary(1);
            word(second);
            shared.at(1).store(1, SeqCst);
            // The end of the thread itself, not only of its function.
            holder.join().unwrap();
        });
        let seen = os.obituary(1);
        assert!(matches!(seen, Obituary::Marked { .. }), "{seen:?}");
    })
    .succeed();
}

/// A kill between two instructions that do not change the state that the kernel uses equals the
/// kill before them. So there is one kill for each state that a thread passes through: this sweeps
/// every instruction at the cost of the relevant ones.
fn killed_at_every_instruction() {
    if Child::run(|| assert_eq!(ptrace(libc::PTRACE_TRACEME, 0, 0), 0)).reap() != 0 {
        println!("skipped: ptrace is forbidden here");
        return;
    }
    let pod = TestPod::new();
    let os = pod.attach();
    let ours = |file: &SideFileEntry| file.pod == pod.id;
    let path = Linux::side_files().unwrap().into_iter().find(ours).unwrap();
    let side_file = File::open(path.path).unwrap();
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
    let (mut vacant, mut marked) = (0, 0);
    for changes in 0.. {
        more_time();
        let state = |pid| State::of(pid, &side_file, words_at(pod.slots));
        let (killed, pid) = killed_after(changes, state, prepare, body);
        assert_eq!(os.obituary(1), Obituary::Marked { tid: pid });
        assert!(os.clear_obituary(1, Obituary::Marked { tid: pid }));
        match os.obituary(2) {
            Obituary::Vacant => vacant += 1,
            seen @ Obituary::Marked { tid } => {
                assert!(tid == 0 || tid == pid, "{seen:?} of {pid}");
                assert!(os.clear_obituary(2, seen));
                marked += 1;
            }
            held => panic!("{held:?}, not marked, after {changes} changes"),
        }
        if !killed {
            break;
        }
    }
    println!("killed in each state: vacant after {vacant}, marked after {marked}");
    // Pending, the word, a neighbour's link, the head's; and back again. (An entry's own links are
    // read once it is linked.)
    assert!(vacant >= 4 && marked >= 7);
}

/// musl has no list at first, and later one with another offset.
fn the_list_of_another_library_is_refused() {
    #[repr(C)]
    struct Head(*const Self, isize, usize);
    let pod = TestPod::new();
    for has_list in [false, true] {
        Child::run(|| {
            let mut head = Head(core::ptr::null(), -28, 0);
            head.0 = &raw const head;
            let list = if has_list { head.0 } else { core::ptr::null() };
            // SAFETY: an empty list, which this thread has until it ends; it exits in this block.
            unsafe {
                let set = libc::syscall(libc::SYS_set_robust_list, list, size_of::<Head>());
                assert_eq!(set, 0);
            }
            let attached = Linux::attach(pod.id, pod.slots, Access::default(), pod.file(), true);
            let refused = attached.map(drop).unwrap_err().to_string();
            assert!(refused.contains("only glibc is supported"), "{refused}");
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        })
        .succeed();
    }
    assert!(!Linux::has_side_file(pod.id).unwrap());
}
