//! The engine itself: does it really stop after each instruction, and really kill there?

use outlive_memory::{Memory, Offset, Ordering::Relaxed};
use outlive_prove::kill::{
    At, Crash, KillError, Marked, Plan, Sample, Sweep, SweepReport, sweep, unless_forbidden,
};

/// `Ok` with the report, or `None` where this cannot be run.
fn swept<S: Sweep>(operation: &S, plan: &Plan) -> Option<SweepReport> {
    unless_forbidden(sweep(operation, plan))
}

const WORD: Offset = Offset::new(128);

/// Increments a word by `INCREMENTS` instructions, one after another.
struct Increments;

const INCREMENTS: u64 = 100;

#[cfg(target_arch = "x86_64")]
impl Sweep for Increments {
    fn name(&self) -> String {
        "increments".to_owned()
    }

    fn prepare(&self, memory: Marked) {
        memory.store(WORD, 1000u64, Relaxed);
    }

    fn operate(&self, memory: Marked) {
        let word = memory.native().address(WORD, 8);
        // SAFETY: increments one word of the memory, which nobody else uses meanwhile.
        unsafe {
            core::arch::asm!(
                ".rept 100",
                "inc qword ptr [{word}]",
                ".endr",
                word = in(reg) word.as_ptr(),
            );
        }
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        memory.store(WORD + 8, 1u64, Relaxed);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let value: u64 = memory.load(WORD, Relaxed);
        let At::Instruction(step) = crash.at else {
            return Err("not killed at an instruction".to_owned());
        };
        // One increment follows another, so the first step of a value and the value go together.
        if crash.process.is_none() && value > 1000 && !crash.returned && step < value - 1000 {
            return Err(format!("{value} after {step} instructions"));
        }
        if !(1000..=1000 + INCREMENTS).contains(&value) {
            return Err(format!("the value is {value}"));
        }
        if crash.returned && value != 1000 + INCREMENTS {
            return Err(format!("returned with {value}"));
        }
        Ok(())
    }
}

/// A hundred increments are a hundred states, and a victim really killed at each instruction leaves the
/// memory that the image has: a kill one instruction early or late could not.
#[cfg(target_arch = "x86_64")]
#[test]
fn each_instruction_is_a_state_of_its_own_and_real_kills_agree() {
    let mut plan = Plan::full();
    plan.recoveries = Sample::UpTo(3);
    let Some(report) = swept(&Increments, &plan) else {
        return;
    };
    report.assert_clean();
    // The memory before, after each increment, and after the return.
    assert_eq!(report.images, 1 + INCREMENTS + 1);
    assert_eq!(report.kills, report.instructions + 1);
    assert_eq!(report.strayed, 0);
    assert!(report.addresses >= INCREMENTS, "{report}");
    assert!(report.addresses <= report.instructions + 1);
    assert_eq!(report.recoveries_swept, 3);
}

/// A loop that counts in the memory: a breakpoint in it is passed many times before the right one.
struct Loop;

impl Sweep for Loop {
    fn name(&self) -> String {
        "loop".to_owned()
    }

    fn prepare(&self, _: Marked) {}

    fn operate(&self, memory: Marked) {
        for round in 1..=10u64 {
            memory.store(WORD, round, Relaxed);
            memory.copy_in(WORD + 64, &[round as u8; 40]);
        }
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let round: u64 = memory.load(WORD, Relaxed);
        match round {
            10 => Ok(()),
            _ if crash.returned => Err(format!("returned in round {round}")),
            0..10 => Ok(()),
            _ => Err(format!("round {round}")),
        }
    }
}

#[test]
fn real_kills_in_loops_fall_on_the_instruction_meant() {
    let mut plan = Plan::quick();
    plan.real_kills = Sample::UpTo(60);
    let Some(report) = swept(&Loop, &plan) else {
        return;
    };
    report.assert_clean();
    assert_eq!((report.kills, report.strayed), (60, 0));
    assert!(report.images > 10 * 6, "{report}");
    assert!(report.addresses < report.instructions / 5, "{report}");
}

