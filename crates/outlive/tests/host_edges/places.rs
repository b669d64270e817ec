//! Places where the kernel answers differently than a program expects: an overlay, a time namespace
//! that was entered later, and a process after the end of its first thread.

use super::host_support::{self, Child, Shared, TestPod};
use super::{mount, unshared};
use outlive::host::{Access, Linux, Liveness, Os, OsError, PodFile};
use outlive::membership::{ProcessOptions, Settings};
use outlive::pod::{Pod, PodOptions};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

pub fn mount_with(what: &str, at: &str, kind: &str, flags: libc::c_ulong, options: &str) {
    let [what, at, kind, options] = [what, at, kind, options].map(|it| CString::new(it).unwrap());
    // SAFETY: valid strings; in a mount namespace of the caller's own.
    let answer = unsafe {
        libc::mount(
            what.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// Mounts an overlay in /dev/shm and returns its directory.
fn overlay() -> PathBuf {
    let at = |name: &str| format!("/dev/shm/{name}");
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(at(name)).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower"),
        at("upper"),
        at("work")
    );
    mount_with("overlay", &at("merged"), "overlay", 0, &options);
    at("merged").into()
}

/// On an overlay a mapping is of the file below and keeps no lock: nothing there can prove a death.
pub fn an_overlay_is_refused() {
    let pod = TestPod::new();
    unshared(libc::CLONE_NEWNS, || {
        mount("tmpfs", "/dev/shm");
        let at = |name: &str| format!("/dev/shm/{name}");
        overlay();
        let path = at("merged/pod");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = PodFile::new(file.unwrap().into(), Path::new(&path), 4096);
        let os = Linux::attach(pod.id, 16, Access::default(), file, true).unwrap();
        let is_refused = |error: &OsError| matches!(error, OsError::Missing { what, .. } if what.contains("keeps a l"));
        let presence = os.claim_presence(1).map(|_| ()).unwrap_err();
        assert!(is_refused(&presence), "{presence}");
        let cord = os.tie_cord(1, 1).map(|_| ()).unwrap_err();
        assert!(is_refused(&cord), "{cord}");
        os.detach().unwrap();
        // A side file that lies there is refused too.
        mount_with(&at("merged"), "/dev/shm", "none", libc::MS_BIND, "");
        let attached = Linux::attach(pod.id, 16, Access::default(), pod.file(), true);
        let side = attached.map(|_| ()).unwrap_err();
        assert!(is_refused(&side), "{side}");
    });
}

/// Its start time and those of its threads are other numbers there.
pub fn a_process_that_enters_a_time_namespace_is_of_another_system() {
    const CLONE_NEWTIME: libc::c_int = 0x80;
    let pod = TestPod::new();
    // Any namespace: the body runs in a child of the process that could create it.
    unshared(libc::CLONE_NEWNS, || {
        // SAFETY: affects children of this child only.
        if unsafe { libc::unshare(CLONE_NEWTIME) } != 0 {
            return println!("skipped: no time namespace can be created here");
        }
        let offsets = OpenOptions::new()
            .write(true)
            .open("/proc/self/timens_offsets");
        offsets.unwrap().write_all(b"boottime 100000 0").unwrap();
        let before = pod.attach();
        let thread = before.this_thread();
        let there = File::open("/proc/self/ns/time_for_children").unwrap();
        // SAFETY: affects this child only, which has one thread.
        let entered = unsafe { libc::setns(there.as_raw_fd(), CLONE_NEWTIME) };
        assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
        let after = pod.attach();
        assert_ne!(after.identity().id, before.identity().id);
        assert_ne!(after.this_thread().start_time, thread.start_time);
        // Where it was attached, start times are not known any more, and prove nothing.
        assert_eq!(before.this_thread().start_time, 0);
        assert_ne!(before.thread_liveness(thread), Liveness::Gone);
    });
}

/// `/proc/self` shows no time namespace then.
pub fn a_process_whose_first_thread_has_ended_is_where_it_was() {
    let pod = TestPod::new();
    Child::run(|| {
        let before = pod.attach();
        let first = before.this_thread().tid;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stat = format!("/proc/self/task/{first}/stat");
                let has_ended =
                    || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
                while !has_ended() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let is_same = core::ptr::eq(before, pod.attach());
                // SAFETY: ends the child.
                unsafe { libc::_exit(if is_same { 0 } else { 1 }) };
            });
            // SAFETY: ends this thread alone, which holds nothing.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
    })
    .succeed();
}

