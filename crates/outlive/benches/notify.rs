//! From SIGKILL to a blocked member of the pod being told, everything included, beside what the kernel's
//! bare means take: a robust mutex's EOWNERDEAD, a pidfd, and a futex wake. All alternate in one run.
//!
//! `cargo bench -p outlive --bench notify [-- ROUNDS]`

use outlive::membership::{EventKind, News, ProcessOptions, Settings};
use outlive::pod::{Pod, PodOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// What the victim had touched, and how many rounds of the whole for each.
const SIZES: [(usize, u32); 3] = [(0, 1), (64 * MIB, 1), (1024 * MIB, 4)];

fn main() {
    if let Ok(role) = std::env::var("NOTIFY_ROLE") {
        return victim(&role);
    }
    let rounds = std::env::args()
        .filter_map(|word| word.parse::<u32>().ok())
        .next()
        .unwrap_or(40);
    let path = format!("/dev/shm/outlive-notify-{}", std::process::id());
    let settings = Settings {
        uid: rustix::process::geteuid().as_raw(),
        ..Settings::default()
    };
    let options = PodOptions::new().size(8 << 20).ids(64).settings(settings);
    let pod = Pod::create(&path, options).expect("a pod");
    let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
    let mutexes = SharedMutex::create(&format!("{path}-mutex"));

    println!(
        "median (quartiles) in us, {rounds} rounds, from SIGKILL to the blocked watcher running"
    );
    for (touched, fewer) in SIZES {
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..(rounds / fewer).max(5) {
            let mut events = process.events();
            times[0].push(timed(&path, "member", touched, || {
                loop {
                    if let Some(News::Event(event)) = events.wait_for(Duration::from_secs(60))
                        && event.kind == EventKind::ThreadDied
                    {
                        break;
                    }
                }
            }));
            times[1].push(timed(&path, "mutex", touched, || mutexes.lock_dead()));
            times[2].push(timed(&path, "idle", touched, || ()));
            times[3].push(wake());
        }
        let [ours, mutex, pidfd, wake] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
            (at(0.5), at(0.25), at(0.75))
        });
        let show =
            |(median, low, high): (f64, f64, f64)| format!("{median:.0} ({low:.0}..{high:.0})");
        println!(
            "victim touched {:4} MiB: told {}, EOWNERDEAD {}, pidfd {}, futex wake {}; told / (EOWNERDEAD + 2 wakes) = {:.2}",
            touched / MIB,
            show(ours),
            show(mutex),
            show(pidfd),
            show(wake),
            ours.0 / (mutex.0 + 2.0 * wake.0)
        );
    }
    process.leave().expect("nobody is left");
    drop(process);
    Pod::destroy(&path).expect("destroying");
    std::fs::remove_file(format!("{path}-mutex")).expect("removing");
}

/// Kills a victim that is ready, from another thread, and says how long `told` took from then. For the
/// idle victim, `told` is the pidfd.
fn timed(path: &str, role: &str, touched: usize, told: impl FnOnce()) -> f64 {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .env("NOTIFY_ROLE", role)
        .env("NOTIFY_POD", path)
        .env("NOTIFY_TOUCH", touched.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a victim");
    let mut ready = [0];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut ready).expect("the victim is ready");
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let pidfd = pidfd.expect("a pidfd");
    let start = Instant::now();
    let killed = AtomicU64::new(0);
    let mut end = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The watcher blocks first.
            std::thread::sleep(Duration::from_millis(3));
            killed.store(start.elapsed().as_nanos() as u64, Ordering::SeqCst);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killing");
        });
        if role == "idle" {
            let mut fds = [libc::pollfd {
                fd: pidfd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            // SAFETY: one valid pollfd.
            unsafe { libc::poll(fds.as_mut_ptr(), 1, 60_000) };
        } else {
            told();
        }
        end = start.elapsed().as_nanos() as u64;
    });
    child.wait().expect("reaping");
    settle(&mut child);
    (end - killed.load(Ordering::SeqCst)) as f64 / 1000.0
}

/// Lets what follows a death (its process, its host, its recovery) be over before the next.
fn settle(_: &mut Child) {
    std::thread::sleep(Duration::from_millis(30));
}

/// How long a blocked thread takes to run after a futex wake.
fn wake() -> f64 {
    let word = AtomicU32::new(0);
    let start = Instant::now();
    let rung = AtomicU64::new(0);
    let mut end = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(3));
            rung.store(start.elapsed().as_nanos() as u64, Ordering::SeqCst);
            word.store(1, Ordering::SeqCst);
            // SAFETY: a valid futex word.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        });
        while word.load(Ordering::SeqCst) == 0 {
            let timeout = core::ptr::null::<libc::timespec>();
            // SAFETY: a valid futex word; no timeout.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, timeout) };
        }
        end = start.elapsed().as_nanos() as u64;
    });
    (end - rung.load(Ordering::SeqCst)) as f64 / 1000.0
}

/// What the victim does before it is killed.
fn victim(role: &str) {
    let path = std::env::var("NOTIFY_POD").expect("a pod");
    let touched: usize = std::env::var("NOTIFY_TOUCH")
        .ok()
        .and_then(|bytes| bytes.parse().ok())
        .expect("a size");
    let mut memory = vec![0u8; touched];
    for byte in memory.iter_mut().step_by(4096) {
        *byte = 1;
    }
    std::hint::black_box(&memory);
    let wait = || -> ! {
        std::io::stdout().write_all(b"r").expect("a pipe");
        std::io::stdout().flush().expect("a pipe");
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    };
    match role {
        "member" => {
            let pod = Pod::open(path).expect("the pod");
            let process = pod.join(ProcessOptions::on_host(1)).expect("joining");
            let _member = process.enter(Some(9), "victim").expect("entering");
            wait();
        }
        "mutex" => {
            SharedMutex::open(&format!("{path}-mutex")).lock();
            wait();
        }
        _ => wait(),
    }
}

/// A process-shared robust mutex in a file.
struct SharedMutex(NonNull<libc::pthread_mutex_t>);

impl SharedMutex {
    fn map(path: &str, create: bool) -> Self {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(create)
            .open(path)
            .expect("a file");
        file.set_len(4096).expect("a page");
        // SAFETY: a fresh shared mapping of one page, never undone.
        let page = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        Self(NonNull::new(page.cast()).expect("mapped"))
    }

    fn create(path: &str) -> Self {
        let mutex = Self::map(path, true);
        // SAFETY: the page is ours alone still; the attributes are initialised before use.
        unsafe {
            let mut attributes = core::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(mutex.0.as_ptr(), &attributes);
        }
        mutex
    }

    fn open(path: &str) -> Self {
        Self::map(path, false)
    }

    fn lock(&self) {
        // SAFETY: an initialised mutex.
        unsafe { libc::pthread_mutex_lock(self.0.as_ptr()) };
    }

    /// Blocks until the owner dies, and frees the mutex for the next round.
    fn lock_dead(&self) {
        // SAFETY: an initialised mutex, which this thread holds after either answer.
        unsafe {
            let answer = libc::pthread_mutex_lock(self.0.as_ptr());
            if answer == libc::EOWNERDEAD {
                libc::pthread_mutex_consistent(self.0.as_ptr());
            }
            libc::pthread_mutex_unlock(self.0.as_ptr());
        }
    }
}
