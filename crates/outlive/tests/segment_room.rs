//! A full filesystem, a small control group and a limit on file sizes are errors when a segment is
//! created, never signals later, and leave nothing behind.
//!
//! Each case needs a process of its own: this program runs itself again for it.

use outlive::segment::{CreateError, Limit, OpenError, Segment};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CASE: &str = "OUTLIVE_TEST_CASE";

/// Runs `case` (a test below that does something only then) in a process of its own.
fn run(
    case: &str,
    prepare: impl Fn() -> std::io::Result<()> + Send + Sync + 'static,
) -> std::io::Result<Output> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", case, "--nocapture", "--test-threads=1"])
        .env(CASE, case);
    // SAFETY: `prepare` makes system calls only.
    unsafe { command.pre_exec(prepare) };
    command.output()
}

fn succeeded(output: std::io::Result<Output>) {
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), None, "killed\n{text}\n{errors}");
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "the case did not run\n{text}");
}

fn is_case(case: &str) -> bool {
    std::env::var(CASE).is_ok_and(|found| found == case)
}

fn no_room(path: impl AsRef<Path>, size: u64) -> outlive::segment::NoRoom {
    match Segment::builder().size(size).create(path) {
        Err(CreateError::NoRoom(no_room)) => no_room,
        other => panic!("{other:?}"),
    }
}

/// A small memory filesystem that is removed at the end.
struct Mount(std::ffi::CString);

