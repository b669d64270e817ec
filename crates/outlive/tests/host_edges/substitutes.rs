//! Substitutes that a program or a container has made: another `/proc`, another boot id, another
//! file under a descriptor's number, other memory at an address.

use super::host_support::{Child, TestPod, hold};
use super::places::mount_with;
use super::{mount, unshared};
use outlive::host::{Access, Linux, Os};
use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::{Pod, PodOptions};
use outlive::segment::Segment;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};

fn unmount(at: &str) {
    let at = CString::new(at).unwrap();
    // SAFETY: a valid string; in a mount namespace of the caller's own.
    assert_eq!(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) }, 0);
}

/// Its lines are those of other processes. Their start times would prove that this one is gone.
pub fn a_proc_of_another_namespace_gives_no_start_time() {
    let pod = TestPod::new();
    unshared(libc::CLONE_NEWNS | libc::CLONE_NEWPID, || {
        mount("proc", "/proc");
        let os = pod.attach();
        let own = os.this_thread();
        assert!(own.start_time != 0 && own.process.start_time != 0);
        // The one below is the parent namespace's, which has another process of this id.
        unmount("/proc");
        assert!(fs::exists(format!("/proc/{}/stat", own.process.pid)).unwrap());
        assert_eq!(os.this_thread().start_time, 0);
        // Not even if it shows this process as that of this id.
        let outer = fs::read_link("/proc/self").unwrap();
        let status = format!("/proc/{}/status", outer.display());
        mount_with("/proc/1/status", &status, "none", libc::MS_BIND, "");
        assert_eq!(os.this_thread().start_time, 0);
        // The stat file of one thread, mounted over that of another, is not the other's.
        mount("proc", "/proc");
        let stranger = Child::run(|| super::sleep_for_ever());
        let line = |pid: u32| format!("/proc/{pid}/task/{pid}/stat");
        let (from, to) = (line(stranger.pid), line(own.tid));
        mount_with(&from, &to, "none", libc::MS_BIND, "");
        assert_eq!(os.this_thread().start_time, 0);
    });
}

/// A directory with the files that are looked for is the same in every PID namespace: processes of
/// two namespaces would share a side file, where the thread ids of one mean nothing to the other.
pub fn a_directory_in_the_place_of_proc_is_no_proc() {
    let pod = TestPod::new();
    unshared(libc::CLONE_NEWNS, || {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap();
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for directory in ["real", "made/sys/kernel/random", "made/thread-self/ns"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("made/sys/kernel/random/boot_id"), boot).unwrap();
        for namespace in ["pid", "time"] {
            fs::write(at("made/thread-self/ns").join(namespace), "").unwrap();
        }
        let shown = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        mount_with("/proc", &shown(at("real")), "none", libc::MS_BIND, "");
        std::os::unix::fs::symlink(at("real/self"), at("made/self")).unwrap();
        mount_with(&shown(at("made")), "/proc", "none", libc::MS_BIND, "");
        let attached = Linux::attach(pod.id, 16, Access::default(), pod.file(), true);
        let refused = attached.map(drop).unwrap_err().to_string();
        assert!(refused.contains("it is not a procfs"), "{refused}");
        unmount("/proc");
        unmount(&shown(at("real")));
    });
}

/// Otherwise its host would be taken for one of an earlier boot of this machine, which is dead.
pub fn a_boot_id_that_is_not_the_kernels_is_of_no_machine() {
    let pod = TestPod::new();
    unshared(libc::CLONE_NEWNS, || {
        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        mount("tmpfs", "/dev/shm");
        mount("tmpfs", "/etc");
        fs::write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n").unwrap();
        let machine = || {
            let os = pod.attach();
            let identity = os.identity();
            os.detach().unwrap();
            identity.machine
        };
        assert_eq!(machine(), 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let own = "/dev/shm/boot_id";
        fs::write(own, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
        // The second is a file of procfs, and a number.
        for substitute in [own, "/proc/sys/kernel/pid_max"] {
            mount_with(substitute, BOOT_ID, "none", libc::MS_BIND, "");
            assert_eq!(machine(), 0, "{substitute}");
            unmount(BOOT_ID);
        }
        assert_ne!(machine(), 0);
        // As container runtimes do it.
        mount_with("/proc/sys", "/proc/sys", "none", libc::MS_BIND, "");
        let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
        mount_with("none", "/proc/sys", "none", read_only, "");
        assert_ne!(machine(), 0, "the kernel's own, read-only");
        mount_with(own, BOOT_ID, "none", libc::MS_BIND, "");
        assert_eq!(machine(), 0, "a file below it");
        unmount(BOOT_ID);
        unmount("/proc/sys");
        // A link to a file of procfs, in a directory that is mounted.
        mount("tmpfs", "/proc/sys/kernel/random");
        std::os::unix::fs::symlink("/proc/sys/kernel/pid_max", BOOT_ID).unwrap();
        assert_eq!(machine(), 0);
    });
}

/// A program closes a descriptor of the library and opens another file under its number. Live
/// members of the pod are not taken for dead.
pub fn a_descriptor_of_another_file_proves_no_death() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pod");
    // A child, so that the numbers are those of a process with one thread.
    Child::run(|| {
        let pod = Pod::create(&path, PodOptions::new().size(8 << 20).ids(16)).unwrap();
        let process = pod.join(ProcessOptions::on_host(0)).unwrap();
        let state = |id: u32| pod.tables().generations().state(id).unwrap();
        let (host, own) = (state(0), state(process.instance().id));
        let shm = directory.path().join("other");
        fs::copy(&path, &shm).unwrap();
        let mut device = OpenOptions::new();
        let device = device.read(true).write(true).open("/dev/null").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&shm);
        for other in [OwnedFd::from(device), file.unwrap().into()] {
            let again = Pod::open(&path).unwrap();
            let number = again.segment().file().as_raw_fd();
            // SAFETY: a violation of the contract, which is the point of the test.
            assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
            assert!(again.segment().has_one_kernel());
            assert!(again.is_present(process.instance().id).unwrap());
            again.bury_host(0).unwrap_err();
            again.join(ProcessOptions::on_host(1)).unwrap_err();
            again.repair().unwrap_err();
            assert_eq!(state(0), host);
            assert_eq!(state(process.instance().id), own);
            again.close().unwrap();
        }
        process.leave().unwrap();
        pod.close().unwrap();
        Pod::destroy(&path).unwrap();
    })
    .succeed();
}

