//! `outlive run dedup` and `outlive unpack`: hosts are killed, the archive is that of the plain
//! program to the last byte, and the unpacked files are identical.

mod trees;

use crate::support::programs::{an_interrupted_run_leaves_nothing, assert_killed, ways_to_die};
use crate::support::run::{Stage, assert_nothing_is_left, wait_until};
use crate::support::{self, Ended, Place, Running, outlive};
use outlive_programs::dedup::archive::{Catalog, Writer};
use outlive_programs::dedup::chunk::MAX;
use outlive_programs::dedup::pack::{Packer, digest};
use outlive_programs::dedup::{pack_alone, tree::Tree};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Archives. Returns the archive and the report.
fn archive(stage: &Stage, paths: &[&str], arguments: &[&str]) -> (Vec<u8>, Value) {
    let output = stage.path("archive");
    let mut all = vec!["run", "dedup", "--json", "--output", &output];
    all.extend(arguments);
    all.extend(paths);
    let summary: Value = serde_json::from_str(&outlive(all).succeeds()).unwrap();
    assert_nothing_is_left(&summary);
    (fs::read(&output).unwrap(), summary)
}

/// Returns the archive of the plain program.
fn plainly(path: &str, level: u32) -> Vec<u8> {
    let mut archive = Vec::new();
    pack_alone(&Tree::find(&[path]).unwrap(), level, &mut archive).unwrap();
    archive
}

/// This test's own executable: a real file, of code.
fn executable() -> Vec<u8> {
    fs::read(std::env::current_exe().unwrap()).unwrap()
}

/// Creates a directory with code, most of it duplicated, many small files, empty files, directories
/// and links.
fn tree(stage: &Stage) -> String {
    let code = executable();
    let code = &code[..code.len().min(3_000_000)];
    stage.write("tree/code", code);
    let again = [b"moved", &code[..1_500_000], b"and", &code[1_600_000..]].concat();
    stage.write("tree/deep/again", &again);
    for number in 0..300 {
        stage.write(
            &format!("tree/small/{number}"),
            &code[number * 70..][..number % 40],
        );
    }
    stage.write("tree/zeros", &vec![0; 900_000]);
    fs::create_dir(stage.path("tree/nothing")).unwrap();
    symlink("../code", stage.path("tree/deep/link")).unwrap();
    let mode = fs::Permissions::from_mode(0o751);
    fs::set_permissions(stage.path("tree/code"), mode).unwrap();
    stage.path("tree")
}

/// Requires that two directories have the same contents, compared by another program.
#[track_caller]
fn assert_same(one: &str, other: &str) {
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", one, other])
        .output()
        .unwrap();
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stdout)
    );
}

#[test]
fn archives_are_the_same_to_the_last_byte_however_hosts_are_killed() {
    let stage = Stage::new("archive");
    let tree = tree(&stage);
    let expected = plainly(&tree, 1);
    for (hosts, processes, threads, kills, task, window) in [
        ("1", "1", "1", 0, None, None),
        ("1", "1", "2", 0, None, None),
        ("1", "1", "1", 1, Some("64K"), Some("1M")),
        ("2", "1", "2", 1, Some("5000"), Some("256K")),
        ("3", "2", "1", 2, Some("100K"), Some("3M")),
        ("4", "1", "2", 6, Some("40K"), Some("700K")),
    ] {
        let kill = kills.to_string();
        for (supervise, at) in ways_to_die(hosts, &kill) {
            let mut arguments = vec!["--kill", &kill, "--kill-at", at, "--supervise", supervise];
            arguments.extend(["--hosts", hosts, "--processes", processes]);
            arguments.extend(["--threads", threads, "--level", "1"]);
            arguments.extend(task.iter().flat_map(|task| ["--task-bytes", task]));
            arguments.extend(window.iter().flat_map(|window| ["--window", window]));
            let (found, summary) = archive(&stage, &[&tree], &arguments);
            assert!(found == expected, "{summary}");
            let result = &summary["result"];
            assert_eq!(result["archive_bytes"], found.len());
            assert_eq!(result["files"], 303);
            // The chosen window for one worker is smaller than the tree, and that for two is
            // larger.
            let is_small = window.is_some() || [hosts, processes, threads] == ["1"; 3];
            assert_eq!(result["windows"].as_u64().unwrap() > 1, is_small);
            // At least: windows overlap.
            let stretches =
                result["bytes"].as_u64().unwrap() / result["task_bytes"].as_u64().unwrap();
            assert!(
                summary["units"].as_u64().unwrap() >= 3 * stretches,
                "{summary}"
            );
            // Other threads of a host may finish the rest before it is killed.
            assert_killed(&summary, kills, at == "commit" && threads == "1");
        }
    }
    let copy = stage.path("copy");
    let shown = outlive(["unpack", &stage.path("archive"), &copy]).succeeds();
    assert!(shown.contains("303 files"), "{shown}");
    assert_same(&tree, &stage.path("copy/tree"));
    assert_eq!(plainly(&stage.path("copy/tree"), 1), expected);
}