impl Mount {
    fn new(point: &Path) -> std::io::Result<Self> {
        let point = std::ffi::CString::new(point.to_str().unwrap()).unwrap();
        let (tmpfs, options) = (c"tmpfs".as_ptr(), c"size=1m".as_ptr());
        // SAFETY: all are strings that end in zero.
        match unsafe { libc::mount(tmpfs, point.as_ptr(), tmpfs, 0, options.cast()) } {
            0 => Ok(Self(point)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: a string that ends in zero.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// In a mount namespace of its own.
#[test]
fn full_filesystem_case() {
    if !is_case("full_filesystem_case") {
        return;
    }
    let point = tempfile::tempdir().unwrap();
    match Mount::new(point.path()) {
        Ok(_mount) => full_filesystem(point.path()),
        Err(error) => println!("skipped: nothing can be mounted here: {error}"),
    }
}

fn full_filesystem(mount: &Path) {
    let at = |name: &str| mount.join(name);
    let count = || fs::read_dir(mount).unwrap().count();
    let found = no_room(at("large"), 4 << 20);
    assert_eq!((found.wanted, found.free), (4 << 20, 1 << 20));
    assert_eq!(found.fits, 1 << 20);
    assert_eq!(found.limit, Limit::Filesystem);
    assert_eq!(count(), 0);
    // The attempt leaves nothing; the space for this segment fits exactly.
    let fits = Segment::builder().size(1 << 20).create(at("fits")).unwrap();
    assert_eq!(no_room(at("more"), 64 << 10).free, 0);
    let early = Segment::builder()
        .size(64 << 10)
        .named_from_the_start()
        .create(at("early"));
    let error = early.unwrap_err();
    // Even its name takes a page here, so the failure may come before the check of the space.
    assert!(
        matches!(error, CreateError::NoRoom(_) | CreateError::Call(_)),
        "{error}"
    );
    assert_eq!(count(), 1);
    // A sparse copy without space for its pages is refused when it is opened, not when it is
    // touched.
    let first = fs::read(at("fits")).unwrap()[..4096].to_vec();
    Segment::destroy(at("fits")).unwrap();
    // SAFETY: not used again.
    unsafe { fits.unmap() };
    fs::write(at("ballast"), vec![1; 512 << 10]).unwrap();
    fs::write(at("sparse"), first).unwrap();
    fs::File::options()
        .write(true)
        .open(at("sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let error = Segment::open(at("sparse")).unwrap_err();
    assert!(matches!(error, OpenError::NoRoom(_)), "{error}");
}

#[test]
fn a_full_filesystem_is_an_error_and_leaves_nothing() {
    let output = run("full_filesystem_case", enter_namespace);
    match output {
        Err(error) => println!("skipped: no mount namespace can be made here: {error}"),
        output => succeeded(output),
    }
}

/// Enters a new mount namespace; a process that is not root needs a user namespace for that.
fn enter_namespace() -> std::io::Result<()> {
    // SAFETY: plain system calls; the strings are constants and null is where it may be.
    unsafe {
        let (user, group) = (libc::getuid(), libc::getgid());
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            if libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
        }
        // Mounts made here must not be visible elsewhere.
        let none = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        match libc::mount(none, c"/".as_ptr(), none, private, none.cast()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

#[test]
fn small_group_case() {
    if !is_case("small_group_case") {
        return;
    }
    let Some(memory) = Path::new("/dev/shm").is_dir().then_some("/dev/shm") else {
        return;
    };
    let directory = tempfile::tempdir_in(memory).unwrap();
    let file = directory.path().join("segment");
    for path in [file.to_str().unwrap(), "memfd:small-group"] {
        let found = no_room(path, 256 << 20);
        assert!(found.free < 64 << 20, "{found}");
        let Limit::ControlGroup(group) = &found.limit else {
            panic!("{found}");
        };
        assert!(group.to_str().unwrap().contains("outlive-test-"), "{found}");
        Segment::builder().size(1 << 20).create(path).unwrap();
    }
}

/// A control group that is removed at the end.
struct Group(PathBuf);

impl Group {
    /// One of 48 MiB, with either version, where this user may make one.
    fn small() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("outlive-test-{}", std::process::id());
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let (mount, limit) = match controllers {
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ => return None,
            };
            let path = Path::new(mount)
                .join(group.trim_start_matches('/'))
                .join(&name);
            fs::create_dir(&path).ok()?;
            let made = Self(path);
            fs::write(made.0.join(limit), "50331648").ok()?;
            Some(made)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel needs a moment after the last process.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_small_control_group_is_an_error_not_a_kill() {
    let Some(group) = Group::small() else {
        println!("no control group can be made here; the reading of limits is tested in the crate");
        return;
    };
    let processes = group.0.join("cgroup.procs");
    let output = run("small_group_case", move || fs::write(&processes, "0"));
    succeeded(output);
}

#[test]
fn file_size_case() {
    if !is_case("file_size_case") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment");
    let found = no_room(&path, 2 << 20);
    assert_eq!(
        (found.limit.clone(), found.free),
        (Limit::FileSize, 1 << 20)
    );
    assert!(!path.exists());
    Segment::builder().size(1 << 20).create(&path).unwrap();
}

#[test]
fn a_limit_on_file_sizes_is_an_error_not_a_signal() {
    let output = run("file_size_case", || {
        let limit = libc::rlimit {
            rlim_cur: 1 << 20,
            rlim_max: 1 << 20,
        };
        // SAFETY: a plain system call over a local.
        match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    });
    succeeded(output);
}

/// Limits that this machine does not have, by a tree of plain files in the place of /proc and /sys.
#[test]
fn every_limit_is_looked_at_before_pages_are_reserved() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let create = |path: &str| {
        Segment::builder()
            .size(1 << 20)
            .stand_in(root.path())
            .create(path)
    };
    let refused = |path: &str| match create(path) {
        Err(CreateError::NoRoom(no_room)) => no_room,
        other => panic!("{other:?}"),
    };
    write(
        "proc/meminfo",
        "MemTotal: 99999 kB\nMemAvailable:     512 kB\n",
    );
    let found = refused("memfd:machine");
    assert_eq!((found.limit, found.free), (Limit::Machine, 512 << 10));
    write("proc/meminfo", "MemAvailable:     9999 kB\n");
    create("memfd:machine").unwrap();
    write("proc/self/cgroup", "0::/job\n");
    write(
        "proc/self/mountinfo",
        "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 none rw\n",
    );
    write("sys/fs/cgroup/job/memory.max", "1000000\n");
    write("sys/fs/cgroup/job/memory.current", "1000\n");
    let found = refused("memfd:group");
    assert_eq!(found.free, 999_000);
    assert!(matches!(found.limit, Limit::ControlGroup(_)), "{found}");
    // Pages of an ordinary file can be dropped: neither limit concerns them.
    let ordinary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    create(ordinary.path().join("segment").to_str().unwrap()).unwrap();
}
