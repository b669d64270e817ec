//! A checkpoint of two timestamped slots, swept as a suite; missing points; forbidden ptrace.

use core::ops::ControlFlow;
use outlive_memory::{Memory, Offset, Ordering::Relaxed, Ordering::Release};
use outlive_prove::Event;
use outlive_prove::kill::{
    Crash, KillError, Marked, Plan, PointKind, Suite, SuiteReport, Sweep, sweep, unless_forbidden,
};

outlive_memory::crash_points! {
    /// The points at which taking a checkpoint may be cut short.
    enum CheckpointPoint for "checkpoint.take" {
        /// The first slot is about to be overwritten.
        First,
        /// The second slot is about to be overwritten.
        Second,
        /// The slot is written and sealed.
        Sealed,
    }
}

/// A value of three words, replaced in one step as far as a reader after a crash can tell: of two
/// slots the older is overwritten, and of the slots whose checksum is right the newer counts.
///
/// A slot: time, value, checksum.
struct Checkpoint {
    /// How many checkpoints were taken before the one that is swept.
    before: u64,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    NoChecksum,
    OverwritesTheNewer,
}

const SLOTS: [Offset; 2] = [Offset::new(0), Offset::new(64)];
const VALUE: usize = 3;

fn value(time: u64) -> [u64; VALUE] {
    [time * 3, time * 5, time * 7]
}

