//! Inputs and outputs of `outlive run wordcount`: impossible ones are refused before anything
//! starts, and an existing output stays until all is counted.

use crate::support::programs;
use crate::support::run::{Stage, plainly, read, text};
use crate::support::{Ended, command, outlive};
use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn what_cannot_be_counted_is_refused_before_anything_starts() {
    let stage = Stage::new("refused");
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "wordcount"];
        all.extend(arguments);
        outlive(all)
    };
    let missing = stage.path("missing");
    run(&[&missing]).fails(1, "missing cannot be read: No such file");
    let empty = stage.path("empty");
    fs::create_dir(&empty).unwrap();
    run(&[&empty]).fails(1, "contains no file");
    run(&["/dev/null"]).fails(1, "neither a file, a directory nor a pipe");
    let text = stage.write("text", &text(3_000_000, 3));
    let unwritable = run(&[&text, "--output", "/nowhere/counts"]);
    assert!(
        !unwritable.errors.contains(".outlive-results"),
        "{}",
        unwritable.errors
    );
    unwritable.fails(1, "/nowhere/counts cannot be written: No such file");
    run(&[&text, "--size", "5M"]).fails(1, "--size");
    run(&[&text, "--hosts", "0"]).fails(2, "--hosts");
    run(&[&text, "--hosts", "2", "--kill", "2", "--supervise", "none"])
        .fails(1, "all 2 hosts are dead");
    let taken = stage.write("taken", b"something");
    run(&[&text, "--pod", &taken]).fails(1, "exists already");
}

#[test]
fn files_of_the_kernel_are_read_to_their_ends() {
    // One reports a length of zero, the other that of a page.
    for path in [
        "/proc/version",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(bytes) = fs::read(path) else { continue };
        let stage = Stage::new("kernel");
        let (counts, summary) = stage.count(&[path, "--verify", "--kill", "1"]);
        assert!(counts == plainly(&[&bytes]), "{path}");
        assert_eq!(summary["bytes"], bytes.len());
        let (found, summary) = programs::run(&stage, &["histogram", path]);
        assert_eq!(summary["result"]["values"], bytes.len());
        let spaces = bytes.iter().filter(|byte| **byte == b' ').count();
        assert!(found.contains(&format!("bytes\t32\t{spaces}\n")), "{found}");
    }
}

#[test]
fn what_cannot_be_read_in_a_directory_is_left_out_and_reported() {
    let stage = Stage::new("left-out");
    let text = text(100_000, 3);
    stage.write("in/deep/text", &text);
    let names = ["a", "b", "c", "d"].map(|name| stage.path(&format!("in/{name}")));
    for name in &names[..3] {
        std::os::unix::fs::symlink("nowhere", name).unwrap();
    }
    let _socket = UnixListener::bind(&names[3]).unwrap();
    let directory = stage.path("in");
    let (counts, summary) = stage.count(&[&directory, "--verify"]);
    assert!(counts == plainly(&[&text]));
    let left_out = summary["left_out"].as_array().unwrap();
    let paths: Vec<_> = left_out
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, names);
    assert_eq!(left_out[0]["why"], "a link to a file that does not exist");
    assert_eq!(left_out[3]["why"], "a socket");
    let shown = outlive(["run", "wordcount", &directory]).succeeds();
    let first = format!(
        "left out: {}: a link to a file that does not exist\n",
        names[0]
    );
    assert!(shown.contains(&first), "{shown}");
    assert!(
        shown.contains("left out: 1 more; --json names all\n"),
        "{shown}"
    );
    let strict = outlive(["run", "wordcount", &directory, "--strict"]);
    strict.fails(
        1,
        "a: a link to a file that does not exist (and 3 more); without --strict",
    );
    // Given by name, they are errors; so is a directory without any other entry.
    outlive(["run", "wordcount", &directory, &names[0]]).fails(1, "a cannot be read: No such file");
    outlive(["run", "wordcount", &names[3]]).fails(1, "neither a file, a directory nor a pipe");
    fs::remove_dir_all(stage.path("in/deep")).unwrap();
    outlive(["run", "wordcount", &directory]).fails(1, "can be read: ");
    // Nothing to report, nothing refused.
    let kept = stage.write("kept/text", &text);
    let (_, summary) = stage.count(&[&stage.path("kept"), "--strict"]);
    assert_eq!(summary["left_out"].as_array().unwrap().len(), 0, "{kept}");
}

#[test]
fn a_pod_that_is_too_small_is_refused_with_the_size_to_ask_for() {
    let stage = Stage::new("small");
    let text = stage.write("text", &text(3_000_000, 3));
    let run = |size: &str| outlive(["run", "wordcount", &text, "--hosts", "2", "--size", size]);
    let mut refused = 0;
    for size in ["5M", "6M", "7M", "8M", "9M", "10M", "12M"] {
        let ended = run(size);
        if ended.code != Some(0) {
            let (_, ask) = ended.errors.trim().rsplit_once("with --size ").unwrap();
            let ask = ask.to_owned();
            ended.fails(1, "with --size ");
            run(&ask).succeeds();
            refused += 1;
        }
    }
    assert!(refused > 0, "even 5 MiB were enough");
}