#[test]
fn a_real_file_is_archived_while_hosts_die_and_unpacked_to_the_identical_bytes() {
    let stage = Stage::new("executable");
    let code = executable();
    let file = stage.write("code", &code);
    let arguments = ["--kill", "2", "--verify", "--level", "3"];
    let (found, summary) = archive(&stage, &[&file], &arguments);
    let result = &summary["result"];
    println!("{result}");
    assert_eq!(
        (&result["bytes"], &result["verified"]),
        (&code.len().into(), &true.into())
    );
    assert_eq!(summary["failures"].as_array().unwrap().len(), 2);
    assert!(found.len() < code.len() * 2 / 3);
    let copy = stage.path("copy");
    let unpacked = outlive(["unpack", &stage.path("archive"), &copy, "--json"]).succeeds();
    let unpacked: Value = serde_json::from_str(&unpacked).unwrap();
    assert_eq!(
        unpacked,
        serde_json::json!({"files": 1, "bytes": code.len(), "hard_links": 0, "hole_bytes": 0, "not_kept": []})
    );
    assert!(fs::read(stage.path("copy/code")).unwrap() == code);
}

#[test]
fn there_may_be_nothing_to_archive() {
    let stage = Stage::new("nothing");
    fs::create_dir_all(stage.path("tree/empty")).unwrap();
    let tree = stage.path("tree");
    let (found, summary) = archive(&stage, &[&tree], &["--verify"]);
    assert_eq!((found, &summary["units"]), (plainly(&tree, 6), &0.into()));
    stage.write("tree/file", b"");
    let (found, _) = archive(&stage, &[&tree], &[]);
    assert_eq!(found, plainly(&tree, 6));
    // Without a unit there is no kill.
    let output = stage.path("archive");
    outlive(["run", "dedup", &tree, "--kill", "1", "--output", &output])
        .fails(1, "0 of 1 kills happened");
    assert_eq!(fs::read(&output).unwrap(), plainly(&tree, 6));
    // As text; and without an output, only to know the size.
    stage.write("tree/file", &[7; 100_000]);
    let shown = outlive([
        "run", "dedup", &tree, "--hosts", "1", "--verify", "--kill", "1",
    ])
    .succeeds();
    assert!(shown.contains("in 1 files, 2 chunks"), "{shown}");
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(
        shown.contains("the archive agrees with the files"),
        "{shown}"
    );
    outlive(["run", "dedup", &tree, "--output", "/dev/null"]).succeeds();
}

