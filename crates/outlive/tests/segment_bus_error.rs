//! A process that loses the memory of a mapping names the file before it dies, and dies as it would
//! without the handler.
//!
//! Each case needs a process of its own: this program runs itself again for it.

use outlive::memory::{Memory, Offset, Ordering};
use outlive::segment::{Segment, report_bus_errors, say_after_bus_error};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

const CASE: &str = "OUTLIVE_TEST_CASE";
const PATH: &str = "OUTLIVE_TEST_PATH";

/// Runs the case in a process of its own, on a segment at a path that it returns.
fn run(case: &str) -> (Output, String) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("segment").display().to_string();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "case", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .env(PATH, &path)
        .output()
        .unwrap();
    (output, path)
}

/// Loads from the second page of a mapped file that has been truncated.
fn fault_in(segment: Segment, file: &File) {
    file.set_len(4096).unwrap();
    segment
        .memory()
        .load::<u64>(Offset::new(8192), Ordering::Relaxed);
}

/// Loads from a mapping that does not belong to Outlive.
fn fault_elsewhere(path: &Path) {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a new mapping of an open file.
    let map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    file.set_len(0).unwrap();
    // SAFETY: inside the mapping; the access faults, which is the purpose of the test.
    unsafe { map.as_ptr().read_volatile() };
}

extern "C" fn earlier(_signal: libc::c_int) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(77) };
}

/// Does something only as a child of the tests below.
#[test]
fn case() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let has = |what: &str| case.split(' ').any(|word| word == what);
    let path = std::env::var(PATH).unwrap();
    // SAFETY: a core dump would take long; the handler is async-signal-safe.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // Replaces the handler of the Rust runtime, which ends in the default action too.
        libc::signal(
            libc::SIGBUS,
            if has("earlier") {
                earlier as *const () as usize
            } else {
                libc::SIG_DFL
            },
        );
    }
    if has("reported") {
        report_bus_errors().unwrap();
        report_bus_errors().unwrap();
    }
    if has("more") {
        say_after_bus_error("outlive: and more\n");
    }
    let segment = Segment::builder().size(1 << 20).create(&path).unwrap();
    match () {
        () if has("sent") => {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        () if has("elsewhere") => fault_elsewhere(&Path::new(&path).with_file_name("other")),
        () if has("unmapped") => {
            // SAFETY: not used again.
            unsafe { segment.unmap() };
            // Often at the same address.
            fault_elsewhere(&Path::new(&path).with_file_name("other"));
        }
        () if has("threads") => {
            let threads: Vec<_> = (0..8)
                .map(|_| std::thread::spawn(move || fault_in(segment, &segment.file())))
                .collect();
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        () => fault_in(segment, &segment.file()),
    }
    unreachable!("the signal was not raised");
}

/// The lines that the case wrote to standard error.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_truncated_segment_is_named_before_the_process_dies() {
    for case in ["reported", "reported threads"] {
        let (output, path) = run(case);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGBUS),
            "{case}: {output:?}"
        );
        let lines = lines(&output);
        let [line] = &lines[..] else {
            panic!("{case}: {lines:?}");
        };
        assert!(
            line.starts_with(&format!("outlive: {path} has lost pages")),
            "{case}: {line}"
        );
    }
    let (output, _) = run("reported more");
    assert_eq!(lines(&output)[1..], ["outlive: and more"]);
}

#[test]
fn without_the_call_no_handler_is_installed() {
    let (output, _) = run("silent");
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    assert_eq!(lines(&output), [""; 0]);
}

#[test]
fn other_bus_errors_go_to_the_handler_that_was_there() {
    for case in ["reported elsewhere", "reported sent", "reported unmapped"] {
        let (output, _) = run(case);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGBUS),
            "{case}: {output:?}"
        );
        assert_eq!(lines(&output), [""; 0], "{case}");
        let (output, _) = run(&format!("{case} earlier"));
        assert_eq!(output.status.code(), Some(77), "{case}: {output:?}");
        assert_eq!(lines(&output), [""; 0], "{case}");
    }
    let (output, path) = run("reported earlier");
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert!(lines(&output)[0].contains(&path));
}