#[test]
fn what_a_sample_missed_is_counted_before_a_size_is_named() {
    let stage = Stage::new("missed");
    // The inspected parts of the input are always the same; all other words occur once.
    let (bytes, looks, look) = (8 << 20, 32, 64 << 10);
    let mut text = String::new();
    while text.len() < bytes {
        match text.len() % (bytes / looks) {
            ..70_000 => text += "as always ",
            n => text += &format!("only-{:x}-{n} ", text.len() / look),
        }
    }
    let path = stage.write("text", text.as_bytes());
    let arguments = ["run", "wordcount", &path, "--tokens", "whitespace"];
    let ended = outlive(arguments);
    let (_, ask) = ended.errors.trim().rsplit_once("with --size ").unwrap();
    let ask = ask.to_owned();
    ended.fails(1, "with --size ");
    outlive(arguments.into_iter().chain(["--size", &ask])).succeeds();
}

#[test]
fn what_is_there_stays_until_all_is_counted() {
    let stage = Stage::new("output");
    let bytes = text(300_000, 3);
    let text = stage.write("in/text", &bytes);
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "wordcount"];
        all.extend(arguments);
        outlive(all)
    };
    // An input, by any of its names, is not replaced.
    let link = stage.path("link");
    std::os::unix::fs::symlink(&text, &link).unwrap();
    for output in [&text, &link] {
        run(&[&text, "--output", output]).fails(1, "one of the files to be counted");
    }
    run(&[&stage.path("in"), "--output", &text]).fails(1, "one of the files to be counted");
    assert!(fs::read(&text).unwrap() == bytes);
    // An earlier result survives a run that fails.
    let earlier = stage.write("earlier", b"1\tword\n");
    let fails = [
        "--hosts",
        "1",
        "--kill",
        "1",
        "--supervise",
        "none",
        "--output",
    ];
    let mut arguments = vec![&text[..]];
    arguments.extend(fails);
    arguments.push(&earlier);
    run(&arguments).fails(1, "hosts are dead");
    assert_eq!(fs::read(&earlier).unwrap(), b"1\tword\n");
    // A successful run replaces it, also through a link, and keeps its permissions.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&earlier, fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&earlier, &link).unwrap();
    run(&[&text, "--output", &link]).succeeds();
    assert!(read(&earlier) == plainly(&[&bytes]));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let mode = fs::metadata(&earlier).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    run(&[&text, "--output", "/dev/null"]).succeeds();
    // Nothing else is left beside them.
    let mut names: Vec<_> = fs::read_dir(&stage.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["earlier", "in", "link"]);
}

/// Each run reads one of the two files, or reports that it changed; never parts of both.
#[test]
fn a_file_that_is_replaced_while_it_is_read_is_noticed() {
    let stage = Stage::new("replaced");
    let (mut a, mut b) = (text(2_000_000, 3), text(2_000_000, 4));
    let len = a.len().min(b.len());
    a.truncate(len);
    b.truncate(len);
    let path = stage.write("text", &a);
    let [a, b] = [("a", a), ("b", b)].map(|(name, bytes)| stage.write(name, &bytes));
    let of = |program: &str, path: &str| {
        let output = stage.path("result");
        let mut arguments = vec!["run", program, path, "--output", &output, "--kill", "0"];
        if program == "histogram" {
            arguments.extend(["--task-bytes", "64K"]);
        }
        let ended = outlive(arguments);
        match ended.code {
            Some(0) => Some(fs::read(&output).unwrap()),
            _ => {
                ended.fails(1, "has changed while it was read");
                None
            }
        }
    };
    for program in ["wordcount", "histogram"] {
        let whole = [&a, &b].map(|path| of(program, path).unwrap());
        let over = AtomicBool::new(false);
        let mut changed = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let spare = stage.path("spare");
                for from in [&a, &b].iter().cycle() {
                    // Renaming a file to another name of itself leaves both.
                    let _ = fs::remove_file(&spare);
                    fs::hard_link(from, &spare).unwrap();
                    fs::rename(&spare, &path).unwrap();
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            for _ in 0..8 {
                match of(program, &path) {
                    Some(found) => assert!(whole.contains(&found), "{program}: a mixture"),
                    None => changed += 1,
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(changed > 0, "{program}: no run noticed it");
    }
}

#[test]
fn a_redirected_standard_input_is_read_by_all_hosts() {
    let stage = Stage::new("redirected");
    let bytes = text(500_000, 3);
    let path = stage.write("text", &bytes);
    let output = stage.path("counts");
    let mut count = command(["run", "wordcount", "/dev/stdin", "--output", &output]);
    let ended = count.stdin(File::open(&path).unwrap()).output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert!(read(&output) == plainly(&[&bytes]));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_what_to_do() {
    let stage = Stage::new("full-disk");
    let text = stage.write("text", &text(10_000, 3));
    let run = |arguments: &[&str]| outlive([&["run"][..], arguments].concat());
    let to = ["--output", "/dev/full"];
    for program in [
        &["wordcount", &text][..],
        &["histogram", &text],
        &["dedup", &text],
    ] {
        let ended = run(&[program, &to].concat());
        assert!(ended.errors.contains("No space left"), "{}", ended.errors);
        ended.fails(1, "/dev/full");
    }
    run(&["wordcount", &text, to[0], to[1]]).fails(1, "free space on its filesystem");
}
