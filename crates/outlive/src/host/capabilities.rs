//! The facilities of this operating system that Outlive uses, and the consequences of missing ones.

use super::proc::Place;
use super::robust::RobustList;
use super::{Cgroup, CoreDumps, calls, futex, surroundings};
use core::fmt;
use rustix::process::{Pid, PidfdFlags, Resource, getpid, getrlimit, pidfd_open};
use std::io::Error;

/// A facility that Outlive uses.
#[derive(Clone, Debug)]
pub struct Capability {
    /// The name of the facility.
    pub name: &'static str,
    /// Whether the facility is available.
    pub available: bool,
    /// A description of the result of the check.
    pub detail: String,
    /// The consequence if the facility is not available.
    pub cost: &'static str,
    /// Whether Outlive requires the facility.
    pub needed: bool,
}

/// The availability of all facilities that Outlive uses. Its `Display` output lists them.
///
/// ```
/// let capabilities = outlive::host::Capabilities::probe();
/// assert!(capabilities.enough(), "{capabilities}");
/// println!("{capabilities}");
/// ```
#[derive(Clone, Debug)]
pub struct Capabilities {
    all: Vec<Capability>,
}

impl Capabilities {
    /// Checks all facilities. Leaves nothing behind and does not change this process.
    pub fn probe() -> Self {
        let mut all = vec![proc(), robust_list()];
        all.extend(surroundings::probe());
        all.extend(calls::probe());
        all.extend([
            waitv(),
            pidfd(),
            pidfd_kill(),
            locked_memory(),
            cgroup(),
            ptrace(),
            core_dumps(),
        ]);
        Self { all }
    }

    /// Returns all facilities.
    pub fn all(&self) -> &[Capability] {
        &self.all
    }

    /// Returns the facilities that are not available.
    pub fn missing(&self) -> impl Iterator<Item = &Capability> {
        self.all.iter().filter(|one| !one.available)
    }

    /// Returns whether all required facilities are available.
    pub fn enough(&self) -> bool {
        self.missing().all(|one| !one.needed)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.all {
            let mark = match (one.available, one.needed) {
                (true, _) => "yes",
                (false, true) => "NO, needed",
                (false, false) => "no",
            };
            writeln!(f, "{:<18} {mark}: {}", one.name, one.detail)?;
            if !one.available {
                writeln!(f, "{:<18} without it: {}", "", one.cost)?;
            }
        }
        Ok(())
    }
}

fn proc() -> Capability {
    let place = Place::of_this_process();
    let found = place.and_then(|place| super::proc::this_process(place.namespaces));
    Capability {
        name: "/proc",
        available: found.is_ok(),
        detail: found.map_or_else(|error| error.to_string(), |_| "readable".into()),
        cost: "a process cannot be distinguished from a later one with the same pid",
        needed: true,
    }
}

fn robust_list() -> Capability {
    let found = RobustList::of_this_thread().map(|list| list.futex_offset());
    Capability {
        name: "get_robust_list",
        available: found.is_ok(),
        detail: match found {
            Ok(offset) => format!("robust futexes; the C library's offset is {offset}"),
            Err(error) => error.to_string(),
        },
        cost: "the kernel does not report the death of a thread",
        needed: true,
    }
}

fn waitv() -> Capability {
    let available = futex::can_wait_any();
    Capability {
        name: "futex_waitv",
        available,
        detail: said(available, "several words are watched by one call"),
        cost: "obituaries are polled every millisecond: deaths are reported up to 1 ms later, and \
               an idle sentinel wakes 1000 times a second",
        needed: false,
    }
}

fn pidfd() -> Capability {
    let found = pidfd_open(getpid(), PidfdFlags::empty());
    Capability {
        name: "pidfd_open",
        available: found.is_ok(),
        detail: found.map_or_else(|error| error.to_string(), |_| "works".into()),
        cost: "processes are watched by polling /proc, and killed by pid after a check of their \
               start time",
        needed: false,
    }
}

fn pidfd_kill() -> Capability {
    let available = pidfd_open(getpid(), PidfdFlags::empty()).is_ok_and(|pidfd| {
        // SAFETY: signal 0 is never sent.
        let answer = unsafe {
            use std::os::fd::AsRawFd;
            libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, 0, 0)
        };
        answer == 0
    });
    Capability {
        name: "pidfd_send_signal",
        available,
        detail: said(available, "works"),
        cost: "processes are killed by pid after a check of their start time",
        needed: false,
    }
}

fn locked_memory() -> Capability {
    let limit = getrlimit(Resource::Memlock).current;
    // The side file of a pod of 1024 ids.
    let available =
        limit.is_none_or(|bytes| bytes >= 256 << 10) || rustix::process::geteuid().is_root();
    Capability {
        name: "locked memory",
        available,
        detail: limit.map_or("no limit".into(), |bytes| format!("{} KiB", bytes >> 10)),
        cost: "under memory pressure an obituary may be swapped out, and the death of its thread \
               is then reported late (raise RLIMIT_MEMLOCK)",
        needed: false,
    }
}

fn cgroup() -> Capability {
    let name = format!("outlive.probe.{}", std::process::id());
    let found = Cgroup::create(&name);
    if let Ok(group) = &found {
        let _ = group.remove();
    }
    Capability {
        name: "cgroup.kill",
        available: found.is_ok(),
        detail: match found {
            Ok(group) => format!("groups can be created, such as {}", group.path().display()),
            Err(error) => error.to_string(),
        },
        cost: "a host is killed process by process, and its processes that never joined are not \
               killed",
        needed: false,
    }
}

fn ptrace() -> Capability {
    let nobody = Pid::from_raw(i32::MAX).map_or(0, |pid| pid.as_raw_nonzero().get());
    // SAFETY: the process does not exist; a kernel that permits tracing reports that (ESRCH).
    let answer = unsafe { libc::ptrace(libc::PTRACE_CONT, nobody, 0, 0) };
    let error = Error::last_os_error();
    let available = answer == -1 && error.raw_os_error() == Some(libc::ESRCH);
    Capability {
        name: "ptrace",
        available,
        detail: said(available, "child processes can be traced"),
        cost: "`outlive-lab prove kill` and the sweeps of the tests cannot run (container: \
               --cap-add SYS_PTRACE)",
        needed: false,
    }
}

fn core_dumps() -> Capability {
    let dumps = CoreDumps::of_this_process();
    Capability {
        name: "no core dumps",
        available: dumps == CoreDumps::Off,
        detail: format!("dumps of this process: {dumps}"),
        cost: "the death of a process by a fault is reported only after its core dump is written, \
               which takes seconds for much private memory (joining can switch dumps off)",
        needed: false,
    }
}

fn said(available: bool, detail: &str) -> String {
    if available {
        detail.into()
    } else {
        "missing, or filtered (seccomp)".into()
    }
}
