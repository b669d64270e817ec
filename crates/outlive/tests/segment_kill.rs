//! Creators and publishers of roots are killed by SIGKILL or disturbed by signals, and the remains
//! are checked.
//!
//! A creation is killed at every entry into and return from a system call (under ptrace, where that
//! is allowed), and at random moments. Between two system calls it changes nothing but memory;
//! deaths at every access to that are swept in the crate's own tests.

use outlive::memory::{Memory, Offset, Ordering};
use outlive::segment::{
    AreaKind, AreaSize, CreateError, DestroyError, OpenError, Refusal, Segment, SegmentBuilder,
};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;

/// One test at a time: a child forked by another would inherit the descriptor, and with it the
/// lock, of a segment that this one is about to replace.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` in a forked child; the child ends with it.
///
/// A test program has several threads. The child uses only operations that the C library makes safe
/// after a fork, including memory allocation, and nothing that locks in Rust's library.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: see above; the child never returns from here.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain system calls. A child that hangs, or whose parent is gone, dies.
            unsafe {
                libc::alarm(60);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            work();
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => child,
    }
}

fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    status
}

fn kill(child: libc::pid_t) {
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait(child);
}

/// Exit code of a child that cannot be traced.
const UNTRACEABLE: i32 = 77;

/// Kills `work` at its `n`-th stop at a system call. `Some(true)` if it had ended before; `None` if
/// nothing can be traced here.
fn killed_at_stop(n: usize, work: &dyn Fn()) -> Option<bool> {
    let child = fork(|| {
        // SAFETY: plain system calls.
        unsafe {
            let none = std::ptr::null_mut::<libc::c_void>();
            if libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) != 0 {
                libc::_exit(UNTRACEABLE);
            }
            libc::raise(libc::SIGSTOP);
        }
        work();
    });
    let mut status = wait(child);
    for _ in 0..n {
        if !libc::WIFSTOPPED(status) {
            break;
        }
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the child is stopped and ours.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child, none, none) };
        status = wait(child);
        let expected = !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) == libc::SIGTRAP;
        assert!(expected, "stopped by signal {}", libc::WSTOPSIG(status));
    }
    if libc::WIFEXITED(status) {
        let code = libc::WEXITSTATUS(status);
        return (code != UNTRACEABLE).then(|| {
            assert_eq!(code, 0);
            true
        });
    }
    assert!(
        libc::WIFSTOPPED(status),
        "the child died by itself: {status:#x}"
    );
    kill(child);
    Some(false)
}

fn builder<'a>() -> SegmentBuilder<'a> {
    Segment::builder()
        .size(SIZE)
        .area(AreaKind::Payload, AreaSize::Rest)
}

/// The state in which a killed creator leaves its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Incomplete,
    Segment(uuid::Uuid),
}

/// Returns the remains in `directory`, which may have only the entry `path`.
fn left(directory: &Path, path: &Path) -> Left {
    let names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let left = match Segment::open(path) {
        Ok(segment) => {
            let mut rest = vec![1; SIZE as usize - 4096];
            segment.memory().copy_out(Offset::new(4096), &mut rest);
            let marked = segment
                .memory()
                .load::<u64>(Offset::new(SIZE - 8), Ordering::Relaxed);
            rest.truncate(rest.len() - 8);
            assert!(rest.iter().all(|&byte| byte == 0));
            assert!(marked == 0 || segment.uuid() == OLD);
            assert_eq!(segment.areas().len(), 2);
            let uuid = segment.uuid();
            // SAFETY: not used again.
            unsafe { segment.unmap() };
            Left::Segment(uuid)
        }
        Err(OpenError::NotFound { .. }) => Left::Nothing,
        Err(OpenError::Refused {
            refusal: Refusal::NeverCompleted(_),
            ..
        }) => Left::Incomplete,
        Err(other) => panic!("{other}"),
    };
    let expected: &[_] = if left == Left::Nothing {
        &[]
    } else {
        &[path.to_owned()]
    };
    assert_eq!(names, expected);
    left
}

const OLD: uuid::Uuid = uuid::Uuid::from_u128(1);
const NEW: uuid::Uuid = uuid::Uuid::from_u128(2);

/// One way to create a segment, with the possible remains.
struct Way {
    name: &'static str,
    /// Prepares the content that is there before.
    prepare: fn(&Path),
    create: fn(&Path) -> Result<Segment, CreateError>,
    may_be: &'static [Left],
}

fn none(_path: &Path) {}

fn old(path: &Path) {
    let segment = builder().uuid(OLD).create(path).unwrap();
    segment
        .memory()
        .store(Offset::new(SIZE - 8), 1u64, Ordering::Relaxed);
    // SAFETY: not used again.
    unsafe { segment.unmap() };
}

const WAYS: [Way; 4] = [
    Way {
        name: "a file that gets its name last",
        prepare: none,
        create: |path| builder().uuid(NEW).create(path),
        may_be: &[Left::Nothing, Left::Segment(NEW)],
    },
    Way {
        name: "the same, prefaulted",
        prepare: none,
        create: |path| builder().uuid(NEW).prefault(|_, _| {}).create(path),
        may_be: &[Left::Nothing, Left::Segment(NEW)],
    },
    Way {
        name: "a file that has its name from the start",
        prepare: none,
        create: |path| builder().uuid(NEW).named_from_the_start().create(path),
        may_be: &[Left::Nothing, Left::Incomplete, Left::Segment(NEW)],
    },
    Way {
        name: "in place over another",
        prepare: old,
        // With a system call between the first write and the last, at which it can be killed.
        create: |path| {
            let call = |_, _: &[_]| _ = rustix::process::getppid();
            let replacing = builder().uuid(NEW).replace(true);
            replacing.initialise(call).create(path)
        },
        may_be: &[Left::Segment(OLD), Left::Incomplete, Left::Segment(NEW)],
    },
];

