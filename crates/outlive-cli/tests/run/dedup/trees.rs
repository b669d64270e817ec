//! Attributes of files, excluded entries, and entries that cannot be archived.

use super::{archive, assert_same, executable, pipe, tree};
use crate::support::run::{Stage, assert_nothing_is_left};
use crate::support::{command, outlive};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Lists the tree by GNU find: kind, mode, links, owner, time in nanoseconds, name, target and
/// length. Lengths of directories are left out, since they depend on the filesystem.
fn described(tree: &str) -> Vec<String> {
    let format = "%y %m %n %U:%G %T@ %P %l %s\n";
    let said = Command::new("find")
        .args([tree, "-type", "d", "-printf", "%y %m %n %U:%G %T@ %P\n"])
        .args(["-o", "-printf", format])
        .output()
        .unwrap();
    assert!(said.status.success());
    let said = String::from_utf8(said.stdout).unwrap();
    let mut lines: Vec<String> = said.lines().map(String::from).collect();
    lines.sort();
    lines
}

fn set_mode(path: &str, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &str, seconds: i64, nanos: i64) {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(1, 1),
        last_modification: time(seconds, nanos),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn xattr(path: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let len = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    value.truncate(len);
    Some(value)
}

/// Adds attributes of all kinds to a tree. Returns whether the filesystem supports extended
/// attributes.
fn adorn(stage: &Stage) -> bool {
    let at = |name: &str| stage.path(&format!("tree/{name}"));
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse
        .write_all_at(&executable()[..300_000], 3 << 20)
        .unwrap();
    sparse.set_len(64 << 20).unwrap();
    fs::hard_link(at("code"), at("deep/same")).unwrap();
    fs::hard_link(at("sparse"), at("small/sparse")).unwrap();
    set_mode(&at("small"), 0o1777);
    set_mode(&at("deep/again"), 0o4755);
    set_mode(&at("nothing"), 0o2500);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(at("deep/link"), Some(1234), Some(5678)).unwrap();
        std::os::unix::fs::chown(at("zeros"), Some(1234), Some(5678)).unwrap();
        std::os::unix::fs::chown(at("small"), Some(1234), Some(5678)).unwrap();
        set_mode(&at("zeros"), 0o6751);
    }
    let has_xattrs = rustix::fs::lsetxattr(
        at("code").as_str(),
        "user.outlive",
        b"kept\0as it is",
        XattrFlags::empty(),
    );
    set_time(&at("code"), 1_700_000_000, 123_456_789);
    set_time(&at("deep/link"), 1_600_000_000, 1);
    // Before 1970.
    set_time(&at("deep/again"), -5, 999_999_999);
    set_time(&at("small"), 1_500_000_000, 0);
    set_time(&stage.path("tree"), 1_400_000_000, 5);
    has_xattrs.is_ok()
}