#[test]
fn what_cannot_be_archived_is_refused() {
    let stage = Stage::new("refused");
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "dedup"];
        all.extend(arguments);
        outlive(all)
    };
    run(&[]).fails(2, "FILE|DIR");
    run(&[&stage.path("missing")]).fails(1, "missing cannot be read: No such file");
    run(&["/dev/null"]).fails(1, "/dev/null is neither a file, a directory nor a link");
    run(&["/proc/self/status"]).fails(1, "has the length 0 and is not empty");
    let file = stage.write("a/file", &executable()[..700_000]);
    run(&[&file, &stage.write("b/file", b"b")]).fails(1, "would be called");
    run(&[&file, "--output", &file]).fails(1, "would be replaced");
    run(&[&file, "--output", &stage.path("no/where")]).fails(1, "cannot be written");
    run(&[&file, "--output", "/dev/null", "--verify"]).fails(1, "--verify is not possible");
    run(&[&file, "--level", "10"]).fails(2, "--level");
    run(&[&file, "--task-bytes", "1K"]).fails(2, "the number of bytes of a task cannot be 1024");
    run(&[&file, "--window", "64K"]).fails(2, "the number of bytes of a window cannot be 65536");
    let large = stage.write("a/large", &executable());
    run(&[&large, "--size", "4M"]).fails(1, "--size");
    let mut none = vec![&*file, "--hosts", "2", "--kill", "2", "--supervise", "none"];
    none.extend(["--task-bytes", "10K"]);
    run(&none).fails(1, "all 2 hosts are dead");
    assert_eq!(fs::read_dir(&stage.directory).unwrap().count(), 2);
}

#[test]
fn a_damaged_archive_is_refused_and_says_where_it_is_damaged() {
    let stage = Stage::new("damaged");
    let file = stage.write("file", &executable()[..300_000]);
    let (good, _) = archive(&stage, &[&file], &["--hosts", "1"]);
    let mut number = 0;
    let mut unpack = |archive: &[u8]| -> Ended {
        number += 1;
        let archive = stage.write("damaged", archive);
        outlive(["unpack", &archive, &stage.path(&format!("into {number}"))])
    };
    let changed = |at: usize| {
        let mut changed = good.clone();
        changed[at] ^= 0x40;
        changed
    };
    unpack(b"PK\x03\x04").fails(1, "damaged: this is not an archive");
    unpack(b"").fails(1, "this is not an archive");
    unpack(&good[..good.len() / 2]).fails(1, "is cut off");
    unpack(&good[..good.len() - 1]).fails(1, "is cut off");
    unpack(&[&good[..], b"\n"].concat()).fails(1, "bytes were added");
    unpack(&changed(8)).fails(1, "has version 67, and this program reads versions 2 to 3");
    unpack(&changed(good.len() - 100)).fails(1, "index, ");
    assert!(
        !fs::exists(stage.path("into 7")).unwrap(),
        "nothing was made"
    );
    unpack(&changed(20_000)).fails(
        1,
        "is damaged: its checksum is wrong; the files that were unpacked before",
    );
    let into = stage.path("into");
    let whole = stage.write("whole", &good);
    outlive(["unpack", &whole, &into]).succeeds();
    outlive(["unpack", &whole, &into]).fails(1, "into is not empty");
    assert_eq!(
        fs::read(stage.path("into/file")).unwrap(),
        fs::read(&file).unwrap()
    );
    outlive(["unpack", &stage.path("missing"), &into]).fails(1, "missing: No such file");
}