impl Way {
    /// Prepares, lets `run` do the creation and kill it, and checks the remains. Returns them with
    /// the result of `run`.
    fn try_once<T>(&self, run: impl FnOnce(&dyn Fn()) -> T) -> (T, Left) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        (self.prepare)(&path);
        let result = run(&|| {
            // SAFETY: ends the child, as a failed creation should.
            let failed = |_| unsafe { libc::_exit(1) };
            (self.create)(&path).unwrap_or_else(failed);
        });
        let left = left(directory.path(), &path);
        assert!(self.may_be.contains(&left), "{}: {left:?}", self.name);
        if left == Left::Incomplete && self.may_be.contains(&Left::Segment(OLD)) {
            // A file that has all its bytes can be replaced,
            builder().uuid(NEW).replace(true).create(&path).unwrap();
        }
        if fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
            // an empty file may belong to any program,
            let refused = Segment::destroy(&path).unwrap_err();
            assert!(matches!(refused, DestroyError::NotASegment { .. }));
            fs::remove_file(&path).unwrap();
        } else if left != Left::Nothing {
            // and every other file can be removed.
            Segment::destroy(&path).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        (result, left)
    }
}

#[test]
fn a_creation_killed_at_any_system_call_leaves_nothing_unclear() {
    let _alone = alone();
    for way in &WAYS {
        let mut seen: Vec<Left> = Vec::new();
        let mut stops = 0;
        loop {
            let (ended, left) = way.try_once(|work| killed_at_stop(stops, work));
            let Some(ended) = ended else {
                println!("skipped: nothing can be traced here");
                return;
            };
            if !seen.contains(&left) {
                seen.push(left);
            }
            if ended {
                assert_eq!(left, Left::Segment(NEW));
                break;
            }
            stops += 1;
            assert!(stops < 2000);
        }
        println!("{}: {stops} stops, {seen:?}", way.name);
        assert!(stops > 20, "{stops}");
        assert_eq!(seen.len(), way.may_be.len(), "{}: {seen:?}", way.name);
    }
}

#[test]
fn a_creation_killed_at_random_moments_leaves_nothing_unclear() {
    let _alone = alone();
    for way in &WAYS {
        // The duration without a kill.
        let ((), left) = way.try_once(|work| {
            wait(fork(work));
        });
        assert_eq!(left, Left::Segment(NEW));
        let start = Instant::now();
        let ((), _) = way.try_once(|work| {
            wait(fork(work));
        });
        let whole = start.elapsed().min(Duration::from_millis(50));
        for step in 0..25u32 {
            way.try_once(|work| {
                let child = fork(work);
                let until = Instant::now() + whole * step / 20;
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                kill(child);
            });
        }
    }
}

/// Publishers in several processes, some of them killed at random, publish every name exactly once,
/// and no process waits for dead ones.
#[test]
fn killed_publishers_leave_a_sound_table() {
    let _alone = alone();
    const NAMES: u64 = 60;
    for round in 0..10u64 {
        let segment = builder().create("memfd:roots").unwrap();
        let payload = segment.area(AreaKind::Payload).unwrap().offset;
        let publish_all = |segment: Segment, publisher: u64| {
            for step in 0..NAMES {
                let name = format!("root {}", (step + publisher * 13) % NAMES);
                let place = payload + publisher * 8;
                match segment.roots().publish::<u64>(&name, place) {
                    Ok(_) | Err(outlive::segment::RootError::Exists { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        };
        let publishers: Vec<_> = (1..5)
            .map(|publisher| {
                fork(|| {
                    // The mapping is not inherited; the file is.
                    let file = segment.file().try_clone();
                    // SAFETY: ends the child.
                    let failed = || unsafe { libc::_exit(1) };
                    let Ok(own) = file
                        .map_err(drop)
                        .and_then(|file| Segment::from_file(file).map_err(drop))
                    else {
                        failed()
                    };
                    publish_all(own, publisher);
                })
            })
            .collect();
        for (index, &publisher) in publishers.iter().enumerate() {
            let until = Instant::now() + Duration::from_micros(150 * (round + index as u64));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            if index % 4 == 3 {
                assert_eq!(wait(publisher), 0);
            } else {
                kill(publisher);
            }
        }
        assert!(segment.roots().check().is_empty());
        publish_all(segment, 0);
        let roots = segment.roots().list().unwrap();
        assert_eq!(roots.len() as u64, NAMES);
        assert!(segment.roots().check().is_empty());
        // SAFETY: not used again.
        unsafe { segment.unmap() };
    }
}

/// A signal makes tmpfs undo the reservation of the interrupted call; a profiler sends one every
/// millisecond.
#[test]
fn a_creation_goes_forward_under_a_timer_s_signals() {
    let _alone = alone();
    let child = fork(|| {
        extern "C" fn ignore(_signal: i32) {}
        // SAFETY: system calls over locals; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            libc::sigaction(libc::SIGVTALRM, &action, std::ptr::null_mut());
            let interval = libc::timeval {
                tv_sec: 0,
                tv_usec: 1000,
            };
            let timer = libc::itimerval {
                it_interval: interval,
                it_value: interval,
            };
            // Of the time that the process uses: a slow machine gets as much done between two
            // signals.
            libc::setitimer(libc::ITIMER_VIRTUAL, &timer, std::ptr::null_mut());
            libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
            libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
        }
        let created = builder().size(48 << 20).create("memfd:signals");
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(created.is_err())) };
    });
    assert_eq!(wait(child), 0);
}