#[test]
fn what_a_tree_has_besides_its_bytes_is_restored_however_hosts_are_killed() {
    let stage = Stage::new("attributes");
    let tree = tree(&stage);
    let has_xattrs = adorn(&stage);
    let is_root = rustix::process::geteuid().is_root();
    let before = described(&tree);
    let mut arguments = vec!["--kill", "2", "--kill-at", "random", "--verify"];
    arguments.extend(["--owners", "--xattrs", "--level", "1"]);
    let (_, summary) = archive(&stage, &[&tree], &arguments);
    let result = &summary["result"];
    assert_eq!(
        [&result["files"], &result["hard_links"], &result["verified"]],
        [&Value::from(304), &2.into(), &true.into()],
        "{result}"
    );
    assert_eq!(summary["failures"].as_array().unwrap().len(), 2);
    let sparse = |tree: &str| fs::metadata(format!("{tree}/sparse")).unwrap();
    let has_holes = sparse(&tree).blocks() * 512 < 1 << 20;
    let holes = if has_holes { (64 << 20) - 300_000 } else { 0 };
    // Filesystems round holes to blocks.
    assert!(
        result["hole_bytes"].as_u64().unwrap() >= holes / 2,
        "{result}"
    );

    let (file, copy) = (stage.path("archive"), stage.path("copy"));
    let mut all = vec![
        "unpack",
        &file,
        &copy,
        "--xattrs",
        "--set-ids",
        "--strict",
        "--json",
    ];
    // All files of an ordinary user are its own.
    all.extend(is_root.then_some("--owners"));
    let unpacked: Value = serde_json::from_str(&outlive(all).succeeds()).unwrap();
    assert_eq!(unpacked["not_kept"], serde_json::json!([]));
    for field in ["files", "bytes", "hard_links", "hole_bytes"] {
        assert_eq!(unpacked[field], result[field], "{field}");
    }
    let copied = format!("{copy}/tree");
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = {
        (
            before.into_iter().collect(),
            described(&copied).into_iter().collect(),
        )
    };
    let differ: Vec<_> = before.symmetric_difference(&after).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_same(&tree, &copied);
    assert!(!has_holes || sparse(&copied).blocks() * 512 < 1 << 20);
    if has_xattrs {
        let kept = xattr(&format!("{copied}/deep/same"), "user.outlive");
        assert_eq!(kept.unwrap(), b"kept\0as it is");
    }
    // The archive of the copy is identical to the last byte.
    let archived = fs::read(&file).unwrap();
    assert!(
        archive(
            &stage,
            &[&copied],
            &["--owners", "--xattrs", "--level", "1"]
        )
        .0 == archived
    );
}

#[test]
fn what_was_archived_and_is_not_restored_is_said() {
    let stage = Stage::new("not-restored");
    tree(&stage);
    let has_xattrs = adorn(&stage);
    let tree = stage.path("tree");
    let file = stage.path("archive");
    archive(&stage, &[&tree], &["--owners", "--xattrs", "--hosts", "1"]);
    let said = outlive(["unpack", &file, &stage.path("one")]).succeeds();
    assert!(
        said.contains("owners were not restored: --owners"),
        "{said}"
    );
    let is_said = said.contains("extended attributes were not restored: --xattrs");
    assert_eq!(is_said, has_xattrs, "{said}");
    if rustix::process::geteuid().is_root() {
        // Such programs would run with the rights of the user that unpacks them.
        assert!(
            said.contains("zeros: setuid or setgid bit not restored"),
            "{said}"
        );
        let mode = |name: &str| fs::metadata(stage.path(name)).unwrap().mode() & 0o7777;
        assert_eq!(mode("one/tree/zeros"), 0o751);
        assert_eq!(mode("one/tree/deep/again"), 0o755);
        // With --set-ids the bits are restored on files with an unchanged owner.
        let asked = ["unpack", &file, &stage.path("asked"), "--set-ids"];
        let said = outlive(asked).succeeds();
        assert!(
            said.contains("zeros: setuid") && !said.contains("again: "),
            "{said}"
        );
        assert_eq!(mode("asked/tree/zeros"), 0o751);
        assert_eq!(mode("asked/tree/deep/again"), 0o4755);
        let strict = ["unpack", &file, &stage.path("two"), "--strict"];
        outlive(strict).fails(1, "could not be restored; everything else was");
        assert_same(&tree, &stage.path("two/tree"));
    }
    archive(&stage, &[&tree], &["--hosts", "1"]);
    let owners = ["unpack", &file, &stage.path("three"), "--owners"];
    outlive(owners).fails(1, "has no owners to be restored");
    assert!(!fs::exists(stage.path("three")).unwrap());
}