/// Archives `paths`, changes the file `changed` by `change` once the pod exists, and requires that
/// the run names that file and leaves nothing.
fn is_named_when_it_changes(
    stage: &Stage,
    paths: &[&str],
    changed: &str,
    change: impl FnOnce(fs::File),
) {
    let place = Place::new("changed");
    let (pod, output) = (place.path(), stage.path("archive"));
    let mut arguments = vec!["run", "dedup", "--pod", pod, "--output", &output];
    // Slow enough for the change to come first: one worker reads a small part at a time.
    arguments.extend(["--hosts", "1", "--window", "256K", "--level", "9"]);
    arguments.extend(paths);
    let running = support::command(&arguments)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the pod is there", || fs::exists(pod).unwrap());
    change(fs::OpenOptions::new().write(true).open(changed).unwrap());
    let ended = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    let named = format!("{changed} has changed while it was read");
    assert!(said.contains(&named), "{said}");
    assert_eq!(ended.status.code(), Some(1));
    assert!(!Path::new(&output).exists() && !Path::new(pod).exists());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let stage = Stage::new("changed");
    let code = &executable()[..2_000_000];
    let file = stage.write("file", code);
    for len in [1_999_000, 2_000_001] {
        fs::write(&file, code).unwrap();
        is_named_when_it_changes(&stage, &[&file], &file, |file| file.set_len(len).unwrap());
    }
    // The run reads no byte of a hole, but notices that it was filled.
    fs::write(&file, code).unwrap();
    let hole = stage.write("hole", b"");
    let opened = fs::OpenOptions::new().write(true).open(&hole).unwrap();
    opened.set_len(1 << 20).unwrap();
    is_named_when_it_changes(&stage, &[&file, &hole], &hole, |hole| {
        hole.write_all_at(b"filled", 700_000).unwrap();
    });
}

#[test]
fn an_interrupted_run_of_dedup_leaves_nothing() {
    let stage = Stage::new("archive-interrupted");
    let code = executable();
    // Enough new content for some work.
    let piece = &code[..code.len().min(3_000_000)];
    let much: Vec<u8> = (0..30u8)
        .flat_map(|by| piece.iter().map(move |it| it ^ by))
        .collect();
    let file = stage.write("much", &much);
    let output = stage.write("archive", b"as it was");
    let archive = ["dedup", &file, "--level", "9", "--window", "1M"];
    an_interrupted_run_leaves_nothing(&[&archive[..], &["--output", &output]].concat());
    assert_eq!(fs::read(&output).unwrap(), b"as it was");
    // The file beside it is gone too.
    assert_eq!(fs::read_dir(&stage.directory).unwrap().count(), 2);
}

fn pipe(stage: &Stage, name: &str) -> String {
    let path = stage.path(name);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    path
}

/// Opens a pipe for reading, whether or not it has a writer.
fn reader(path: &str) -> fs::File {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut how = fs::OpenOptions::new();
    how.read(true).custom_flags(nonblocking).open(path).unwrap()
}

#[test]
fn an_archive_that_nobody_reads_can_be_interrupted() {
    let stage = Stage::new("pipe-interrupted");
    // More than a pipe and the run's buffers hold.
    let code = executable();
    let file = stage.write("code", &code[..code.len().min(3_000_000)]);
    let output = pipe(&stage, "pipe");
    let place = Place::new("pipe");
    let pod = place.path();
    let arguments = ["run", "dedup", &file, "--output", &output, "--pod", pod];
    for signal in [Signal::INT, Signal::TERM] {
        // The pipe has no reader.
        let mut running = Running::start(arguments);
        std::thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        running.ends_with(1);
        assert!(!fs::exists(pod).unwrap(), "it began, and no process reads");
        // The pipe has a reader that reads nothing.
        let mut running = Running::start(arguments);
        let held = reader(&output);
        // It is full when nothing more comes: the archive has more than a pipe holds.
        wait_until_full(&held);
        assert!(
            fs::exists(pod).unwrap(),
            "it was done, and no process has read"
        );
        running.signal(signal);
        running.ends_with(1);
        drop(held);
        let left = support::run::processes_of(pod);
        assert!(left.is_empty() && !fs::exists(pod).unwrap());
    }
    // The pipe's reader has closed it.
    let mut running = Running::start(arguments);
    drop(reader(&output));
    let held = reader(&output);
    wait_until("something comes", || {
        rustix::io::ioctl_fionread(&held).unwrap() > 0
    });
    drop(held);
    running.ends_with(1);
    assert!(!fs::exists(pod).unwrap());
}

