//! Side files that other users put in the way, and pods that root joins.

use super::host_support::{Child, TestPod, hold, more_time};
use super::names;
use outlive::host::{Access, Linux, Obituary, Os, OsError};
use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
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

/// A group of Alice and Mallory that has no right to the pod.
const CLUB: u32 = 61_101;

/// Runs `body` in a child of the user `uid` and the groups `gid` and [`CLUB`], as user 0 and group
/// 0 of a new user namespace that maps no other id. `false`, with a message, if none can be made.
fn in_user_namespace(uid: u32, gid: u32, body: impl FnOnce()) -> bool {
    const REFUSED: i32 = 77;
    let mut child = Child::run(|| {
        // SAFETY: affects this child only, which has one thread. It may write its own maps, but
        // only while it is dumpable, which the change of its user ends.
        let is_new = unsafe {
            assert_eq!(libc::setgroups(1, &CLUB), 0);
            assert_eq!(libc::setresgid(gid, gid, gid), 0);
            assert_eq!(libc::setresuid(uid, uid, uid), 0);
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
            libc::unshare(libc::CLONE_NEWUSER) == 0
        };
        if !is_new {
            println!("skipped: unshare: {}", std::io::Error::last_os_error());
            // SAFETY: ends the child.
            unsafe { libc::_exit(REFUSED) };
        }
        fs::write("/proc/self/setgroups", "deny").unwrap();
        fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
        fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
        body();
    });
    match child.reap() {
        0 => true,
        status if libc::WEXITSTATUS(status) == REFUSED => false,
        status => panic!("the child failed: {status:#x}"),
    }
}

/// The pod's owner and the creator of the file are both shown as the overflow id.
pub fn a_file_of_an_unmapped_user_is_refused() {
    if !is_root() {
        return;
    }
    const OVERFLOW: u32 = 65_534;
    let pod = TestPod::new();
    let access = |mode, owner, group| Access {
        mode,
        group: Some(group),
        owner: Some(owner),
    };
    let attach = |access| Linux::attach(pod.id, pod.slots, access, pod.file(), true);
    Child::run(|| {
        become_user(MALLORY, CLUB);
        attach(access(0o660, MALLORY, CLUB)).unwrap();
    })
    .succeed();
    let forged = &names(&pod)[0];
    in_user_namespace(ALICE, TEAM, || {
        let stat = fs::metadata(forged).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (OVERFLOW, OVERFLOW));
        for (owner, group, mapped) in [(OVERFLOW, OVERFLOW, "owner"), (0, OVERFLOW, "group")] {
            let refused = attach(access(0o660, owner, group)).map(drop).unwrap_err();
            assert!(refused.to_string().contains("user namespace"), "{refused}");
            assert!(refused.to_string().contains(mapped), "{refused}");
        }
        let pods = access(0o660, OVERFLOW, OVERFLOW);
        let seen = Linux::observe(pod.id, pod.slots, pods, pod.file(), true);
        assert!(matches!(seen, Err(OsError::Refused { .. })), "{seen:?}");
        // The group has no rights, and this user is the owner: the forged file is skipped.
        let own = attach(access(0o600, 0, OVERFLOW)).unwrap();
        assert_eq!(names(&pod).len(), 2);
        own.detach().unwrap();
        // All users may write to the pod.
        attach(access(0o666, OVERFLOW, OVERFLOW)).unwrap();
    });
    // Where every id has a mapping, this one is a user like others.
    Child::run(|| {
        become_user(OVERFLOW, OVERFLOW);
        let pod = TestPod::new();
        let access = access(0o600, OVERFLOW, OVERFLOW);
        let os = Linux::attach(pod.id, pod.slots, access, pod.file(), true).unwrap();
        hold(os, 1);
        os.release_obituary(1);
        assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1);
    })
    .succeed();
}

/// Each of the two is user 0 of a user namespace of its own, and neither can kill the other.
pub fn the_same_id_of_another_user_namespace_is_another_user() {
    if !is_root() {
        return;
    }
    struct Destroyed(PathBuf);
    impl Drop for Destroyed {
        fn drop(&mut self) {
            let _ = Pod::destroy(&self.0);
        }
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pod");
    let _destroyed = Destroyed(path.clone());
    let mode = |mode| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    std::os::unix::fs::chown(directory.path(), Some(ALICE), Some(TEAM)).unwrap();
    mode(0o755);
    let is_created = in_user_namespace(ALICE, TEAM, || {
        let options = PodOptions::new().size(8 << 20).ids(16).mode(0o666);
        let pod = Pod::create(&path, options).unwrap();
        // Creates the side file.
        pod.os().unwrap();
    });
    if !is_created {
        return;
    }
    let join = || {
        let pod = Pod::open(&path).unwrap();
        assert_eq!(pod.settings().uid, rustix::process::geteuid().as_raw());
        pod.join(ProcessOptions::on_host(0))
    };
    // It cannot create a cord in the directory.
    in_user_namespace(MALLORY, MALLORY, || {
        let refused = join().map(drop).unwrap_err().to_string();
        assert!(refused.contains("has no cord"), "{refused}");
        assert!(refused.contains("another user namespace"), "{refused}");
    });
    in_user_namespace(ALICE, TEAM, || join().unwrap().leave().unwrap());
    mode(0o777);
    in_user_namespace(MALLORY, MALLORY, || join().unwrap().leave().unwrap());
}