#[test]
fn what_is_excluded_or_cannot_be_archived_is_left_out_and_named() {
    let stage = Stage::new("left-out");
    for name in [
        "a.o",
        "a.c",
        "target/x",
        "deep/b.o",
        "deep/target/y",
        "deep/cache/d/z.tmp",
    ] {
        stage.write(&format!("t/{name}"), name.as_bytes());
    }
    let _socket = UnixListener::bind(stage.path("t/socket")).unwrap();
    pipe(&stage, "t/fifo");
    symlink("fifo", stage.path("t/link")).unwrap();
    let top = stage.path("t");
    let exclude = [
        "--exclude",
        "*.o",
        "--exclude",
        "t/target/",
        "--exclude",
        "**/cache/**/*.tmp",
    ];
    let output = stage.path("archive");
    let mut all = vec![
        "run", "dedup", &top, "--json", "--hosts", "1", "--output", &output,
    ];
    all.extend(exclude);
    // Special files are not a failure.
    let summary: Value = serde_json::from_str(&outlive(all.clone()).succeeds()).unwrap();
    assert_nothing_is_left(&summary);
    let result = &summary["result"];
    assert_eq!(
        (&result["files"], &result["excluded"]),
        (&2.into(), &4.into()),
        "{result}"
    );
    let left_out: Vec<_> = { result["left_out"].as_array().unwrap().iter() }
        .map(|it| (it["path"].as_str().unwrap(), it["special"] == true))
        .collect();
    assert_eq!(
        left_out,
        [
            (&*stage.path("t/fifo"), true),
            (&*stage.path("t/socket"), true)
        ]
    );
    let said = outlive(["run", "dedup", &top, "--hosts", "1"]).succeeds();
    assert!(said.contains("socket is neither a file"), "{said}");
    outlive(["unpack", &output, &stage.path("copy")]).succeeds();
    let listed = |at: &str| -> Vec<String> {
        let names = fs::read_dir(stage.path(at)).unwrap();
        let mut names: Vec<_> = names
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(listed("copy/t"), ["a.c", "deep", "link"]);
    assert_eq!(listed("copy/t/deep"), ["cache", "target"]);
    fs::remove_file(&output).unwrap();
    all.push("--strict");
    outlive(all.clone()).fails(
        1,
        "fifo is neither a file, a directory nor a link, but a FIFO",
    );
    assert!(!fs::exists(&output).unwrap(), "nothing was archived");
    all.extend(["--exclude", "fifo", "--exclude", "socket"]);
    outlive(all).succeeds();
    outlive(["run", "dedup", &top, "--exclude", "[a"]).fails(2, "--exclude");
}

/// Returns whether an ordinary user can reach `path`.
fn is_open_to_all(path: &Path) -> bool {
    { path.ancestors() }.all(|it| fs::metadata(it).is_ok_and(|it| it.mode() & 0o5 == 0o5))
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_archived() {
    let stage = Stage::new("unreadable");
    stage.write("t/open", b"open");
    stage.write("t/closed", b"closed");
    stage.write("t/shut/inside", b"inside");
    set_mode(&stage.path("t/closed"), 0);
    set_mode(&stage.path("t/shut"), 0);
    fs::create_dir(stage.path("out")).unwrap();
    set_mode(&stage.path("out"), 0o777);
    let (top, output) = (stage.path("t"), stage.path("out/archive"));
    let mut run = command(["run", "dedup", &top, "--hosts", "1", "--output", &output]);
    if rustix::process::geteuid().is_root() {
        // Root can read all files.
        if !is_open_to_all(Path::new(run.get_program())) || !is_open_to_all(&stage.directory) {
            println!("skipped: an ordinary user cannot reach the program or the files");
            return;
        }
        run.uid(65_534).gid(65_534);
    }
    let ended = run.output().unwrap();
    let (said, errors) = [&ended.stdout, &ended.stderr]
        .map(|it| String::from_utf8_lossy(it).into_owned())
        .into();
    for name in ["t/closed", "t/shut"] {
        let named = format!("{} cannot be read: Permission denied", stage.path(name));
        assert!(said.contains(&named), "{said}{errors}");
    }
    assert!(
        errors.contains("2 of the entries to be archived could not be read"),
        "{errors}"
    );
    assert_eq!(ended.status.code(), Some(1));
    set_mode(&stage.path("t/shut"), 0o700);
    outlive(["unpack", &output, &stage.path("copy")]).succeeds();
    let copied = fs::read_dir(stage.path("copy/t")).unwrap();
    let copied: Vec<_> = copied.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(copied, ["open"]);
}