/// Waits until a pipe that is not read is full.
fn wait_until_full(held: &fs::File) {
    let filled = || rustix::io::ioctl_fionread(held).unwrap();
    let mut before = 0;
    wait_until("the pipe is full", || {
        let last = std::mem::replace(&mut before, filled());
        std::thread::sleep(Duration::from_millis(300));
        last > 0 && last == filled()
    });
}

#[test]
fn a_failure_is_told_though_nobody_reads() {
    let stage = Stage::new("pipe-failed");
    let code = executable();
    let file = stage.write("code", &code[..code.len().min(3_000_000)]);
    let output = pipe(&stage, "pipe");
    let place = Place::new("pipe-failed");
    let pod = place.path();
    let run = |more: &[&str]| {
        let fixed = ["run", "dedup", &file, "--output", &output, "--pod", pod];
        let mut run = support::command(fixed.iter().chain(&["--supervise", "none"]).chain(more));
        run.stderr(fs::File::create(stage.path("errors")).unwrap());
        Running::of(run)
    };
    let kill_all = || {
        let hosts = support::run::processes_of(pod);
        assert!(!hosts.is_empty());
        hosts.into_iter().for_each(support::run::Seen::kill);
    };
    // Work is left but all workers are dead: a reader that does not read cannot hide that.
    let held = reader(&output);
    let mut running = run(&["--window", "256K"]);
    wait_until_full(&held);
    kill_all();
    running.ends_with(1);
    let said = fs::read_to_string(stage.path("errors")).unwrap();
    assert!(said.contains("all 4 hosts are dead"), "{said}");
    drop(held);
    // Only the reading is left: no worker has to live for it.
    let mut held = reader(&output);
    let mut running = run(&[]);
    wait_until_full(&held);
    kill_all();
    let mut found = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match held.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => found.extend_from_slice(&piece[..read]),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    running.ends();
    assert!(found == plainly(&file, 6));
    assert!(!fs::exists(pod).unwrap());
}