/// Returns a checksum. It is never 0, the value in a slot that was never sealed.
fn checksum(time: u64, value: &[u64]) -> u64 {
    let words = [time].into_iter().chain(value.iter().copied());
    words.fold(1, |sum: u64, word| {
        (sum ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
    }) | 1
}

impl Checkpoint {
    fn read<M: Memory>(&self, memory: M, slot: Offset) -> Option<(u64, [u64; VALUE])> {
        let time: u64 = memory.load(slot, Relaxed);
        let value = core::array::from_fn(|i| memory.load(slot + 8 + 8 * i as u64, Relaxed));
        let seal: u64 = memory.load(slot + 8 + 8 * VALUE as u64, Relaxed);
        let sealed = seal == checksum(time, &value) || self.flaw == Flaw::NoChecksum;
        (time != 0 && sealed).then_some((time, value))
    }

    fn newest<M: Memory>(&self, memory: M) -> Option<(u64, [u64; VALUE])> {
        SLOTS
            .into_iter()
            .filter_map(|slot| self.read(memory, slot))
            .max()
    }

    fn take<M: Memory>(&self, memory: M, time: u64) {
        let older = usize::from(time.is_multiple_of(2) != (self.flaw == Flaw::OverwritesTheNewer));
        memory.crash_point(match older {
            0 => CheckpointPoint::First,
            _ => CheckpointPoint::Second,
        });
        let slot = SLOTS[older];
        memory.store(slot, time, Relaxed);
        for (i, word) in (0u64..).zip(value(time)) {
            memory.store(slot + 8 + 8 * i, word, Relaxed);
        }
        let seal = checksum(time, &value(time));
        memory.store(slot + 8 + 8 * VALUE as u64, seal, Release);
        memory.crash_point(CheckpointPoint::Sealed);
    }
}

impl Sweep for Checkpoint {
    fn name(&self) -> String {
        format!("checkpoint.take after {}", self.before)
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<CheckpointPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let right = Self {
            flaw: Flaw::None,
            ..*self
        };
        for time in 1..=self.before {
            right.take(memory, time);
        }
    }

    fn operate(&self, memory: Marked) {
        self.take(memory, self.before + 1);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        // The successor continues from the newest, as if it had been its own.
        if let Some((time, _)) = self.newest(memory) {
            assert!(time <= self.before + 1);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (time, found) = self.newest(memory).unwrap_or_default();
        if found != value(time) {
            return Err(format!("torn: {found:?} at time {time}"));
        }
        if time == self.before + 1 || (time == self.before && !crash.returned) {
            return Ok(());
        }
        Err(format!("the newest is of time {time}"))
    }
}

fn suite(times: &[u64], flaw: Flaw) -> Suite {
    let mut suite = Suite::new();
    for before in times {
        suite.add(Checkpoint {
            before: *before,
            flaw,
        });
    }
    suite
}

fn run(suite: &Suite) -> Option<SuiteReport> {
    unless_forbidden(suite.run(&Plan::quick(), |_| true, |_, _| ControlFlow::Continue(())))
}

#[test]
fn points_are_covered_by_several_sweeps_between_them() {
    let Some(report) = run(&suite(&[0, 1, 2], Flaw::None)) else {
        return;
    };
    report.assert_clean();
    assert_eq!(report.reports.len(), 3);
    // Each alone takes one of the two ways.
    assert!(
        report
            .reports
            .iter()
            .all(|report| report.missing.len() == 1)
    );
    assert!(report.coverage.missing::<CheckpointPoint>().is_empty());
}

#[test]
fn a_point_that_no_sweep_reaches_is_missing() {
    let Some(report) = run(&suite(&[0, 2], Flaw::None)) else {
        return;
    };
    assert_eq!(report.missing, ["checkpoint.take.Second"]);
    assert!(!report.is_clean());
    assert!(report.to_string().contains("not covered by any sweep"));
}

#[test]
fn a_point_of_an_operation_that_nobody_sweeps_is_missing() {
    let mut empty = Suite::new();
    empty.declare::<CheckpointPoint>();
    let Some(report) = run(&empty) else { return };
    assert_eq!(report.missing.len(), 3);
}

#[test]
fn sweeps_are_chosen_by_name() {
    let suite = suite(&[0, 1], Flaw::None);
    let mut seen = Vec::new();
    let chosen = suite.run(
        &Plan::quick(),
        |name| name.ends_with("after 1"),
        |name, event| {
            seen.push((name.to_owned(), matches!(event, Event::Ends(_))));
            ControlFlow::Continue(())
        },
    );
    if unless_forbidden(chosen).is_some() {
        let name = || "checkpoint.take after 1".to_owned();
        assert_eq!(seen, [(name(), false), (name(), true)]);
    }
}

#[test]
fn slots_without_checksum_are_found() {
    if let Some(report) = run(&suite(&[1], Flaw::NoChecksum)) {
        let failures = &report.reports[0].failures;
        assert!(!failures.is_empty());
        assert!(
            failures
                .iter()
                .all(|failure| failure.message.contains("torn")),
            "{report}"
        );
    }
}

#[test]
fn overwriting_the_newer_slot_is_found() {
    if let Some(report) = run(&suite(&[1, 2], Flaw::OverwritesTheNewer)) {
        assert!(
            report
                .reports
                .iter()
                .all(|report| !report.failures.is_empty()),
            "{report}"
        );
    }
}

/// In a container that filters system calls, a sweep reports the missing permission and does
/// nothing else.
#[test]
fn where_ptrace_is_forbidden_an_error_says_so() {
    // A filter belongs to the thread that installs it, and to its children.
    let refused = std::thread::spawn(|| {
        forbid_ptrace();
        sweep(
            &Checkpoint {
                before: 0,
                flaw: Flaw::None,
            },
            &Plan::quick(),
        )
    });
    match refused.join().expect("no panic") {
        Err(KillError::PtraceForbidden(forbidden)) => {
            let message = forbidden.to_string();
            assert!(message.contains("SYS_PTRACE"), "{message}");
            assert_eq!(forbidden.source.raw_os_error(), Some(libc::EPERM));
        }
        other => panic!("{other:?}"),
    }
}

/// Makes every ptrace call of this thread fail with EPERM.
fn forbid_ptrace() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 1, libc::SYS_ptrace as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: restricts the calling thread only; the filter and its program live through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0
        );
    }
}