/// Writes what differs from run to run, and claims not to.
struct Undetermined;

impl Sweep for Undetermined {
    fn name(&self) -> String {
        "undetermined".to_owned()
    }

    fn prepare(&self, _: Marked) {}

    fn operate(&self, memory: Marked) {
        memory.store(WORD, u64::from(std::process::id()), Relaxed);
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, _: Marked, _: &Crash) -> Result<(), String> {
        Ok(())
    }
}

/// Real kills are compared with the images: this is what they are for.
#[test]
fn a_real_kill_that_leaves_other_memory_than_its_image_is_reported() {
    let Some(report) = swept(&Undetermined, &Plan::quick()) else {
        return;
    };
    assert!(!report.failures.is_empty());
    let other = |failure: &outlive_prove::kill::Failure| failure.message.contains("other memory");
    assert!(report.failures.iter().all(other), "{report}");
}

/// Not fit to be swept.
#[derive(Debug)]
enum Unfit {
    PanicsInPrepare,
    PanicsInOperation,
    NeverEnds,
    TouchesNothing,
    Crashes,
    Waits,
}

impl Sweep for Unfit {
    fn name(&self) -> String {
        format!("{self:?}")
    }

    fn prepare(&self, _: Marked) {
        assert!(!matches!(self, Self::PanicsInPrepare), "no way to prepare");
    }

    fn operate(&self, memory: Marked) {
        match self {
            Self::PanicsInOperation => {
                memory.load::<u64>(Offset::new(1 << 20), Relaxed);
            }
            Self::NeverEnds => while memory.load::<u64>(WORD, Relaxed) == 0 {},
            Self::Crashes => std::process::abort(),
            Self::Waits => std::thread::sleep(core::time::Duration::from_secs(3600)),
            Self::TouchesNothing | Self::PanicsInPrepare => {}
        }
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, _: Marked, _: &Crash) -> Result<(), String> {
        Ok(())
    }
}

/// An operation that does not even run unharmed is an error that says why, and the sweep ends.
#[test]
fn an_operation_that_cannot_be_swept_is_an_error() {
    let mut plan = Plan::quick();
    plan.patience = 2;
    for (operation, says) in [
        (Unfit::PanicsInPrepare, "no way to prepare"),
        (Unfit::PanicsInOperation, "outside a memory of 4096 bytes"),
        (Unfit::NeverEnds, "the plan ends here"),
        (Unfit::Crashes, "died of signal 6"),
        (Unfit::Waits, "still running after 2 s"),
    ] {
        // A panic takes many instructions until its message is made.
        plan.most_instructions = match operation {
            Unfit::NeverEnds => 2000,
            _ => 1 << 20,
        };
        match sweep(&operation, &plan) {
            Err(KillError::PtraceForbidden(forbidden)) => println!("skipped: {forbidden}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(says), "{operation:?}: {message}");
            }
            Ok(report) => panic!("{operation:?} was swept: {report}"),
        }
    }
    if let Some(report) = swept(&Unfit::TouchesNothing, &plan) {
        // Before, and after the return: the same memory, but what a return promises must hold.
        assert_eq!(report.images, 2);
    }
}

/// A sweep leaves no process behind, and the caller's thread where it may run as before.
#[test]
fn nothing_is_left_behind() {
    // SAFETY: reads the affinity of this thread into a set of the size given.
    let affinity = || unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        libc::CPU_COUNT(&set)
    };
    let before = affinity();
    let _ = swept(&Loop, &Plan::quick());
    assert_eq!(affinity(), before);
    let thread = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
    let children = std::path::Path::new("/proc").join(thread).join("children");
    // Where the kernel keeps the list: the children of this very thread.
    if let Ok(children) = std::fs::read_to_string(children) {
        assert_eq!(children, "");
    }
}