/// A forked child's own mapping never comes to lie where its parent has one: the child's copies of
/// its parent's handles would write there as the parent.
pub fn a_forked_child_has_no_pod_at_its_parents_addresses() {
    let segment = Segment::builder()
        .size(64 << 20)
        .create("memfd:fork")
        .unwrap();
    let address = |segment: Segment| segment.memory().address(Offset::new(0), 8).as_ptr();
    let theirs = address(segment);
    Child::run(|| {
        let reach = theirs as usize - (1 << 20)..theirs as usize + (64 << 20);
        for _ in 0..32 {
            let file = segment.file().try_clone().unwrap();
            let own = address(Segment::from_file(file).unwrap()) as usize;
            assert!(!reach.contains(&own), "{own:#x} in {reach:x?}");
        }
        // The parent's handle leads nowhere.
        let mut reader = Child::run(|| {
            segment
                .memory()
                .load::<u64>(Offset::new(0), Ordering::Relaxed);
        });
        assert_eq!(libc::WTERMSIG(reader.reap()), libc::SIGSEGV);
    })
    .succeed();
    // The parent keeps its own.
    assert_ne!(
        segment
            .memory()
            .load::<u64>(Offset::new(0), Ordering::Relaxed),
        0
    );
}

/// The same for the words of obituaries, which the parent's copies would make vacant.
pub fn a_forked_child_has_no_obituary_at_its_parents_addresses() {
    const BYTES: usize = 64 << 20;
    // So many that they do not fit between the libraries.
    let pod = TestPod::of(512);
    let segment = Segment::builder()
        .size(BYTES as u64)
        .create("memfd:fork")
        .unwrap();
    let theirs = segment.memory().address(Offset::new(0), 8).as_ptr() as usize;
    Child::run(|| {
        let os = pod.attach();
        for slot in 0..pod.slots {
            hold(os, slot);
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        // (The kernel knows the side file by no name, since this process has created it.)
        let shared = |line: &&str| line.contains("rw-s") && !line.contains("memfd:");
        let words = maps.lines().filter(shared);
        let words: Vec<usize> = words
            .filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok())
            .collect();
        assert!(words.len() > pod.slots as usize, "{maps}");
        for at in words {
            assert!(!(theirs..theirs + BYTES).contains(&at), "{at:#x}");
        }
    })
    .succeed();
}

/// The child may contain another copy of the library, which does not know the table of this one.
pub fn no_code_of_a_forked_child_gets_its_parents_addresses() {
    let pod = TestPod::new();
    Child::run(|| {
        let segment = Segment::builder().size(8 << 20).create("memfd:fork");
        assert!(segment.is_ok());
        hold(pod.attach(), 1);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        // The segment, and the side file as a whole and in windows. (The kernel knows the side file
        // by no name, since this process has created it.)
        let is_ours = |line: &&str| {
            let is_side_file = line.contains("/dev/shm/") && line.contains("(deleted)");
            line.contains("rw-s") && (is_side_file || line.contains("memfd:fork"))
        };
        let range = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        };
        let ours: Vec<_> = maps.lines().filter(is_ours).filter_map(range).collect();
        assert_eq!(ours.len(), 3, "{maps}");
        Child::run(|| {
            for (start, end) in ours {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
                for page in (start..end).step_by(4096) {
                    let at = core::ptr::without_provenance_mut(page);
                    // SAFETY: a new mapping, which replaces none.
                    let taken = unsafe { libc::mmap(at, 4096, libc::PROT_READ, flags, -1, 0) };
                    assert_eq!(taken, libc::MAP_FAILED, "{page:#x} in {start:#x}..{end:#x}");
                }
            }
        })
        .succeed();
    })
    .succeed();
}

/// As after a restore from a checkpoint: the process has its memory, but not the lock, whose
/// descriptor was closed.
pub fn a_process_that_has_lost_its_presence_ends() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, errors) = (
        directory.path().join("pod"),
        directory.path().join("errors"),
    );
    let pod = Pod::create(&path, PodOptions::new().size(8 << 20).ids(16)).unwrap();
    let mut child = Child::run(|| {
        let file = fs::File::create(&errors).unwrap();
        // SAFETY: replaces the standard error of this child.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
        let pod = Pod::open(&path).unwrap();
        let _process = pod.join(ProcessOptions::on_host(0)).unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let of_pod = maps.lines().filter(|line| line.ends_with("/pod"));
        for line in of_pod {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
            if end - start == 4096 {
                // SAFETY: a violation of the contract, which is the point of the test.
                unsafe { libc::munmap(core::ptr::without_provenance_mut(start), 4096) };
            }
        }
        super::sleep_for_ever();
    });
    let status = child.reap();
    let said = fs::read_to_string(&errors).unwrap();
    pod.close().unwrap();
    Pod::destroy(&path).unwrap();
    assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    assert!(said.contains("restored from a checkpoint (CRIU"), "{said}");
}