#[test]
fn an_archive_goes_through_a_pipe_as_slowly_as_it_is_read() {
    let stage = Stage::new("pipe");
    let code = executable();
    let file = stage.write("code", &code[..code.len().min(3_000_000)]);
    let output = pipe(&stage, "pipe");
    let mut running = Running::start(["run", "dedup", &file, "--output", &output, "--json"]);
    let mut reader = fs::File::open(&output).unwrap();
    let (mut found, mut piece) = (Vec::new(), vec![0; 20_000]);
    loop {
        match reader.read(&mut piece).unwrap() {
            0 => break,
            read => found.extend_from_slice(&piece[..read]),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(found == plainly(&file, 6));
    let summary: Value = serde_json::from_str(&running.ends()).unwrap();
    assert_eq!(summary["result"]["archive_bytes"], found.len());
}

/// Creates an archive of one file that consists of one chunk of 64 KiB, named `times` times.
fn bomb(stage: &Stage, times: usize) -> String {
    let chunk = vec![0; MAX];
    let source = stage.write("bomb-source", &chunk);
    let tree = Tree::find(&[&source]).unwrap();
    let (mut catalog, mut packed) = (Catalog::default(), Vec::new());
    Packer::new(9).pack(&chunk, &mut packed);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    writer.chunk(&packed).unwrap();
    let digest = digest(&chunk);
    for _ in 0..times {
        catalog.enter(digest, chunk.len()).unwrap();
    }
    catalog.add(&tree.entries()[0], vec![0; times]);
    writer.finish(&catalog).unwrap();
    stage.write("bomb", &file)
}

#[test]
fn a_small_archive_of_a_huge_file_is_refused_before_anything_is_made() {
    let stage = Stage::new("bomb");
    let into = stage.path("into");
    let there = rustix::fs::statvfs(&stage.directory).unwrap();
    let free = there.f_bavail * there.f_frsize;
    let times = (free / MAX as u64 + 1) as usize;
    if times < 100_000_000 {
        let archive = bomb(&stage, times);
        assert!(fs::metadata(&archive).unwrap().len() < (times * 4 + 1000) as u64);
        let refused = outlive(["unpack", &archive, &into]);
        refused.fails(1, "the archive needs");
        assert!(!fs::exists(&into).unwrap(), "nothing was made");
        let refused = outlive(["unpack", &archive, &into, "--max-size", "16E"]);
        refused.fails(2, "--max-size");
    }
    let archive = bomb(&stage, 100);
    let refused = outlive(["unpack", &archive, &into, "--max-size", "6M"]);
    refused.fails(1, "unpacks to 6553600 bytes, and the limit is 6291456");
    assert!(!fs::exists(&into).unwrap(), "nothing was made");
    outlive(["unpack", &archive, &into, "--max-size", "7M"]).succeeds();
    let unpacked = fs::read(stage.path("into/bomb-source")).unwrap();
    assert!(unpacked.len() == 100 * MAX && unpacked.iter().all(|byte| *byte == 0));
}

/// Creates an archive of `count` directories and nothing else.
fn directories(stage: &Stage, count: usize) -> String {
    let top = stage.path("directories/d");
    fs::create_dir_all(&top).unwrap();
    let one = &Tree::find(&[&top]).unwrap().entries()[0].clone();
    let mut catalog = Catalog::default();
    for number in 0..count {
        let mut entry = one.clone();
        entry.name = format!("{number}").into_bytes();
        catalog.add(&entry, Vec::new());
    }
    let mut file = Vec::new();
    Writer::new(&mut file).unwrap().finish(&catalog).unwrap();
    stage.write("directories.dedup", &file)
}

#[test]
fn directories_count() {
    let stage = Stage::new("directories");
    let into = stage.path("into");
    let archive = directories(&stage, 300);
    let refused = outlive(["unpack", &archive, &into, "--max-size", "1M"]);
    refused.fails(1, "unpacks to 1228800 bytes, and the limit is 1048576");
    assert!(!fs::exists(&into).unwrap(), "nothing was made");
    outlive(["unpack", &archive, &into, "--max-size", "2M"]).succeeds();
    assert_eq!(fs::read_dir(&into).unwrap().count(), 300);
}

#[test]
fn a_file_that_is_long_and_empty_takes_no_memory() {
    let stage = Stage::new("sparse");
    // A file with the beginning and the end of an archive; between them is a hole of a terabyte,
    // which the header declares as the index.
    let (path, len): (_, u64) = (
        stage.write("sparse", b"OutDedup\x02\0\0\0\0\0\0\0"),
        1 << 40,
    );
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let index = len - 16 - 56;
    let mut end = [0; 56];
    end[..8].copy_from_slice(&16u64.to_le_bytes());
    end[8..16].copy_from_slice(&index.to_le_bytes());
    end[48..].copy_from_slice(b"pudeDtuO");
    if file.write_all_at(&end, len - 56).is_err() {
        println!("skipped: there are no files with holes of a terabyte here");
        return;
    }
    // With the memory that a program needs, and not much more.
    let unpack = |more: &[&str]| -> Ended {
        let limited = "ulimit -v 4000000; exec \"$0\" \"$@\"";
        let into = stage.path("into");
        let unpack = support::command(["unpack", &path, &into].iter().chain(more));
        let ended = Command::new("sh")
            .args(["-c", limited])
            .arg(unpack.get_program())
            .args(unpack.get_args())
            .output()
            .unwrap();
        Ended {
            shown: "unpack sparse".into(),
            code: ended.status.code(),
            output: String::from_utf8(ended.stdout).unwrap(),
            errors: String::from_utf8(ended.stderr).unwrap(),
        }
    };
    unpack(&[]).fails(1, "--max-index 1048576M");
    // With a larger limit, the error is a lack of memory.
    unpack(&["--max-index", "1T"]).fails(1, "cannot be read: out of memory");
    assert!(!fs::exists(stage.path("into")).unwrap(), "nothing was made");
}
