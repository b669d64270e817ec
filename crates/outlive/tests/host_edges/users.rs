//! Side files that other users put in the way, and pods that root joins.

use super::host_support::{Child, TestPod, hold, more_time};
use super::names;
use outlive::host::{Access, Linux, Obituary, Os, OsError};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// Becomes a user without privileges.
fn become_user(uid: u32, gid: u32) {
    // SAFETY: changes the ids of this child, which has one thread.
    unsafe {
        assert_eq!(libc::setgroups(0, core::ptr::null()), 0);
        assert_eq!(libc::setresgid(gid, gid, gid), 0);
        assert_eq!(libc::setresuid(uid, uid, uid), 0);
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can become other users");
    }
    root
}

const ALICE: u32 = 61_001;
const MALLORY: u32 = 61_002;
const TEAM: u32 = 61_100;

/// The mode that opens the pod's file to its group, and then everything that another user can put
/// at the name of the side file.
pub fn names_of_other_users_are_passed_over() {
    if !is_root() {
        return;
    }
    let access = Access {
        mode: 0o660,
        group: Some(TEAM),
        owner: Some(ALICE),
    };
    let alice = || become_user(ALICE, TEAM);
    let mallory = || become_user(MALLORY, MALLORY);
    type Put = fn(&PathBuf);
    let puts: [(&str, Put); 4] = [
        ("a file for all", |at| {
            fs::write(at, vec![0; 1 << 17]).unwrap();
            fs::set_permissions(at, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("a file with the pod's mode", |at| {
            fs::write(at, vec![0; 1 << 17]).unwrap();
            fs::set_permissions(at, fs::Permissions::from_mode(0o660)).unwrap();
        }),
        ("a FIFO", |at| {
            let at = CString::new(at.to_str().unwrap()).unwrap();
            // SAFETY: a valid string.
            assert_eq!(unsafe { libc::mkfifo(at.as_ptr(), 0o666) }, 0);
        }),
        ("a link", |at| {
            std::os::unix::fs::symlink("/dev/null", at).unwrap()
        }),
    ];
    for (what, put) in puts {
        more_time();
        let pod = TestPod::new();
        // The name, as the owner of the pod makes it.
        let name = {
            Child::run(|| {
                alice();
                Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
            })
            .succeed();
            let name = names(&pod).remove(0);
            assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1);
            name
        };
        Child::run(|| {
            mallory();
            put(&name);
        })
        .succeed();
        let second =
            name.with_file_name(format!("{}.1", name.file_name().unwrap().to_str().unwrap()));
        Child::run(|| {
            alice();
            let os = Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
            hold(os, 1);
            let stat = fs::metadata(&second).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(
                (stat.uid(), stat.gid(), stat.mode() & 0o7777),
                (ALICE, TEAM, 0o660)
            );
            // Another member of the group meets there.
            Child::run(|| {
                let os = Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
                assert!(matches!(os.obituary(1), Obituary::Held { .. }));
            })
            .succeed();
            os.release_obituary(1);
            // Another user's file stays, and nothing hangs.
            assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1, "{what}");
        })
        .succeed();
        // All eight names.
        Child::run(|| {
            mallory();
            let first = name.to_str().unwrap();
            (1..8).for_each(|number| put(&PathBuf::from(format!("{first}.{number}"))));
        })
        .succeed();
        Child::run(|| {
            alice();
            let error = Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap_err();
            assert!(matches!(error, OsError::Refused { .. }), "{error}");
        })
        .succeed();
        for number in 0..8 {
            let end = if number == 0 {
                String::new()
            } else {
                format!(".{number}")
            };
            fs::remove_file(format!("{}{end}", name.display())).unwrap();
        }
    }
    // A member of the group may make it.
    let pod = TestPod::new();
    Child::run(|| {
        become_user(MALLORY, TEAM);
        let os = Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
        hold(os, 1);
        let stat = fs::metadata(&names(&pod)[0]).unwrap();
        assert_eq!(
            (stat.uid(), stat.gid(), stat.mode() & 0o7777),
            (MALLORY, TEAM, 0o660)
        );
    })
    .succeed();
    Child::run(|| {
        alice();
        Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
        assert_eq!(names(&pod).len(), 1);
    })
    .succeed();
}

pub fn root_gives_the_file_to_the_owner_of_the_pod() {
    if !is_root() {
        return;
    }
    let pod = TestPod::new();
    let access = Access {
        mode: 0o600,
        group: Some(TEAM),
        owner: Some(ALICE),
    };
    let attach = || Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
    Child::run(|| {
        attach();
    })
    .succeed();
    let stat = fs::metadata(&names(&pod)[0]).unwrap();
    assert_eq!(
        (stat.uid(), stat.gid(), stat.mode() & 0o7777),
        (ALICE, TEAM, 0o600)
    );
    Child::run(|| {
        become_user(ALICE, TEAM);
        hold(attach(), 1);
        assert_eq!(names(&pod).len(), 1);
    })
    .succeed();
    assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1);
    assert!(names(&pod).is_empty());
}