/// `/proc/self` shows the descriptors of the first thread, where the same numbers may be those of
/// other files.
pub fn a_thread_with_descriptors_of_its_own_names_its_own_file() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pod");
    Child::run(|| {
        let shared = Shared::new();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                // SAFETY: this thread gets a copy of the table of descriptors.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                shared.at(0).store(1, SeqCst);
                shared.wait(1, 1);
                let pod = Pod::create(&path, PodOptions::new().size(8 << 20).ids(8)).unwrap();
                let process = pod.join(ProcessOptions::on_host(0)).unwrap();
                drop(process.enter(None, "thread").unwrap());
                process.leave().unwrap();
                pod.close().unwrap();
                Pod::destroy(&path).unwrap();
            });
            shared.wait(0, 1);
            // Files without names, to which a link could give one.
            let mut nameless = OpenOptions::new();
            nameless
                .read(true)
                .write(true)
                .custom_flags(libc::O_TMPFILE);
            let files: Vec<File> = (0..64)
                .map(|_| nameless.open(directory.path()).unwrap())
                .collect();
            shared.at(1).store(1, SeqCst);
            other.join().unwrap();
            for file in files {
                assert_eq!(file.metadata().unwrap().nlink(), 0, "it was given a name");
            }
        });
    })
    .succeed();
}

/// The name of the side file of a stopped host leads to another file, in which its process has no
/// lock.
pub fn a_host_is_not_buried_by_another_side_file() {
    unshared(libc::CLONE_NEWNS, || {
        mount("tmpfs", "/dev/shm");
        let path = overlay().join("pod");
        let mut options = PodOptions::new().size(8 << 20).ids(16).without_heap();
        options = options.settings(Settings {
            suspicion: Duration::from_millis(200),
            ..Settings::default()
        });
        let pod = Pod::create(&path, options).unwrap();
        assert!(!pod.segment().has_one_kernel());
        pod.identity().unwrap();
        let shared = Shared::new();
        let host = Child::run(|| {
            let pod = Pod::open(&path).unwrap();
            let _process = pod.join(ProcessOptions::on_host(0)).unwrap();
            shared.at(0).store(1, SeqCst);
            host_support::sleep_for_ever();
        });
        shared.wait(0, 1);
        // SAFETY: stops the child.
        unsafe { libc::kill(host.pid as i32, libc::SIGSTOP) };
        let generation = || pod.tables().generations().current(0);
        let before = generation();
        let refused = || pod.bury_host(0).map(drop).unwrap_err().to_string();
        assert!(refused().contains("is alive"), "{}", refused());
        let side = Linux::side_files().unwrap().remove(0);
        fs::remove_file(side.path).unwrap();
        assert!(
            refused().contains("which may be one of the host's"),
            "{}",
            refused()
        );
        let newcomer = Child::run(|| {
            Pod::open(&path).unwrap().identity().unwrap();
            shared.at(1).store(1, SeqCst);
            host_support::sleep_for_ever();
        });
        shared.wait(1, 1);
        assert!(
            refused().contains("which may be one of the host's"),
            "{}",
            refused()
        );
        assert!(pod.is_present(15).unwrap(), "the process of the host");
        assert_eq!(generation(), before);
        // Nothing of the host is left.
        drop((host, newcomer));
        pod.bury_host(0).unwrap();
    });
}
